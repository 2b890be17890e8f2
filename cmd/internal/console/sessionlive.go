package console

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"tributary/pipeline/events"
	"tributary/pipeline/streams"
)

// sessionPace is the shortest time between two messages that a session has further events.
const sessionPace = time.Second

// sessionLive answers with a stream: "more" with the last sequence when the session has events after a sequence, and
// "other" when another generation is live, whose events have other sequences.
func (r sessionRequest) sessionLive() error {
	id, err := r.sessionID()
	if err != nil {
		return err
	}
	generation, err := r.generation(r.Context())
	if err != nil {
		return err
	}
	after, err := sequenceOf("after", r.URL.Query().Get("after"))
	if err != nil {
		return err
	}
	return r.live(func(ctx context.Context, s *stream) error {
		follow := func(ctx context.Context) error { return r.followSession(ctx, s, generation, id, after) }
		if r.config.Generation != "" {
			return follow(ctx)
		}
		next, err := streams.WhileLive(ctx, r.config.JetStream, generation, follow)
		if err == nil && next != "" {
			return s.send("other", "", struct{}{})
		}
		return err
	})
}

// followSession sends "more" when events arrive after a sequence, at most once per [sessionPace].
func (r sessionRequest) followSession(ctx context.Context, s *stream, generation string, id events.SessionID, after uint64) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	q := events.Query{Source: id.Source, Session: id.Session, Follow: true, Last: 1}
	last, err := events.EventAt(ctx, r.config.JetStream, generation, id, after)
	switch {
	case err == nil:
		q = onward(&last)
		q.Follow = true
	case !errors.Is(err, events.ErrNoEvent):
		return err
	}
	var newest atomic.Uint64
	arrived := make(chan struct{}, 1)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer cancel(nil)
	reading.Go(func() {
		for e, err := range events.Outlines(ctx, r.config.JetStream, generation, q) {
			if err != nil && e.Position == 0 {
				cancel(err)
				return
			}
			if err != nil || e.Sequence <= after {
				continue
			}
			newest.Store(e.Sequence)
			select {
			case arrived <- struct{}{}:
			default:
			}
		}
	})
	pace := time.NewTimer(0)
	defer pace.Stop()
	for {
		select {
		case <-arrived:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		select {
		case <-pace.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		sequence := newest.Load()
		if err := s.send("more", strconv.FormatUint(sequence, 10), map[string]uint64{"last": sequence}); err != nil {
			return err
		}
		pace.Reset(sessionPace)
	}
}
