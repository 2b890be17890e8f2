package main

import (
	"context"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline"
)

// viewer prints events as they are stored, and sums them up.
type viewer struct {
	*app
	js      jetstream.JetStream
	printer *printer

	last     pipeline.Event     // the last event that was printed, or the place to begin at
	reported uint64             // position of the last event in the summary that was printed
	known    map[sessionKey]int // dead letters that are in the summary, or older than the viewer
	summary  summary
}

// newViewer returns a viewer of everything that is stored from now on.
func (a *app) newViewer(ctx context.Context, js jetstream.JetStream) (*viewer, error) {
	v := &viewer{app: a, js: js, printer: a.newPrinter()}
	var err error
	if v.last.Position, err = a.lastPosition(ctx, js); err != nil {
		return nil, err
	}
	v.known, err = v.deadLetters(ctx)
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

// print prints the events after the last one that was printed.
func (v *viewer) print(ctx context.Context, follow bool) error {
	q := pipeline.EventsQuery{After: v.last.Position, Follow: follow}
	for e, err := range pipeline.Events(ctx, v.js, v.config.Generation, q) {
		if err != nil {
			return err
		}
		v.last = e
		v.summary.event(&e.AgentEventV1)
		if err := v.printer.event(&e.AgentEventV1); err != nil {
			return err
		}
	}
	return nil
}

// sumUp prints the remaining events, and the summary if it has changed.
func (v *viewer) sumUp(ctx context.Context) error {
	if err := v.print(ctx, false); err != nil {
		return err
	}
	now, err := v.deadLetters(ctx)
	if err != nil {
		return err
	}
	unread := v.summary.unread()
	for session, n := range now {
		v.summary.deadLetters(session, n-v.known[session])
	}
	v.known = now
	if v.last.Position != v.reported || v.summary.unread() != unread {
		v.summary.write(v.stdout)
	}
	v.reported = v.last.Position
	return nil
}

// deadLetters counts the dead letters of each session. A session whose id is too long for a
// subject has its token as id.
func (v *viewer) deadLetters(ctx context.Context) (map[sessionKey]int, error) {
	stream, err := v.js.Stream(ctx, pipeline.EventsStream(v.config.Generation))
	if err != nil {
		return nil, err
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(envelopes.DeadLetterFilter(v.config.Generation, "", "")))
	if err != nil {
		return nil, err
	}
	count := map[sessionKey]int{}
	for subject, n := range info.State.Subjects {
		address, err := envelopes.ParseDeadLetterSubject(subject)
		if err != nil {
			return nil, err
		}
		session, whole, err := envelopes.ParseToken(address.Token)
		if err != nil || !whole {
			session = address.Token
		}
		count[sessionKey{address.Source, session}] += int(n)
	}
	return count, nil
}
