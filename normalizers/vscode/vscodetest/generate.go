package vscodetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"tributary/normalizers/normalizerstest"
)

// maxRequests is how many requests a generated session has at most.
const maxRequests = 8

// script writes the journal of one session, and sometimes the whole of it as a document.
type script struct {
	normalizerstest.Script

	n        int
	isOld    bool     // calls have ids of the editor's own
	prompts  bool     // the telemetry states texts of prompts
	future   []string // calls that a result has and the answer does not show yet
	forked   int64    // when the chat was forked from another one; 0 for none
	requests []map[string]any
	stopped  map[string]bool // requests
}

// lines generates the records of one session.
func lines(t *rapid.T, session string) [][]byte {
	s := &script{Script: normalizerstest.NewScript(t, session), stopped: make(map[string]bool)}
	s.isOld, s.prompts = s.Chance(30), s.Chance(70)
	if s.Chance(20) {
		s.fork()
	}
	s.whole()
	moves := []func(){s.push, s.push, s.answer, s.answer, s.answer, s.rewrite, s.result, s.result, s.settle, s.settle, s.stop, s.other, s.whole, s.again, s.export, s.export}
	for range rapid.IntRange(1, 25).Draw(t, "records") {
		rapid.SampledFrom(moves).Draw(t, "move")()
	}
	return s.Lines
}

func (s *script) word() string {
	return s.OneOf("fix the test", "yes", "  \n", "", "two\nlines \u2028 \U0001F642", "\n```\n", "ERROR while calling tool: x", "{")
}

func (s *script) number(name string) int {
	return rapid.SampledFrom([]int{0, 1, 57, 11_480}).Draw(s.T, name)
}

// whole writes the session as a document, or as the first entry of a journal.
func (s *script) whole() {
	v := map[string]any{
		"version": 3, "sessionId": s.Session, "creationDate": s.Now.UnixMilli(), "responderUsername": "GitHub Copilot",
		"initialLocation": "panel", "requests": append([]map[string]any{}, s.requests...),
	}
	if s.forked != 0 {
		v["creationDate"] = s.forked
	}
	if s.Chance(30) {
		v["customTitle"] = s.word()
	}
	if s.Chance(50) {
		s.Emit(v)
		return
	}
	s.Emit(map[string]any{"kind": 0, "v": v})
}

// fork begins the chat with requests of another one.
func (s *script) fork() {
	s.Stamp()
	s.forked = s.Now.UnixMilli()
	for i := range rapid.IntRange(1, 3).Draw(s.T, "copies") {
		q := map[string]any{
			"requestId": fmt.Sprintf("%08d-0000-4000-9000-000000000000", i), "timestamp": s.forked + int64(i),
			"message":  map[string]any{"text": s.word()},
			"response": s.parts(), "modelState": map[string]any{"value": 1, "completedAt": s.forked + int64(i)},
			"promptTokens": s.number("input"), "completionTokens": s.number("output"), "copilotCredits": 0.25,
			"result": map[string]any{"metadata": map[string]any{"toolCallRounds": []any{map[string]any{"response": s.word()}}}},
		}
		if s.Chance(20) {
			q["message"], q["variableData"] = map[string]any{"text": ""}, map[string]any{"variables": []any{map[string]any{"id": "x"}}}
		}
		s.requests = append(s.requests, q)
	}
}

// isCopied reports whether a request is one of the other chat, whose state no longer changes.
func (s *script) isCopied(q map[string]any) bool {
	return s.forked != 0 && strings.HasSuffix(text(q, "requestId"), "-9000-000000000000")
}

func (s *script) push() {
	if len(s.requests) == maxRequests {
		return
	}
	s.n++
	s.Stamp()
	q := map[string]any{
		"requestId": fmt.Sprintf("request_%s-%d", s.Session, s.n), "timestamp": s.Now.UnixMilli(), "message": map[string]any{"text": s.word(), "parts": []any{}},
		"modelId": s.OneOf("copilot/gpt-5.1", "copilot/auto", ""), "response": s.parts(), "modelState": map[string]any{"value": 0},
		"variableData": map[string]any{"variables": []any{}},
	}
	if s.Chance(20) {
		q["message"] = map[string]any{"text": "@workspace /fix " + s.word(), "parts": []any{
			map[string]any{"kind": "agent"}, map[string]any{"kind": "subcommand", "command": "fix"}, map[string]any{"kind": "text"},
		}}
	}
	entry := map[string]any{"kind": 2, "k": []any{"requests"}, "v": []any{q}}
	if n := len(s.requests); n > 0 && s.Chance(20) {
		s.requests = s.requests[:n-1]
		entry["i"] = n - 1
	}
	if n := len(s.requests); n > 0 && normalizerstest.Member[bool](s.requests[n-1], "result", "metadata", "maxToolCallsExceeded") && s.Chance(80) {
		q["confirmation"], q["response"] = "Continue", slices.Concat(s.late(), s.parts())
	}
	s.requests, s.future = append(s.requests, q), nil
	s.Emit(copied(entry))
}

func (s *script) parts() []any {
	list := []any{}
	for range rapid.IntRange(0, 4).Draw(s.T, "parts") {
		list = append(list, s.part())
	}
	return list
}

func (s *script) part() any {
	switch s.OneOf("text", "text", "reference", "edit", "thinking", "call", "call", "quiet") {
	case "text":
		return map[string]any{"value": s.word(), "supportThemeIcons": false}
	case "reference":
		return map[string]any{"kind": "inlineReference", "inlineReference": map[string]any{"path": "/home/ada/app/a.go", "scheme": "file"}}
	case "edit":
		return map[string]any{"kind": "textEditGroup", "edits": []any{}, "done": s.Chance(50)}
	case "thinking":
		return map[string]any{"kind": "thinking", "value": []any{s.word(), "x"}}
	case "quiet":
		return map[string]any{"kind": s.OneOf("undoStop", "autoModeResolution", "mcpServersStarting")}
	}
	s.n++
	id := fmt.Sprintf("%s_call%d", s.Session, s.n)
	if s.isOld {
		id = fmt.Sprintf("%08d-0000-4000-8000-000000000000", s.n)
	}
	c := map[string]any{
		"kind": "toolInvocationSerialized", "toolCallId": id, "isComplete": true,
		"toolId": s.OneOf("copilot_readFile", "run_in_terminal", "mcp_x"), "isConfirmed": map[string]any{"type": rapid.IntRange(0, 5).Draw(s.T, "confirmed")},
	}
	switch s.OneOf("", "terminal", "details", "subagent") {
	case "terminal":
		data := map[string]any{"kind": "terminal", "commandLine": map[string]any{"original": "ls"}}
		if s.Chance(60) {
			data["terminalCommandState"] = map[string]any{"exitCode": rapid.SampledFrom([]int{0, 1, -1}).Draw(s.T, "code")}
		}
		c["toolSpecificData"] = data
	case "details":
		c["resultDetails"] = map[string]any{"input": "{}", "output": []any{map[string]any{"type": "embed", "value": s.word()}}}
	case "subagent":
		c["subAgentInvocationId"] = s.Session + "-agent"
	}
	return c
}

// last returns the last request; nil if there is none.
func (s *script) last() (n int, q map[string]any) {
	if n = len(s.requests) - 1; n < 0 {
		return n, nil
	}
	return n, s.requests[n]
}

func (s *script) answer() {
	n, q := s.last()
	if q == nil || s.stopped[text(q, "requestId")] {
		return
	}
	more := slices.Concat(s.parts(), s.late())
	q["response"] = slices.Concat(q["response"].([]any), more)
	s.Emit(map[string]any{"kind": 2, "k": []any{"requests", n, "response"}, "v": more})
}

// late returns parts that show the calls which were stated before.
func (s *script) late() (parts []any) {
	for _, id := range s.future {
		c := map[string]any{
			"kind": "toolInvocationSerialized", "toolCallId": id, "isComplete": true, "toolId": "run_in_terminal",
			"toolSpecificData": map[string]any{"kind": "terminal", "terminalCommandState": map[string]any{"exitCode": s.number("code")}},
		}
		if s.n++; s.isOld {
			c["toolCallId"] = fmt.Sprintf("%08d-0000-4000-8000-000000000000", s.n)
		}
		parts = append(parts, c)
	}
	s.future = nil
	return parts
}

// rewrite replaces the end of an answer: from within its last text, or from behind another part.
func (s *script) rewrite() {
	n, q := s.last()
	if q == nil || s.stopped[text(q, "requestId")] || q["result"] != nil || q["confirmation"] != nil {
		return
	}
	before := q["response"].([]any)
	at := rapid.IntRange(0, len(before)).Draw(s.T, "at")
	for at > 0 && !isLastText(before[at:]) && isLastText(before[at-1:at]) {
		at--
	}
	more := s.parts()
	q["response"] = slices.Concat(before[:at], more)
	s.Emit(map[string]any{"kind": 2, "k": []any{"requests", n, "response"}, "v": more, "i": at})
}

// isLastText reports whether all parts belong to a text.
func isLastText(parts []any) bool {
	return !slices.ContainsFunc(parts, func(p any) bool {
		kind := text(p, "kind")
		return kind != "" && kind != "inlineReference" && kind != "textEditGroup"
	})
}

func (s *script) set(n int, name string, value any) {
	s.requests[n][name] = value
	s.Emit(map[string]any{"kind": 1, "k": []any{"requests", n, name}, "v": value})
}

// result states the calls of the model: those that the answer shows, one that it will show, and one more.
func (s *script) result() {
	n, q := s.last()
	if q == nil || s.stopped[text(q, "requestId")] || q["result"] != nil {
		return
	}
	var calls []any
	results := map[string]any{}
	state := func(id, name string) {
		id += fmt.Sprint("__vscode-", s.n)
		calls = append(calls, map[string]any{"id": id, "name": name, "arguments": `{"filePath":"/home/ada/app/a.go"}`})
		if s.Chance(80) {
			last := map[string]any{"value": map[string]any{"node": map[string]any{"children": []any{map[string]any{"text": "x"}}}}}
			if s.Chance(30) {
				last = map[string]any{"value": s.OneOf("Command produced no output\n\n\nCommand exited with code 3", "Command exited with code 0", "Command exited with code 3 ", "Command exited with code 3\n.")}
			}
			results[id] = map[string]any{"content": []any{map[string]any{"value": s.word()}, last}}
		}
	}
	for _, p := range q["response"].([]any) {
		c := p.(map[string]any)
		if c["toolCallId"] == nil || c["subAgentInvocationId"] != nil {
			continue
		}
		id, name := c["toolCallId"].(string), c["toolId"].(string)
		if s.isOld {
			id = "old_" + id[:8]
		}
		if is := names[name]; is != "" {
			name = is
		}
		state(id, name)
	}
	if s.Chance(50) {
		s.n++
		id := fmt.Sprintf("%s_call%d", s.Session, s.n)
		s.future = append(s.future, id)
		state(id, "run_in_terminal")
	}
	if s.Chance(30) {
		s.n++
		state(fmt.Sprintf("%s_hidden%d", s.Session, s.n), "manage_todo_list")
	}
	v := map[string]any{"timings": map[string]any{"totalElapsed": 5}, "metadata": map[string]any{
		"toolCallRounds": []any{map[string]any{"response": s.word(), "toolCalls": calls, "timestamp": s.Now.UnixMilli()}}, "toolCallResults": results,
		"promptTokens": s.number("input"), "outputTokens": s.number("output"),
	}}
	if s.Chance(20) {
		v["metadata"].(map[string]any)["maxToolCallsExceeded"] = true
	}
	if s.Chance(20) {
		v["details"] = "Tern mini (Preview) • 1x"
	}
	if s.Chance(20) {
		v["errorDetails"] = map[string]any{"code": s.OneOf("canceled", "failed"), "message": s.word()}
	}
	s.set(n, "result", v)
}

func (s *script) settle() {
	n, q := s.last()
	if q == nil {
		return
	}
	switch name := s.OneOf("promptTokens", "completionTokens", "modelTotals", "modelState", "copilotCredits", "vote"); name {
	case "modelTotals":
		s.set(n, name, []any{map[string]any{"inputTokens": 11_480, "cachedTokens": s.number("cached"), "outputTokens": s.number("total")}})
	case "modelState":
		if s.isCopied(q) {
			return
		}
		s.Stamp()
		s.set(n, name, map[string]any{"value": rapid.SampledFrom([]int{0, 1, 3, 4}).Draw(s.T, "state"), "completedAt": s.Now.UnixMilli()})
	case "copilotCredits":
		s.set(n, name, 0.25)
	default:
		s.set(n, name, s.number(name))
	}
}

// stop ends a request as a human does: nothing is added to its answer.
func (s *script) stop() {
	n, q := s.last()
	if q == nil || s.isCopied(q) {
		return
	}
	s.stopped[text(q, "requestId")] = true
	s.Stamp()
	s.set(n, "modelState", map[string]any{"value": 2, "completedAt": s.Now.UnixMilli()})
	if q["result"] == nil && s.Chance(50) {
		s.set(n, "result", map[string]any{"timings": map[string]any{"totalElapsed": 5}, "errorDetails": map[string]any{"code": "canceled", "message": s.word()}})
	}
}

func (s *script) other() {
	switch name := s.OneOf("inputState", "customTitle", "pendingRequests", "repoData", "workingDirectory", "hasPendingEdits"); name {
	case "customTitle":
		s.Emit(map[string]any{"kind": 1, "k": []any{name}, "v": s.word()})
	case "repoData":
		s.Emit(map[string]any{"kind": 1, "k": []any{name}, "v": map[string]any{"localBranch": "main"}})
	case "workingDirectory":
		s.Emit(map[string]any{"kind": 1, "k": []any{name}, "v": "file:///home/ada/app"})
	default:
		s.Emit(map[string]any{"kind": 3, "k": []any{name}})
	}
}

// again writes an entry again that changes nothing more.
func (s *script) again() {
	if n, q := s.last(); q != nil && q["vote"] != nil {
		s.set(n, "vote", q["vote"])
	}
}

// export writes a span.
func (s *script) export() {
	s.n++
	a := normalizerstest.Attributes{"copilot_chat.chat_session_id": s.Session, "gen_ai.response.model": "gpt-5.1"}
	if s.Chance(20) {
		a["copilot_chat.parent_chat_session_id"], a["copilot_chat.chat_session_id"] = s.Session, s.OneOf(s.Session+"-agent", "")
	}
	operation := s.OneOf("chat", "chat", "execute_tool", "invoke_agent", "execute_hook")
	switch operation {
	case "chat":
		a["gen_ai.agent.name"] = s.OneOf("panel/editAgent", "panel/editAgent", "title", "Claude Copilot Proxy")
		a["gen_ai.output.messages"] = encode([]any{map[string]any{"role": "assistant", "parts": []any{
			map[string]any{"type": "text", "content": s.word()},
			map[string]any{"type": "tool_call", "id": fmt.Sprint(s.Session, "_sent", s.n), "name": "read_file", "arguments": "{}"},
		}}})
		a["gen_ai.usage.input_tokens"], a["gen_ai.usage.output_tokens"] = int64(20_000), int64(s.number("output"))
		a["gen_ai.usage.cache_read.input_tokens"], a["gen_ai.usage.reasoning_tokens"] = int64(s.number("cached")), int64(57)
	case "execute_tool":
		a["gen_ai.tool.type"], a["gen_ai.tool.name"], a["gen_ai.tool.call.result"] = s.OneOf("function", ""), "read_file", s.word()
		a["gen_ai.tool.call.id"] = s.OneOf(fmt.Sprint(s.Session, "_sent", s.n-1), fmt.Sprint(s.Session, "_sent", s.n), "")
	case "invoke_agent":
		if s.prompts {
			prompt := s.OneOf("fix the test", "yes", "{")
			a["gen_ai.input.messages"] = encode([]any{map[string]any{"role": "user", "parts": []any{map[string]any{"type": "text", "content": prompt}}}})
		}
	}
	s.Stamp()
	a["gen_ai.operation.name"] = operation
	id := fmt.Sprintf("%016x", s.n)
	span := normalizerstest.ExportedSpan("copilot-chat", "copilot-chat", operation, "t1", id, "", s.Now, s.Now, a)
	s.Lines = append(s.Lines, span)
	if s.Chance(10) {
		s.Lines = append(s.Lines, span)
	}
}

func encode(v any) string {
	data, _ := json.Marshal(v) // never fails
	return string(data)
}

// copied returns a copy that later changes do not affect.
func copied(v map[string]any) (out map[string]any) {
	data, _ := json.Marshal(v)
	_ = json.Unmarshal(data, &out) // was made just before
	return out
}
