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

	"github.com/nats-io/nats.go/jetstream"
)

// arrival is an event that was read, a gap before the next event, or the end of the reading.
type arrival struct {
	event events.Event
	gap   *events.Mark // last event before the gap; event is the one behind it
	err   error
	end   bool
}

// reading reads the events after the cursor, from its generation.
type reading struct {
	arrivals chan arrival
	stop     context.CancelFunc
}

// read begins to read after the cursor. Without follow it ends with the last existing event.
func (s *Subscription) read(ctx context.Context, follow bool) *reading {
	ctx, cancel := context.WithCancel(ctx)
	r := &reading{make(chan arrival, storeEvents), cancel}
	generation, created := s.cursor.Generation, s.cursor.Created
	var rebuilt error
	reach := s.reach()
	q := events.Query{
		Source: s.config.Source, Session: s.config.Session,
		After: s.cursor.Position, Since: s.cursor.Since, Follow: follow, Read: s.cursor.last(),
		Interrupted: func(err error) {
			s.log.WarnContext(ctx, "reading is interrupted and begins again", slog.Any("error", err))
			if info, err := s.stream(ctx, generation); err == nil && !info.Created.Equal(created) {
				rebuilt = errRebuilt
				cancel()
			}
		},
	}
	if s.config.Type != "" {
		q.Types = []envelopes.EventType{s.config.Type}
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
			r.arrivals <- arrival{err: rebuilt, end: true} // the buffer is drained, because the reader waits for room
		}
	}()
	return r
}

// close ends the reading and waits for its end.
func (r *reading) close() {
	r.stop()
	for range r.arrivals { // until it has ended
	}
}

// errRebuilt means that the generation was dropped and built again under the same name.
var errRebuilt = errors.New("generation was dropped and built again")

// follow passes the events of the cursor's generation until another one is live, and returns its name.
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
	idle := false // no event since the last tick
	for {
		if broker.Closed(s.drain) {
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

// check compares the cursor with the events stream when the reading begins. It returns the name of the generation to
// continue with, if that is another one.
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

// rebuilds reports whether the program begins again with a rebuilt generation.
func (s *Subscription) rebuilds() bool {
	return s.config.Generation == "" && s.config.Change == Rebuild
}

// gone returns the live generation after the cursor's one was dropped, or why the subscription cannot go on.
func (s *Subscription) gone(ctx context.Context) (to string, err error) {
	if s.config.Generation == "" {
		if to, err = s.live(ctx); err != nil || to != s.cursor.Generation {
			return to, err
		}
	}
	return "", fmt.Errorf("%w: %s: choose an existing one (tributary replay ls) under another subscription name", ErrDropped, s.cursor.Generation)
}

// look returns the name of the live generation if that is not the cursor's one. While the broker is away, nothing has
// changed.
func (s *Subscription) look(ctx context.Context) (to string, err error) {
	if err := s.checkOwner(ctx); err != nil {
		if errors.Is(err, ErrTakenOver) {
			return "", err
		}
		s.log.WarnContext(ctx, "progress cannot be read: trying again", slog.Any("error", err))
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
		s.log.WarnContext(ctx, "live generation cannot be read: trying again", slog.Any("error", err))
	case live != s.cursor.Generation:
		return live, nil
	}
	return "", nil
}

// live returns the name of the live generation. If that is not the cursor's one, it asks twice: a broker that is
// stopping lacks the bucket, just like one without a generation.
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

// change moves on to another generation.
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
		s.log.WarnContext(ctx, "GenerationChanged failed: calling it again", slog.String("from", changed.From), slog.String("to", to), slog.Any("error", err))
		if err := s.pause(ctx, wait); err != nil {
			return err
		}
	}
	s.log.InfoContext(ctx, "another generation is live", slog.String("from", changed.From), slog.String("to", to))
	s.cursor = cursor{Generation: to, Created: info.Created.UTC(), Cuts: cuts, Owner: s.id}
	s.tried, s.tries, s.newest = nil, nil, nil
	return s.store(ctx)
}
