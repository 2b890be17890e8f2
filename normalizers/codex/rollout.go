package codex

import (
	"cmp"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// rollout maps a record of a rollout by the type of its envelope. A bare item has no envelope and counts as a
// response_item. A record of an unknown type is one meta event, and keeps pending texts pending: what a newer version
// writes between the two records of a text must not make two texts of it.
func (m *mapper) rollout() {
	handle := m.handler()
	if handle != nil && m.Type != "web_search_call" {
		m.st.releaseSearch(&m.emitter)
	}
	if m.kind == "session_meta" {
		m.st.releaseTexts(&m.emitter) // before the record changes what is known about the session
	}
	m.learn()
	if handle == nil {
		noteRecord(m)
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
			return progress
		case m.Type == "item_completed" && !m.isKnownItem():
			return nil
		}
		return eventHandlers[m.Type]
	case "response_item", "":
		if m.isBareHeader() {
			return otherItem
		}
		return itemHandlers[m.itemType()]
	default:
		return envelopeHandlers[m.kind]
	}
}

// envelopeHandlers map the records that are neither conversation items nor notices.
var envelopeHandlers = map[lenient.Text]func(*mapper){
	"inter_agent_communication":          agentRecord,
	"inter_agent_communication_metadata": heartbeat,
	"token_usage_record":                 usageRecord,
	"compacted":                          compacted,

	// Known, but only meta.
	"session_meta":        meta,
	"turn_context":        meta,
	"world_state":         meta,
	"retained_context":    meta, // the output of a tool has the answer that it repeats
	"security_risk_score": meta,
	"realtime_item":       realtimeItem,
}

// itemHandlers map the items of the conversation, the canonical form of its content. Messages and reasoning may
// repeat pending event_msgs; any other item releases them, except those that are only meta.
var itemHandlers = map[lenient.Text]func(*mapper){
	"message":                 message,
	"reasoning":               reasoning,
	"agent_message":           agentMessage,
	"function_call":           functionCall,
	"custom_tool_call":        functionCall,
	"local_shell_call":        functionCall,
	"tool_search_call":        functionCall,
	"function_call_output":    functionOutput,
	"custom_tool_call_output": functionOutput,
	"tool_search_output":      functionOutput,
	"web_search_call":         hostedTool,
	"image_generation_call":   hostedTool,
	"ghost_snapshot":          ghostSnapshot,

	// Known, but only meta. A compacted has the summary of a compaction.
	"compaction":           meta,
	"compaction_summary":   meta,
	"context_compaction":   meta,
	"compaction_trigger":   meta,
	"additional_tools":     meta,
	"configuration_update": meta,
}

// eventHandlers map the notices to the user interface.
var eventHandlers = map[lenient.Text]func(*mapper){
	"user_message":                  func(m *mapper) { eventText(m, userText, string(m.Message)) },
	"agent_message":                 func(m *mapper) { eventText(m, agentText, string(m.Message)) },
	"agent_reasoning":               func(m *mapper) { eventText(m, reasoningText, string(m.Text)) },
	"agent_reasoning_raw_content":   func(m *mapper) { eventText(m, reasoningText, string(m.Text)) },
	"item_completed":                itemCompleted,
	"token_count":                   tokenCount,
	"exec_command_end":              toolEnd,
	"patch_apply_end":               toolEnd,
	"mcp_tool_call_end":             toolEnd,
	"dynamic_tool_call_response":    toolEnd,
	"image_generation_end":          toolEnd,
	"view_image_tool_call":          toolEnd,
	"dynamic_tool_call_request":     toolRequest,
	"web_search_end":                searchEnd,
	"task_complete":                 turnEnd,
	"turn_complete":                 turnEnd,
	"error":                         runError,
	"stream_error":                  runError,
	"warning":                       notice,
	"background_event":              notice,
	"deprecation_notice":            notice,
	"turn_aborted":                  turnAborted,
	"thread_settings_applied":       threadSettings,
	"sub_agent_activity":            subagentActivity,
	"entered_review_mode":           enterReview,
	"exited_review_mode":            exitReview,
	"thread_name_updated":           func(m *mapper) { m.putSystem(envelopes.SessionSummary, m.ThreadName) },
	"agent_reasoning_section_break": heartbeat,
	"exec_command_begin":            progress, // the call has a record of its own
	"patch_apply_begin":             progress,
	"mcp_tool_call_begin":           progress,
	"web_search_begin":              progress,
	"image_generation_begin":        progress,

	// Known, but only meta.
	"task_started":                 meta,
	"turn_started":                 meta,
	"context_compacted":            meta,
	"thread_goal_updated":          meta,
	"thread_rolled_back":           meta,
	"undo_completed":               meta,
	"guardian_assessment":          meta,
	"collab_agent_spawn_end":       meta,
	"collab_agent_interaction_end": meta,
	"collab_waiting_end":           meta,
	"collab_close_end":             meta,
	"collab_resume_end":            meta,
}

func meta(m *mapper)      { m.putSystem(envelopes.Meta, "") }
func notice(m *mapper)    { m.putSystem(envelopes.Log, m.Message) }
func heartbeat(m *mapper) { m.skip = core.SkipHeartbeat }
func progress(m *mapper)  { m.skip = core.SkipProgress }

// realtimeItem keeps the text of a conversation by voice. It is no prompt and no answer: Codex writes a message for each
// request that it gets from there.
func realtimeItem(m *mapper) { m.putSystem(envelopes.Meta, m.Text) }

// otherItem maps an item that is only meta.
func otherItem(m *mapper) {
	m.st.releaseTexts(&m.emitter)
	meta(m)
}

// runError emits an error that ended or disturbed a turn.
func runError(m *mapper) {
	m.put("", m.Session.ErrorDraft(errorCode(m.CodexErrorInfo), string(m.Message)))
}

// turnAborted emits why a turn ended early.
func turnAborted(m *mapper) {
	m.st.releaseTexts(&m.emitter)
	m.putSystem(envelopes.Log, "turn aborted: "+cmp.Or(m.Reason, "unknown"))
}

// compacted emits the summary with which a compacted conversation continues; without a summary the event is meta. The
// record's replacement_history repeats the conversation and is never expanded.
func compacted(m *mapper) {
	m.st.releaseTexts(&m.emitter)
	if m.Message == "" {
		m.putSystem(envelopes.Meta, "")
		return
	}
	m.put("", core.DraftOf(core.SpeechSummary, string(m.Message)))
}

// itemType returns the type of an item. If it has none, its members decide; Codex itself writes no such items.
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

// turnEnd emits the end of a turn, with its duration and the error that ended it. Its last_agent_message is the third
// copy of a message and never an event.
func turnEnd(m *mapper) {
	m.st.releaseTexts(&m.emitter)
	facts := make(map[string]any)
	if turn := (turnFact{core.CountOf(m.DurationMS), core.CountOf(m.FirstTokenMS)}); turn != (turnFact{}) {
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

// errorCode returns the code in a codex_error_info: a string, or the only name of an object of objects.
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

// endOfItem maps the type of an item to the event_msg that states the same end of a tool in other versions.
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

// noticeOfItem maps the type of an item to the function of the event_msg that states the same in other versions.
var noticeOfItem = map[lenient.Text]func(*mapper){
	"SubAgentActivity":    subagentActivity,
	"EnteredReviewMode":   enterReview,
	"ExitedReviewMode":    exitReview,
	"ContextCompaction":   meta,
	"CollabAgentToolCall": meta,
	"HookPrompt":          meta, // a message has its text
	"FunctionCallOutput":  meta, // an output has its text
	"Sleep":               meta,
	"clock.sleep":         meta,
}

// isKnownItem reports whether the item of an item_completed is of a known type.
func (p *payload) isKnownItem() bool {
	var i completedItem
	lenient.ReadObject(p.Item, &i)
	switch i.Type {
	case "UserMessage", "AgentMessage", "Plan", "Reasoning":
		return true
	case "Extension":
		return endOfItem[i.Kind] != "" || noticeOfItem[i.Kind] != nil
	default:
		return endOfItem[i.Type] != "" || noticeOfItem[i.Type] != nil
	}
}

// itemCompleted maps an item of the newer event stream: a text that a response_item repeats, the end of a tool, or
// another notice.
func itemCompleted(m *mapper) {
	var i completedItem
	lenient.ReadObject(m.Item, &i)
	switch i.Type {
	case "UserMessage":
		eventText(m, userText, i.Content.text())
	case "AgentMessage":
		eventText(m, agentText, i.Content.text())
	case "Plan":
		eventText(m, agentText, string(i.Text))
	case "Reasoning":
		m.skip = core.SkipEmpty
		for _, t := range i.SummaryText.texts() {
			eventText(m, reasoningText, t)
		}
	case "Extension":
		itemEnd(m, i.Kind)
	default:
		itemEnd(m, i.Type)
	}
}

// itemEnd maps an item that is no text as the event_msg that states the same.
func itemEnd(m *mapper, itemType lenient.Text) {
	item, end := m.Item, endOfItem[itemType]
	*m.payload = payload{}
	lenient.ReadObject(item, m.payload)
	if notice := noticeOfItem[itemType]; notice != nil {
		notice(m)
		return
	}
	m.Type, m.CallID = end, m.ID
	if end == "web_search_end" {
		searchEnd(m)
		return
	}
	toolEnd(m)
}
