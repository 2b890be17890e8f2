package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/normalizers"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/streams"
)

// TestKilledRollbackIsFinishedAndGoesNoFurther kills replay rollback when it has written one of the cuts: doctor says what
// is half done and the command that finishes it, other commands refuse, and the same command finishes it, once.
func TestKilledRollbackIsFinishedAndGoesNoFurther(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	js := server.Provision(streams.DefaultTopology())
	home := t.TempDir()
	pipelinetest.Publish(t, js, pipelinetest.Workload(83, 10, 200)...)
	start(t, home, server.URL(), "run")
	run := func(want int, args ...string) string {
		t.Helper()
		code, out := finish(t, home, server.URL(), args...)
		if code != want {
			t.Fatalf("%v: exit code %d, want %d\n%s", args, code, want, out)
		}
		return out
	}
	for _, name := range []string{"a", "b"} {
		run(0, "replay", "start", name)
		run(0, "replay", "promote", name, "--wait")
	}
	cut := pipelinetest.NewRequestCut(t, server, 2, false)
	cut.Only("checkpoints.b.")
	p := start(t, home, cut.URL(), "replay", "rollback")
	select {
	case <-cut.Made():
	case err := <-p.exit:
		t.Fatalf("the rollback has ended: %v\n%s", err, &p.stderr)
	}
	p.kill()
	if !cut.Close() {
		t.Fatal("the rollback writes no cut")
	}

	what := "the rollback from b to a was interrupted, or is under way: finish it with tributary replay rollback"
	pipelinetest.RequireInOrder(t, run(exitFailure, "doctor"), "problem: "+what)
	pipelinetest.RequireInOrder(t, run(exitFailure, "replay", "promote", "b"), what)
	pipelinetest.RequireInOrder(t, run(exitFailure, "replay", "drop", "b", "--yes"), what)
	pipelinetest.RequireInOrder(t, run(0, "replay", "rollback"), "finished the rollback that was interrupted: a is live again, b is retired")
	pipelinetest.RequireInOrder(t, run(0, "replay", "rollback"), "a is live since the rollback from b: nothing was changed: tributary replay rollback v1 goes back further")
	// A worker that is leaving the generation, from when it was live before, removes its heartbeat, and comes back.
	rolledBack := time.Now()
	awaitWorkers(t, js, streams.Topology{Generation: "a"}, func(w []streams.Worker) bool {
		return len(w) == 1 && len(w[0].Partitions) == 16 && !w[0].Leaving && w[0].Seen.After(rolledBack)
	})
	awaitRecords(t, js, "a")
	run(0, "doctor")
	pipelinetest.RequireInOrder(t, run(0, "replay", "rollback", "v1"), "v1 is live again, a is retired")
}

// TestDoctorFindsWhatOlderVersionsLeftHalfDone has the keys and checkpoints that versions leave which stored no cut-over:
// a rollback that was killed behind its decision, or in front of it, and a start and a drop that were killed.
func TestDoctorFindsWhatOlderVersionsLeftHalfDone(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	js := server.Provision(streams.DefaultTopology())
	home := t.TempDir()
	start(t, home, server.URL(), "run")
	kv, err := js.KeyValue(t.Context(), "TRIBUTARY")
	if err != nil {
		t.Fatal(err)
	}
	put := func(key, value string) {
		t.Helper()
		if _, err := kv.PutString(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
	}
	run := func(want int, texts string, args ...string) {
		t.Helper()
		code, out := finish(t, home, server.URL(), args...)
		if code != want || !strings.Contains(out, texts) {
			t.Errorf("%v: exit code %d, want %d and %q\n%s", args, code, want, texts, out)
		}
	}
	run(0, "", "replay", "start", "b")
	for _, name := range []string{"v1", "b"} {
		awaitWorkers(t, js, streams.Topology{Generation: name}, func(w []streams.Worker) bool { return len(w) == 1 && len(w[0].Partitions) == 16 })
	}
	record := func(rest string) string { return fmt.Sprintf(`{"revision":%d%s}`, normalizers.Revision, rest) }

	started := startedOf(t, js, "b")
	put("generation.b", record(`,"state":"replaying","replaces":"v1","started":"`+started+`"`))
	run(exitFailure, "retire it with tributary replay rollback v1", "doctor")
	run(exitFailure, "retire it with tributary replay rollback v1", "replay", "rollback")
	run(0, "v1 is live again, b is retired", "replay", "rollback", "v1")
	run(0, "", "doctor")

	put("generation.b", record(`,"state":"retired","started":"`+started+`"`))
	uncut(t, js, "checkpoints.b.3")
	run(exitFailure, "generation b is retired, but its partitions 3 have no cut", "doctor")
	run(0, "v1 is live already", "replay", "promote", "v1")
	run(0, "", "doctor")

	put("generation.c", record(`,"state":"starting"`))
	run(exitFailure, "the start of generation c was interrupted", "doctor")
	run(0, "", "replay", "drop", "c", "--yes")
	put("generation.b", record(`,"state":"dropping"`))
	run(exitFailure, "the drop of generation b was interrupted", "doctor")
	run(0, "", "replay", "drop", "b", "--yes")
	run(0, "removed generation b", "replay", "drop", "b", "--yes") // the last answer of the broker may be lost
	run(0, "", "doctor")
}

// startedOf returns when a generation was started.
func startedOf(t *testing.T, js jetstream.JetStream, name string) string {
	t.Helper()
	all, err := streams.ReadGenerations(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	g, err := all.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	text, err := g.Started.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// uncut takes the cut out of a checkpoint of b.
func uncut(t *testing.T, js jetstream.JetStream, subject string) {
	t.Helper()
	stream, err := js.Stream(t.Context(), streams.EventsStream("b"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := stream.GetLastMsgForSubject(t.Context(), subject)
	if err != nil {
		t.Fatal(err)
	}
	data := strings.Replace(string(m.Data), `,"cut":"v1"`, "", 1)
	if data == string(m.Data) {
		t.Fatalf("%s has no cut: %s", subject, m.Data)
	}
	if _, err := js.Publish(t.Context(), subject, []byte(data)); err != nil {
		t.Fatal(err)
	}
}

// TestWorkerOfAnotherRevisionIsNotReady asks the probe as an orchestrator does: the worker must not take the place of one
// of the revision before.
func TestWorkerOfAnotherRevisionIsNotReady(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	js := server.Provision(streams.DefaultTopology())
	kv, err := js.KeyValue(t.Context(), "TRIBUTARY")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.PutString(t.Context(), "generation.v1", `{"revision":1}`); err != nil {
		t.Fatal(err)
	}
	worker := startServed(t, t.TempDir(), server.URL(), "run")
	worker.awaitProbe("readyz", http.StatusServiceUnavailable, fmt.Sprintf("v1 has revision 1, this worker has %d: it does nothing: build one of this revision with tributary replay start NAME", normalizers.Revision))
	worker.awaitProbe("livez", http.StatusOK)
}

// TestDoctorNamesWorkersOfAnotherRevision has the heartbeats of a worker that does nothing.
func TestDoctorNamesWorkersOfAnotherRevision(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	js := server.Provision(streams.DefaultTopology())
	home := t.TempDir()
	beating, stop := context.WithCancel(t.Context())
	var beats sync.WaitGroup
	beats.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for beating.Err() == nil {
			if _, err := js.Publish(beating, "$KV.TRIBUTARY_WORKERS._waiting.x", fmt.Appendf(nil, `{"name":"fresh","revision":%d,"partitions":[]}`, normalizers.Revision+1)); err != nil && beating.Err() == nil {
				t.Error(err)
			}
			select {
			case <-tick.C:
			case <-beating.Done():
			}
		}
	})
	awaitWorkers(t, js, streams.Topology{Generation: "_waiting"}, func(w []streams.Worker) bool { return len(w) == 1 })
	want := fmt.Sprintf("worker fresh of revision %d does nothing: the live generation is of revision %d: with the worker's program, build a generation of its revision", normalizers.Revision+1, normalizers.Revision)
	code, out := finish(t, home, server.URL(), "doctor")
	stop()
	beats.Wait()
	if code != exitFailure || !strings.Contains(out, want) {
		t.Errorf("doctor: exit code %d, want %q\n%s", code, want, out)
	}
}
