package kimi_test

import (
	"testing"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/chat"
	"tributary/normalizers/normalizerstest"
)

// The path of a journal shows its session and its subagent; its records do not.
func TestPathShowsTheSession(t *testing.T) {
	t.Parallel()
	const (
		log = `{"type":"context.append_loop_event","event":{"type":"content.part","uuid":"p1","part":{"type":"text","text":"x"}},"time":1773071402000}`
		id  = "8b1f6c2a-57d3-4e09-9a46-c1e2d7405f38"
	)
	for path, want := range map[[2]string][2]string{
		{"/h/.kimi-code/sessions/wd_x/session_" + id + "/agents/main", "wire.jsonl"}:    {"session_" + id, ""},
		{"/h/.kimi-code/sessions/wd_x/session_" + id + "/agents/agent-0", "wire.jsonl"}: {"session_" + id + ".agent-0", "agent-0"},
		{"/h/.kimi/sessions/md5/" + id, "wire.jsonl"}:                                   {id, ""},
		{"/h/.kimi/sessions/md5/" + id + "/subagents/a1b2", "wire.jsonl"}:               {id + ".a1b2", "a1b2"},
		{"/tmp/a.b", "saved.v2.jsonl"}:                                                  {"saved.v2", ""},
		{"", "wire.jsonl"}:                                                              {"wire", ""},
	} {
		for _, source := range []envelopes.Source{envelopes.Kimi, ""} {
			framed := normalizerstest.Frame(normalizers.File{Source: source, Folder: path[0], Name: path[1]}, []byte(log))
			e := normalizerstest.Events(normalizerstest.Fold(normalizers.Normalize, framed))[0]
			if got := [2]string{e.SessionID, normalizerstest.Value(e.AgentID)}; got != want {
				t.Errorf("%v is of %v, want %v", path, got, want)
			}
		}
	}
}

// A subagent of kimi-cli has a journal of its own, in which its parent begins the turns.
func TestTurnInTheJournalOfASubagentIsItsParents(t *testing.T) {
	t.Parallel()
	const (
		log = `{"timestamp":1773073000.1,"message":{"type":"TurnBegin","payload":{"user_input":"Count the files."}}}`
		id  = "8b1f6c2a-57d3-4e09-9a46-c1e2d7405f38"
	)
	for folder, want := range map[string]envelopes.Origin{
		"/h/.kimi/sessions/md5/" + id:                     "",
		"/h/.kimi/sessions/md5/" + id + "/subagents/a1b2": envelopes.OriginAgent,
	} {
		framed := normalizerstest.Frame(normalizers.File{Source: envelopes.Kimi, Folder: folder, Name: "wire.jsonl"}, []byte(log))
		e := normalizerstest.Events(normalizerstest.Fold(normalizers.Normalize, framed))[0]
		if e.EventType != envelopes.UserMessage || e.Origin != want {
			t.Errorf("%s: the turn is a %s of origin %q, want %q", folder, e.EventType, e.Origin, want)
		}
	}
}

// A session that an earlier version stored expects the message of an input without an id.
func TestInputOfAnEarlierVersionIsOnePrompt(t *testing.T) {
	t.Parallel()
	const log = `{"type":"metadata","protocol_version":"1.5","created_at":1790000000000}
{"type":"turn.prompt","input":[{"type":"text","text":"Only May."}],"origin":{"kind":"user"},"promptId":"p1","time":1790000001000}
{"type":"turn.prompt","input":[{"type":"text","text":"Only June."}],"origin":{"kind":"user"},"promptId":"p2","time":1790000002000}
{"type":"context.append_message","message":{"role":"user","content":[{"type":"text","text":"Only June."}],"id":"p2"},"time":1790000003000}
{"type":"context.append_message","message":{"role":"user","content":[{"type":"text","text":"Only May."}],"id":"p1"},"time":1790000004000}
`
	framed := normalizerstest.Frame(normalizers.File{Source: envelopes.Kimi, Name: "wire.jsonl"}, []byte(log))
	session := normalizers.NewSession(envelopes.Kimi, framed[0].Record.Session)
	prompts := 0
	for i, f := range framed {
		result, err := normalizers.Normalize(session, f.Record)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range result.Events {
			if e.Event.EventType == envelopes.UserMessage {
				prompts++
			}
		}
		if i == 1 {
			delete(session.State.(*chat.State).Values, "input ids")
		}
	}
	if prompts != 2 {
		t.Errorf("%d prompts, want 2", prompts)
	}
}
