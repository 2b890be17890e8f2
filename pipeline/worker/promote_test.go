package worker_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/normalizers/core"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// states returns the states of all generations.
func states(tb testing.TB, js jetstream.JetStream) string {
	tb.Helper()
	all, err := streams.ReadGenerations(tb.Context(), js)
	if err != nil {
		tb.Fatal(err)
	}
	var list []string
	for _, g := range all.List {
		list = append(list, g.Name+" "+string(g.State))
	}
	return strings.Join(list, ", ")
}

// A promotion and a rollback move the live generation while records arrive: the workers follow,
// each generation holds exactly what it should up to its cut, and the live one everything.
func TestWorkersFollowThePromotionAndTheRollback(t *testing.T) {
	t.Parallel()
	top := topology(4)
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	records := pipelinetest.Workload(90, 20, 600)
	feed := func(n int) {
		pipelinetest.Publish(t, js, records[:n]...)
		records = records[n:]
	}
	feed(200)
	workers := []*following{work(t, js, member(top, "w0")), work(t, server.JetStream(), member(top, "w1"))}
	startReplay(t, js, replay.Request{Name: "b", Settings: streams.Settings{ToolMetadata: core.ProfileCurrent}})
	caughtUp(t, js, top)

	if before, err := replay.Promote(deadline(t), js, "b", true); err != nil || before != "v1" {
		t.Fatalf("promoted after %q: %v", before, err)
	}
	if live, err := streams.LiveGeneration(t.Context(), js); err != nil || live != "b" {
		t.Errorf("live is %s, %v", live, err)
	}
	if got := states(t, js); got != "b live, v1 retired" {
		t.Errorf("states: %s", got)
	}
	cut := cuts(t, js, top, "b")
	feed(200)
	caughtUp(t, js, of(top, "b"))
	if now := cuts(t, js, top, "b"); now != cut {
		t.Errorf("the retired generation went on: %v, cut at %v", now, cut)
	}
	if err := start(t, js, worker.Config{Topology: top}).wait(t); !errors.Is(err, streams.ErrRetired) || !strings.Contains(err.Error(), "b is live") {
		t.Errorf("a stage on a retired generation: %v", err)
	}

	// Again changes nothing.
	if before, err := replay.Promote(deadline(t), js, "b", false); err != nil || before != "v1" {
		t.Errorf("promoted again after %q: %v", before, err)
	}
	if _, err := replay.Promote(deadline(t), js, "v1", false); !errors.Is(err, streams.ErrNotReady) || !strings.Contains(err.Error(), "replay rollback") {
		t.Errorf("promotion of a retired one: %v", err)
	}

	from, to, err := replay.RollBack(t.Context(), js)
	if err != nil || from != "b" || to != "v1" {
		t.Fatalf("rolled back from %q to %q: %v", from, to, err)
	}
	feed(len(records))
	caughtUp(t, js, top)
	if got := states(t, js); got != "b retired, v1 live" {
		t.Errorf("states: %s", got)
	}
	if from, to, err := replay.RollBack(t.Context(), js); err != nil || from != "b" || to != "v1" {
		t.Errorf("a second rollback, which may be of a command whose last answer was lost: from %q to %q: %v", from, to, err)
	}
	if _, _, err := replay.RollBackTo(t.Context(), js, "v0"); !errors.Is(err, streams.ErrNotReady) {
		t.Errorf("a rollback further than there is: %v", err)
	}

	// The work on a retired generation is taken up again.
	startReplay(t, js, replay.Request{Name: "b"})
	caughtUp(t, js, of(top, "b"))
	for _, w := range workers {
		w.stop(t)
	}
	pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	if d := compare(t, js, "v1", "b", replay.DiffQuery{Ignore: []string{"tool_metadata"}}); !d.Equal() || d.Same < 1000 {
		t.Errorf("after all that the two differ: %+v", d)
	}
	if err := replay.Drop(t.Context(), js, "b"); err != nil {
		t.Error(err)
	}
}

// cuts returns up to where each partition of v1 goes, all of which a promotion has cut.
func cuts(t *testing.T, js jetstream.JetStream, top streams.Topology, successor string) (last [4]uint64) {
	t.Helper()
	for p := range top.Partitions {
		c, _, err := streams.ReadCheckpoint(t.Context(), js, "v1", p)
		if err != nil || c.Cut != successor {
			t.Errorf("partition %d is cut for %q, %v", p, c.Cut, err)
		}
		last[p] = c.Raw
	}
	return last
}

// A promotion that is interrupted at any step is finished by the next one.
func TestInterruptedPromotionIsFinished(t *testing.T) {
	t.Parallel()
	top := topology(4)
	js := pipelinetest.NewServer(t).Provision(top)
	pipelinetest.Publish(t, js, pipelinetest.Workload(91, 10, 300)...)
	build(t, js, top, replay.Request{Name: "b"}, nil)
	kv, err := js.KeyValue(t.Context(), streams.ControlBucket)
	if err != nil {
		t.Fatal(err)
	}
	// Before the write that decides.
	g, err := kv.Get(t.Context(), "generation.b")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.PutString(t.Context(), "generation.b", strings.TrimSuffix(string(g.Value()), "}")+`,"replaces":"v1"}`); err != nil {
		t.Fatal(err)
	}
	if got := states(t, js); got != "b replaying, v1 live" {
		t.Errorf("states: %s", got)
	}
	// After it: the old generation is retired, though no cut is there yet.
	if _, err := kv.PutString(t.Context(), "current", "b"); err != nil {
		t.Fatal(err)
	}
	if got := states(t, js); got != "b live, v1 retired" {
		t.Errorf("states: %s", got)
	}
	if before, err := replay.Promote(deadline(t), js, "b", false); err != nil || before != "v1" {
		t.Fatalf("promoted after %q: %v", before, err)
	}
	cuts(t, js, top, "b")
}

// What cannot be promoted is refused with the cure, and the live generation stays.
func TestGenerationThatCannotBePromotedIsRefused(t *testing.T) {
	t.Parallel()
	top := topology(2)
	js := pipelinetest.NewServer(t).Provision(top)
	pipelinetest.Publish(t, js, pipelinetest.Workload(92, 5, 100)...)
	startReplay(t, js, replay.Request{Name: "behind"}) // no worker
	if _, err := replay.Promote(deadline(t), js, "behind", false); !errors.Is(err, streams.ErrNotReady) || !strings.Contains(err.Error(), "behind has not done 105 records: wait for it with --wait") {
		t.Errorf("error %v, want %v", err, streams.ErrNotReady)
	}
	build(t, js, top, replay.Request{Name: "part", Part: streams.Part{Sequence: 50}}, nil)
	if _, err := replay.Promote(deadline(t), js, "part", false); !errors.Is(err, streams.ErrNotReady) || !strings.Contains(err.Error(), "sequence=50") {
		t.Errorf("error %v, want %v", err, streams.ErrNotReady)
	}
	if _, err := replay.Promote(deadline(t), js, "nosuch", false); !errors.Is(err, streams.ErrNoGeneration) {
		t.Errorf("error %v, want %v", err, streams.ErrNoGeneration)
	}
	if got := states(t, js); got != "behind replaying, part replaying, v1 live" {
		t.Errorf("states: %s", got)
	}
}

// A generation of a part has the events of that part, and the diff compares them with those of
// the same records.
func TestReplayOfAPart(t *testing.T) {
	pipelinetest.SkipShort(t)
	t.Parallel()
	top := topology(3)
	js := pipelinetest.NewServer(t).Provision(top)
	records := pipelinetest.Workload(93, 12, 400)
	pipelinetest.Publish(t, js, records...)
	s := start(t, js, worker.Config{Topology: top})
	caughtUp(t, js, top)
	s.stop(t)
	for _, part := range []streams.Part{{Session: records[0].Session}, {Session: "session 3 of seed 93. *>"}, {Source: records[0].Source}, {Source: "codex"}} {
		build(t, js, top, replay.Request{Name: "part", Part: part}, nil)
		d := compare(t, js, "v1", "part", replay.DiffQuery{})
		if want := len(eventsOf(t, js, "v1")[part.Session]); !d.Equal() || part.Session != "" && (d.Events != uint64(want) || want == 0) || (part.Source == "codex") != (d.Events == 0) {
			t.Errorf("%s: %+v, want %d events", part, d, want)
		}
		p, err := replay.ReadProgress(t.Context(), js, generation(t, js, "part"))
		if err != nil || !p.CaughtUp || p.Done != p.Total || p.Total == 0 && part.Source != "codex" {
			t.Errorf("%s: %+v, %v", part, p, err)
		}
		if err := replay.Drop(t.Context(), js, "part"); err != nil {
			t.Fatal(err)
		}
	}
	build(t, js, top, replay.Request{Name: "tail", Part: streams.Part{Sequence: 200}}, nil)
	p, err := replay.ReadProgress(t.Context(), js, generation(t, js, "tail"))
	if want := uint64(len(records)) - 199; err != nil || p.Total != want || p.Done != want {
		t.Errorf("progress %+v, %v, want %d", p, err, want)
	}
	if d := compare(t, js, "v1", "tail", replay.DiffQuery{}); d.A.Events != d.B.Events || d.Added+d.Removed > 0 {
		t.Errorf("from the middle: %+v", d)
	}
}
