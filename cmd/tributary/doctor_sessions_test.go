package main

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/sessions/summaries"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// TestDoctorFindsThatSessionsAreNotKept has a worker that keeps no records of sessions, as one of an
// older version, and then a broker without the stream of titles and pins.
func TestDoctorFindsThatSessionsAreNotKept(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	top := streams.DefaultTopology()
	js := server.Provision(top)
	stage, err := worker.New(js, worker.Config{Topology: top, Worker: "w", Member: "w"})
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan error, 1)
	go func() { ran <- stage.Run(t.Context()) }()
	defer func() {
		stage.Drain()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	}()
	pipelinetest.Publish(t, js, pipelinetest.Workload(82, 3, 60)...)
	if err := replay.CatchUp(t.Context(), js, top); err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	requireProblem := func(parts ...string) {
		t.Helper()
		code, out := finish(t, home, server.URL(), "doctor")
		if code != exitFailure {
			t.Errorf("exit code %d", code)
		}
		contains(t, out, parts...)
	}
	awaitWorkers(t, js, top, func(w []streams.Worker) bool { return len(w) == 1 && w[0].Seen.Sub(w[0].Since) > summaries.Patience })
	requireProblem("no records: lists of sessions read all", "problem: no worker keeps the records of sessions, which are ", " events behind",
		"see the log of the workers, and update those of an older version")
	if err := js.DeleteStream(t.Context(), streams.SessionsStream); err != nil {
		t.Fatal(err)
	}
	requireProblem("problem: stream SESSIONS is missing: titles and pins of sessions cannot be set", "restore it, or start a worker, which creates an empty one: tributary run")

	// The cure of both.
	start(t, home, server.URL(), "run")
	awaitRecords(t, js, top.Generation)
	awaitWorkers(t, js, top, func(w []streams.Worker) bool {
		return len(w) == 2 && len(w[0].Partitions)+len(w[1].Partitions) == top.Partitions
	})
	if code, out := finish(t, home, server.URL(), "doctor"); code != 0 {
		t.Errorf("with a worker: exit code %d\n%s", code, out)
	}
}

// awaitRecords waits until every event is in the record of its session.
func awaitRecords(t *testing.T, js jetstream.JetStream, generation string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		view, err := summaries.Open(ctx, js, generation, func(err error) { t.Error(err) })
		if err != nil {
			t.Fatal(err)
		}
		status, err := view.Status(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if status.Kept && status.Owner != "" && status.Behind == 0 {
			return
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			t.Fatalf("the records are behind: %+v", status)
		}
	}
}
