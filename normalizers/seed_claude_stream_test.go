package normalizers_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"tributary/envelopes"
	"tributary/normalizers/normalizerstest"
)

// seedSystemMessage: the fields of the first message of a session are kept.
func seedSystemMessage(t *testing.T) {
	t.Helper()
	check := func(t *testing.T, e envelopes.AgentEventV1, want map[string]any, root string) {
		t.Helper()
		if e.EventType != envelopes.SystemMessage || normalizerstest.Value(e.Role) != envelopes.RoleSystem || normalizerstest.Value(e.ProjectRoot) != root || e.ProjectHash != normalizerstest.Sha256Hex(root) {
			t.Errorf("%s of %s in %q", e.EventType, normalizerstest.Value(e.Role), normalizerstest.Value(e.ProjectRoot))
		}
		wantEqual(t, "metadata", metadataOf(t, e), want)
	}
	check(t, normalizerstest.SeedEvents(t, envelopes.ClaudeCode, "s.jsonl", normalizerstest.SeedLines(sdkInit))[0], map[string]any{
		"sessionId": "s-1", "model": "claude-opus-4-5", "permissionMode": "acceptEdits", "claudeCodeVersion": "2.1.12",
		"mcpServers": []any{map[string]any{"name": "plain"}, map[string]any{"name": "files", "status": "connected"}},
	}, "/home/ada/ledger")
	for _, name := range []string{"wire-jsonl", "sdk-object-shape"} {
		check(t, seedFile(t, envelopes.ClaudeCode, "tool_metadata", "origin", "sdk-stream", name+".jsonl")[0], map[string]any{
			"sessionId": "5b5f2f0e-2f0a-4c86-8f5f-3d9d3a1c0001", "model": "claude-opus-4-5-20251101", "permissionMode": "acceptEdits",
			"claudeCodeVersion": "2.1.12", "mcpServers": []any{map[string]any{"name": "filesystem", "status": "connected"}},
		}, "/tmp/project")
	}
}

// seedAssistantBlocks: one event per block, in their order.
func seedAssistantBlocks(t *testing.T) {
	t.Helper()
	es := normalizerstest.SeedEvents(t, envelopes.ClaudeCode, "s.jsonl", normalizerstest.SeedLines(sdkInit, sdkAssistant("1", "null",
		`[{"type":"thinking","thinking":"hm"},{"type":"text","text":"first"},{"type":"tool_use","id":"t1","name":"Bash","input":{"command":"ls"}},{"type":"tool_use","id":"t2","name":"Read","input":{"file_path":"/x"}}]`, "null")))
	wantEqual(t, "types", seedTypes(es[1:]), []envelopes.EventType{"reasoning", "assistant_message", "tool_call", "tool_call"})
	wantEqual(t, "texts", []string{normalizerstest.Value(es[1].Text), normalizerstest.Value(es[2].Text), normalizerstest.Value(es[3].Text)}, []string{"hm", "first", `{"command":"ls"}`})
}

// seedAssistantError: the error of a message is a log with its text.
func seedAssistantError(t *testing.T) {
	t.Helper()
	for _, data := range []string{
		`{"type":"assistant","message":{"role":"assistant","model":"<synthetic>","content":[{"type":"text","text":"Invalid API key"}]},"parent_tool_use_id":null,"error":"authentication_failed","session_id":"s-1","uuid":"u"}`,
		`{"content":[{"type":"text","text":"Invalid API key"}],"model":"<synthetic>","parent_tool_use_id":null,"error":"authentication_failed"}`,
	} {
		es := normalizerstest.SeedEvents(t, envelopes.ClaudeCode, "s.jsonl", normalizerstest.SeedLines(sdkInit, data))
		if len(es) != 2 || es[1].EventType != envelopes.Log || normalizerstest.Value(es[1].Role) != envelopes.RoleSystem || normalizerstest.Value(es[1].Text) != "Invalid API key" {
			t.Fatalf("%d events: %v", len(es), seedTypes(es))
		}
		wantEqual(t, "error", metadataOf(t, es[1])["error"], any(map[string]any{"code": "authentication_failed", "message": "Invalid API key"}))
	}
}

// seedParentToolUse: the messages of a subagent name the call that started it.
func seedParentToolUse(t *testing.T) {
	t.Helper()
	es := normalizerstest.SeedEvents(t, envelopes.ClaudeCode, "s.jsonl", normalizerstest.SeedLines(sdkInit, sdkPrompt,
		`{"type":"user","message":{"role":"user","content":[{"type":"text","text":"look around"}]},"parent_tool_use_id":"toolu_task","session_id":"s-1","uuid":"u-sub"}`,
		sdkAssistant("2", `"toolu_task"`, `[{"type":"text","text":"found"}]`, "null"),
		sdkAssistant("3", "null", `[{"type":"text","text":"done"}]`, "null")))
	for i, e := range es {
		inside := i == 2 || i == 3
		if got := metadataOf(t, e)["parentToolUseId"]; inside != (got == "toolu_task") || inside != e.IsInternal || inside != (normalizerstest.Value(e.AgentID) == "toolu_task") {
			t.Errorf("%q: parentToolUseId %v, internal %t, agent %q", e.EventID, got, e.IsInternal, normalizerstest.Value(e.AgentID))
		}
		if inside && !bytes.Contains(e.Raw, []byte(`"parent_tool_use_id":"toolu_task"`)) {
			t.Errorf("%q: raw %s", e.EventID, e.Raw)
		}
	}
	if es[2].EventType != envelopes.UserMessage || es[2].Origin != envelopes.OriginAgent || normalizerstest.Value(es[3].ParentEventID) != "u-sub" || normalizerstest.Value(es[4].ParentEventID) != "u-prompt" {
		t.Errorf("prompt %s of %q, parents %q and %q", es[2].EventType, es[2].Origin, normalizerstest.Value(es[3].ParentEventID), normalizerstest.Value(es[4].ParentEventID))
	}
}

// seedUserResult: a result is of role tool and carries the text of its block.
func seedUserResult(t *testing.T) {
	t.Helper()
	for _, name := range []string{"", "wire-jsonl.jsonl", "sdk-object-shape.jsonl"} {
		data := normalizerstest.SeedLines(sdkInit, sdkAssistant("1", "null", `[{"type":"tool_use","id":"toolu_01W","name":"Write","input":{}}]`, "null"),
			`{"content":[{"tool_use_id":"toolu_01W","content":"File created successfully at: /tmp/project/hello.py","is_error":null}],"uuid":"u"}`)
		var es []envelopes.AgentEventV1
		if name == "" {
			es = normalizerstest.SeedEvents(t, envelopes.ClaudeCode, "s.jsonl", data)
		} else {
			es = seedFile(t, envelopes.ClaudeCode, "tool_metadata", "origin", "sdk-stream", name)
		}
		i := slices.IndexFunc(es, func(e envelopes.AgentEventV1) bool { return e.EventType == envelopes.ToolResult })
		e := es[i]
		if normalizerstest.Value(e.Role) != envelopes.RoleTool || normalizerstest.Value(e.ToolCallID) != "toolu_01W" || normalizerstest.Value(e.ToolName) != "Write" ||
			normalizerstest.Value(e.Text) != "File created successfully at: /tmp/project/hello.py" {
			t.Errorf("%s: %s %q %q %q", name, normalizerstest.Value(e.Role), normalizerstest.Value(e.ToolCallID), normalizerstest.Value(e.ToolName), normalizerstest.Value(e.Text))
		}
	}
}

// seedResultMessage: one summary with the figures of the run; the event's own are what
// they add. A failure is a log besides.
func seedResultMessage(t *testing.T) {
	t.Helper()
	run := []string{
		sdkInit, sdkPrompt, sdkAssistant("1", "null", `[{"type":"text","text":"ten"}]`, `{"input_tokens":5,"cache_read_input_tokens":100,"output_tokens":1}`),
		sdkAssistant("2", `"toolu_task"`, `[{"type":"text","text":"inside"}]`, `{"input_tokens":50,"output_tokens":7}`),
		`{"type":"result","subtype":"success","is_error":false,"duration_ms":70,"duration_api_ms":60,"num_turns":2,"total_cost_usd":0.5,"result":"ten","session_id":"s-1","uuid":"u-r","usage":{"input_tokens":6,"cache_read_input_tokens":40,"cache_creation_input_tokens":9,"output_tokens":30}}`,
	}
	es := normalizerstest.SeedEvents(t, envelopes.ClaudeCode, "s.jsonl", normalizerstest.SeedLines(run...))
	last := es[len(es)-1]
	if last.EventType != envelopes.SessionSummary || normalizerstest.Value(last.Role) != envelopes.RoleSystem || last.Text != nil {
		t.Errorf("%s of %s: %q", last.EventType, normalizerstest.Value(last.Role), normalizerstest.Value(last.Text))
	}
	wantEqual(t, "increment", *last.Usage, envelopes.Usage{Input: 1, CacheWrite: 9, Output: 29})
	m := metadataOf(t, last)
	for name, want := range map[string]any{"durationMs": 70.0, "durationApiMs": 60.0, "numTurns": 2.0, "totalCostUsd": 0.5, "subtype": "success"} {
		wantEqual(t, name, m[name], want)
	}
	wantEqual(t, "usage", m["usage"], any(map[string]any{"input_tokens": 6.0, "cache_read_input_tokens": 40.0, "cache_creation_input_tokens": 9.0, "output_tokens": 30.0}))

	// The text of a run that has only a result is that of the result; the next run starts from
	// zero.
	again := `{"type":"result","subtype":"success","is_error":false,"num_turns":1,"result":"only here","session_id":"s-1","uuid":"u-r2","usage":{"input_tokens":3,"output_tokens":4}}`
	es = normalizerstest.SeedEvents(t, envelopes.ClaudeCode, "s.jsonl", normalizerstest.SeedLines(append(run, again)...))
	last = es[len(es)-1]
	wantEqual(t, "second run", *last.Usage, envelopes.Usage{Input: 3, Output: 4})
	wantEqual(t, "its text", normalizerstest.Value(last.Text), "only here")

	// The subtype is success even when no user was logged in.
	es = normalizerstest.SeedEvents(t, envelopes.ClaudeCode, "s.jsonl", normalizerstest.SeedLines(sdkInit,
		`{"type":"result","subtype":"success","is_error":true,"num_turns":1,"result":"Please run /login","session_id":"s-1"}`,
		`{"type":"result","subtype":"error_max_turns","is_error":true,"num_turns":9,"errors":["too many turns"],"session_id":"s-1"}`))
	wantEqual(t, "failures", seedTypes(es[1:]), []envelopes.EventType{"session_summary", "log", "session_summary", "log"})
	wantEqual(t, "first", metadataOf(t, es[2])["error"], any(map[string]any{"code": "TASK_ERROR", "message": "Please run /login"}))
	wantEqual(t, "second", metadataOf(t, es[4])["error"], any(map[string]any{"code": "error_max_turns", "message": "too many turns"}))

	for name, want := range map[string]envelopes.Usage{
		"wire-jsonl":       {Output: 4, CacheRead: 1400, CacheWrite: 100},
		"sdk-object-shape": {Input: 18, Output: 34, CacheRead: 2000, CacheWrite: 100},
	} {
		es := seedFile(t, envelopes.ClaudeCode, "tool_metadata", "origin", "sdk-stream", name+".jsonl")
		wantEqual(t, name, *es[len(es)-1].Usage, want)
	}
}

// seedStructuredOutput: what a run was asked for in a form of its own is kept.
func seedStructuredOutput(t *testing.T) {
	t.Helper()
	es := normalizerstest.SeedEvents(t, envelopes.ClaudeCode, "s.jsonl", normalizerstest.SeedLines(sdkInit,
		`{"type":"result","subtype":"success","is_error":false,"num_turns":1,"session_id":"s-1","result":"","structured_output":{"total":10,"of":["a"]}}`))
	e := es[1]
	wantEqual(t, "metadata", metadataOf(t, e)["structuredOutput"], any(map[string]any{"total": 10.0, "of": []any{"a"}}))
	if !bytes.Contains(e.Raw, []byte(`"structured_output":{"total":10,"of":["a"]}`)) {
		t.Errorf("raw %s", e.Raw)
	}
}

// sdkDeltas are the events of the API for a message with the text Hello and a call of ls.
func sdkDeltas(uuid string) []string {
	var out []string
	for _, event := range []string{
		`{"type":"message_start","message":{"id":"msg_7","role":"assistant","model":"claude-opus-4-5","content":[],"usage":{"input_tokens":3,"output_tokens":1}}}`,
		`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hel"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"lo"}}`,
		`{"type":"content_block_stop","index":0}`,
		`{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"toolu_9","name":"Bash","input":{}}}`,
		`{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"command\":"}}`,
		`{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"\"ls\"}"}}`,
		`{"type":"content_block_stop","index":1}`,
		`{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":20}}`,
		`{"type":"message_stop"}`,
	} {
		out = append(out, fmt.Sprintf(`{"type":"stream_event","uuid":%q,"session_id":"s-1","event":%s,"parent_tool_use_id":null}`, uuid, event))
	}
	return out
}

// seedStreamEvents: the deltas of a message emit nothing if the message itself comes, before or
// after their end, and all of it if it does not.
func seedStreamEvents(t *testing.T) {
	t.Helper()
	check := func(t *testing.T, es []envelopes.AgentEventV1) {
		t.Helper()
		wantEqual(t, "types", seedTypes(es), []envelopes.EventType{"assistant_message", "tool_call"})
		wantEqual(t, "text", normalizerstest.Value(es[0].Text), "Hello")
		wantEqual(t, "call", []string{normalizerstest.Value(es[1].ToolName), normalizerstest.Value(es[1].ToolCallID), normalizerstest.Value(es[1].Text)}, []string{"Bash", "toolu_9", `{"command":"ls"}`})
		f := normalizerstest.FiguresOf(es[0])
		f.Add(normalizerstest.FiguresOf(es[1]))
		wantEqual(t, "tokens", []int64{f.Input, f.Output}, []int64{3, 20})
	}
	parts := sdkDeltas("u-p")
	check(t, normalizerstest.SeedEvents(t, envelopes.ClaudeCode, "s.jsonl", normalizerstest.SeedLines(parts...)))
	check(t, seedFile(t, envelopes.ClaudeCode, "tool_metadata", "origin", "sdk-stream", "stream-events.jsonl"))

	message := func(id, block string) string {
		return `{"type":"assistant","message":{"id":"msg_7","role":"assistant","model":"claude-opus-4-5","content":[` + block + `],"usage":{"input_tokens":3,"output_tokens":20}},"parent_tool_use_id":null,"session_id":"s-1","uuid":"` + id + `"}`
	}
	text := message("u-a", `{"type":"text","text":"Hello"}`)
	call := message("u-b", `{"type":"tool_use","id":"toolu_9","name":"Bash","input":{"command":"ls"}}`)
	t.Run("a message within its deltas adds nothing", func(t *testing.T) {
		check(t, normalizerstest.SeedEvents(t, envelopes.ClaudeCode, "s.jsonl", normalizerstest.SeedLines(slices.Concat(parts[:4], []string{text}, parts[4:8], []string{call}, parts[8:])...)))
	})
	t.Run("a message after its deltas adds nothing", func(t *testing.T) {
		check(t, normalizerstest.SeedEvents(t, envelopes.ClaudeCode, "s.jsonl", normalizerstest.SeedLines(append(parts, text, call)...)))
	})
	t.Run("a thought comes from its deltas where the message has only its signature", func(t *testing.T) {
		thought := []string{
			`{"type":"stream_event","uuid":"u","session_id":"s-1","event":{"type":"message_start","message":{"id":"msg_8","content":[]}}}`,
			`{"type":"stream_event","uuid":"u","session_id":"s-1","event":{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}}`,
			`{"type":"stream_event","uuid":"u","session_id":"s-1","event":{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"two and two"}}}`,
			`{"type":"assistant","message":{"id":"msg_8","role":"assistant","content":[{"type":"thinking","thinking":"","signature":"c2ln"}]},"parent_tool_use_id":null,"session_id":"s-1","uuid":"u-t"}`,
		}
		es := normalizerstest.SeedEvents(t, envelopes.ClaudeCode, "s.jsonl", normalizerstest.SeedLines(thought...))
		if len(es) != 1 || es[0].EventType != envelopes.Reasoning || normalizerstest.Value(es[0].Text) != "two and two" {
			t.Errorf("%v: %q", seedTypes(es), normalizerstest.Value(es[0].Text))
		}
	})
	t.Run("a message that is cut off is emitted at the result", func(t *testing.T) {
		es := normalizerstest.SeedEvents(t, envelopes.ClaudeCode, "s.jsonl", normalizerstest.SeedLines(append(parts[:4:4], `{"type":"result","num_turns":1,"is_error":false,"result":"","session_id":"s-1","usage":{"input_tokens":3,"output_tokens":9}}`)...))
		wantEqual(t, "types", seedTypes(es), []envelopes.EventType{"assistant_message", "session_summary"})
		wantEqual(t, "text", normalizerstest.Value(es[0].Text), "Hello")
		wantEqual(t, "bill", normalizerstest.FiguresOf(es[0]).Total+normalizerstest.FiguresOf(es[1]).Total, int64(12))
	})
	t.Run("a message beyond the state is truncated", func(t *testing.T) {
		long := `{"type":"stream_event","uuid":"u","session_id":"s-1","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"` + strings.Repeat("x", 40<<10) + `"}}}`
		es := normalizerstest.SeedEvents(t, envelopes.ClaudeCode, "s.jsonl", normalizerstest.SeedLines(append(parts[:3:3], long)...))
		if len(es) != 1 || normalizerstest.Value(es[0].Text) != "Hel" || !es[0].TextTruncated {
			t.Errorf("%d events: %q, truncated %t", len(es), normalizerstest.Value(es[0].Text), es[0].TextTruncated)
		}
	})
}

// seedRunUsage: the figures of the events of a run add up to those of its result.
func seedRunUsage(t *testing.T) {
	t.Helper()
	sum := func(es []envelopes.AgentEventV1) (f normalizerstest.Figures) {
		for _, e := range es {
			f.Add(normalizerstest.FiguresOf(e))
		}
		return f
	}
	for name, want := range map[string]int64{"simple-bash": 225, "file-operations": 400, "complex-workflow": 800, "error-case": 310} {
		es := seedFile(t, envelopes.ClaudeCode, "metadata", "origin", "claude", "sudocode-"+name+".jsonl")
		wantEqual(t, name, sum(es).Total, want)
		last := es[len(es)-1]
		if last.EventType != envelopes.SessionSummary || normalizerstest.FiguresOf(last).Total != want {
			t.Errorf("%s: the last event is %s with %d tokens", name, last.EventType, normalizerstest.FiguresOf(last).Total)
		}
	}
	for _, name := range []string{"wire-jsonl", "sdk-object-shape"} {
		f := sum(seedFile(t, envelopes.ClaudeCode, "tool_metadata", "origin", "sdk-stream", name+".jsonl"))
		wantEqual(t, name, []int64{f.Input, f.Output, f.Cached, f.CacheWrite}, []int64{18, 34, 2000, 100})
	}
}

// seedExampleFlow: the eight steps of the seed, as lines and as objects.
func seedExampleFlow(t *testing.T) {
	t.Helper()
	patch := `{"filePath":"/w/h.py","oldString":"a","newString":"b","originalFile":"a\n","structuredPatch":[{"oldStart":1,"oldLines":1,"newStart":1,"newLines":1,"lines":["-a","+b"]}],"userModified":false,"replaceAll":false}`
	es := normalizerstest.SeedEvents(t, envelopes.ClaudeCode, "s.jsonl", normalizerstest.SeedLines(sdkInit,
		sdkAssistant("1", "null", `[{"type":"text","text":"I will write it."}]`, "null"),
		sdkAssistant("2", "null", `[{"type":"tool_use","id":"w","name":"Write","input":{"file_path":"/w/h.py","content":"a\n"}}]`, "null"),
		`{"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"w","content":"created"}]},"session_id":"s-1","tool_use_result":{"type":"create","filePath":"/w/h.py","content":"a\n","structuredPatch":[],"originalFile":null}}`,
		sdkAssistant("3", "null", `[{"type":"tool_use","id":"e","name":"Edit","input":{"file_path":"/w/h.py","old_string":"a","new_string":"b"}}]`, "null"),
		`{"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"e","content":"edited"}]},"session_id":"s-1","tool_use_result":`+patch+`}`,
		sdkAssistant("4", "null", `[{"type":"text","text":"Done."}]`, "null"),
		`{"type":"result","subtype":"success","is_error":false,"num_turns":3,"result":"Done.","session_id":"s-1"}`))
	wantEqual(t, "types", seedTypes(es), []envelopes.EventType{
		"system_message", "assistant_message", "tool_call", "tool_result", "tool_call", "tool_result", "assistant_message", "session_summary",
	})
	want := []envelopes.EventType{
		"system_message", "user_message", "reasoning", "assistant_message", "tool_call", "tool_result", "tool_call", "tool_result",
		"tool_call", "tool_result", "assistant_message", "session_summary",
	}
	for _, name := range []string{"wire-jsonl", "sdk-object-shape"} {
		wantEqual(t, name, seedTypes(seedFile(t, envelopes.ClaudeCode, "tool_metadata", "origin", "sdk-stream", name+".jsonl")), want)
	}
}
