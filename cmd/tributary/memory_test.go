package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/streams"
)

// A worker that is given records of nearly 50 MB, of 1.6 million blocks each, of several sessions at a time, stays below the limit of
// memory of its unit and of the chart: they are dead letters, and the records beside them are events.
func TestRunHoldsItsMemoryWhateverRecordsHave(t *testing.T) {
	requireLinux(t)
	if testing.Short() {
		t.Skip("moves 200 MB")
	}
	t.Parallel()
	unit := readText(t, filepath.Join("..", "..", "deploy", "systemd", "tributary-run.service"))
	values := readText(t, filepath.Join("..", "..", "deploy", "helm", "tributary", "values.yaml"))
	find := func(text, expression string) string {
		m := regexp.MustCompile(expression).FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("no %s", expression)
		}
		return m[1]
	}
	target, gibibytes := find(unit, `GOMEMLIMIT=(\w+)\n`), find(values, `limits: \{ memory: (\d+)Gi \}`)
	if of := find(values, `memoryTarget: (\w+)\n`); of != target {
		t.Errorf("the chart aims at %s, and the unit at %s", of, target)
	}
	limit, err := strconv.ParseInt(gibibytes, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	limit <<= 30

	server := pipelinetest.NewServer(t)
	top := streams.DefaultTopology()
	js := server.Provision(top)
	const block, blocks, sessions = `{"type":"text","text":"x"},`, 1_600_000, 4
	prompt := func(session string, n int) core.Record {
		return core.Record{Source: envelopes.ClaudeCode, Session: session, Data: fmt.Appendf(nil,
			`{"type":"user","uuid":"u%d","sessionId":%q,"timestamp":"2026-03-01T09:00:00Z","message":{"role":"user","content":"water"}}`, n, session)}
	}
	content := strings.TrimSuffix(strings.Repeat(block, blocks), ",")
	for n := range sessions {
		session := fmt.Sprintf("s%d", n)
		hostile := core.Record{Source: envelopes.ClaudeCode, Session: session, Data: []byte(`{"type":"assistant","uuid":"u","sessionId":"` + session +
			`","timestamp":"2026-03-01T09:00:00Z","message":{"id":"m","role":"assistant","model":"x","content":[` + content + `]}}`)}
		pipelinetest.Publish(t, js, prompt(session, 1), hostile, prompt(session, 2))
	}
	worker := startWith(t, func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "GOMEMLIMIT="+target, usuallyCollected) }, t.TempDir(), server.URL(), "run")
	pipelinetest.LimitMemory(t, worker.cmd.Process.Pid, limit)
	awaitSubject(t, js, "events.v1.>", 2*sessions)
	awaitSubject(t, js, "deadletters.v1.>", sessions)
	pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	peak := pipelinetest.PeakMemory(worker.cmd.Process.Pid)
	t.Logf("the worker took %d MiB at its peak", peak>>20)
	if peak == 0 || peak > limit {
		t.Errorf("the worker took %d MiB at its peak, and has %d MiB", peak>>20, limit>>20)
	}
	if code := worker.signal(syscall.SIGTERM); code != 0 {
		t.Errorf("run: exit code %d\n%s", code, worker.stderr.String())
	}
}
