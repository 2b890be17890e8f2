package opencode

import (
	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// A document has all messages of a session and is rewritten as a whole. Its elements are the session and the
// messages; the first event of each carries the element.

// emitExport maps the document of `opencode export`.
func emitExport(c *mapper, messages []jsontext.Value) {
	var in session
	lenient.ReadObject(c.Info, &in)
	c.begin(0, c.Info, in.Time.Value.Created)
	emitSession(c, &in)
	c.end()
	emitMessages(c, messages)
}

// emitList maps an array: the messages of a session as returned by the server. Any other array is kept whole.
func emitList(c *mapper, elements []jsontext.Value) {
	if len(elements) == 0 {
		return
	}
	for _, e := range elements {
		if m := readMessage(e); m.Info.OK {
			emitMessages(c, elements)
			return
		}
	}
	c.Unknown(core.UnknownRecord, "")
	c.putSystem("", envelopes.Meta, "")
}

// emitMessages maps the messages of a document. Leading messages that can only change in parts that no event has are
// skipped if they were read before.
func emitMessages(c *mapper, elements []jsontext.Value) {
	messages := make([]wireMessage, len(elements))
	settled := 0
	for i, e := range elements {
		messages[i] = readMessage(e)
		if settled == i && messages[i].isSettled() {
			settled++
		}
		for j := range messages[i].Parts {
			c.st.drop(string(messages[i].Parts[j].Value.ID))
		}
	}
	from := 0
	if head := c.st.Document; head.Messages > 0 && head.Messages <= settled && digest(messages[:head.Messages]) == head.Digest {
		from, c.Duplicate = head.Messages, true
	}
	for i := from; i < len(messages); i++ {
		c.begin(i+1, elements[i], messages[i].Info.Value.Time.Value.Created)
		wholeMessage(c, &messages[i])
		c.end()
	}
	if n := min(settled, len(messages)-core.DocumentTail); n > 0 {
		c.st.Document = core.DocumentHead{Messages: n, Digest: digest(messages[:n])}
	}
}

// isSettled reports whether no later document can change what the message's events have.
func (m *wireMessage) isSettled() bool {
	if m.Info.Value.Role == "user" {
		return true
	}
	if !m.Info.Value.Time.Value.Completed.OK {
		return false
	}
	for i := range m.Parts {
		if p := &m.Parts[i].Value; p.Type == "tool" && !p.State.Value.isDone() {
			return false
		}
	}
	return true
}

// digest identifies what the events of messages have. It omits what OpenCode changes in old messages: the time at
// which a tool's output was pruned, and the differences of a turn.
func digest(messages []wireMessage) core.Fingerprint {
	var b []byte // bytes of one message
	add := func(parts ...string) {
		for _, p := range parts {
			b = append(append(b, p...), 0xfe)
		}
	}
	return core.DigestOfAll(func(yield func(jsontext.Value) bool) {
		for i := range messages {
			m := &messages[i]
			in := &m.Info.Value
			b = b[:0]
			add(string(in.ID), string(in.Role), string(in.Error), in.used().identity())
			for j := range m.Parts {
				p := &m.Parts[j].Value
				s := &p.State.Value
				add(string(p.ID), string(p.Type), string(p.Text), string(p.Tool), string(s.Status), string(s.Input), s.Output.Value, s.Error.Value)
			}
			if !yield(b) {
				return
			}
		}
	})
}
