package copilot

import (
	"cmp"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// entry is an entry of the timeline of a document.
type entry struct {
	Type      lenient.Text                `json:"type"`
	ID        lenient.Text                `json:"id"`
	Timestamp lenient.Text                `json:"timestamp"`
	Text      lenient.Text                `json:"text"`
	CallID    lenient.Text                `json:"callId"`
	Name      lenient.Text                `json:"name"`
	Arguments jsontext.Value              `json:"arguments"`
	Result    lenient.Object[entryResult] `json:"result"`
}

type entryResult struct {
	Type lenient.Text `json:"type"`
	Log  lenient.Text `json:"log"`
}

// document maps the whole of a session. It is rewritten with every change, so only what is new yields events; entries
// that were read before and can no longer change are skipped. The timeline counts; chatMessages repeat it for the
// model.
func document(m *mapper) {
	m.Session.SetResumeID(string(m.SessionID))
	var entries []jsontext.Value
	if m.Timeline.Kind() == '[' {
		entries = lenient.Elements(m.Timeline)
	}
	if len(entries) == 0 {
		m.putSystem(envelopes.Meta, "") // empty, or of an unknown shape
		return
	}
	for i := m.st.Document.Unchanged(entries); i < len(entries); i++ {
		entryRecord(m, i+1, entries[i])
	}
	m.st.Document.Read(entries)
}

// entryRecord maps the n-th entry as a record of its own: its first event carries it.
func entryRecord(m *mapper, n int, raw jsontext.Value) {
	var e entry
	lenient.ReadObject(raw, &e)
	m.NextElement()
	m.ID, m.Data = cmp.Or(e.ID, lenient.Text("@"+strconv.Itoa(n))), raw
	if ts, ok := core.ParseTime(string(e.Timestamp)); ok {
		m.TS = ts
	} else if m.Session.TS != "" {
		m.TS = m.Session.TS
	}
	entryEvent(m, &e)
	if m.First >= 0 {
		m.CarryRaw(m.First, raw)
		m.entries = true
	}
	m.NextElement()
}

// entryEvent maps an entry of the timeline by its type.
func entryEvent(m *mapper, e *entry) {
	switch {
	case e.Type == "user" && !isBlank(e.Text):
		m.put(m.ID, core.ChatDraft(envelopes.UserMessage, e.Text.Ptr(), nil))
	case (e.Type == "copilot" || e.Type == "assistant") && !isBlank(e.Text):
		m.put(m.ID, core.ChatDraft(envelopes.AssistantMessage, e.Text.Ptr(), m.model()))
	case e.Type == "tool_call_requested":
		entryCall(m, e)
	case e.Type == "tool_call_completed":
		entryCall(m, e)
		r := result{text: e.Result.Value.Log, stated: e.Result.OK, succeeded: e.Result.Value.Type == "success"}
		r.failed = e.Result.Value.Type != "" && !r.succeeded
		m.emitResult(cmp.Or(e.CallID, m.ID), e.Name, r)
	case e.Type == "error":
		m.putError("", e.Text)
	default:
		noteEntry(m, e)
		m.putSystem(envelopes.Meta, e.Text)
	}
}

// entryCall emits the call of an entry, unless an earlier entry did: the entry of a request later becomes that of its
// result.
func entryCall(m *mapper, e *entry) {
	id := cmp.Or(e.CallID, m.ID)
	if !m.Session.HasEvent(string(id)) {
		m.emitCall(id, e.Name, e.Arguments)
	}
}
