package copilot

import (
	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// emitter emits the events of a record.
type emitter struct {
	*core.Builder
	record
	st        *state
	agent     string          // id of the record's subagent
	sidechain bool            // the record belongs to a subagent that it does not name
	sent      bool            // the record is of the telemetry
	skip      core.SkipReason // why the record has no event; empty if its events are duplicates
}

// put emits an event with the vendor's id, or an empty one. It returns false if the session has emitted the event
// before. A message of the log replaces that of the telemetry.
func (e *emitter) put(id lenient.Text, d core.Draft) bool {
	d.EventID = string(id)
	switch {
	case e.agent != "":
		d.Thread = core.FingerprintOf("agent", e.agent)
		d.AgentID, d.IsInternal = new(e.agent), true
	case e.sidechain:
		d.Thread = core.FingerprintOf("sidechain")
		d.IsInternal = true
	}
	switch {
	case e.sent:
	case d.EventType == envelopes.UserMessage && d.Origin == "" && e.data.Interaction != "":
		return e.EmitLogged(d, core.StatementsNamed(e.Session, d.EventType, string(e.data.Interaction)))
	case d.EventType == envelopes.UserMessage, d.EventType == envelopes.AssistantMessage, d.EventType == envelopes.Reasoning:
		return e.EmitLogged(d)
	}
	return e.Emit(d)
}

// putSystem emits an event by the runtime. It returns false if the session has emitted the event before.
func (e *emitter) putSystem(t envelopes.EventType, text lenient.Text) bool {
	d := core.SystemDraft(t, text)
	d.Identity = string(e.Data)
	return e.put(e.ID, d)
}

// putError emits an error reported by the vendor.
func (e *emitter) putError(code, message lenient.Text) {
	stated := core.StatementsNamed(e.Session, envelopes.Log, string(code))
	d := e.Session.ErrorDraft(string(code), string(message))
	d.Supersedes = stated.Replaced()
	if e.put(e.ID, d) {
		stated.InLog()
	}
}

// putFacts emits an event by the runtime, with facts in its metadata.
func (e *emitter) putFacts(t envelopes.EventType, facts map[string]any) {
	d := core.SystemDraft(t, "")
	d.Identity = string(e.Data)
	if len(facts) > 0 {
		d.Metadata = e.Session.MetadataWithFacts(facts)
	}
	e.put(e.ID, d)
}

// inject emits a text that the runtime puts into the conversation.
func (e *emitter) inject(text lenient.Text) {
	d := core.SystemDraft(envelopes.Meta, text)
	d.Origin, d.Identity = envelopes.OriginInjected, string(e.Data)
	e.put(e.ID, d)
}

// summary emits a summary of the session; without a text the event is meta.
func (e *emitter) summary(text lenient.Text) {
	if isBlank(text) {
		e.putSystem(envelopes.Meta, "")
		return
	}
	d := core.ChatDraft(envelopes.SessionSummary, text.Ptr(), nil)
	d.Identity = string(e.Data)
	e.put(e.ID, d)
}

// setModel sets the model of the main conversation.
func (e *emitter) setModel(model lenient.Text) {
	if e.agent == "" && !e.sidechain && isModel(model) {
		e.Session.SetModel(string(model))
	}
}

// model returns the model of an event: the one named in the record, else, in the main conversation, that of the
// session.
func (e *emitter) model() *string {
	switch {
	case isModel(e.data.Model):
		return e.data.Model.Ptr()
	case e.agent == "" && !e.sidechain:
		return lenient.Text(e.Session.Model).Ptr()
	default:
		return nil
	}
}
