package normalizers_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/normalizerstest"
)

// projectionRows are the rows of the seeds about what events are turned into, on the
// events of real normalizers. The rules themselves are tested in package envelopes.
var projectionRows = map[string]func(*testing.T){
	"000-22 any event resumes its session":          seedResumeFromAnyEvent,
	"000-26 call and result become one entry":       seedEntriesOfCursor,
	"004-17 a session projects to two messages":     seedMessagesOfClaude,
	"004-18 text is in content and not in metadata": seedContentOfClaude,
	"004-19 citations keep their positions":         seedCitationsOfACP,
}

// eventsOf normalizes the bytes of a file.
func eventsOf(t *testing.T, source envelopes.Source, name string, data []byte) []envelopes.AgentEventV1 {
	t.Helper()
	steps := normalizerstest.Fold(normalizers.Normalize, normalizerstest.Frame(normalizerstest.FileNamed(source, name), data))
	for _, s := range steps {
		if s.Failed() {
			t.Fatalf("line %d: %v", s.Line, s.Err)
		}
	}
	return normalizerstest.Events(steps)
}

// entriesOf projects the events of one session and keeps the last entry of each index.
func entriesOf(t *testing.T, emitted []envelopes.AgentEventV1) []envelopes.NormalizedEntry {
	t.Helper()
	var p envelopes.EntryProjection
	var kept []envelopes.NormalizedEntry
	for i := range emitted {
		n, ok := p.Project(&emitted[i])
		switch {
		case !ok:
		case n.Index == len(kept):
			kept = append(kept, n)
		default:
			kept[n.Index] = n
		}
	}
	return kept
}

// messagesOf projects the events of one session.
func messagesOf(emitted []envelopes.AgentEventV1) []envelopes.ACPMessage {
	var p envelopes.ACPProjection
	var messages []envelopes.ACPMessage
	for i := range emitted {
		messages = append(messages, p.Project(&emitted[i])...)
	}
	return append(messages, p.End()...)
}

// claudeTranscript is a short session of Claude Code.
const claudeTranscript = `{"type":"user","uuid":"u1","sessionId":"sess-1","cwd":"/w","timestamp":"2026-03-09T09:00:00.000Z","message":{"role":"user","content":"look"}}
{"type":"assistant","uuid":"a1","sessionId":"sess-1","cwd":"/w","timestamp":"2026-03-09T09:00:01.000Z","message":{"model":"m","id":"msg_1","role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"text","text":"I look."},{"type":"tool_use","id":"toolu_1","name":"Bash","input":{"command":"ls"}}],"usage":{"input_tokens":1,"output_tokens":1}}}
{"type":"user","uuid":"u2","sessionId":"sess-1","cwd":"/w","timestamp":"2026-03-09T09:00:02.000Z","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"a\nb"}]},"toolUseResult":{"stdout":"a","stderr":"b","interrupted":false}}
{"type":"system","subtype":"turn_duration","uuid":"s1","sessionId":"sess-1","cwd":"/w","timestamp":"2026-03-09T09:00:03.000Z"}
`

// seedResumeFromAnyEvent is row 000-22.
func seedResumeFromAnyEvent(t *testing.T) {
	t.Helper()
	t.Parallel()
	emitted := eventsOf(t, envelopes.ClaudeCode, "sess-1.jsonl", []byte(claudeTranscript))
	if len(emitted) != 6 {
		t.Fatalf("%d events", len(emitted))
	}
	for _, e := range emitted {
		if id, ok := e.ResumeID(); !ok || id != "sess-1" {
			t.Errorf("%s of Claude Code resumes %q, %t", e.EventType, id, ok)
		}
	}
	const thread = `{"type":"thread.started","thread_id":"t-1"}
{"type":"item.completed","item":{"id":"item_0","type":"agent_message","text":"hi"}}
`
	emitted = eventsOf(t, envelopes.Codex, "stdin", []byte(thread))
	if len(emitted) == 0 {
		t.Fatal("no event of Codex")
	}
	for _, e := range emitted {
		if id, ok := e.ResumeID(); ok || id != "" {
			t.Errorf("%s of Codex resumes %q, %t", e.EventType, id, ok)
		}
	}
	// The streams of command and its result are apart again.
	kept := entriesOf(t, eventsOf(t, envelopes.ClaudeCode, "sess-1.jsonl", []byte(claudeTranscript)))
	if want := "```bash\nls\n```\n\n**Exit Code:** 0\n\n**Output:**\n```\na\n```\n\n**Error:**\n```\nb\n```"; kept[3].Content != want {
		t.Errorf("content of a command: %q", kept[3].Content)
	}
}

// seedEntriesOfCursor is row 000-26 on all tools of Cursor.
func seedEntriesOfCursor(t *testing.T) {
	t.Helper()
	t.Parallel()
	var want struct {
		MCPFullName string                  `json:"mcp_full_name"`
		ActionKinds []envelopes.ActionKind  `json:"action_kinds"`
		ExitCodes   []*int64                `json:"exit_codes"`
		Statuses    []envelopes.EntryStatus `json:"statuses"` // but for failed, which is error
		EditDiffs   []string                `json:"edit_diffs"`
	}
	if err := json.Unmarshal(normalizerstest.GoldenFile(t, "metadata", "origin", "cursor", "all-tools.expected.json"), &want); err != nil {
		t.Fatal(err)
	}
	emitted := eventsOf(t, envelopes.Cursor, "all-tools.jsonl", normalizerstest.GoldenFile(t, "metadata", "origin", "cursor", "all-tools.jsonl"))
	kept := entriesOf(t, emitted)
	first := slices.IndexFunc(kept, func(n envelopes.NormalizedEntry) bool { return n.Type.Tool != nil })
	for i, kind := range want.ActionKinds {
		n := kept[first+i]
		action := n.Type.Tool.Action
		if action.Kind != kind {
			t.Errorf("call %d is a %s, want %s", i, action.Kind, kind)
		}
		if status := strings.Replace(string(want.Statuses[i]), "error", "failed", 1); string(n.Type.Tool.Status) != status {
			t.Errorf("call %d: %s, want %s", i, n.Type.Tool.Status, status)
		}
		if p := action.Path; p != nil && *p != "file.ts" {
			t.Errorf("call %d: path %q", i, *p)
		}
		if want.ExitCodes[i] == nil {
			continue
		}
		var result envelopes.CommandResult
		if err := json.Unmarshal(action.Result, &result); err != nil || result.ExitCode != *want.ExitCodes[i] {
			t.Errorf("call %d: exit code %d, want %d: %v", i, result.ExitCode, *want.ExitCodes[i], err)
		}
	}
	for i, diff := range want.EditDiffs {
		if got := kept[first+3+i].Type.Tool.Action.Changes; len(got) != 1 || got[0].UnifiedDiff != diff {
			t.Errorf("edit %d: %+v", i, got)
		}
	}
	if name := kept[first+12].Type.Tool.Action.ToolName; *name != want.MCPFullName {
		t.Errorf("mcp tool is %s", *name)
	}
}

// seedMessagesOfClaude is row 004-17: a run is a message of the user and one of the agent.
func seedMessagesOfClaude(t *testing.T) {
	t.Helper()
	t.Parallel()
	data := normalizerstest.GoldenFile(t, "tool_metadata", "origin", "sdk-stream", "wire-jsonl.jsonl")
	messages := messagesOf(eventsOf(t, envelopes.ClaudeCode, "wire-jsonl.jsonl", data))
	if len(messages) != 2 || messages[0].Role != "user" || messages[1].Role != "agent/claude_code" {
		t.Fatalf("%+v", messages)
	}
	var parts []string
	for i, m := range messages {
		line, err := m.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := envelopes.DecodeACPMessage(line); err != nil {
			t.Errorf("message %d: %v", i, err)
		}
		for _, p := range m.Parts {
			if p.Content != nil {
				parts = append(parts, *p.Content)
			} else if tr := p.Metadata.(*envelopes.ACPTrajectory); tr.Message != nil {
				parts = append(parts, "thought: "+*tr.Message)
			} else if tr.ToolInput == nil || tr.ToolOutput == nil {
				t.Errorf("%s is not call and result", *tr.ToolName)
			} else {
				parts = append(parts, *tr.ToolName)
			}
		}
	}
	want := []string{"Create hello.py and document it", "thought: Plan: write then edit", "I'll create the file.", "Write", "Edit", "Bash", "Created and documented hello.py."}
	if !slices.Equal(parts, want) {
		t.Errorf("parts are %q", parts)
	}
}

// seedContentOfClaude is row 004-18: every text of the assistant in the raw bytes is once
// in content, and in no metadata.
func seedContentOfClaude(t *testing.T) {
	t.Helper()
	t.Parallel()
	data := normalizerstest.GoldenFile(t, "tool_metadata", "origin", "sdk-stream", "wire-jsonl.jsonl")
	messages := messagesOf(eventsOf(t, envelopes.ClaudeCode, "wire-jsonl.jsonl", data))
	for line := range bytes.Lines(data) {
		var r struct {
			Type    string `json:"type"`
			Message struct {
				Content []struct {
					Text string `json:"text"`
				} `json:"content"`
			} `json:"message"`
		}
		if err := json.Unmarshal(line, &r); err != nil || r.Type != "assistant" {
			continue
		}
		for _, b := range r.Message.Content {
			if b.Text == "" {
				continue
			}
			found := 0
			for _, m := range messages {
				for _, p := range m.Parts {
					if p.Content != nil && *p.Content == b.Text {
						found++
					}
					metadata, err := json.Marshal(p.Metadata)
					if err != nil || strings.Contains(string(metadata), b.Text) {
						t.Errorf("%q is in metadata: %v", b.Text, err)
					}
				}
			}
			if found != 1 {
				t.Errorf("%q is in content %d times", b.Text, found)
			}
		}
	}
}

// seedCitationsOfACP is row 004-19: what was cited in a message is cited in the projection
// of its events, where other texts are in front of it.
func seedCitationsOfACP(t *testing.T) {
	t.Helper()
	t.Parallel()
	const history = `{"role":"user","parts":[{"content":"Is it true?"}]}
{"role":"agent/r","parts":[{"content":"Wait 🌍. "}]}
{"role":"agent/r","parts":[{"metadata":{"kind":"trajectory","message":"a thought"}},{"content":"Héllo "},{"content_type":"text/markdown","content":"wörld, yes"},{"metadata":{"kind":"citation","start_index":6,"end_index":11,"url":"https://example.com/a"}},{"metadata":{"kind":"citation","start_index":13,"end_index":16,"url":"https://example.com/b"}}]}
`
	emitted := eventsOf(t, envelopes.ACP, "history.jsonl", []byte(history))
	var cited []string
	for _, m := range messagesOf(emitted) {
		for _, c := range m.ResolveCitations() {
			cited = append(cited, *c.Citation.URL+" "+c.Text)
		}
	}
	if want := []string{"https://example.com/a wörld", "https://example.com/b yes"}; !slices.Equal(cited, want) {
		t.Errorf("cited are %q", cited)
	}
}
