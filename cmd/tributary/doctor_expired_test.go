package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/streams"
)

// TestDoctorReportsRecordsThatExpiredUnread has a retention that passes while no worker is there: doctor, which alone looks
// at first, exits with 1 and says how many records, of when, and what to do, until that is acknowledged; and again when
// more are lost. The log of the worker says so, too, and replay status of a generation that has lost them.
func TestDoctorReportsRecordsThatExpiredUnread(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	home := t.TempDir()
	top := streams.DefaultTopology()
	js := server.Provision(top)
	records := pipelinetest.Workload(91, 30, 1000)[:1000]
	work := func() *process {
		t.Helper()
		p := start(t, home, server.URL(), "run")
		awaitWorkers(t, js, top, func(w []streams.Worker) bool { return len(w) == 1 && len(w[0].Partitions) == top.Partitions })
		awaitDone(t, js)
		return p
	}
	end := func(p *process) {
		t.Helper()
		if code := p.signal(syscall.SIGTERM); code != 0 {
			t.Errorf("run: exit code %d", code)
		}
	}
	remove := func(first uint64) {
		t.Helper()
		raw, err := js.Stream(t.Context(), streams.RawStream)
		if err != nil {
			t.Fatal(err)
		}
		if err := raw.Purge(t.Context(), jetstream.WithPurgeSequence(first)); err != nil {
			t.Fatal(err)
		}
	}
	doctor := func(want int, texts ...string) {
		t.Helper()
		code, out := finish(t, home, server.URL(), "doctor", "--gaps-since", "0s") // the sessions that go on have gaps, too
		if code != want || len(texts) == 0 && strings.Contains(out, "before they were read:") {
			t.Errorf("exit code %d, want %d\n%s", code, want, out)
		}
		contains(t, out, texts...)
	}
	pipelinetest.Publish(t, js, records[:200]...)
	end(work())
	pipelinetest.Publish(t, js, records[200:900]...)
	remove(886)
	lost := []string{
		"problem: generation v1: 685 records, stored between ", " and ", "left the stream RAW before they were read",
		"TRIBUTARY_RAW_MAX_AGE", "more workers", "tributary ship --again", "tributary doctor acknowledge",
	}
	doctor(exitFailure, append(lost, "no worker is alive")...)
	worker := work()
	worker.awaitLogged("records left the raw stream before they were read") // it looks for them beside its work
	doctor(exitFailure, lost...)
	code, out := finish(t, home, server.URL(), "replay", "status", "v1")
	if code != 0 || !strings.Contains(out, "685 records of RAW before they were read") {
		t.Errorf("replay status: exit code %d\n%s", code, out)
	}
	if code, out := finish(t, home, server.URL(), "doctor", "acknowledge"); code != 0 || !strings.Contains(out, "acknowledged: generation v1: 685 records, stored ") {
		t.Errorf("doctor acknowledge: exit code %d\n%s", code, out)
	}
	awaitRecords(t, js, "v1")
	doctor(0, "685 records before they were read, which are acknowledged")
	if code, out := finish(t, home, server.URL(), "doctor", "acknowledge"); code != 0 || !strings.Contains(out, "nothing to acknowledge") {
		t.Errorf("doctor acknowledge: exit code %d\n%s", code, out)
	}
	end(worker)
	contains(t, worker.stderr.String(), "685")
	pipelinetest.Publish(t, js, records[900:]...)
	remove(951)
	end(work())
	doctor(exitFailure, "problem: generation v1: 50 records, stored between ")
}

// TestStreamThatDiscardsUnreadRecordsIsRefused has a raw stream that an operator limited: run, doctor and ship name the
// command that cures it, and work once it was run.
func TestStreamThatDiscardsUnreadRecordsIsRefused(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	home := t.TempDir()
	js := server.Provision(streams.DefaultTopology())
	raw, err := js.Stream(t.Context(), streams.RawStream)
	if err != nil {
		t.Fatal(err)
	}
	limited := raw.CachedInfo().Config
	limited.MaxBytes, limited.Discard = 1<<30, jetstream.DiscardOld
	log := claudeLog(t, "water")
	for _, c := range []struct {
		discard jetstream.DiscardPolicy
		want    int
	}{{jetstream.DiscardOld, exitFailure}, {jetstream.DiscardNew, 0}} {
		limited.Discard = c.discard
		if _, err := js.UpdateStream(t.Context(), limited); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"ship", "--once", "--source", "claude_code", log}, {"run"}, {"doctor"}} {
			if args[0] != "ship" && c.want == 0 {
				continue
			}
			code, out := finish(t, home, server.URL(), args...)
			if code != c.want || c.want != 0 && !strings.Contains(out, "nats stream edit RAW --discard=new") {
				t.Errorf("%s: exit code %d, want %d\n%s", args[0], code, c.want, out)
			}
		}
	}
}
