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

// prompt maps a message to the agent: from a human, another agent, or the runtime. content is what a human typed;
// transformedContent includes text of the runtime.
func prompt(m *mapper) {
	noteAttachments(m)
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
	d := core.ChatDraft(envelopes.UserMessage, text.Ptr(), nil)
	if m.agent != "" || m.sidechain {
		d.Origin = envelopes.OriginAgent
	}
	m.put(m.ID, d)
}

// isInjected reports whether a prompt without a stated source comes from the runtime.
func isInjected(text lenient.Text) bool {
	s := strings.TrimSpace(string(text))
	return strings.HasPrefix(s, "<system_notification>") || strings.HasPrefix(s, "<skill-context>") || strings.HasPrefix(s, "<skill-context ")
}

// systemPrompt emits the instructions of an agent once. The log repeats them with every prompt.
func systemPrompt(m *mapper) {
	prompt := core.FingerprintOf(m.agent, string(m.data.Content))
	if slices.Contains(m.st.Prompts, prompt) {
		m.skip = core.SkipDuplicate
		return
	}
	m.st.Prompts = m.st.Prompts.Push(prompt, maxSystemPrompts, nil)
	m.inject(m.data.Content)
}

// message maps a message of the model: its reasoning, its text, and the calls that it requests, in this order. The
// text of a chunk stays open until the last chunk.
func message(m *mapper) {
	m.setModel(m.data.Model)
	text := m.data.Content
	if m.st.Open.continuedBy(&m.record, m.agent) {
		text = m.st.Open.Text + text
	}
	messageReasoning(m)

	event := -1 // index of the event with the text
	chunk := m.record.isChunk() && fitsOpen(text)
	if chunk {
		openMessage(m, text)
	} else {
		event = messageText(m, text)
	}
	repeated := requests(m)
	billMessage(m, event)
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
func (r *record) isChunk() bool {
	d := &r.data
	return d.MessageID != "" && d.ChunkCount.Count() > d.ChunkIndex.Count()+1 && len(d.Requests) == 0
}

// messageText emits the whole text of a message. It returns the index of the event; -1 for none.
func messageText(m *mapper, text lenient.Text) int {
	if m.st.Open.continuedBy(&m.record, m.agent) {
		m.st.Open = openText{}
	}
	if isBlank(text) || !m.put(m.ID, core.ChatDraft(envelopes.AssistantMessage, text.Ptr(), m.model())) {
		return -1
	}
	return len(m.Events) - 1
}

// requests emits the calls that the message requests. repeated is true if the start of one of them emitted it before.
func requests(m *mapper) (repeated bool) {
	for i := range m.data.Requests {
		if !requestedCall(m, &m.data.Requests[i]) {
			repeated = true
		}
	}
	return repeated
}

// lastReasoning is the last reasoning, which the log may repeat in its other form.
type lastReasoning struct {
	Text      core.Fingerprint `json:"w,omitzero"`
	InMessage bool             `json:"m,omitzero"` // it was in a message, not in a record of its own
}

// messageReasoning emits the reasoning in a message, unless its own record came before.
func messageReasoning(m *mapper) {
	text := m.data.Reasoning
	if isBlank(text) || m.st.Reasoning.repeats(m.agent, text, true) {
		return
	}
	m.put(core.PartID(m.ID, "reasoning"), core.ChatDraft(envelopes.Reasoning, text.Ptr(), m.model()))
}

// reasoning maps a record that is only a reasoning, unless its message came before.
func reasoning(m *mapper) {
	text := m.data.Content
	switch {
	case isBlank(text):
		m.skip = core.SkipEmpty
	case m.st.Reasoning.repeats(m.agent, text, false):
		m.skip = core.SkipMirror
	default:
		m.put(m.ID, core.ChatDraft(envelopes.Reasoning, text.Ptr(), m.model()))
	}
}

// repeats notes a reasoning of an agent, and reports whether the last one was the same in the other form.
func (l *lastReasoning) repeats(agent string, text lenient.Text, inMessage bool) bool {
	r := lastReasoning{core.FingerprintOf(agent, strings.TrimSpace(string(text))), inMessage}
	if l.Text == r.Text && l.InMessage != r.InMessage {
		*l = lastReasoning{}
		return true
	}
	*l = r
	return false
}
