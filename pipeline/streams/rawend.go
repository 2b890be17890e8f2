package streams

import (
	"context"
	"errors"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/broker"
)

// SharedEnd asks for the last sequence of a raw stream for many goroutines. Those that ask while a request is in
// flight share the next one, so no answer is older than the question.
type SharedEnd struct {
	js     jetstream.JetStream
	Stream string
	turn   broker.Limit // held during a request

	mu   sync.Mutex
	next *endRequest // request not sent yet; nil for none
}

// endRequest is one request for the end of a raw stream.
type endRequest struct {
	done chan struct{} // closed once answered
	last uint64
	err  error
}

// NewSharedEnd returns the shared end of a raw stream.
func NewSharedEnd(js jetstream.JetStream, stream string) *SharedEnd {
	return &SharedEnd{js: js, Stream: stream, turn: broker.NewExclusive()}
}

// Get returns the last sequence according to the leader.
func (s *SharedEnd) Get(ctx context.Context) (uint64, error) {
	s.mu.Lock()
	r := s.next
	mine := r == nil
	if mine {
		r = &endRequest{done: make(chan struct{})}
		s.next = r
	}
	s.mu.Unlock()
	if mine {
		s.send(ctx, r)
	}
	select {
	case <-r.done:
		if !mine && errors.Is(r.err, context.Canceled) && ctx.Err() == nil {
			return s.Get(ctx) // the goroutine that asked for both has ended
		}
		return r.last, r.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// send sends a request after the previous one.
func (s *SharedEnd) send(ctx context.Context, r *endRequest) {
	defer close(r.done)
	r.err = s.turn.Acquire(ctx)
	s.mu.Lock()
	s.next = nil
	s.mu.Unlock()
	if r.err != nil {
		return
	}
	defer s.turn.Release()
	r.last, r.err = broker.LastSequence(ctx, s.js, s.Stream)
}
