package pitest

import (
	"maps"
	"time"

	"pgregory.net/rapid"

	"tributary/normalizers/normalizerstest"
)

// script writes the log of one session, entry by entry.
type script struct{ normalizerstest.Script }

// lines generates the lines of one session of Pi or OpenClaw.
func lines(t *rapid.T, session, agent string, more func(*normalizerstest.Script, func(string, map[string]any))) [][]byte {
	s := &script{Script: normalizerstest.NewScript(t, session)}
	first := map[string]any{"type": "session", "version": 3, "id": session, "timestamp": s.Stamp(), "cwd": "/home/ada/." + agent + "/app"}
	if s.Chance(20) { // a fork: some entries are older than the first line
		first["parentSession"], first["timestamp"] = "/s.jsonl", s.Now.Add(10*time.Second).Format("2006-01-02T15:04:05.000Z")
	}
	s.Emit(first)
	own := func() {
		if more != nil {
			more(&s.Script, s.put)
		}
	}
	s.Play(s.prompt, s.prompt, s.answer, s.answer, s.answer, s.result, s.result, s.other, s.Repeat, own)
	return s.Lines
}

func (s *script) word() string {
	return s.Text("Command exited with code 3", "a\n\nCommand exited with code 127\n", "<skill name=\"review\" location=\"/s\">\nLook twice.\n</skill>\n\nthe ledger",
		"<skill name=\"commit\" location=\"/c\">\nCommit it.\n</skill>", "<file name=\"a.go\">\nx\n</file>\n")
}

// put writes an entry.
func (s *script) put(kind string, members map[string]any) {
	members["id"], members["parentId"] = s.NextID()
	members["type"], members["timestamp"] = kind, s.Stamp()
	s.Emit(members)
}

func (s *script) message(role string, content any, members map[string]any) {
	members["role"], members["content"], members["timestamp"] = role, content, s.Now.UnixMilli()
	s.put("message", map[string]any{"message": members})
}

func textBlock(text string) map[string]any { return map[string]any{"type": "text", "text": text} }

func (s *script) prompt() {
	switch s.OneOf("text", "blocks", "image") {
	case "text":
		s.message("user", s.word(), map[string]any{})
	case "blocks":
		s.message("user", []any{textBlock(s.word()), textBlock(s.word())}, map[string]any{})
	case "image":
		s.message("user", []any{map[string]any{"type": "image", "data": "iVBO", "mimeType": "image/png"}}, map[string]any{})
	}
}

func (s *script) answer() {
	var content []any
	for range rapid.IntRange(0, 3).Draw(s.T, "blocks") {
		switch s.OneOf("text", "thinking", "call") {
		case "text":
			content = append(content, textBlock(s.word()))
		case "thinking":
			content = append(content, map[string]any{"type": "thinking", "thinking": s.word(), "thinkingSignature": "x"})
		case "call":
			id := s.NewCall("|fc_1")
			name := s.OneOf("bash", "read", "edit", "find", "mcp_x")
			content = append(content, map[string]any{"type": "toolCall", "id": id, "name": name, "arguments": map[string]any{"path": "a.go", "command": "go test"}})
		}
	}
	more := map[string]any{
		"provider": "openai", "model": s.OneOf("gpt-5.5", "claude-opus-4-7"), "stopReason": s.OneOf("stop", "toolUse", "length"),
		"usage": map[string]any{
			"input": s.Figure(), "output": s.Figure(), "cacheRead": s.Figure(), "cacheWrite": s.Figure(), "totalTokens": 7, "reasoning": s.Figure(),
			"cost": map[string]any{"input": 0.5, "total": float64(s.Figure()) / 1000},
		},
	}
	s.Maybe(20, more, map[string]any{"stopReason": s.OneOf("error", "aborted"), "errorMessage": s.OneOf("it broke", "")})
	s.message("assistant", content, more)
}

func (s *script) result() {
	id := s.AnyCall()
	s.message("toolResult", []any{textBlock(s.word())}, map[string]any{"toolCallId": id, "toolName": s.OneOf("bash", "read"), "isError": s.Chance(50)})
}

// accounted writes tokens beside those of answers: as an entry, as what a run prints, or as both.
func (s *script) accounted() {
	u := map[string]any{
		"input": s.Figure(), "output": s.Figure(), "cacheRead": s.Figure(), "cacheWrite": s.Figure(), "totalTokens": 7,
		"cost": map[string]any{"total": float64(s.Figure()) / 1000},
	}
	result := map[string]any{"summary": s.word(), "tokensBefore": s.Figure(), "usage": u}
	switch s.OneOf("usage", "warmed", "printed", "twice") {
	case "usage":
		s.put("usage", map[string]any{"kind": "cache_warm", "provider": "openai", "model": "gpt-5.5-mini", "usage": u})
	case "warmed":
		id, last := s.NextID()
		entry := map[string]any{
			"type": "usage", "id": id, "parentId": last, "timestamp": s.Stamp(), "kind": "cache_warm", "model": "m", "usage": u,
		}
		s.Emit(map[string]any{"type": "entry_appended", "entry": entry})
		if s.Chance(50) {
			s.Emit(entry)
		}
	case "printed":
		s.Emit(map[string]any{"type": "compaction_end", "reason": "threshold", "result": result})
	case "twice":
		s.Emit(map[string]any{"type": "compaction_end", "reason": "threshold", "result": result})
		s.put("compaction", maps.Clone(result))
	}
}

func (s *script) other() {
	switch kind := s.OneOf("model_change", "thinking_level_change", "compaction", "branch_summary", "custom",
		"custom_message", "label", "session_info", "bash", "accounted", "system", "context_edit", "agent_settled"); kind {
	case "accounted":
		s.accounted()
	case "system":
		s.message("system", s.word(), map[string]any{"sections": map[string]any{"cwd": s.word(), "skills": nil}})
	case "agent_settled":
		s.Emit(map[string]any{"type": kind, "aborted": false})
	case "model_change":
		s.put(kind, map[string]any{"provider": "openai", "modelId": "gpt-5.5"})
	case "bash":
		s.message("bashExecution", nil, map[string]any{"command": "ls", "output": s.word(), "exitCode": 0})
	default:
		s.put(kind, map[string]any{"thinkingLevel": "high", "summary": s.word(), "customType": "x", "content": s.word(), "name": s.word(), "data": map[string]any{"a": 1}})
	}
}
