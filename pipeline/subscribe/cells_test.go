package subscribe_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"tributary/pipeline/events"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
	"tributary/pipeline/subscribe"
	"tributary/pipeline/worker"
)

// A subscription passes the events of four cells, each session in its order, and goes on behind the last of each
// cell, also when it has ended in the middle.
func TestSubscriptionReadsFourCells(t *testing.T) {
	t.Parallel()
	top := streams.Topology{Generation: "v1", Partitions: 8, Cells: 4}
	js := pipelinetest.NewServer(t).Provision(top)
	publish := func(seed uint64) {
		pipelinetest.Publish(t, js, pipelinetest.Workload(seed, 20, 200)...)
		stage, err := worker.New(js, worker.Config{Topology: top, Heartbeat: 50 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- stage.Run(context.WithoutCancel(t.Context())) }()
		if err := replay.CatchUp(deadline(t), js, top); err != nil {
			t.Fatal(err)
		}
		stage.Drain()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
	publish(1)
	total := func() int {
		n, err := events.Count(t.Context(), js, "v1", nil)
		if err != nil {
			t.Fatal(err)
		}
		return int(n)
	}
	want := total()
	sequences := make(map[string]uint64) // the last one by session
	count := 0
	ended := errors.New("the process ends")
	subscription := func(handle func(subscribe.Event) error) error {
		s, err := subscribe.New(js, configure(t, subscribe.Config{}))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(deadline(t))
		defer cancel(nil)
		return s.Run(ctx, func(_ context.Context, e subscribe.Event) error {
			if err := handle(e); err != nil {
				cancel(err)
				return err
			}
			if last := sequences[e.SessionID]; e.Sequence > last+1 {
				t.Errorf("session %s: event %d comes behind %d", e.SessionID, e.Sequence, last)
			} else if e.Sequence == last+1 {
				sequences[e.SessionID] = e.Sequence
				count++
			}
			if count == want {
				s.Drain()
			}
			return nil
		})
	}
	for range 4 {
		stop := count + want/8
		err := subscription(func(subscribe.Event) error {
			if count >= stop {
				return ended
			}
			return nil
		})
		if !errors.Is(err, ended) {
			t.Fatalf("got %v, want %v", err, ended)
		}
	}
	passed := 0
	for _, before := range []int{count, want} {
		want, passed = total(), 0
		if err := subscription(func(subscribe.Event) error { passed++; return nil }); err != nil || count != want {
			t.Errorf("%d events of %d, %v", count, want, err)
		}
		if again := passed - (want - before); again > 256 {
			t.Errorf("%d events were passed again", again)
		}
		publish(2)
	}
}
