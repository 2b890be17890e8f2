package pipeline

import (
	"context"

	"github.com/nats-io/nats.go"

	"tributary/pipeline/broker"
)

// newLink begins a new link.
func (s *Stage) newLink(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.link, s.endLink = context.WithCancelCause(ctx)
}

// linked returns the context of the present link.
func (s *Stage) linked() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.link
}

// watchConnection ends the link when the connection is lost and begins the next one. It
// returns when ctx ends, or when the connection is closed for good, which fails the stage.
func (s *Stage) watchConnection(ctx context.Context, fail context.CancelCauseFunc) {
	status := s.nc.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	defer s.nc.RemoveStatusListener(status)
	for {
		select {
		case <-ctx.Done():
			s.endLink(context.Cause(ctx))
			return
		case now := <-status:
			s.endLink(broker.ErrDisconnected)
			if now == nats.CLOSED {
				fail(nats.ErrConnectionClosed)
				return
			}
			s.newLink(ctx)
		}
	}
}
