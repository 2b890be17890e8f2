package copilot

import (
	"slices"
	"strings"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// maxSystemPrompts is how many system prompts a session remembers: one for each agent.
const maxSystemPrompts = 16

// prompt maps a message to the agent: of a human, of another agent, or of the runtime. What a
// human typed is content; transformedContent has text of the runtime in it.
func (m *mapper) prompt() {
	m.noteAttachments()
	text, source := m.data.Content, string(m.data.Source)
	fromAgent := strings.HasPrefix(source, "agent-")
	fromRuntime := source != "" && source != "user" && !fromAgent
	switch {
	case bool(m.data.Autopilot), fromRuntime, isInjected(text):
		m.inject(text)
		return
	case isBlank(text) && len(m.data.Attachments) == 0:
		m.putSystem(envelopes.Meta, "")
		return
	}
	m.sidechain = fromAgent && m.agent == ""
	d := chatDraft(envelopes.UserMessage, text, nil)
	if m.agent != "" || m.sidechain {
		d.Origin = envelopes.OriginAgent
	}
	m.put(m.ID, d)
}

// isInjected reports whether a prompt of no stated source is of the runtime.
func isInjected(text lenient.Text) bool {
	s := strings.TrimSpace(string(text))
	return strings.HasPrefix(s, "<system_notification>") || strings.HasPrefix(s, "<skill-context>") || strings.HasPrefix(s, "<skill-context ")
}

// inject emits a text that the runtime puts into the conversation.
func (m *mapper) inject(text lenient.Text) {
	d := core.SystemDraft(envelopes.Meta, text)
	d.Origin, d.Identity = envelopes.OriginInjected, string(m.Data)
	m.put(m.ID, d)
}

// systemPrompt emits the instructions of an agent once. The log has them again with every
// prompt.
func (m *mapper) systemPrompt() {
	prompt := core.FingerprintOf(m.agent, string(m.data.Content))
	if slices.Contains(m.st.Prompts, prompt) {
		m.skip = core.SkipDuplicate
		return
	}
	m.st.Prompts = m.st.Prompts.Push(prompt, maxSystemPrompts, nil)
	m.inject(m.data.Content)
}

// message maps a message of the model: its reasoning, its text, and the calls that it
// requests, in this order. The text of a chunk stays open until the last chunk.
func (m *mapper) message() {
	m.setModel(m.data.Model)
	text := m.data.Content
	if m.continuesOpen() {
		text = m.st.Open.Text + text
	}
	m.messageReasoning()

	event := -1 // the event with the text
	chunk := m.isChunk() && fitsOpen(text)
	if chunk {
		m.openMessage(text)
	} else {
		event = m.messageText(text)
	}
	repeated := m.requests()
	m.billMessage(event)
	if chunk && m.First >= 0 {
		m.st.Open.From.Raw = nil // an event of this record carries it
	}
	switch {
	case chunk:
		m.skip = core.SkipProgress
	case m.Duplicate:
		m.skip = core.SkipDuplicate
	case repeated:
		m.skip = core.SkipMirror
	default:
		m.skip = core.SkipEmpty
	}
}

// isChunk reports whether chunks of the message follow.
func (m *mapper) isChunk() bool {
	d := &m.data
	return d.MessageID != "" && d.ChunkCount.Count() > d.ChunkIndex.Count()+1 && len(d.Requests) == 0
}

// messageText emits the whole text of a message. It returns the index of the event; -1 when
// there is none.
func (m *mapper) messageText(text lenient.Text) int {
	if m.continuesOpen() {
		m.st.Open = openText{}
	}
	if isBlank(text) || !m.put(m.ID, chatDraft(envelopes.AssistantMessage, text, m.model())) {
		return -1
	}
	return len(m.Events) - 1
}

// requests emits the calls that the message requests. It reports whether the start of one of
// them emitted it before.
func (m *mapper) requests() (repeated bool) {
	for i := range m.data.Requests {
		if !m.request(&m.data.Requests[i]) {
			repeated = true
		}
	}
	return repeated
}

// lastReasoning is the last reasoning, which the log may repeat in its other form.
type lastReasoning struct {
	Text      core.Fingerprint `json:"w,omitzero"`
	InMessage bool             `json:"m,omitzero"` // it stood in a message, not in a record of its own
}

// messageReasoning emits the reasoning in a message, unless a record of its own came before.
func (m *mapper) messageReasoning() {
	text := m.data.Reasoning
	if isBlank(text) || m.repeatsReasoning(text, true) {
		return
	}
	m.put(partID(m.ID, "reasoning"), chatDraft(envelopes.Reasoning, text, m.model()))
}

// reasoning maps a record with a reasoning alone, unless its message came before.
func (m *mapper) reasoning() {
	text := m.data.Content
	switch {
	case isBlank(text):
		m.skip = core.SkipEmpty
	case m.repeatsReasoning(text, false):
		m.skip = core.SkipMirror
	default:
		m.put(m.ID, chatDraft(envelopes.Reasoning, text, m.model()))
	}
}

// repeatsReasoning reports whether the last reasoning was the same one in the other form.
func (m *mapper) repeatsReasoning(text lenient.Text, inMessage bool) bool {
	r := lastReasoning{core.FingerprintOf(m.agent, strings.TrimSpace(string(text))), inMessage}
	last := m.st.Reasoning
	if last.Text == r.Text && last.InMessage != r.InMessage {
		m.st.Reasoning = lastReasoning{}
		return true
	}
	m.st.Reasoning = r
	return false
}
