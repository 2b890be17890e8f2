package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"tributary/pipeline"
	"tributary/pipeline/pipelinetest"
)

// TestDoctor: it says who works on what, what is wrong, and the cure.
func TestDoctor(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	home := t.TempDir()
	doctor := func(args ...string) (code int, out string) {
		p := start(t, home, server.URL(), append([]string{"doctor"}, args...)...)
		var b strings.Builder
		for line := range p.lines {
			b.WriteString(line + "\n")
		}
		return p.wait(), b.String() + p.stderr.String()
	}
	if code, out := doctor(); code != exitFailure || !strings.Contains(out, "tributary run") {
		t.Errorf("no streams: exit code %d\n%s", code, out)
	}
	top := pipeline.DefaultTopology()
	js := server.Provision(top)
	pipelinetest.Publish(t, js, pipelinetest.Workload(41, 20, 300)...)
	code, out := doctor()
	for _, want := range []string{"problem: no worker is alive", "lag", "PARTITION"} {
		if code != exitFailure || !strings.Contains(out, want) {
			t.Errorf("no worker: exit code %d, no %q in\n%s", code, want, out)
		}
	}
	worker := start(t, home, server.URL(), "run")
	pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	awaitWorkers(t, js, top, func(w []pipeline.Worker) bool { return len(w) == 1 && len(w[0].Partitions) == top.Partitions })
	code, out = doctor()
	for _, want := range []string{"partitions 0-15", "every record is done"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("a worker: exit code %d, no %q in\n%s", code, want, out)
		}
	}
	if code, out = doctor("-o", "json"); code != 0 || !strings.HasPrefix(out, `{"server":`) || strings.Count(out, `"partition":`) != top.Partitions {
		t.Errorf("json: exit code %d\n%s", code, out)
	}
	if code, out = doctor("-o", "xml"); code != exitUsage {
		t.Errorf("xml: exit code %d\n%s", code, out)
	}
	killed := start(t, home, server.URL(), "run")
	awaitWorkers(t, js, top, func(w []pipeline.Worker) bool { return len(w) == 2 && len(w[0].Partitions) == len(w[1].Partitions) })
	killed.kill()
	awaitTakeover(t, js, top, killed)
	code, out = doctor()
	told := strings.Contains(out, fmt.Sprintf("-%d:", killed.cmd.Process.Pid)) // for ten seconds
	if code != 0 || !strings.Contains(out, "partitions 0-15") || told != strings.Contains(out, "taken for dead") {
		t.Errorf("a worker that was killed: exit code %d\n%s", code, out)
	}
	if code := worker.signal(syscall.SIGTERM); code != 0 {
		t.Errorf("run: exit code %d", code)
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	for want, list := range map[string][]int{"none": nil, "3": {3}, "0-3 7": {0, 1, 2, 3, 7}, "1 3-4": {1, 3, 4}} {
		if got := numbers(list); got != want {
			t.Errorf("%v: %q, want %q", list, got, want)
		}
	}
}
