package gemini

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
	st    *state
	known known

	// The current element of a document.
	number  int  // from 1; 0 if events use the number of the record
	unnamed int  // number of its events without an id
	history bool // it belongs to a rewritten history
	copied  bool // and the session has never seen it

	exported       bool            // the record was exported by OpenTelemetry
	elementEmitted bool            // a finished element has an event
	repeated       bool            // another record has stated some of it before
	skip           core.SkipReason // overrides [emitter.skipReason]
}

// skipReason returns why a record without an event of its own has none; empty if an element of it has one.
func (e *emitter) skipReason() core.SkipReason {
	switch {
	case e.elementEmitted:
		return ""
	case e.skip != "":
		return e.skip
	case e.repeated:
		return core.SkipMirror
	case e.Duplicate:
		return core.SkipDuplicate
	default:
		return core.SkipEmpty
	}
}

// put emits an event of the record or the current element; id is empty if the vendor states none.
func (e *emitter) put(id lenient.Text, d core.Draft) bool {
	if id == "" && e.number > 0 {
		id = lenient.Text("message@" + strconv.Itoa(e.number)) // the number of a record stands without a name
		if e.unnamed > 0 {
			id += lenient.Text("." + strconv.Itoa(e.unnamed))
		}
		e.unnamed++
	}
	d.EventID = string(id)
	if agent := e.st.Agent; agent != "" {
		d.Thread = core.FingerprintOf("agent", agent)
		d.AgentID, d.IsInternal = &agent, true
	}
	if e.copied && d.Origin == "" && d.EventType != envelopes.SessionSummary {
		d.Origin = envelopes.OriginCopied
	}
	isMessage := d.EventType == envelopes.UserMessage || d.EventType == envelopes.AssistantMessage
	if e.exported || !isMessage || d.Origin != "" {
		return e.Emit(d)
	}
	return e.EmitLogged(d)
}

// putSystem emits an event by the program, not by the conversation.
func (e *emitter) putSystem(id lenient.Text, t envelopes.EventType, text lenient.Text) {
	e.put(id, core.SystemDraft(t, text))
}

// emitSummary emits the summary of the session, unless it equals the last one.
func (e *emitter) emitSummary(text lenient.Text) {
	if text == "" || !e.isNewValue("summary", text) {
		return
	}
	e.put("", core.ChatDraft(envelopes.SessionSummary, text.Ptr(), nil))
}

// isNewValue reports whether a value differs from the last one of its name in the session, and remembers it.
func (e *emitter) isNewValue(name string, value lenient.Text) bool {
	isNew := e.st.Stated.IsNew(core.Cut(name, core.MaxName), core.FingerprintOf(string(value)), &e.Session.Lost)
	e.Duplicate = e.Duplicate || !isNew
	return isNew
}

// beginElement begins the n-th element of a document. An element without a time has that of the last event.
func (e *emitter) beginElement(n int, raw jsontext.Value, timestamp lenient.Text) {
	e.number, e.unnamed, e.Raw, e.First = n, 0, raw, -1
	if e.history {
		e.number = 0
	}
	if ts, ok := core.ParseTime(string(timestamp)); ok {
		e.TS = ts
	} else if e.Session.TS != "" {
		e.TS = e.Session.TS
	}
}

// endElement ends an element: its first event carries it.
func (e *emitter) endElement() {
	if e.First >= 0 {
		e.CarryRaw(e.First, e.Raw)
		e.elementEmitted = true
	}
	e.number, e.Raw, e.First, e.copied = 0, e.Record.Data, -1, false
}
