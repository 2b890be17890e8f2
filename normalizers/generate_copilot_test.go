package normalizers_test

import (
	"fmt"

	"pgregory.net/rapid"
)

// copilotScript writes the log of one session of Copilot CLI, record by record, in the
// shapes of vendor-formats.md section 7: well formed, but in any order.
type copilotScript struct {
	script

	n        int              // ids so far
	calls    []map[string]any // requested or started
	used     map[string]int   // of the session
	timeline []any
}

// copilotLines generates the lines of one session.
func copilotLines(t *rapid.T, session string) [][]byte {
	s := &copilotScript{script: newScript(t, session), used: make(map[string]int)}
	s.start()
	moves := []func(){
		s.user, s.user, s.user, s.answer, s.answer, s.answer, s.answer, s.execute, s.execute, s.execute, s.complete, s.complete, s.complete,
		s.system, s.chunks, s.reasoning, s.usage, s.shutdown, s.resume, s.model, s.notice, s.subagent, s.document, s.other, s.again, s.again,
	}
	for range rapid.IntRange(1, 30).Draw(t, "records") {
		rapid.SampledFrom(moves).Draw(t, "move")()
	}
	return s.lines
}

// copilotTyped are texts that matter to a rule, and some that matter to none.
var copilotTyped = []string{
	"fix the test", "yes", "  \n", "", "what is \"this\"?\n\ttwo lines \u2028 \U0001F642", "/model", "[copilot-session] 550e8400-e29b-41d4-a716-446655440000",
	"<system_notification>\nAgent has finished.\n</system_notification>", "<shellId: 0 completed with exit code 3>", "{", "<",
}

func (s *copilotScript) word() string {
	if rapid.IntRange(0, 9).Draw(s.t, "free text") == 0 {
		return rapid.String().Draw(s.t, "text")
	}
	return rapid.SampledFrom(copilotTyped).Draw(s.t, "word")
}

func (s *copilotScript) figure() int {
	return rapid.SampledFrom([]int{0, 1, 57, 11_480}).Draw(s.t, "tokens")
}

func (s *copilotScript) id(prefix string) string {
	s.n++
	return fmt.Sprintf("%s-%s%d", s.session, prefix, s.n)
}

// put writes an envelope; of a subagent where there is one.
func (s *copilotScript) put(kind, agent string, data map[string]any) {
	e := map[string]any{"type": kind, "data": data, "id": s.id("e"), "timestamp": s.stamp(), "parentId": nil}
	switch {
	case agent == "":
	case s.chance(50):
		e["agentId"] = agent
	default:
		data["parentToolCallId"] = agent
	}
	s.emit(e)
}

// agent is a subagent, or none.
func (s *copilotScript) agent() string {
	return s.oneOf("", "", "", s.session+"-call-a", s.session+"-call-b")
}

func (s *copilotScript) start() {
	d := map[string]any{"sessionId": s.session, "version": 1, "producer": "copilot-agent", "copilotVersion": "1.0.95", "startTime": s.stamp()}
	if s.chance(70) {
		d["context"] = map[string]any{"cwd": "/home/dev/app", "branch": "main"}
	}
	if s.chance(50) {
		d["selectedModel"] = s.oneOf("auto", "gpt-5-mini")
	}
	s.put("session.start", "", d)
}

func (s *copilotScript) resume() {
	s.put("session.resume", "", map[string]any{"resumeTime": s.stamp(), "eventCount": len(s.lines), "selectedModel": s.oneOf("auto", "claude-haiku-4.5")})
}

func (s *copilotScript) model() {
	switch s.oneOf("change", "resolved") {
	case "change":
		s.put("session.model_change", "", map[string]any{"newModel": s.oneOf("auto", "gpt-5-mini", "claude-haiku-4.5")})
	case "resolved":
		s.put("session.auto_mode_resolved", "", map[string]any{"chosenModel": "gpt-5-mini", "confidence": 0.5})
	}
}

func (s *copilotScript) user() {
	d := map[string]any{"content": s.word(), "transformedContent": "<current_datetime>now</current_datetime>"}
	agent := s.agent()
	if agent != "" || s.chance(10) {
		d["source"] = s.oneOf("agent-1f", "agent-1f", "")
	}
	switch {
	case s.chance(10):
		d["isAutopilotContinuation"], d["content"] = true, ""
	case s.chance(10):
		d["source"] = s.oneOf("user", "skill-pdf", "autopilot")
	case s.chance(10):
		d["attachments"] = []any{map[string]any{"type": "file", "path": "/home/dev/app/main.go"}}
	}
	s.put("user.message", agent, d)
}

func (s *copilotScript) system() {
	s.put(s.oneOf("system.message", "system.message", "system.notification", "skill.invoked"), s.agent(), map[string]any{"role": "system", "content": s.oneOf("You are an agent.", "You are another.", "")})
}

// request is a call in a message, with its arguments in one of their forms.
func (s *copilotScript) request() map[string]any {
	name := s.oneOf("bash", "bash", "view", "create", "edit", "grep", "apply_patch", "str_replace_editor", "mcp_thing")
	var arguments any
	switch name {
	case "bash":
		arguments = map[string]any{"command": "go test ./...", "description": "Run the tests"}
	case "str_replace_editor":
		arguments = map[string]any{"command": s.oneOf("view", "create", "of_tomorrow"), "path": "main.go"}
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

// answer is a message of the model; half of its figures are known from the call.
func (s *copilotScript) answer() {
	d := map[string]any{"messageId": s.id("m"), "content": s.oneOf("", "", "Done.", "ok", "I will look.", " \n"), "toolRequests": []any{}}
	if s.chance(60) {
		d["outputTokens"] = s.figure()
		s.used["outputTokens"] += d["outputTokens"].(int)
	}
	if s.chance(60) {
		d["apiCallId"] = s.id("api")
	}
	if s.chance(60) {
		d["model"] = s.oneOf("gpt-5-mini", "claude-haiku-4.5")
	}
	if s.chance(30) {
		d["reasoningText"] = s.oneOf("Looking at it.", " ", "Looking again.")
	}
	var requests []any
	for range rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(s.t, "requests") {
		requests = append(requests, s.request())
	}
	if len(requests) > 0 {
		d["toolRequests"] = requests
	}
	agent := s.agent()
	s.put("assistant.message", agent, d)
	if s.chance(20) {
		s.put("assistant.reasoning", agent, map[string]any{"reasoningId": "r", "content": s.oneOf("Looking at it.", "Looking again.")})
	}
}

// chunks is a message in pieces, the last of which may never come.
func (s *copilotScript) chunks() {
	agent, message, tokens := s.agent(), s.id("m"), s.figure()
	n := rapid.IntRange(2, 3).Draw(s.t, "chunks")
	for i := range n {
		if s.chance(10) {
			return
		}
		d := map[string]any{"messageId": message, "content": s.oneOf("Let me ", "look.", "\n", ""), "chunkIndex": i, "chunkCount": n, "outputTokens": tokens, "toolRequests": []any{}}
		if s.chance(20) {
			d["toolRequests"] = []any{s.request()}
		}
		s.put("assistant.message", agent, d)
	}
}

func (s *copilotScript) reasoning() {
	s.put("assistant.reasoning", s.agent(), map[string]any{"reasoningId": s.id("r"), "content": s.oneOf("Looking at it.", "", "Looking again.")})
}

// execute starts a call that was requested, or one that a human ran.
func (s *copilotScript) execute() {
	if len(s.calls) == 0 || s.chance(20) {
		q := s.request()
		if s.chance(50) { // its message comes later
			s.put("tool.execution_start", "", map[string]any{"toolCallId": q["toolCallId"], "toolName": q["name"], "arguments": q["arguments"]})
			s.put("assistant.message", "", map[string]any{"messageId": s.id("m"), "content": "", "toolRequests": []any{q}})
			return
		}
		s.put("tool.user_requested", "", map[string]any{"toolCallId": q["toolCallId"], "toolName": q["name"]})
		s.put("tool.execution_start", "", map[string]any{"toolCallId": q["toolCallId"], "toolName": q["name"], "arguments": q["arguments"]})
		return
	}
	q := rapid.SampledFrom(s.calls).Draw(s.t, "call")
	s.put("tool.execution_start", "", map[string]any{"toolCallId": q["toolCallId"], "toolName": q["name"], "arguments": q["arguments"]})
}

func (s *copilotScript) complete() {
	id := s.id("orphan")
	if len(s.calls) > 0 && s.chance(95) {
		i := rapid.IntRange(0, len(s.calls)-1).Draw(s.t, "call")
		id = s.calls[i]["toolCallId"].(string)
	}
	d := map[string]any{"toolCallId": id, "success": true, "model": "gpt-5-mini"}
	switch s.oneOf("done", "failed", "error", "text", "nothing", "running") {
	case "done":
		d["result"] = map[string]any{"content": s.oneOf(
			"ok\n<shellId: 0 completed with exit code 0>", "<shellId: cmd-1 completed with exit code 1>", "x\n<exited with exit code 4>\n", "x\n<command with id: 2 exited with exit code 35>",
			"<exited with exit code 3>\nand more", "exit code: 5", "",
		), "detailedContent": s.oneOf("", "all of it")}
		if s.chance(30) {
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
	if s.chance(20) {
		d["shellExecution"] = map[string]any{"exitCode": rapid.IntRange(0, 2).Draw(s.t, "exit")}
	}
	s.put("tool.execution_complete", "", d)
}

// usage is the record of an API call: of one that a message named, or not.
func (s *copilotScript) usage() {
	read, write, input := s.figure(), s.figure(), s.figure()
	output := s.figure()
	u := map[string]any{"model": "gpt-5-mini", "inputTokens": input + read + write, "outputTokens": output, "cacheReadTokens": read, "cacheWriteTokens": write, "reasoningTokens": output / 2}
	switch s.oneOf("named", "new", "counted", "bare") {
	case "named":
		u["apiCallId"] = fmt.Sprintf("%s-api%d", s.session, rapid.IntRange(0, s.n).Draw(s.t, "call"))
	case "new":
		u["apiCallId"] = s.id("api")
	case "counted":
		u["accounting"] = map[string]any{"usageId": s.id("u"), "sequence": s.n}
	}
	if s.chance(20) {
		s.put("assistant.usage", "", u)
		return
	}
	s.put("session.usage_record", "", map[string]any{"usage": u})
}

// shutdown ends a run with the total so far, or with less, as after a rewind.
func (s *copilotScript) shutdown() {
	metrics := map[string]any{}
	for _, model := range []string{"gpt-5-mini", "claude-haiku-4.5"} {
		if s.chance(30) {
			continue
		}
		read, write := s.figure(), s.figure()
		s.used[model] += s.figure()
		metrics[model] = map[string]any{"requests": map[string]any{"count": 1}, "usage": map[string]any{
			"inputTokens": s.used[model] + read + write, "outputTokens": s.used["outputTokens"], "cacheReadTokens": read, "cacheWriteTokens": write, "reasoningTokens": s.used["outputTokens"] / 2,
		}}
	}
	s.put("session.shutdown", "", map[string]any{"shutdownType": "routine", "modelMetrics": metrics})
}

func (s *copilotScript) notice() {
	switch s.oneOf("error", "info", "title", "compacted", "failed", "task", "abort", "hook", "turn", "delta") {
	case "error":
		s.put("session.error", "", map[string]any{"errorType": "query", "message": "Example model error", "statusCode": 400})
	case "info":
		s.put("session.info", "", map[string]any{"infoType": "rewind", "message": "Rewound the conversation."})
	case "title":
		s.put("session.title_changed", "", map[string]any{"title": "Fixed the tests"})
	case "compacted":
		s.put("session.compaction_complete", "", map[string]any{"success": true, "summaryContent": s.oneOf("<overview>\nAll is noted.", "")})
	case "failed":
		s.put("session.compaction_complete", "", map[string]any{"success": false, "error": "it failed"})
	case "task":
		s.put("session.task_complete", "", map[string]any{"summary": s.oneOf("Created the files.", ""), "success": true})
	case "abort":
		s.put("abort", "", map[string]any{"reason": "user initiated"})
	case "hook":
		s.put("hook.start", "", map[string]any{"hookInvocationId": "h", "hookType": "preToolUse", "input": map[string]any{"sessionId": "another"}})
	case "turn":
		s.put(s.oneOf("assistant.turn_start", "assistant.turn_end"), s.agent(), map[string]any{"turnId": "0"})
	case "delta":
		s.put("assistant.message_delta", "", map[string]any{"messageId": "m", "deltaContent": "Do"})
	}
}

func (s *copilotScript) subagent() {
	id := s.session + "-call-" + s.oneOf("a", "b")
	kind := s.oneOf("subagent.started", "subagent.completed", "subagent.failed")
	agent := ""
	if s.chance(50) {
		agent = id
	}
	s.put(kind, agent, map[string]any{"toolCallId": id, "agentName": "task", "model": "gpt-4.1", "error": "it failed"})
}

// document is the whole session in one, as older versions kept it, a little longer than
// the last time.
func (s *copilotScript) document() {
	for range rapid.IntRange(0, 3).Draw(s.t, "entries") {
		e := map[string]any{"id": s.id("t"), "timestamp": s.stamp()}
		switch kind := s.oneOf("user", "copilot", "info", "error", "tool_call_requested", "tool_call_completed", "of_tomorrow"); kind {
		case "tool_call_requested", "tool_call_completed":
			e["type"], e["callId"], e["name"] = kind, s.id("k"), "bash"
			e["arguments"] = map[string]any{"command": "ls"}
			if kind == "tool_call_completed" {
				e["result"] = map[string]any{"type": s.oneOf("success", "failure"), "log": s.oneOf("a\n<exited with exit code 0>", "<exited with exit code 2>", "no such file")}
			}
		default:
			e["type"], e["text"] = kind, s.oneOf("Done.", "fix it", "")
		}
		s.timeline = append(s.timeline, e)
	}
	s.emit(map[string]any{"sessionId": s.session, "startTime": "2025-10-11T11:40:20.882Z", "chatMessages": []any{map[string]any{"role": "user", "content": "fix it"}}, "timeline": s.timeline})
}

// other are records that no one has seen yet, and values that are no object.
func (s *copilotScript) other() {
	switch s.oneOf("unknown", "bare", "string", "number", "array", "null") {
	case "unknown":
		s.put("hologram.opened", "", map[string]any{"depth": 3})
	case "bare":
		s.emit(map[string]any{"type": "result", "sessionId": s.session, "exitCode": 0})
	case "string":
		s.emit("massive error")
	case "number":
		s.emit(42)
	case "array":
		s.emit([]any{1})
	case "null":
		s.emit(nil)
	}
}

// again writes an earlier record a second time, as a resumed session does.
func (s *copilotScript) again() {
	s.lines = append(s.lines, rapid.SampledFrom(s.lines).Draw(s.t, "again"))
}
