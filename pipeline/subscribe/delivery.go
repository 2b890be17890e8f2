package subscribe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/events"
	"tributary/pipeline/streams"
)

const (
	storeEvents = 256         // events without progress stored, at most
	storeEvery  = time.Second // and so long
	maxBackoff  = time.Minute
)

// errEnded is the error of an event during whose deliveries processes have ended.
var errEnded = errors.New("the process ended in each delivery of the event")

// arrival is an event that was read, a gap before the next one, or the end of the reading.
type arrival struct {
	event events.Event
	gap   *events.Mark // the last event before the gap; event is the one behind it
	err   error
	end   bool
}

// reading reads the events of the generation of the cursor behind it.
type reading struct {
	arrivals chan arrival
	stop     context.CancelFunc
}

// read begins to read behind the cursor. A reading that does not follow ends with the last event
// that is there.
func (s *Subscription) read(ctx context.Context, follow bool) *reading {
	ctx, cancel := context.WithCancel(ctx)
	r := &reading{make(chan arrival, storeEvents), cancel}
	generation, created := s.cursor.Generation, s.cursor.Created
	var rebuilt error
	reach := s.reach()
	q := events.Query{
		Source: s.config.Source, Session: s.config.Session, Type: s.config.Type,
		After: s.cursor.Position, Since: s.cursor.Since, Follow: follow, Read: s.cursor.last(),
		Interrupted: func(err error) {
			s.log.WarnContext(ctx, "reading is interrupted and begins again", slog.Any("error", err))
			if info, err := s.stream(ctx, generation); err == nil && !info.Created.Equal(created) {
				rebuilt = errRebuilt
				cancel()
			}
		},
	}
	go func() {
		defer close(r.arrivals)
		pass := func(a arrival) bool {
			select {
			case r.arrivals <- a:
				return true
			case <-ctx.Done():
				return false
			}
		}
		for e, err := range events.Read(ctx, s.js, generation, q) {
			if gap := reach.next(&e); gap != nil && !pass(arrival{event: e, gap: gap}) {
				break
			}
			if !pass(arrival{event: e, err: err, end: err != nil && e.Position == 0}) {
				break
			}
		}
		if rebuilt != nil {
			r.arrivals <- arrival{err: rebuilt, end: true} // the reader waits for it: the buffer is emptied
		}
	}()
	return r
}

// close ends the reading, and waits for that.
func (r *reading) close() {
	r.stop()
	for range r.arrivals { // until it has ended
	}
}

// errRebuilt: the generation was dropped, and built again under the same name.
var errRebuilt = errors.New("generation was dropped and built again")

// follow passes the events of the generation of the cursor until another one is live, whose name it
// returns.
func (s *Subscription) follow(ctx context.Context, most int) (to string, err error) {
	if to, err = s.check(ctx); to != "" || err != nil {
		return to, err
	}
	if err := s.idle(ctx); err != nil { // what arrives from now on cannot have expired before
		return "", err
	}
	r := s.read(ctx, true)
	defer r.close()
	tick := time.NewTicker(s.config.Poll)
	defer tick.Stop()
	idle := false // since the last tick
	for {
		if s.drained() {
			return "", errDrained
		}
		select {
		case a, more := <-r.arrivals:
			if !more {
				return "", context.Cause(ctx)
			}
			idle = false
			err = s.pass(ctx, r, a, most)
		case <-tick.C:
			if to, err = s.look(ctx); to != "" {
				return to, err
			}
			if err == nil && idle {
				err = s.idle(ctx)
			}
			idle = true
		case <-s.drain:
			return "", errDrained
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
		switch {
		case errors.Is(err, errRebuilt) && s.rebuilds():
			return s.cursor.Generation, nil
		case errors.Is(err, errRebuilt), errors.Is(err, jetstream.ErrStreamNotFound):
			return s.gone(ctx)
		case err != nil:
			return "", err
		}
	}
}

// check compares the cursor with the events stream when the reading begins. It returns the name of
// the generation to go on with, when that is another one.
func (s *Subscription) check(ctx context.Context) (to string, err error) {
	info, err := s.stream(ctx, s.cursor.Generation)
	switch {
	case errors.Is(err, ErrDropped):
		return s.gone(ctx)
	case err != nil:
		return "", err
	case !info.Created.Equal(s.cursor.Created) && s.rebuilds():
		return s.cursor.Generation, nil
	case !info.Created.Equal(s.cursor.Created):
		return s.gone(ctx)
	}
	last, err := streams.LastPositions(ctx, s.js, s.cursor.Generation)
	if err != nil {
		return "", fmt.Errorf("events stream of %s: %w", s.cursor.Generation, err)
	}
	s.cells = len(last)
	if err := s.compare(ctx, last); err != nil {
		return "", err
	}
	s.missing = false
	return s.look(ctx)
}

// rebuilds reports whether the program begins again with a generation that was dropped and built again.
func (s *Subscription) rebuilds() bool {
	return s.config.Generation == "" && s.config.Change == Rebuild
}

// gone returns the live generation when the one of the cursor was dropped, or why the subscription
// cannot go on.
func (s *Subscription) gone(ctx context.Context) (to string, err error) {
	if s.config.Generation == "" {
		if to, err = s.live(ctx); err != nil || to != s.cursor.Generation {
			return to, err
		}
	}
	return "", fmt.Errorf("%w: %s: stay with one that exists (tributary replay ls), under another name of the subscription", ErrDropped, s.cursor.Generation)
}

// look returns the name of the live generation when that is another one than the cursor's. When the
// broker is away, it has not changed.
func (s *Subscription) look(ctx context.Context) (to string, err error) {
	if err := s.checkOwner(ctx); err != nil {
		if errors.Is(err, ErrTakenOver) {
			return "", err
		}
		s.log.WarnContext(ctx, "the progress cannot be read: it is tried again", slog.Any("error", err))
		return "", nil
	}
	if s.config.Generation != "" {
		return "", nil
	}
	live, err := s.live(ctx)
	switch {
	case errors.Is(err, errDrained), ctx.Err() != nil:
		return "", err
	case err != nil:
		s.log.WarnContext(ctx, "the live generation cannot be read: it is tried again", slog.Any("error", err))
	case live != s.cursor.Generation:
		return live, nil
	}
	return "", nil
}

// live returns the name of the live generation. Another one than the cursor's is asked for twice: a broker that ends has no bucket
// any more, just as one that has no generation yet.
func (s *Subscription) live(ctx context.Context) (string, error) {
	name, err := streams.LiveGeneration(ctx, s.js)
	if err != nil || name == s.cursor.Generation {
		return name, err
	}
	if err := s.pause(ctx, s.config.Poll); err != nil {
		return "", err
	}
	return streams.LiveGeneration(ctx, s.js)
}

// pass passes an event, and those that have arrived behind it, and stores the progress.
func (s *Subscription) pass(ctx context.Context, r *reading, a arrival, most int) error {
	var batch []Event
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		events := batch
		batch = nil
		return s.deliver(ctx, events)
	}
	limit := storeEvents
	if most > 1 {
		limit = most
	}
	var failed error
	for n := 1; ; n++ {
		alone := s.trying(a.event.Cell)
		if alone {
			failed = flush()
		}
		switch {
		case failed != nil:
		case a.end:
			failed = a.err
		case a.gap != nil:
			if failed = flush(); failed == nil {
				failed = s.tellExpired(ctx, a.event.Cell, a.gap.Position+1, a.event.Position, a.gap.Stored)
			}
		case a.err != nil:
			if failed = flush(); failed == nil {
				failed = s.poison(ctx, Event{Event: events.Event{Cell: a.event.Cell, Position: a.event.Position, Stored: a.event.Stored}}, a.err)
			}
		case s.behindCut(&a.event):
			s.hold(&a.event)
		case !s.selects(&a.event):
			if failed = flush(); failed == nil {
				s.done(&a.event)
			}
		default:
			batch = append(batch, Event{Event: a.event, Repeated: s.cursor.repeated(&a.event)})
			if len(batch) >= most || alone {
				failed = flush()
			}
		}
		full := n >= limit || alone || s.drained() || time.Since(s.storing) > storeEvery && len(batch) == 0
		if failed != nil || full {
			break
		}
		var more bool
		select {
		case a, more = <-r.arrivals:
		default:
		}
		if !more {
			break
		}
	}
	if failed == nil {
		failed = flush()
	}
	if err := s.store(ctx); err != nil {
		return err
	}
	return failed
}

// done notes that the events of a cell up to e are done.
func (s *Subscription) done(e *events.Event) {
	if held := s.held.In(e.Cell); held == 0 || e.Position < held {
		s.cursor.Position = s.cursor.Position.With(e.Cell, e.Position)
		for len(s.newest) <= e.Cell {
			s.newest = append(s.newest, events.Mark{})
		}
		s.newest[e.Cell] = events.MarkOf(e)
	}
	s.cursor.note(e)
	if s.trying(e.Cell) {
		s.setTries(e.Cell, 0)
		s.tried = s.tried.With(e.Cell, 1)
	}
	if s.cells == 1 {
		s.cursor.Since = time.Time{}
	}
}

// trying reports whether the next event of a cell may be the one that ended the process before: it is
// passed alone.
func (s *Subscription) trying(cell int) bool { return s.tried.In(cell) == 0 }

// setTries sets the deliveries of the next event of a cell.
func (s *Subscription) setTries(cell int, n uint64) {
	if s.cursor.Tries = s.cursor.Tries.With(cell, n); slices.Max(s.cursor.Tries) == 0 {
		s.cursor.Tries = nil
	}
}

// deliver passes events to the handler until they are done or poison.
func (s *Subscription) deliver(ctx context.Context, events []Event) error {
	tries := 0
	if cell := events[0].Cell; s.trying(cell) {
		if tries = int(s.tries.In(cell)); tries >= s.config.Deliveries {
			return s.poison(ctx, events[0], errEnded)
		}
		s.setTries(cell, uint64(tries)+1)
		if err := s.store(ctx); err != nil { // before the process may end
			return err
		}
	}
	for wait := s.config.Backoff; ; wait = min(2*wait, maxBackoff) {
		tries++
		for i := range events {
			events[i].Delivery = tries
		}
		err := s.observer.process(ctx, events, s.handle)
		switch {
		case err == nil:
			for i := range events {
				s.done(&events[i].Event)
			}
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case len(events) == 1 && tries >= s.config.Deliveries:
			return s.poison(ctx, events[0], err)
		}
		s.log.WarnContext(ctx, "the handler failed: the event is passed again",
			slog.String("event", events[0].Key()), slog.Int("events", len(events)), slog.Int("delivery", tries), slog.Any("error", err))
		if err := s.pause(ctx, wait); err != nil {
			return err
		}
		if len(events) > 1 {
			return s.deliverEach(ctx, events)
		}
	}
}

// deliverEach passes the events of a batch that failed one at a time, so that the one that fails is
// known.
func (s *Subscription) deliverEach(ctx context.Context, events []Event) error {
	for i := range events {
		if err := s.deliver(ctx, events[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// poisonError is the error of an event that is not left out.
type poisonError struct{ error }

// Unwrap returns the error of the program.
func (e poisonError) Unwrap() error { return e.error }

// poison leaves an event out when the program wants that.
func (s *Subscription) poison(ctx context.Context, e Event, cause error) error {
	err := cause
	if s.config.Poison != nil {
		err = s.config.Poison(ctx, e, cause)
	}
	if err != nil {
		return poisonError{fmt.Errorf("event at %d of %s: %w", e.Position, streams.EventsStream(envelopes.CellName(s.cursor.Generation, e.Cell)), err)}
	}
	s.log.ErrorContext(ctx, "an event is left out", slog.Uint64("position", e.Position), slog.Any("error", cause))
	s.done(&e.Event)
	return nil
}

// change goes on with another generation.
func (s *Subscription) change(ctx context.Context, to string) error {
	var cuts []uint64
	if s.config.Change == Continue {
		var err error
		if to, cuts, err = s.finish(ctx); to == s.cursor.Generation || err != nil {
			return err
		}
	}
	info, err := s.stream(ctx, to)
	if err != nil {
		return err
	}
	changed := GenerationChanged{From: s.cursor.Generation, To: to}
	for wait := s.config.Backoff; ; wait = min(2*wait, maxBackoff) {
		err := s.config.GenerationChanged(ctx, changed)
		if err == nil {
			break
		}
		s.log.WarnContext(ctx, "the change of the generation failed: it is tried again", slog.String("from", changed.From), slog.String("to", to), slog.Any("error", err))
		if err := s.pause(ctx, wait); err != nil {
			return err
		}
	}
	s.log.InfoContext(ctx, "another generation is live", slog.String("from", changed.From), slog.String("to", to))
	s.cursor = cursor{Generation: to, Created: info.Created.UTC(), Cuts: cuts, Owner: s.id}
	s.tried, s.tries, s.newest = nil, nil, nil
	return s.store(ctx)
}

// drained reports whether the subscription is to end.
func (s *Subscription) drained() bool {
	select {
	case <-s.drain:
		return true
	default:
		return false
	}
}

// pause waits. The error says that the subscription ends meanwhile.
func (s *Subscription) pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-s.drain:
		return errDrained
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
