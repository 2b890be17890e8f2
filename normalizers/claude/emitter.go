package claude

import (
	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// emitter emits the events of one record, or of one message that only has deltas. It has the fields common to all of
// these events.
type emitter struct {
	*core.Builder
	st *state

	thread          core.Fingerprint // zero for the main conversation
	agentID         lenient.Text     // the subagent; empty for the main conversation
	parentToolUseID lenient.Text     // the call that started the subagent, if the SDK states it
	internal        bool             // work of a sidechain or a subagent
	model           lenient.Text     // of the message
	copied          bool             // history of another session
	streamed        bool             // written by the SDK, not in a transcript
	whole           bool             // of the main conversation, streamed, with the reason why the message ended
	pending         *core.Pending    // record of the events; nil for the current one
}

// put emits an event. An empty id stands for the number of the record. It returns false if the session has emitted
// the event before.
func (e *emitter) put(id lenient.Text, d core.Draft) bool {
	d.EventID = string(id)
	d.Thread = e.thread
	d.AgentID = e.agentID.Ptr()
	d.IsInternal = e.internal
	d.From = e.pending
	if e.copied {
		d.Origin = envelopes.OriginCopied
	}
	if e.parentToolUseID != "" && d.Metadata == nil {
		d.Metadata = e.Session.MetadataWith(map[string]jsontext.Value{"parentToolUseId": quote(e.parentToolUseID)})
	}
	return e.Emit(d)
}

// setModel sets the model of the session. A subagent's model counts only while the session has none.
func (e *emitter) setModel(model lenient.Text) {
	if !e.internal || e.Session.Model == "" {
		e.Session.SetModel(string(model))
	}
}

// putSystem emits an event by Claude Code itself, not by a participant of the conversation.
func (e *emitter) putSystem(id lenient.Text, t envelopes.EventType, text lenient.Text) {
	e.put(id, core.SystemDraft(t, text))
}

// putError emits an error with a code and a message; text is the text of the event.
func (e *emitter) putError(id lenient.Text, code, message, text string) {
	d := e.Session.ErrorDraft(code, message)
	d.Text = lenient.Text(text).Ptr()
	e.put(id, d)
}

// withSuffix returns the id of a further event of a record; empty if the record has no id.
func withSuffix(id lenient.Text, suffix string) lenient.Text {
	if id == "" {
		return ""
	}
	return id + lenient.Text(suffix)
}

// quote returns a text as a JSON string; nil for the empty text.
func quote(t lenient.Text) jsontext.Value {
	if t == "" {
		return nil
	}
	return lenient.AppendQuote(nil, string(t))
}
