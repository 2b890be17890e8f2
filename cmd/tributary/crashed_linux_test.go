package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"tributary/pipeline/events"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
)

// TestFaultOfMemoryBringsItsRecordBack has workers that the system refuses the memory for
// one large record: each dies of it, until the record is a dead letter. The commands show it with
// its size and what to do, and a worker with more memory reads it when it is requeued.
func TestFaultOfMemoryBringsItsRecordBack(t *testing.T) {
	needsFaults(t)
	t.Parallel()
	server := pipelinetest.NewServer(t)
	home := t.TempDir()
	top := streams.Topology{Generation: "v1", Partitions: 1}
	js := server.Provision(top)
	tributary := func(args ...string) *process {
		t.Helper()
		return startWith(t, func(cmd *exec.Cmd) {
			cmd.Env = append(cmd.Env, "TRIBUTARY_PARTITIONS=1", "TRIBUTARY_WORKER=ada", "TRIBUTARY_HTTP=127.0.0.1:0")
		}, home, server.URL(), args...)
	}

	// Room for what a worker does by itself, and not for the record.
	worker := tributary("run")
	awaitWorkers(t, js, top, func(w []streams.Worker) bool { return len(w) == 1 && len(w[0].Partitions) == 1 })
	room := dataSegment(t, worker) + 128<<20
	limit := func(p *process) {
		t.Helper()
		if err := unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_DATA, &unix.Rlimit{Cur: room, Max: room}, nil); err != nil {
			t.Fatal(err)
		}
	}
	limit(worker)
	records := pipelinetest.Workload(91, 1, 3)[:3]
	records[1].Data = fmt.Appendf(nil, `{"type":"user","uuid":"large","sessionId":%q,"timestamp":"2026-03-01T09:00:00Z","message":{"role":"user","content":"%s"}}`,
		records[1].Session, bytes.Repeat([]byte("words "), 60<<20/6))
	pipelinetest.Publish(t, js, records...)
	caughtUp := make(chan error, 1)
	go func() { caughtUp <- replay.CatchUp(t.Context(), js, top) }()
	for lives, done := 1, false; !done; {
		select {
		case err := <-caughtUp:
			if done = true; err != nil || lives < 6 {
				t.Fatalf("given up after %d lives: %v", lives, err)
			}
		case err := <-worker.exit:
			worker.exit <- err
			if died := worker.stderr.String(); !lackedMemory(died) {
				t.Fatalf("the worker died of something else:\n%s", died)
			}
			if lives++; lives > 20 {
				t.Fatal("the record is tried again and again")
			}
			if lives == 6 {
				_, out := ended(tributary("doctor"))
				pipelinetest.RequireInOrder(t, out, "problem: partition 0: record 2, 60.0 MiB, may have ended", "more memory")
			}
			worker = tributary("run")
			limit(worker)
		}
	}
	x := pipelinetest.Expectation{Topology: top, Crashed: []uint64{2}}
	x.RequireExact(t, js)
	pipelinetest.RequireInOrder(t, worker.stderr.String(), "committing records one at a time", "record ended its workers and becomes a dead letter", "sequence=2")
	_, metrics := worker.served("run").get("metrics", "")
	if counted := regexp.MustCompile(`tributary_dead_letters_total\{[^}]*reason="crashed"[^}]*source="claude_code"[^}]*\} 1\n`); !counted.MatchString(metrics) {
		t.Errorf("the metrics do not count the record:\n%s", metrics)
	}

	code, out := ended(tributary("doctor"))
	if code != exitFailure {
		t.Errorf("doctor: exit code %d", code)
	}
	pipelinetest.RequireInOrder(t, out, "problem: record 2, 60.0 MiB, session "+records[1].Session+" of claude_code", "more memory", "tributary dlq requeue 2")
	_, out = ended(tributary("dlq", "ls"))
	pipelinetest.RequireInOrder(t, out, "2  open", "crashed", "60.0 MiB", records[1].Session)
	_, out = ended(tributary("dlq", "show", "2"))
	pipelinetest.RequireInOrder(t, out, "crashed", "60.0 MiB, in an object of the bucket CLAIMS", "words words")
	if code, out = ended(tributary("dlq", "show", "--raw", "2")); code != 0 || strings.TrimSuffix(out, "\n") != string(records[1].Data) {
		t.Errorf("the bytes of the record: exit code %d, %d bytes of %d", code, len(out), len(records[1].Data))
	}

	worker.kill()
	if code, out = ended(tributary("dlq", "requeue", "2")); code != 0 {
		t.Errorf("dlq requeue: exit code %d\n%s", code, out)
	}
	tributary("run") // with all the memory
	x.RequireExact(t, js)
	var ids []string
	for e, err := range events.Read(t.Context(), js, "v1", events.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, e.EventID)
	}
	if !slices.Contains(ids, "large") {
		t.Errorf("no event of the record that is back: %v", ids)
	}
	if code, out = ended(tributary("doctor")); code != 0 {
		t.Errorf("doctor: exit code %d\n%s", code, out)
	}
}

// lackedMemory reports whether a process wrote that it died because it got no memory, for its
// heap or for a thread.
func lackedMemory(stderr string) bool {
	return slices.ContainsFunc([]string{"out of memory", "cannot allocate memory", "pthread_create failed"}, func(text string) bool {
		return strings.Contains(stderr, text)
	})
}

// dataSegment returns the bytes of private memory that a process can write to, used or not.
func dataSegment(tb testing.TB, p *process) uint64 {
	tb.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		tb.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmData:")
	var kib uint64
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		tb.Fatalf("%v in:\n%s", err, status)
	}
	return kib << 10
}
