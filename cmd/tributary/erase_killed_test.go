package main

import (
	"testing"

	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/streams"
)

// TestDoctorNamesAnErasureThatWasKilled kills erase when it has written its log and removed nothing: doctor names the
// session, who erased it, and the command that finishes it, until that has run.
func TestDoctorNamesAnErasureThatWasKilled(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	js := server.Provision(streams.DefaultTopology())
	home := t.TempDir()
	start(t, home, server.URL(), "run")
	run := func(want int, args ...string) string {
		t.Helper()
		code, out := finish(t, home, server.URL(), args...)
		if code != want {
			t.Fatalf("%v: exit code %d, want %d\n%s", args, code, want, out)
		}
		return out
	}
	run(0, "ship", "--once", "--source", "claude_code", claudeLog(t, "erased"))
	awaitRecords(t, js, "v1")
	awaitWorkers(t, js, streams.DefaultTopology(), func(w []streams.Worker) bool { return len(w) == 1 && len(w[0].Partitions) == 16 })
	run(0, "doctor")

	cut := pipelinetest.NewRequestCut(t, server, 1, false)
	cut.Only("$JS.API.STREAM.PURGE.")
	p := start(t, home, cut.URL(), "erase", "--session", "claude_code/one", "--by", "ada@ops-1", "--yes")
	select {
	case <-cut.Made():
	case err := <-p.exit:
		t.Fatalf("erase has ended: %v\n%s", err, &p.stderr)
	}
	p.kill()
	if !cut.Close() {
		t.Fatal("erase removes nothing")
	}
	pipelinetest.RequireInOrder(t, run(exitFailure, "doctor"),
		"problem: the erasure of session claude_code/one was interrupted, or is under way: ada@ops-1 began it at ", "finish it with tributary erase --session claude_code/one")
	run(0, "erase", "--session", "claude_code/one", "--yes")
	run(0, "doctor")
}
