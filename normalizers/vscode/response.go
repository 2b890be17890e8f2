package vscode

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/chat"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// invoked is the kind of a part that is a call.
const invoked = "toolInvocationSerialized"

// answer writes parts of an answer, from the n-th on. used has the calls of the model, as far as they are known.
func (m *mapper) answer(q *request, n int, response jsontext.Value, used *metadata) {
	q.truncate(n)
	parts := lenient.ReadElements[part](response)
	for i, raw := range lenient.Elements(response) {
		if raw.Kind() == '"' {
			parts[i].Value = raw
		}
	}
	if response.Kind() == '"' {
		parts = []part{{Value: response}}
	}
	m.expect(q, parts, used)
	for i := range parts {
		m.part(q, &parts[i])
	}
	m.say(q)
	(&modelTexts{m, q}).stopped()
	if m.First < 0 && !m.Duplicate && len(parts) > 0 {
		m.Skip = core.SkipProgress
	}
}

// part writes a part of an answer.
func (m *mapper) part(q *request, p *part) {
	if text, ok := p.text(); ok || len(q.Texts) > 0 && isEdit(p.Kind) {
		if dir := p.BaseURI.Value.file(); len(dir) > 1 {
			m.Session.SetRoot(strings.TrimSuffix(dir, "/"))
		}
		m.add(q, text)
		return
	}
	m.end(q)
	m.SetID(q.ID + lenient.Text("/"+strconv.Itoa(q.Parts)))
	m.Agent = p.Agent
	switch p.Kind {
	case invoked:
		m.invocation(q, &p.invocation)
	case "thinking":
		thought := joined(p.Value)
		m.Think(thought)
		m.ended(q, q.Parts, envelopes.Reasoning, string(p.Agent+thought))
	case "warning", "info", "systemNotification":
		m.System(envelopes.Log, textOf(p.Content))
	case "autoModeResolution":
		m.setModel(q, p.Resolved.Value.ID)
	default:
		if !quietParts[p.Kind] {
			m.Unknown(core.UnknownBlock, "response", p.Kind)
		}
	}
	m.Agent = ""
	q.Parts++
}

// isEdit reports whether a part is an edit, which does not end a text.
func isEdit(kind lenient.Text) bool { return kind == "textEditGroup" || kind == "notebookEditGroup" }

// text returns the text of a part of a text. The editor puts a fence around an edit, which is none.
func (p *part) text() (_ string, ok bool) {
	switch p.Kind {
	case "", "markdownContent", "markdownVuln":
		text := joined(p.Value) + textOf(p.Content)
		if fence := strings.TrimSpace(string(text)); len(fence) >= 3 && strings.Trim(fence, "`") == "" {
			text = ""
		}
		return string(text), true
	case "inlineReference":
		r := &p.Reference.Value
		for _, name := range []lenient.Text{p.Name, r.Name, r.URI.Value.Path, r.Path} {
			if name != "" {
				return "`" + path.Base(string(name)) + "`", true
			}
		}
		return "", true
	default:
		return "", false
	}
}

// joined returns a text, or the texts in a list as one.
func joined(v jsontext.Value) lenient.Text {
	texts := []string{lenient.Unquote(v)}
	for _, t := range lenient.Elements(v) {
		texts = append(texts, lenient.Unquote(t))
	}
	return lenient.Text(strings.Join(texts, ""))
}

// textOf returns a text, or the value of an object.
func textOf(v jsontext.Value) lenient.Text {
	var o valued
	lenient.ReadObject(v, &o)
	return lenient.Text(lenient.Unquote(v) + lenient.Unquote(o.Value))
}

// add adds a part to the last text of an answer. A text that is too long to be remembered goes on in another event.
func (m *mapper) add(q *request, text string) {
	if !q.fits(text) {
		m.end(q)
	}
	q.Texts = append(slices.Clip(q.Texts), text)
	q.Parts++
	if len(text) > maxText {
		m.end(q)
	}
}

// end writes the last text of an answer, to which nothing is added any more.
func (m *mapper) end(q *request) {
	m.say(q)
	m.ended(q, q.first(), envelopes.AssistantMessage, withNames(q.text()))
	q.Texts = nil
}

// ended remembers a text of an answer that nothing is added to, which begins with a part.
func (m *mapper) ended(q *request, part int, of envelopes.EventType, text string) {
	if strings.TrimSpace(text) != "" {
		q.Ended = q.Ended.Push(endedText{part, of, core.StatementsOf(m.Session, of, text).Key()}, maxEnded, nil)
	}
}

// say writes the last text of an answer as it is now. The telemetry states that of a round ([modelTexts.rounds]).
func (m *mapper) say(q *request) {
	defer func(is chat.Channel) { m.Channel = is }(m.Channel)
	m.Channel = chat.OnlyLog
	m.SetID(q.ID + lenient.Text("/"+strconv.Itoa(q.first())))
	m.Answer(lenient.Text(q.text()))
}
