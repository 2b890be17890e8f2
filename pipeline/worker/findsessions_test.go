package worker_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/events"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// TestSessionsAreFoundByTheBeginningOfTheirIDs has ids of every form of token.
func TestSessionsAreFoundByTheBeginningOfTheirIDs(t *testing.T) {
	t.Parallel()
	top := streams.Topology{Generation: "v1", Partitions: 1}
	js := pipelinetest.NewServer(t).Provision(top)
	long := "ab" + strings.Repeat("long\n", 50)
	for _, id := range []string{"ab1", "ab2", "ab *.>", long, "b"} {
		pipelinetest.Publish(t, js, core.Record{
			Source: envelopes.ClaudeCode, Session: id,
			Data: []byte(`{"type":"user","uuid":"u","message":{"role":"user","content":"hi"}}`),
		})
	}
	start(t, js, worker.Config{Topology: top})
	if err := replay.CatchUp(t.Context(), js, top); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		query  events.Query
		prefix string
		most   int
		want   []string
	}{
		{events.Query{}, "ab", 0, []string{"ab1", "ab2", "ab *.>", long}},
		{events.Query{}, "ab", 2, []string{"ab1", "ab2"}},
		{events.Query{}, long, 0, []string{long}},
		{events.Query{Session: long}, long, 0, []string{long}},
		{events.Query{Session: "ab"}, "ab", 0, nil},
		{events.Query{Source: envelopes.Codex}, "", 0, nil},
		{events.Query{}, "c", 0, nil},
	} {
		found, err := events.FindSessions(t.Context(), js, "v1", c.query, c.prefix, c.most)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range found {
			got = append(got, s.Session)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%+v %q:\n%s", c.query, c.prefix, diff)
		}
	}
}

// TestOutlinesAreTheEvents compares both ways to read a generation, in both modes of CloudEvents and from a sequence
// on.
func TestOutlinesAreTheEvents(t *testing.T) {
	t.Parallel()
	for _, mode := range []envelopes.Mode{envelopes.Binary, envelopes.Structured} {
		top := streams.Topology{Generation: "v1", Partitions: 1, Settings: streams.Settings{CloudEvents: mode}}
		js := pipelinetest.NewServer(t).Provision(top)
		pipelinetest.Publish(t, js, pipelinetest.Workload(3, 3, 50)...)
		start(t, js, worker.Config{Topology: top})
		if err := replay.CatchUp(t.Context(), js, top); err != nil {
			t.Fatal(err)
		}
		whole := map[uint64]envelopes.AgentEventV1{}
		for e, err := range events.Read(t.Context(), js, "v1", events.Query{}) {
			if err != nil {
				t.Fatal(err)
			}
			whole[e.Position] = e.AgentEventV1
		}
		n, from := 0, uint64(20)
		for e, err := range events.Outlines(t.Context(), js, "v1", events.Query{After: streams.Positions{from - 1}}) {
			if err != nil {
				t.Fatal(err)
			}
			want := whole[e.Position]
			if e.Position < from || e.EventID != want.EventID || e.TS != want.TS || !cmp.Equal(e.Usage, want.Usage) || !cmp.Equal(e.Text, want.Text) {
				t.Fatalf("outline %+v of %+v", e.AgentEventV1, want)
			}
			n++
		}
		for position := range whole {
			if position >= from {
				n--
			}
		}
		if n != 0 || len(whole) == 0 {
			t.Errorf("mode %v: %d outlines too many, of %d events", mode, n, len(whole))
		}
	}
}
