package worker_test

import (
	"testing"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/pipelinetest"
)

// A worker that is given records of millions of values stays under the memory of the chart: they are
// dead letters with a reason, and the records around them are stored.
func TestRecordsOfManyValuesTakeBoundedMemory(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a process of its own, of which the race detector sees nothing")
	}
	top := topology(1)
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	n := scaled(800_000, 1_600_000)
	bodies := []string{
		answer(always(`{"type":"text","text":"x"}`), n),
		answer(always(`{"type":"tool_use"}`), n),
		answer(always("1"), scaled(core.MaxValues+1, 30_000_000)),
		answer(always(`{"a":{"b":{}}}`), n),
	}
	pipelinetest.Publish(t, js, user("victim", "before"))
	for _, body := range bodies {
		pipelinetest.Publish(t, js, core.Record{Source: envelopes.ClaudeCode, Session: "victim", Data: []byte(body)}, user("victim", "between"))
	}
	w := pipelinetest.StartWorker(t, pipelinetest.Worker{URL: server.URL(), Name: "worker", Generation: top.Generation, Partitions: top.Partitions})
	pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	peak := pipelinetest.PeakMemory(w.PID())
	if code := w.Stop(); code != 0 {
		t.Errorf("the worker ended with %d:\n%s", code, w.Output())
	}
	t.Logf("worker at its peak: %d MiB", peak>>20)
	if peak == 0 || peak > 1<<30 {
		t.Errorf("the worker took %d MiB at its peak", peak>>20)
	}
	outcome := outcomes(t, js)
	for sequence := uint64(1); sequence <= uint64(2*len(bodies)+1); sequence++ {
		want := "event"
		if sequence%2 == 0 {
			want = "too_many_values"
		}
		if got := outcome(sequence); got != want {
			t.Errorf("record %d: %s, want %s", sequence, got, want)
		}
	}
}
