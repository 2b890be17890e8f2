package codextest

import (
	"encoding/json"

	"pgregory.net/rapid"
)

// letter writes a message between agents in one of its forms, sometimes in two.
func (s *codexScript) letter() {
	author, recipient := s.OneOf("/root", "/root/audit"), s.OneOf("/root", "/root/audit")
	header := s.OneOf("", "Message Type: NEW_TASK\nTask name: /root/audit\nSender: /root\nPayload:\n", "Message Type: NEW_TASK\nTask name: /root/audit\n")
	text := header + s.phrase()
	letter := map[string]any{"author": author, "recipient": recipient, "other_recipients": []any{}, "content": text, "trigger_turn": s.Chance(50)}
	if s.Chance(10) {
		letter["content"], letter["encrypted_content"] = "", s.OneOf("gAAAAABo", text)
	}
	written, err := json.Marshal(letter)
	if err != nil {
		panic(err) // of a test
	}
	for range rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(s.T, "forms") {
		switch s.OneOf("item", "item", "record", "message", "prompt", "notice") {
		case "item":
			s.item("agent_message", map[string]any{"author": author, "recipient": recipient, "content": s.texts("input_text", text)})
			s.put("inter_agent_communication_metadata", map[string]any{"trigger_turn": true})
		case "record":
			s.put("inter_agent_communication", letter)
		case "message":
			s.item("message", map[string]any{"role": "assistant", "content": s.texts("output_text", string(written))})
		case "prompt":
			s.item("message", map[string]any{"role": "user", "content": s.texts("input_text", string(written))})
		case "notice":
			s.duplicate("agent", string(written))
		}
	}
}

// delivered writes a message that a tool delivered to the user, with its text or with a notice in its place.
func (s *codexScript) delivered() {
	text, mark := s.phrase(), "codex:code-mode-delivery:v1:complete"
	if s.Chance(60) {
		text, mark = "The content is unavailable.", "codex:code-mode-delivery:v1:incomplete:"+s.OneOf("", text)
	}
	s.item("message", map[string]any{"role": "assistant", "content": s.texts("output_text", text)})
	if s.bare {
		return
	}
	var r map[string]any
	at := len(s.Lines) - 1
	if err := json.Unmarshal(s.Lines[at], &r); err != nil {
		panic(err) // of a test
	}
	r["metadata"] = map[string]any{"delivered_assistant_message": mark, "user_input_order": 1}
	s.Lines = s.Lines[:at]
	s.Emit(r)
}

// plain writes a record that is only meta.
func (s *codexScript) plain() {
	switch s.OneOf("record", "item", "notice") {
	case "record":
		s.put(s.OneOf("retained_context", "security_risk_score", "realtime_item"), map[string]any{"type": "transcript_segment", "text": "spoken"})
	case "item":
		s.item(s.OneOf("compaction", "context_compaction", "additional_tools", "configuration_update"), map[string]any{"encrypted_content": "gAAAAABo"})
	case "notice":
		s.event("item_completed", map[string]any{"item": map[string]any{
			"type": s.OneOf("EnteredReviewMode", "ExitedReviewMode", "SubAgentActivity", "ContextCompaction", "HookPrompt"), "id": s.id("it"),
		}})
	}
}
