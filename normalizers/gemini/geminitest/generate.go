package geminitest

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"pgregory.net/rapid"

	"tributary/normalizers/normalizerstest"
)

// geminiScript writes the file of one session of Gemini CLI, record by record, in the shapes of README.md: well
// formed, in any order, with lines of its other files among them.
type geminiScript struct {
	normalizerstest.Script

	n        int              // number of ids
	messages []map[string]any // in their current form
	run      map[string]int   // figures of the stream
}

// lines generates the lines of one session.
func lines(t *rapid.T, session string) [][]byte {
	s := &geminiScript{Script: normalizerstest.NewScript(t, session), run: make(map[string]int)}
	s.header()
	moves := []func(){
		s.user, s.user, s.user, s.answer, s.answer, s.answer, s.grow, s.grow, s.grow, s.responses, s.responses,
		s.heartbeat, s.history, s.again, s.patch, s.rewind, s.notice, s.prompt, s.prompt, s.document, s.checkpoint,
		s.stream, s.stream, s.stream, s.output, s.other, s.header, s.export,
	}
	for range rapid.IntRange(1, 30).Draw(t, "records") {
		rapid.SampledFrom(moves).Draw(t, "move")()
	}
	return s.Lines
}

// geminiTyped are texts that matter to a rule, and some that do not.
var geminiTyped = []string{
	"fix the test", "yes", "  \n", "", "what is \"this\"?\n\ttwo lines \u2028 \U0001F642", "/chat save x", "?", "/tmp/x is full",
	"<session_context>\nThis is the Gemini CLI.\n</session_context>", "<hook_context>be brief</hook_context>",
	"<scratchpad>\nAll is noted.\n</scratchpad>\n\n<state_snapshot>\n</state_snapshot>", "<state_snapshot>x", "System: Please continue.",
	"I ran the following shell command:\n```sh\nls\n```\n\nThis produced the following result:\n```\na\n```",
	"User steering update:\n<user_input>\nuse tabs\n</user_input>\nInternal instruction: x", "Exit Code: 7", "<",
	"System: Potential loop detected. Details: x", "Please continue.", "- **Workspace Directories:**\n  - /home/dev/app",
	"User steering update:\n<user_input>\n[Background command completed successfully.]\n</user_input>", "User has manually exited Plan Mode. Switching to x",
}

func (s *geminiScript) word() string {
	if rapid.IntRange(0, 9).Draw(s.T, "free text") == 0 {
		return rapid.String().Draw(s.T, "text")
	}
	return rapid.SampledFrom(geminiTyped).Draw(s.T, "word")
}

func (s *geminiScript) id(prefix string) string {
	s.n++
	return fmt.Sprintf("%s-%s%d", s.Session, prefix, s.n)
}

// export writes what Gemini CLI exports by OpenTelemetry.
func (s *geminiScript) export() {
	a := normalizerstest.Attributes{"session.id": s.Session, "event.timestamp": s.Stamp(), "model": "gemini-2.5-flash", "prompt_id": s.Session + "########1"}
	name := s.OneOf("user_prompt", "api_response", "api_response", "tool_call", "api_error", "of_tomorrow")
	a["event.name"] = "gemini_cli." + name
	switch name {
	case "user_prompt":
		if s.Chance(80) {
			a["prompt"] = s.word()
		}
	case "api_response":
		a["role"] = s.OneOf("main", "main", "utility_router")
		part := s.OneOf(`{"text":"ok"}`, fmt.Sprintf(`{"functionCall":{"id":%q,"name":"glob","args":{"pattern":"*"}}}`, s.id("oc")))
		a["response_text"] = `[{"candidates":[{"content":{"parts":[` + part + `]}}]}]`
		for _, of := range []string{"input", "output", "cached_content", "thoughts", "tool"} {
			a[of+"_token_count"] = int64(rapid.SampledFrom([]int{0, 3, 57, 11_480}).Draw(s.T, of))
		}
	case "tool_call":
		a["function_name"], a["function_args"], a["decision"] = "glob", `{"pattern": "*"}`, s.OneOf("accept", "reject")
		a["success"], a["duration_ms"] = s.Chance(50), int64(12)
	case "api_error":
		a["error.message"], a["status_code"] = "quota", int64(429)
	}
	s.Lines = append(s.Lines, normalizerstest.ExportedLog("gemini-cli", "gemini-cli", time.Time{}, a))
}

func (s *geminiScript) header() {
	h := map[string]any{"sessionId": s.Session, "projectHash": s.OneOf("a1", strings.Repeat("0f", 32)), "startTime": s.Stamp(), "lastUpdated": s.Stamp()}
	if s.Chance(80) {
		h["kind"] = s.OneOf("main", "main", "main", "subagent")
	}
	if s.Chance(10) {
		h["summary"] = "Fixed the tests"
	}
	s.Emit(h)
}

// content returns a text in one of the forms of content.
func (s *geminiScript) content(text string) any {
	switch rapid.IntRange(0, 4).Draw(s.T, "form") {
	case 0:
		return text
	case 1:
		return map[string]any{"text": text}
	case 2:
		half := len([]rune(text)) / 2
		return []any{map[string]any{"text": string([]rune(text)[:half])}, string([]rune(text)[half:])}
	default:
		return []any{map[string]any{"text": text}}
	}
}

func (s *geminiScript) keep(m map[string]any) {
	s.messages = append(s.messages, m)
	s.Emit(m)
}

func (s *geminiScript) user() {
	text := s.word()
	m := map[string]any{"id": s.id("u"), "timestamp": s.Stamp(), "type": "user", "content": s.content(text)}
	switch rapid.IntRange(0, 9).Draw(s.T, "mark") {
	case 0:
		m["content"] = []any{map[string]any{"text": text}, map[string]any{"text": "\n<hook_context>x</hook_context>"}}
	case 1:
		m["displayContent"] = s.content(s.word())
	case 2:
		m["content"] = []any{map[string]any{"inlineData": map[string]any{"mimeType": "image/png", "data": strings.Repeat("iVBORw0K", rapid.SampledFrom([]int{1, 1000}).Draw(s.T, "size"))}}}
	}
	s.keep(m)
}

func (s *geminiScript) answer() {
	m := map[string]any{
		"id": s.id("g"), "timestamp": s.Stamp(), "type": s.OneOf("gemini", "gemini", "gemini", "model"), "content": s.OneOf("", "", "Done.", "ok", "I will look."),
		"thoughts": s.thoughts(), "tokens": nil, "model": s.OneOf("gemini-3.5-flash", "gemini-2.5-pro"),
	}
	if s.Chance(60) {
		m["tokens"] = s.tokens(nil)
	}
	if s.Chance(30) {
		m["toolCalls"] = s.calls()
	}
	if s.Chance(10) {
		m["content"] = []any{
			map[string]any{"text": "**Looking** at it.", "thought": true},
			map[string]any{"text": "ok"},
			map[string]any{"functionCall": map[string]any{"id": s.id("fc"), "name": "glob", "args": map[string]any{"pattern": "*"}}},
		}
	}
	s.keep(m)
}

func (s *geminiScript) thoughts() []any {
	var out []any
	for range rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(s.T, "thoughts") {
		out = append(out, map[string]any{"subject": s.OneOf("Looking", ""), "description": s.OneOf("at the test", ""), "timestamp": s.Stamp()})
	}
	return out
}

// tokens returns the last figures or larger ones; half of the input comes from a cache.
func (s *geminiScript) tokens(last map[string]any) map[string]any {
	next := map[string]any{}
	sum := 0
	for _, name := range []string{"input", "output", "thoughts", "tool"} {
		v, _ := last[name].(int)
		v += rapid.SampledFrom([]int{0, 1, 57, 11_480}).Draw(s.T, name)
		next[name] = v
		sum += v
	}
	next["cached"], next["total"] = next["input"].(int)/2, sum
	return next
}

func (s *geminiScript) calls() []any {
	args := map[string]any{
		"run_shell_command": map[string]any{"command": "go test ./...", "description": "Run the tests"}, "read_file": map[string]any{"file_path": "main.go"},
		"write_file": map[string]any{"file_path": "new.py", "content": "x"}, "replace": map[string]any{"file_path": "main.go", "old_string": "a", "new_string": "b"},
		"list_directory": map[string]any{"dir_path": "."}, "read_many_files": map[string]any{"paths": []any{"a.go", "b.go"}}, "mcp_thing": "a text",
	}
	var out []any
	for range rapid.SampledFrom([]int{1, 1, 2}).Draw(s.T, "calls") {
		name := s.OneOf("run_shell_command", "run_shell_command", "read_file", "write_file", "replace", "list_directory", "read_many_files", "mcp_thing")
		c := map[string]any{"id": s.id("c"), "name": name, "args": args[name], "status": s.OneOf("executing", "awaiting_approval", "scheduled"), "timestamp": s.Stamp()}
		if s.Chance(60) {
			s.finish(c)
		}
		out = append(out, c)
	}
	return out
}

// finish gives a call its result.
func (s *geminiScript) finish(c map[string]any) {
	output := s.OneOf(
		"Output: ok\nProcess Group PGID: 7", "Output: (empty)\nExit Code: 1\nProcess Group PGID: 7", "a file",
		"Command: x\nDirectory: (root)\nOutput: Exit Code: 3\nExit Code: 4\nError: (none)\nExit Code: 0\nSignal: 0",
		"Command: x\nOutput: y\nExit Code: (none)\nSignal: 9", "Exit Code: 5\nand more", "Command moved to background (PID: 7). Output hidden.",
	)
	c["status"] = s.OneOf("success", "success", "success", "error", "cancelled")
	response := map[string]any{"output": output}
	if c["status"] != "success" {
		response = map[string]any{"error": "it failed"}
	}
	c["result"] = []any{map[string]any{"functionResponse": map[string]any{"id": c["id"], "name": c["name"], "response": response}}}
	switch rapid.IntRange(0, 5).Draw(s.T, "display") {
	case 0:
		c["resultDisplay"] = s.OneOf("", "Found 2 matches", "Command exited with code: 1")
	case 1:
		c["resultDisplay"] = map[string]any{"summary": "Listed 1 item(s).", "files": []any{"a"}}
	case 2:
		c["resultDisplay"] = map[string]any{"fileDiff": "--- a", "fileName": "new.py", "filePath": "/home/dev/new.py", "isNewFile": s.Chance(50)}
	case 3:
		c["resultDisplay"] = []any{[]any{map[string]any{"text": "ok   ", "bold": false}}, []any{}}
	case 4:
		c["result"] = s.OneOf("a bare result", "")
	}
}

// grow writes the last answer again with more content.
func (s *geminiScript) grow() {
	var m map[string]any
	for _, o := range s.messages {
		if _, ok := o["tokens"]; ok {
			m = maps.Clone(o)
		}
	}
	if m == nil {
		return
	}
	last, _ := m["tokens"].(map[string]any)
	if s.Chance(60) {
		m["tokens"] = s.tokens(last)
	}
	calls, _ := m["toolCalls"].([]any)
	calls = append([]any(nil), calls...)
	for i, c := range calls {
		if c, ok := c.(map[string]any); ok && c["result"] == nil && s.Chance(70) {
			c = maps.Clone(c)
			s.finish(c)
			calls[i] = c
		}
	}
	if len(calls) == 0 || s.Chance(20) {
		calls = append(calls, s.calls()...)
	}
	m["toolCalls"] = calls
	if s.Chance(20) {
		m["content"] = s.OneOf("Done.", "Done, and tested.")
	}
	for i, o := range s.messages {
		if o["id"] == m["id"] {
			s.messages[i] = m
		}
	}
	s.Emit(m)
}

// responses returns the results of the last calls in the form of the API.
func (s *geminiScript) responses() {
	var parts []any
	for _, m := range s.messages {
		calls, _ := m["toolCalls"].([]any)
		for _, c := range calls {
			if c, ok := c.(map[string]any); ok && s.Chance(60) {
				parts = append(parts, map[string]any{"functionResponse": map[string]any{"id": c["id"], "name": c["name"], "response": map[string]any{"output": "Output: ok\nExit Code: 2"}}})
			}
		}
	}
	if s.Chance(10) {
		parts = append(parts, map[string]any{"text": "and mind the tabs"})
	}
	if len(parts) == 0 {
		return
	}
	s.keep(map[string]any{"id": s.id("r"), "timestamp": s.Stamp(), "type": "user", "content": parts})
}

func (s *geminiScript) heartbeat() {
	s.Emit(map[string]any{"$set": map[string]any{"lastUpdated": s.Stamp()}})
}

// history writes earlier messages again, some under new ids, and some new ones.
func (s *geminiScript) history() {
	var list []any
	for _, m := range s.messages {
		if s.Chance(30) {
			continue
		}
		m = maps.Clone(m)
		if text, ok := m["content"].(string); ok {
			m["content"] = []any{map[string]any{"text": text}}
		}
		if s.Chance(20) {
			m["id"] = s.id("h")
		}
		list = append(list, m)
	}
	if s.Chance(50) {
		list = append([]any{map[string]any{"id": s.id("h"), "timestamp": s.Stamp(), "type": s.OneOf("user", "gemini"), "content": s.content(s.word())}}, list...)
	}
	s.Emit(map[string]any{"$set": map[string]any{"messages": list, "lastUpdated": s.Stamp()}})
}

// again writes the history again as lines with new ids, and then as a list. Neighbours of one side are joined.
func (s *geminiScript) again() {
	context := map[string]any{"text": "<session_context>\nThis is the Gemini CLI.\n</session_context>"}
	list := []map[string]any{{"id": s.id("a"), "timestamp": s.Stamp(), "type": "user", "content": []any{context}}}
	add := func(side string, parts []any) {
		if last := list[len(list)-1]; last["type"] == side {
			old, _ := last["content"].([]any)
			last["content"] = append(old, parts...)
			return
		}
		list = append(list, map[string]any{"id": s.id("a"), "timestamp": s.Stamp(), "type": side, "content": parts})
	}
	for _, m := range s.messages {
		parts := append([]any(nil), geminiContent(m["content"])...)
		if len(parts) > 8 { // the number of texts that are looked up one by one is limited
			continue
		}
		calls, _ := m["toolCalls"].([]any)
		var results []any
		for _, c := range calls {
			parts = append(parts, map[string]any{"functionCall": map[string]any{"id": normalizerstest.Member[any](c, "id"), "name": normalizerstest.Member[any](c, "name"), "args": normalizerstest.Member[any](c, "args")}})
			results = append(results, geminiContent(normalizerstest.Member[any](c, "result"))...)
		}
		switch kind := geminiKind(m); {
		case kind != "user" && kind != "gemini" || s.Chance(20):
		case len(results) > 0:
			add(kind, parts)
			add("user", results)
		case len(parts) > 0:
			add(kind, parts)
		}
	}
	for i, m := range list {
		if m["type"] == "gemini" {
			m["thoughts"], m["tokens"] = []any{}, nil
		}
		if i > 0 || s.Chance(80) {
			s.Emit(m)
		}
		switch rapid.IntRange(0, 5).Draw(s.T, "between") {
		case 0:
			s.heartbeat()
		case 1:
			s.prompt()
		}
	}
	s.messages = list
	if s.Chance(80) {
		s.Emit(map[string]any{"$set": map[string]any{"messages": list, "lastUpdated": s.Stamp()}})
	}
}

func (s *geminiScript) patch() {
	set := map[string]any{"lastUpdated": s.Stamp()}
	switch s.OneOf("summary", "scratchpad", "directories", "session", "kind", "new", "none") {
	case "summary":
		set["summary"] = s.OneOf("Fixed the tests", "Looked around")
	case "scratchpad":
		set["memoryScratchpad"] = map[string]any{"version": 1, "toolSequence": []any{"read_file"}}
	case "directories":
		set["directories"] = []any{"/home/dev/app", 7}
	case "session":
		set["sessionId"] = s.Session
	case "kind":
		set["kind"] = s.OneOf("main", "subagent")
	case "new":
		set["ofTomorrow"] = s.word()
	}
	s.Emit(map[string]any{"$set": set})
}

func (s *geminiScript) rewind() {
	s.Emit(map[string]any{"$rewindTo": s.id("u")})
}

func (s *geminiScript) notice() {
	kind := s.OneOf("info", "warning", "error", "of_tomorrow")
	text := s.OneOf("Request cancelled.", "", "[API Error: {\"error\":{\"code\":429,\"message\":\"slow down\",\"status\":\"RESOURCE_EXHAUSTED\"}}]", "[API Error: {]")
	s.keep(map[string]any{"id": s.id("n"), "timestamp": s.Stamp(), "type": kind, "content": text})
}

// prompt writes the session's entry of logs.json, as a line or as a list.
func (s *geminiScript) prompt() {
	line := map[string]any{"sessionId": s.Session, "messageId": rapid.IntRange(0, 5).Draw(s.T, "number"), "type": "user", "message": s.OneOf("fix the test", "yes", "/chat save x"), "timestamp": s.Stamp()}
	if s.Chance(50) {
		s.Emit(line)
		return
	}
	other := maps.Clone(line)
	other["sessionId"], other["messageId"] = s.Session+"-other", 9
	s.Emit([]any{line, other})
}

// document writes the whole session in one, in the form that preceded lines.
func (s *geminiScript) document() {
	var list []any
	for _, m := range s.messages {
		list = append(list, m)
	}
	doc := map[string]any{"sessionId": s.Session, "projectHash": "a1", "startTime": s.Stamp(), "lastUpdated": s.Stamp(), "messages": list}
	if s.Chance(30) {
		doc["summary"] = s.OneOf("Fixed the tests", "Looked around")
	}
	s.Emit(doc)
}

// checkpoint writes a saved conversation; half of its calls have no id.
func (s *geminiScript) checkpoint() {
	call := map[string]any{"name": "glob", "args": map[string]any{"pattern": "*"}}
	response := map[string]any{"name": "glob", "response": map[string]any{"output": "Found 1 file"}}
	if id := s.id("k"); s.Chance(70) {
		response["id"] = id
		if s.Chance(50) {
			call["id"] = id
		}
	}
	list := []any{
		map[string]any{"role": "user", "parts": []any{map[string]any{"text": s.word()}}},
		map[string]any{"role": "model", "parts": []any{map[string]any{"text": "Looking", "thought": true}, map[string]any{"text": "ok"}, map[string]any{"functionCall": call}}},
		map[string]any{"role": "user", "parts": []any{map[string]any{"functionResponse": response}}},
		map[string]any{"of": "tomorrow"},
	}
	if s.Chance(30) {
		s.Emit(map[string]any{"history": list, "authType": "oauth"})
		return
	}
	s.Emit(list)
}

// stream writes a line of --output-format stream-json.
func (s *geminiScript) stream() {
	line := map[string]any{"timestamp": s.Stamp()}
	kind := s.OneOf("init", "user", "delta", "delta", "delta", "whole", "tool_use", "tool_result", "error", "warning", "result")
	line["type"] = kind
	switch kind {
	case "init":
		s.run = make(map[string]int)
		line["session_id"], line["model"] = s.Session, "gemini-3.5-flash"
	case "user", "delta", "whole":
		line["type"], line["role"], line["content"] = "message", "assistant", s.OneOf("Let me ", "look.", "\n", "Done.")
		switch kind {
		case "user":
			line["role"] = "user"
		case "delta":
			line["delta"] = true
		}
	case "tool_use":
		line["tool_name"], line["tool_id"], line["parameters"] = "run_shell_command", s.id("t"), map[string]any{"command": "ls"}
	case "tool_result":
		line["tool_id"], line["status"] = fmt.Sprintf("%s-t%d", s.Session, s.n), "success"
		if s.Chance(40) {
			line["status"], line["error"] = "error", map[string]any{"type": "TOOL_EXECUTION_ERROR", "message": "no such file"}
		} else {
			line["output"] = s.OneOf("a\nb", "", "Command exited with code: 2")
		}
	case "error", "warning":
		line["type"], line["severity"], line["message"] = "error", kind, "Maximum session turns exceeded"
	case "result":
		line["status"] = s.OneOf("success", "error")
		if line["status"] == "error" {
			line["error"] = map[string]any{"type": "FatalError", "message": "it failed"}
		}
		for _, name := range []string{"in", "out", "think"} {
			s.run[name] += rapid.SampledFrom([]int{0, 57, 11_480}).Draw(s.T, name)
		}
		line["stats"] = map[string]any{
			"total_tokens": s.run["in"] + s.run["out"] + s.run["think"], "input_tokens": s.run["in"], "output_tokens": s.run["out"], "cached": s.run["in"] / 2,
			"duration_ms": 1200, "tool_calls": 1, "models": map[string]any{},
		}
	}
	s.Emit(line)
}

// output writes the output of --output-format json.
func (s *geminiScript) output() {
	figures := map[string]any{"prompt": 100, "candidates": 20, "cached": 50, "thoughts": 7, "tool": 3, "total": 130}
	out := map[string]any{"session_id": s.Session, "stats": map[string]any{"models": map[string]any{"a": map[string]any{"tokens": figures}, "b": map[string]any{"tokens": figures}}}}
	if s.Chance(70) {
		out["response"] = "Done."
	} else {
		out["error"] = map[string]any{"type": "ApiError", "message": "it failed", "code": 41}
	}
	s.Emit(out)
}

// other writes unknown records, and values that are no object.
func (s *geminiScript) other() {
	switch kind := s.OneOf("unknown", "silly", "string", "number", "array", "empty", "null", "again"); kind {
	case "unknown":
		s.Emit(map[string]any{"type": "hologram", "timestamp": s.Stamp(), "depth": 3})
	case "silly":
		s.Emit(map[string]any{"silly": "this"})
	default:
		s.EmitValue(kind)
	}
}
