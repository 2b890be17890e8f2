package worker_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/events"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/sessions"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// handedReader reads the steps of a generation until the test ends. It is busy with the first one until a channel is closed.
type handedReader struct {
	mu     sync.Mutex
	moved  chan struct{} // closed and made anew with each event
	last   streams.Positions
	steps  []map[uint64]sessions.Step // by cell and position
	handed int                        // steps that did not come from the broker
	failed error
}

func readHanded(t *testing.T, js jetstream.JetStream, h *events.Handover, cells int, busy <-chan struct{}) *handedReader {
	t.Helper()
	r := &handedReader{moved: make(chan struct{})}
	for range cells {
		r.steps = append(r.steps, map[uint64]sessions.Step{})
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var reading sync.WaitGroup
	reading.Go(func() {
		for e, err := range h.Steps(ctx, js, "v1", nil, nil) {
			r.note(e, err)
			select {
			case <-busy:
			case <-ctx.Done():
			}
		}
	})
	t.Cleanup(func() { cancel(); reading.Wait() })
	return r
}

func (r *handedReader) note(e events.Event, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil:
		r.failed = err
	case e.Position <= r.last.In(e.Cell):
		r.failed = fmt.Errorf("position %d of cell %d after %s", e.Position, e.Cell, r.last)
	default:
		r.last = r.last.With(e.Cell, e.Position)
		r.steps[e.Cell][e.Position] = *e.Step
		if e.Stored.IsZero() {
			r.handed++
		}
	}
	close(r.moved)
	r.moved = make(chan struct{})
}

// await waits until the reader has every event that the streams have now, and returns how many were handed over so far.
func (r *handedReader) await(t *testing.T, js jetstream.JetStream) (handed int) {
	t.Helper()
	var end streams.Positions
	for e, err := range events.Outlines(t.Context(), js, "v1", events.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		end = end.With(e.Cell, e.Position)
	}
	for {
		r.mu.Lock()
		last, moved, handed, failed := r.last, r.moved, r.handed, r.failed
		r.mu.Unlock()
		switch {
		case failed != nil:
			t.Fatal(failed)
		case last.Reach(end):
			return handed
		}
		select {
		case <-moved:
		case <-deadline(t).Done():
			t.Fatalf("the reader is at %s of %s", last, end)
		}
	}
}

// A reader gets the steps of exactly the events that the streams have, in their order, also while another process
// stores events, joins and leaves.
func TestHandedOverEventsAreThoseOfTheStreams(t *testing.T) {
	t.Parallel()
	for _, cells := range []int{1, 2} {
		t.Run(fmt.Sprintf("cells=%d", cells), func(t *testing.T) {
			t.Parallel()
			top := streams.Topology{Generation: "v1", Partitions: 4, Cells: cells}
			js := pipelinetest.NewServer(t).Provision(top)
			h := worker.NewTestHandover(200*time.Millisecond, 1000)
			closed := make(chan struct{})
			close(closed)
			reader := readHanded(t, js, h, cells, closed)
			records := pipelinetest.Workload(50, 30, 1500)
			publish := func(n int) int {
				t.Helper()
				pipelinetest.Publish(t, js, records[:n]...)
				records = records[n:]
				if err := replay.CatchUp(t.Context(), js, top); err != nil {
					t.Fatal(err)
				}
				return reader.await(t, js)
			}
			own := start(t, js, worker.Config{Topology: top, Worker: "own", Member: "own", Handover: h})
			for handed := 0; handed == 0; {
				handed = publish(100)
			}
			other := start(t, js, worker.Config{Topology: top, Worker: "other", Member: "other"})
			for range 4 {
				publish(50)
			}
			other.stop(t)
			before := publish(20)
			for handed := before; handed == before && len(records) > 100; {
				handed = publish(20)
			}
			own.stop(t)
			start(t, js, worker.Config{Topology: top, Worker: "another"})
			if publish(len(records)) == before {
				t.Error("nothing was handed over after another worker had left")
			}
			reader.requireExact(t, js)
		})
	}
}

// A reader that is slower than the stage gets from the broker what no longer waits for it.
func TestHandedOverEventsThatDoNotFitAreReadFromTheBroker(t *testing.T) {
	t.Parallel()
	top := topology(2)
	js := pipelinetest.NewServer(t).Provision(top)
	h := worker.NewTestHandover(time.Millisecond, 100)
	busy := make(chan struct{})
	reader := readHanded(t, js, h, 1, busy)
	start(t, js, worker.Config{Topology: top, Handover: h})
	for records := range slices.Chunk(pipelinetest.Workload(51, 20, 1000), 50) {
		pipelinetest.Publish(t, js, records...)
		if err := replay.CatchUp(t.Context(), js, top); err != nil {
			t.Fatal(err)
		}
	}
	close(busy)
	reader.await(t, js)
	reader.requireExact(t, js)
}

// requireExact fails the test unless the steps that were read are those of the events in the streams.
func (r *handedReader) requireExact(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	for e, err := range events.Outlines(t.Context(), js, "v1", events.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		got := r.steps[e.Cell][e.Position]
		delete(r.steps[e.Cell], e.Position)
		if diff := cmp.Diff(sessions.NewStep(&e.AgentEventV1, e.Position), got); diff != "" {
			t.Fatalf("event %d of cell %d (-stored +handed over):\n%s", e.Position, e.Cell, diff)
		}
	}
	for cell, rest := range r.steps {
		if len(rest) > 0 {
			t.Errorf("cell %d: %d steps of no event", cell, len(rest))
		}
	}
}
