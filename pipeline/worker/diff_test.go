package worker_test

import (
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// compare compares two generations. The groups of every diff add up to it.
func compare(tb testing.TB, js jetstream.JetStream, a, b string, q replay.DiffQuery) *replay.Diff {
	tb.Helper()
	d, err := replay.Compare(tb.Context(), js, a, b, q)
	if err != nil {
		tb.Fatal(err)
	}
	sum := &replay.Diff{Fields: map[string]uint64{}}
	for _, g := range d.Groups {
		sum.Same, sum.Changed, sum.Added, sum.Removed, sum.Reordered = sum.Same+g.Same, sum.Changed+g.Changed, sum.Added+g.Added, sum.Removed+g.Removed, sum.Reordered+g.Reordered
		for name, n := range g.Fields {
			sum.Fields[name] += n
		}
	}
	if sum.Same != d.Same || sum.Changed != d.Changed || sum.Added != d.Added || sum.Removed != d.Removed || sum.Reordered != d.Reordered || !maps.Equal(sum.Fields, d.Fields) {
		tb.Errorf("the groups add up to %+v, the diff is %+v", sum, d)
	}
	return d
}

// build makes a generation with a rule of its own, and waits until it is there.
func build(tb testing.TB, js jetstream.JetStream, top streams.Topology, r replay.Request, rule func(*core.Session, core.Record) (core.Result, error)) {
	tb.Helper()
	if rule != nil {
		r.Revision = normalizers.Revision + 1
	}
	startReplay(tb, js, r)
	cfg := worker.Config{Topology: of(top, r.Name), Normalize: rule, Revision: r.Revision}
	cfg.Topology.Settings = streams.Settings{}
	s := start(tb, js, cfg)
	caughtUp(tb, js, of(top, r.Name))
	s.stop(tb)
}

// A replay without a change has no difference, whatever the mode of its CloudEvents. One with
// other shapes of tool_metadata differs in that field alone.
func TestDiffShowsWhatTheSettingsChange(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("one worker after the other: the race detector sees nothing new in that")
	}
	top := topology(3)
	js := pipelinetest.NewServer(t).Provision(top)
	records := pipelinetest.Workload(80, 20, 400)
	pipelinetest.Publish(t, js, records...)
	pipelinetest.Publish(t, js, toolCalls()...)
	s := start(t, js, worker.Config{Topology: top})
	x := pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	s.stop(t)

	build(t, js, top, replay.Request{Name: "same"}, nil)
	build(t, js, top, replay.Request{Name: "structured", Settings: streams.Settings{CloudEvents: envelopes.Structured}}, nil)
	for _, name := range []string{"same", "structured", "v1"} {
		d := compare(t, js, "v1", name, replay.DiffQuery{Limit: 5})
		if n := uint64(x.Events); !d.Equal() || d.Same != n || d.Events != n || d.A.Events != n || d.B.Events != n || d.Sessions != 21 || len(d.Fields)+len(d.Examples) > 0 {
			t.Errorf("diff to %s: %+v, want %d events the same", name, d, n)
		}
		if n := d.Tokens["tokens_output"]; n.A == 0 || n.A != n.B {
			t.Errorf("diff to %s: tokens %+v", name, d.Tokens)
		}
	}

	build(t, js, top, replay.Request{Name: "shapes", Settings: streams.Settings{ToolMetadata: core.ProfileCurrent}}, nil)
	d := compare(t, js, "v1", "shapes", replay.DiffQuery{Limit: 5})
	if d.Changed != 1 || d.Same != uint64(x.Events)-1 || !maps.Equal(d.Fields, map[string]uint64{"tool_metadata": 1}) {
		t.Errorf("diff to shapes: %+v", d)
	}
	want := []replay.DiffExample{{
		Kind: replay.DiffChanged, Source: envelopes.ClaudeCode, Session: "s", EventID: "u1", EventType: envelopes.ToolResult,
		Fields: []replay.DiffField{{
			Field: "tool_metadata", A: []byte(`{"filePath":"/home/dev/a.go","content":"package a"}`), B: []byte(`{"filepath":"/home/dev/a.go","exists":true,"diagnostics":{}}`),
		}},
	}}
	if diff := cmp.Diff(want, d.Examples, cmpopts.IgnoreUnexported(replay.DiffExample{}), cmpopts.IgnoreFields(replay.DiffExample{}, "EventID")); diff != "" {
		t.Errorf("examples (-want +got):\n%s", diff)
	}
	for _, q := range []replay.DiffQuery{{Ignore: []string{"tool_metadata"}}, {Source: envelopes.Codex}, {Session: records[0].Session}} {
		if d := compare(t, js, "v1", "shapes", q); !d.Equal() {
			t.Errorf("%+v: %+v", q, d)
		}
	}
	if d := compare(t, js, "v1", "shapes", replay.DiffQuery{Session: "s"}); d.Changed != 1 || d.Sessions != 1 || len(d.Examples) != 0 {
		t.Errorf("the session alone: %+v", d)
	}
	if _, err := replay.Compare(t.Context(), js, "v1", "nosuch", replay.DiffQuery{}); !errors.Is(err, streams.ErrNoGeneration) {
		t.Errorf("a generation that is not there: %v", err)
	}
}

// The diff to a revision with a changed rule shows exactly its changes, of every kind, and both
// ways.
func TestDiffShowsExactlyTheChangesOfARule(t *testing.T) {
	t.Parallel()
	top := topology(2)
	js := pipelinetest.NewServer(t).Provision(top)
	var records []core.Record
	for i, text := range []string{"one", "two", "drop", "three", "double", "four", "move", "five", "six"} {
		r := user("s", text)
		r.Origin = core.Origin{File: "f", Position: int64(i)}
		records = append(records, r)
	}
	pipelinetest.Publish(t, js, records...)
	pipelinetest.Publish(t, js, pipelinetest.Workload(81, 5, 100)...)
	s := start(t, js, worker.Config{Topology: top})
	caughtUp(t, js, top)
	s.stop(t)
	var moved *core.Emitted
	rule := func(s *core.Session, r core.Record) (core.Result, error) {
		result, err := normalizers.Normalize(s, r)
		if r.Session != "s" || err != nil {
			return result, err
		}
		var events []core.Emitted
		for _, e := range result.Events {
			switch text := *e.Event.Text; text {
			case "drop":
			case "two":
				model := "m"
				e.Event.Model = &model
				events = append(events, e)
			case "double":
				again := e
				again.Event.EventID += "-again"
				n := int64(7)
				again.Event.TokensOutput = &n
				events = append(events, e, again)
			case "move":
				moved = &e
			default:
				events = append(events, e)
				if text == "six" {
					events = append(events, *moved)
				}
			}
		}
		result.Events = events
		return result, nil
	}
	build(t, js, top, replay.Request{Name: "b"}, rule)

	d := compare(t, js, "v1", "b", replay.DiffQuery{Limit: 10})
	if d.Changed != 1 || d.Added != 1 || d.Removed != 1 || d.Reordered != 1 || d.Events != d.Same+3 || !maps.Equal(d.Fields, map[string]uint64{"model": 1}) {
		t.Errorf("diff %+v", d)
	}
	if n := d.Tokens["tokens_output"]; n.B-n.A != 7 {
		t.Errorf("tokens %+v", n)
	}
	kinds := make(map[string]int)
	for _, x := range d.Examples {
		kinds[x.Kind]++
		if x.Session != "s" || x.EventID == "" {
			t.Errorf("example %+v", x)
		}
	}
	if want := map[string]int{replay.DiffChanged: 1, replay.DiffAdded: 1, replay.DiffRemoved: 1, replay.DiffReordered: 1}; !maps.Equal(kinds, want) {
		t.Errorf("examples of kinds %v", kinds)
	}
	var read atomic.Uint64
	if few := compare(t, js, "v1", "b", replay.DiffQuery{Limit: 10, Bytes: 1, Read: &read}); len(few.Examples) != 1 || few.Changed != 1 || read.Load() != d.A.Events+d.B.Events {
		t.Errorf("%d events are counted of %d and %d; the examples of one byte: %+v", read.Load(), d.A.Events, d.B.Events, few.Examples)
	}
	back := compare(t, js, "b", "v1", replay.DiffQuery{})
	if back.Changed != 1 || back.Added != 1 || back.Removed != 1 || back.Reordered != 1 || back.Same != d.Same {
		t.Errorf("the other way %+v", back)
	}
	if !slices.Contains(replay.DiffFields(), "model") || slices.Contains(replay.DiffFields(), "sequence") {
		t.Errorf("fields %v", replay.DiffFields())
	}
}
