package main

import (
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/streams"
)

// TestKilledReplayCommandsAreRunAgain kills start, diff, promote and drop, and the
// workers, at moments that are drawn at random, and runs them again: in the end the new
// generation is live, has the events of a fold over the raw stream, and the old one is gone.
func TestKilledReplayCommandsAreRunAgain(t *testing.T) {
	needsFaults(t)
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	top := streams.DefaultTopology()
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	home := t.TempDir()
	pipelinetest.Publish(t, js, pipelinetest.Workload(seed, 20, 1500)...)
	worker := start(t, home, server.URL(), "run")

	// persist runs a command until it ends by itself, after some runs that are killed.
	persist := func(wantCode int, args ...string) *process {
		t.Helper()
		for range 4 {
			p := start(t, home, server.URL(), args...)
			limit := time.NewTimer(time.Duration(random.IntN(120)) * time.Millisecond)
			select {
			case err := <-p.exit:
				p.exit <- err
			case <-limit.C:
				p.kill()
			}
			limit.Stop()
		}
		p := start(t, home, server.URL(), args...)
		if code := p.wait(); code != wantCode {
			t.Fatalf("%v: exit code %d, want %d\n%s", args, code, wantCode, &p.stderr)
		}
		return p
	}
	persist(0, "replay", "start", "b", "--set", "cloudevents=structured")
	worker.kill()
	worker = start(t, home, server.URL(), "run")
	persist(0, "replay", "status", "b", "--wait")
	persist(0, "replay", "diff", "v1", "b")
	persist(0, "replay", "promote", "b", "--wait")
	worker.kill()
	worker = start(t, home, server.URL(), "run")
	pipelinetest.Publish(t, js, pipelinetest.Workload(seed+1, 5, 100)...)
	persist(0, "replay", "status", "b", "--wait")

	// A drop that was finished before it was killed finds nothing.
	for {
		p := start(t, home, server.URL(), "replay", "drop", "v1", "--yes")
		limit := time.NewTimer(time.Duration(random.IntN(80)) * time.Millisecond)
		select {
		case err := <-p.exit:
			p.exit <- err
		case <-limit.C:
			p.kill()
		}
		limit.Stop()
		if p.wait() >= 0 {
			break
		}
	}
	list := persist(0, "replay", "ls", "-o", "json")
	var g streams.Generation
	if line := list.expect("{"); json.Unmarshal([]byte(line), &g) != nil || g.Name != "b" || g.State != streams.StateLive || g.Settings.CloudEvents != envelopes.Structured {
		t.Errorf("the first generation is %s", line)
	}
	for line := range list.lines {
		t.Errorf("another generation: %s", line)
	}
	if code := worker.signal(syscall.SIGTERM); code != 0 {
		t.Errorf("run: exit code %d\n%s", code, &worker.stderr)
	}
	top.Generation = "b"
	pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	streams := slices.DeleteFunc(pipelinetest.StreamNames(t, js), func(name string) bool { return !strings.HasPrefix(name, "EVENTS_") })
	if !slices.Equal(streams, []string{"EVENTS_b"}) {
		t.Errorf("streams of events: %v", streams)
	}
}

// A replay of records that have expired is refused: the error says from where it would be complete,
// and how to go on.
func TestReplayOfExpiredRecordsIsRefusedWithItsCures(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	js := server.Provision(streams.DefaultTopology())
	pipelinetest.Publish(t, js, pipelinetest.Workload(1, 2, 50)...)
	raw, err := js.Stream(t.Context(), streams.RawStream)
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Purge(t.Context(), jetstream.WithPurgeSequence(41)); err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	for _, code := range []int{1, 0} {
		args := []string{"replay", "start", "b"}
		if code == 0 {
			args = append(args, "--allow-expired")
		}
		got, out := finish(t, home, server.URL(), args...)
		refused := strings.Contains(out, "the first record is 41") && strings.Contains(out, "pass --allow-expired") && strings.Contains(out, "--sequence")
		if got != code || refused != (code == 1) {
			t.Errorf("%v: exit code %d\n%s", args, got, out)
		}
	}
}

// TestCommandsOfTheReplayPageWorkInTheirOrder runs the commands of deploy/replay.md, one after the other.
func TestCommandsOfTheReplayPageWorkInTheirOrder(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	js := server.Provision(streams.DefaultTopology())
	pipelinetest.Publish(t, js, pipelinetest.Workload(1, 8, 100)...)
	home := t.TempDir()
	start(t, home, server.URL(), "run")
	ran := 0
	for _, m := range regexp.MustCompile(`(?m)^ {4}(?:\$ )?tributary (replay [^#\n]*)`).FindAllStringSubmatch(readPage(t, "../../deploy/replay.md"), -1) {
		args := strings.Fields(m[1])
		want := []int{0}
		switch args[1] {
		case "drop":
			args = append(args, "--yes")
		case "diff":
			want = []int{0, 1}
		}
		code, out := finish(t, home, server.URL(), args...)
		if !slices.Contains(want, code) {
			t.Fatalf("%s: exit code %d\n%s", m[1], code, out)
		}
		ran++
	}
	if ran < 14 {
		t.Errorf("%d commands", ran)
	}
}
