package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/cmd/internal/figures"
	"tributary/cmd/internal/printer"
	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
	"tributary/pipeline/broker"
	"tributary/pipeline/events"
	"tributary/pipeline/sessions/titles"
	"tributary/pipeline/streams"
)

// viewer prints events and dead letters as they are stored, and sums them up.
type viewer struct {
	*app
	js      jetstream.JetStream
	live    *events.Live
	printer *printer.Pretty
	quiet   bool // sum events and dead letters up without printing them

	mu       sync.Mutex
	summary  *summary
	pricing  *figures.Pricing // nil for no costs
	events   int
	letters  int
	reported int  // events and letters of the last summary
	all      bool // print everything, not only the first ones
	cut      bool // some events or dead letters were not printed
}

// printedAtMost limits the printed events and dead letters of existing logs, because nobody reads more.
const printedAtMost = 500

// prints counts an event or a dead letter, and reports whether to print it.
func (v *viewer) prints(count func()) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	count()
	if v.quiet || v.all || v.events+v.letters <= printedAtMost {
		return !v.quiet
	}
	if !v.cut {
		fmt.Fprintf(v.stderr, "%d events are printed; the others are summed up at the end: --all prints them, too\n", printedAtMost)
	}
	v.cut = true
	return false
}

// printAll makes the viewer print everything that is stored from now on.
func (v *viewer) printAll() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.all = true
}

// wasCut reports whether events or dead letters were not printed.
func (v *viewer) wasCut() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.cut
}

// newViewer returns a viewer of everything that is stored from now on, in the named generation or else the live one.
func newViewer(ctx context.Context, a *app, js jetstream.JetStream, pricing *figures.Pricing, named bool) (*viewer, error) {
	last, err := lastPositions(ctx, a, js)
	if err != nil {
		return nil, err
	}
	var moved func(from, to string) error
	if !named {
		moved = func(from, to string) error {
			noteLive(a, from, to)
			return nil
		}
	}
	live := events.NewLive(js, a.config.Generation, events.Query{After: last, DeadLetters: true}, moved)
	return &viewer{app: a, js: js, live: live, printer: a.printer(), summary: newSummary(), pricing: pricing}, nil
}

// follow prints events as they are stored, until pause, which waits until the last one is printed. fail gets the
// error of a failure.
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

// print prints everything after the last printed event.
func (v *viewer) print(ctx context.Context, follow bool) error {
	for e, err := range v.live.Read(ctx, follow) {
		switch {
		case err != nil && e.Position == 0:
			return err
		case err != nil:
			v.log.WarnContext(ctx, "a message of the events stream is skipped", "error", err)
		default:
			if err := v.event(&e); err != nil {
				return err
			}
		}
	}
	return nil
}

// event prints an event or a dead letter, and adds it to the summary.
func (v *viewer) event(e *events.Event) error {
	if l := e.DeadLetter; l != nil {
		if !v.prints(func() {
			v.letters++
			v.summary.deadLetter(events.SessionID{Source: l.Source, Session: l.Session})
		}) {
			return nil
		}
		return v.printer.Letter(l)
	}
	if !v.prints(func() {
		v.events++
		v.summary.event(e)
	}) {
		return nil
	}
	return v.printer.Event(&e.AgentEventV1)
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
	parts := []string{fmt.Sprintf("%s of %s", terminal.Plural(n.events, "event"), terminal.Plural(n.sessions, "session"))}
	if n.letters > 0 {
		parts = append(parts, terminal.Plural(n.letters, "dead letter"))
	}
	return strings.Join(parts, ", ")
}

// reach waits until all events that a generation has now are printed.
func (v *viewer) reach(ctx context.Context, generation string) error {
	goal, err := v.lastViewable(ctx, generation)
	if err != nil {
		return err
	}
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		at, position := v.live.Position()
		if at == generation && position.Reach(goal) {
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for the events of %s to be printed up to %d, now at %d of %s: %w", generation, goal, position, at, context.Cause(ctx))
		}
	}
}

// lastViewable returns the positions of the last event or dead letter of each stream, 0 if there is none.
func (v *viewer) lastViewable(ctx context.Context, generation string) (streams.Positions, error) {
	cells, err := streams.LastPositions(ctx, v.js, generation)
	if err != nil {
		return nil, v.noStream(err)
	}
	last := make(streams.Positions, len(cells))
	for c := range last {
		name := envelopes.CellName(generation, c)
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

// sumUp prints the remaining events, and the summary if it has changed. If ctx ends first, it sums up what is
// printed.
func (v *viewer) sumUp(ctx context.Context) error {
	if err := v.print(ctx, false); err != nil && ctx.Err() == nil {
		return err
	}
	set := v.titles(ctx)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.events+v.letters == v.reported {
		return context.Cause(ctx)
	}
	v.reported = v.events + v.letters
	rows := 0
	if v.cut {
		rows = rowsAtMost
	}
	return errors.Join(v.summary.write(v.printer, set, v.pricing, time.Now(), rows), context.Cause(ctx))
}

// titles returns the titles and pins that users set. It prints what cannot be read.
func (v *viewer) titles(ctx context.Context) map[titles.Key]titles.Session {
	set := make(map[titles.Key]titles.Session)
	service, err := titles.New(v.js, titles.Config{})
	if err == nil {
		for s, failed := range service.List(ctx, titles.Query{}) {
			if failed != nil {
				err = failed
				continue
			}
			set[s.Key()] = s
		}
	}
	if err != nil {
		fmt.Fprintf(v.stderr, "titles and pins that were set are left out: %v\n", err)
	}
	return set
}
