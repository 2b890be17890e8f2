package replay_test

import (
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers/claude/claudetest"
	"tributary/normalizers/codex/codextest"
	"tributary/normalizers/copilot/copilottest"
	"tributary/normalizers/core"
	"tributary/normalizers/normalizerstest"
	"tributary/normalizers/qwen/qwentest"
	"tributary/pipeline/events"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
)

func TestMain(m *testing.M) {
	if code, is := pipelinetest.RunProgram(nil); is {
		os.Exit(code)
	}
	pipelinetest.Configure()
	os.Exit(m.Run())
}

// Each session of the corpus that comes by its log and by telemetry, in one of several orders, states what its log alone
// states, in the live generation and in one that is made anew of the raw stream.
func TestCorpusOfTwoChannelsThroughReplay(t *testing.T) {
	t.Parallel()
	server, top := pipelinetest.NewServer(t), streams.Topology{Generation: "v1", Partitions: 8}
	js := server.Provision(top)
	checks := make(map[events.SessionID]func([]envelopes.AgentEventV1) normalizerstest.Problems)
	for _, agent := range []struct {
		suite    normalizerstest.Suite
		exported func(string, []normalizerstest.Line, normalizerstest.Account) [][]byte
	}{
		{claudetest.Suite, claudetest.ExportedLog},
		{codextest.Suite, normalizerstest.OfEvents(t, codextest.Suite, codextest.Exported)},
		{copilottest.Suite, copilottest.Exported},
		{qwentest.Suite, func(session string, lines []normalizerstest.Line, a normalizerstest.Account) [][]byte {
			return qwentest.Exported(session, lines, a, true)
		}},
	} {
		source := agent.suite.Source
		for n, c := range normalizerstest.CorpusChannels(t, agent.suite, agent.exported) {
			id := events.SessionID{Source: source, Session: c.Session}
			if checks[id] != nil {
				continue // another file has this session, too
			}
			checks[id] = c.Compare(t, agent.suite)
			orders := c.Orders()
			names := slices.Sorted(maps.Keys(orders))
			var list []core.Record
			for _, data := range orders[names[n%len(names)]] {
				list = append(list, core.Record{Source: source, Session: c.Session, Data: data})
			}
			pipelinetest.Publish(t, js, append(list, core.Record{Source: source, Session: c.Session, Origin: core.Origin{End: true}})...)
		}
	}

	worker := pipelinetest.StartWorker(t, pipelinetest.Worker{URL: server.URL(), Generation: "v1", Partitions: top.Partitions, Name: "one"})
	if err := replay.CatchUp(t.Context(), js, top); err != nil {
		t.Fatal(err)
	}
	check(t, js, "v1", checks)
	if _, err := replay.Start(t.Context(), js, replay.Request{Name: "v2"}); err != nil {
		t.Fatal(err)
	}
	top.Generation = "v2"
	again := pipelinetest.StartWorker(t, pipelinetest.Worker{URL: server.URL(), Generation: "v2", Partitions: top.Partitions, Name: "two"})
	if err := replay.CatchUp(t.Context(), js, top); err != nil {
		t.Fatal(err)
	}
	check(t, js, "v2", checks)
	for _, p := range []*pipelinetest.Process{worker, again} {
		if code := p.Stop(); code != 0 {
			t.Errorf("worker: exit code %d\n%s", code, p.Output())
		}
	}
}

// check compares the events of a generation with what the logs of their sessions state.
func check(t *testing.T, js jetstream.JetStream, generation string, checks map[events.SessionID]func([]envelopes.AgentEventV1) normalizerstest.Problems) {
	t.Helper()
	sessions := make(map[events.SessionID][]envelopes.AgentEventV1)
	for e, err := range events.Read(t.Context(), js, generation, events.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		id := events.SessionID{Source: e.Source, Session: e.SessionID}
		sessions[id] = append(sessions[id], e.AgentEventV1)
	}
	for id, compare := range checks {
		for _, difference := range compare(sessions[id]) {
			t.Errorf("%s, session %s of %s: %s", generation, id.Session, id.Source, difference)
		}
	}
	t.Logf("%s: %d sessions", generation, len(checks))
}
