package gemini

import (
	"strings"

	"tributary/normalizers/lenient"
)

// Since 18 May 2026 Gemini CLI writes a history that has changed twice: each message as a line with a new id, then the
// list of them ($set.messages). The lines look like those of new messages, so their order decides.

// isRewritten reports whether a line belongs to a rewritten history. That begins with the context of the session or
// with a call that the session has had, and ends with the list or with a message of another form.
func (m *mapper) isRewritten(w *wireMessage) bool {
	kind := w.kind()
	switch {
	case w.isTypedPrompt(), kind != "user" && kind != "gemini":
		return false // other files and other types can come between the lines of the history
	case !w.isPlain() || m.known.hasMessage(w.ID):
		m.st.Rewriting = false
	case m.st.HasContext && w.isContext(), m.repeatsCall(w):
		m.st.Rewriting = true
	}
	return m.st.Rewriting
}

// isPlain reports whether a message has no more than a line of a rewritten history. A live answer states its model.
func (w *wireMessage) isPlain() bool {
	return w.ID != "" && w.Model == "" && !w.Tokens.OK && len(w.ToolCalls)+len(w.Thoughts) == 0 && !w.DisplayContent.present
}

// isContext reports whether a user message begins with what a session begins with.
func (w *wireMessage) isContext() bool {
	if w.kind() != "user" {
		return false
	}
	for i := range w.body().parts {
		if s := strings.TrimSpace(string(w.body().parts[i].Text)); s != "" {
			return strings.HasPrefix(s, "<session_context>") || strings.HasPrefix(s, oldContext)
		}
	}
	return false
}

// repeatsCall reports whether one of the parts of an answer is a call that the session has had.
func (m *mapper) repeatsCall(w *wireMessage) bool {
	return w.kind() == "gemini" && w.body().has(func(p *part) bool {
		id := p.FunctionCall.Value.ID
		return p.FunctionCall.OK && id != "" && m.Session.HasEvent(string(id))
	})
}

// hasMessage reports whether the session has had a message with this id.
func (k known) hasMessage(id lenient.Text) bool {
	_, ok := k.ids.Get(messageKey(id))
	return ok
}

// maxJoined is the number of texts of a message above which they are not looked up one by one.
const maxJoined = 16

// joins reports whether a message consists of texts that earlier messages of its kind have had, each of one text or
// of several: a rewritten history joins messages of one side that follow each other.
func (k known) joins(w *wireMessage) bool {
	var texts []string
	for _, s := range w.shown().promptTexts() {
		if comparableText(s) != "" {
			texts = append(texts, s)
		}
	}
	if len(texts) < 2 || len(texts) > maxJoined {
		return false
	}
	for from := 0; from < len(texts); {
		to := len(texts)
		for to > from && !k.said(w.kind(), strings.Join(texts[from:to], "")) {
			to--
		}
		if to == from {
			return false
		}
		from = to
	}
	return true
}
