package droidtest

import (
	"pgregory.net/rapid"

	"tributary/normalizers/normalizerstest"
)

// script writes a session, or the lines of its runs, and its settings among them.
type script struct {
	normalizerstest.Script

	isRun bool
}

// lines generates the lines of one session.
func lines(t *rapid.T, session string) [][]byte {
	s := &script{Script: normalizerstest.NewScript(t, session)}
	if s.isRun = s.Chance(50); s.isRun {
		s.put("system", map[string]any{"subtype": "init", "model": "gpt-5.2", "cwd": "/w", "reasoning_effort": "off"})
	} else {
		first := map[string]any{"type": "session_start", "id": session, "title": s.OneOf("New Session", "The ledger"), "cwd": "/w", "version": "0.81.0"}
		s.Maybe(20, first, map[string]any{"callingSessionId": "s0"})
		s.Emit(first)
	}
	s.Play(s.prompt, s.prompt, s.answer, s.answer, s.call, s.call, s.result, s.result, s.end, s.settings, s.other)
	return s.Lines
}

func (s *script) word() string {
	return s.Text("Error: Command failed (exit code: 3)\nx", "a\nError: Command failed (exit code: 4)", "<system-reminder>a</system-reminder>", "<system-reminder>\na\n</system-reminder>\n\n<system-reminder>b</system-reminder>\ngo", "# Task Tool Invocation\n\ngo")
}

// put writes a record with an id and a time, and in a run with its session.
func (s *script) put(kind string, members map[string]any) {
	id, _ := s.NextID()
	members["type"], members["timestamp"] = kind, s.Stamp()
	if members["id"] == nil {
		members["id"] = id
	}
	if s.isRun {
		members[s.OneOf("sessionId", "session_id")] = s.Session
		s.Maybe(50, members, map[string]any{"timestamp": s.Now.UnixMilli()})
	}
	s.Emit(members)
}

func (s *script) message(role string, content ...any) {
	m := map[string]any{"role": role, "content": content}
	s.Maybe(10, m, map[string]any{"visibility": s.OneOf("llm_only", "user_only")})
	s.put("message", map[string]any{"message": m, "parentId": nil})
}

func part(text string) map[string]any { return map[string]any{"type": "text", "text": text} }

func (s *script) prompt() {
	switch {
	case s.isRun:
		s.put("message", map[string]any{"role": "user", "text": s.word()})
	case s.Chance(20):
		s.message("user", part(s.word()), map[string]any{"type": "image"})
	default:
		s.message("user", part(s.word()), part(s.word()))
	}
}

func (s *script) answer() {
	if s.isRun {
		s.put("message", map[string]any{"role": "assistant", "text": s.word()})
		return
	}
	s.message("assistant", map[string]any{"type": "thinking", "thinking": s.word()}, part(s.word()), part(s.word()))
}

func (s *script) call() {
	id := s.NewCall()
	name := s.OneOf("Execute", "Read", "Create", "mcp_x")
	input := map[string]any{"file_path": "a.go", "command": "go test"}
	if s.isRun {
		s.put("tool_call", map[string]any{"id": id, "toolName": name, "toolId": name, "parameters": input})
		return
	}
	s.put("message", map[string]any{"message": map[string]any{"role": "assistant", "content": []any{map[string]any{"type": "tool_use", "id": id, "name": name, "input": input}}}})
}

func (s *script) result() {
	id := s.AnyCall()
	if !s.isRun {
		s.put("message", map[string]any{"message": map[string]any{"role": "user", "content": []any{map[string]any{"type": "tool_result", "tool_use_id": id, "content": s.word(), "is_error": s.Chance(50)}}}})
		return
	}
	var value any = s.word()
	if s.Chance(40) {
		value = map[string]any{"stdout": s.word(), "exitCode": rapid.IntRange(0, 3).Draw(s.T, "exit")}
	}
	s.put("tool_result", map[string]any{"id": id, "isError": s.Chance(50), "value": value})
}

func (s *script) end() {
	if s.isRun {
		s.put("completion", map[string]any{"finalText": s.word(), "usage": map[string]any{"input_tokens": s.Figure(), "output_tokens": s.Figure(), "cache_read_input_tokens": s.Figure(), "cache_creation_input_tokens": s.Figure()}})
	} else {
		s.put("session_end", map[string]any{"finalText": s.word()})
	}
}

func (s *script) settings() {
	s.Emit(map[string]any{"assistantActiveTimeMs": len(s.Lines), "model": "m", "tokenUsage": map[string]any{
		"inputTokens": s.Figure(), "outputTokens": s.Figure(), "cacheReadTokens": s.Figure(), "cacheCreationTokens": s.Figure(), "thinkingTokens": s.Figure(),
	}})
}

func (s *script) other() {
	if s.Chance(10) {
		s.put("compaction_state", map[string]any{"summary": map[string]any{"title": s.word(), "body": s.word()}})
		return
	}
	s.put(s.OneOf("todo_state", "compaction_state", "agent_turn_outcome", "error"), map[string]any{
		"todos": map[string]any{}, "summaryText": s.word(), "reason": s.OneOf("completed", "error"), "resultKind": "x", "source": "cli", "message": s.word(),
	})
}
