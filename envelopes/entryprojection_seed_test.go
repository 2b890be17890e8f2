package envelopes

import (
	"bytes"
	stdjson "encoding/json"
	"fmt"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
)

// entrySeedRows are the acceptance rows about entries.
var entrySeedRows = map[string]func(*testing.T){
	"000-22 any event has the id that resumes its session":   seedResume,
	"000-26 a call and its result are one entry":             seedEntries,
	"000-8 every tool of Cursor has its action and its diff": seedEntries,
}

func seedResume(t *testing.T) {
	t.Helper()
	t.Parallel()
	s := &story{t: t, source: ClaudeCode, meta: &Metadata{SessionID: new("sess-abc-123")}}
	for _, kind := range EventTypes {
		if id, ok := s.event(kind, "x").ResumeID(); !ok || id != "sess-abc-123" {
			t.Errorf("%s: %q, %t", kind, id, ok)
		}
	}
	codex := &story{t: t, source: Codex, meta: &Metadata{Model: new("gpt-5-codex"), Extensions: map[string]jsontext.Value{"threadId": jsontext.Value(`"t"`)}}}
	if id, ok := codex.event(UserMessage, "x").ResumeID(); ok || id != "" {
		t.Errorf("codex: %q, %t", id, ok)
	}
	early := &story{t: t, source: Copilot}
	if id, ok := early.event(UserMessage, "x").ResumeID(); ok || id != "" {
		t.Errorf("before the id is known: %q, %t", id, ok)
	}
}

// seedEntries is row 000-26 on every tool of Cursor. It makes the events of the records
// itself, without the normalizers.
func seedEntries(t *testing.T) {
	t.Helper()
	t.Parallel()
	var want struct {
		ToolNames   []string     `json:"tool_names"`
		MCPFullName string       `json:"mcp_full_name"`
		ActionKinds []ActionKind `json:"action_kinds"`
		ExitCodes   []*int64     `json:"exit_codes"`
		Statuses    []ToolStatus `json:"statuses"`
		EditDiffs   []string     `json:"edit_diffs"`
	}
	if err := stdjson.Unmarshal(goldenFile(t, "metadata", "origin", "cursor", "all-tools.expected.json"), &want); err != nil {
		t.Fatal(err)
	}
	events := cursorByHand(t, goldenFile(t, "metadata", "origin", "cursor", "all-tools.jsonl"), want.ToolNames, want.Statuses)
	emitted, kept := project(t, events)
	if len(kept) != len(want.ActionKinds) {
		t.Fatalf("%d entries, want %d", len(kept), len(want.ActionKinds))
	}
	for i, n := range kept {
		if emitted[2*i].Index != i || emitted[2*i+1].Index != i || n.Index != i {
			t.Errorf("call %d and its result have index %d and %d", i, emitted[2*i].Index, emitted[2*i+1].Index)
		}
		if emitted[2*i].Type.Tool.Status != EntryRunning {
			t.Errorf("call %d is %s when it starts", i, emitted[2*i].Type.Tool.Status)
		}
		use := n.Type.Tool
		if use.Action.Kind != want.ActionKinds[i] {
			t.Errorf("call %d is a %s, want %s", i, use.Action.Kind, want.ActionKinds[i])
		}
		if (use.Status == EntryFailed) != (want.Statuses[i] == StatusError) {
			t.Errorf("call %d: status %s", i, use.Status)
		}
		if want.ExitCodes[i] != nil {
			var result CommandResult
			if err := json.Unmarshal(use.Action.Result, &result); err != nil || result.ExitCode != *want.ExitCodes[i] {
				t.Errorf("call %d: exit code %d, want %d: %v", i, result.ExitCode, *want.ExitCodes[i], err)
			}
		}
		if p := use.Action.Path; p != nil && *p != "file.ts" {
			t.Errorf("call %d: path %q", i, *p)
		}
	}
	for i, diff := range want.EditDiffs {
		for _, n := range emitted[2*(3+i) : 2*(3+i)+2] { // the call, and the result
			if d := cmp.Diff([]EntryChange{{Type: ChangeEdit, UnifiedDiff: diff}}, n.Type.Tool.Action.Changes); d != "" {
				t.Errorf("edit %d: %s", i, d)
			}
		}
	}
	if name := kept[12].Type.Tool.Action.ToolName; *name != want.MCPFullName {
		t.Errorf("mcp tool is %s", *name)
	}
	if want := "```bash\nexit 7\n```\n\n**Exit Code:** 7\n\n**Error:**\n```\nboom\n```"; kept[14].Content != want {
		t.Errorf("content of a command that failed: %q", kept[14].Content)
	}
}

// cursorByHand returns the events of tool_call records of Cursor whose call_id is call-<i>.
func cursorByHand(t *testing.T, data []byte, names []string, statuses []ToolStatus) []AgentEventV1 {
	t.Helper()
	places := map[string]struct {
		channel Channel
		op      FileOp
	}{
		"shell": {ChannelTerminal, ""}, "read": {ChannelEditor, OpRead}, "write": {ChannelEditor, OpWrite}, "edit": {ChannelEditor, OpModify},
		"delete": {ChannelEditor, OpDelete}, "ls": {ChannelFilesystem, OpRead}, "glob": {ChannelFilesystem, OpRead},
		"grep": {ChannelFilesystem, OpRead}, "semsearch": {ChannelFilesystem, OpRead},
	}
	s := &story{t: t, source: Cursor, root: "/path/to"}
	for line := range bytes.Lines(data) {
		var r struct {
			Type     string `json:"type"`
			Subtype  string `json:"subtype"`
			CallID   string `json:"call_id"`
			ToolCall map[string]struct {
				Args   stdjson.RawMessage `json:"args"`
				Result struct {
					Success, Failure stdjson.RawMessage
				} `json:"result"`
			} `json:"tool_call"`
		}
		// A result that is not an object does not affect the other fields.
		if err := stdjson.Unmarshal(line, &r); err != nil && r.Type != "result" {
			t.Fatal(err)
		}
		var i int
		if n, _ := fmt.Sscanf(r.CallID, "call-%d", &i); r.Type != "tool_call" || n != 1 {
			continue
		}
		place, ok := places[names[i]]
		if !ok {
			place.channel = ChannelOther
		}
		for _, call := range r.ToolCall {
			var args struct {
				Path string `json:"path"`
			}
			_ = stdjson.Unmarshal(call.Args, &args)
			as := tool(r.CallID, names[i], place.channel, place.op, args.Path)
			if r.Subtype == "started" {
				s.event(ToolCall, string(call.Args), as)
				continue
			}
			s.event(ToolResult, "", as, func(e *AgentEventV1) {
				e.ToolStatus = &statuses[i]
				var out struct {
					ExitCode   *int64  `json:"exitCode"`
					Stdout     *string `json:"stdout"`
					Stderr     *string `json:"stderr"`
					DiffString *string `json:"diffString"`
				}
				_ = stdjson.Unmarshal(call.Result.Success, &out)
				_ = stdjson.Unmarshal(call.Result.Failure, &out)
				e.ToolExitCode = out.ExitCode
				e.ToolOutput = &ToolOutput{Stdout: out.Stdout, Stderr: out.Stderr, Diff: out.DiffString}
			})
		}
	}
	return s.events
}
