package kimitest

import (
	"fmt"

	"pgregory.net/rapid"

	"tributary/normalizers/normalizerstest"
)

// script writes a journal of Kimi Code, or of kimi-cli.
type script struct {
	normalizerstest.Script

	n     int
	isCLI bool
	due   []any // messages of the context that follow
}

// lines generates the lines of one session.
func lines(t *rapid.T, session string) [][]byte {
	s := &script{Script: normalizerstest.NewScript(t, session)}
	s.isCLI = s.Chance(25)
	s.put(map[string]any{"type": "metadata", "protocol_version": "1.4", "created_at": s.Now.UnixMilli()})
	s.Play(s.prompt, s.prompt, s.answer, s.answer, s.call, s.call, s.result, s.result, s.step, s.step, s.other)
	return s.Lines
}

func (s *script) word() string {
	return s.Text("Command failed with exit code: 3.", "a\nCommand failed with exit code: 127. More.\nb", "<git-context>\nx\n</git-context>\n\nCount.")
}

// put writes a record of Kimi Code.
func (s *script) put(r map[string]any) {
	s.Stamp()
	if r["type"] != "metadata" && !s.Chance(5) {
		r["time"] = s.Now.UnixMilli()
	}
	s.Maybe(30, r, map[string]any{"agentId": "main"})
	s.Emit(r)
}

// wire writes a message of kimi-cli, some as that of a subagent.
func (s *script) wire(kind string, payload map[string]any) {
	s.Stamp()
	m := map[string]any{"type": kind, "payload": payload}
	if kind != "ToolCall" && kind != "ToolResult" && s.Chance(20) {
		m = map[string]any{"type": "SubagentEvent", "payload": map[string]any{"parent_tool_call_id": "Task:1", "event": m}}
		if s.Chance(50) {
			m["payload"].(map[string]any)["agent_id"] = "a1"
		}
	}
	s.Emit(map[string]any{"timestamp": float64(s.Now.UnixMilli()) / 1000, "message": m})
}

func (s *script) event(e map[string]any) {
	s.put(map[string]any{"type": "context.append_loop_event", "event": e})
}

func part(text string) map[string]any { return map[string]any{"type": "text", "text": text} }

func (s *script) prompt() {
	content := []any{part(s.word())}
	if s.Chance(20) {
		content = []any{map[string]any{"type": "image_url", "imageUrl": map[string]any{"url": "blobref:1"}}}
	}
	if s.isCLI {
		if s.Chance(20) {
			content = []any{part(s.OneOf("<system-reminder>\nA task has ended.\n</system-reminder>", "<system-reminder>x</system-reminder> and now?"))}
		}
		s.wire("TurnBegin", map[string]any{"user_input": content})
		return
	}
	origin := map[string]any{"kind": s.OneOf("user", "user", "injection", "system_trigger", "skill_activation", "shell_command", "task"), "name": s.OneOf("subagent", "goal"), "skillName": "review", "trigger": s.OneOf("user-slash", "model-tool")}
	message := map[string]any{"role": "user", "content": content, "toolCalls": []any{}, "origin": origin}
	s.n++
	id := fmt.Sprintf("m%d", s.n)
	switch s.OneOf("twice", "late", "imported", "named", "steered") {
	case "named": // of 0.40 and later, whose context lacks some images
		input := append([]any{part("an image")}, content...)
		s.put(map[string]any{"type": "turn.prompt", "input": input, "origin": origin, "promptId": id})
		message["id"] = id
		s.put(map[string]any{"type": "context.append_message", "message": message})
	case "steered": // of 2.1
		message["id"] = id
		s.put(map[string]any{"type": "context.append_message", "message": message})
		ids := []any{id}
		s.put(map[string]any{"type": "turn.steer", "input": content, "origin": origin, "messageId": id, "promptIds": ids})
	case "twice":
		s.put(map[string]any{"type": s.OneOf("turn.prompt", "turn.steer"), "input": content, "origin": origin})
		s.put(map[string]any{"type": "context.append_message", "message": message})
	case "late":
		s.put(map[string]any{"type": "turn.steer", "input": content, "origin": origin})
		s.due = append(s.due, message)
	case "imported":
		s.put(map[string]any{"type": "context.append_message", "message": message})
	}
}

func (s *script) answer() {
	p := part(s.word())
	if s.Chance(30) {
		p = map[string]any{"type": "think", "think": s.word()}
	}
	s.n++
	switch {
	case s.isCLI:
		s.wire("ContentPart", p)
	case s.Chance(20):
		s.put(map[string]any{"type": "context.append_message", "message": map[string]any{"role": "assistant", "content": []any{p}, "toolCalls": []any{}}})
	default:
		s.event(map[string]any{"type": "content.part", "uuid": fmt.Sprintf("p%d", s.n), "part": p})
	}
}

func (s *script) call() {
	name := s.OneOf("Bash", "Shell", "Read", "Agent")
	id := fmt.Sprintf("%s_%d", name, rapid.IntRange(0, 3).Draw(s.T, "number"))
	s.Calls = append(s.Calls, id)
	if s.isCLI {
		s.wire("ToolCall", map[string]any{"type": "function", "id": id, "function": map[string]any{"name": name, "arguments": `{"path":"a.go"}`}})
	} else {
		s.event(map[string]any{"type": "tool.call", "toolCallId": id, "name": name, "args": map[string]any{"path": "a.go", "n": s.n}})
	}
}

func (s *script) result() {
	if len(s.Calls) == 0 {
		return
	}
	id, failed := rapid.SampledFrom(s.Calls).Draw(s.T, "call"), s.Chance(50)
	if s.isCLI {
		s.wire("ToolResult", map[string]any{"tool_call_id": id, "return_value": map[string]any{"is_error": failed, "output": s.word(), "message": s.word()}})
	} else {
		result := map[string]any{"output": s.word(), "isError": failed, "durationMs": s.Figure()}
		s.event(map[string]any{"type": "tool.result", "toolCallId": id, "result": result})
	}
}

// step writes the tokens of an API call, in the order of an old or a new version.
func (s *script) step() {
	s.n++
	id := fmt.Sprintf("s%d", s.n)
	if s.isCLI {
		s.wire("StatusUpdate", map[string]any{"message_id": id, "token_usage": map[string]any{"input_other": s.Figure(), "output": s.Figure(), "input_cache_read": s.Figure(), "input_cache_creation": s.Figure()}})
		return
	}
	usage := map[string]any{"inputOther": s.Figure(), "output": s.Figure(), "inputCacheRead": s.Figure(), "inputCacheCreation": s.Figure()}
	end := map[string]any{"type": "step.end", "uuid": id, "usage": usage}
	record := map[string]any{"type": "usage.record", "model": "k", "usage": usage, "usageScope": s.OneOf("turn", "turn", "session")}
	s.event(map[string]any{"type": "step.begin", "uuid": id})
	switch s.OneOf("old", "new", "alone") {
	case "old":
		s.event(end)
		s.put(record)
	case "new":
		s.put(record)
		s.answer()
		s.event(end)
	case "alone":
		s.put(record)
	}
}

func (s *script) other() {
	for _, m := range s.due {
		s.put(map[string]any{"type": "context.append_message", "message": m})
	}
	s.due = nil
	if s.isCLI {
		s.wire(s.OneOf("StepBegin", "TurnEnd", "BtwBegin", "BtwEnd", "StepRetry"), map[string]any{"question": s.word(), "response": s.word(), "error_type": "APIError"})
		return
	}
	s.put(map[string]any{
		"type": s.OneOf("config.update", "llm.request", "turn.ended", "context.apply_compaction", "context.undo",
			"token_counting.measured", "plugin.session_start", "forked", "prompt.steered", "prompt.completed",
			"file_history.checkpoint", "turn.step.retrying"),
		"summary": s.word(), "content": s.word(), "reason": s.OneOf("completed", "failed"), "modelAlias": s.OneOf("k", "l"), "cwd": "/w",
		"error": map[string]any{"code": "c", "message": s.word()}, "errorName": "e", "errorMessage": s.word(),
	})
}
