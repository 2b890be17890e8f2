package titles

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

// The NATS micro service.
const (
	// ServiceName is its name in nats micro info and stats.
	ServiceName = "tributary-sessions"
	// SubjectPrefix and the name of an endpoint make the subject of the endpoint.
	SubjectPrefix = "tributary.sessions."

	serviceVersion = "1.0.0"
	maxRequests    = 256 // handled by one process at the same time
)

// endpoint is an endpoint of the micro service.
type endpoint int

const (
	endpointSetTitle endpoint = iota
	endpointApplyGeneratedTitle
	endpointSetPinned
	endpointGet
	endpointList
	endpoints
)

// endpointNames are the names of the endpoints.
var endpointNames = [endpoints]string{
	endpointSetTitle:            "set_title",
	endpointApplyGeneratedTitle: "apply_generated_title",
	endpointSetPinned:           "set_pinned",
	endpointGet:                 "get",
	endpointList:                "list",
}

// Endpoints returns the names of the endpoints.
func Endpoints() []string { return slices.Clone(endpointNames[:]) }

// Serve answers requests as the NATS micro service [ServiceName] until one of these happens:
//   - [Service.Drain] is called: Serve answers the requests that have arrived and returns nil.
//   - ctx ends: Serve ends the calls in progress and returns the cause.
//   - Its connection is closed.
//
// Services in other processes share the requests. Serve opens a connection of its own, with the options of the
// service's connection. Call it once.
func (s *Service) Serve(ctx context.Context) error {
	if err := s.serve(ctx); err != nil {
		return fmt.Errorf("serve %s: %w", ServiceName, err)
	}
	return nil
}

// Drain makes [Service.Serve] answer what has arrived, and return. It does not wait. It may be called by any
// goroutine, repeatedly.
func (s *Service) Drain() { s.draining.Do(func() { close(s.drain) }) }

func (s *Service) serve(ctx context.Context) error {
	s.telemetry.zero(ctx)
	// A connection of its own can be drained: its end means that every request sent by the server is in requests. The
	// end of a micro service alone does not mean that.
	options := s.js.Conn().Opts
	options.Name += " (requests)"
	options.DisconnectedErrCB, options.ReconnectedCB = nil, nil // reported for the other connection
	nc, err := options.Connect()
	if err != nil {
		return err
	}
	closed := nc.StatusChanged(nats.CLOSED)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	requests := &requests{service: s, room: make(chan struct{}, maxRequests)}
	registered, err := requests.register(ctx, nc)
	if err != nil {
		nc.Close()
		return err
	}
	select {
	case <-ctx.Done():
	case <-closed:
		cancel(nats.ErrConnectionClosed)
	case <-s.drain:
		if nc.Drain() == nil {
			select {
			case <-closed:
			case <-ctx.Done():
			}
		}
	}
	nc.Close()
	err = registered.Stop()
	requests.answered.Wait()
	return errors.Join(context.Cause(ctx), err)
}

// requests are the requests in progress.
type requests struct {
	service  *Service
	room     chan struct{}
	answered sync.WaitGroup
}

// register adds the micro service to a connection.
func (r *requests) register(ctx context.Context, nc *nats.Conn) (micro.Service, error) {
	registered, err := micro.AddService(nc, micro.Config{
		Name:        ServiceName,
		Version:     serviceVersion,
		Description: "Titles and pins of sessions.",
		StatsHandler: func(e *micro.Endpoint) any {
			for i, name := range endpointNames {
				if name == e.Name {
					return r.service.stats[i].snapshot(r.service.conflicts.Load())
				}
			}
			return nil
		},
	})
	if err != nil {
		return nil, err
	}
	for i, name := range endpointNames {
		handler := micro.HandlerFunc(func(m micro.Request) { r.accept(ctx, endpoint(i), m) })
		if err := registered.AddEndpoint(name, handler, micro.WithEndpointSubject(SubjectPrefix+name)); err != nil {
			return nil, errors.Join(err, registered.Stop())
		}
	}
	return registered, nil
}

// accept answers a request in a goroutine of its own, so that a session that waits for the broker delays no other. It
// waits while too many requests are in progress.
func (r *requests) accept(ctx context.Context, e endpoint, m micro.Request) {
	select {
	case r.room <- struct{}{}:
	case <-ctx.Done():
		return
	}
	r.answered.Go(func() {
		defer func() { <-r.room }()
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		r.service.answer(ctx, e, m.Data(), m.Reply())
	})
}

// answer calls an endpoint and sends the result.
func (s *Service) answer(ctx context.Context, e endpoint, data []byte, reply string) {
	stats := &s.stats[e]
	began := time.Now()
	m := &nats.Msg{Subject: reply}
	body, unchanged, err := s.call(ctx, e, data)
	code := errorCode(err)
	o := outcome{code, unchanged, time.Since(began)}
	stats.count(o)
	s.telemetry.count(ctx, e, o)
	if code == codeStorage {
		s.config.Logger.WarnContext(ctx, "request of a session failed", "endpoint", endpointNames[e], "error", err)
	}
	if m.Data = body; err != nil {
		m.Header = nats.Header{micro.ErrorHeader: {err.Error()}, micro.ErrorCodeHeader: {code}}
		m.Data, err = errorBody(code, err)
	}
	if err != nil || s.js.Conn().PublishMsg(m) != nil {
		stats.lose() // also for a request without a reply subject
	}
}
