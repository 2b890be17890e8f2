package gemini

import (
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// emitDocument emits a session that is one document, which the vendor rewrites in place. It skips messages that
// cannot have changed since the last read.
func emitDocument(m *mapper, messages []jsontext.Value) {
	from := m.st.Document.Unchanged(messages)
	m.Duplicate = from > 0
	emitElements(m, messages, from)
	m.st.Document.Read(messages)
	// The summary of the document comes after its messages. The raw document is on at most one event, and only if its
	// elements are on none.
	raw := jsontext.Value(m.Record.Data)
	if m.elementEmitted {
		raw = nil
	}
	m.beginElement(len(messages)+1, raw, "")
	m.emitSummary(m.Summary)
	m.endElement()
}

// emitList emits an array: the contents of a saved conversation, or typed prompts. An array without messages is kept
// whole.
func emitList(m *mapper, elements []jsontext.Value) {
	isMessage := func(v jsontext.Value) bool {
		var w wireMessage
		lenient.ReadObject(v, &w)
		return w.isMessage()
	}
	switch {
	case len(elements) == 0:
	case slices.ContainsFunc(elements, isMessage):
		emitElements(m, elements, 0)
	default:
		m.Unknown(core.UnknownRecord, "")
		m.putSystem("", envelopes.Meta, "")
	}
}

// emitElements emits the messages of a document from the given one on.
func emitElements(m *mapper, elements []jsontext.Value, from int) {
	messages := make([]wireMessage, len(elements))
	for i := from; i < len(elements); i++ {
		lenient.ReadObject(elements[i], &messages[i])
	}
	pairCalls(messages)
	for i := from; i < len(elements); i++ {
		w := &messages[i]
		m.beginElement(i+1, elements[i], w.Timestamp)
		if w.isMessage() {
			emitMessage(m, w)
		} else {
			m.Unknown(core.UnknownRecord, w.Type)
			m.putSystem(w.ID, envelopes.Meta, "")
		}
		m.endElement()
	}
}

// emitPatch emits what a line changes in the session: messages that replace the history, a summary, and one meta
// event for other new values.
func emitPatch(m *mapper) {
	ts := m.TS
	isHeartbeat, isNew := true, false
	var summary lenient.Text
	for _, v := range lenient.Members(m.Set) {
		isHeartbeat = isHeartbeat && v.Name == "lastUpdated"
		switch {
		case v.Name == "lastUpdated":
		case v.Name == "messages" && v.Value.Kind() == '[':
			m.history = true
			emitElements(m, lenient.Elements(v.Value), 0)
			m.history, m.TS = false, ts
			m.st.Rewriting = false
		case v.Name == "summary" && v.Value.Kind() == '"':
			summary = lenient.Text(lenient.Unquote(v.Value))
		case v.Name == "sessionId":
			isNew = true // a resumed session states it each time
		default:
			if !knownValues[v.Name] {
				m.Unknown(core.UnknownRecord, "$set", lenient.Text(v.Name))
			}
			isNew = m.isNewValue(v.Name, lenient.Text(lenient.CompactText(v.Value))) || isNew
		}
	}
	if isHeartbeat {
		m.skip = core.SkipHeartbeat
		return
	}
	m.emitSummary(summary)
	if isNew {
		m.putSystem("", envelopes.Meta, "")
	}
	m.endElement()
}
