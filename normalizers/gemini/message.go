package gemini

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// wireMessage has the members of a message: of a session, of a saved conversation, or of logs.json.
type wireMessage struct {
	ID             lenient.Text                          `json:"id"`
	Timestamp      lenient.Text                          `json:"timestamp"`
	Type           lenient.Text                          `json:"type"`
	Role           lenient.Text                          `json:"role"` // of a saved conversation, instead of Type
	Content        parts                                 `json:"content"`
	Parts          parts                                 `json:"parts"` // of a saved conversation, instead of Content
	DisplayContent parts                                 `json:"displayContent"`
	Thoughts       lenient.List[lenient.Object[thought]] `json:"thoughts"`
	Tokens         lenient.Object[tokens]                `json:"tokens"`
	Model          lenient.Text                          `json:"model"`
	ToolCalls      lenient.List[lenient.Object[call]]    `json:"toolCalls"`

	MessageID jsontext.Value `json:"messageId"` // of logs.json
	Message   lenient.Text   `json:"message"`   // of logs.json
}

type thought struct {
	Subject     lenient.Text `json:"subject"`
	Description lenient.Text `json:"description"`
	Summary     lenient.Text `json:"summary"`
	Timestamp   lenient.Text `json:"timestamp"`
}

// kind returns the type of a message under the name used in sessions.
func (w *wireMessage) kind() string {
	switch {
	case w.Type == "model", w.Type == "assistant", w.Type == "" && w.Role == "model":
		return "gemini"
	case w.Type == "":
		return string(w.Role)
	default:
		return string(w.Type)
	}
}

// isMessage reports whether w is a message, of a known type or not.
func (w *wireMessage) isMessage() bool {
	return w.isTypedPrompt() || w.ID != "" && w.Type != "" || w.kind() != "" && (w.Content.present || w.Parts.present)
}

// isTypedPrompt reports whether w is an entry of logs.json: a prompt as typed.
func (w *wireMessage) isTypedPrompt() bool {
	return lenient.Scalar(w.MessageID) != "" && w.Type != "" && w.Message != ""
}

// body returns the content of the message.
func (w *wireMessage) body() *parts {
	if w.Content.present {
		return &w.Content
	}
	return &w.Parts
}

// shown returns the displayed content of a user message: displayContent, unless that has no text or is a response.
func (w *wireMessage) shown() *parts {
	if shown := &w.DisplayContent; strings.TrimSpace(shown.text()) != "" && !shown.has((*part).isResponse) {
		return shown
	}
	return w.body()
}

// emitMessage emits a message that the session may have emitted before, in whole or in part.
func emitMessage(m *mapper, w *wireMessage) {
	isKnown := w.ID != "" && m.known.message(w.ID)
	m.copied = m.history && !isKnown
	noteMessage(m, w)
	switch kind := w.kind(); {
	case w.isTypedPrompt():
		emitTypedPrompt(m, w)
	case kind == "user":
		emitUserMessage(m, w)
	case kind == "gemini":
		emitModelMessage(m, w)
	case kind == "info", kind == "warning":
		m.putSystem(w.ID, envelopes.SystemMessage, lenient.Text(w.body().text()))
	case kind == "error":
		emitErrorText(m, w.ID, w.body().text())
	default:
		m.Unknown(core.UnknownRecord, lenient.Text(kind))
		d := core.UnknownDraft()
		d.Text = lenient.Text(w.body().text()).Ptr()
		m.put(w.ID, d)
	}
}

// emitTypedPrompt emits an entry of logs.json, unless the session's own file has stated it.
func emitTypedPrompt(m *mapper, w *wireMessage) {
	id := lenient.Scalar(w.MessageID)
	switch {
	case m.known.entry(id, w.Message):
		m.Duplicate = true
		return
	case m.known.prompt(string(w.Message), inLogs):
		m.repeated = true
		return
	}
	m.put(id, core.DraftOf(core.SpeechCommand, string(w.Message)))
}

// emitUserMessage emits a message of the user's side: tool responses, and what a human typed or a machine added.
func emitUserMessage(m *mapper, w *wireMessage) {
	emitResponses(m, w)
	m.st.HasContext = m.st.HasContext || w.isContext()
	body := w.body()
	kind, text, goesOn := m.known.speechOf(w)
	d := core.DraftOf(kind, text)
	isBlank := strings.TrimSpace(text) == ""
	if isBlank {
		d.Text = nil // a prompt that is only media
	}
	if isBlank && (!body.has((*part).isMedia) || body.has((*part).isResponse)) {
		return
	}
	isRevised := m.known.hasText(w)
	isRepeat := m.isRepeat(w, text)
	if !goesOn {
		m.known.content(w)
	}
	if isRepeat {
		return
	}
	isHuman := d.EventType == envelopes.UserMessage
	if isHuman && m.st.Agent != "" {
		d.Origin = envelopes.OriginAgent
	} else if isHuman && !isRevised && !m.copied && !isBlank && m.known.prompt(text, inSession) {
		m.repeated = true
		return
	}
	d.Model = w.Model.Ptr()
	m.put(w.ID, d)
}

// emitModelMessage emits a message of the model: its text, its thoughts, its calls, each with its result, and the
// tokens that it adds.
func emitModelMessage(m *mapper, w *wireMessage) {
	text := w.body().text()
	isRepeat := m.isRepeat(w, text)
	if !m.copied {
		m.Session.SetModel(string(w.Model))
	}
	if !isRepeat && strings.TrimSpace(text) != "" {
		m.emitModelText(w, w.ID, envelopes.AssistantMessage, lenient.Text(text), w.Timestamp)
	}
	if !m.copied || !isRepeat && !m.repeatsCall(w) {
		emitThoughts(m, w)
	}
	emitToolCalls(m, w)
	emitMessageUsage(m, w)
}

// emitThoughts emits the thoughts that a message lists, or else those among its parts.
func emitThoughts(m *mapper, w *wireMessage) {
	n := 0
	emit := func(text, timestamp lenient.Text) {
		id := w.ID
		if id != "" {
			id += lenient.Text("#thought" + strconv.Itoa(n))
		}
		n++
		m.emitModelText(w, id, envelopes.Reasoning, text, timestamp)
	}
	for i := range w.Thoughts {
		t := &w.Thoughts[i].Value
		emit(t.text(), t.Timestamp)
	}
	if n > 0 {
		return
	}
	for _, p := range w.body().parts {
		if bool(p.Thought) && p.Text != "" {
			emit(p.Text, "")
		}
	}
}

// text returns a thought as one text.
func (t *thought) text() lenient.Text {
	switch {
	case t.Subject != "" && t.Description != "":
		return t.Subject + ": " + t.Description
	case t.Subject+t.Description != "":
		return t.Subject + t.Description
	default:
		return t.Summary
	}
}

// emitModelText emits an answer or a thought of the model.
func (e *emitter) emitModelText(w *wireMessage, id lenient.Text, t envelopes.EventType, text, timestamp lenient.Text) {
	d := core.ChatDraft(t, text.Ptr(), w.Model.Ptr())
	d.TS, _ = core.ParseTime(string(timestamp))
	e.put(id, d)
}

// emitErrorText emits an error stated as a text, which may wrap a JSON answer of the API.
func emitErrorText(m *mapper, id lenient.Text, text string) {
	code, message := "", text
	if from, to := strings.IndexByte(text, '{'), strings.LastIndexByte(text, '}'); from >= 0 && from < to {
		if v := jsontext.Value(text[from : to+1]); lenient.ReadValue(v) == nil {
			if c, wrapped := core.VendorError(v); wrapped != "" {
				code, message = c, wrapped
			}
		}
	}
	d := m.Session.ErrorDraft(code, message)
	d.Text = lenient.Text(text).Ptr()
	m.put(id, d)
}
