package codex

import (
	"cmp"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// rollout maps a record of a rollout by the type of its envelope. A bare item has no
// envelope and counts as a response_item. A record of an unknown type is one meta event.
func (m *mapper) rollout() {
	if m.Type != "web_search_call" {
		m.releaseSearch()
	}
	if m.kind == "session_meta" {
		m.releasePending() // before the record changes what is known of the session
	}
	m.learn()
	switch m.kind {
	case "event_msg":
		m.eventMsg()
	case "response_item", "":
		m.responseItem()
	case "session_meta", "turn_context", "world_state":
		m.putSystem(envelopes.Meta, "")
	case "inter_agent_communication_metadata":
		m.skip = core.SkipHeartbeat
	case "compacted":
		m.releasePending()
		m.compacted()
	default:
		m.releasePending()
		m.putSystem(envelopes.Meta, "")
	}
}

// compacted emits the summary that a compacted conversation goes on with; without a summary
// the event is meta. The record's replacement_history repeats the conversation and is never
// expanded.
func (m *mapper) compacted() {
	if m.Message == "" {
		m.putSystem(envelopes.Meta, "")
		return
	}
	m.put("", core.DraftOf(core.SpeechSummary, string(m.Message)))
}

// responseItem maps an item of the conversation: the canonical form of what is said and done.
// Messages and reasoning may repeat pending event_msgs; any other item releases them.
func (m *mapper) responseItem() {
	kind := m.itemType()
	switch kind {
	case "message":
		m.message()
		return
	case "reasoning":
		m.reasoning()
		return
	}
	m.releasePending()
	switch kind {
	case "agent_message":
		m.agentMessage()
	case "function_call", "custom_tool_call", "local_shell_call", "tool_search_call":
		m.call()
	case "function_call_output", "custom_tool_call_output", "tool_search_output":
		m.output()
	case "web_search_call", "image_generation_call":
		m.hostedTool()
	default:
		m.putSystem(envelopes.Meta, "")
	}
}

// itemType returns the type of an item. The members of an item without a type decide what it
// is (README.md, Items without a type).
func (p *payload) itemType() lenient.Text {
	switch {
	case p.Type != "":
		return p.Type
	case p.Role != "" && p.Content.present:
		return "message"
	case p.Name != "":
		return "function_call"
	case p.Status != "" && p.CallID != "":
		return "function_call_output"
	default:
		return ""
	}
}

// eventMsg maps a notice to the user interface.
func (m *mapper) eventMsg() {
	switch m.Type {
	case "user_message":
		m.eventText(userText, string(m.Message))
	case "agent_message":
		m.eventText(agentText, string(m.Message))
	case "agent_reasoning", "agent_reasoning_raw_content":
		m.eventText(reasoningText, string(m.Text))
	case "item_completed":
		m.itemCompleted()
	case "token_count":
		m.tokenCount()
	case "exec_command_end", "patch_apply_end", "mcp_tool_call_end",
		"dynamic_tool_call_response", "image_generation_end", "view_image_tool_call":
		m.toolEnd()
	case "dynamic_tool_call_request":
		m.toolRequest()
	case "web_search_end":
		m.searchEnd()
	case "task_complete", "turn_complete":
		m.turnEnd()
	case "error", "stream_error":
		m.put("", m.Session.ErrorDraft(errorCode(m.CodexErrorInfo), string(m.Message)))
	case "warning", "background_event", "deprecation_notice":
		m.putSystem(envelopes.Log, m.Message)
	case "turn_aborted":
		m.putSystem(envelopes.Log, "turn aborted: "+cmp.Or(m.Reason, "unknown"))
	case "thread_name_updated":
		m.putSystem(envelopes.SessionSummary, m.ThreadName)
	case "agent_reasoning_section_break":
		m.skip = core.SkipHeartbeat
	case "exec_command_begin", "patch_apply_begin", "mcp_tool_call_begin", "web_search_begin", "image_generation_begin":
		m.skip = core.SkipProgress // the call has a record of its own
	default:
		if strings.HasSuffix(string(m.Type), "_delta") {
			m.skip = core.SkipProgress
			return
		}
		m.putSystem(envelopes.Meta, "")
	}
}

// turnEnd emits the end of a turn, with the error that ended it. Its last_agent_message is the
// third copy of a message and never an event.
func (m *mapper) turnEnd() {
	m.releasePending()
	d := core.SystemDraft(envelopes.Meta, "")
	if lenient.IsValue(m.Error) {
		d.Metadata = m.Session.MetadataWithError(turnError(m.Error))
	}
	m.put("", d)
}

// turnError returns the code and the message of the error that ended a turn.
func turnError(v jsontext.Value) (code, message string) {
	var e struct {
		Info jsontext.Value `json:"codex_error_info"`
	}
	lenient.ReadObject(v, &e)
	code, message = core.VendorError(v)
	return cmp.Or(errorCode(e.Info), code), message
}

// errorCode returns the code in a codex_error_info: a string, or the only name of an object
// of objects.
func errorCode(info jsontext.Value) string {
	if ms := lenient.ObjectMembers(info); len(ms) == 1 && ms[0].Value.Kind() == '{' {
		return ms[0].Name
	}
	code, _ := core.VendorError(info)
	return code
}

// completedItem is the item of an item_completed.
type completedItem struct {
	Type        lenient.Text `json:"type"`
	Kind        lenient.Text `json:"kind"` // of an extension
	Text        lenient.Text `json:"text"`
	Content     content      `json:"content"`
	SummaryText content      `json:"summary_text"`
}

// endOfItem names, by the type of an item, the event_msg that states the same end of a tool
// in other versions.
var endOfItem = map[lenient.Text]lenient.Text{
	"CommandExecution":     "exec_command_end",
	"FileChange":           "patch_apply_end",
	"McpToolCall":          "mcp_tool_call_end",
	"DynamicToolCall":      "dynamic_tool_call_response",
	"ImageView":            "view_image_tool_call",
	"ImageGeneration":      "image_generation_end",
	"image_gen.generation": "image_generation_end",
	"WebSearch":            "web_search_end",
	"web.search":           "web.search",
}

// itemCompleted maps an item of the newer event stream: a text that a response_item repeats,
// the end of a tool, else meta.
func (m *mapper) itemCompleted() {
	var i completedItem
	lenient.ReadObject(m.Item, &i)
	switch i.Type {
	case "UserMessage":
		m.eventText(userText, i.Content.text())
	case "AgentMessage":
		m.eventText(agentText, i.Content.text())
	case "Plan":
		m.eventText(agentText, string(i.Text))
	case "Reasoning":
		m.skip = core.SkipEmpty
		for _, t := range i.SummaryText.texts() {
			m.eventText(reasoningText, t)
		}
	case "Extension":
		m.itemEnd(i.Kind)
	default:
		m.itemEnd(i.Type)
	}
}

// itemEnd maps an item of a tool as the event_msg of the same end. An item of another type is
// meta.
func (m *mapper) itemEnd(itemType lenient.Text) {
	end, ok := endOfItem[itemType]
	if !ok {
		m.putSystem(envelopes.Meta, "")
		return
	}
	item := m.Item
	m.payload = payload{}
	lenient.ReadObject(item, &m.payload)
	m.Type, m.CallID = end, m.ID
	if end == "web_search_end" {
		m.searchEnd()
		return
	}
	m.toolEnd()
}
