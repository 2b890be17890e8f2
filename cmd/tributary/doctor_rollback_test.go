package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/normalizers/core"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/runner"
	"tributary/pipeline/streams"
)

// TestDoctorTellsTheCureOfALostTail has a broker whose raw stream was put back to an older copy:
// the worker stops and states the whole cure, and so does doctor, which says nothing of records
// that are done. Following the cure makes doctor content with the new generation.
func TestDoctorTellsTheCureOfALostTail(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	home := t.TempDir()
	top := streams.DefaultTopology()
	js := server.Provision(top)
	records := pipelinetest.Workload(81, 200, 800) // at the end a record of each session: of every partition
	pipelinetest.Publish(t, js, records[:400]...)
	worker := start(t, home, server.URL(), "run")
	pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	saved := server.CopyStore()
	pipelinetest.Publish(t, js, records[400:]...)
	pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	saved.PutBack(streams.RawStream)

	cure := []string{"raw stream has lost its tail", "the stream ends at 400", "tributary ship --again", "new generation", "tributary replay start NAME", "tributary replay promote NAME --wait"}
	worker.awaitLogged("raw stream has lost its tail")
	pipelinetest.RequireInOrder(t, worker.stderr.String(), append([]string{"partition stopped"}, cure...)...)
	code, out := finish(t, home, server.URL(), "doctor")
	if code != exitFailure || strings.Contains(out, "every record is done") || strings.Count(out, "have stopped:") != 1 {
		t.Errorf("doctor: exit code %d\n%s", code, out)
	}
	pipelinetest.RequireInOrder(t, out, append([]string{"unknown: all partitions have stopped", "partitions 0-15 have stopped"}, cure...)...)
	if code, out := finish(t, home, server.URL(), "doctor", "-o", "json"); code != exitFailure || !strings.Contains(out, `"cure":"restore the raw stream as it was`) {
		t.Errorf("doctor -o json: exit code %d\n%s", code, out)
	}

	pipelinetest.Publish(t, js, records...)
	began := time.Now()
	for _, command := range []string{"replay start v2", "replay promote v2 --wait"} {
		if code, out := finish(t, home, server.URL(), strings.Fields(command)...); code != 0 || strings.Contains(out, "rights") { // this broker has no users
			t.Fatalf("%s: exit code %d\n%s", command, code, out)
		}
	}
	top.Generation = "v2"
	awaitReady(t, js, "v2", began)
	pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	if code, out := finish(t, home, server.URL(), "doctor"); code != 0 || !strings.Contains(out, "every record is done") {
		t.Errorf("doctor of the new generation: exit code %d\n%s", code, out)
	}
}

// awaitReady waits until the worker is ready with a generation that was made since a time. Until then it is not unready
// for longer than that: an earlier generation does not count.
func awaitReady(t *testing.T, js jetstream.JetStream, generation string, since time.Time) {
	t.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	limit := time.After(patience)
	for {
		states, err := runner.Ask(t.Context(), js.Conn(), 1)
		if err != nil {
			t.Fatal(err)
		}
		if len(states) == 1 && states[0].Generation == generation {
			if states[0].NotReady == "" {
				return
			}
			if unready := time.Duration(states[0].Unready) * time.Second; unready > time.Since(since) {
				t.Fatalf("not ready for %v, since the stage of another generation stopped: %s", unready, states[0].NotReady)
			}
		}
		select {
		case <-look.C:
		case <-limit:
			t.Fatalf("not ready: %+v", states)
		}
	}
}

// TestDoctorShowsGaps has a producer that leaves records out and ships them later.
func TestDoctorShowsGaps(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	home := t.TempDir()
	top := streams.DefaultTopology()
	js := server.Provision(top)
	records := pipelinetest.Workload(82, 1, 60)[:60]
	start(t, home, server.URL(), "run")
	awaitWorkers(t, js, top, func(w []streams.Worker) bool { return len(w) == 1 && len(w[0].Partitions) == top.Partitions })
	doctor := func(published ...core.Record) (int, string) {
		pipelinetest.Publish(t, js, published...)
		pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
		return finish(t, home, server.URL(), "doctor")
	}
	code, out := doctor(slices.Concat(records[:20], records[40:])...)
	if code != exitFailure || !strings.Contains(out, "every record is done") {
		t.Errorf("a gap: exit code %d\n%s", code, out)
	}
	for since, want := range map[string]int{"1h": exitFailure, "0s": 0, "soon": exitUsage} {
		if code, out := finish(t, home, server.URL(), "doctor", "--gaps-since", since); code != want {
			t.Errorf("gaps since %s: exit code %d\n%s", since, code, out)
		}
	}
	pipelinetest.RequireInOrder(t, out, "problem: session "+records[0].Session+" of claude_code: records are missing in the raw stream", "of file "+records[0].Origin.File, "tributary ship --again")
	if code, out := doctor(records...); code != 0 || strings.Contains(out, "missing") {
		t.Errorf("a gap that is filled: exit code %d\n%s", code, out)
	}
}
