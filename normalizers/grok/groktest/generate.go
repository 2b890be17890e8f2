package groktest

import (
	"fmt"

	"pgregory.net/rapid"

	"tributary/normalizers/normalizerstest"
)

// script writes the chat history of one session, or its updates.
type script struct {
	normalizerstest.Script

	prompts int
}

// lines generates the lines of one session: each names it first, as a summary or an update does.
func lines(t *rapid.T, session string) [][]byte {
	s := &script{Script: normalizerstest.NewScript(t, session)}
	s.update()
	s.Play(s.prompt, s.prompt, s.note, s.answer, s.answer, s.answer, s.result, s.result, s.other, s.update, s.Repeat)
	if s.Chance(20) { // rewritten from its start
		s.Lines = append(s.Lines, s.Lines[:len(s.Lines)/2]...)
	}
	return s.Lines
}

func (s *script) word() string {
	return s.Text("<user_query>\nthe ledger\n</user_query>", "<user_info>\nOS\n</user_info>", "<git_status>x</git_status>\n\nlook")
}

func textPart(text string) map[string]any { return map[string]any{"type": "text", "text": text} }

func (s *script) prompt() {
	m := map[string]any{"type": "user", "content": []any{textPart(s.word())}, "prompt_index": s.prompts}
	s.Maybe(20, m, map[string]any{"content": []any{map[string]any{"type": "image", "url": "data:"}}})
	s.prompts++
	s.Emit(m)
}

func (s *script) note() {
	s.Emit(map[string]any{
		"type": "user", "content": []any{textPart(s.OneOf(s.word(), "This session is being continued from another."))},
		"synthetic_reason": s.OneOf("interjection", "agent_message", "compaction_meta", "system_reminder"), "prompt_index": s.prompts,
	})
}

func (s *script) answer() {
	var calls []any
	for range rapid.IntRange(0, 2).Draw(s.T, "calls") {
		id := s.NewCall()
		calls = append(calls, map[string]any{"id": id, "name": s.OneOf("run_terminal_cmd", "read_file", "server__x"), "arguments": `{"command":"make","target_file":"a.go"}`})
	}
	m := map[string]any{"type": "assistant", "content": s.word(), "model_id": s.OneOf("grok-4.5", "grok-5")}
	if calls != nil {
		m["tool_calls"] = calls
	}
	s.Emit(m)
}

func (s *script) result() {
	id := s.AnyCall()
	s.Emit(map[string]any{"type": "tool_result", "tool_call_id": id, "content": s.OneOf("exit: 2 [1.2s]\nno", "exit: 0\nok", "Exit code: 3\nno", "exit: killed (timeout)", "exit: 4 times", "plain", "", "Tool `x` failed: no")})
}

func (s *script) other() {
	switch s.OneOf("system", "reasoning", "backend") {
	case "system":
		s.Emit(map[string]any{"type": "system", "content": s.word()})
	case "reasoning":
		s.Emit(map[string]any{"type": "reasoning", "id": "r1", "summary": []any{map[string]any{"type": "summary_text", "text": s.word()}}, "encrypted_content": "x", "status": "completed"})
	case "backend":
		id := fmt.Sprintf("%s-web%d", s.Session, len(s.Lines))
		s.Emit(map[string]any{"type": "backend_tool_call", "kind": map[string]any{"tool_type": "web_search", "id": id, "status": s.OneOf("completed", "failed"), "action": map[string]any{"type": "search", "query": "x", "sources": []any{}}}})
	}
}

func (s *script) update() {
	u := map[string]any{"sessionUpdate": "agent_message_chunk", "content": map[string]any{"type": "text", "text": s.word()}}
	if s.Chance(60) {
		u = map[string]any{"sessionUpdate": "turn_completed", "prompt_id": fmt.Sprintf("%s-p%d", s.Session, len(s.Lines)), "stop_reason": "end_turn", "usage": map[string]any{
			"inputTokens": 12_000 + s.Figure(), "cachedReadTokens": s.Figure(), "cacheCreationTokens": s.Figure(), "outputTokens": 11_500 + s.Figure(), "reasoningTokens": s.Figure(), "costUsdTicks": s.Figure() * 1000,
		}}
	}
	s.Stamp()
	s.Emit(map[string]any{"timestamp": s.Now.Unix(), "method": "_x.ai/session/update", "params": map[string]any{
		"sessionId": s.Session, "update": u, "_meta": map[string]any{"eventId": s.OneOf(s.Session, s.Session, s.Session, "parent") + "-7"},
	}})
}
