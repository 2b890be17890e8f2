package pipeline

import (
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"

	"tributary/normalizers"
	"tributary/pipeline/broker"
	"tributary/pipeline/sessions"
	"tributary/pipeline/streams"
)

// message is an event or a dead letter, with its place among the messages of its record.
type message struct {
	*nats.Msg                      // nil while it still has to be encoded from event
	event     *normalizers.Emitted // of a record whose messages exceed one batch, see [ownership.eventMessages]
	raw       uint64               // raw sequence of the record
	part      int                  // 1 for the first message of the record
	size      int                  // bytes
	letter    bool                 // a dead letter
	step      *sessions.Step       // of an event; nil unless it is handed over
}

// chunk is the result of consecutive records of one partition, which is stored together:
// messages in the order of their records, and the sessions that the records changed.
type chunk struct {
	number  uint64
	started time.Time
	oldest  time.Time // when the broker stored the first record in it

	records  int
	raw      uint64 // raw sequence of the last record in it
	rawTime  time.Time
	messages []message
	blocks   blocks // of the messages
	bytes    int    // of the messages that are not stored yet
	changed  []*liveSession
	tally    tally
	notes    []gapNote
	links    []trace.Link // to the trace contexts in which its records were created

	// A chunk of archives has no record.
	archives   []*nats.Msg
	archived   int    // states that they take over
	archivedTo uint64 // highest sequence of one of these

	// Set when the chunk is sealed, that is handed to the committer.
	states []*nats.Msg // of the changed sessions in their order, or the archives
	sent   int         // messages that are stored already

	gaps, rewritten []streams.ListChange // of the changed sessions
}

func newChunk(number uint64) *chunk { return &chunk{number: number, tally: make(tally)} }

// empty reports whether the chunk has nothing to store.
func (c *chunk) empty() bool { return c.records == 0 && c.archives == nil }

// full reports whether the chunk accepts no further record. Its last record may have
// exceeded the limits of a batch.
func (c *chunk) full(limits batchSize) bool { return c.size().reaches(limits) }

// size returns what a batch that stores the rest of the chunk contains. Until the chunk is
// sealed, the memory that a session takes stands for the length of its encoded state.
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

// fitsOneBatch reports whether one batch stores the rest of the chunk. A chunk may exceed
// the limits of a batch by its last record: up to what the broker accepts, and up to twice
// the bytes of its messages. States do not count: they cannot be split.
func (c *chunk) fitsOneBatch() bool {
	return c.size().messages <= broker.MaxBatch && c.bytes <= 2*broker.BatchBytes
}

// unsent returns the messages that are not stored yet.
func (c *chunk) unsent() []message { return c.messages[c.sent:] }

// head returns as many of the unsent messages as one batch holds.
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

// add appends a record and its messages, without the first skip of them, which an earlier
// commit has stored.
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

// change notes that a record of the chunk has changed a session.
func (c *chunk) change(s *liveSession) {
	if s.chunk != c.number {
		c.changed = append(c.changed, s)
	}
}

// seal encodes the states of the changed sessions as they are now.
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
