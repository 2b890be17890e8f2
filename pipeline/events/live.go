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

// Live reads the events of the live generation. When another generation becomes live, it continues with the events of
// the raw records that were not done in the previous one, so that each event comes once although both generations
// have it.
//
// The previous generation may hold an event back, because its meaning depends on a later record. The event then comes
// from the next generation, unless both of the following hold. Then it is lost.
//   - At the change, the two generations had not done the same records of its partition, or the next one had already
//     stored the event.
//   - Its place in the session is unknown: the generations have different revisions, no event of the session was read
//     before, or 65,536 other sessions were read since.
//
// Make one with [NewLive].
type Live struct {
	js    jetstream.JetStream
	query Query
	moved func(from, to string) error // nil to stay with the generation

	// These belong to the reading goroutine.
	begun     bool                 // the start in this generation is known
	resumed   bool                 // events up to position were read before
	revision  int                  // of the generation; -1 if unknown
	base      []streams.Checkpoint // records whose events are to be skipped; nil for none
	records   map[int]readRecord   // last record read in each partition
	sequences sequences            // of the last event read of each session, as numbered by the revision
	left      *left                // nil before the first change
	since     time.Time            // read events since this time

	mu         sync.Mutex
	generation string
	position   streams.Positions // events up to here were passed on or skipped
}

// readRecord is a record of which events were read, with their ids.
type readRecord struct {
	record uint64
	events []string
}

// sequences has the sequences of the last events of the most recently read sessions: at least maxSequences of them,
// and at most twice as many.
type sequences struct{ last, before map[SessionID]uint64 }

// maxSequences bounds the memory of a reader that runs for years.
const maxSequences = 1 << 16

// note sets the sequence of the last event of a session.
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

// left describes the previous generation.
type left struct {
	done  []uint64           // raw record up to which its events were read, by partition
	last  map[int]readRecord // last record read, which may be behind that
	exact map[int]bool       // partitions in which every event after begin is new
	begin streams.Positions  // positions in the events of the live generation
}

// NewLive returns a reader of the events that q selects, beginning with generation. moved is called before the first
// event of another generation; its error ends the reading. If moved is nil, the reader stays with the generation.
func NewLive(js jetstream.JetStream, generation string, q Query, moved func(from, to string) error) *Live {
	return &Live{
		js: js, query: q, moved: moved, generation: generation, position: q.After, since: q.Since,
		records: make(map[int]readRecord),
	}
}

// Position returns the present generation and the positions up to which its events were passed on. Any goroutine may
// call it.
func (l *Live) Position() (generation string, position streams.Positions) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.generation, l.position
}

// Read iterates as the function [Read] does. With follow it goes from generation to generation, otherwise it ends
// with the last event of the present one, or of the live one if the present one was dropped. A later iteration continues
// after the last event.
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
				if l.moved != nil && errors.Is(err, jetstream.ErrStreamNotFound) { // it may be dropped because another one is live
					if live, failed := streams.LiveGeneration(ctx, l.js); failed == nil && live != generation {
						next = live
					}
				}
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

// passing passes on events until the caller has enough.
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

// each passes on the events of the generation for which wanted returns true.
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

// isNew reports whether no previous generation had an event.
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

// begin finds the start of the reading in the generation.
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
	// The end is read before the checkpoints, so that what these lack is stored behind it.
	last, err := streams.LastPositions(ctx, l.js, l.generation)
	if err != nil {
		return err
	}
	have, err := streams.CheckpointsOf(ctx, l.js, l.generation)
	if err != nil && l.left != nil { // for the first generation they only matter if it is dropped before its rest is read
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

// clockSkew exceeds the differences between the clocks of a cluster's servers.
const clockSkew = time.Minute

// enter chooses where to begin in a generation that follows another: at its end if it has no more records than the
// other, else at the time of the last record that both have.
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

// leave passes on the rest of a generation that is no longer live, and moves to the next one.
func (l *Live) leave(ctx context.Context, next string, p *passing) error {
	var have []streams.Checkpoint
	err := l.retry(ctx, func(ctx context.Context) (err error) {
		have, err = streams.CheckpointsOf(ctx, l.js, l.generation)
		return err
	})
	if err == nil && ctx.Err() == nil {
		err = l.each(ctx, false, p, func(e *Event) bool {
			partition, record := e.origin()
			return l.isNew(e) && (partition < 0 || partition >= len(have) || record <= have[partition].Raw) // the next generation has it, too
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

// readBefore returns, for a generation whose streams are gone, the records up to which its events were read. For each
// partition it stops before the last record, which may have been read in part.
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
