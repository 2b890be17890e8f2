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

// Handover hands events that the stages of a process store to readers in the same process, which then need not read
// them from the broker. Set it in the [worker.Config] of a stage, and read with [Handover.Steps]. All methods may be
// called from any goroutine. A nil Handover hands nothing over.
type Handover struct {
	Quiet   time.Duration // after events of other processes, how long events are read from the broker
	Silence time.Duration // after so long without a batch, the broker is asked for events of others
	Most    int           // maximum steps that wait for one reader

	mu      sync.Mutex
	readers map[string][]*handed // by name of a generation in a cell
}

// NewHandover returns a Handover without readers.
func NewHandover() *Handover {
	return &Handover{Quiet: 10 * time.Second, Silence: time.Second, Most: maxHanded, readers: make(map[string][]*handed)}
}

// Steps iterates over the events of a generation after positions, as [Read] with Follow does. It sets only Step, Cell
// and Position of an event, and Stored if it read the event from the broker. Events of a cell come in stream order.
// interrupted is [Query.Interrupted].
//
// Steps reads from the broker the events that others stored, those stored before the iteration, and those of this
// process for which there was no room. An error without a Position ends the iteration; it is [ErrWentBack] if this
// process stores events at positions that it has used before.
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

// readStep decodes the step of an event.
func readStep(stream string, m broker.Message) (Event, error) {
	e, err := readOutline(stream, m)
	if err == nil {
		e.Step = new(sessions.NewStep(&e.AgentEventV1, e.Position))
	}
	e.AgentEventV1 = envelopes.AgentEventV1{}
	return e, err
}

// Wanted reports whether there is a reader of the events of a generation in a cell.
func (h *Handover) Wanted(name string) bool {
	if h == nil {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.readers[name]) > 0
}

// Hand passes on the events of a stored batch. steps returns them; ok is false if they were not made because no reader
// wanted them then. The readers then read the batch from the broker.
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

// Fenced notes that this process stored a checkpoint alone, at a position that therefore has no event.
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

// open adds a reader of a generation in a cell; close removes it.
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

// HandedBatch has the events of one atomic batch, whose messages have all positions from first to last.
type HandedBatch struct {
	First, Last uint64
	Steps       []*sessions.Step
}

// handed holds the events that wait for one reader.
type handed struct {
	arrived chan struct{} // signaled by add
	quiet   time.Duration
	most    int

	mu      sync.Mutex
	batches []HandedBatch   // in position order, with gaps
	steps   int             // steps in batches
	fences  map[uint64]bool // positions behind the last batch where this process stored a checkpoint alone
	last    uint64          // position before the next batch of this process, unless others store something
	own     bool            // this process has stored something since others did
	others  time.Time       // when others were last noticed
	failed  error
}

// maxHanded is the maximum number of steps that wait for one reader: a few MB.
const maxHanded = 16 << 10

// ErrWentBack means that the events stream has other events at positions that were read before, because an older copy
// of it was restored.
var ErrWentBack = errors.New("the events stream has gone back in time")

var errElsewhere = errors.New("others have stored events")

// add appends a batch. If there are too many, it drops the oldest ones, which the reader then gets from the broker.
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

// noteOthers notes that others stored something.
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

// suffices reports whether a reader at a position need not read from the broker for now: only this process stores
// events, and no batch behind the position was dropped.
func (r *handed) suffices(from uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pass(from)
	return r.failed != nil || r.own && time.Since(r.others) > r.quiet && (len(r.batches) == 0 || r.batches[0].First <= from)
}

// next removes and returns the batch at a position; its last is 0 if there is none yet. It returns [errElsewhere] if
// the position belongs to others or its batch was dropped.
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

// lacks notes that the broker has an event that was not handed over, unless a batch has arrived meanwhile. It reports
// whether it noted that.
func (r *handed) lacks() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.batches) > 0 {
		return false
	}
	r.noteOthers()
	return true
}

// eachHanded is [eventsReader.each] for a reading that follows, with handed over events.
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

// readHanded passes on the handed over batches behind from, and moves from. It returns [errElsewhere] when it is time
// to read from the broker.
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

// checkHanded returns [errElsewhere] if the leader of the stream has an event at or after from that was not handed
// over. It returns nil while no leader answers.
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
