package normalizers_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/normalizers/normalizerstest"
)

// seedClaude are the rows about the streams of Claude's SDK, and those about the metadata
// of all vendors.
var seedClaude = map[string]func(*testing.T){
	"000-1 every event after the first system message has sessionId and model": seedMetadataEverywhere,
	"000-2 events without a system message have no metadata":                   seedNoMetadata,
	"000-3 an unknown member of metadata is null":                              seedNullMetadata,
	"000-4 members of metadata are in camelCase":                               seedCamelCase,
	"000-5 extensions stay in metadata":                                        seedExtensions,
	"000-6 session_id wins over sessionId":                                     seedClaudeIDs,
	"000-20 sessionId is null and threadId is set":                             seedCodexNull,
	"000-24 the text of a result can state that it failed":                     seedResultText,
	"000-25 every block of a message becomes an event":                         seedAllBlocks,
	"000-27 session and model are attributes where they are known":             seedAttributes,
	"002-1 wire lines and SDK objects yield the same events":                   seedEncodings,
	"002-2 the system message has session, model, mode and servers":            seedSystemMessage,
	"002-3 blocks become events in their order":                                seedAssistantBlocks,
	"002-4 an error of the assistant becomes a log":                            seedAssistantError,
	"002-5 messages of a subagent have parentToolUseId":                        seedParentToolUse,
	"002-6 a tool result has role, call id and text":                           seedUserResult,
	"002-21 a result message becomes one session summary":                      seedResultMessage,
	"002-22 structured output stays in metadata and raw":                       seedStructuredOutput,
	"002-23 stream events are emitted only without their message":              seedStreamEvents,
	"002-24 the tokens of a run add up to its result":                          seedRunUsage,
	"002-27 the example yields its eight events in order":                      seedExampleFlow,
}

// seedFile reads a file of the goldens as one of a source.
func seedFile(t *testing.T, source envelopes.Source, path ...string) []envelopes.AgentEventV1 {
	t.Helper()
	return normalizerstest.SeedEvents(t, source, path[len(path)-1], normalizerstest.GoldenFile(t, path...))
}

// seedTypes are the types of events, in order.
func seedTypes(es []envelopes.AgentEventV1) []envelopes.EventType {
	var out []envelopes.EventType
	for _, e := range es {
		out = append(out, e.EventType)
	}
	return out
}

// metadataOf is the metadata of an event as a reader of its JSON sees it; nil where the
// key is absent.
func metadataOf(tb testing.TB, e envelopes.AgentEventV1) map[string]any {
	tb.Helper()
	b, err := normalizerstest.Encode(e)
	if err != nil {
		tb.Fatal(err)
	}
	var v struct {
		Metadata map[string]any `json:"metadata"`
	}
	if err := json.Unmarshal(b, &v); err != nil {
		tb.Fatal(err)
	}
	return v.Metadata
}

func wantEqual(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

const (
	sdkInit   = `{"type":"system","subtype":"init","cwd":"/home/ada/ledger","session_id":"s-1","tools":["Bash"],"mcp_servers":["plain",{"name":"files","status":"connected"}],"model":"claude-opus-4-5","permissionMode":"acceptEdits","claude_code_version":"2.1.12","uuid":"u-init"}`
	sdkPrompt = `{"type":"user","message":{"role":"user","content":"sum it"},"parent_tool_use_id":null,"session_id":"s-1","uuid":"u-prompt"}`
)

// sdkAssistant is a line with one message of the assistant.
func sdkAssistant(id, parent, content, usage string) string {
	return fmt.Sprintf(`{"type":"assistant","message":{"id":"msg_%s","role":"assistant","model":"claude-opus-4-5","content":%s,"usage":%s},"parent_tool_use_id":%s,"session_id":"s-1","uuid":"u-%[1]s"}`,
		id, content, usage, parent)
}

// seedMetadataEverywhere: both keys on every event after the first system message, for
// every vendor that has one.
func seedMetadataEverywhere(t *testing.T) {
	t.Helper()
	check := func(t *testing.T, es []envelopes.AgentEventV1) {
		t.Helper()
		known := false
		for _, e := range es {
			m := metadataOf(t, e)
			known = known || e.EventType == envelopes.SystemMessage
			_, id := m["sessionId"]
			_, model := m["model"]
			if known && (!id || !model) {
				t.Errorf("%s %q: metadata %v", e.EventType, e.EventID, m)
			}
		}
		if !known {
			t.Error("no system message")
		}
	}
	check(t, normalizerstest.SeedEvents(t, envelopes.ClaudeCode, "s.jsonl", normalizerstest.SeedLines(sdkInit, sdkPrompt,
		sdkAssistant("1", "null", `[{"type":"thinking","thinking":"hm"},{"type":"text","text":"yes"},{"type":"tool_use","id":"t1","name":"Bash","input":{"command":"ls"}}]`, `{"input_tokens":1,"output_tokens":1}`),
		`{"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"a"}]},"parent_tool_use_id":null,"session_id":"s-1"}`,
		`{"type":"result","subtype":"error","is_error":true,"num_turns":1,"session_id":"s-1","result":"no"}`)))
	check(t, seedFile(t, envelopes.ClaudeCode, "metadata", "origin", "claude", "stream-json-session-ids.jsonl"))
}

// seedNoMetadata: no system message, no metadata.
func seedNoMetadata(t *testing.T) {
	t.Helper()
	check := func(t *testing.T, es []envelopes.AgentEventV1) {
		t.Helper()
		for _, e := range es {
			if e.Metadata != nil {
				t.Errorf("%s %q: metadata %v", e.EventType, e.EventID, metadataOf(t, e))
			}
		}
		if len(es) == 0 {
			t.Error("no event")
		}
	}
	check(t, normalizerstest.SeedEvents(t, envelopes.ClaudeCode, "s.jsonl", normalizerstest.SeedLines(
		`{"type":"assistant","message":{"content":[{"type":"tool_use","id":"t1","name":"Bash","input":{"command":"ls"}}]}}`,
		`{"type":"result","usage":{"input_tokens":1,"output_tokens":2}}`)))
	check(t, normalizerstest.SeedEvents(t, envelopes.Codex, "s.jsonl", normalizerstest.SeedLines(`{"type":"turn.started"}`,
		`{"type":"item.completed","item":{"id":"item_1","type":"agent_message","text":"hi"}}`)))
	check(t, normalizerstest.SeedEvents(t, envelopes.Cursor, "s.jsonl", normalizerstest.SeedLines("a plain line",
		`{"type":"user","message":{"role":"user","content":[{"type":"text","text":"Hello"}]}}`)))
	for _, name := range []string{"simple-bash", "file-operations", "complex-workflow", "error-case"} {
		check(t, seedFile(t, envelopes.ClaudeCode, "metadata", "origin", "claude", "sudocode-"+name+".jsonl"))
	}
	check(t, seedFile(t, envelopes.Codex, "metadata", "origin", "codex", "no-thread-started.jsonl"))
	check(t, seedFile(t, envelopes.Cursor, "metadata", "origin", "cursor", "non-json-lines.txt"))
}

// seedNullMetadata: where only one of the two is known the other is null, not left out.
func seedNullMetadata(t *testing.T) {
	t.Helper()
	es := normalizerstest.SeedEvents(t, envelopes.ClaudeCode, "s.jsonl", normalizerstest.SeedLines(
		`{"type":"assistant","message":{"role":"assistant","model":"x","content":[{"type":"text","text":"hi"}]},"parent_tool_use_id":null}`))
	wantEqual(t, "metadata", metadataOf(t, es[0]), map[string]any{"sessionId": nil, "model": "x"})
	b, err := normalizerstest.Encode(es[0])
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(b, []byte(`"sessionId":null`)) {
		t.Errorf("no null in %s", b)
	}
}

// seedCamelCase: the standard fields have one spelling.
func seedCamelCase(t *testing.T) {
	t.Helper()
	es := normalizerstest.SeedEvents(t, envelopes.ClaudeCode, "s.jsonl", normalizerstest.SeedLines(sdkInit, sdkPrompt))
	es = append(es, normalizerstest.SeedEvents(t, envelopes.Codex, "c.jsonl", normalizerstest.SeedLines(`{"type":"thread.started","thread_id":"t-1"}`))...)
	es = append(es, normalizerstest.SeedEvents(t, envelopes.Cursor, "c.jsonl", normalizerstest.SeedLines(`{"type":"system","subtype":"init","session_id":"s-1","model":"m","permission_mode":"force"}`))...)
	for _, e := range es {
		m := metadataOf(t, e)
		for name := range m {
			if strings.Contains(name, "_") {
				t.Errorf("%s: metadata has %q", e.Source, name)
			}
		}
		if _, ok := m["sessionId"]; !ok {
			t.Errorf("%s: no sessionId in %v", e.Source, m)
		}
	}
}

// seedExtensions: what a vendor adds rides on the same object, and survives a round trip.
func seedExtensions(t *testing.T) {
	t.Helper()
	es := normalizerstest.SeedEvents(t, envelopes.ClaudeCode, "s.jsonl", normalizerstest.SeedLines(sdkInit, sdkPrompt))
	servers := []any{map[string]any{"name": "plain"}, map[string]any{"name": "files", "status": "connected"}}
	for _, e := range es {
		m := metadataOf(t, e)
		wantEqual(t, "mcpServers", m["mcpServers"], any(servers))
		wantEqual(t, "permissionMode", m["permissionMode"], any("acceptEdits"))
	}
	for _, spelling := range []string{"permissionMode", "permission_mode"} {
		es := normalizerstest.SeedEvents(t, envelopes.Cursor, "c.jsonl", normalizerstest.SeedLines(`{"type":"system","subtype":"init","session_id":"s-1","model":"m","`+spelling+`":"force"}`))
		wantEqual(t, spelling, metadataOf(t, es[0])["permissionMode"], any("force"))
	}
	// A key that nobody knows yet comes back as it went.
	e := es[0]
	b, err := normalizerstest.Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	b = bytes.Replace(b, []byte(`"mcpServers"`), []byte(`"ofTomorrow":{"a":[1,null]},"mcpServers"`), 1)
	back, err := envelopes.DecodeAgentEvent(b)
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "unknown key", metadataOf(t, back)["ofTomorrow"], any(map[string]any{"a": []any{1.0, nil}}))

	for name, want := range map[string]string{"official-docs-sequence": "default", "snake-case-coalescing": "force"} {
		for _, e := range seedFile(t, envelopes.Cursor, "metadata", "origin", "cursor", name+".jsonl") {
			wantEqual(t, name, metadataOf(t, e)["permissionMode"], any(want))
		}
	}
}

// seedClaudeIDs: session_id wins over sessionId.
func seedClaudeIDs(t *testing.T) {
	t.Helper()
	check := func(t *testing.T, es []envelopes.AgentEventV1, want string) {
		t.Helper()
		for _, e := range es {
			if got := metadataOf(t, e)["sessionId"]; got != want || e.SessionID != want {
				t.Errorf("%q: session %q, metadata %v", e.EventID, e.SessionID, got)
			}
		}
	}
	check(t, normalizerstest.SeedEvents(t, envelopes.ClaudeCode, "s.jsonl", normalizerstest.SeedLines(
		`{"type":"system","subtype":"init","session_id":"snake","sessionId":"camel","model":"m","tools":[]}`,
		`{"type":"user","message":{"role":"user","content":"x"}}`)), "snake")
	check(t, seedFile(t, envelopes.ClaudeCode, "metadata", "origin", "claude", "stream-json-session-ids.jsonl"), "snake-case-id")
}

// seedCodexNull: Codex has no id that resumes: the thread's is beside it.
func seedCodexNull(t *testing.T) {
	t.Helper()
	es := normalizerstest.SeedEvents(t, envelopes.Codex, "s.jsonl", normalizerstest.SeedLines(
		`{"timestamp":"2026-03-01T09:00:00.000Z","type":"session_meta","payload":{"id":"019c-thread","timestamp":"2026-03-01T09:00:00.000Z","cwd":"/x"}}`,
		`{"timestamp":"2026-03-01T09:00:01.000Z","type":"turn_context","payload":{"cwd":"/x","model":"gpt-5-codex"}}`,
		`{"timestamp":"2026-03-01T09:00:02.000Z","type":"response_item","payload":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"hi"}]}}`))
	last := es[len(es)-1]
	m := metadataOf(t, last)
	if id, ok := m["sessionId"]; !ok || id != nil || m["model"] != "gpt-5-codex" || m["threadId"] != "019c-thread" || last.SessionID != "019c-thread" {
		t.Errorf("session %q, metadata %v", last.SessionID, m)
	}
	conversation := seedFile(t, envelopes.Codex, "metadata", "origin", "codex", "exec-json-conversation.jsonl")
	wantEqual(t, "conversation", seedTypes(conversation), []envelopes.EventType{envelopes.Meta, envelopes.Reasoning, envelopes.AssistantMessage, envelopes.Meta})
	wantEqual(t, "text", normalizerstest.Value(conversation[2].Text), "4")
	f := normalizerstest.FiguresOf(conversation[3])
	wantEqual(t, "tokens", []int64{f.Input, f.Cached, f.Output, f.Total}, []int64{7698, 3072, 7, 7705})
	edge := seedFile(t, envelopes.Codex, "metadata", "origin", "codex", "exec-json-edge.jsonl")
	wantEqual(t, "edge", seedTypes(edge), []envelopes.EventType{envelopes.Meta, envelopes.AssistantMessage, envelopes.Log, envelopes.Meta})
	if edge[1].Text != nil || normalizerstest.Value(edge[2].Text) != "This is plain text output" {
		t.Errorf("texts %v, %q", edge[1].Text, normalizerstest.Value(edge[2].Text))
	}
	for _, e := range slices.Concat(conversation, edge) {
		m := metadataOf(t, e)
		if id, ok := m["sessionId"]; !ok || id != nil || m["threadId"] != e.SessionID {
			t.Errorf("%q: %v", e.EventID, m)
		}
	}
}

// seedResultText: the text of a result states that it failed. The row wants an unknown
// status where the call is unknown; there is data and no sign of failure, which is a
// success (README.md, Tools).
func seedResultText(t *testing.T) {
	t.Helper()
	result := func(text string) envelopes.AgentEventV1 {
		quoted, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		return normalizerstest.SeedEvents(t, envelopes.ClaudeCode, "s.jsonl", normalizerstest.SeedLines(
			`{"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":`+string(quoted)+`}]},"parent_tool_use_id":null}`))[0]
	}
	for text, want := range map[string]envelopes.ToolStatus{
		`{"exitCode":1}`:                "error",
		`{"exitCode":0,"out":"x"}`:      "success",
		`{"error":"denied"}`:            "error",
		`{"error":null,"data":1}`:       "success",
		`{"isError":true}`:              "error",
		`{"isError":false}`:             "success",
		`the key "error" in a sentence`: "success",
		`[{"error":"x"}]`:               "success",
		"":                              "success",
	} {
		e := result(text)
		if *e.ToolStatus != want || e.ToolExitCode != nil || e.ToolName != nil {
			t.Errorf("%s: status %s, exit code %v, tool %v", text, *e.ToolStatus, e.ToolExitCode, e.ToolName)
		}
	}
	got := make(map[string]envelopes.ToolStatus)
	for _, e := range seedFile(t, envelopes.ClaudeCode, "metadata", "origin", "claude", "stream-json-session-ids.jsonl") {
		if e.EventType == envelopes.ToolResult {
			got[*e.ToolCallID] = *e.ToolStatus
			if e.ToolExitCode != nil {
				t.Errorf("%s: exit code %d, from the body", *e.ToolCallID, *e.ToolExitCode)
			}
		}
	}
	wantEqual(t, "statuses", got, map[string]envelopes.ToolStatus{"tool-1": "error", "tool-2": "error", "tool-3": "success", "unknown-tool-id": "success"})
	for _, e := range seedFile(t, envelopes.ClaudeCode, "metadata", "origin", "claude", "sudocode-error-case.jsonl") {
		if e.EventType == envelopes.ToolResult && (*e.ToolStatus != "error" || e.ToolExitCode != nil) {
			t.Errorf("%s: %s, %v", *e.ToolCallID, *e.ToolStatus, e.ToolExitCode)
		}
	}
}

// seedAllBlocks: every block is an event.
func seedAllBlocks(t *testing.T) {
	t.Helper()
	es := normalizerstest.SeedEvents(t, envelopes.ClaudeCode, "s.jsonl", normalizerstest.SeedLines(sdkInit,
		sdkAssistant("1", "null", `[{"type":"tool_use","id":"a","name":"Read","input":{}},{"type":"tool_use","id":"b","name":"Read","input":{}}]`, "null"),
		`{"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"1"},{"type":"tool_result","tool_use_id":"b","content":"2"}]},"session_id":"s-1"}`))
	var ids []string
	for _, e := range es[1:] {
		ids = append(ids, e.EventID)
	}
	wantEqual(t, "ids", ids, []string{"a", "b", "a#result", "b#result"})
	golden := seedFile(t, envelopes.ClaudeCode, "metadata", "origin", "claude", "stream-json-session-ids.jsonl")
	wantEqual(t, "types", seedTypes(golden), []envelopes.EventType{
		"system_message", "user_message", "assistant_message", "assistant_message", "tool_call", "tool_result",
		"tool_call", "tool_call", "tool_result", "tool_result", "tool_result", "session_summary", "log",
	})
	var failed struct{ Error struct{ Code string } }
	if b, err := normalizerstest.Encode(golden[12]); err != nil || json.Unmarshal(b, &struct {
		Metadata any `json:"metadata"`
	}{&failed}) != nil || failed.Error.Code != "TASK_ERROR" {
		t.Errorf("error %+v, %v", failed, err)
	}
}

// seedAttributes: the attributes of the CloudEvent are there when there is something to
// say.
func seedAttributes(t *testing.T) {
	t.Helper()
	es := normalizerstest.SeedEvents(t, envelopes.ClaudeCode, "s.jsonl", normalizerstest.SeedLines(sdkPrompt, sdkAssistant("1", "null", `[{"type":"text","text":"hi"}]`, "null")))
	for _, e := range es {
		ce, err := e.CloudEvent(envelopes.Provenance{Generation: "1", Partition: -1})
		if err != nil {
			t.Fatal(err)
		}
		ext := ce.Extensions()
		if got := ext["sessionid"]; got != "s-1" {
			t.Errorf("%s: sessionid %v", e.EventType, got)
		}
		got, ok := ext["model"]
		if ok != (e.Model != nil) || ok && got != *e.Model {
			t.Errorf("%s: attribute model %v, the event's %v", e.EventType, got, e.Model)
		}
	}
}

// seedEncodings: lines and objects of the SDK yield the same events.
func seedEncodings(t *testing.T) {
	t.Helper()
	type fact struct {
		Type         envelopes.EventType
		Text, Name   string
		Call, Status string
	}
	facts := func(es []envelopes.AgentEventV1) []fact {
		var out []fact
		for _, e := range es {
			out = append(out, fact{e.EventType, normalizerstest.Value(e.Text), normalizerstest.Value(e.ToolName), normalizerstest.Value(e.ToolCallID), string(normalizerstest.Value(e.ToolStatus))})
		}
		return out
	}
	line := `{"type":"assistant","message":{"role":"assistant","model":"m","content":[{"type":"text","text":"hi"},{"type":"tool_use","id":"t","name":"Bash","input":{"command":"ls"}}]},"parent_tool_use_id":null,"session_id":"s-1"}`
	object := `{"content":[{"type":"text","text":"hi"},{"type":"tool_use","id":"t","name":"Bash","input":{"command":"ls"}}],"model":"m","parent_tool_use_id":null,"error":null}`
	returned := `{"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"x"}]},"session_id":"s-1","tool_use_result":"Error: Exit code 3\nx"}`
	bare := `{"content":[{"tool_use_id":"t","content":"x","is_error":null}],"uuid":"u","tool_use_result":"Error: Exit code 3\nx"}`
	lines := normalizerstest.SeedEvents(t, envelopes.ClaudeCode, "s.jsonl", normalizerstest.SeedLines(line, returned))
	wantEqual(t, "own data", facts(normalizerstest.SeedEvents(t, envelopes.ClaudeCode, "s.jsonl", normalizerstest.SeedLines(object, bare))), facts(lines))

	// The array form is cut into the same records, also where it comes as one.
	array := []byte("[" + sdkInit + ",\n " + line + ", " + returned + "]\n")
	split := normalizerstest.Frame(normalizerstest.FileNamed("", "s.json"), array)
	if len(split) != 4 || split[0].Record.Source != envelopes.ClaudeCode {
		t.Fatalf("%d records, the first of %q", len(split), split[0].Record.Source)
	}
	stream := facts(normalizerstest.SeedEvents(t, envelopes.ClaudeCode, "s.json", normalizerstest.SeedLines(sdkInit, line, returned)))
	wantEqual(t, "array", facts(normalizerstest.Events(normalizerstest.Fold(normalizers.Normalize, split))), stream)
	whole := []normalizers.Framed{{Line: 1, Record: core.Record{Source: envelopes.ClaudeCode, Session: "s-1", Sequence: 1, Data: bytes.TrimSpace(array)}}}
	wantEqual(t, "array as one record", facts(normalizerstest.Events(normalizerstest.Fold(normalizers.Normalize, whole))), stream)

	wire := seedFile(t, envelopes.ClaudeCode, "tool_metadata", "origin", "sdk-stream", "wire-jsonl.jsonl")
	dump := seedFile(t, envelopes.ClaudeCode, "tool_metadata", "origin", "sdk-stream", "sdk-object-shape.jsonl")
	wantEqual(t, "goldens", facts(dump), facts(wire))
}
