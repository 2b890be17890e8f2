package kirotest

import (
	"maps"

	"pgregory.net/rapid"

	"tributary/normalizers/normalizerstest"
)

// script writes the log of one session: its lines, its state, and a conversation of Amazon Q.
type script struct {
	normalizerstest.Script

	turns   []any
	history []any
}

// lines generates the records of one session.
func lines(t *rapid.T, session string) [][]byte {
	s := &script{Script: normalizerstest.NewScript(t, session)}
	s.Play(s.prompt, s.prompt, s.answer, s.answer, s.results, s.results, s.other, s.state, s.conversation, s.event, s.event, s.event, s.Repeat)
	return s.Lines
}

func (s *script) word() string {
	return s.Text("exit status: 3")
}

func (s *script) id() string {
	id, _ := s.NextID()
	return id
}

func (s *script) line(kind string, data any) {
	s.Emit(map[string]any{"version": "v1", "kind": kind, "data": data})
}

func block(kind string, data any) map[string]any { return map[string]any{"kind": kind, "data": data} }

func (s *script) prompt() {
	s.Stamp()
	content := []any{block("text", s.word())}
	switch s.OneOf("one", "two", "image") {
	case "two":
		content = append(content, block("text", s.word()))
	case "image":
		content = append(content, block("image", map[string]any{"format": "png"}))
	}
	s.line("Prompt", map[string]any{"message_id": s.id(), "content": content, "meta": map[string]any{"timestamp": s.Now.Unix()}})
}

func (s *script) call() (id, name string, input any) {
	id = s.NewCall()
	return id, s.OneOf("shell", "read", "write", "execute_bash", "mcp_x"), map[string]any{
		"command": s.OneOf("create", "strReplace", "ls"), "path": "a.go", "operations": []any{map[string]any{"path": "b.go"}},
	}
}

func (s *script) answer() {
	content := []any{block("text", s.word())}
	for range rapid.IntRange(0, 3).Draw(s.T, "blocks") {
		switch s.OneOf("text", "thinking", "call") {
		case "text":
			content = append(content, block("text", s.word()))
		case "thinking":
			content = append(content, block("thinking", map[string]any{"text": s.word(), "modelId": s.OneOf("claude-opus-4.5", "auto", "")}))
		case "call":
			id, name, input := s.call()
			content = append(content, block("toolUse", map[string]any{"toolUseId": id, "name": name, "input": input}))
		}
	}
	s.line("AssistantMessage", map[string]any{"message_id": s.id(), "content": content})
}

// status is an exit status with the output beside it.
func (s *script) status(list ...string) map[string]any {
	out := map[string]any{"exit_status": s.OneOf(list...), "stdout": s.word(), "stderr": s.word()}
	if s.Chance(20) { // of no shell
		maps.DeleteFunc(out, func(name string, _ any) bool { return name != "exit_status" })
	}
	return out
}

func (s *script) called() string {
	if len(s.Calls) == 0 || s.Chance(10) {
		return s.Session + "-lost"
	}
	return rapid.SampledFrom(s.Calls).Draw(s.T, "call")
}

func (s *script) results() {
	var content []any
	for range rapid.IntRange(0, 3).Draw(s.T, "results") {
		parts := []any{block("text", s.word())}
		if s.Chance(60) {
			parts = []any{block("json", s.status("exit status: 0", "exit status: 101", "exit code: -1", "signal: 9 (SIGKILL)"))}
		}
		content = append(content, block("toolResult", map[string]any{"toolUseId": s.called(), "content": parts, "status": s.OneOf("success", "error")}))
	}
	s.line("ToolResults", map[string]any{"message_id": s.id(), "content": content, "results": map[string]any{}})
}

func (s *script) other() {
	switch kind := s.OneOf("Compaction", "Clear", "ResetTo", "CancelledPrompt"); kind {
	case "Clear":
		s.line(kind, nil)
	default:
		s.line(kind, map[string]any{"summary": s.word(), "target_index": 1})
	}
}

// event writes an event of Kiro IDE, or what lies beside the events.
func (s *script) event() {
	var p map[string]any
	switch kind := s.OneOf("user", "assistant", "tool_call", "tool_result", "tool_result", "usage_summary", "turn_end", "session_metadata", "interaction_resolved", "beside"); kind {
	case "user":
		p = map[string]any{"content": s.word(), "images": []any{}}
		s.Maybe(20, p, map[string]any{"content": []any{map[string]any{"type": "text", "text": s.word()}, map[string]any{"type": "text", "text": s.word()}}})
		s.Maybe(20, p, map[string]any{"images": []any{map[string]any{}}})
		p["type"] = kind
	case "assistant":
		p = map[string]any{"type": kind, "content": s.word(), "operationType": s.OneOf("Say", "Say", "Reasoning", "Summary", "Print"), "reasoningModelId": s.OneOf("qdev::auto", "claude-opus-4.5")}
	case "tool_call":
		p = map[string]any{
			"type": kind, "toolCallId": s.NewCall(), "toolName": s.OneOf("execute_bash", "execute_pwsh", "fs_write", "str_replace", "mcp_x"),
			"args": map[string]any{"command": "ls", "path": "a.go"}, "status": "completed",
		}
	case "tool_result":
		p = map[string]any{"type": kind, "toolCallId": s.called(), "content": s.word() + s.OneOf("", "\nExit Code: 0", "\n\nExit Code: 3", "\nExit Code: -1"), "success": s.Chance(50), "durationMs": 7}
	case "usage_summary":
		p = map[string]any{"type": kind, "elapsedTime": 71_830, "promptTurnSummaries": []any{map[string]any{"unit": s.OneOf("credit", "token"), "usage": 0.5}}}
	case "turn_end":
		p = map[string]any{"type": kind, "stopReason": "end_turn"}
	case "session_metadata":
		p = map[string]any{"type": kind, "key": s.OneOf("contextUsage", "displayError", "other"), "value": s.word()}
	case "interaction_resolved":
		p = map[string]any{"type": kind, "toolCallId": s.called(), "outcome": "selected", "selectedOption": s.OneOf("accept", "reject")}
	case "beside":
		s.Emit(map[string]any{
			"schemaVersion": "1.0.0", "id": s.Session, "title": s.word(), "agentMode": "vibe", "workspacePaths": []any{"/home/ada/app"},
			"lastModifiedAt": s.Stamp(), "modelId": s.OneOf("auto", "claude-opus-4.5"),
		})
		return
	}
	s.Emit(map[string]any{"id": s.id(), "timestamp": s.Stamp(), "payload": p})
}

// state writes the state of the session, to which a turn was added, or whose last turn has more tokens.
func (s *script) state() {
	if len(s.turns) == 0 || s.Chance(70) {
		ids := rapid.SampledFrom([][]any{{s.id(), nil}, {nil}, {}}).Draw(s.T, "ids")
		s.turns = append(s.turns, map[string]any{
			"loop_id": map[string]any{"rand": 1000 + len(s.turns)}, "message_ids": ids, "end_timestamp": s.Stamp(),
			"end_reason": "UserTurnEnd", "metering_usage": []any{map[string]any{"value": 0.25, "unit": "credit"}}, "input_token_count": 0,
		})
	}
	last := maps.Clone(s.turns[len(s.turns)-1].(map[string]any))
	for _, name := range []string{"input_token_count", "output_token_count", "cache_read_input_token_count", "cache_write_input_token_count"} {
		last[name] = rapid.SampledFrom([]int{0, 0, 1, 57, 11_480}).Draw(s.T, "tokens")
	}
	last["result"] = rapid.SampledFrom([]any{map[string]any{"Ok": map[string]any{}}, map[string]any{"Err": "overloaded"}}).Draw(s.T, "result")
	s.turns[len(s.turns)-1] = last
	s.Emit(map[string]any{
		"session_id": s.Session, "cwd": "/home/ada/app", "title": s.word(), "created_at": s.Stamp(), "updated_at": s.Stamp(),
		"session_state": map[string]any{
			"agent_name": "kiro_default", "rts_model_state": map[string]any{"model_info": map[string]any{"model_id": s.OneOf("auto", "claude-opus-4.5")}},
			"conversation_metadata": map[string]any{"user_turn_metadatas": s.turns},
		},
	})
}

// conversation writes a conversation to which entries were added; some drop off its front.
func (s *script) conversation() {
	for range rapid.IntRange(0, 4).Draw(s.T, "entries") {
		id := s.id()
		content := map[string]any{"Prompt": map[string]any{"prompt": s.word()}}
		if len(s.Calls) > 0 && s.Chance(60) {
			result := map[string]any{"tool_use_id": s.called(), "status": s.OneOf("Success", "Error"), "content": []any{
				rapid.SampledFrom([]any{map[string]any{"Text": "x"}, map[string]any{"Json": s.status("0", "2")}}).Draw(s.T, "output"),
			}}
			content = map[string]any{s.OneOf("ToolUseResults", "CancelledToolUses"): map[string]any{"tool_use_results": []any{result}}}
		}
		assistant := map[string]any{"Response": map[string]any{"message_id": id, "content": s.word()}}
		if s.Chance(50) {
			call, name, args := s.call()
			use := map[string]any{"id": call, "name": name, "args": args}
			assistant = map[string]any{"ToolUse": map[string]any{"message_id": id, "content": s.word(), "tool_uses": []any{use}}}
		}
		s.history = append(s.history, map[string]any{
			"user":             map[string]any{"additional_context": s.word(), "content": content, "timestamp": s.Stamp()},
			"assistant":        assistant,
			"request_metadata": map[string]any{"message_id": id, "stream_end_timestamp_ms": s.Now.UnixMilli(), "model_id": "claude-sonnet-4"},
		})
	}
	s.history = s.history[min(len(s.history), rapid.IntRange(0, 2).Draw(s.T, "dropped")):]
	record := map[string]any{"conversation_id": s.Session, "history": append([]any{}, s.history...), "latest_summary": nil}
	s.Maybe(20, record, map[string]any{"latest_summary": []any{s.word(), map[string]any{}}})
	s.Emit(record)
}
