package qwentest

import (
	"maps"

	"pgregory.net/rapid"

	"tributary/normalizers/normalizerstest"
)

// script writes the log of one session, record by record.
type script struct{ normalizerstest.Script }

// object is a JSON object.
type object = map[string]any

// lines generates the lines of one session.
func lines(t *rapid.T, session string) [][]byte {
	s := &script{normalizerstest.NewScript(t, session)}
	s.Play(s.prompt, s.prompt, s.turn, s.turn, s.turn, s.result, s.result, s.telemetry, s.other, s.export, s.export, s.Repeat)
	return s.Lines
}

func (s *script) word() string {
	return s.Text("/review", "Exit Code: 7",
		"<system-reminder>\nno\n</system-reminder>", "look\n--- Content from referenced files ---\na\n--- End of content ---",
		"<qwen:user-prompt-submit-context>\nx\n</qwen:user-prompt-submit-context>")
}

// put writes a record.
func (s *script) put(kind string, members object) {
	members["uuid"], members["parentUuid"] = s.NextID()
	maps.Copy(members, object{"sessionId": s.Session, "timestamp": s.Stamp(), "type": kind, "cwd": "/home/ada/src/ledger", "version": "0.21.13"})
	s.Maybe(10, members, object{"gitBranch": s.OneOf("main", "HEAD", "a b", "fix")})
	s.Maybe(5, members, object{"forkedFrom": object{"sessionId": "s0", "messageUuid": members["uuid"]}})
	s.Emit(members)
}

func (s *script) message(kind string, parts []any, members object) {
	role := "user"
	if kind == "assistant" {
		role = "model"
	}
	members["message"] = object{"role": role, "parts": parts}
	s.Maybe(10, members, object{"agentId": "explore-1", "isSidechain": true})
	s.put(kind, members)
}

func (s *script) prompt() {
	members := object{}
	switch s.OneOf("plain", "shown", "subtype", "provenance", "external") {
	case "shown":
		members["systemPayload"] = object{"displayText": s.word(), "hookContext": ""}
	case "subtype":
		members["subtype"] = s.OneOf("mid_turn_user_message", "notification", "cron", "goal_runtime", "realtime_message")
	case "provenance":
		members["provenance"] = s.OneOf("real_user", "system", "goal_control")
	case "external":
		members["externalInputKind"] = s.OneOf("message", "notification")
	}
	var parts []any
	for range rapid.IntRange(0, 2).Draw(s.T, "parts") {
		parts = append(parts, object{"text": s.word()})
	}
	if s.Chance(20) {
		parts = append(parts, object{"inlineData": object{"mimeType": "image/png", "data": "iVBO"}})
	}
	s.message("user", parts, members)
}

// turn writes a message of the model, mostly behind the telemetry of its call.
func (s *script) turn() {
	var parts []any
	for range rapid.IntRange(0, 3).Draw(s.T, "parts") {
		switch s.OneOf("text", "thought", "call") {
		case "text":
			parts = append(parts, object{"text": s.word()})
		case "thought":
			parts = append(parts, object{"text": s.word(), "thought": true})
		case "call":
			id := s.NewCall()
			parts = append(parts, object{"functionCall": object{"id": id, "name": s.OneOf("run_shell_command", "read_file", "edit", "glob"), "args": object{"file_path": "a.go"}}})
		}
	}
	input, output, thoughts, cached := s.Figure(), s.Figure(), s.Figure(), s.Figure()
	usage := object{"promptTokenCount": input, "candidatesTokenCount": output}
	telemetry := object{"event.name": "qwen-code.api_response", "model": "coder", "input_token_count": input, "output_token_count": output}
	if s.Chance(60) {
		total := input + output + rapid.SampledFrom([]int{0, thoughts}).Draw(s.T, "more")
		maps.Copy(usage, object{"thoughtsTokenCount": thoughts, "cachedContentTokenCount": cached, "totalTokenCount": total})
		maps.Copy(telemetry, object{"thoughts_token_count": thoughts, "cached_content_token_count": cached, "total_token_count": total})
	} else {
		s.Maybe(50, telemetry, object{"output_token_count": s.Figure()})
	}
	s.Maybe(30, telemetry, object{"response_text": s.OneOf("and the rest", s.word())}) // after the connection broke
	first := s.Chance(80)
	if first {
		s.event(telemetry)
	}
	s.message("assistant", parts, object{"model": s.OneOf("coder", "small"), "usageMetadata": usage})
	if !first && s.Chance(50) {
		s.event(telemetry)
	}
}

func (s *script) event(e object) {
	s.put("system", object{"subtype": "ui_telemetry", "systemPayload": object{"uiEvent": e}})
}

// telemetry writes an event without a message.
func (s *script) telemetry() {
	e := object{
		"event.name": s.OneOf("qwen-code.api_response", "qwen-code.api_error", "qwen-code.tool_call"), "model": "small", "duration_ms": s.Figure(),
		"input_token_count": s.Figure(), "output_token_count": s.Figure(), "thoughts_token_count": s.Figure(), "cached_content_token_count": s.Figure(),
		"auth_type": s.OneOf("openai", "gemini", "qwen-oauth"), "error": "it broke", "error_type": s.OneOf("", "rate_limit"),
		"prompt_id": s.OneOf(s.Session+"########0", s.Session+"#helper-1#0", ""),
	}
	s.Maybe(70, e, object{"call_id": s.AnyCall()})
	s.Maybe(10, e, object{"subagent_name": "helper"})
	s.event(e)
}

func (s *script) result() {
	id := s.AnyCall()
	out := s.OneOf("", "done", "Command: x\nOutput: Exit Code: 3\nExit Code: 4\nError: (none)\nExit Code: 0\nSignal: (none)", "Command: x\nExit Code: 127\nSignal: (none)",
		"Command: x\nExit Code: 1\nExit Code: (none)\nSignal: 9", "Background shell started.\nid: bg_1")
	response := object{s.OneOf("output", "output", "error"): out}
	shown := object{"callId": id, "status": s.OneOf("success", "error", "cancelled"), "resultDisplay": s.word()}
	s.Maybe(30, shown, object{"errorType": "shell_execute_error", "durationMs": s.Figure()})
	s.message("tool_result", []any{object{"functionResponse": object{"id": id, "name": "read_file", "response": response}}}, object{"toolCallResult": shown})
}

func (s *script) other() {
	subtype := s.OneOf("custom_title", "chat_compression", "slash_command", "session_model", "rewind", "turn_result", "attribution_snapshot")
	s.put("system", object{"subtype": subtype, "systemPayload": object{
		"customTitle": s.OneOf("The ledger", "Tests"), "compressedHistory": []any{object{"role": "user", "parts": []any{object{"text": s.word()}}}, object{"role": "model", "parts": []any{object{"text": "Got it."}}}},
		"phase": s.OneOf("invocation", "result"), "rawCommand": s.OneOf("/review", "/clear"), "sentToModel": s.Chance(50), "hiddenInvocation": s.Chance(20),
		"outputHistoryItems": []any{object{"type": "info", "text": s.word()}}, "modelId": "small", "truncatedCount": 2,
	}})
}
