package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/streams"
)

// What is done to the broker through its API and on its disks, while workers and producer go on.

// askLeaders asks the leaders of all raw and events streams to step down at the same time, a few
// times at random moments.
func (r *faultRun) askLeaders() {
	r.t.Helper()
	for range 3 {
		r.producer.grant(20)
		r.moment(500 * time.Millisecond)
		var asked sync.WaitGroup
		for _, name := range slices.Concat(r.rawStreams(), r.eventsStreams()) {
			asked.Go(func() {
				// Without an answer, or without a leader, the stream is electing already.
				_, _ = r.js.Conn().Request(jetstream.DefaultAPIPrefix+"STREAM.LEADER.STEPDOWN."+name, nil, 2*time.Second)
			})
		}
		asked.Wait()
	}
	r.cluster.Settle(r.js)
}

// deleteConsumers deletes every consumer on the raw and events streams, and reports whether there was one.
func (r *faultRun) deleteConsumers() bool {
	r.t.Helper()
	deleted := 0
	for _, name := range slices.Concat(r.rawStreams(), r.eventsStreams()) {
		r.cluster.Try("delete the consumers of "+name, func(ctx context.Context) error {
			n, err := deleteConsumers(ctx, r.js, name)
			deleted += n
			return err
		})
	}
	return deleted > 0
}

// deleteConsumers deletes the consumers of a stream, and returns how many there were.
func deleteConsumers(ctx context.Context, js jetstream.JetStream, stream string) (deleted int, err error) {
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return 0, err
	}
	names := s.ConsumerNames(ctx)
	for name := range names.Name() {
		switch err := s.DeleteConsumer(ctx, name); {
		case err == nil:
			deleted++
		case !errors.Is(err, jetstream.ErrConsumerNotFound): // its worker was faster
			return deleted, err
		}
	}
	return deleted, names.Err()
}

// purgeHeartbeats removes the heartbeats of all workers: to each it looks as if the others had left.
func (r *faultRun) purgeHeartbeats() {
	r.t.Helper()
	for range 3 {
		r.producer.grant(20)
		r.moment(500 * time.Millisecond)
		r.cluster.Try("purge the heartbeats", func(ctx context.Context) error {
			return empty(ctx, r.js, "KV_"+streams.WorkersBucket)
		})
	}
	r.awaitShared()
}

// empty removes all messages of a stream.
func empty(ctx context.Context, js jetstream.JetStream, stream string) error {
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return err
	}
	if err := s.Purge(ctx); err != nil {
		return fmt.Errorf("purge %s: %w", stream, err)
	}
	return nil
}

// rollNodeBack stops a server, puts its copy of the raw streams, of the events streams or of both back
// to what it was some records ago, and starts it again, while the others have all and go on.
func (r *faultRun) rollNodeBack() {
	r.t.Helper()
	n := r.node()
	streams := [][]string{r.rawStreams(), r.eventsStreams(), slices.Concat(r.rawStreams(), r.eventsStreams())}[r.random.IntN(3)]
	infos := r.infos(streams)
	n.Stop()
	saved := n.CopyStreams(infos...)
	r.cluster.Start(n)
	r.producer.grant(60)
	r.moment(2 * time.Second)
	r.cluster.Settle(r.js)
	r.killServers(n)
	r.producer.grant(40)
	r.moment(time.Second)
	saved.PutBack()
	r.cluster.Start(n)
	r.cluster.Settle(r.js)
}
