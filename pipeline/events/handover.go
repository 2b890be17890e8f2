package events

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/broker"
	"tributary/pipeline/sessions"
	"tributary/pipeline/streams"
)

// Handover hands the events that the stages of a process store to readers in the same process, so that these need
// not read them from the broker again. Set it in the [worker.Config] of a stage, and read with [Handover.Steps]. All
// methods may be called from any goroutine, also of a nil Handover, which hands nothing over.
type Handover struct {
	Quiet   time.Duration // after events of others, those of this process are read from the broker for so long
	Silence time.Duration // after it without a batch, the broker is asked for events of others
	Most    int           // steps that wait for one reader

	mu      sync.Mutex
	readers map[string][]*handed // by the name of a generation in a cell
}

// NewHandover returns a handover without readers.
func NewHandover() *Handover {
	return &Handover{Quiet: 10 * time.Second, Silence: time.Second, Most: maxHanded, readers: make(map[string][]*handed)}
}

// Steps iterates over the events of a generation behind positions, as [Read] with Follow does. Only Step, Cell and
// Position of an event are set, and Stored of one that was read from the broker. The order is that of the stream within
// each cell. interrupted is [Query.Interrupted].
//
// Read that others have stored are read from the broker, as are those of before the iteration, and those that
// this process has stored while it lacked room for them. An error without a Position ends the iteration; it is
// [ErrWentBack] when this process stores events at positions that it has used already.
func (h *Handover) Steps(ctx context.Context, js jetstream.JetStream, generation string, after streams.Positions, interrupted func(error)) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		q := Query{After: after, Follow: true, Interrupted: interrupted}
		readers, err := openEvents(ctx, js, generation, eventsReader{Query: q, read: readStep, handover: h})
		if err == nil {
			err = merge(ctx, readers, true, yield)
		}
		if err != nil {
			yield(Event{}, fmt.Errorf("read events of %s: %w", generation, err))
		}
	}
}

// readStep reads the step of an event.
func readStep(stream string, m broker.Message) (Event, error) {
	e, err := readOutline(stream, m)
	if err == nil {
		e.Step = new(sessions.NewStep(&e.AgentEventV1, e.Position))
	}
	e.AgentEventV1 = envelopes.AgentEventV1{}
	return e, err
}

// Wanted reports whether somebody reads the events of a generation in a cell.
func (h *Handover) Wanted(name string) bool {
	if h == nil {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.readers[name]) > 0
}

// Hand passes on the events of a batch that is stored. steps returns them, ok is false when they were not wanted
// while they could be made: then the batch is left to the broker.
func (h *Handover) Hand(name string, steps func() (events HandedBatch, ok bool)) {
	if !h.Wanted(name) {
		return
	}
	next, ok := steps()
	if !ok {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.readers[name] {
		r.add(next)
	}
}

// Fenced notes that this process has stored a checkpoint alone, at a position where there is no event then.
func (h *Handover) Fenced(name string, position uint64) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.readers[name] {
		r.fenced(position)
	}
}

// open adds a reader of a generation in a cell, and close removes it.
func (h *Handover) open(name string) *handed {
	r := &handed{arrived: make(chan struct{}, 1), quiet: h.Quiet, most: h.Most, fences: make(map[uint64]bool)}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.readers[name] = append(h.readers[name], r)
	return r
}

func (h *Handover) close(name string, r *handed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.readers[name] = slices.DeleteFunc(h.readers[name], func(other *handed) bool { return other == r }); len(h.readers[name]) == 0 {
		delete(h.readers, name)
	}
}

// HandedBatch is the events of one atomic batch, whose messages have all positions from first to last.
type HandedBatch struct {
	First, Last uint64
	Steps       []*sessions.Step
}

// handed is what waits for one reader.
type handed struct {
	arrived chan struct{} // signaled by add
	quiet   time.Duration
	most    int

	mu      sync.Mutex
	batches []HandedBatch   // in the order of their positions, with gaps
	steps   int             // in the batches
	fences  map[uint64]bool // positions behind the last batch at which this process has stored a checkpoint alone
	last    uint64          // position behind which the next batch of this process begins, unless others store something
	own     bool            // this process has stored something since others had
	others  time.Time       // when others were noticed last
	failed  error
}

// maxHanded is how many steps wait for one reader: a few MB.
const maxHanded = 16 << 10

// ErrWentBack says that the events stream has other events at positions that were read before, because it was put back to an
// older copy.
var ErrWentBack = errors.New("the events stream has gone back in time")

var errElsewhere = errors.New("others have stored events")

// add appends a batch. It drops the oldest ones when there are too many: the reader then gets these from the broker.
func (r *handed) add(b HandedBatch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.fences[b.First-1] {
		b.First--
	}
	maps.DeleteFunc(r.fences, func(position uint64, _ bool) bool { return position <= b.Last })
	switch {
	case b.First <= r.last:
		r.failed = ErrWentBack
	case r.last > 0 && b.First > r.last+1:
		r.noteOthers()
	default:
		r.own = true
	}
	r.last = b.Last
	r.batches = append(r.batches, b)
	for r.steps += len(b.Steps); r.steps > r.most && len(r.batches) > 1; {
		r.remove(1)
	}
	select {
	case r.arrived <- struct{}{}:
	default:
	}
}

// fenced notes a position without an event.
func (r *handed) fenced(position uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if position > r.last {
		r.fences[position] = true
	}
}

// noteOthers notes that others have stored something.
func (r *handed) noteOthers() { r.own, r.others = false, time.Now() }

// remove removes the first n batches.
func (r *handed) remove(n int) {
	for _, b := range r.batches[:n] {
		r.steps -= len(b.Steps)
	}
	r.batches = slices.Delete(r.batches, 0, n)
}

// pass removes the batches before a position.
func (r *handed) pass(from uint64) {
	n := 0
	for n < len(r.batches) && r.batches[n].Last < from {
		n++
	}
	r.remove(n)
}

// suffices reports whether a reader at a position need not read from the broker for now: only this process
// stores events, and has dropped none behind the position.
func (r *handed) suffices(from uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pass(from)
	return r.failed != nil || r.own && time.Since(r.others) > r.quiet && (len(r.batches) == 0 || r.batches[0].First <= from)
}

// next removes and returns the batch that has a position; its last is 0 when there is none yet. The error is
// [errElsewhere] when the position is not of this process, or was dropped.
func (r *handed) next(from uint64) (b HandedBatch, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pass(from)
	switch {
	case r.failed != nil:
		return b, r.failed
	case len(r.batches) == 0:
		return b, nil
	case r.batches[0].First > from:
		return b, errElsewhere
	}
	b = r.batches[0]
	r.remove(1)
	return b, nil
}

// lacks notes that the broker has an event that was not handed over, unless a batch has arrived meanwhile, and reports
// whether it did.
func (r *handed) lacks() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.batches) > 0 {
		return false
	}
	r.noteOthers()
	return true
}

// eachHanded is [eventsReader.each] of a reading that follows, with the events that are handed over.
func (r *eventsReader) eachHanded(ctx context.Context, from uint64, yield func(Event, error) bool) error {
	own := r.handover.open(r.name)
	defer r.handover.close(r.name, own)
	ended := false
	pass := func(e Event, err error) bool {
		from = max(from, e.Position+1)
		ended = !yield(e, err)
		return !ended
	}
	for !ended && ctx.Err() == nil {
		err := r.eachStored(ctx, from, true, func(e Event, err error) bool { return pass(e, err) && !own.suffices(from) })
		if err != nil || ended {
			return err
		}
		r.noteCaughtUp()
		if err := r.readHanded(ctx, own, &from, pass); err != nil && !errors.Is(err, errElsewhere) {
			return err
		}
	}
	return nil
}

// readHanded passes on the batches that are handed over, behind from, which it moves. The error is [errElsewhere] when
// the broker has to be read.
func (r *eventsReader) readHanded(ctx context.Context, own *handed, from *uint64, pass func(Event, error) bool) error {
	silence := time.NewTimer(r.handover.Silence)
	defer silence.Stop()
	for {
		b, err := own.next(*from)
		if err != nil {
			return err
		}
		for _, s := range b.Steps {
			if s.Position >= *from && !pass(Event{Step: s, Cell: r.cell, Position: s.Position}, nil) {
				return nil
			}
		}
		if b.Last > 0 {
			*from = b.Last + 1
			silence.Reset(r.handover.Silence)
			continue
		}
		select {
		case <-own.arrived:
		case <-silence.C:
			if err := r.checkHanded(ctx, own, *from); err != nil {
				return err
			}
			silence.Reset(r.handover.Silence)
		case <-ctx.Done():
			return nil
		}
	}
}

// checkHanded returns [errElsewhere] when the leader of the stream has an event from a position on that was not handed
// over. While no leader answers, nothing is known.
func (r *eventsReader) checkHanded(ctx context.Context, own *handed, from uint64) error {
	_, err := broker.NextStored(ctx, r.js, streams.EventsStream(r.name), streams.EventsOf(r.name), from)
	api, answered := errors.AsType[*jetstream.APIError](err)
	switch {
	case err == nil && own.lacks():
		return errElsewhere
	case answered && api.ErrorCode == jetstream.JSErrCodeStreamNotFound:
		return jetstream.ErrStreamNotFound
	default:
		return nil
	}
}
