package claude

import (
	"cmp"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// wireHook is what a hook gets. No hook states a time.
type wireHook struct {
	Event          lenient.Text   `json:"hook_event_name"`
	SessionID      lenient.Text   `json:"session_id"`
	CWD            lenient.Text   `json:"cwd"`
	PermissionMode lenient.Text   `json:"permission_mode"`
	PromptID       lenient.Text   `json:"prompt_id"`
	AgentID        lenient.Text   `json:"agent_id"`
	AgentType      lenient.Text   `json:"agent_type"`
	Prompt         lenient.Text   `json:"prompt"`
	ToolName       lenient.Text   `json:"tool_name"`
	ToolInput      jsontext.Value `json:"tool_input"`
	ToolResponse   jsontext.Value `json:"tool_response"`
	ToolUseID      lenient.Text   `json:"tool_use_id"`
	Error          jsontext.Value `json:"error"`
	IsInterrupt    lenient.Flag   `json:"is_interrupt"`
	DurationMS     lenient.Number `json:"duration_ms"`
	Answer         lenient.Text   `json:"last_assistant_message"`
	Source         lenient.Text   `json:"source"`
	Reason         lenient.Text   `json:"reason"`
	Trigger        lenient.Text   `json:"trigger"`
	Message        lenient.Text   `json:"message"`
}

// hook maps what a hook gets.
type hook struct {
	emitter
	wireHook
	skip core.SkipReason
}

// normalizeHook maps what a hook gets to events. Its time is that at which it was received.
func normalizeHook(s *core.Session, r core.Record) (core.Result, error) {
	var h hook
	lenient.ReadObject(r.Data, &h.wireHook)
	received, ts := r.Origin.Time, ""
	if received.IsZero() {
		received = r.Stored
	}
	if !received.IsZero() {
		ts = received.UTC().Format(time.RFC3339Nano)
	}
	h.emitter = newEmitter(s.Begin(r, ts), h.AgentID)
	h.Via = envelopes.ViaHooks
	s.SetRoot(string(h.CWD))
	s.SetResumeID(s.ID())
	s.SetTextExtension("permissionMode", h.PermissionMode)
	h.st.Unknown++ // it is no record of the log
	h.emit()
	return h.Finish(cmp.Or(h.skip, core.SkipDuplicate))
}

// emit calls the function of an event.
func (h *hook) emit() {
	switch h.Event {
	case "UserPromptSubmit":
		h.userPrompt()
	case "PreToolUse":
		h.call()
	case "PostToolUse", "PostToolUseFailure":
		h.result()
	case "PermissionRequest", "PermissionDenied":
		h.permission()
	case "Stop", "SubagentStop":
		h.answer()
	case "StopFailure":
		code, message := core.VendorError(h.Error)
		h.putError("", cmp.Or(code, string(lenient.Scalar(h.Error))), message, cmp.Or(message, string(lenient.Scalar(h.Error))))
	case "Notification":
		h.putSystem("", envelopes.Log, h.Message)
	default:
		if !knownHooks[h.Event] {
			h.Unknown(core.UnknownRecord, "hook", h.Event)
			h.put("", core.UnknownDraft())
			return
		}
		text := h.Event
		if more := cmp.Or(h.Source, h.Reason, h.Trigger, h.AgentType); more != "" {
			text += ": " + more
		}
		h.putSystem("", envelopes.Meta, text)
	}
}

// userPrompt emits a prompt, unless the log is read: it states every prompt.
func (h *hook) userPrompt() {
	if h.st.Logged {
		h.skip = core.SkipMirror
		return
	}
	kind, text := speechOf(string(h.Prompt))
	d := core.DraftOf(kind, text)
	is := statement{Key: keyOf(h.PromptID), Text: core.PromptKey(text), Length: lengthOf(string(h.Prompt))}
	i := slices.IndexFunc(h.st.Prompts, func(o statement) bool {
		if h.PromptID == "" {
			return o.Key != core.Fingerprint{} && o.isText(is.Text, is.Length)
		}
		return o.Key == is.Key
	})
	switch {
	case i < 0:
		id := lenient.Text("")
		if h.PromptID != "" {
			id = h.PromptID + promptSuffix
		}
		if h.speak(id, d) {
			is.ID = h.lastID()
			h.st.Prompts = h.st.Prompts.Push(is, maxStatements, nil)
		}
	case h.st.Prompts[i].Text == core.Fingerprint{}: // telemetry states no text
		o := h.st.Prompts[i]
		if h.speak(lenient.Text(o.ID), d) {
			o.Text = is.Text
			if !o.Own {
				o.ID = h.lastID()
			}
			h.st.Prompts = h.st.Prompts.With(i, o)
		}
	}
}

// lastID returns the id of the last event.
func (e *emitter) lastID() string { return e.Events[len(e.Events)-1].Event.EventID }

// call emits the call of a tool.
func (h *hook) call() {
	if h.ToolUseID == "" {
		h.putSystem("", envelopes.Meta, h.Event+": "+h.ToolName)
		return
	}
	h.tellCall(h.ToolUseID, h.ToolName, orEmpty(h.ToolInput))
}

// orEmpty returns the arguments of a call; an empty object for none.
func orEmpty(input jsontext.Value) jsontext.Value {
	if !lenient.IsValue(input) {
		return jsontext.Value("{}")
	}
	return input
}

// result emits the result of a call. Where the log has stated it, only its duration is new.
func (h *hook) result() {
	if h.ToolUseID == "" {
		h.putSystem("", envelopes.Meta, h.Event+": "+h.ToolName)
		return
	}
	h.tellCall(h.ToolUseID, h.ToolName, orEmpty(h.ToolInput))
	id := h.ToolUseID + resultSuffix
	call, _ := h.Session.RecallCall(string(h.ToolUseID))
	latency := core.CountOf(h.DurationMS)
	if h.Session.HasEvent(string(id)) && !h.st.isThin(string(id)) {
		h.putLatency(h.ToolUseID, call, latency)
		return
	}
	r := toolResult{callID: h.ToolUseID, hasData: true}
	if h.Event == "PostToolUseFailure" {
		_, message := core.VendorError(h.Error)
		r.failed, r.text = true, lenient.NullText{Value: cmp.Or(message, string(lenient.Scalar(h.Error))), OK: true}
	} else {
		r.readStructured(h.ToolResponse)
		text := cmp.Or(string(joinLines(r.structured.streams(), r.structured.Output, lenient.Text(r.message))), lenient.CompactText(h.ToolResponse))
		r.text = lenient.NullText{Value: text, OK: text != ""}
	}
	call.Path = cmp.Or(r.structured.path(), call.Path)
	d := core.ResultDraft(r.callID, call, r.text.Ptr(), r.status())
	d.ToolExitCode, d.ToolLatencyMS, d.ToolOutput = r.exitCode(), latency, r.output()
	if r.isObject {
		d.ToolMetadata, d.Strict = toolMetadata(h.Session, string(r.callID), call, &r.structured), true
	}
	h.put(id, d)
	h.st.setThin(string(id), false)
}

// permission emits that somebody was asked to allow a call, or that one was denied. The hook does not state which.
func (h *hook) permission() {
	d := core.SystemDraft(envelopes.Log, h.Event+": "+h.ToolName)
	d.ToolName, d.ToolCallID = h.ToolName.Ptr(), h.ToolUseID.Ptr()
	decision := lenient.Text("ask")
	if h.Event == "PermissionDenied" {
		decision = "reject"
	}
	d.Metadata = h.Session.MetadataWithFacts(map[string]any{
		"decision": decisionFact{core.NameOf(decision), core.NameOf(h.Reason), core.NameOf(h.PermissionMode)},
	})
	h.put("", d)
}

// answer emits the last answer of a turn, unless the log is read: it states every answer.
func (h *hook) answer() {
	if h.st.Logged || h.Answer == "" {
		h.skip = core.SkipMirror
		return
	}
	text := string(h.Answer)
	is := statement{Of: answerOf(h.PromptID, h.thread), Text: core.PromptKey(text), Length: lengthOf(text)}
	said := core.ChatDraft(envelopes.AssistantMessage, &text, nil)
	for i := range h.st.Answers {
		o := h.st.Answers[i]
		switch {
		case o.Of != is.Of:
		case o.Text == is.Text:
			return
		case o.Text == core.Fingerprint{} && o.Length == is.Length:
			if h.put(lenient.Text(o.ID), said) {
				o.ID, o.Text = h.lastID(), is.Text
				h.st.Answers = h.st.Answers.With(i, o)
			}
			return
		}
	}
	if h.put(core.PartID(cmp.Or(h.PromptID, "answer"), is.Text.String()), said) {
		is.ID = h.lastID()
		h.st.Answers = h.st.Answers.Push(is, maxStatements, nil)
	}
}
