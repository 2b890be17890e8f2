package copilot

import (
	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// maxOpen is how many bytes of JSON the open text may take. A longer text continues in another event.
const maxOpen = 32 << 10

// openText is the text being joined: a message in chunks, or a paragraph of plain text. It becomes one event of its
// last record.
type openText struct {
	Message core.Fingerprint `json:"id,omitzero"`   // hash of its messageId; zero for a paragraph
	From    core.Pending     `json:"from,omitzero"` // its last record
	ID      string           `json:"eid,omitzero"`  // id of that record
	Text    lenient.Text     `json:"w,omitzero"`
	Agent   string           `json:"agent,omitzero"`
	Model   string           `json:"model,omitzero"`
}

// isMessage reports whether a message in chunks is open.
func (o *openText) isMessage() bool { return o.Message != (core.Fingerprint{}) }

// size returns the approximate bytes of the text.
func (o *openText) size() int {
	return len(o.Text) + o.From.Size() + len(o.Agent) + len(o.Model) + len(o.ID)
}

// fitsOpen reports whether a session may keep a text.
func fitsOpen(text lenient.Text) bool { return core.FitsJSON(string(text), maxOpen) }

// messageKey identifies the message of a chunk.
func (d *data) messageKey() core.Fingerprint {
	return core.FingerprintOf("message", string(d.MessageID))
}

// continuedBy reports whether a record of an agent is the next chunk of the open message.
func (o *openText) continuedBy(r *record, agent string) bool {
	return r.Type == "assistant.message" && o.isMessage() && o.Message == r.data.messageKey() && o.Agent == agent
}

// openMessage makes a text the open one, with the current record as its last chunk.
func openMessage(m *mapper, text lenient.Text) {
	if !m.st.Open.isMessage() {
		m.st.Open.flush(&m.emitter) // a paragraph
	}
	m.st.Open = openText{
		Message: m.data.messageKey(),
		From:    m.PendingRecord(),
		ID:      core.BoundID(string(m.ID)),
		Text:    text,
		Agent:   m.agent,
	}
	if model := m.model(); model != nil {
		m.st.Open.Model = core.Cut(*model, core.MaxName)
	}
}

// flush emits the open text.
func (o *openText) flush(e *emitter) {
	open := *o
	*o = openText{}
	if isBlank(open.Text) {
		return
	}
	agent, duplicate := e.agent, e.Duplicate
	e.agent = open.Agent
	d := core.ChatDraft(envelopes.AssistantMessage, open.Text.Ptr(), lenient.Text(open.Model).Ptr())
	d.From = &open.From
	e.put(lenient.Text(open.ID), d)
	e.agent, e.Duplicate = agent, duplicate // restore those of the current record
}
