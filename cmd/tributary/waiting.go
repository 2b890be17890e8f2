package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/broker"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// The first and the longest pause between two tries of [app.wait].
const (
	firstRetry = 250 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// wait calls try until it succeeds, while the broker is away or electing, for at most TRIBUTARY_START_TIMEOUT. It
// logs each reason; what names the work.
func (a *app) wait(ctx context.Context, what string, try func(context.Context) error) error {
	began, pause := time.Now(), firstRetry
	for tries := 1; ; tries++ {
		err := try(ctx)
		if err == nil || !willPass(err) || ctx.Err() != nil {
			return err
		}
		if _, denied := a.denials.Last(); denied {
			return err
		}
		if limit := a.config.StartTimeout; limit > 0 && time.Since(began) > limit {
			return fmt.Errorf("%w: gave up after %v (TRIBUTARY_START_TIMEOUT)", err, limit)
		}
		a.log.WarnContext(ctx, "waiting for the broker", "doing", what, "error", a.withCure(err), "tries", tries)
		select {
		case <-time.After(pause/2 + rand.N(pause)): // spread, so that workers that start together do not retry together
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		pause = min(2*pause, lastRetry)
	}
}

// willPass reports whether an error may vanish by itself: the broker is away, electing a leader, or not in the DNS
// yet.
func willPass(err error) bool {
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, nats.ErrNoServers) || errors.Is(err, nats.ErrConnectionClosed) ||
		errors.Is(err, nats.ErrDisconnected) || broker.Unavailable(err) ||
		errors.Is(err, jetstream.ErrNoStreamResponse) // of a write to a stream that was made just now
}

// startWorker connects to the broker, waiting for it, and provisions the streams. The caller closes the connection.
func (a *app) startWorker(ctx context.Context, top streams.Topology) (js jetstream.JetStream, err error) {
	err = a.wait(ctx, "connect", func(ctx context.Context) error {
		js, err = a.jetStream(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	err = worker.CheckPayload(js.Conn())
	if err == nil {
		err = a.wait(ctx, "provision the streams", func(ctx context.Context) error { return streams.Provision(ctx, js, top) })
	}
	if err != nil {
		js.Conn().Close()
		return nil, err
	}
	return js, nil
}
