package copilottest

import (
	"encoding/json"
	"fmt"
	"strings"

	"pgregory.net/rapid"

	"tributary/normalizers/normalizerstest"
)

// copilotScript writes the log of one session of Copilot CLI, record by record, in the shapes of README.md: well
// formed, in any order.
type copilotScript struct {
	normalizerstest.Script

	n        int              // number of ids
	calls    []map[string]any // requested or started
	used     map[string]int   // of the session
	before   int              // output of the session before its run
	timeline []any
}

// lines generates the lines of one session.
func lines(t *rapid.T, session string) [][]byte {
	s := &copilotScript{Script: normalizerstest.NewScript(t, session), used: make(map[string]int)}
	s.start()
	moves := []func(){
		s.user, s.user, s.user, s.answer, s.answer, s.answer, s.answer, s.execute, s.execute, s.execute, s.complete, s.complete, s.complete,
		s.system, s.chunks, s.reasoning, s.usage, s.shutdown, s.resume, s.model, s.notice, s.subagent, s.document, s.other, s.spans, s.spans, s.Repeat, s.Repeat,
	}
	for range rapid.IntRange(1, 30).Draw(t, "records") {
		rapid.SampledFrom(moves).Draw(t, "move")()
	}
	return s.Lines
}

// copilotTyped are texts that matter to a rule, and some that do not.
var copilotTyped = []string{
	"fix the test", "yes", "  \n", "", "what is \"this\"?\n\ttwo lines \u2028 \U0001F642", "/model", "[copilot-session] 550e8400-e29b-41d4-a716-446655440000",
	"<system_notification>\nAgent has finished.\n</system_notification>", "<skill-context name=\"review\">\nLook twice.\n</skill-context>", "<shellId: 0 completed with exit code 3>", "{", "<",
}

func (s *copilotScript) word() string {
	if rapid.IntRange(0, 9).Draw(s.T, "free text") == 0 {
		return rapid.String().Draw(s.T, "text")
	}
	return rapid.SampledFrom(copilotTyped).Draw(s.T, "word")
}

func (s *copilotScript) figure() int {
	return rapid.SampledFrom([]int{0, 1, 57, 11_480}).Draw(s.T, "tokens")
}

func (s *copilotScript) id(prefix string) string {
	s.n++
	return fmt.Sprintf("%s-%s%d", s.Session, prefix, s.n)
}

// put writes an envelope, of a subagent unless agent is empty.
func (s *copilotScript) put(kind, agent string, data map[string]any) {
	e := map[string]any{"type": kind, "data": data, "id": s.id("e"), "timestamp": s.Stamp(), "parentId": nil}
	switch {
	case agent == "":
	case s.Chance(50):
		e["agentId"] = agent
	default:
		data["parentToolCallId"] = agent
	}
	s.Emit(e)
}

// agent returns a subagent or "".
func (s *copilotScript) agent() string {
	return s.OneOf("", "", "", s.Session+"-call-a", s.Session+"-call-b")
}

func (s *copilotScript) start() {
	d := map[string]any{"sessionId": s.Session, "version": 1, "producer": "copilot-agent", "copilotVersion": "1.0.95", "startTime": s.Stamp()}
	if s.Chance(70) {
		d["context"] = s.context()
	}
	if s.Chance(50) {
		d["selectedModel"] = s.OneOf("auto", "gpt-5-mini")
	}
	s.put("session.start", "", d)
}

// context returns the folder in which the agent works.
func (s *copilotScript) context() map[string]any {
	c := map[string]any{"cwd": "/home/dev/app"}
	if s.Chance(80) {
		c["gitRoot"], c["branch"] = "/home/dev/app", s.OneOf("main", "fix/total")
	}
	if s.Chance(50) {
		c["repository"], c["headCommit"], c["hostType"] = "Acme/shop", "0f0e0d0c0b0a09080706050403020100f0e0d0c0", "github"
	}
	if s.Chance(50) {
		c["repositoryHost"] = "GitHub.com"
	}
	return c
}

func (s *copilotScript) resume() {
	s.before = s.used["outputTokens"]
	d := map[string]any{"resumeTime": s.Stamp(), "eventCount": len(s.Lines), "selectedModel": s.OneOf("auto", "claude-haiku-4.5")}
	if s.Chance(50) {
		d["context"] = s.context()
	}
	s.put("session.resume", "", d)
}

func (s *copilotScript) model() {
	switch s.OneOf("change", "resolved", "context") {
	case "context":
		s.put("session.context_changed", "", s.context())
	case "change":
		s.put("session.model_change", "", map[string]any{"newModel": s.OneOf("auto", "gpt-5-mini", "claude-haiku-4.5")})
	case "resolved":
		s.put("session.auto_mode_resolved", "", map[string]any{"chosenModel": "gpt-5-mini", "confidence": 0.5})
	}
}

func (s *copilotScript) user() {
	d := map[string]any{"content": s.word(), "transformedContent": "<current_datetime>now</current_datetime>"}
	agent := s.agent()
	if agent != "" || s.Chance(10) {
		d["source"] = s.OneOf("agent-1f", "agent-1f", "")
	}
	switch {
	case s.Chance(50):
		d["interactionId"] = s.OneOf("i1", "i2")
	case s.Chance(10):
		d["isAutopilotContinuation"], d["content"] = true, ""
	case s.Chance(10):
		d["source"] = s.OneOf("user", "skill-pdf", "autopilot")
	case s.Chance(10):
		d["attachments"] = []any{map[string]any{"type": "file", "path": "/home/dev/app/main.go"}}
	}
	s.put("user.message", agent, d)
}

func (s *copilotScript) system() {
	s.put(s.OneOf("system.message", "system.message", "system.notification", "skill.invoked"), s.agent(), map[string]any{"role": "system", "content": s.OneOf("You are an agent.", "You are another.", "")})
}

// request returns a call in a message, with arguments in one of their forms.
func (s *copilotScript) request() map[string]any {
	name := s.OneOf("bash", "bash", "view", "create", "edit", "grep", "apply_patch", "str_replace_editor", "mcp_thing")
	var arguments any
	switch name {
	case "bash":
		arguments = map[string]any{"command": "go test ./...", "description": "Run the tests"}
	case "str_replace_editor":
		arguments = map[string]any{"command": s.OneOf("view", "create", "of_tomorrow"), "path": "main.go"}
	case "apply_patch":
		arguments = "*** Begin Patch\n*** Update File: a.go\n*** Add File: b.go\n*** End Patch"
	case "mcp_thing":
		arguments = `{"path":"x.py"}`
	default:
		arguments = map[string]any{"path": "main.go"}
	}
	q := map[string]any{"toolCallId": s.id("c"), "name": name, "arguments": arguments, "type": "function"}
	s.calls = append(s.calls, q)
	return q
}

// answer writes a message of the model; half of its figures are known from the call.
func (s *copilotScript) answer() {
	d := map[string]any{"messageId": s.id("m"), "content": s.OneOf("", "", "Done.", "ok", "I will look.", " \n"), "toolRequests": []any{}}
	if s.Chance(60) {
		d["outputTokens"] = s.figure()
		s.used["outputTokens"] += d["outputTokens"].(int)
	}
	if s.Chance(60) {
		d["apiCallId"] = s.id("api") + s.OneOf("", "", strings.Repeat("x", 150))
	}
	if s.Chance(60) {
		d["model"] = s.OneOf("gpt-5-mini", "claude-haiku-4.5")
	}
	if s.Chance(30) {
		d["reasoningText"] = s.OneOf("Looking at it.", " ", "Looking again.")
	}
	var requests []any
	for range rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(s.T, "requests") {
		requests = append(requests, s.request())
	}
	if len(requests) > 0 {
		d["toolRequests"] = requests
	}
	agent := s.agent()
	s.put("assistant.message", agent, d)
	if s.Chance(20) {
		s.put("assistant.reasoning", agent, map[string]any{"reasoningId": "r", "content": s.OneOf("Looking at it.", "Looking again.")})
	}
}

// chunks writes a message in chunks, the last of which may be missing.
func (s *copilotScript) chunks() {
	agent, message, tokens := s.agent(), s.id("m"), s.figure()
	n := rapid.IntRange(2, 3).Draw(s.T, "chunks")
	for i := range n {
		if s.Chance(10) {
			return
		}
		d := map[string]any{"messageId": message, "content": s.OneOf("Let me ", "look.", "\n", ""), "chunkIndex": i, "chunkCount": n, "outputTokens": tokens, "toolRequests": []any{}}
		if s.Chance(20) {
			d["toolRequests"] = []any{s.request()}
		}
		s.put("assistant.message", agent, d)
	}
}

func (s *copilotScript) reasoning() {
	s.put("assistant.reasoning", s.agent(), map[string]any{"reasoningId": s.id("r"), "content": s.OneOf("Looking at it.", "", "Looking again.")})
}

// execute starts a call that was requested, or that a human made.
func (s *copilotScript) execute() {
	if len(s.calls) == 0 || s.Chance(20) {
		q := s.request()
		if s.Chance(50) { // its message follows
			s.put("tool.execution_start", "", map[string]any{"toolCallId": q["toolCallId"], "toolName": q["name"], "arguments": q["arguments"]})
			s.put("assistant.message", "", map[string]any{"messageId": s.id("m"), "content": "", "toolRequests": []any{q}})
			return
		}
		s.put("tool.user_requested", "", map[string]any{"toolCallId": q["toolCallId"], "toolName": q["name"]})
		s.put("tool.execution_start", "", map[string]any{"toolCallId": q["toolCallId"], "toolName": q["name"], "arguments": q["arguments"]})
		return
	}
	q := rapid.SampledFrom(s.calls).Draw(s.T, "call")
	s.put("tool.execution_start", "", map[string]any{"toolCallId": q["toolCallId"], "toolName": q["name"], "arguments": q["arguments"]})
}

func (s *copilotScript) complete() {
	id := s.id("orphan")
	if len(s.calls) > 0 && s.Chance(95) {
		i := rapid.IntRange(0, len(s.calls)-1).Draw(s.T, "call")
		id = s.calls[i]["toolCallId"].(string)
	}
	d := map[string]any{"toolCallId": id, "success": true, "model": s.OneOf("gpt-5-mini", "claude-haiku-4.5", "auto")}
	switch s.OneOf("done", "failed", "error", "text", "nothing", "running") {
	case "done":
		d["result"] = map[string]any{"content": s.OneOf(
			"ok\n<shellId: 0 completed with exit code 0>", "<shellId: cmd-1 completed with exit code 1>", "x\n<exited with exit code 4>\n", "x\n<command with id: 2 exited with exit code 35>",
			"<exited with exit code 3>\nand more", "exit code: 5", "",
		), "detailedContent": s.OneOf("", "all of it")}
		if s.Chance(30) {
			d["toolTelemetry"] = map[string]any{"metrics": map[string]any{"durationMs": 12}}
		}
	case "failed":
		d["success"], d["result"] = false, map[string]any{"content": "it failed"}
	case "error":
		d["success"], d["error"] = false, map[string]any{"code": "failure", "message": "\"path\": Required"}
	case "text":
		d["result"] = "a text"
	case "nothing":
		delete(d, "success")
	case "running":
		d["result"] = map[string]any{"content": "<command started in background with shellId: 7>"}
	}
	if s.Chance(20) {
		d["shellExecution"] = map[string]any{"exitCode": rapid.IntRange(0, 2).Draw(s.T, "exit")}
	}
	s.put("tool.execution_complete", s.agent(), d)
}

// usage writes the record of an API call, which a message may have named.
func (s *copilotScript) usage() {
	read, write, input := s.figure(), s.figure(), s.figure()
	output := s.figure()
	u := map[string]any{"model": "gpt-5-mini", "inputTokens": input + read + write, "outputTokens": output, "cacheReadTokens": read, "cacheWriteTokens": write, "reasoningTokens": output / 2}
	switch s.OneOf("named", "new", "counted", "bare") {
	case "named":
		u["apiCallId"] = fmt.Sprintf("%s-api%d", s.Session, rapid.IntRange(0, s.n).Draw(s.T, "call"))
	case "new":
		u["apiCallId"] = s.id("api")
	case "counted":
		u["accounting"] = map[string]any{"usageId": s.id("u"), "sequence": s.n}
	}
	if s.Chance(20) {
		s.put("assistant.usage", "", u)
		return
	}
	s.put("session.usage_record", "", map[string]any{"usage": u})
}

// shutdown ends a run with the total of the session, the total of the run, or another total, as after a rewind.
func (s *copilotScript) shutdown() {
	metrics := map[string]any{}
	output := s.used["outputTokens"]
	if s.Chance(40) {
		output -= s.before
	}
	for _, model := range []string{"gpt-5-mini", "claude-haiku-4.5"} {
		if s.Chance(30) {
			continue
		}
		read, write := s.figure(), s.figure()
		s.used[model] += s.figure()
		metrics[model] = map[string]any{"requests": map[string]any{"count": 1}, "usage": map[string]any{
			"inputTokens": s.used[model] + read + write, "outputTokens": output, "cacheReadTokens": read, "cacheWriteTokens": write, "reasoningTokens": output / 2,
		}}
	}
	s.put("session.shutdown", "", map[string]any{"shutdownType": "routine", "modelMetrics": metrics})
}

func (s *copilotScript) notice() {
	kinds := []string{"error", "info", "title", "compacted", "failed", "task", "abort", "hook", "turn", "delta", "phase", "assent"}
	switch s.OneOf(kinds...) {
	case "error":
		s.put("session.error", "", map[string]any{"errorType": "query", "message": "Example model error", "statusCode": 400})
	case "info":
		s.put("session.info", "", map[string]any{"infoType": "rewind", "message": "Rewound the conversation."})
	case "title":
		s.put("session.title_changed", "", map[string]any{"title": "Fixed the tests"})
	case "compacted":
		spent := map[string]any{"inputTokens": 900, "outputTokens": 70, "cacheReadTokens": 500, "model": "gpt-5-mini"}
		switch s.OneOf("2025", "2026", "billed") {
		case "2025":
			spent = map[string]any{"input": 900, "output": 70, "cachedInput": 500}
		case "billed":
			spent["cacheWriteTokens"] = 0
			spent["copilotUsage"] = map[string]any{"tokenDetails": []any{map[string]any{"tokenType": "cache_write", "tokenCount": 300}}}
		}
		s.put("session.compaction_complete", "", map[string]any{
			"success": true, "summaryContent": s.OneOf("<overview>\nAll is noted.", ""), "compactionTokensUsed": spent,
		})
	case "failed":
		s.put("session.compaction_complete", "", map[string]any{"success": false, "error": "it failed"})
	case "task":
		s.put("session.task_complete", "", map[string]any{"summary": s.OneOf("Created the files.", ""), "success": true})
	case "abort":
		s.put("abort", "", map[string]any{"reason": "user initiated"})
	case "hook":
		s.put("hook.start", "", map[string]any{"hookInvocationId": "h", "hookType": "preToolUse", "input": map[string]any{"sessionId": "another"}})
	case "turn":
		s.put(s.OneOf("assistant.turn_start", "assistant.turn_end"), s.agent(), map[string]any{"turnId": "0"})
	case "phase":
		used := map[string]any{"inputTokens": 900, "outputTokens": 70, "cachedTokens": 500, "requestCount": 1}
		s.put("assistant.fusion_phase_completed", "", map[string]any{
			"content": "Done.", "model": "gpt-5-mini", "phaseId": "p1", "usage": used,
		})
	case "assent":
		s.put("permission.assentDetected", "", map[string]any{"requestId": "p", "turnIndex": 1})
	case "delta":
		s.put("assistant.message_delta", "", map[string]any{"messageId": "m", "deltaContent": "Do"})
	}
}

func (s *copilotScript) subagent() {
	id := s.Session + "-call-" + s.OneOf("a", "b")
	kind := s.OneOf("subagent.started", "subagent.completed", "subagent.failed")
	agent := ""
	if s.Chance(50) {
		agent = id
	}
	s.put(kind, agent, map[string]any{"toolCallId": id, "agentName": "task", "model": "gpt-4.1", "error": "it failed"})
}

// document writes the whole session in one, like older versions, a little longer each time.
func (s *copilotScript) document() {
	for range rapid.IntRange(0, 3).Draw(s.T, "entries") {
		e := map[string]any{"id": s.id("t"), "timestamp": s.Stamp()}
		switch kind := s.OneOf("user", "copilot", "info", "error", "tool_call_requested", "tool_call_completed", "of_tomorrow"); kind {
		case "tool_call_requested", "tool_call_completed":
			e["type"], e["callId"], e["name"] = kind, s.id("k"), "bash"
			e["arguments"] = map[string]any{"command": "ls"}
			if kind == "tool_call_completed" {
				e["result"] = map[string]any{"type": s.OneOf("success", "failure"), "log": s.OneOf("a\n<exited with exit code 0>", "<exited with exit code 2>", "no such file")}
			}
		default:
			e["type"], e["text"] = kind, s.OneOf("Done.", "fix it", "")
		}
		s.timeline = append(s.timeline, e)
	}
	s.Emit(map[string]any{"sessionId": s.Session, "startTime": "2025-10-11T11:40:20.882Z", "chatMessages": []any{map[string]any{"role": "user", "content": "fix it"}}, "timeline": s.timeline})
}

// other writes unknown records, and values that are no object.
func (s *copilotScript) other() {
	switch kind := s.OneOf("unknown", "bare", "string", "number", "array", "null"); kind {
	case "unknown":
		s.put("hologram.opened", "", map[string]any{"depth": 3})
	case "bare":
		s.Emit(map[string]any{"type": "result", "sessionId": s.Session, "exitCode": 0})
	default:
		s.EmitValue(kind)
	}
}

// spans writes spans of a turn that no log states, or of one that it does.
func (s *copilotScript) spans() {
	trace, interaction := s.id("t"), s.OneOf("", "i1", "i2")
	text := func(v any) string {
		data, _ := json.Marshal(v) // never fails
		return string(data)
	}
	put := func(name, operation, span, parent string, a normalizerstest.Attributes) {
		start := s.Now
		s.Stamp()
		a["gen_ai.conversation.id"], a["gen_ai.operation.name"] = s.Session, operation
		if operation == "" {
			delete(a, "gen_ai.operation.name")
		}
		s.Lines = append(s.Lines, normalizerstest.ExportedSpan("github-copilot", "github.copilot", name, trace, span, parent, start, s.Now, a))
	}
	prompt := []any{map[string]any{"role": "user", "parts": []any{map[string]any{"type": "text", "content": "<current_datetime>now</current_datetime>\n\n" + s.OneOf("fix the test", "yes", "<system_notification>x")}}}}
	cached, reasoning := int64(s.figure()), int64(s.figure())
	chat := normalizerstest.Attributes{
		"gen_ai.response.id": s.Session + "-api" + s.OneOf("1", "2", "3", "4", "5", "6"), "gen_ai.response.model": s.OneOf("gpt-5-mini", "claude-haiku-4.5"),
		"gen_ai.usage.input_tokens": cached + int64(s.figure()), "gen_ai.usage.cache_read.input_tokens": cached,
		"gen_ai.usage.output_tokens": reasoning + int64(s.figure()), "gen_ai.usage.reasoning.output_tokens": reasoning,
		"github.copilot.initiator": s.OneOf("user", "agent", "sub-agent"), "github.copilot.interaction_id": interaction,
	}
	call := s.Session + "-c" + s.OneOf("3", "4", "5", "900")
	tool := normalizerstest.Attributes{"gen_ai.tool.call.id": call, "gen_ai.tool.name": s.OneOf("bash", "view")}
	if s.Chance(70) {
		chat["gen_ai.input.messages"] = text(prompt)
		chat["gen_ai.output.messages"] = text([]any{map[string]any{"role": "assistant", "parts": []any{
			map[string]any{"type": "reasoning", "content": "Looking at it."},
			map[string]any{"type": "text", "content": s.OneOf("Done.", "ok", "")},
			map[string]any{"type": "tool_call", "id": call, "name": tool["gen_ai.tool.name"], "arguments": map[string]any{"path": "main.go"}},
		}}})
		tool["gen_ai.tool.call.arguments"], tool["gen_ai.tool.call.result"] = `{"path":"main.go"}`, s.OneOf("ok", "<shellId: 0 completed with exit code 3>")
	}
	if s.Chance(30) {
		tool["process.exit.code"] = int64(2)
	}
	root := s.id("s")
	ran := s.id("s")
	if s.Chance(50) {
		put("permission", "", s.id("s"), ran, normalizerstest.Attributes{"github.copilot.permission.kind": "shell", "github.copilot.permission.result": "approved"})
	}
	put("execute_tool", "execute_tool", ran, root, tool)
	put("chat m", "chat", s.id("s"), root, chat)
	if s.Chance(50) {
		put("chat m", "chat", s.id("s"), root, normalizerstest.Attributes{"gen_ai.input.messages": text([]any{map[string]any{"role": "tool", "parts": []any{
			map[string]any{"type": "tool_call_response", "id": call, "response": "ok"},
		}}})})
	}
	put("invoke_agent", "invoke_agent", root, "", normalizerstest.Attributes{"gen_ai.input.messages": text(prompt), "gen_ai.usage.input_tokens": int64(9)})
	if s.Chance(20) {
		s.Lines = append(s.Lines, s.Lines[len(s.Lines)-2])
	}
}
