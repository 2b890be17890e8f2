// Package vscode normalizes the chats of VS Code, in which Copilot answers.
//
// Start with [Vendor]. The function read reads a session, as a document or as the journal of its changes; response.go
// reads the parts of an answer, and call.go its calls. README.md has the rules.
//
// The invariant: the id of an event is made of that of its request and the number of its part, or is that of its call.
// So a document that is read again and a journal that repeats a part yield nothing new, and a part that has grown
// supersedes its event.
package vscode

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/chat"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
	"tributary/normalizers/otlp"
)

// mapper writes the events of one record.
type mapper struct {
	*chat.Writer
	st *state

	// Of a request that is read whole:
	stated  map[lenient.Text]*statedCall // the calls of the model, by the id of the shown call
	written map[lenient.Text]bool
}

// read writes what a record states.
func read(w *chat.Writer, r *record) {
	m := &mapper{Writer: w, st: w.Session.State.(*state)}
	w.Apart, w.Undivided = true, true
	if r.IsExport() {
		if is, ok := otlp.Read(w.Record.Data); ok {
			readExported(m, is)
			return
		}
	}
	w.Channel = chat.Log
	path := lenient.Elements(r.Path)
	switch {
	case r.Requests.Kind() == '[':
		m.session(&r.session)
	case r.Kind.OK && r.Kind.Value == kindInitial && r.V.Kind() == '{':
		var s session
		lenient.ReadObject(r.V, &s)
		m.session(&s)
	case r.Kind.OK && r.Kind.Value <= kindDelete && len(path) > 0:
		m.change(r, path)
	default:
		w.UnknownRecord("entry", lenient.Text(strconv.FormatInt(r.Kind.Count(), 10)))
	}
}

// session writes a whole session. Requests at its start that were there when it was last read whole, and can no longer
// change, are not read again.
func (m *mapper) session(s *session) {
	requests := lenient.Elements(s.Requests)
	m.settings(s)
	from := m.st.Document.Unchanged(requests)
	m.st.truncate(from)
	m.ElementsFrom("", from, requests, m.next)
	m.st.Document.Read(requests)
	m.title(s.Title + s.OldTitle)
	m.keep()
}

// settings notes what a session states about itself.
func (m *mapper) settings(s *session) {
	m.Session.SetRoot(folderOf(s.Folder))
	if d := s.RepoData.Value; s.RepoData.OK {
		m.Session.SetCheckout(core.Checkout{Repository: d.Remote, Branch: d.Branch, Commit: d.Commit})
	}
	if s.Created.OK {
		m.st.Created = s.Created
	}
	m.At(core.TimeOfMillis(s.Created))
}

// title writes a title, which replaces the one before.
func (m *mapper) title(text lenient.Text) {
	m.SetID("title")
	m.Say(core.SpeechSummary, text)
	m.SetID("")
}

// next writes the request that follows.
func (m *mapper) next(raw jsontext.Value) { m.request(m.st.Count, raw) }

// request writes a whole request.
func (m *mapper) request(n int, raw jsontext.Value) {
	var r wireRequest
	lenient.ReadObject(raw, &r)
	q := request{Index: n, ID: cmp.Or(r.ID, placeOf(n))}
	if r.Confirmation != "" {
		q.Unshown = m.st.unanswered(n - 1)
	}
	m.Copied = m.st.copies(n, &r)
	m.At(core.TimeOfMillis(r.Timestamp))
	m.setModel(&q, q.modelOf(&r))
	if raw.Kind() != '{' {
		m.Unknown(core.UnknownRecord, "request")
		m.SetID(q.ID)
		m.Put(core.UnknownDraft())
	}
	m.prompt(&q, &r)
	m.answer(&q, 0, r.Response, &r.Result.Value.Metadata.Value)
	m.settle(&q, &r)
	m.written = nil
	m.st.put(q)
}

// placeOf returns the id of a request without one.
func placeOf(n int) lenient.Text { return lenient.Text("requests/" + strconv.Itoa(n)) }

// modelOf returns the model that a request states. With auto Copilot chooses one, which a part of the answer or the
// result states; versions of spring 2026 state its name alone.
func (q *request) modelOf(r *wireRequest) lenient.Text {
	id := lenient.Text(strings.TrimPrefix(string(r.ModelID), "copilot/"))
	switch chosen := r.Result.Value.Metadata.Value.Model; {
	case id != "" && id != "auto":
		return id
	case q.Model == "" || r.ModelID != "":
		return cmp.Or(chosen, r.shownModel())
	default:
		return ""
	}
}

// shownModel returns the name of the model that the editor shows with its price, unless a part of the answer states
// the model's id.
func (r *wireRequest) shownModel() lenient.Text {
	name, _, ok := strings.Cut(string(r.Result.Value.Details), " • ")
	if !ok || slices.ContainsFunc(lenient.ReadElements[part](r.Response), func(p part) bool { return p.Resolved.Value.ID != "" }) {
		return ""
	}
	return lenient.Text(name)
}

// setModel notes the model of a request, unless it is empty.
func (m *mapper) setModel(q *request, id lenient.Text) {
	if id != "" && len(id) <= core.MaxName {
		q.Model = id
	}
	m.Model = q.Model
	m.Session.SetModel(string(q.Model))
}

// prompt writes what a human typed. A request that a button or the editor made has no human's text.
func (m *mapper) prompt(q *request, r *wireRequest) {
	var message struct {
		Text  lenient.Text             `json:"text"`
		Parts lenient.List[promptPart] `json:"parts"`
	}
	lenient.ReadObject(r.Message, &message)
	text := message.Text + lenient.Text(lenient.Unquote(r.Message))
	m.SetID(q.ID)
	if strings.TrimSpace(string(text)) != "" {
		m.StatedAs(envelopes.UserMessage, sent(text, message.Parts))
	}
	switch {
	case bool(r.BySystem) || r.Confirmation != "":
		m.Say(core.SpeechInjected, text)
	case strings.TrimSpace(string(text)) == "" && len(lenient.Elements(r.Variables.Value.List)) > 0:
		m.Attach()
	default:
		m.Say(core.SpeechHuman, text)
	}
}

// settle writes the end of a request: calls of the model, an error, and what it cost.
func (m *mapper) settle(q *request, r *wireRequest) {
	result := &r.Result.Value
	m.calls(q, &result.Metadata.Value)
	q.Limited = q.Limited || bool(result.Metadata.Value.Limited)
	texts := &modelTexts{m, q}
	texts.rounds(&result.Metadata.Value)
	m.At(core.TimeOfMillis(r.State.Value.Completed))
	for _, p := range []lenient.Object[problem]{result.Error, r.OldError} {
		if p.OK && p.Value.Code != "canceled" {
			m.SetID(q.ID + "/error")
			m.Error(p.Value.Code, p.Value.Message)
		}
	}
	m.SetID(q.ID)
	for _, t := range r.tokens(q, chat.Billed(m.Session, q.ID).Input) {
		if t.Several = true; t.Input.OK || t.Output.OK {
			m.Use(q.ID, t)
		}
	}
	if ms := result.Timings.Value.Total; ms.OK {
		m.fact(q, "turn", map[string]any{"durationMs": ms.Count()})
	}
	if r.Credits.OK && !m.Copied {
		m.fact(q, "credits", r.Credits.Value)
	}
	if s := r.State.Value.Value; bool(r.Canceled) || s.OK {
		if q.Stopped = bool(r.Canceled) || s.Value == stateCancelled; q.Stopped {
			m.fact(q, "endReason", "canceled")
		}
	}
	texts.stopped()
}

// tokens returns what a request states of its tokens: those of all its API calls, or, until they are stated, the input
// of the last one and the output of all, of which the result has the last one's. That input may be from the cache: what
// was billed of it is not billed again as such.
func (r *wireRequest) tokens(q *request, billed int64) []chat.Tokens {
	var sum chat.Tokens
	for _, t := range r.Totals {
		sum.Input.Value += max(0, t.Input.Value-t.Cached.Value)
		sum.CacheRead.Value += t.Cached.Value
		sum.Output.Value += t.Output.Value
	}
	last := r.Result.Value.Metadata.Value
	switch {
	case len(r.Totals) > 0:
		q.Summed = true
		sum.Input.OK, sum.CacheRead.OK, sum.Output.OK = true, true, true
		sum.CacheRead.Value = max(0, sum.CacheRead.Value-max(0, float64(billed)-sum.Input.Value))
		return []chat.Tokens{sum}
	case q.Summed:
		return nil
	default:
		return []chat.Tokens{{Input: r.Prompt, Output: r.Output}, {Input: last.Prompt, Output: last.Output}}
	}
}

// fact writes a fact about a request.
func (m *mapper) fact(q *request, name string, value any) {
	d := core.SystemDraft(envelopes.Meta, "")
	d.Identity, d.Metadata = fmt.Sprint(value), m.Session.MetadataWithFacts(map[string]any{name: value})
	m.SetID(q.ID + lenient.Text("/"+name))
	m.Put(d)
}

// change writes what an entry of a journal changes.
func (m *mapper) change(r *record, path []jsontext.Value) {
	name := lenient.Text(lenient.Unquote(path[0]))
	switch {
	case name == "requests" && len(path) == 1:
		n := m.st.Count
		if r.I.OK {
			n = int(r.I.Count())
		} else if r.Kind.Value == kindSet {
			n = 0
		}
		m.st.truncate(n)
		m.ElementsFrom("", 0, lenient.Elements(r.V), m.next)
	case name == "requests":
		m.changeRequest(r, int(lenient.NumberOf(path[1]).Count()), path[2:])
	case name == "customTitle":
		m.title(lenient.Text(lenient.Unquote(r.V)))
	case name == "inputState": // what a human is typing
		m.Skip = core.SkipProgress
	case name == "pendingRequests":
		m.Skip = core.SkipQueued
	case len(path) == 1:
		var s session
		lenient.ReadObject(memberOf(name, r.V), &s)
		m.settings(&s)
	}
	m.keep()
}

// changeRequest writes what an entry changes in a request.
func (m *mapper) changeRequest(r *record, n int, path []jsontext.Value) {
	if len(path) == 0 {
		m.ElementsFrom("", 0, []jsontext.Value{r.V}, func(raw jsontext.Value) { m.request(n, raw) })
		return
	}
	q, name := m.st.request(n), lenient.Text(lenient.Unquote(path[0]))
	m.Model, m.Copied = q.Model, n < m.st.Copies
	switch {
	case name == "response" && len(path) == 1:
		from := q.Parts
		if r.I.OK {
			from = int(r.I.Count())
		} else if r.Kind.Value != kindPush {
			from = 0
		}
		m.answer(&q, from, r.V, &metadata{})
	case len(path) == 1 && name != "timestamp":
		var changed wireRequest
		lenient.ReadObject(memberOf(name, r.V), &changed)
		m.setModel(&q, q.modelOf(&changed))
		m.settle(&q, &changed)
	}
	m.st.put(q)
}

// keep keeps a record without an event and without a reason for none.
func (m *mapper) keep() {
	switch {
	case m.HasElements():
		m.Skip = "" // its requests decide
	case m.First < 0 && !m.Duplicate && m.Skip == "":
		m.SetID("")
		m.Meta()
	}
}

// memberOf returns an object with one member.
func memberOf(name lenient.Text, value jsontext.Value) jsontext.Value {
	if value == nil {
		return nil
	}
	b := append(lenient.AppendQuote([]byte{'{'}, string(name)), ':')
	return append(append(b, value...), '}')
}

// folderOf returns the path of a URI; empty if it is none of a file.
func folderOf(uri lenient.Text) string {
	u, err := url.Parse(string(uri))
	if err != nil {
		return ""
	}
	return (&wireURI{Scheme: lenient.Text(u.Scheme), Path: lenient.Text(u.Path)}).file()
}

// file returns the path of a file; empty for any other URI.
func (u *wireURI) file() string {
	path := string(u.Path)
	switch {
	case u.Scheme != "file" && u.Scheme != "vscode-remote":
		return ""
	case u.FSPath != "":
		return string(u.FSPath)
	case len(path) > 2 && path[2] == ':': // a drive of Windows
		return path[1:]
	default:
		return path
	}
}
