package normalizers_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/cursor/cursortest"
	"tributary/normalizers/normalizerstest"
)

// cursorRows are the rows of the seed standardized-metadata that are about Cursor. Those
// with a golden file read it where TRIBUTARY_GOLDENS is set; what can be shown on own data
// is shown on it too.
//
//nolint:thelper // rows are subtests, not helpers: TestSeed runs them
var cursorRows = map[string]func(*testing.T){
	"000-7 the documented sequence yields its ten events": func(t *testing.T) {
		t.Parallel()
		got := cursorGolden(t, "official-docs-sequence.jsonl")
		normalizerstest.Same(t, "events", byType(got), map[envelopes.EventType]int{
			envelopes.SystemMessage: 1, envelopes.UserMessage: 1, envelopes.AssistantMessage: 3, envelopes.ToolCall: 2, envelopes.ToolResult: 2, envelopes.SessionSummary: 1,
		})
		for _, e := range got {
			if e.SessionID != "c6b62c6f-7ead-4fd6-9922-e952131177ff" || e.Metadata == nil || normalizerstest.Value(e.Metadata.SessionID) != e.SessionID || normalizerstest.Value(e.Metadata.Model) != "Claude 4 Sonnet" {
				t.Errorf("%s of session %q has the metadata %+v", e.EventID, e.SessionID, e.Metadata)
			}
			if string(e.Metadata.Extensions["permissionMode"]) != `"default"` || normalizerstest.Value(e.ProjectRoot) != "/Users/user/project" {
				t.Errorf("%s: mode %s, root %q", e.EventID, e.Metadata.Extensions["permissionMode"], normalizerstest.Value(e.ProjectRoot))
			}
		}
	},
	// Two values differ from those of the file by intention: an exit code that the vendor does not
	// state is null, and the tools that search read the file system.
	"000-8 every tool has its name, operation, exit code and status": func(t *testing.T) {
		t.Parallel()
		got := cursorGolden(t, "all-tools.jsonl")
		var want struct {
			Names    []string  `json:"tool_names"`
			Ops      []*string `json:"file_ops"`
			Codes    []*int64  `json:"exit_codes"`
			Statuses []string  `json:"statuses"`
		}
		if err := json.Unmarshal(normalizerstest.GoldenFile(t, "metadata", "origin", "cursor", "all-tools.expected.json"), &want); err != nil {
			t.Fatal(err)
		}
		for _, i := range []int{15, 16} {
			want.Codes[i] = nil
		}
		for _, i := range []int{7, 8, 9, 10} {
			want.Ops[i] = new("read")
		}
		for i, name := range want.Names {
			id := fmt.Sprintf("call-%d", i)
			var of []envelopes.AgentEventV1
			for _, e := range got {
				if normalizerstest.Value(e.ToolCallID) == id {
					of = append(of, e)
				}
			}
			if len(of) != 2 || of[0].EventID != id || of[1].EventID != id+"#result" {
				t.Fatalf("%s: %q", id, brief(of))
			}
			for _, e := range of {
				normalizerstest.Same(t, id+" name", normalizerstest.Value(e.ToolName), name)
				normalizerstest.Same(t, id+" op", string(normalizerstest.Value(e.FileOp)), normalizerstest.Value(want.Ops[i]))
			}
			normalizerstest.Same(t, id+" status", string(normalizerstest.Value(of[1].ToolStatus)), want.Statuses[i])
			normalizerstest.Same(t, id+" code", of[1].ToolExitCode, want.Codes[i])
			if channel := normalizerstest.Value(of[0].Channel); i >= 7 && i <= 10 && channel != envelopes.ChannelFilesystem {
				t.Errorf("%s: channel %s", id, channel)
			}
		}
	},
	"000-9 deltas of a thought and of an answer become one event each": func(t *testing.T) {
		t.Parallel()
		delta := func(text string, ms int) string {
			return fmt.Sprintf(`{"type":"thinking","subtype":"delta","text":%q,"session_id":"s","timestamp_ms":%d}`, text, ms)
		}
		own := strings.Join([]string{
			`{"type":"system","subtype":"init","session_id":"s","model":"m"}`, delta("Planning ", 1770823434041), delta("it...", 1770823434100),
			`{"type":"thinking","subtype":"completed","session_id":"s","timestamp_ms":1770823435070}`,
			delta("More", 1770823436000),
			`{"type":"assistant","message":{"content":[{"type":"text","text":"I'll add "}]}}`, `{"type":"assistant","message":{"content":[{"type":"text","text":"a login."}]}}`,
			`{"type":"result","subtype":"success"}`,
		}, "\n")
		got := cursorEvents(t, own)
		normalizerstest.Same(t, "events", brief(got), []string{"system_message Session: s, Model: m", "reasoning Planning it...", "reasoning More", "assistant_message I'll add a login.", "session_summary"})
		// The record that ends a stream gives its id and its time, else the last delta.
		normalizerstest.Same(t, "ended", got[1].EventID+" "+got[1].TS, "@4 2026-02-11T15:23:55.070Z")
		normalizerstest.Same(t, "not ended", got[2].EventID+" "+got[2].TS, "@5 2026-02-11T15:23:56.000Z")
		normalizerstest.Same(t, "deltas", got[3].EventID, "@7")
		if data := cursorGolden(t, "snake-case-coalescing.jsonl"); len(data) != 5 || normalizerstest.Value(data[2].Text) != "Planning implementation..." || normalizerstest.Value(data[3].Text) != "I'll add a login feature." {
			t.Errorf("golden: %q", brief(data))
		}
	},
	"000-10 the repeated full text after deltas adds nothing": func(t *testing.T) {
		t.Parallel()
		part := func(text, more string) string {
			return fmt.Sprintf(`{"type":"assistant","message":{"role":"assistant","content":[{"type":"text","text":%q}]},"session_id":"s"%s}`, text, more)
		}
		const timed, call = `,"timestamp_ms":1770823434041`, `,"timestamp_ms":1770823435000,"model_call_id":"m"`
		long := strings.Repeat("a line of an answer that is long\n", 50)
		var many []string
		for range 100 { // 165 kB: more than a session remembers
			many = append(many, part(long, timed))
		}
		for name, c := range map[string]struct {
			lines []string
			want  []string
		}{
			"before a tool":    {[]string{part("I will", timed), part(" look.", timed), part("I will look.", call)}, []string{"I will look."}},
			"at the end":       {[]string{part("I will", timed), part(" look.", timed), part("I will look.", "")}, []string{"I will look."}},
			"one delta":        {[]string{part("Yes.", timed), part("Yes.", "")}, []string{"Yes."}},
			"without times":    {[]string{part("I will ", ""), part("look at it.", ""), part("I will look at it.", "")}, []string{"I will look at it."}},
			"two equal deltas": {[]string{part("ha", timed), part("ha", timed)}, []string{"haha"}},
			"one delta more":   {[]string{part("I will", timed), part("I will look.", call)}, []string{"I will look."}},
			"two answers":      {[]string{part("Yes.", call), part("Yes.", "")}, []string{"Yes.", "Yes."}},
			"a thought between": {[]string{
				part("It is", timed), `{"type":"thinking","subtype":"delta","text":"short","session_id":"s"}`, part(" short.", timed), part("It is short.", call),
			}, []string{"It is", " short."}},
		} {
			t.Run(name, func(t *testing.T) {
				var texts []string
				for _, e := range cursorEvents(t, strings.Join(c.lines, "\n")) {
					if e.EventType == envelopes.AssistantMessage {
						texts = append(texts, normalizerstest.Value(e.Text))
					}
				}
				normalizerstest.Same(t, "texts", texts, c.want)
			})
		}
		t.Run("too long to be remembered", func(t *testing.T) {
			var texts strings.Builder
			data := strings.Join(append(many, part(strings.Repeat(long, 100), "")), "\n")
			if err := normalizerstest.LawCut(normalizerstest.Folded(cursortest.Suite, normalizers.Normalize, normalizerstest.Frame(normalizerstest.FileNamed(envelopes.Cursor, "run.jsonl"), []byte(data)))); err != nil {
				t.Error(err)
			}
			list := cursorEvents(t, data)
			for _, e := range list {
				texts.WriteString(normalizerstest.Value(e.Text))
			}
			if texts.String() != strings.Repeat(long, 100) || len(list) < 2 {
				t.Errorf("%d bytes in %d events, want %d", texts.Len(), len(list), 100*len(long))
			}
		})
	},
	"000-11 plain lines are system messages and a missing login is a log": func(t *testing.T) {
		t.Parallel()
		got := cursorEvents(t, "Warning: slow\n\n  \nPlease run 'cursor-agent login'\n[x] not authenticated\n{\"type\":\"login cut of\n")
		normalizerstest.Same(t, "events", brief(got), []string{
			"system_message Warning: slow", "log Please run 'cursor-agent login'", "log [x] not authenticated", `system_message {"type":"login cut of`,
		})
		for i, want := range []string{"", "SETUP_REQUIRED", "SETUP_REQUIRED", ""} {
			normalizerstest.Same(t, "code", problemCode(t, got[i]), want)
		}
		normalizerstest.Same(t, "raw", string(got[0].Raw), `"Warning: slow"`)
		for name, want := range map[string][]string{
			"non-json-lines.txt": {"system_message Plain text line", "user_message Hello", "system_message {not json"},
			"stderr-warning.txt": {"system_message Warning: deprecated flag used"},
		} {
			golden := cursorGolden(t, name)
			normalizerstest.Same(t, name, brief(golden), want)
			for _, e := range golden {
				if e.Metadata != nil {
					t.Errorf("%s: metadata before any system message", name)
				}
			}
		}
		if auth := cursorGolden(t, "stderr-auth.txt"); len(auth) != 1 || auth[0].EventType != envelopes.Log || problemCode(t, auth[0]) != "SETUP_REQUIRED" {
			t.Errorf("stderr-auth.txt: %q", brief(auth))
		}
	},
	"000-12 a failed result adds a log with its code": func(t *testing.T) {
		t.Parallel()
		for line, want := range map[string]string{
			`{"type":"result","subtype":"success","is_error":false,"result":"told"}`:           "",
			`{"type":"result","subtype":"error_during_run","is_error":true,"result":"failed"}`: "error_during_run",
			`{"type":"result","is_error":true,"result":"failed"}`:                              "TASK_ERROR",
		} {
			got := cursorEvents(t, line)
			if got[0].EventType != envelopes.SessionSummary || normalizerstest.Value(got[0].Role) != envelopes.RoleSystem || got[0].Text != nil {
				t.Errorf("%s: %q", line, brief(got))
			}
			switch {
			case want == "" && len(got) != 1:
				t.Errorf("%s: %q", line, brief(got))
			case want != "" && (len(got) != 2 || got[1].EventType != envelopes.Log || normalizerstest.Value(got[1].Text) != "failed"):
				t.Errorf("%s: %q", line, brief(got))
			case want != "":
				normalizerstest.Same(t, "code", problemCode(t, got[1]), want)
			}
		}
		golden := cursorGolden(t, "all-tools.jsonl")
		normalizerstest.Same(t, "golden", problemCode(t, golden[len(golden)-1]), "error")
	},
	// seedCursorCallIDs: that they are published is shown with a broker, in package pipeline.
	"000-13 ids that differ in white space stay apart": func(t *testing.T) {
		t.Parallel()
		var lines []string
		ids := []string{"call_x\nfc_y", "call_x fc_y"}
		for _, subtype := range []string{"started", "completed"} {
			for i, id := range ids {
				result := map[string]any{"success": map[string]any{"stdout": id, "exitCode": i}}
				b, err := json.Marshal(map[string]any{
					"type": "tool_call", "subtype": subtype, "call_id": id, "session_id": "s",
					"tool_call": map[string]any{"shellToolCall": map[string]any{"args": map[string]any{"command": "x"}, "result": result}},
				})
				if err != nil {
					t.Fatal(err)
				}
				lines = append(lines, string(b))
			}
		}
		got := cursorEvents(t, strings.Join(lines, "\n"))
		var list []string
		for _, e := range got {
			list = append(list, fmt.Sprint(e.EventType, " ", e.EventID, " of ", normalizerstest.Value(e.ToolCallID), " ", normalizerstest.Value(e.ToolName), " ", normalizerstest.Value(e.ToolExitCode)))
		}
		normalizerstest.Same(t, "events", list, []string{
			"tool_call call_x\nfc_y of call_x\nfc_y shell 0", "tool_call call_x fc_y of call_x fc_y shell 0",
			"tool_result call_x\nfc_y#result of call_x\nfc_y shell 0", "tool_result call_x fc_y#result of call_x fc_y shell 1",
		})
	},
	"000-14 a result without a call is emitted": func(t *testing.T) {
		t.Parallel()
		got := cursorEvents(t, strings.Join([]string{
			`{"type":"tool_call","subtype":"completed","call_id":"o1","tool_call":{"shellToolCall":{"result":{"success":{"stdout":"/tmp","exitCode":0}}}}}`,
			`{"type":"tool_call","subtype":"completed","call_id":"o2","tool_call":{"shellToolCall":{"result":{"failure":{"stderr":"no"}}}}}`,
		}, "\n"))
		normalizerstest.Same(t, "events", brief(got), []string{"tool_result /tmp", "tool_result no"})
		for i, want := range []envelopes.ToolStatus{envelopes.StatusSuccess, envelopes.StatusError} {
			normalizerstest.Same(t, "status", normalizerstest.Value(got[i].ToolStatus), want)
			normalizerstest.Same(t, "id", normalizerstest.Value(got[i].ToolCallID), []string{"o1", "o2"}[i])
		}
		golden := cursorGolden(t, "all-tools.jsonl")
		i := slices.IndexFunc(golden, func(e envelopes.AgentEventV1) bool { return normalizerstest.Value(e.ToolCallID) == "orphan-1" })
		if i < 0 || golden[i].EventType != envelopes.ToolResult || normalizerstest.Value(golden[i].ToolStatus) != envelopes.StatusSuccess || golden[i].ToolExitCode == nil {
			t.Errorf("golden: %q", brief(golden[max(i, 0):]))
		}
	},
	"000-23 every outcome of a tool has its status": func(t *testing.T) {
		t.Parallel()
		for result, want := range map[string]envelopes.ToolStatus{
			`{"success":{"stdout":"x"}}`:                        envelopes.StatusSuccess,
			`{"success":true}`:                                  envelopes.StatusSuccess,
			`{"success":{"exitCode":2}}`:                        envelopes.StatusError,
			`{"success":{"content":[],"isError":true}}`:         envelopes.StatusError,
			`{"success":{"pid":7},"isBackground":true}`:         envelopes.StatusInProgress,
			`{"backgrounded":{"shellId":7}}`:                    envelopes.StatusInProgress,
			`{"failure":{"stderr":"x"}}`:                        envelopes.StatusError,
			`{"error":{"errorMessage":"x"}}`:                    envelopes.StatusError,
			`{"rejected":{"reason":"x"}}`:                       envelopes.StatusError,
			`{"timeout":{"timeoutMs":5}}`:                       envelopes.StatusError,
			`{"permissionDenied":{}}`:                           envelopes.StatusError,
			`{"spawnError":{"error":"x"},"isBackground":false}`: envelopes.StatusError,
			`{"fileNotFound":{"path":"x"}}`:                     envelopes.StatusError,
			`{"files":["a"]}`:                                   envelopes.StatusSuccess,
			`{"isBackground":false}`:                            envelopes.StatusUnknown,
			`null`:                                              envelopes.StatusUnknown,
		} {
			for subtype, want := range map[string]envelopes.ToolStatus{"started": envelopes.StatusInProgress, "completed": want} {
				got := cursorEvents(t, `{"type":"tool_call","subtype":"`+subtype+`","call_id":"c","tool_call":{"shellToolCall":{"args":{},"result":`+result+`}}}`)
				if len(got) != 1 || normalizerstest.Value(got[0].ToolStatus) != want {
					t.Errorf("%s %s: %q, want %q", subtype, result, normalizerstest.Value(got[0].ToolStatus), want)
				}
			}
		}
	},
}

// cursorEvents normalizes a file of Cursor of which nothing may fail.
func cursorEvents(t *testing.T, data string) []envelopes.AgentEventV1 {
	t.Helper()
	steps := normalizerstest.Fold(normalizers.Normalize, normalizerstest.Frame(normalizerstest.FileNamed(envelopes.Cursor, "run.jsonl"), []byte(data)))
	for _, s := range steps {
		if s.Failed() {
			t.Fatalf("line %d: %v", s.Line, s.Err)
		}
	}
	return normalizerstest.Events(steps)
}

// cursorGolden normalizes a golden file; the test is skipped where there is none.
func cursorGolden(t *testing.T, name string) []envelopes.AgentEventV1 {
	t.Helper()
	return cursorEvents(t, string(normalizerstest.GoldenFile(t, "metadata", "origin", "cursor", name)))
}

// brief returns type and text of events.
func brief(list []envelopes.AgentEventV1) []string {
	var out []string
	for _, e := range list {
		out = append(out, strings.TrimSpace(string(e.EventType)+" "+normalizerstest.Value(e.Text)))
	}
	return out
}

// byType counts events.
func byType(list []envelopes.AgentEventV1) map[envelopes.EventType]int {
	out := make(map[envelopes.EventType]int)
	for _, e := range list {
		out[e.EventType]++
	}
	return out
}

// problemCode is metadata.error.code of an event, empty when it has none.
func problemCode(t *testing.T, e envelopes.AgentEventV1) string {
	t.Helper()
	if e.Metadata == nil {
		return ""
	}
	return normalizerstest.Member[string](normalizerstest.Parse(e.Metadata.Extensions["error"]), "code")
}
