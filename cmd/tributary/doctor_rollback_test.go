package main

import (
	"slices"
	"strings"
	"testing"

	"tributary/normalizers/core"
	"tributary/pipeline/pipelinetest"
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
	code, out := ended(start(t, home, server.URL(), "doctor"))
	if code != exitFailure || strings.Contains(out, "every record is done") || strings.Count(out, "have stopped:") != 1 {
		t.Errorf("doctor: exit code %d\n%s", code, out)
	}
	pipelinetest.RequireInOrder(t, out, append([]string{"unknown: all partitions have stopped", "partitions 0-15 have stopped"}, cure...)...)
	if code, out := ended(start(t, home, server.URL(), "doctor", "-o", "json")); code != exitFailure || !strings.Contains(out, `"cure":"restore the raw stream as it was`) {
		t.Errorf("doctor -o json: exit code %d\n%s", code, out)
	}

	pipelinetest.Publish(t, js, records...)
	for _, command := range []string{"replay start v2", "replay promote v2 --wait"} {
		if code, out := ended(start(t, home, server.URL(), strings.Fields(command)...)); code != 0 || strings.Contains(out, "rights") { // this broker has no users
			t.Fatalf("%s: exit code %d\n%s", command, code, out)
		}
	}
	top.Generation = "v2"
	awaitWorkers(t, js, top, func(w []streams.Worker) bool { return len(w) == 1 && len(w[0].Partitions) == top.Partitions })
	pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	if code, out := ended(start(t, home, server.URL(), "doctor")); code != 0 || !strings.Contains(out, "every record is done") {
		t.Errorf("doctor of the new generation: exit code %d\n%s", code, out)
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
		return ended(start(t, home, server.URL(), "doctor"))
	}
	code, out := doctor(slices.Concat(records[:20], records[40:])...)
	if code != exitFailure || !strings.Contains(out, "every record is done") {
		t.Errorf("a gap: exit code %d\n%s", code, out)
	}
	for since, want := range map[string]int{"1h": exitFailure, "0s": 0, "soon": exitUsage} {
		if code, out := ended(start(t, home, server.URL(), "doctor", "--gaps-since", since)); code != want {
			t.Errorf("gaps since %s: exit code %d\n%s", since, code, out)
		}
	}
	pipelinetest.RequireInOrder(t, out, "problem: session "+records[0].Session+" of claude_code: records are missing in the raw stream", "of file "+records[0].Origin.File, "tributary ship --again")
	if code, out := doctor(records...); code != 0 || strings.Contains(out, "missing") {
		t.Errorf("a gap that is filled: exit code %d\n%s", code, out)
	}
}
