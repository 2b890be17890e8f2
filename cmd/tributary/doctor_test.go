package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/embedded"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/streams"
)

// TestDoctorReportsWorkersAndProblems runs doctor without streams, without a worker, with one,
// after a worker was killed, and with two workers of the same name.
func TestDoctorReportsWorkersAndProblems(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	home := t.TempDir()
	doctor := func(args ...string) (code int, out string) {
		return finish(t, home, server.URL(), append([]string{"doctor"}, args...)...)
	}
	if code, out := doctor(); code != exitFailure || !strings.Contains(out, "tributary run") {
		t.Errorf("no streams: exit code %d\n%s", code, out)
	}
	top := streams.DefaultTopology()
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
	awaitWorkers(t, js, top, func(w []streams.Worker) bool { return len(w) == 1 && len(w[0].Partitions) == top.Partitions })
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
	awaitWorkers(t, js, top, func(w []streams.Worker) bool { return len(w) == 2 && len(w[0].Partitions) == len(w[1].Partitions) })
	killed.kill()
	awaitTakeover(t, js, top, killed)
	code, out = doctor()
	listed := strings.Contains(out, fmt.Sprintf("-%d:", killed.cmd.Process.Pid)) // for ten seconds
	if code != 0 || !strings.Contains(out, "partitions 0-15") || listed != strings.Contains(out, "considered dead") {
		t.Errorf("a worker that was killed: exit code %d\n%s", code, out)
	}
	if code := worker.signal(syscall.SIGTERM); code != 0 {
		t.Errorf("run: exit code %d", code)
	}
	named := func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "TRIBUTARY_WORKER=ada") }
	for range 2 {
		startWith(t, named, home, server.URL(), "run")
	}
	awaitWorkers(t, js, top, func(w []streams.Worker) bool { return len(w) == 2 && w[0].Name == w[1].Name })
	if code, out := doctor(); code != exitFailure || !strings.Contains(out, "several workers have the name ada") {
		t.Errorf("two workers of one name: exit code %d\n%s", code, out)
	}
}

// TestServerThatTakesOnlySmallMessagesIsRefused checks that run creates nothing on a server with a
// small max_payload, and that doctor reports it.
func TestServerThatTakesOnlySmallMessagesIsRefused(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t, func(c *embedded.Config) { c.MaxPayload = 64 << 10 })
	const want = "max_payload 65536, want 655360 or more: set max_payload"
	run := start(t, t.TempDir(), server.URL(), "run")
	if code := run.wait(); code != exitFailure || !strings.Contains(run.stderr.String(), want) {
		t.Errorf("run: exit code %d\n%s", code, run.stderr.String())
	}
	if _, err := server.JetStream().Stream(t.Context(), streams.RawStream); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("raw stream: %v", err)
	}
	server.Provision(streams.DefaultTopology())
	if code, out := finish(t, t.TempDir(), server.URL(), "doctor"); code != exitFailure || !strings.Contains(out, want) {
		t.Errorf("doctor: exit code %d\n%s", code, out)
	}
}

// TestServerFlagWinsOverContext has a context of the nats command with one server, and a flag with
// another one; the credentials are those of the context.
func TestServerFlagWinsOverContext(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	server.Provision(streams.DefaultTopology())
	dir := t.TempDir()
	contexts := filepath.Join(dir, "nats", "context")
	if err := errors.Join(os.MkdirAll(contexts, 0o700),
		os.WriteFile(filepath.Join(contexts, "far.json"), []byte(`{"url":"nats://127.0.0.1:1"}`), 0o600)); err != nil {
		t.Fatal(err)
	}
	far := func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "XDG_CONFIG_HOME="+dir, "NATS_CONTEXT=far") }
	for code, args := range map[int][]string{0: {"dlq", "ls", "-s", server.URL()}, exitFailure: {"dlq", "ls"}} {
		p := startWith(t, far, t.TempDir(), "", args...)
		if got := p.wait(); got != code {
			t.Errorf("%v: exit code %d, want %d\n%s", args, got, code, p.stderr.String())
		}
	}
}

// ended returns the exit code of a process, and its standard output and error.
func ended(p *process) (code int, out string) {
	code = p.wait()
	var b strings.Builder
	for line := range p.lines {
		b.WriteString(line + "\n")
	}
	return code, b.String() + p.stderr.String()
}
