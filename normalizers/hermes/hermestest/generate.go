package hermestest

import (
	"encoding/json"
	"maps"

	"pgregory.net/rapid"

	"tributary/normalizers/normalizerstest"
)

// script writes the log of one session, message by message.
type script struct {
	normalizerstest.Script
}

// lines generates the lines of one session, or a saved session.
func lines(t *rapid.T, session string) [][]byte {
	s := &script{Script: normalizerstest.NewScript(t, session)}
	if s.Chance(40) {
		s.rows()
		return s.Lines
	}
	var messages []any
	saved := s.Chance(30)
	for range rapid.IntRange(1, 20).Draw(t, "messages") {
		m := s.message()
		if messages = append(messages, m); !saved {
			s.Emit(m)
			if s.Chance(5) {
				s.Repeat()
			}
		}
	}
	if saved {
		for _, n := range []int{len(messages) / 2, len(messages)} { // rewritten
			s.Emit(map[string]any{
				"session_id": session, "model": "gpt-5.2", "platform": "cli", "session_start": "2026-03-01T09:00:00Z", "cwd": "/w",
				"system_prompt": "You are Hermes.", "message_count": n, "messages": messages[:n],
			})
		}
	}
	return s.Lines
}

func (s *script) word() string {
	return s.Text("[Continuing toward your standing goal]\nGoal: x",
		"[IMPORTANT: The user has invoked the \"plan\" skill.]\n\nThe user has provided the following instruction alongside the skill invocation: plan it",
		"[IMPORTANT: The user has invoked the \"plan\" skill.]", "\x00json:[{\"type\":\"text\",\"text\":\"a part\"}]", "\x00json:[{\"type\":\"image_url\"}]", "[CONTEXT COMPACTION] so far")
}

func (s *script) message() map[string]any {
	m := map[string]any{
		"content": s.word(), "tool_calls": "", "tool_call_id": "", "tool_name": "", "finish_reason": "", "display_kind": "",
		"timestamp": s.Stamp(), "_model": "gpt-5.6", "_cwd": "",
	}
	switch m["role"] = s.OneOf("user", "user", "assistant", "assistant", "tool", "tool", "system"); m["role"] {
	case "user":
		m["display_kind"] = s.OneOf("", "", "", "hidden")
	case "assistant":
		s.answer(m)
	case "tool":
		s.result(m)
	}
	return m
}

func (s *script) answer(m map[string]any) {
	s.Maybe(30, m, map[string]any{"reasoning": s.word()})
	var calls []any
	for range rapid.IntRange(0, 3).Draw(s.T, "calls") {
		name := s.OneOf("terminal", "read_file", "delegate_task")
		if s.Chance(20) {
			calls = append(calls, map[string]any{"name": name, "arguments": map[string]any{"path": "a.go"}})
			continue
		}
		id := s.NewCall()
		calls = append(calls, map[string]any{"id": id, "type": "function", "function": map[string]any{"name": name, "arguments": `{"command":"make"}`}})
	}
	if calls == nil {
		return
	}
	quoted, err := json.Marshal(calls)
	if err != nil {
		s.T.Fatalf("encode calls: %v", err)
	}
	if m["tool_calls"] = string(quoted); s.Chance(30) {
		m["tool_calls"] = calls
	}
}

func (s *script) result(m map[string]any) {
	m["tool_name"] = s.OneOf("terminal", "read_file")
	if len(s.Calls) > 0 && s.Chance(80) {
		m["tool_call_id"] = rapid.SampledFrom(s.Calls).Draw(s.T, "call")
	}
	m["content"] = s.OneOf(`{"output":"a","exit_code":0,"error":null}`, `{"output":"","exit_code":2,"error":null}`, `{"output":"","exit_code":-1,"error":"no","status":"blocked"}`,
		`{"output":"Background process started","exit_code":0,"session_id":"p1"}`, `{"success":false,"error":"none"}`, `{"status":"dispatched","delegation_id":"d1"}`, "plain", "")
}

// rows writes the rows of a session.
func (s *script) rows() {
	input, output := 0, 0
	child, parent := s.Chance(20), s.Chance(30)
	session := func() {
		input, output = input+s.some(), output+s.some()
		row := map[string]any{
			"id": s.Session, "source": "cli", "started_at": 1772355600.5, "model": "gpt-5.6", "model_config": map[string]any{"cwd": "/w"}, "title": s.OneOf("The total of May", ""),
			"input_tokens": input, "output_tokens": output, "cache_read_tokens": input / 2, "cache_write_tokens": 0, "reasoning_tokens": output / 3,
			"estimated_cost_usd": float64(input) / 1e6, "actual_cost_usd": nil, "cost_status": s.OneOf("estimated", "estimated", "included"),
		}
		if child {
			row["source"] = "subagent"
		}
		if parent {
			row["parent_session_id"] = "20260301_080000_aa"
		}
		s.Emit(map[string]any{"table": "sessions", "row": row})
	}
	session()
	for n := range rapid.IntRange(1, 20).Draw(s.T, "messages") {
		m := s.message()
		for _, name := range []string{"_model", "_cwd"} {
			delete(m, name)
		}
		m["id"], m["session_id"], m["timestamp"] = n+1, s.Session, 1772355590.25+float64(n)
		m["active"], m["compacted"] = 1, 0
		if s.Chance(15) {
			m["active"], m["compacted"] = 0, rapid.IntRange(0, 1).Draw(s.T, "compacted")
		}
		s.Emit(map[string]any{"table": "messages", "row": m})
		switch s.OneOf("", "", "", "session", "clone", "line") {
		case "session":
			session()
		case "clone":
			clone := maps.Clone(m)
			clone["id"] = n + 1000
			s.Emit(map[string]any{"table": "messages", "row": clone})
		case "line":
			s.Emit(s.message())
		}
	}
}

// some draws a number of tokens.
func (s *script) some() int { return rapid.SampledFrom([]int{0, 57, 11_480}).Draw(s.T, "tokens") }
