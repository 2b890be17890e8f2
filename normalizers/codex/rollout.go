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
// envelope and counts as a response_item. A record of an unknown type is one meta event, and
// leaves pending what is pending: what a newer version writes between the two records of a
// text must not make two texts of it.
func (m *mapper) rollout() {
	handle := m.handler()
	if handle != nil && m.Type != "web_search_call" {
		m.releaseSearch()
	}
	if m.kind == "session_meta" {
		m.releasePending() // before the record changes what is known of the session
	}
	m.learn()
	if handle == nil {
		m.noteRecord()
		m.put("", core.UnknownDraft())
		return
	}
	m.lastNotice, m.st.Notice = m.st.Notice, core.Fingerprint{}
	handle(m)
}

// handler returns the function that maps records of this type; nil for an unknown type.
func (m *mapper) handler() func(*mapper) {
	switch m.kind {
	case "event_msg":
		switch {
		case strings.HasSuffix(string(m.Type), "_delta"):
			return (*mapper).progress
		case m.Type == "item_completed" && !m.isKnownItem():
			return nil
		}
		return eventHandlers[m.Type]
	case "response_item", "":
		if m.isBareHeader() {
			return (*mapper).otherItem
		}
		return itemHandlers[m.itemType()]
	default:
		return envelopeHandlers[m.kind]
	}
}

// envelopeHandlers map the records that are neither items of the conversation nor notices.
var envelopeHandlers = map[lenient.Text]func(*mapper){
	"session_meta":                       (*mapper).meta,
	"turn_context":                       (*mapper).meta,
	"world_state":                        (*mapper).meta,
	"inter_agent_communication_metadata": (*mapper).heartbeat,
	"token_usage_record":                 (*mapper).usageRecord,
	"compacted":                          (*mapper).compacted,
}

// itemHandlers map the items of the conversation: the canonical form of what is said and done.
// Messages and reasoning may repeat pending event_msgs; any other item releases them.
var itemHandlers = map[lenient.Text]func(*mapper){
	"message":                 (*mapper).message,
	"reasoning":               (*mapper).reasoning,
	"agent_message":           (*mapper).agentMessage,
	"function_call":           (*mapper).call,
	"custom_tool_call":        (*mapper).call,
	"local_shell_call":        (*mapper).call,
	"tool_search_call":        (*mapper).call,
	"function_call_output":    (*mapper).output,
	"custom_tool_call_output": (*mapper).output,
	"tool_search_output":      (*mapper).output,
	"web_search_call":         (*mapper).hostedTool,
	"image_generation_call":   (*mapper).hostedTool,
	"ghost_snapshot":          (*mapper).ghostSnapshot,
}

// eventHandlers map the notices to the user interface.
var eventHandlers = map[lenient.Text]func(*mapper){
	"user_message":                  func(m *mapper) { m.eventText(userText, string(m.Message)) },
	"agent_message":                 func(m *mapper) { m.eventText(agentText, string(m.Message)) },
	"agent_reasoning":               func(m *mapper) { m.eventText(reasoningText, string(m.Text)) },
	"agent_reasoning_raw_content":   func(m *mapper) { m.eventText(reasoningText, string(m.Text)) },
	"item_completed":                (*mapper).itemCompleted,
	"token_count":                   (*mapper).tokenCount,
	"exec_command_end":              (*mapper).toolEnd,
	"patch_apply_end":               (*mapper).toolEnd,
	"mcp_tool_call_end":             (*mapper).toolEnd,
	"dynamic_tool_call_response":    (*mapper).toolEnd,
	"image_generation_end":          (*mapper).toolEnd,
	"view_image_tool_call":          (*mapper).toolEnd,
	"dynamic_tool_call_request":     (*mapper).toolRequest,
	"web_search_end":                (*mapper).searchEnd,
	"task_complete":                 (*mapper).turnEnd,
	"turn_complete":                 (*mapper).turnEnd,
	"error":                         (*mapper).runError,
	"stream_error":                  (*mapper).runError,
	"warning":                       (*mapper).notice,
	"background_event":              (*mapper).notice,
	"deprecation_notice":            (*mapper).notice,
	"turn_aborted":                  (*mapper).turnAborted,
	"thread_settings_applied":       (*mapper).threadSettings,
	"sub_agent_activity":            (*mapper).subagentActivity,
	"entered_review_mode":           (*mapper).enterReview,
	"exited_review_mode":            (*mapper).exitReview,
	"thread_name_updated":           func(m *mapper) { m.putSystem(envelopes.SessionSummary, m.ThreadName) },
	"agent_reasoning_section_break": (*mapper).heartbeat,
	"exec_command_begin":            (*mapper).progress, // the call has a record of its own
	"patch_apply_begin":             (*mapper).progress,
	"mcp_tool_call_begin":           (*mapper).progress,
	"web_search_begin":              (*mapper).progress,
	"image_generation_begin":        (*mapper).progress,

	// Known, and no more than meta.
	"task_started":                 (*mapper).meta,
	"turn_started":                 (*mapper).meta,
	"context_compacted":            (*mapper).meta,
	"thread_goal_updated":          (*mapper).meta,
	"thread_rolled_back":           (*mapper).meta,
	"undo_completed":               (*mapper).meta,
	"guardian_assessment":          (*mapper).meta,
	"collab_agent_spawn_end":       (*mapper).meta,
	"collab_agent_interaction_end": (*mapper).meta,
	"collab_waiting_end":           (*mapper).meta,
	"collab_close_end":             (*mapper).meta,
}

func (m *mapper) meta()      { m.putSystem(envelopes.Meta, "") }
func (m *mapper) notice()    { m.putSystem(envelopes.Log, m.Message) }
func (m *mapper) heartbeat() { m.skip = core.SkipHeartbeat }
func (m *mapper) progress()  { m.skip = core.SkipProgress }

// otherItem maps an item that is only meta.
func (m *mapper) otherItem() {
	m.releasePending()
	m.meta()
}

// runError emits an error that ended or disturbed a turn.
func (m *mapper) runError() {
	m.put("", m.Session.ErrorDraft(errorCode(m.CodexErrorInfo), string(m.Message)))
}

// turnAborted emits why a turn ended before its time.
func (m *mapper) turnAborted() {
	m.releasePending()
	m.putSystem(envelopes.Log, "turn aborted: "+cmp.Or(m.Reason, "unknown"))
}

// compacted emits the summary that a compacted conversation goes on with; without a summary
// the event is meta. The record's replacement_history repeats the conversation and is never
// expanded.
func (m *mapper) compacted() {
	m.releasePending()
	if m.Message == "" {
		m.putSystem(envelopes.Meta, "")
		return
	}
	m.put("", core.DraftOf(core.SpeechSummary, string(m.Message)))
}

// itemType returns the type of an item. The members of an item without a type decide what it
// is; Codex itself writes no such items.
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

// turnEnd emits the end of a turn, with how long it took and the error that ended it. Its last_agent_message is the
// third copy of a message and never an event.
func (m *mapper) turnEnd() {
	m.releasePending()
	facts := make(map[string]any)
	if turn := (turnFact{countOf(m.DurationMS), countOf(m.FirstTokenMS)}); turn != (turnFact{}) {
		facts["turn"] = turn
	}
	if lenient.IsValue(m.Error) {
		facts["error"] = core.ProblemOf(turnError(m.Error))
	}
	d := core.SystemDraft(envelopes.Meta, "")
	if len(facts) > 0 {
		d.Metadata = m.Session.MetadataWithFacts(facts)
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

// isKnownItem reports whether the item of an item_completed is of a known type.
func (m *mapper) isKnownItem() bool {
	var i completedItem
	lenient.ReadObject(m.Item, &i)
	switch i.Type {
	case "UserMessage", "AgentMessage", "Plan", "Reasoning":
		return true
	case "Extension":
		return endOfItem[i.Kind] != ""
	default:
		return endOfItem[i.Type] != ""
	}
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

// itemEnd maps an item of a tool as the event_msg of the same end.
func (m *mapper) itemEnd(itemType lenient.Text) {
	item, end := m.Item, endOfItem[itemType]
	*m.payload = payload{}
	lenient.ReadObject(item, m.payload)
	m.Type, m.CallID = end, m.ID
	if end == "web_search_end" {
		m.searchEnd()
		return
	}
	m.toolEnd()
}
