package antigravitytest

import (
	"encoding/json"
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"tributary/normalizers/normalizerstest"
)

// script writes the transcript of one conversation, step by step.
type script struct {
	normalizerstest.Script

	n    int
	due  []int // steps of results that were not written yet
	rows int
}

// lines generates the lines of one conversation.
func lines(t *rapid.T, session string) [][]byte {
	s := &script{Script: normalizerstest.NewScript(t, session)}
	s.prompt()
	s.Play(s.prompt, s.planner, s.planner, s.planner, s.result, s.result, s.result, s.other, s.Repeat, s.row)
	return s.Lines
}

func (s *script) word() string {
	return s.Text("The command failed with exit code: 3", "a </USER_REQUEST> b", "7", `"q"`)
}

// step writes a step.
func (s *script) step(source, kind string, members map[string]any) {
	s.n++
	s.stepAt(s.n, source, kind, members)
}

// ofCall writes a step that may be the result of a call: of those without one yet any may be the next to end.
func (s *script) ofCall(source, kind string, members map[string]any) {
	if len(s.due) == 0 || s.Chance(10) {
		s.step(source, kind, members)
		return
	}
	i := rapid.IntRange(0, len(s.due)-1).Draw(s.T, "due")
	at := s.due[i]
	s.due = slices.Delete(s.due, i, i+1)
	s.stepAt(at, source, kind, members)
}

func (s *script) stepAt(number int, source, kind string, members map[string]any) {
	members["step_index"], members["source"], members["type"] = number, source, kind
	if members["status"] == nil {
		members["status"] = "DONE"
	}
	members["created_at"] = s.Stamp()
	s.Emit(members)
}

func (s *script) prompt() {
	if s.Chance(10) {
		s.n = max(0, s.n-3) // the conversation goes back
	}
	text := "<USER_REQUEST>\n" + s.word() + "\n</USER_REQUEST>\n<ADDITIONAL_METADATA>\nThe current local time is: 2026-03-01T09:00:00+01:00.\n</ADDITIONAL_METADATA>"
	if s.Chance(30) {
		text += "\n<USER_SETTINGS_CHANGE>\nThe user changed setting `Model Selection` from None to Gemini 3.1 Pro (High). No need to comment.\n</USER_SETTINGS_CHANGE>"
	}
	if s.Chance(20) {
		text = s.word()
	}
	m := map[string]any{"content": text}
	if s.Chance(20) {
		comments := s.OneOf("", "The user has approved this document.\n\n\n", "Selection:\n>a step\n\nComment: \"why\"\n", "Comment: \"a\n<truncated 9 bytes>\nb\"\n")
		m = map[string]any{"content": "Comments on artifact URI: file:///w/plan\n\n" + comments + s.OneOf("", text)}
	}
	if s.Chance(20) {
		m = map[string]any{"content": "<USER_REQUEST>\n" + s.Text() + "\n<truncated 70 bytes>" + s.OneOf("", "\nTA>"), "truncated_fields": []any{"content"}}
	}
	s.step("USER_EXPLICIT", "USER_INPUT", m)
}

func (s *script) planner() {
	m := map[string]any{}
	s.Maybe(50, m, map[string]any{"content": s.word()})
	s.Maybe(50, m, map[string]any{"thinking": s.word()})
	var calls []any
	for range rapid.IntRange(0, 3).Draw(s.T, "calls") {
		quoted, err := json.Marshal(s.word())
		if err != nil {
			s.T.Fatalf("encode a word: %v", err)
		}
		name := s.OneOf("run_command", "view_file", "list_dir", "write_to_file", "manage_task", "mcp_x")
		args := map[string]any{"CommandLine": string(quoted), "TargetFile": `"/w/a.go"`, "WaitMs": "500", "Bare": s.word()}
		if s.Chance(30) {
			args = map[string]any{"CommandLine": s.word(), "TargetFile": "/w/a.go", "WaitMs": 500}
		}
		s.Maybe(20, args, map[string]any{"CodeContent": "\"package a\n<truncated 9 bytes>"})
		calls = append(calls, map[string]any{"name": name, "args": args})
	}
	if calls != nil {
		m["tool_calls"] = calls
	}
	s.step("MODEL", "PLANNER_RESPONSE", m)
	for range calls {
		s.n++
		s.due = append(s.due, s.n)
	}
}

func (s *script) result() {
	kind := s.OneOf("RUN_COMMAND", "RUN_COMMAND", "VIEW_FILE", "LIST_DIRECTORY", "CODE_ACTION", "GENERIC", "READ_URL_CONTENT", "OF_A_TOOL")
	text := s.OneOf(
		"Created At: 2026-03-01T09:00:00Z\n\n\t\t\t\tThe command failed with exit code: 2\n\t\t\t\tOutput:\n\t\t\t\tno\n",
		"\n\t\t\t\tThe command exited with code 127.\n\t\t\t\tOutput:\n\t\t\t\tno\n",
		"\n\t\t\t\tThe command completed successfully.\n\t\t\t\tOutput:\n\t\t\t\tThe command failed with exit code: 9\n", "File Path: `file:///w/a.go`\n", "",
	)
	m := map[string]any{"content": text}
	if s.Chance(10) {
		m = map[string]any{}
	}
	s.Maybe(10, m, map[string]any{"status": "RUNNING", "content": "Tool is running as a background task with task id: c/task-1"})
	if s.Chance(10) {
		s.step("USER_EXPLICIT", kind, m)
		return
	}
	s.Maybe(20, m, map[string]any{"exit_code": rapid.SampledFrom([]int{0, 1, 127}).Draw(s.T, "exit")})
	s.ofCall("MODEL", kind, m)
}

func (s *script) other() {
	kind := s.OneOf("CHECKPOINT", "EPHEMERAL_MESSAGE", "SYSTEM_MESSAGE", "CONVERSATION_HISTORY", "KNOWLEDGE_ARTIFACTS", "ERROR_MESSAGE")
	m := map[string]any{"content": s.OneOf(s.word(), "{{ CHECKPOINT 0 }}\n\n# USER Objective:\nA title\n\n# User Requests\n1. x", "Error invalid tool call: no such tool", "Created At: 2026-03-01T09:00:00Z\nError invalid tool call: no such tool", "Error: model output error")}
	switch kind {
	case "CONVERSATION_HISTORY", "KNOWLEDGE_ARTIFACTS":
		s.step("SYSTEM", kind, map[string]any{})
	case "ERROR_MESSAGE":
		if s.Chance(30) {
			m = map[string]any{"error": s.OneOf("RESOURCE_EXHAUSTED (code 429): Individual quota reached.", s.word())}
		}
		s.Maybe(20, m, map[string]any{"error_code": 503})
		s.ofCall("SYSTEM", kind, m)
	default:
		s.step("SYSTEM", kind, m)
	}
}

// row writes a row of the database, and sometimes writes it again when its counts have grown.
func (s *script) row() {
	s.rows++
	thinking, text := s.Figure(), s.Figure()
	usage := map[string]any{
		"response_id": fmt.Sprint(s.Session, "-", s.rows), "input": s.Figure(), "cache_read": s.Figure(), "cache_write": s.Figure(), "output": thinking + text, "thinking": thinking,
	}
	s.Maybe(10, usage, map[string]any{"response_id": ""})
	data := map[string]any{"model": "gemini-pro-default", "model_name": s.OneOf("Gemini 3.1 Pro (High)", ""), "started_at": s.Stamp(), "usage": usage}
	if s.Chance(5) {
		delete(data, "usage")
	}
	row := map[string]any{"table": "gen_metadata", "row": map[string]any{"idx": s.rows, "data": data}}
	s.Emit(row)
	if s.Chance(20) {
		thinking += s.Figure()
		usage["thinking"], usage["output"] = thinking, thinking+text+s.Figure()
		s.Emit(row)
	}
}
