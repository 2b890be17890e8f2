package clinetest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"tributary/normalizers/normalizerstest"
)

// script writes the files of one task, which are rewritten as they grow.
type script struct {
	normalizerstest.Script

	shown, sent []any
	calls       int
	protocol    bool // requests state their protocol, and the messages sent have no tokens
}

// lines generates the versions of the files of one session, each on a line: of a task, or the document of a session.
func lines(t *rapid.T, session string) [][]byte {
	s := &script{Script: normalizerstest.NewScript(t, session)}
	isDocument := s.Chance(25)
	s.protocol = s.Chance(40) && !isDocument
	s.prompt()
	moves := []func(){s.prompt, s.answer, s.answer, s.native, s.native, s.headed, s.old, s.asked, s.note, s.note}
	if isDocument {
		moves = []func(){s.prompt, s.answer, s.native, s.native}
	}
	for range rapid.IntRange(0, 12).Draw(t, "moves") {
		rapid.SampledFrom(moves).Draw(t, "move")()
		if s.Chance(40) {
			s.save(isDocument)
		}
	}
	s.save(isDocument)
	return s.Lines
}

// save writes one of the files, or both in any order.
func (s *script) save(isDocument bool) {
	switch {
	case isDocument:
		s.Emit(map[string]any{"version": 1, "updated_at": s.Stamp(), "agent": s.OneOf("lead", "lead", "helper"), "sessionId": s.Session, "messages": s.sent})
	default:
		files := [][]any{s.shown, s.sent}
		if s.Chance(50) {
			slices.Reverse(files)
		}
		for _, f := range files[:rapid.IntRange(1, 2).Draw(s.T, "files")] {
			s.Emit(f)
		}
	}
	if s.Chance(20) {
		s.EmitValue(s.OneOf("string", "number", "array", "empty", "null", "again"))
	}
}

func (s *script) word() string {
	return s.OneOf("fix the test", "yes", "look at @/src/a.go", "two\nlines \u2028 \U0001F642", "{", "<b>", "Exit code: 3", "", "  ")
}

// show adds a message shown to the human; kind is say or ask.
func (s *script) show(kind, name, text string, more ...any) {
	s.Stamp()
	m := map[string]any{"ts": s.Now.UnixMilli() + int64(len(s.shown))*10_000, "type": kind, kind: name, "text": text}
	for i := 0; i < len(more); i += 2 {
		m[more[i].(string)] = more[i+1]
	}
	s.shown = append(s.shown, m)
}

// send adds a message of the conversation with the model.
func (s *script) send(role string, more map[string]any, content ...any) {
	m := map[string]any{"id": fmt.Sprintf("m%d", len(s.sent)), "role": role, "content": content}
	if s.Chance(80) {
		m["ts"] = s.Now.UnixMilli() + int64(len(s.sent))*10_000
	}
	maps.Copy(m, more)
	s.sent = append(s.sent, m)
}

func block(text string) map[string]any { return map[string]any{"type": "text", "text": text} }

// environment is the text that Cline adds to a message under the user's name.
var environment = block("<environment_details>\n# Current Working Directory (/home/ada/app) Files\n</environment_details>")

func compact(v any) string {
	b, _ := json.Marshal(v) // never fails
	return string(b)
}

func (s *script) prompt() {
	text := s.word()
	if len(s.shown) == 0 {
		s.show("say", s.OneOf("task", "text"), text, "images", []any{})
		s.send("user", nil, block("<task>\n"+text+"\n</task>"), environment)
		return
	}
	s.show("say", "user_feedback", text)
	s.send("user", nil, block("<feedback>\n"+strings.ReplaceAll(text, "@/src/a.go", "'src/a.go' (see below for file content)")+"\n</feedback>"))
}

// request adds an API call to the messages shown, and returns its tokens for the message sent.
func (s *script) request() map[string]any {
	in, out, read, cost := s.Figure(), s.Figure(), s.Figure(), float64(s.Figure())/1000
	text := map[string]any{"request": "x", "tokensIn": in, "tokensOut": out, "cacheReads": read, "cacheWrites": s.Figure(), "cost": cost}
	if s.protocol {
		text["apiProtocol"] = "anthropic"
		if s.Chance(70) { // else of a version that states the input without the cache
			text["tokensIn"] = in + read + 11_480
		}
	}
	if s.Chance(10) {
		text = map[string]any{"request": "x"}
	}
	s.show("say", "api_req_started", compact(text))
	if s.protocol {
		return map[string]any{"metrics": map[string]any{}}
	}
	return map[string]any{
		"modelInfo": map[string]any{"id": "m1", "modelId": "m1"},
		"metrics": map[string]any{
			"tokens": map[string]any{"prompt": in, "completion": out, "cached": read}, "cost": cost,
			"inputTokens": in + read, "outputTokens": out, "cacheReadTokens": read,
		},
	}
}

func (s *script) answer() {
	more, text := s.request(), s.word()
	if s.Chance(50) {
		delete(more["metrics"].(map[string]any), "outputTokens")
		delete(more["metrics"].(map[string]any), "inputTokens")
	}
	s.show("say", "reasoning", "thinks")
	s.show("say", "text", text)
	s.send("assistant", more, map[string]any{"type": "thinking", "thinking": "thinks"}, block(text))
}

// native adds a call with an id, and its result.
func (s *script) native() {
	s.calls++
	id, out := fmt.Sprintf("%s-call%d", s.Session, s.calls), s.word()
	more := s.request()
	var use map[string]any
	switch s.OneOf("command", "read", "edit", "mcp", "done") {
	case "command":
		command := s.OneOf("ls", "go test ./...")
		s.show("ask", "command", command)
		if s.Chance(20) {
			s.show("say", "command", command)
		}
		s.show("say", "command_output", out)
		s.show("say", "command_output", "more")
		use = map[string]any{"name": "execute_command", "input": map[string]any{"command": command}}
		out = s.OneOf("Command executed in terminal within working directory '/w'. Exit code: 0\nOutput:\n", "Command executed in terminal . Command execution was not successful, inspect the cause and adjust as needed.\nExit code: 127\nOutput:\nExit code: 5", "[Command exited with code 3]\n") + out
	case "read":
		s.show("say", "tool", compact(map[string]any{"tool": "readFile", "path": "src/a.go", "content": "/w/src/a.go"}))
		use = map[string]any{"name": "read_file", "input": map[string]any{"path": "./src/a.go"}}
	case "edit":
		s.show("ask", "tool", compact(map[string]any{"tool": "editedExistingFile", "path": "src/a.go", "diff": "x"}))
		use = map[string]any{"name": s.OneOf("replace_in_file", "write_to_file"), "input": map[string]any{"path": "src/a.go", "diff": "x"}}
		out = s.OneOf(out, `{"status":"denied","feedback":"not this"}`)
		if strings.Contains(out, "not this") {
			s.show("say", "user_feedback", "not this")
		}
	case "mcp":
		s.show("ask", "use_mcp_server", compact(map[string]any{"type": "use_mcp_tool", "serverName": "s", "toolName": "t", "arguments": "{}"}))
		s.show("say", "mcp_server_response", out)
		use = map[string]any{"name": "use_mcp_tool", "input": map[string]any{"server_name": "s", "tool_name": "t", "arguments": "{}"}}
	case "done":
		s.show("say", "completion_result", "all done")
		use = map[string]any{"name": "attempt_completion", "input": map[string]any{"result": "all done"}}
	}
	use["type"], use["id"] = "tool_use", id
	s.send("assistant", more, use)
	var content any = out
	if s.Chance(50) {
		content = []any{block(out)}
	}
	s.send("user", nil, map[string]any{"type": "tool_result", "tool_use_id": id, "content": content}, environment)
}

// headed adds calls with ids, and their results, which begin with a header: each a text or a tool_result.
func (s *script) headed() {
	more := s.request()
	var uses, results []any
	for range rapid.IntRange(1, 3).Draw(s.T, "parallel") {
		s.calls++
		id, file := fmt.Sprintf("%s-call%d", s.Session, s.calls), s.OneOf("a.go", "b.go")
		name, input, header, out := "read_file", map[string]any{"path": file}, "read_file for '"+file+"'", "1 | package a"
		switch s.OneOf("command", "read", "read", "write", "subagent", "served") {
		case "command":
			command := s.OneOf("ls", "make")
			s.show("ask", "command", command)
			name, input, header = "execute_command", map[string]any{"command": command}, "execute_command for '"+command+"'"
			out = s.OneOf("Command executed successfully (exit code 0).", "Command failed with exit code 255.\nOutput:\nx",
				"Command terminated by signal SIGINT.", "Command timed out after 30 seconds. Running in background.\n", "Command failed with exit code 1. So it goes")
		case "read":
			s.show("say", "tool", compact(map[string]any{"tool": "readFile", "path": "src/" + file}))
		case "write":
			s.show("ask", "tool", compact(map[string]any{"tool": "newFileCreated", "path": "src/" + file}))
			at := `c:\w\src\` + file
			name, input, header = "write_to_file", map[string]any{"absolutePath": at}, "write_to_file for '"+at+"'"
			out = "The user denied this operation.\n<feedback>\nnot this\n</feedback>"
			s.show("say", "user_feedback", "not this")
		case "subagent":
			name, header = s.OneOf("use_subagents", "use_subagent_finder"), s.OneOf("subagents", "subagent: Finder")
		case "served":
			s.show("say", "use_mcp_server", compact(map[string]any{"type": "use_mcp_tool", "serverName": "s", "toolName": "t"}))
			name, input, header = "s10mcp0t", map[string]any{"q": file}, "use_mcp_tool for 's'"
		}
		uses = append(uses, map[string]any{"type": "tool_use", "id": id, "name": name, "input": input})
		text := "[" + header + "] Result:\n" + out
		switch s.OneOf("text", "text", "result", "none") {
		case "text":
			results = append(results, block(text))
		case "result":
			results = append(results, map[string]any{"type": "tool_result", "tool_use_id": id, "content": text})
		}
	}
	s.send("assistant", more, uses...)
	reminder := s.OneOf("\n\n\t# TODO LIST UPDATE REQUIRED - now", "\n# task_progress RECOMMENDED\n",
		"Files attached by the user:\n\n<file_content path=\"a\">\nx\n</file_content>")
	s.send("user", nil, append(results, block(reminder), environment)...)
}

// old adds a call of the earlier protocol, which is an element of the answer.
func (s *script) old() {
	command, out := s.OneOf("ls", "make"), s.word()
	s.request()
	s.show("say", "text", "I look.")
	s.show("say", "command", command)
	s.show("say", "command_output", out)
	s.send("assistant", nil, block("<thinking>\nI look.\n</thinking>\n<execute_command>\n<command>"+command+"</command>\n</execute_command>"))
	s.send("user", nil, block("[execute_command for '"+command+"'] Result:"), block("Command executed.\nOutput:\n"+out), environment)
}

// asked adds a question and its answer.
func (s *script) asked() {
	reply := s.OneOf("blue", "red")
	s.show("ask", "followup", compact(map[string]any{"question": "Which colour?", "suggest": []any{}}))
	s.show("say", "user_feedback", reply)
	s.send("assistant", nil, map[string]any{"type": "tool_use", "id": fmt.Sprint(s.Session, "-ask", len(s.sent)), "name": "ask_followup_question", "input": map[string]any{"question": "Which colour?"}})
	s.send("user", nil, block("<answer>\n"+reply+"\n</answer>"))
}

func (s *script) note() {
	switch name := s.OneOf("checkpoint_created", "error", "info", "condense_context", "deleted_api_reqs", "partial", "image", "orphan"); name {
	case "partial":
		s.show("say", "text", "begin", "partial", true)
		s.send("assistant", nil, block("begin"))
	case "image":
		s.show("say", "user_feedback", "", "images", []any{"data:image/png;base64,AA=="})
		s.send("user", nil, map[string]any{"type": "image", "source": map[string]any{"data": "AA=="}})
	case "orphan":
		s.send("user", nil, map[string]any{"type": "tool_result", "tool_use_id": fmt.Sprint(s.Session, "-lost", len(s.sent)), "content": s.word()})
	case "deleted_api_reqs":
		s.show("say", name, compact(map[string]any{"tokensIn": 5, "tokensOut": 7, "cost": 0.25}))
	case "condense_context":
		s.show("say", name, "", "contextCondense", map[string]any{"summary": "So far.", "cost": 0.5})
	default:
		s.show("say", name, s.word())
	}
}
