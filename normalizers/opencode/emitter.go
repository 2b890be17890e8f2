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
	st      *State
	dialect *Dialect

	element int             // number of the current message in a document, from 1; 0 in any other record
	own     bool            // a finished element has an event
	skip    core.SkipReason // why the present content has no event
}

// skipped returns why the record has no event.
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

// put emits an event of this record; id is empty if the vendor has none.
func (e *emitter) put(id string, d core.Draft) bool {
	d.EventID = id
	if e.st.Child {
		agent := e.Session.ID()
		d.Thread = core.FingerprintOf("agent", agent)
		d.AgentID, d.IsInternal = &agent, true
	}
	return e.Emit(d)
}

// putSystem emits an event by the program, not by the conversation.
func (e *emitter) putSystem(id string, t envelopes.EventType, text string) {
	e.put(id, core.SystemDraft(t, lenient.Text(text)))
}

// note emits a part without a speaker.
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

// failure returns the event of an error. If a human stopped the agent, it is not an error of the agent.
func (e *emitter) failure(code, text string) core.Draft {
	d := e.Session.ErrorDraft(code, text)
	if code == "MessageAbortedError" {
		d.EventType = envelopes.SystemMessage
	}
	return d
}

// begin begins an element of a document.
func (e *emitter) begin(n int, raw jsontext.Value, created lenient.Number) {
	e.element, e.Raw, e.First = n, raw, -1
	if ts, ok := core.TimeOfMillis(created); ok {
		e.TS = ts
	}
}

// end ends an element: its first event carries it.
func (e *emitter) end() {
	if e.First >= 0 {
		e.CarryRaw(e.First, e.Raw)
		e.own = true
	}
	e.element, e.Raw, e.First, e.skip = 0, e.Record.Data, -1, ""
}

// place returns an id for a part, or for a message if part is negative, made from its place in the document; empty in
// any other record.
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
