package worker

import (
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/broker"
	"tributary/pipeline/sessions"
	"tributary/pipeline/streams"
)

// message is an event or a dead letter, with its position among the messages of its record.
type message struct {
	*nats.Msg                // nil until it is encoded from event
	event     *core.Emitted  // set for a record whose messages exceed one batch, see [encoder.events]
	raw       uint64         // raw sequence of the record
	part      int            // 1 for the first message of the record
	size      int            // bytes
	letter    bool           // a dead letter, not an event
	step      *sessions.Step // step of an event that is handed over, else nil
}

// chunk is the result of consecutive records of one partition, stored together: messages in the order of their
// records, and the sessions that the records changed.
type chunk struct {
	number  uint64
	started time.Time
	oldest  time.Time // when the broker stored the first record in it

	records  int
	raw      uint64 // raw sequence of the last record in it
	rawTime  time.Time
	messages []message
	blocks   blocks // memory of the messages
	bytes    int    // bytes of the messages not stored yet
	changed  []*liveSession
	tally    tally
	notes    []gapNote
	links    []trace.Link // links to the trace contexts in which the records were created

	// A chunk of archives has no record.
	archives   []*nats.Msg
	archived   int    // states that the archives take over
	archivedTo uint64 // how far the archives reach; 0 for a chunk of records

	// Set when the chunk is sealed, that is, handed to the committer.
	states []*nats.Msg // states of the changed sessions in order, or the archives
	sent   int         // number of messages already stored

	gaps, rewritten []streams.ListChange // changes of the changed sessions
}

func newChunk(number uint64) *chunk { return &chunk{number: number, tally: make(tally)} }

// empty reports whether the chunk has nothing to store.
func (c *chunk) empty() bool { return c.records == 0 && c.archivedTo == 0 }

// full reports whether the chunk accepts no further record. Its last record may exceed the limits of a batch.
func (c *chunk) full(limits batchSize) bool { return c.size().reaches(limits) }

// size returns the size of a batch that stores the rest of the chunk. Until the chunk is sealed, the memory of a
// session stands for the length of its encoded state.
func (c *chunk) size() batchSize {
	bytes := c.bytes
	for _, s := range c.changed {
		bytes += s.size
	}
	for _, m := range c.archives {
		bytes += len(m.Data)
	}
	return batchSize{c.records, len(c.messages) - c.sent + len(c.changed) + len(c.archives) + 2, bytes}
}

// fitsOneBatch reports whether one batch can store the rest of the chunk. The last record of a chunk may exceed the
// limits of a batch: in messages up to what the broker accepts, in bytes up to twice the limit. States do not count,
// because they cannot be split.
func (c *chunk) fitsOneBatch() bool {
	return c.size().messages <= broker.MaxBatch && c.bytes <= 2*broker.BatchBytes
}

// unsent returns the messages not stored yet.
func (c *chunk) unsent() []message { return c.messages[c.sent:] }

// head returns the unsent messages that fit one batch.
func (c *chunk) head() []message {
	n, bytes := 0, 0
	for _, m := range c.unsent() {
		if n == batchMessages || n > 0 && bytes+m.size > broker.BatchBytes {
			break
		}
		n, bytes = n+1, bytes+m.size
	}
	return c.unsent()[:n]
}

// add appends a record and its messages, except the first skip of them, which an earlier commit has stored.
func (c *chunk) add(m broker.Message, messages []message, skip int) {
	if c.records == 0 {
		c.started, c.oldest = time.Now(), m.Stored
	}
	c.records++
	c.raw, c.rawTime = m.Sequence, m.Stored
	for i, out := range messages[min(skip, len(messages)):] {
		out.raw, out.part = m.Sequence, skip+i+1
		c.messages = append(c.messages, out)
		c.bytes += out.size
	}
}

// done returns the checkpoint after the chunk.
func (c *chunk) done(before streams.Checkpoint) streams.Checkpoint {
	if c.records > 0 { // archives are no progress: the attempts on the next record still count
		before = before.Done(c.raw, c.rawTime, c.records)
	}
	before.Gaps = before.Gaps.With(c.gaps)
	before.Rewritten = before.Rewritten.With(c.rewritten)
	before.Archived += uint64(c.archived)
	before.ArchivedTo = max(before.ArchivedTo, c.archivedTo)
	return before
}

// count adds to a counter. It takes effect once the chunk is stored.
func (c *chunk) count(counter int, r received, n int64, labels ...string) {
	c.tally.add(counter, r.Source, n, labels...)
}

// change notes that a record of the chunk changed a session.
func (c *chunk) change(s *liveSession) {
	if s.chunk != c.number {
		c.changed = append(c.changed, s)
	}
}

// seal encodes the present states of the changed sessions.
func (c *chunk) seal(generation string, partition int) {
	c.states = c.archives
	for _, s := range c.changed {
		c.states = append(c.states, s.message(generation, partition))
	}
	c.sealGaps(generation, partition)
}

// acknowledge notes that the next n messages are stored.
func (c *chunk) acknowledge(n int) {
	for _, m := range c.unsent()[:n] {
		c.bytes -= m.size
	}
	c.sent += n
}

// countResult counts the result of a record and notes its changes of gaps.
func (c *chunk) countResult(r received, s *liveSession, result core.Result) {
	c.countVersion(r, s)
	for _, u := range result.Unknown {
		c.count(countUnknown, r, int64(u.Count), normalizers.VersionOf(s.state), string(u.Kind), u.Name)
	}
	for i := range result.Events {
		c.tally.addEvent(r.Source, &result.Events[i].Event)
	}
	if result.Skip != "" {
		c.count(countSkipped, r, 1, string(result.Skip))
	}
	if result.Gap {
		c.count(countGaps, r, 1)
	}
	if result.Late {
		c.count(countLate, r, 1)
	}
	if result.Rewritten {
		c.count(countRewritten, r, 1)
	}
	if result.Undecided {
		c.count(countUndecided, r, 1)
	}
	c.noteGap(r, s, result)
}

// gapNote sums up, for the log, how the records of a chunk changed the gaps of a session.
type gapNote struct {
	session *liveSession
	opened  int
	newest  core.Gap // newest gap that was opened
	file    string   // file of the newest gap
	late    int      // records that filled a gap
	left    int      // gaps left when the chunk was sealed

	rewritten     int    // records that differ from the earlier ones at the same place
	undecided     int    // records at passed places whose earlier records have expired
	rewrittenFile string // file of the newest of both
}

// noteGap notes how a record changed the gaps of its session, and whether the session had passed the place of the
// record.
func (c *chunk) noteGap(r received, s *liveSession, result core.Result) {
	if !result.Gap && !result.Late && !result.Rewritten && !result.Undecided {
		return
	}
	i := slices.IndexFunc(c.notes, func(n gapNote) bool { return n.session == s })
	if i < 0 {
		i = len(c.notes)
		c.notes = append(c.notes, gapNote{session: s})
	}
	n := &c.notes[i]
	switch {
	case result.Late:
		n.late++
	case result.Gap:
		gaps := s.state.Gaps()
		n.opened++
		n.newest, n.file = gaps[len(gaps)-1], r.Origin.File
	case result.Rewritten:
		n.rewritten++
		n.rewrittenFile = r.Origin.File
	case result.Undecided:
		n.undecided++
		n.rewrittenFile = r.Origin.File
	}
}

// sealGaps notes which sessions of the chunk now have gaps or rewritten files and had none before, or the reverse.
func (c *chunk) sealGaps(generation string, partition int) {
	for _, s := range c.changed {
		subject := func() string { return envelopes.StateSubject(generation, partition, s.key.Source, s.key.ID) }
		if has := len(s.state.Gaps()) > 0; has != s.gaps {
			c.gaps = append(c.gaps, streams.ListChange{Subject: subject(), Added: has})
			s.gaps = has
		}
		if has := len(s.state.Rewrites()) > 0; has != s.rewritten {
			c.rewritten = append(c.rewritten, streams.ListChange{Subject: subject(), Added: has})
			s.rewritten = has
		}
	}
	for i := range c.notes {
		c.notes[i].left = len(c.notes[i].session.state.Gaps())
	}
}

// logGaps logs how a stored chunk changed gaps, one line for each session.
func logGaps(log *slog.Logger, notes []gapNote) {
	for _, n := range notes {
		session := []any{slog.String("source", string(n.session.key.Source)), slog.String("session", n.session.key.ID)}
		if n.opened > 0 {
			log.Warn("records are missing in the raw stream: ship their file again", append(session,
				slog.Int("gaps", n.opened), slog.String("file", n.file), slog.Int64("after", n.newest.After), slog.Int64("last", n.newest.Last),
				slog.Uint64("sequence", n.newest.Sequence))...)
		}
		if n.rewritten > 0 {
			log.Warn("file has other records than before at the same places: it was rewritten, or continued on two machines; both are kept",
				append(session, slog.Int("records", n.rewritten), slog.String("file", n.rewrittenFile))...)
		}
		if n.undecided > 0 {
			log.Warn("records are taken for duplicates, because earlier records at their places have expired from the raw stream: "+
				"keep raw records longer than files may be shipped again", append(session, slog.Int("records", n.undecided), slog.String("file", n.rewrittenFile))...)
		}
		if n.late > 0 {
			log.Info("missing records were stored", append(session, slog.Int("records", n.late), slog.Int("gaps", n.left))...)
		}
	}
}

// moved is the result of moving old states to archives (archiver.go), which a chunk stores.
type moved struct {
	archives []*nats.Msg
	size     int            // bytes of the archives
	states   int            // states that the archives did not have
	to       uint64         // highest sequence of the states that the archives have now
	leave    []broker.Place // messages to remove, because the archives have their states
}

// add adds the result for another archive.
func (m *moved) add(other moved) {
	m.archives = append(m.archives, other.archives...)
	m.size, m.states, m.to = m.size+other.size, m.states+other.states, max(m.to, other.to)
	m.leave = append(m.leave, other.leave...)
}
