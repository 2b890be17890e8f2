package envelopes

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// story makes the events of one session, in the form in which normalizers make them.
type story struct {
	t      *testing.T
	source Source
	root   string
	meta   *Metadata
	events []AgentEventV1
}

// event adds an event with a text; set may change it.
func (s *story) event(kind EventType, text string, set ...func(*AgentEventV1)) *AgentEventV1 {
	s.t.Helper()
	n := len(s.events) + 1
	e := AgentEventV1{
		SchemaVersion: SchemaVersion, Source: s.source, ProjectHash: "p", SessionID: "s",
		EventID: fmt.Sprintf("@%d", n), TS: time.Date(2026, 3, 9, 9, 0, n, 0, time.UTC).Format(time.RFC3339),
		EventType: kind, Role: new(RolesOf(kind)[0]), Sequence: uint64(n), Metadata: s.meta,
	}
	if s.root != "" {
		e.ProjectRoot = &s.root
	}
	if text != "" {
		e.Text = &text
	}
	for _, f := range set {
		f(&e)
	}
	if err := e.Validate(); err != nil {
		s.t.Fatal(err)
	}
	s.events = append(s.events, e)
	return &s.events[n-1]
}

// tool sets the fields that tool_call and tool_result of a tool share.
func tool(id, name string, channel Channel, op FileOp, path string) func(*AgentEventV1) {
	return func(e *AgentEventV1) {
		e.ToolCallID, e.ToolName, e.Channel = &id, &name, &channel
		e.ToolStatus = new(StatusInProgress)
		if e.EventType == ToolResult {
			e.ToolStatus = new(StatusSuccess)
		}
		if op != "" {
			e.FileOp = &op
		}
		if path != "" {
			e.FilePath = &path
		}
	}
}

// failing makes a result an error; a negative code means no exit code.
func failing(code int64) func(*AgentEventV1) {
	return func(e *AgentEventV1) {
		e.ToolStatus = new(StatusError)
		if code >= 0 {
			e.ToolExitCode = &code
		}
	}
}

// project projects events and returns all emitted entries, and the entries that a consumer
// keeps: the last of each index.
func project(t fataler, events []AgentEventV1) (emitted, kept []NormalizedEntry) {
	var p EntryProjection
	for i := range events {
		n, ok := p.Project(&events[i])
		if !ok {
			continue
		}
		emitted = append(emitted, n)
		switch {
		case n.Index < len(kept):
			kept[n.Index] = n
		case n.Index == len(kept):
			kept = append(kept, n)
		default: // or below 0, which panics
			t.Fatalf("index %d comes after %d entries", n.Index, len(kept))
		}
	}
	return emitted, kept
}

// asJSON returns an entry in JSON.
func asJSON(t *testing.T, n NormalizedEntry) string {
	t.Helper()
	b, err := n.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// wantEntries compares entries, one per line of JSON.
func wantEntries(t *testing.T, got []NormalizedEntry, want ...string) {
	t.Helper()
	var lines []string
	for _, n := range got {
		lines = append(lines, asJSON(t, n))
	}
	if d := cmp.Diff(want, lines); d != "" {
		t.Fatal(d)
	}
}

func TestEntriesHaveTheirNamesAndNullsInJSON(t *testing.T) {
	t.Parallel()
	s := &story{t: t, source: ClaudeCode, root: "/home/ada/app"}
	s.event(UserMessage, "before any metadata")
	s.meta = &Metadata{Model: new("claude-opus-4-5"), Extensions: map[string]jsontext.Value{"permissionMode": jsontext.Value(`"plan"`)}}
	s.event(SystemMessage, "")
	s.meta = &Metadata{SessionID: new("sess-1"), Model: new("claude-opus-4-5")}
	s.event(Reasoning, "Let me look.")
	s.event(ToolCall, `{"command":"go test ./..."}`, tool("c1", "Bash", ChannelTerminal, "", ""))
	s.event(ToolResult, "FAIL", tool("c1", "Bash", ChannelTerminal, "", ""), failing(1))
	s.event(Log, "Overloaded", func(e *AgentEventV1) {
		e.Metadata = &Metadata{SessionID: new("sess-1"), Extensions: map[string]jsontext.Value{"error": jsontext.Value(`{"code":"529","message":"overloaded_error"}`)}}
	})
	emitted, _ := project(t, s.events)
	meta := `"metadata":{"sessionId":"sess-1","model":"claude-opus-4-5"}`
	wantEntries(t, emitted,
		`{"index":0,"timestamp":"2026-03-09T09:00:01Z","type":{"kind":"user_message"},"content":"before any metadata"}`,
		`{"index":1,"timestamp":"2026-03-09T09:00:02Z","type":{"kind":"system_message"},"content":"Session: unknown, Model: claude-opus-4-5","metadata":{"sessionId":null,"model":"claude-opus-4-5","permissionMode":"plan"}}`,
		`{"index":2,"timestamp":"2026-03-09T09:00:03Z","type":{"kind":"thinking","reasoning":"Let me look."},"content":"Let me look.",`+meta+`}`,
		"{\"index\":3,\"timestamp\":\"2026-03-09T09:00:04Z\",\"type\":{\"kind\":\"tool_use\",\"tool\":{\"toolName\":\"Bash\",\"action\":{\"kind\":\"command_run\",\"command\":\"go test ./...\"},\"status\":\"running\"}},\"content\":\"```bash\\ngo test ./...\\n```\","+meta+"}",
		"{\"index\":3,\"timestamp\":\"2026-03-09T09:00:04Z\",\"type\":{\"kind\":\"tool_use\",\"tool\":{\"toolName\":\"Bash\",\"action\":{\"kind\":\"command_run\",\"command\":\"go test ./...\",\"result\":{\"exitCode\":1,\"stdout\":\"FAIL\"}},\"status\":\"failed\",\"result\":{\"success\":false,\"error\":\"FAIL\"}}},\"content\":\"```bash\\ngo test ./...\\n```\\n\\n**Exit Code:** 1\\n\\n**Output:**\\n```\\nFAIL\\n```\","+meta+"}",
		`{"index":4,"timestamp":"2026-03-09T09:00:06Z","type":{"kind":"error","error":{"message":"overloaded_error","code":"529"}},"content":"Overloaded","metadata":{"sessionId":"sess-1","model":null,"error":{"code":"529","message":"overloaded_error"}}}`,
	)
	for _, n := range emitted {
		var back NormalizedEntry
		if err := json.Unmarshal([]byte(asJSON(t, n)), &back); err != nil || asJSON(t, back) != asJSON(t, n) {
			t.Fatalf("read back as %s, %v", asJSON(t, back), err)
		}
	}
}

func TestEventsWithoutAnEntryLeaveNoGap(t *testing.T) {
	t.Parallel()
	s := &story{t: t, source: Codex}
	s.event(Meta, "turn")
	s.event(Log, "a line")
	s.event(FileSnapshot, "snapshot")
	s.event(SessionSummary, "a title")
	s.event(AssistantMessage, "")
	s.event(Reasoning, "")
	s.event(SystemMessage, "")
	s.event(Meta, "<environment_context>", func(e *AgentEventV1) { e.Origin = OriginInjected })
	s.event(UserMessage, "you are on your own", func(e *AgentEventV1) { e.Origin = OriginInjected })
	s.event(UserMessage, "hello")
	_, kept := project(t, s.events)
	wantEntries(t, kept, `{"index":0,"timestamp":"2026-03-09T09:00:10Z","type":{"kind":"user_message"},"content":"hello"}`)
}

func TestChunksOfOneMessageAreOneEntry(t *testing.T) {
	t.Parallel()
	agent := func(e *AgentEventV1) { e.AgentID, e.IsInternal = new("a1"), true }
	call := func(key string) func(*AgentEventV1) {
		return func(e *AgentEventV1) { e.Usage, e.TokensTotal = &Usage{Key: key}, new(int64(0)) }
	}
	for name, test := range map[string]struct {
		source Source
		events func(*story)
		want   []string
	}{
		"chunks": {ClaudeCode, func(s *story) { s.event(AssistantMessage, "Hello "); s.event(AssistantMessage, "world") }, []string{"Hello world"}},
		"three": {Cursor, func(s *story) {
			s.event(AssistantMessage, "a")
			s.event(AssistantMessage, "b")
			s.event(AssistantMessage, "c")
		}, []string{"abc"}},
		"a meta between": {ClaudeCode, func(s *story) { s.event(AssistantMessage, "a"); s.event(Meta, ""); s.event(AssistantMessage, "b") }, []string{"a", "b"}},
		"a gap between": {ClaudeCode, func(s *story) {
			s.event(AssistantMessage, "a")
			s.event(Meta, "")
			s.event(AssistantMessage, "b")
			s.events = append(s.events[:1], s.events[2])
		}, []string{"a", "b"}},
		"another thread":    {ClaudeCode, func(s *story) { s.event(AssistantMessage, "a"); s.event(AssistantMessage, "b", agent) }, []string{"a", "b"}},
		"another API call":  {ClaudeCode, func(s *story) { s.event(AssistantMessage, "a", call("m1")); s.event(AssistantMessage, "b", call("m2")) }, []string{"a", "b"}},
		"the same API call": {ClaudeCode, func(s *story) { s.event(AssistantMessage, "a", call("m1")); s.event(AssistantMessage, "b", call("m1")) }, []string{"ab"}},
		"whole messages":    {Codex, func(s *story) { s.event(AssistantMessage, "a"); s.event(AssistantMessage, "b") }, []string{"a", "b"}},
		"paragraphs":        {Copilot, func(s *story) { s.event(AssistantMessage, "a"); s.event(AssistantMessage, "b") }, []string{"a", "b"}},
		"chunks without end": {ClaudeCode, func(s *story) {
			for range maxJoinedChunks + 1 {
				s.event(AssistantMessage, "a")
			}
		}, []string{strings.Repeat("a", maxJoinedChunks), "a"}},
		"endless": {ClaudeCode, func(s *story) {
			s.event(AssistantMessage, strings.Repeat("a", maxJoinedBytes))
			s.event(AssistantMessage, "b")
		}, []string{strings.Repeat("a", maxJoinedBytes), "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &story{t: t, source: test.source}
			test.events(s)
			_, kept := project(t, s.events)
			var got []string
			for _, n := range kept {
				got = append(got, n.Content)
			}
			if d := cmp.Diff(test.want, got); d != "" {
				t.Fatal(d)
			}
		})
	}
}

func TestSupersedingEventTakesTheIndexOfTheOther(t *testing.T) {
	t.Parallel()
	s := &story{t: t, source: Gemini}
	s.event(UserMessage, "one")
	s.event(UserMessage, "two")
	s.event(UserMessage, "one, corrected", func(e *AgentEventV1) { e.Supersedes = "@1" })
	s.event(UserMessage, "of something unknown", func(e *AgentEventV1) { e.Supersedes = "gone" })
	_, kept := project(t, s.events)
	if len(kept) != 3 || kept[0].Content != "one, corrected" || kept[1].Content != "two" || kept[2].Content != "of something unknown" {
		t.Fatalf("%+v", kept)
	}
}

func TestReplacementOfAChunkIsAnEntryOfItsOwn(t *testing.T) {
	t.Parallel()
	s := &story{t: t, source: ClaudeCode}
	s.event(AssistantMessage, "a")
	s.event(AssistantMessage, "b")
	s.event(AssistantMessage, "A", func(e *AgentEventV1) { e.Supersedes = "@1" })
	_, kept := project(t, s.events)
	if len(kept) != 2 || kept[0].Content != "ab" || kept[1].Content != "A" {
		t.Fatalf("%+v", kept)
	}
}

func TestResultsFindTheirCallsInAnyOrder(t *testing.T) {
	t.Parallel()
	s := &story{t: t, source: Cursor}
	ids := []string{"call_x\nfc_y", "call_x fc_y", "c"}
	for _, id := range ids {
		s.event(ToolCall, `{"path":"/tmp/`+strconv.Itoa(len(id))+`"}`, tool(id, "read", ChannelEditor, OpRead, ""))
	}
	for _, id := range []string{"c", ids[0], "nobody's", ids[1], ids[0]} {
		s.event(ToolResult, id, tool(id, "read", ChannelEditor, OpRead, "/tmp/f"))
	}
	emitted, kept := project(t, s.events)
	var indexes []int
	for _, n := range emitted {
		indexes = append(indexes, n.Index)
	}
	if d := cmp.Diff([]int{0, 1, 2, 2, 0, 3, 1, 0}, indexes); d != "" {
		t.Fatal(d)
	}
	for i, id := range []string{ids[0], ids[1], "c", "nobody's"} {
		var data string
		if err := json.Unmarshal(kept[i].Type.Tool.Result.Data, &data); err != nil || data != id {
			t.Errorf("entry %d has the result of %q: %v", i, data, err)
		}
	}
}

func TestEntryProjectionHasBoundedMemory(t *testing.T) {
	t.Parallel()
	var p EntryProjection
	s := &story{t: t, source: ClaudeCode}
	big := strings.Repeat("x", 64<<10)
	for i := range 2 * maxProjectedCalls {
		s.event(ToolCall, `{"command":"`+big+`"}`, tool(fmt.Sprint("c", i), "Bash", ChannelTerminal, "", ""))
		p.Project(&s.events[i])
		s.events[i].Text = nil // bounds the memory of the test
	}
	if len(p.calls.values) > 64 || p.calls.size > maxProjectedBytes {
		t.Errorf("holds %d calls of %d bytes", len(p.calls.values), p.calls.size)
	}
	if len(p.indexes.values) > maxProjectedEvents || len(p.indexes.order) > 2*maxProjectedEvents {
		t.Errorf("holds %d events in %d elements", len(p.indexes.values), len(p.indexes.order))
	}
	n, _ := p.Project(s.event(ToolResult, "late", tool("c0", "Bash", ChannelTerminal, "", "")))
	if n.Index != 2*maxProjectedCalls || n.Type.Tool.Status != EntrySuccess {
		t.Errorf("a result of an evicted call: %s", asJSON(t, n))
	}
}

// actions are tools of all vendors with their actions.
var actions = map[string]struct {
	source        Source
	name          string
	channel       Channel
	op            FileOp
	path          string
	text          string
	files         []File
	want, content string
}{
	"Bash":                    {ClaudeCode, "Bash", ChannelTerminal, "", "", `{"command":"ls","description":"d"}`, nil, `{"kind":"command_run","command":"ls"}`, "```bash\nls\n```"},
	"BashOutput":              {ClaudeCode, "BashOutput", ChannelTerminal, "", "", `{"bash_id":"b1"}`, nil, `{"kind":"tool","toolName":"BashOutput","args":{"bash_id":"b1"}}`, "Tool: `BashOutput`"},
	"Read":                    {ClaudeCode, "Read", ChannelEditor, OpRead, "/w/app/a.go", `{"file_path":"/w/app/a.go"}`, nil, `{"kind":"file_read","path":"a.go"}`, "Read file: `a.go`"},
	"Write":                   {ClaudeCode, "Write", ChannelEditor, OpWrite, "/w/app/a.go", `{"file_path":"/w/app/a.go","content":"x"}`, nil, `{"kind":"file_write","path":"a.go"}`, "Write file: `a.go`"},
	"Edit":                    {ClaudeCode, "Edit", ChannelEditor, OpModify, "/w/app/a.go", `{"file_path":"/w/app/a.go","old_string":"a\nb\n","new_string":"c"}`, nil, `{"kind":"file_edit","path":"a.go","changes":[{"type":"edit","unifiedDiff":"--- a/a.go\n+++ b/a.go\n@@ -1,2 +1,1 @@\n-a\n-b\n+c"}]}`, "Edit file: `a.go`\n\n```diff\n--- a/a.go\n+++ b/a.go\n@@ -1,2 +1,1 @@\n-a\n-b\n+c\n```"},
	"MultiEdit":               {ClaudeCode, "MultiEdit", ChannelEditor, OpModify, "a", `{"edits":[{"old_string":"a","new_string":"b"},{"old_string":"c","new_string":""}]}`, nil, `{"kind":"file_edit","path":"a","changes":[{"type":"edit","unifiedDiff":"--- a/a\n+++ b/a\n@@ -1,1 +1,1 @@\n-a\n+b\n@@ -1,1 +1,0 @@\n-c"}]}`, ""},
	"an edit of files":        {Codex, "file_change", ChannelEditor, OpModify, "a", `{"x":1}`, []File{{"a", OpModify}, {"b", OpDelete}}, `{"kind":"file_edit","path":"a","changes":[{"type":"edit"},{"type":"delete"}]}`, "Edit file: `a`"},
	"an edit without changes": {Codex, "file_change", ChannelEditor, OpModify, "a", ``, nil, `{"kind":"file_edit","path":"a","changes":[{"type":"edit"}]}`, "Edit file: `a`"},
	"an edit elsewhere":       {ClaudeCode, "Edit", ChannelEditor, OpModify, "/etc/hosts/x", `{"old_string":"","new_string":"c"}`, nil, `{"kind":"file_edit","path":"/etc/hosts/x","changes":[{"type":"edit","unifiedDiff":"--- a/etc/hosts/x\n+++ b/etc/hosts/x\n@@ -1,0 +1,1 @@\n+c"}]}`, ""},
	"delete":                  {Cursor, "delete", ChannelEditor, OpDelete, "/w/app/x", `{"path":"/w/app/x"}`, nil, `{"kind":"file_edit","path":"x","changes":[{"type":"delete"}]}`, "Delete file: `x`"},
	"Grep":                    {ClaudeCode, "Grep", ChannelFilesystem, OpRead, "/w/app", `{"pattern":"a` + "`" + `b","path":"/w/app"}`, nil, `{"kind":"search","query":"a` + "`" + `b"}`, "Search: `` a`b ``"},
	"semsearch":               {Cursor, "semsearch", ChannelFilesystem, OpRead, "", `{"query":"auth"}`, nil, `{"kind":"search","query":"auth"}`, "Semantic search: `auth`"},
	"Glob":                    {ClaudeCode, "Glob", ChannelFilesystem, OpRead, "", `{"pattern":"**/*.go"}`, nil, `{"kind":"tool","toolName":"Glob","args":{"pattern":"**/*.go"}}`, "Glob pattern: `**/*.go`"},
	"list_directory":          {Gemini, "list_directory", ChannelFilesystem, OpRead, "", `{"dir_path":"/w/app/sub"}`, nil, `{"kind":"tool","toolName":"list_directory","args":{"dir_path":"/w/app/sub"}}`, "List directory: `sub`"},
	"TodoWrite":               {ClaudeCode, "TodoWrite", ChannelOther, "", "", `{"todos":[{},{}]}`, nil, `{"kind":"tool","toolName":"TodoWrite","args":{"todos":[{},{}]}}`, "Update todos (2 items)"},
	"todo, none":              {Cursor, "todo", ChannelOther, "", "", `{"todos":[]}`, nil, `{"kind":"tool","toolName":"todo","args":{"todos":[]}}`, "View todos (0 items)"},
	"mcp of Cursor":           {Cursor, "mcp", ChannelOther, "", "", `{"name":"n","args":{"q":1},"providerIdentifier":"fs","toolName":"read"}`, nil, `{"kind":"tool","toolName":"mcp:fs:read","args":{"q":1}}`, "MCP Tool: `mcp:fs:read`"},
	"mcp without a server":    {Cursor, "mcp", ChannelOther, "", "", `{"name":"n"}`, nil, `{"kind":"tool","toolName":"mcp:n"}`, "MCP Tool: `mcp:n`"},
	"mcp unnamed":             {Cursor, "mcp", ChannelOther, "", "", `{}`, nil, `{"kind":"tool","toolName":"mcp:unknown"}`, "MCP Tool: `mcp:unknown`"},
	"mcp by its name":         {ClaudeCode, "mcp__git_hub__open_pr", ChannelOther, "", "", `{"n":1}`, nil, `{"kind":"tool","toolName":"mcp:git_hub:open_pr","args":{"n":1}}`, "MCP Tool: `mcp:git_hub:open_pr`"},
	"another tool":            {ACP, "weather_api", ChannelOther, "", "", `{"city":"Oslo"}`, nil, `{"kind":"tool","toolName":"weather_api","args":{"city":"Oslo"}}`, "Tool: `weather_api`"},
	"arguments of text": {
		Codex, "custom", ChannelOther, "", "", `let x`, nil, `{"kind":"tool","toolName":"custom","args":"let x"}`, "Tool: `custom`",
	},
	"shell with arguments": {Codex, "shell", ChannelTerminal, "", "", `{"command":["bash","-lc","go test"]}`, nil, `{"kind":"command_run","command":"go test"}`, ""},
	"an argument vector":   {Codex, "exec_command", ChannelTerminal, "", "", `["ls","-l"]`, nil, `{"kind":"command_run","command":"ls -l"}`, ""},
	"exec_command":         {Codex, "exec_command", ChannelTerminal, "", "", `{"cmd":"ls"}`, nil, `{"kind":"command_run","command":"ls"}`, ""},
	"a bare command":       {Codex, "exec", ChannelTerminal, "", "", "echo ```", nil, "{\"kind\":\"command_run\",\"command\":\"echo ```\"}", "````bash\necho ```\n````"},
	"apply_patch": {
		Codex, "apply_patch", ChannelEditor, OpModify, "/w/app/new.txt",
		"*** Begin Patch\n*** Add File: /w/app/new.txt\n+one\n+two\n*** Update File: old.go\n*** Move to: moved.go\n@@ func f\n a\n-b\n+c\n\n@@\n-d\n*** Delete File: gone\n*** End Patch\n", nil,
		`{"kind":"file_edit","path":"new.txt","changes":[` +
			`{"type":"edit","unifiedDiff":"--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1,2 @@\n+one\n+two"},` +
			`{"type":"edit","unifiedDiff":"--- a/old.go\n+++ b/moved.go\n@@ -1,3 +1,3 @@\n a\n-b\n+c\n \n@@ -1,1 +0,0 @@\n-d"},` +
			`{"type":"delete"}]}`, "",
	},
	"apply_patch in a command": {
		Codex, "shell", ChannelEditor, OpModify, "f", `{"command":["apply_patch","*** Begin Patch\n*** Update File: f\n@@\n-x\n+y\n*** End Patch"]}`, nil,
		`{"kind":"file_edit","path":"f","changes":[{"type":"edit","unifiedDiff":"--- a/f\n+++ b/f\n@@ -1,1 +1,1 @@\n-x\n+y"}]}`, "",
	},
	"a patch with a header": {
		Cursor, "edit", ChannelEditor, OpModify, "/w/app/f", `{"applyPatch":{"patchContent":"--- a/x\n+++ b/x\n@@ -3,2 +3,2 @@ f\n--- one/two\n+three\n"}}`, nil,
		`{"kind":"file_edit","path":"f","changes":[{"type":"edit","unifiedDiff":"--- a/f\n+++ b/f\n@@ -3,2 +3,2 @@ f\n--- one/two\n+three"}]}`, "",
	},
}

func TestToolsOfAllVendorsHaveOneVocabulary(t *testing.T) {
	t.Parallel()
	for name, test := range actions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &story{t: t, source: test.source, root: "/w/app"}
			s.event(ToolCall, test.text, tool("c", test.name, test.channel, test.op, test.path), func(e *AgentEventV1) { e.Files = test.files })
			emitted, _ := project(t, s.events)
			got, err := json.Marshal(emitted[0].Type.Tool.Action)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(test.want, string(got)); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff(test.content, emitted[0].Content); test.content != "" && d != "" {
				t.Error(d)
			}
			if emitted[0].Type.Tool.ToolName != test.name {
				t.Errorf("toolName is %q", emitted[0].Type.Tool.ToolName)
			}
		})
	}
}

func TestResultsCompleteTheirEntries(t *testing.T) {
	t.Parallel()
	status := func(s ToolStatus) func(*AgentEventV1) { return func(e *AgentEventV1) { e.ToolStatus = &s } }
	streams := func(stdout, stderr string) func(*AgentEventV1) {
		return func(e *AgentEventV1) { e.ToolOutput = &ToolOutput{Stdout: &stdout, Stderr: &stderr} }
	}
	deep := strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1)
	bash := tool("c", "Bash", ChannelTerminal, "", "")
	write := tool("c", "Write", ChannelEditor, OpWrite, "f")
	edit := tool("c", "Edit", ChannelEditor, OpModify, "f")
	other := tool("c", "T", ChannelOther, "", "")
	for name, test := range map[string]struct {
		source  Source
		as      func(*AgentEventV1)
		call    string
		text    string
		set     func(*AgentEventV1)
		want    string // of the tool: status and result, and of the action its result or changes
		content string
	}{
		"a success states no code": {ClaudeCode, bash, `{"command":"x"}`, "out", status(StatusSuccess), `success {"success":true,"data":"out"} {"exitCode":0,"stdout":"out"}`, "```bash\nx\n```\n\n**Exit Code:** 0\n\n**Output:**\n```\nout\n```"},
		"a failure states no code": {Cursor, bash, `{"command":"x"}`, "", status(StatusError), `failed {"success":false} {"exitCode":1}`, "```bash\nx\n```\n\n**Exit Code:** 1"},
		"a stated code":            {Codex, bash, `{"command":"x"}`, "", failing(7), `failed {"success":false,"error":"Command exited with code 7"} {"exitCode":7}`, ""},
		"streams of Claude":        {ClaudeCode, bash, `{"command":"x"}`, "out\nerr", streams("out\n", "err"), `success {"success":true,"data":"out\nerr"} {"exitCode":0,"stdout":"out\n","stderr":"err"}`, ""},
		"streams without a text":   {ClaudeCode, bash, `{"command":"x"}`, "in the background", streams("", ""), `success {"success":true,"data":"in the background"} {"exitCode":0}`, "```bash\nx\n```\n\n**Exit Code:** 0"},
		"a diff is no stream":      {Cursor, bash, `{"command":"x"}`, "out", func(e *AgentEventV1) { e.ToolOutput = &ToolOutput{Diff: new("@@")} }, `success {"success":true,"data":"out"} {"exitCode":0,"stdout":"out"}`, ""},
		"streams of Cursor": {Cursor, bash, `{"command":"x"}`, "boom", func(e *AgentEventV1) {
			failing(7)(e)
			streams("", "boom")(e)
		}, `failed {"success":false,"error":"boom"} {"exitCode":7,"stderr":"boom"}`, "```bash\nx\n```\n\n**Exit Code:** 7\n\n**Error:**\n```\nboom\n```"},
		"streams in the text":     {ClaudeCode, bash, `{"command":"x"}`, `{"exitCode":1,"stderr":"bad"}`, status(StatusError), `failed {"success":false,"error":"{\"exitCode\":1,\"stderr\":\"bad\"}"} {"exitCode":1,"stderr":"bad"}`, ""},
		"still running":           {ClaudeCode, bash, `{"command":"x"}`, "id b1", status(StatusInProgress), `running null null`, "```bash\nx\n```"},
		"of unknown outcome":      {ClaudeCode, other, `{}`, "", status(StatusUnknown), `success {"success":true} null`, "Tool: `T`"},
		"empty text":              {ClaudeCode, other, `{}`, "", func(e *AgentEventV1) { e.Text = new("") }, `success {"success":true,"data":""} ""`, "Tool: `T`"},
		"JSON":                    {ClaudeCode, other, `{}`, `{"a": 1.50}`, status(StatusSuccess), `success {"success":true,"data":{"a":1.50}} {"a":1.50}`, ""},
		"JSON too deep":           {ClaudeCode, other, `{}`, deep, status(StatusSuccess), `success {"success":true,"data":"` + deep + `"} "` + deep + `"`, ""},
		"an error of text":        {ClaudeCode, other, `{}`, `{"error":"denied"}`, status(StatusError), `failed {"success":false,"error":"denied"} null`, ""},
		"an error with a message": {ClaudeCode, other, `{}`, `{"error":{"message":"denied"}}`, status(StatusError), `failed {"success":false,"error":"denied"} null`, ""},
		"a message":               {ClaudeCode, other, `{}`, `{"message":"denied","isError":true}`, status(StatusError), `failed {"success":false,"error":"denied"} null`, ""},
		"written":                 {ClaudeCode, write, `{}`, "ok", status(StatusSuccess), `success {"success":true,"data":"ok"} null`, "Write file: `f` ✓"},
		"not written":             {ClaudeCode, write, `{}`, "no", status(StatusError), `failed {"success":false,"error":"no"} null`, "Write file: `f` ✗"},
		"the diff of the result": {ClaudeCode, edit, `{"old_string":"a","new_string":"b"}`, "ok", func(e *AgentEventV1) {
			e.ToolMetadata = jsontext.Value(`{"diff":"--- a/f\n+++ b/f\n@@ -9,1 +9,1 @@\n-a\n+b\n"}`)
		}, `success {"success":true,"data":"ok"} [{"type":"edit","unifiedDiff":"--- a/f\n+++ b/f\n@@ -9,1 +9,1 @@\n-a\n+b\n"}]`, ""},
		"the diff of the output": {Cursor, edit, `{}`, "ok", func(e *AgentEventV1) { e.ToolOutput = &ToolOutput{Diff: new("@@ -1 +1 @@\n-a\n+b")} }, `success {"success":true,"data":"ok"} [{"type":"edit","unifiedDiff":"--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b"}]`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &story{t: t, source: test.source}
			s.event(ToolCall, test.call, test.as)
			s.event(ToolResult, test.text, test.as, test.set)
			emitted, _ := project(t, s.events)
			use := emitted[1].Type.Tool
			got := []string{string(use.Status)}
			second := any(use.Action.Result)
			if use.Action.Changes != nil {
				second = use.Action.Changes
			}
			for _, v := range []any{use.Result, second} {
				b, err := json.Marshal(v)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, string(b))
			}
			if d := cmp.Diff(test.want, strings.Join(got, " ")); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff(test.content, emitted[1].Content); test.content != "" && d != "" {
				t.Error(d)
			}
		})
	}
}

func TestMCPToolShowsItsResult(t *testing.T) {
	t.Parallel()
	s := &story{t: t, source: Cursor}
	mcp := tool("c", "mcp", ChannelOther, "", "")
	s.event(ToolCall, `{"provider_identifier":"fs","tool_name":"read"}`, mcp)
	s.event(ToolResult, "# Title", mcp)
	_, kept := project(t, s.events)
	if want := "MCP Tool: `mcp:fs:read`\n\n# Title"; kept[0].Content != want {
		t.Fatalf("%q", kept[0].Content)
	}
}

func TestResultWithoutANameIsOfAnUnknownTool(t *testing.T) {
	t.Parallel()
	s := &story{t: t, source: ClaudeCode}
	s.event(ToolResult, "some result", func(e *AgentEventV1) { e.ToolCallID = new("gone") })
	emitted, _ := project(t, s.events)
	wantEntries(t, emitted, "{\"index\":0,\"timestamp\":\"2026-03-09T09:00:01Z\",\"type\":{\"kind\":\"tool_use\",\"tool\":{\"toolName\":\"unknown\",\"action\":{\"kind\":\"tool\",\"toolName\":\"unknown\",\"result\":\"some result\"},\"status\":\"success\",\"result\":{\"success\":true,\"data\":\"some result\"}}},\"content\":\"Tool: `unknown`\"}")
}

func TestResultWithoutACallHasTheArgumentsOfItsToolInput(t *testing.T) {
	t.Parallel()
	for input, want := range map[string]string{`{"command":"pwd"}`: "pwd", `["pwd","-P"]`: "pwd -P", ``: ""} {
		s := &story{t: t, source: Cursor}
		s.event(ToolResult, "/tmp", tool("o", "shell", ChannelTerminal, "", ""), func(e *AgentEventV1) {
			if input != "" {
				e.ToolInput = jsontext.Value(input)
			}
		})
		_, kept := project(t, s.events)
		if c := kept[0].Type.Tool.Action.Command; c == nil || *c != want {
			t.Error(asJSON(t, kept[0]))
		}
	}
}

func TestRelativePathsAreShorterAndClimbOneLevel(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ path, root, want string }{
		{"/path/to/file.ts", "/path/to", "file.ts"},
		{"/path/to/a/../b//c", "/path/to/", "b/c"},
		{"/path/to", "/path/to", "."},
		{"/path/x", "/path/to", "../x"},
		{"/x", "/path/to", "/x"},
		{"/path/x/y", "/path/to/deep", "/path/x/y"},
		{"/x/y", "/a", "/x/y"}, // "../x/y" is longer
		{"/", "/", "/"},
		{"relative/x", "/path", "relative/x"},
		{"./x", "/path", "./x"},
		{"", "/path", ""},
		{"/path/x", "", "/path/x"},
		{"/path/x", "path", "/path/x"},
		{"/pathology/x", "/path", "/pathology/x"},
		{"/path/..x", "/path", "..x"},
		{`C:\src\app\src\a.go`, `c:\src\app`, `src\a.go`},
		{"C:/src/app/src/a.go", `C:\src\app`, "src/a.go"},
		{`D:\src\app\a.go`, `C:\src\app`, `D:\src\app\a.go`},
		{"/src/app/a.go", `C:\src\app`, "/src/app/a.go"},
		{`/path/to/a\b`, "/path/to", `a\b`},
	} {
		if got := relativize(test.path, test.root); got != test.want {
			t.Errorf("%s from %s: %s, want %s", test.path, test.root, got, test.want)
		}
	}
}

// anyStory draws valid events of one session: few ids, so that results find calls, and
// metadata of ACP.
func anyStory() *rapid.Generator[[]AgentEventV1] {
	return rapid.Custom(func(t *rapid.T) []AgentEventV1 {
		events := rapid.SliceOfN(anyEvent(), 0, 12).Draw(t, "events")
		source := rapid.SampledFrom(Sources).Draw(t, "source of all")
		for i := range events {
			e := &events[i]
			e.Source = source
			e.Sequence = uint64(i) + 1
			e.EventID = fmt.Sprintf("@%d", i)
			if rapid.Bool().Draw(t, "paired") {
				e.ToolCallID = new(rapid.SampledFrom([]string{"a", "b", ""}).Draw(t, "call"))
			}
			if e.Supersedes = ""; i > 0 && rapid.IntRange(0, 3).Draw(t, "again") == 0 {
				e.Supersedes = fmt.Sprintf("@%d", rapid.IntRange(0, i-1).Draw(t, "earlier"))
			}
			if e.EventType == ToolCall || e.EventType == ToolResult {
				if v := anyJSON(3).Draw(t, "JSON"); rapid.Bool().Draw(t, "text is JSON") {
					e.Text = new(string(v))
					if rapid.IntRange(0, 9).Draw(t, "names stand twice") == 0 {
						e.Text = new(`{"command":1,"command":` + string(v) + `}`)
					}
				}
			}
			if rapid.Bool().Draw(t, "cites") {
				start, end := rapid.Int64Range(-3, 30).Draw(t, "start"), rapid.Int64Range(-3, 30).Draw(t, "end")
				e.MessageMetadata = fmt.Appendf(nil, `[{"kind":"citation","start_index":%d,"end_index":%d,"url":"u"},{"kind":"citation"},{"kind":"x"},7]`, start, end)
			}
			if rapid.Bool().Draw(t, "an error") {
				e.Metadata = &Metadata{Extensions: map[string]jsontext.Value{"error": anyJSON(2).Draw(t, "error")}}
			}
		}
		return events
	})
}

// For any events: no panic, indexes without gaps, strict JSON on one line, and the same events
// give the same entries.
func TestEntriesOfAnyEvents(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		events := anyStory().Draw(t, "story")
		emitted, _ := project(t, events)
		for i := range events {
			events[i].Raw = nil // no projection reads it
		}
		again, _ := project(t, events)
		for i, n := range emitted {
			line, err := n.AppendJSON(nil)
			if err != nil || bytes.ContainsAny(line, "\n") {
				t.Fatalf("%s: %v", line, err)
			}
			if second, _ := again[i].AppendJSON(nil); !bytes.Equal(line, second) {
				t.Fatalf("%s, then %s", line, second)
			}
			var back NormalizedEntry
			if err := json.Unmarshal(line, &back); err != nil {
				t.Fatal(err)
			}
		}
	})
}
