package acp

import (
	"cmp"
	"slices"

	"tributary/envelopes"
	"tributary/normalizers/core"
)

// maxHistory is how many messages a session remembers in case they come again.
const maxHistory = 256

// history is what a session remembers about the messages that it has emitted.
type history struct {
	Emitted core.Window[emittedMessage] `json:"said,omitzero"`
}

// emittedMessage is a message emitted before. Messages have no id, so a repeated one is recognized by these fields.
type emittedMessage struct {
	Content core.Fingerprint `json:"w"`
	Time    core.Fingerprint `json:"t,omitzero"` // zero if it states none
	In      place            `json:"b,omitzero"`
}

// place is where a message was last found. A history may repeat the messages of requests
// and runs, and a run those of requests.
type place int

const (
	inHistory place = iota
	inRequest       // also for the answer to a run
	inRun
)

// speaker is the participant who wrote a message.
type speaker string

const (
	byRole speaker = "" // the participant named in the role of the message
	human  speaker = "human"
	agent  speaker = "agent"
)

// of returns the participant who wrote a message.
func (s speaker) of(m *envelopes.ACPMessage) speaker {
	if s != byRole {
		return s
	}
	if _, ok := m.Agent(); ok {
		return agent
	}
	return human
}

// remembered returns a message in the form kept by a session.
func remembered(s speaker, m *envelopes.ACPMessage, in place) emittedMessage {
	is := emittedMessage{Content: contentHash(s, m), In: in}
	if ts, ok := parseTime(m.CreatedAt, m.CompletedAt); ok {
		is.Time = core.FingerprintOf(ts)
	}
	return is
}

// contentHash returns the identity of a message: its speaker and parts. Adjacent parts that are only text count as
// one, because the protocol cuts a text as it comes.
func contentHash(s speaker, m *envelopes.ACPMessage) core.Fingerprint {
	content := []string{string(s.of(m))}
	inText := false // the last content is text
	for i := range m.Parts {
		p := &m.Parts[i]
		text, plain := p.Text()
		switch plain = plain && p.Metadata == nil && p.Name == nil; {
		case plain && inText:
			content[len(content)-1] += text
		case plain:
			content, inText = append(content, "text", text), true
		default:
			content, inText = append(content, string(bufferedPart(p))), false
		}
	}
	return core.FingerprintOf(content...)
}

// equals reports whether two messages may be the same: their content is equal and their times do not differ.
func (e emittedMessage) equals(o emittedMessage) bool {
	return e.Content == o.Content && (e.Time == core.Fingerprint{} || o.Time == core.Fingerprint{} || e.Time == o.Time)
}

// remember notes an emitted message.
func (h *history) remember(is emittedMessage) {
	// A session always has more messages than it can keep, so losing the oldest is expected.
	h.Emitted = h.Emitted.Push(is, maxHistory, nil)
}

// isRepeat reports whether a message of a run or a history repeats an emitted one: one from a place that this message
// may repeat, or, in a history, one with the same time. Each place repeats a message once.
func (h *history) isRepeat(is emittedMessage) bool {
	for i, o := range h.Emitted {
		sameTime := is.In == inHistory && is.Time != core.Fingerprint{} && is.Time == o.Time
		if !o.equals(is) || !sameTime && (o.In == inHistory || o.In == is.In) {
			continue
		}
		o.In, o.Time = is.In, cmp.Or(o.Time, is.Time)
		h.Emitted = h.Emitted.With(i, o)
		return true
	}
	return false
}

// emitOnce emits a message of a run: its question or the answer. The prompt in the output of a run is not emitted
// again if the request stated it.
func (m *mapper) emitOnce(e *emission) {
	in := inRun
	if e.speaker == human {
		in = inRequest
	}
	is := remembered(e.speaker, e.message, in)
	if e.speaker == byRole && e.speaker.of(e.message) == human && m.st.isRepeat(is) {
		m.repeated = true
		return
	}
	if m.emitMessage(e) {
		m.st.remember(is)
	}
}

// emitHistoryMessage emits a message on its own, unless it repeats one.
func emitHistoryMessage(m *mapper, message *envelopes.ACPMessage) {
	m.st.Open.flush(m)
	is := remembered(byRole, message, inHistory)
	if m.st.isRepeat(is) {
		m.repeated = true
		return
	}
	if m.emitMessage(&emission{message: message}) {
		m.st.remember(is)
	}
}

// emitHistory emits the messages of a list that do not repeat one that was emitted before
// the list: each emitted message is repeated once by it. The last message of a request is
// its prompt, which is always new.
func emitHistory(m *mapper, messages []envelopes.ACPMessage, in place) {
	unmatched := slices.Clone(m.st.Emitted)
	for i := range messages {
		is := remembered(byRole, &messages[i], in)
		isPrompt := in == inRequest && i == len(messages)-1
		if at := slices.IndexFunc(unmatched, is.equals); at >= 0 && !isPrompt {
			unmatched = slices.Delete(unmatched, at, at+1)
			m.repeated = true
			continue
		}
		if m.emitMessage(&emission{message: &messages[i]}) {
			m.st.remember(is)
		}
	}
}

// emitArray emits an array of records. An array of messages is a history; one without a
// known record is kept whole.
func emitArray(m *mapper, elements []record) {
	var messages []envelopes.ACPMessage
	known := 0
	for i := range elements {
		if elements[i].kind == kindMessage {
			messages = append(messages, *elements[i].message())
		}
		if elements[i].kind != kindUnknown {
			known++
		}
	}
	switch {
	case known == 0:
		m.emitMeta()
	case len(messages) == len(elements):
		m.st.Open.flush(m)
		emitHistory(m, messages, inHistory)
	default:
		for i := range elements {
			m.dispatch(&elements[i])
		}
	}
}
