package subscribe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"tributary/envelopes"
	"tributary/pipeline/broker"
	"tributary/pipeline/events"
	"tributary/pipeline/streams"
)

const (
	storeEvents = 256         // maximum events without stored progress
	storeEvery  = time.Second // maximum time without stored progress
	maxBackoff  = time.Minute
)

// delivery passes events to the program, and reports restored streams and expired events.
type delivery struct {
	*progress

	observer *observer
	handle   BatchHandler
}

// errEnded is the error of an event whose deliveries ended processes.
var errEnded = errors.New("the process ended in each delivery of the event")

// pass passes an event and those that have arrived behind it, and stores the progress.
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
				failed = s.reportRange(ctx, a.event.Cell, a.gap.Position+1, a.event.Position, a.gap.Stored)
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
		full := n >= limit || alone || broker.Closed(s.drain) || time.Since(s.storing) > storeEvery && len(batch) == 0
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

// deliver passes events to the handler until they are done or poison.
func (d *delivery) deliver(ctx context.Context, events []Event) error {
	tries := 0
	if cell := events[0].Cell; d.trying(cell) {
		if tries = int(d.tries.In(cell)); tries >= d.config.Deliveries {
			return d.poison(ctx, events[0], errEnded)
		}
		d.setTries(cell, uint64(tries)+1)
		if err := d.store(ctx); err != nil { // before the process may end
			return err
		}
	}
	for wait := d.config.Backoff; ; wait = min(2*wait, maxBackoff) {
		tries++
		for i := range events {
			events[i].Delivery = tries
		}
		err := d.observer.process(ctx, events, d.handle)
		switch {
		case err == nil:
			for i := range events {
				d.done(&events[i].Event)
			}
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case len(events) == 1 && tries >= d.config.Deliveries:
			return d.poison(ctx, events[0], err)
		}
		d.log.WarnContext(ctx, "handler failed: passing the event again",
			slog.String("event", events[0].Key()), slog.Int("events", len(events)), slog.Int("delivery", tries), slog.Any("error", err))
		if err := d.pause(ctx, wait); err != nil {
			return err
		}
		if len(events) > 1 {
			return d.deliverEach(ctx, events)
		}
	}
}

// deliverEach passes the events of a failed batch one by one, to find the one that fails.
func (d *delivery) deliverEach(ctx context.Context, events []Event) error {
	for i := range events {
		if err := d.deliver(ctx, events[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// poisonError is the error of a poison event that the program does not skip.
type poisonError struct{ error }

// Unwrap returns the error of the program.
func (e poisonError) Unwrap() error { return e.error }

// poison skips an event if the program allows that.
func (d *delivery) poison(ctx context.Context, e Event, cause error) error {
	err := cause
	if d.config.Poison != nil {
		err = d.config.Poison(ctx, e, cause)
	}
	if err != nil {
		return poisonError{fmt.Errorf("event at %d of %s: %w", e.Position, streams.EventsStream(envelopes.CellName(d.cursor.Generation, e.Cell)), err)}
	}
	d.log.ErrorContext(ctx, "event left out", slog.Uint64("position", e.Position), slog.Any("error", cause))
	d.done(&e.Event)
	return nil
}
