package goosetest

import (
	"fmt"

	"pgregory.net/rapid"

	"tributary/normalizers/normalizerstest"
)

// script writes the rows of one session.
type script struct {
	normalizerstest.Script

	n       int
	in, out int // sums of a session whose messages have no tokens
}

// lines generates the records of one session.
func lines(t *rapid.T, session string) [][]byte {
	s := &script{Script: normalizerstest.NewScript(t, session)}
	s.Stamp()
	s.session()
	s.Play(s.prompt, s.prompt, s.answer, s.answer, s.answer, s.result, s.result, s.other, s.Repeat, s.session)
	return s.Lines
}

func (s *script) word() string {
	return s.Text("Command exited with code 3")
}

func (s *script) session() {
	row := map[string]any{
		"id": s.Session, "name": s.OneOf("Fix the ledger", "New session", ""), "session_type": s.OneOf("user", "user", "user", "sub_agent"),
		"working_dir": "/home/ada/src/ledger", "created_at": s.Now.UTC().Format("2006-01-02 15:04:05"), "provider_name": "anthropic",
		"model_config_json": map[string]any{"model_name": s.OneOf("claude-sonnet-4-5", "")},
	}
	if s.Chance(40) {
		s.in, s.out = s.in+s.Figure(), s.out+s.Figure()
		row["accumulated_input_tokens"], row["accumulated_output_tokens"], row["accumulated_cache_read_tokens"] = s.in, s.out, nil
		s.Maybe(40, row, map[string]any{"accumulated_cache_read_tokens": 0})
	}
	s.Emit(map[string]any{"table": "sessions", "row": row})
}

// message writes a message.
func (s *script) message(role string, content []any, meta map[string]any) {
	s.n++
	s.Stamp()
	if content == nil {
		content = []any{}
	}
	row := map[string]any{"id": s.n, "session_id": s.Session, "role": role, "content_json": content, "created_timestamp": s.Now.Unix()}
	switch s.OneOf("own", "own", "own", "provider", "none") {
	case "own":
		row["message_id"] = fmt.Sprintf("msg_%s_%d", s.Session, s.n)
	case "provider":
		row["message_id"] = "chatcmpl-" + s.OneOf("1", "2")
		row["created_timestamp"] = s.Now.Unix() + int64(s.n)*1000
	case "none": // of a version that states no tokens either
		delete(meta, "usage")
	}
	s.Maybe(10, row, map[string]any{"created_timestamp": row["created_timestamp"].(int64) * 1000})
	if meta != nil {
		row["metadata_json"] = meta
	}
	s.Emit(map[string]any{"table": "messages", "row": row})
}

func (s *script) text() map[string]any {
	b := map[string]any{"type": "text", "text": s.word()}
	s.Maybe(10, b, map[string]any{"annotations": map[string]any{"audience": []any{s.OneOf("assistant", "user")}}})
	return b
}

func (s *script) visible() map[string]any {
	return map[string]any{"userVisible": !s.Chance(15), "agentVisible": true}
}

func (s *script) prompt() {
	switch s.OneOf("text", "texts", "image", "plain") {
	case "text":
		s.message("user", []any{s.text()}, s.visible())
	case "texts":
		s.message("user", []any{s.text(), s.text()}, s.visible())
	case "image":
		s.message("user", []any{map[string]any{"type": "image", "data": "iVBO", "mimeType": "image/png"}}, s.visible())
	case "plain":
		s.message("user", []any{map[string]any{"type": "text", "text": s.word()}}, nil)
	}
}

func (s *script) answer() {
	var content []any
	for range rapid.IntRange(0, 3).Draw(s.T, "blocks") {
		switch s.OneOf("text", "thinking", "call") {
		case "text":
			content = append(content, s.text())
		case "thinking":
			for _, token := range []string{"I ", "look", s.word()} {
				content = append(content, map[string]any{"type": "thinking", "thinking": token, "signature": ""})
			}
		case "call":
			id := s.NewCall()
			value := map[string]any{"name": s.OneOf("shell", "developer__shell", "write", "tree", "apps__list_apps"), "arguments": map[string]any{"path": "a.go", "command": "go test"}}
			content = append(content, map[string]any{"type": "toolRequest", "id": id, "toolCall": map[string]any{"status": "success", "value": value}})
		}
	}
	meta := s.visible()
	if s.Chance(70) {
		in, out, cached := s.Figure(), s.Figure(), s.Figure()
		usage := map[string]any{"inputTokens": in, "outputTokens": out, "totalTokens": in + out, "elapsedMs": 7}
		if s.Chance(40) {
			usage["cacheReadTokens"], usage["cacheWriteTokens"], usage["cost"] = cached, s.Figure(), float64(s.Figure())/1e5
			usage["totalTokens"] = in + out + s.oneOfInt(0, cached)
		}
		meta["usage"] = usage
	}
	s.Maybe(30, meta, map[string]any{"inference": map[string]any{"provider": "anthropic", "requestedModel": "claude-sonnet-4-5", "resolvedModel": s.OneOf("claude-sonnet-4-5-20260101", "")}})
	s.message("assistant", content, meta)
}

// oneOfInt draws one of some numbers.
func (s *script) oneOfInt(numbers ...int) int { return rapid.SampledFrom(numbers).Draw(s.T, "number") }

func (s *script) result() {
	id := s.AnyCall()
	result := map[string]any{"status": "error", "error": "-32002: Tool not found"}
	if s.Chance(80) {
		value := map[string]any{"content": []any{s.text()}, "isError": s.Chance(30)}
		s.Maybe(50, value, map[string]any{"structuredContent": map[string]any{"stdout": "a", "exit_code": s.oneOfInt(0, 1, 127)}})
		result = map[string]any{"status": "success", "value": value}
	}
	s.message("user", []any{map[string]any{"type": "toolResponse", "id": id, "toolResult": result}}, s.visible())
}

func (s *script) other() {
	b := map[string]any{"type": s.OneOf("systemNotification", "error", "contextLengthExceeded", "conversationCompacted", "toolConfirmationRequest", "redactedThinking")}
	b["msg"], b["kind"], b["message"] = s.word(), "rate_limit", "slow down"
	s.message("assistant", []any{b}, s.visible())
}
