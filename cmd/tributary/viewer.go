package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/broker"
	"tributary/pipeline/events"
	"tributary/pipeline/streams"
)

// viewer prints events and dead letters as they are stored, and sums them up.
type viewer struct {
	*app
	js      jetstream.JetStream
	printer *printer

	mu       sync.Mutex
	last     streams.Positions // of the last events that were printed, or of the places to begin after
	summary  *summary
	pricing  *pricing // nil for no costs
	events   int
	letters  int
	reported streams.Positions // last, when the summary was printed
}

// newViewer returns a viewer of everything that is stored from now on.
func (a *app) newViewer(ctx context.Context, js jetstream.JetStream, pricing *pricing) (*viewer, error) {
	v := &viewer{app: a, js: js, printer: a.newPrinter(), summary: newSummary(), pricing: pricing}
	var err error
	v.last, err = a.lastPositions(ctx, js)
	v.reported = v.last
	return v, err
}

// follow prints events as they are stored, until pause, which waits for the last one. fail gets
// the error of a failure.
func (v *viewer) follow(ctx context.Context, fail context.CancelCauseFunc) (pause func()) {
	ctx, cancel := context.WithCancel(ctx)
	var printing sync.WaitGroup
	printing.Go(func() {
		if err := v.print(ctx, true); err != nil && ctx.Err() == nil {
			fail(err)
		}
	})
	return func() {
		cancel()
		printing.Wait()
	}
}

// print prints what is stored after the last event that was printed.
func (v *viewer) print(ctx context.Context, follow bool) error {
	q := events.Query{After: v.position(), Follow: follow, DeadLetters: true}
	for e, err := range events.Read(ctx, v.js, v.config.Generation, q) {
		if err != nil && e.Position == 0 {
			return err
		}
		if err != nil {
			v.log.WarnContext(ctx, "a message of the events stream is skipped", "error", err)
		} else if err := v.event(&e); err != nil {
			return err
		}
		v.mu.Lock()
		v.last = v.last.With(e.Cell, e.Position)
		v.mu.Unlock()
	}
	return nil
}

// event prints an event or a dead letter, and adds it to the summary.
func (v *viewer) event(e *events.Event) error {
	if l := e.DeadLetter; l != nil {
		v.mu.Lock()
		v.letters++
		v.summary.deadLetter(events.SessionID{Source: l.Source, Session: l.Session})
		v.mu.Unlock()
		return v.printer.letter(l)
	}
	v.mu.Lock()
	v.events++
	v.summary.event(e)
	v.mu.Unlock()
	return v.printer.event(&e.AgentEventV1)
}

// position is that of the last events that were printed.
func (v *viewer) position() streams.Positions {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.last
}

// viewed counts what was printed.
type viewed struct{ events, sessions, letters int }

func (v *viewer) viewed() viewed {
	v.mu.Lock()
	defer v.mu.Unlock()
	return viewed{v.events, v.summary.count(), v.letters}
}

// String is "2 events of 1 session, 1 dead letter".
func (n viewed) String() string {
	parts := []string{fmt.Sprintf("%s of %s", plural(n.events, "event"), plural(n.sessions, "session"))}
	if n.letters > 0 {
		parts = append(parts, plural(n.letters, "dead letter"))
	}
	return strings.Join(parts, ", ")
}

// reach waits until everything that is stored now is printed.
func (v *viewer) reach(ctx context.Context) error {
	goal, err := v.lastViewable(ctx)
	if err != nil {
		return err
	}
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for !v.position().Reach(goal) {
		select {
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for the events up to %d to be printed, which are at %d: %w", goal, v.position(), context.Cause(ctx))
		}
	}
	return nil
}

// lastViewable returns the positions of the last events or dead letters, 0 where there is none.
func (v *viewer) lastViewable(ctx context.Context) (streams.Positions, error) {
	cells, err := streams.LastPositions(ctx, v.js, v.config.Generation)
	if err != nil {
		return nil, v.noStream(err)
	}
	last := make(streams.Positions, len(cells))
	for c := range last {
		name := envelopes.CellName(v.config.Generation, c)
		for _, filter := range []string{envelopes.EventFilter(name, "", "", ""), envelopes.DeadLetterFilter(name, "", "")} {
			m, err := broker.LastStored(ctx, v.js, streams.EventsStream(name), filter)
			switch {
			case errors.Is(err, jetstream.ErrMsgNotFound):
			case err != nil:
				return nil, fmt.Errorf("read the last message of %s: %w", filter, err)
			default:
				last[c] = max(last[c], m.Sequence)
			}
		}
	}
	return last, nil
}

// sumUp prints the remaining events, and the summary if it has changed. It sums up what it has
// printed when ctx ends before.
func (v *viewer) sumUp(ctx context.Context) error {
	if err := v.print(ctx, false); err != nil && ctx.Err() == nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.last.Equal(v.reported) {
		return context.Cause(ctx)
	}
	v.reported = v.last
	if v.pricing != nil {
		clear(v.pricing.missing) // of an earlier table
	}
	return errors.Join(v.summary.write(v.printer, v.pricing, time.Now()), context.Cause(ctx))
}
