package opencode

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// emitter emits the events of a record, or of the elements of a document.
type emitter struct {
	*core.Builder
	st *state

	element int             // number of the current message of a document, from 1; 0 in any other record
	own     bool            // an element that is done has an event
	skip    core.SkipReason // why what was looked at has no event
}

// skipped returns why nothing of the record is emitted.
func (e *emitter) skipped() core.SkipReason {
	switch {
	case e.skip != "":
		return e.skip
	case e.Duplicate:
		return core.SkipDuplicate
	default:
		return core.SkipEmpty
	}
}

// put emits an event of this record; id is empty where the vendor gives none.
func (e *emitter) put(id string, d core.Draft) bool {
	d.EventID = id
	if e.st.Child {
		agent := e.Session.ID()
		d.Thread = core.FingerprintOf("agent", agent)
		d.AgentID, d.IsInternal = &agent, true
	}
	return e.Emit(d)
}

// putSystem emits an event in which the program speaks, not the conversation.
func (e *emitter) putSystem(id string, t envelopes.EventType, text string) {
	e.put(id, core.SystemDraft(t, lenient.Text(text)))
}

// note emits a part in which nobody speaks.
func (e *emitter) note(m message, id, text string) {
	e.say(m, id, core.SystemDraft(envelopes.Meta, lenient.Text(text)))
}

// say emits an event of a message.
func (e *emitter) say(m message, id string, d core.Draft) bool {
	if m.Copied && d.Origin == "" {
		d.Origin = envelopes.OriginCopied
	}
	return e.put(id, d)
}

// failure is the event of an error. That a human stopped the agent is none of the agent.
func (e *emitter) failure(code, text string) core.Draft {
	d := e.Session.ErrorDraft(code, text)
	if code == "MessageAbortedError" {
		d.EventType = envelopes.SystemMessage
	}
	return d
}

// begin starts the work on an element of a document.
func (e *emitter) begin(n int, raw jsontext.Value, created lenient.Number) {
	e.element, e.Raw, e.First = n, raw, -1
	if ts, ok := core.TimeOfMillis(created); ok {
		e.TS = ts
	}
}

// end finishes an element: its first event carries it.
func (e *emitter) end() {
	if e.First >= 0 {
		e.CarryRaw(e.First, e.Raw)
		e.own = true
	}
	e.element, e.Raw, e.First, e.skip = 0, e.Record.Data, -1, ""
}

// place returns the id of a part, or of a message where part is below zero, by its place in
// the document; empty in any other record.
func (e *emitter) place(part int) string {
	if e.element == 0 {
		return ""
	}
	id := "@m" + strconv.Itoa(e.element)
	if part >= 0 {
		id += "." + strconv.Itoa(part+1)
	}
	return id
}
