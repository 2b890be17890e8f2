package worker_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// startReplay starts a replay, which must succeed.
func startReplay(tb testing.TB, js jetstream.JetStream, r replay.Request) streams.Generation {
	tb.Helper()
	g, err := replay.Start(tb.Context(), js, r)
	if err != nil {
		tb.Fatal(err)
	}
	return g
}

// of returns a topology for another generation.
func of(top streams.Topology, generation string) streams.Topology {
	top.Generation = generation
	return top
}

// TestInterruptedStartOfAReplayGoesOn: the start ended before it had stored the key of the
// generation, which comes last, and some or all of the first checkpoints.
func TestInterruptedStartOfAReplayGoesOn(t *testing.T) {
	t.Parallel()
	top := topology(4)
	js := pipelinetest.NewServer(t).Provision(top)
	pipelinetest.Publish(t, js, pipelinetest.Workload(71, 20, 300)...)
	startReplay(t, js, replay.Request{Name: "b"})
	kv, err := js.KeyValue(t.Context(), streams.ControlBucket)
	if err != nil {
		t.Fatal(err)
	}
	if err := kv.Purge(t.Context(), "generation.b"); err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), streams.EventsStream("b"))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(t.Context(), jetstream.WithPurgeSubject("checkpoints.b.3")); err != nil {
		t.Fatal(err)
	}
	startReplay(t, js, replay.Request{Name: "b"})
	w := work(t, js, worker.Config{Topology: top})
	caughtUp(t, js, of(top, "b"))
	w.stop(t)
	pipelinetest.Expectation{Topology: of(top, "b")}.RequireExact(t, js)
}

// The workers that run build a replay that is started, with its settings, beside the live
// generation, and any number of them share the work.
func TestWorkersBuildAReplayBesideTheLiveGeneration(t *testing.T) {
	t.Parallel()
	top := topology(4)
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	records := pipelinetest.Workload(70, 20, 600)
	pipelinetest.Publish(t, js, records[:300]...)
	pipelinetest.Publish(t, js, toolCalls()...)
	workers := []*following{
		work(t, js, member(top, "w0")), work(t, server.JetStream(), member(top, "w1")),
	}
	caughtUp(t, js, top)
	g := startReplay(t, js, replay.Request{Name: "b", Settings: streams.Settings{ToolMetadata: core.ProfileCurrent}})
	if g.State != streams.StateReplaying || g.Settings.CloudEvents != envelopes.Binary || g.Settings.ToolMetadata != core.ProfileCurrent {
		t.Errorf("the replay is %+v", g)
	}
	settled(t, js, of(top, "b"), map[string]int{"w0": 2, "w1": 2})
	pipelinetest.Publish(t, js, records[300:]...) // while it is built
	caughtUp(t, js, top)
	caughtUp(t, js, of(top, "b"))
	p, err := replay.ReadProgress(t.Context(), js, generation(t, js, "b"))
	if want := uint64(len(records) + 2); err != nil || !p.CaughtUp || p.Done != want || p.Total != want || p.Workers != 2 {
		t.Errorf("progress %+v, %v, want %d records", p, err, want)
	}
	for _, w := range workers {
		w.stop(t)
	}
	pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	live, replayed := eventsOf(t, js, "v1"), eventsOf(t, js, "b")
	if uint64(count(replayed)) != p.Events || count(replayed) != count(live) {
		t.Errorf("%d events live, %d replayed, progress says %d", count(live), count(replayed), p.Events)
	}
	if got := strings.Join(replayed["s"], "\n"); !strings.Contains(got, `{"filepath":"/home/dev/a.go"`) {
		t.Errorf("the replay has not the shapes of its settings: %s", got)
	}
	delete(live, "s")
	delete(replayed, "s")
	if diff := cmp.Diff(live, replayed); diff != "" {
		t.Errorf("the other events differ (-live +replayed):\n%s", diff)
	}
}

// caughtUp waits until a generation has caught up.
func caughtUp(tb testing.TB, js jetstream.JetStream, top streams.Topology) {
	tb.Helper()
	if err := replay.CatchUp(deadline(tb), js, top); err != nil {
		tb.Fatal(err)
	}
}

// count returns the number of events.
func count(events map[string][]string) (n int) {
	for _, list := range events {
		n += len(list)
	}
	return n
}

// A replay that is started again, or whose workers die, goes on where it was, and is exact.
func TestReplayIsResumable(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("one worker after the other: the race detector sees nothing new in that")
	}
	top := topology(4)
	js := pipelinetest.NewServer(t).Provision(top)
	pipelinetest.Publish(t, js, pipelinetest.Workload(71, 20, 900)...)
	first := startReplay(t, js, replay.Request{Name: "b"})
	for range 4 {
		w := work(t, js, member(top, "mortal"))
		if err := awaitEvents(t, js, "b", 100); err != nil {
			t.Fatal(err)
		}
		w.kill()
		if again := startReplay(t, js, replay.Request{Name: "b"}); !again.Started.Equal(first.Started) {
			t.Errorf("started again: %+v, first %+v", again, first)
		}
	}
	w := work(t, js, member(top, "heir"))
	caughtUp(t, js, of(top, "b"))
	w.stop(t)
	pipelinetest.Expectation{Topology: of(top, "b")}.RequireExact(t, js)
}

// awaitEvents waits until a generation has so many more events, or has caught up.
func awaitEvents(t *testing.T, js jetstream.JetStream, name string, more uint64) error {
	t.Helper()
	g := generation(t, js, name)
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	goal := uint64(0)
	for ctx := deadline(t); ; {
		p, err := replay.ReadProgress(ctx, js, g)
		if err != nil {
			return err
		}
		if goal == 0 {
			goal = p.Events + more
		}
		if p.Events >= goal || p.CaughtUp {
			return nil
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// A worker works only on generations of its own revision, and builds a replay of it beside a
// live generation of another.
func TestWorkerOfAnotherRevisionBuildsItsOwnReplays(t *testing.T) {
	t.Parallel()
	top := topology(2)
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	records := pipelinetest.Workload(72, 10, 400)
	pipelinetest.Publish(t, js, records[:200]...)
	old := work(t, js, member(top, "old"))
	cfg := member(top, "new")
	cfg.Revision, cfg.Normalize = normalizers.Revision+1, shout
	young := work(t, server.JetStream(), cfg)
	startReplay(t, js, replay.Request{Name: "b", Revision: normalizers.Revision + 1})
	settled(t, js, top, map[string]int{"old": 2})
	settled(t, js, of(top, "b"), map[string]int{"new": 2})
	pipelinetest.Publish(t, js, records[200:]...)
	caughtUp(t, js, top)
	caughtUp(t, js, of(top, "b"))
	old.stop(t)
	young.stop(t)
	pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	pipelinetest.Expectation{Topology: of(top, "b"), Normalize: shout}.RequireExact(t, js)

	// The program of the old revision refuses to go on with it.
	_, err := replay.Start(t.Context(), js, replay.Request{Name: "b"})
	refused(t, err, "generation b", fmt.Sprintf("revision %d, want %d", normalizers.Revision+1, normalizers.Revision))
}

// shout is the rule of another revision: prompts are in upper case.
func shout(s *core.Session, r core.Record) (core.Result, error) {
	result, err := normalizers.Normalize(s, r)
	for i := range result.Events {
		if e := &result.Events[i].Event; e.EventType == envelopes.UserMessage && e.Text != nil {
			text := strings.ToUpper(*e.Text)
			e.Text = &text
		}
	}
	return result, err
}

// What cannot be started is refused with the cure, and nothing is made of it.
func TestReplayThatCannotBeStartedIsRefused(t *testing.T) {
	t.Parallel()
	top := topology(2)
	js := pipelinetest.NewServer(t).Provision(top)
	pipelinetest.Publish(t, js, pipelinetest.Workload(73, 5, 100)...)
	startReplay(t, js, replay.Request{Name: "there"})
	_, err := replay.Start(t.Context(), js, replay.Request{Name: "B!"})
	refused(t, err, "1 to 32 of a-z, 0-9 and -")
	_, err = replay.Start(t.Context(), js, replay.Request{Name: "c", Settings: streams.Settings{CloudEvents: "batched"}})
	refused(t, err, `cloudevents="batched"`, "binary, structured")
	_, err = replay.Start(t.Context(), js, replay.Request{Name: "there", Settings: streams.Settings{CloudEvents: envelopes.Structured}})
	refused(t, err, "has cloudevents binary, want structured", "tributary replay drop there")
	_, err = replay.Start(t.Context(), js, replay.Request{Name: "there", Part: streams.Part{Sequence: 7}})
	refused(t, err, "has records all, want sequence=7")
	if _, err = replay.Start(t.Context(), js, replay.Request{Name: "v1"}); !errors.Is(err, streams.ErrLive) {
		t.Errorf("error %v, want %v", err, streams.ErrLive)
	}

	// Records that have expired are missing: the error says from where a replay is complete.
	raw, err := js.Stream(t.Context(), streams.RawStream)
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Purge(t.Context(), jetstream.WithPurgeSequence(41)); err != nil {
		t.Fatal(err)
	}
	_, err = replay.Start(t.Context(), js, replay.Request{Name: "c"})
	if !errors.Is(err, streams.ErrExpired) || !strings.Contains(err.Error(), "the first record is 41, stored at 20") {
		t.Errorf("error %v, want %v from record 41 on", err, streams.ErrExpired)
	}
	if all, err := streams.ReadGenerations(t.Context(), js); err != nil || len(all.List) != 2 {
		t.Errorf("generations %+v, %v, want v1 and there", all, err)
	}
	if _, err := js.Stream(t.Context(), streams.EventsStream("c")); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("a stream of a replay that was refused: %v", err)
	}
	if g := startReplay(t, js, replay.Request{Name: "c", Expired: true}); g.From.In(0) != 41 {
		t.Errorf("the replay is %+v, want it from 41 on", g)
	}
	if g := startReplay(t, js, replay.Request{Name: "d", Part: streams.Part{Sequence: 50}}); g.From != nil {
		t.Errorf("the replay is %+v: nothing of its part has expired", g)
	}
}

// A dropped generation leaves nothing but its name behind, which may be used again; the live
// one cannot be dropped.
func TestDropRemovesAGeneration(t *testing.T) {
	t.Parallel()
	top := topology(2)
	js := pipelinetest.NewServer(t).Provision(top)
	pipelinetest.Publish(t, js, pipelinetest.Workload(74, 5, 100)...)
	w := work(t, js, member(top, "w"))
	if err := replay.Drop(t.Context(), js, "v1"); !errors.Is(err, streams.ErrLive) {
		t.Errorf("drop of the live one: %v", err)
	}
	if err := replay.Drop(t.Context(), js, "b"); !errors.Is(err, streams.ErrNoGeneration) || !strings.Contains(err.Error(), "the broker has v1") {
		t.Errorf("drop of an unknown one: %v", err)
	}
	startReplay(t, js, replay.Request{Name: "b"})
	caughtUp(t, js, of(top, "b"))
	if err := replay.Drop(t.Context(), js, "b"); err != nil {
		t.Fatal(err)
	}
	if all, err := streams.ReadGenerations(t.Context(), js); err != nil || len(all.List) != 1 {
		t.Errorf("generations %+v, %v, want v1", all, err)
	}
	if _, err := js.Stream(t.Context(), streams.EventsStream("b")); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("the stream is there: %v", err)
	}
	startReplay(t, js, replay.Request{Name: "b", Settings: streams.Settings{CloudEvents: envelopes.Structured}}) // at once
	caughtUp(t, js, of(top, "b"))
	for _, m := range storedIn(t, js, "b", "events.b.>") {
		if got := m.Header.Get("Content-Type"); got != "application/cloudevents+json" {
			t.Fatalf("an event of type %q: a worker went on with the settings of the one before", got)
		}
	}
	stream, err := js.Stream(t.Context(), streams.EventsStream("b"))
	if err != nil {
		t.Fatal(err)
	}
	if first := stream.CachedInfo().State.FirstSeq; first < 1<<20 {
		t.Errorf("the stream begins at %d, which a worker of the one before may expect", first)
	}
	w.stop(t)
	pipelinetest.Expectation{Topology: of(top, "b")}.RequireExact(t, js)
}

// A drop that is interrupted at any step is found again, and finished by the next one.
func TestInterruptedDropIsFinished(t *testing.T) {
	t.Parallel()
	top := topology(2)
	js := pipelinetest.NewServer(t).Provision(top)
	pipelinetest.Publish(t, js, pipelinetest.Workload(75, 5, 100)...)
	kv, err := js.KeyValue(t.Context(), streams.ControlBucket)
	if err != nil {
		t.Fatal(err)
	}
	for name, interrupt := range map[string]func(){
		"after the mark": func() {
			g := generation(t, js, "b")
			if _, err := kv.PutString(t.Context(), "generation.b", fmt.Sprintf(`{"revision":%d,"state":"dropping"}`, g.Revision)); err != nil {
				t.Fatal(err)
			}
			if _, err := replay.Start(t.Context(), js, replay.Request{Name: "b"}); err == nil || !strings.Contains(err.Error(), "tributary replay drop b") {
				t.Errorf("a start while it is dropped: %v", err)
			}
			if _, err := replay.Promote(deadline(t), js, "b", false); err == nil || !strings.Contains(err.Error(), "being dropped") {
				t.Errorf("a promotion while it is dropped: %v", err)
			}
		},
		"after the stream": func() {
			if err := js.DeleteStream(t.Context(), streams.EventsStream("b")); err != nil {
				t.Fatal(err)
			}
		},
		"after the settings": func() {
			if err := kv.Purge(t.Context(), "settings.b"); err != nil {
				t.Fatal(err)
			}
		},
	} {
		build(t, js, top, replay.Request{Name: "b"}, nil)
		interrupt()
		if err := replay.Drop(t.Context(), js, "b"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if all, err := streams.ReadGenerations(t.Context(), js); err != nil || len(all.List) != 1 {
			t.Errorf("%s: generations %+v, %v", name, all, err)
		}
	}
}

// A worker of another revision than the live generation is not ready, and says why, what it does and the cure: while it
// does nothing it is among the workers that wait, and when its generation is live it is ready.
func TestWorkerOfAnotherRevisionIsNotReady(t *testing.T) {
	t.Parallel()
	top := topology(2)
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	pipelinetest.Publish(t, js, pipelinetest.Workload(77, 5, 60)...)
	cfg := member(top, "new")
	cfg.Revision, cfg.Normalize = normalizers.Revision+1, shout
	w := work(t, server.JetStream(), cfg)
	await := func(what string, is func() bool) {
		t.Helper()
		poll := time.NewTicker(5 * time.Millisecond)
		defer poll.Stop()
		for ctx := deadline(t); !is(); {
			select {
			case <-poll.C:
			case <-ctx.Done():
				t.Fatalf("%s: %v", what, w.Ready())
			}
		}
	}
	says := func(text string) func() bool {
		return func() bool { err := w.Ready(); return err != nil && strings.Contains(err.Error(), text) }
	}
	await("it does nothing", says(fmt.Sprintf("v1 has revision %d, this worker has %d: it does nothing: build one of this revision with tributary replay start NAME", normalizers.Revision, normalizers.Revision+1)))
	await("it waits", func() bool {
		waiting, err := streams.WaitingWorkers(t.Context(), js)
		return err == nil && len(waiting) == 1 && waiting[0].Name == "new" && waiting[0].Revision == normalizers.Revision+1
	})
	startReplay(t, js, replay.Request{Name: "b", Revision: normalizers.Revision + 1})
	await("it builds", says("it only builds b: make one live with tributary replay promote NAME"))
	caughtUp(t, js, of(top, "b"))
	if _, err := replay.Promote(deadline(t), js, "b", true); err != nil {
		t.Fatal(err)
	}
	await("it is ready", func() bool { return w.Ready() == nil })
	caughtUp(t, js, of(top, "b"))
}
