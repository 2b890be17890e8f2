package events_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/events"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/runner"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// reading is what a reader of the live generation passes on.
type reading struct {
	mu    sync.Mutex
	keys  []string
	ended chan error
	stop  context.CancelFunc
}

// follow reads until the test ends.
func follow(t *testing.T, js jetstream.JetStream, q events.Query) *reading {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	r := &reading{ended: make(chan error, 1), stop: cancel}
	t.Cleanup(cancel)
	live := events.NewLive(js, "v1", q, func(from, to string) error {
		t.Logf("%s is left for %s", from, to)
		return nil
	})
	go func() {
		for e, err := range live.Read(ctx, true) {
			if err != nil {
				r.ended <- err
				return
			}
			r.mu.Lock()
			r.keys = append(r.keys, key(&e))
			r.mu.Unlock()
		}
		r.ended <- nil
	}()
	return r
}

func key(e *events.Event) string { return fmt.Sprint(e.Source, " ", e.SessionID, " ", e.EventID) }

// requires waits until the reading has exactly these events, each once.
func (r *reading) requires(t *testing.T, want []string) {
	t.Helper()
	limit, look := time.After(time.Minute), time.NewTicker(20*time.Millisecond)
	defer look.Stop()
	want = slices.Sorted(slices.Values(want))
	for {
		r.mu.Lock()
		got := slices.Sorted(slices.Values(r.keys))
		r.mu.Unlock()
		if slices.Equal(got, want) {
			return
		}
		select {
		case <-look.C:
		case err := <-r.ended:
			t.Fatalf("the reading has ended: %v", err)
		case <-limit:
			t.Fatalf("events (-want +got):\n%.3000s", cmp.Diff(want, got))
		}
	}
}

// stored returns the events of a generation.
func stored(t *testing.T, js jetstream.JetStream, generation string) (keys []string) {
	t.Helper()
	for e, err := range events.Read(t.Context(), js, generation, events.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key(&e))
	}
	return keys
}

// TestLiveReadingGoesThroughChangesOfTheGeneration promotes a generation and rolls that back while records arrive,
// promotes it again and drops the other one at once. Readers that began at different places have every event once, and so
// has one that reads to the end before the drop and after it.
func TestLiveReadingGoesThroughChangesOfTheGeneration(t *testing.T) {
	t.Parallel()
	for name, cells := range map[string]int{"one cell": 1, "two cells": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			goThroughChanges(t, streams.Topology{Generation: "v1", Partitions: 4, Cells: cells})
		})
	}
}

func goThroughChanges(t *testing.T, top streams.Topology) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 3*time.Minute, errors.New("the test waits in vain"))
	defer cancel()
	js := pipelinetest.NewServer(t).Provision(top)
	records := pipelinetest.Workload(7, 12, 1200)
	part := len(records) / 12
	feed := func(parts int) {
		t.Helper()
		n := min(parts*part, len(records))
		pipelinetest.Publish(t, js, records[:n]...)
		records = records[n:]
	}
	caughtUp := func(generation string) {
		t.Helper()
		top := top
		top.Generation = generation
		if err := replay.CatchUp(ctx, js, top); err != nil {
			t.Fatal(err)
		}
	}
	promote := func(name string) <-chan error {
		done := make(chan error, 1)
		go func() {
			_, err := replay.Promote(ctx, js, name, true)
			done <- err
		}()
		return done
	}
	finished := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	work(t, js, top)
	whole := follow(t, js, events.Query{})
	feed(2)
	caughtUp("v1")
	before := stored(t, js, "v1")
	end, err := streams.LastPositions(ctx, js, "v1")
	finished(err)
	late := follow(t, js, events.Query{After: end})

	_, err = replay.Start(ctx, js, replay.Request{Name: "b", Settings: streams.Settings{CloudEvents: envelopes.Structured}})
	finished(err)
	feed(1)
	promoted := promote("b")
	feed(3)
	finished(<-promoted)
	feed(1)
	caughtUp("b")
	whole.requires(t, stored(t, js, "b"))

	_, _, err = replay.RollBack(ctx, js)
	finished(err)
	feed(2)
	caughtUp("v1")
	all := stored(t, js, "v1")
	whole.requires(t, all)
	paused := events.NewLive(js, "v1", events.Query{}, func(string, string) error { return nil })
	toTheEnd := func() (keys []string) {
		for e, err := range paused.Read(ctx, false) {
			finished(err)
			keys = append(keys, key(&e))
		}
		return keys
	}
	seen := toTheEnd()

	_, err = replay.Start(ctx, js, replay.Request{Name: "b", Settings: streams.Settings{CloudEvents: envelopes.Structured}})
	finished(err)
	promoted = promote("b")
	feed(1)
	finished(<-promoted)
	finished(replay.Drop(ctx, js, "v1"))
	feed(12)
	caughtUp("b")
	all = stored(t, js, "b")
	whole.requires(t, all)
	seen = append(seen, toTheEnd()...)
	if diff := cmp.Diff(slices.Sorted(slices.Values(all)), slices.Sorted(slices.Values(seen))); diff != "" {
		t.Errorf("a reader that does not follow has other events (-want +got):\n%.3000s", diff)
	}
	late.requires(t, slices.DeleteFunc(all, func(key string) bool { return slices.Contains(before, key) }))
}

// work runs a worker until the test ends.
func work(t *testing.T, js jetstream.JetStream, top streams.Topology) {
	t.Helper()
	top.Generation = ""
	r := runner.New(js, worker.Config{Topology: top, Heartbeat: 100 * time.Millisecond, Worker: "w", Member: "w"})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-ended //nolint:errcheck // the context has ended
	})
}
