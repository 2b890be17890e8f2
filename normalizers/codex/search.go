package codex

import (
	"bytes"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// A web search has two records: a web_search_end with a call_id and, usually next to it, a web_search_call without
// one. The end is pending for one record; a call with the same action takes its id.

// search is a pending web_search_end.
type search struct {
	CallID string         `json:"call"`
	Action jsontext.Value `json:"action,omitzero"`
	Copied bool           `json:"c,omitzero"`
	From   core.Pending   `json:"from"`
}

// searchEnd maps the end of a web search.
func searchEnd(m *mapper) {
	if m.Session.HasEvent(string(m.CallID)) {
		m.skip = core.SkipMirror
		return
	}
	m.skip = core.SkipHeld
	m.st.Search = &search{
		CallID: core.BoundID(string(m.CallID)),
		Action: compactValue(m.Action),
		Copied: m.copied,
		From:   m.PendingRecord(),
	}
}

// takeSearch drops the pending search that a web_search_call with this id repeats, and returns the id of both. It
// releases a search that the call does not repeat.
func takeSearch(m *mapper, id lenient.Text) lenient.Text {
	search := m.st.Search
	if search == nil {
		return id
	}
	if !sameAction(search.Action, compactValue(m.Action)) && search.CallID != string(id) {
		m.st.releaseSearch(&m.emitter)
		return id
	}
	m.st.Search = nil
	return lenient.Text(search.CallID)
}

// sameAction reports whether two actions of searches are equal. Codex writes the end of a search that states no action
// with the action other.
func sameAction(a, b jsontext.Value) bool {
	other := jsontext.Value(`{"type":"other"}`)
	if a == nil {
		a = other
	}
	if b == nil {
		b = other
	}
	return bytes.Equal(a, b)
}

// releaseSearch emits the call and the result of a pending search that no web_search_call repeats. Pending texts come
// before it.
func (s *state) releaseSearch(e *emitter) {
	search := s.Search
	if search == nil {
		return
	}
	s.Search = nil
	s.releaseTexts(e)

	id := lenient.Text(search.CallID)
	call := search.draft(envelopes.ToolCall, envelopes.StatusInProgress)
	call.Text = lenient.Text(search.Action).Ptr()
	call.Model = e.model()
	e.putPending(id, call, search.From, search.Copied)

	from := search.From
	from.Raw = nil // the first of the two events carries the record
	result := search.draft(envelopes.ToolResult, envelopes.StatusSuccess)
	e.putPending(core.PartID(id, "result"), result, from, search.Copied)
}

func (s *search) draft(t envelopes.EventType, status envelopes.ToolStatus) core.Draft {
	d := core.Draft{OnChannel: core.ToolOf("web_search").Channel}
	d.EventType, d.ToolStatus = t, &status
	d.ToolName, d.ToolCallID = new("web_search"), lenient.Text(s.CallID).Ptr()
	return d
}

// compactValue returns a small JSON value in a comparable form; nil if it is not small.
func compactValue(v jsontext.Value) jsontext.Value {
	if !lenient.IsValue(v) || len(v) > core.MaxExtension {
		return nil
	}
	v = slices.Clone(v)
	if v.Compact(lenient.Options) != nil || !v.IsValid() {
		return nil
	}
	return v
}
