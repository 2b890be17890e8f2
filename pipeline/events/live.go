package events

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/broker"
	"tributary/pipeline/streams"
)

// Live reads the events of the live generation, whichever that is. When another becomes live, it goes on with the events of
// the raw records that were not done in the one before: each event comes once, although every generation has it. An event that
// the one before held back, because its meaning depended on a later record, comes from the next one; it is left out only where
// both worked on its partition at that moment, and are of different revisions, or no event of its session was read before,
// or so long ago that 65,536 other sessions came since.
//
// Make one with [NewLive].
type Live struct {
	js    jetstream.JetStream
	query Query
	moved func(from, to string) error // nil to stay with the generation

	// These belong to the goroutine that reads.
	begun     bool                 // it is known where the reading of the generation begins
	resumed   bool                 // its events were read before, up to position
	revision  int                  // of the generation; -1 for unknown
	base      []streams.Checkpoint // records of which no event is to come; nil for none
	records   map[int]readRecord   // the last ones of which events were read, by partition
	sequences sequences            // of the last event of each session that was read, as the revision numbers them
	left      *left                // nil before the first change
	since     time.Time            // from when on events are read

	mu         sync.Mutex
	generation string
	position   streams.Positions // up to which events are passed on or left out
}

// readRecord is a record of which events were read, and the ids of these.
type readRecord struct {
	record uint64
	events []string
}

// sequences are the sequences of the last events of the sessions that were read last: maxSequences of them at least, twice as
// many at most.
type sequences struct{ last, before map[SessionID]uint64 }

// maxSequences bounds the memory of a reader that reads for years.
const maxSequences = 1 << 16

// note notes the sequence of the last event of a session.
func (s *sequences) note(id SessionID, sequence uint64) {
	if s.last == nil || len(s.last) >= maxSequences {
		s.last, s.before = make(map[SessionID]uint64), s.last
	}
	s.last[id] = sequence
}

// of returns the sequence of the last event of a session, if it is known.
func (s *sequences) of(id SessionID) (sequence uint64, known bool) {
	if sequence, known = s.last[id]; !known {
		sequence, known = s.before[id]
	}
	return sequence, known
}

// left is what is known of the generation before.
type left struct {
	done  []uint64           // up to which records its events were read, by partition
	last  map[int]readRecord // which may be behind them
	exact map[int]bool       // partitions of which every event behind begin is new
	begin streams.Positions  // in the events of the live one
}

// NewLive returns a reader of the events that q selects, which begins with a generation. moved is called before the first
// event of another one; its error ends the reading. Without it the reader stays with the generation.
func NewLive(js jetstream.JetStream, generation string, q Query, moved func(from, to string) error) *Live {
	return &Live{
		js: js, query: q, moved: moved, generation: generation, position: q.After, since: q.Since,
		records: make(map[int]readRecord),
	}
}

// Position returns the generation that is read, and up to which positions its events are passed on. Any goroutine may call it.
func (l *Live) Position() (generation string, position streams.Positions) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.generation, l.position
}

// Read iterates as [Read] does. One that follows goes from generation to generation; one that does not ends with the last event
// of the generation that it reads. A later iteration goes on behind the last event.
func (l *Live) Read(ctx context.Context, follow bool) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		p := &passing{yield: yield}
		for {
			generation, _ := l.Position()
			read := func(ctx context.Context) error { return l.read(ctx, follow, p) }
			var next string
			var err error
			if follow && l.moved != nil {
				next, err = streams.WhileLive(ctx, l.js, generation, read)
			} else {
				err = read(ctx)
			}
			if next != "" && !p.stopped {
				err = l.leave(ctx, next, p)
			}
			switch {
			case p.stopped:
				return
			case err != nil:
				yield(Event{}, fmt.Errorf("read events of %s: %w", generation, err))
				return
			case next == "":
				return
			}
		}
	}
}

// passing passes events on until the caller has enough.
type passing struct {
	yield   func(Event, error) bool
	stopped bool
}

// read passes on the events of the generation.
func (l *Live) read(ctx context.Context, follow bool, p *passing) error {
	if err := l.retry(ctx, l.begin); err != nil || ctx.Err() != nil {
		return err
	}
	return l.each(ctx, follow, p, l.isNew)
}

// each passes on the events of the generation that wanted selects.
func (l *Live) each(ctx context.Context, follow bool, p *passing, wanted func(*Event) bool) error {
	q := l.query
	q.Since, q.Follow = l.since, follow
	if l.resumed {
		_, q.After = l.Position()
		q.Last, q.Read = 0, nil
	}
	l.resumed = true
	return eachEvent(ctx, l.js, l.generation, q, readEvent, func(e Event, err error) bool {
		if e.Position == 0 || err != nil || wanted(&e) {
			if err == nil && q.Raw {
				if failed := e.loadRaw(ctx, l.js); failed != nil {
					e, err = Event{}, failed
				}
			}
			if p.stopped = !p.yield(e, err) || e.Position == 0; p.stopped {
				return false
			}
			if err == nil {
				l.note(&e)
			}
		}
		l.mu.Lock()
		l.position = l.position.With(e.Cell, e.Position)
		l.mu.Unlock()
		return true
	})
}

// origin returns the partition and the raw record of an event or a dead letter.
func (e *Event) origin() (partition int, record uint64) {
	if e.DeadLetter != nil {
		return e.DeadLetter.Partition, e.DeadLetter.Sequence
	}
	return e.Provenance.Partition, e.Provenance.RawSequence
}

// note notes that an event was passed on.
func (l *Live) note(e *Event) {
	partition, record := e.origin()
	if r := l.records[partition]; record > r.record {
		l.records[partition] = readRecord{record, []string{e.EventID}}
	} else if record == r.record {
		l.records[partition] = readRecord{record, append(r.events, e.EventID)}
	}
	if e.DeadLetter == nil {
		l.sequences.note(SessionID{e.Source, e.SessionID}, e.Sequence)
	}
}

// isNew reports whether no generation before had an event.
func (l *Live) isNew(e *Event) bool {
	if l.left == nil {
		return true
	}
	partition, record := e.origin()
	if last, ok := l.left.last[partition]; ok && record == last.record && slices.Contains(last.events, e.EventID) {
		return false
	}
	if partition < 0 || partition >= len(l.left.done) || record > l.left.done[partition] {
		return true
	}
	if l.left.exact[partition] && e.Position > l.left.begin.In(e.Cell) {
		return true
	}
	last, known := l.sequences.of(SessionID{e.Source, e.SessionID})
	return known && e.DeadLetter == nil && e.Sequence > last
}

// retry repeats a step until the broker answers.
func (l *Live) retry(ctx context.Context, step func(context.Context) error) error {
	for {
		err := step(ctx)
		if err == nil || !broker.Unanswered(err) || ctx.Err() != nil {
			return err
		}
		if l.query.Interrupted != nil {
			l.query.Interrupted(err)
		}
		if broker.Pause(ctx, time.Second) != nil {
			return nil //nolint:nilerr // ctx ends the iteration
		}
	}
}

// begin finds out where the reading of the generation begins.
func (l *Live) begin(ctx context.Context) error {
	if l.begun {
		return nil
	}
	g, err := streams.ReadGeneration(ctx, l.js, l.generation)
	switch {
	case errors.Is(err, streams.ErrNoGeneration):
		g.Revision = -1
	case err != nil:
		return err
	}
	if l.revision != g.Revision {
		l.sequences = sequences{}
	}
	l.revision = g.Revision
	// The end is read before the checkpoints: what these do not have is stored behind it.
	last, err := streams.LastPositions(ctx, l.js, l.generation)
	if err != nil {
		return err
	}
	have, err := streams.CheckpointsOf(ctx, l.js, l.generation)
	if err != nil && l.left != nil { // the first generation can do without: they count where it is dropped before its rest is read
		return err
	}
	position := l.query.After
	switch q := &l.query; {
	case l.left != nil:
		position, l.resumed = l.enter(last, have), true
	case q.Last > 0:
		position, l.base = last, have
	case q.After != nil || !q.Since.IsZero():
		l.base = have
	}
	l.mu.Lock()
	l.position = position
	l.mu.Unlock()
	l.begun = true
	return nil
}

// clockSkew is more than the clocks of the servers of a cluster differ.
const clockSkew = time.Minute

// enter chooses where the reading of a generation behind another one begins: at its end, where it does not have more records
// than that one, else at the time of the last record that both have.
func (l *Live) enter(last streams.Positions, have []streams.Checkpoint) (after streams.Positions) {
	after, l.since = last, l.query.Since
	l.left.begin, l.left.exact = last, make(map[int]bool)
	var from time.Time
	ahead := false
	for p, c := range have {
		if p >= len(l.left.done) {
			continue
		}
		l.left.exact[p] = c.Raw == l.left.done[p]
		if c.Raw <= l.left.done[p] {
			continue
		}
		since := time.Time{}
		if p < len(l.base) {
			since = l.base[p].RawTime
		}
		if !ahead || since.Before(from) {
			from = since
		}
		ahead = true
		after = after.With(streams.Layout{Cells: len(last)}.Cell(p), 0)
	}
	if ahead && !from.IsZero() && from.Add(-clockSkew).After(l.since) {
		l.since = from.Add(-clockSkew)
	}
	return after
}

// leave passes on the rest of a generation that is no longer live, and goes to the next one.
func (l *Live) leave(ctx context.Context, next string, p *passing) error {
	var have []streams.Checkpoint
	err := l.retry(ctx, func(ctx context.Context) (err error) {
		have, err = streams.CheckpointsOf(ctx, l.js, l.generation)
		return err
	})
	if err == nil && ctx.Err() == nil {
		err = l.each(ctx, false, p, func(e *Event) bool {
			partition, record := e.origin()
			return l.isNew(e) && (partition < 0 || partition >= len(have) || record <= have[partition].Raw) // the next one has it, too
		})
	}
	switch {
	case p.stopped, ctx.Err() != nil:
		return nil //nolint:nilerr // ctx ends the iteration
	case errors.Is(err, jetstream.ErrStreamNotFound):
		have = l.readBefore()
	case err != nil:
		return err
	}
	done := make([]uint64, len(have))
	for n := range have {
		if l.left != nil && n < len(l.left.done) {
			have[n].Raw = max(have[n].Raw, l.left.done[n])
		}
		done[n] = have[n].Raw
	}
	if err := l.moved(l.generation, next); err != nil {
		return err
	}
	l.left, l.base, l.begun = &left{done: done, last: l.records}, have, false
	l.records = make(map[int]readRecord)
	l.mu.Lock()
	l.generation, l.position = next, nil
	l.mu.Unlock()
	return nil
}

// readBefore returns up to which records the events of a generation were read whose streams are gone: before the last one
// of a partition, which may have been read in part.
func (l *Live) readBefore() []streams.Checkpoint {
	read := slices.Clone(l.base)
	for p, r := range l.records {
		for p >= len(read) {
			read = append(read, streams.Checkpoint{})
		}
		if p >= 0 && r.record > read[p].Raw {
			read[p].Raw = r.record - 1
		}
	}
	return read
}
