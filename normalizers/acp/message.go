package acp

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

const (
	maxMessageMetadata     = 1000      // entries of message_metadata
	maxMessageMetadataSize = 128 << 10 // bytes of message_metadata
)

// emission is a message, or the last parts of one, on its way into events.
type emission struct {
	message   *envelopes.ACPMessage
	speaker   speaker
	run       string        // id of its run; empty for a message of no run
	index     int           // of the message in the run
	firstPart int           // index of message.Parts[0] in the whole message
	from      *core.Pending // its record; nil for the current one

	// Set by [mapper.emitMessage].
	ts       string         // of the events; empty for the time of their record
	agent    lenient.Text   // empty for a human
	text     *string        // text of the message; nil for none
	textPart int            // index of the part where the text begins; -1 for an empty message
	metadata jsontext.Value // message_metadata of the event with the text, or else of the first event
	events   int            // number of events so far
	emitted  bool           // one of the events was new
}

// emitMessage emits the events of a message, and reports whether one of them was new: for each part its step and its
// artifact, and the text of the message where it begins.
func (m *mapper) emitMessage(e *emission) bool {
	e.ts, _ = parseTime(e.message.CompletedAt, e.message.CreatedAt)
	if e.speaker.of(e.message) == agent {
		name, _ := e.message.Agent()
		e.agent = lenient.Text(cmp.Or(name, m.st.Agent))
	}
	e.metadata = messageMetadata(e.message.Parts)
	e.text, e.textPart = messageText(e.message.Parts)
	for i := range e.message.Parts {
		m.emitPart(e, i)
	}
	if e.events == 0 && e.metadata != nil {
		m.emit(e, 0, "", core.SystemDraft(envelopes.Meta, ""))
	}
	return e.emitted
}

// emitPart emits the events of a part.
func (m *mapper) emitPart(e *emission, part int) {
	p := &e.message.Parts[part]
	for _, name := range slices.Sorted(maps.Keys(p.Extra)) {
		m.Unknown(core.UnknownBlock, "part", lenient.Text(name))
	}
	suffix := "" // the id of the part is for its step, if that has an event
	before := e.events
	if step, ok := p.Metadata.(*envelopes.ACPTrajectory); ok {
		emitStep(m, e, part, step)
	}
	if e.events > before {
		suffix = "#content"
	}
	switch {
	case part == e.textPart:
		m.emit(e, part, suffix, e.textDraft())
	case p.Name != nil:
		m.emit(e, part, suffix, artifactDraft(p))
	}
}

// emit emits an event of a part with what all events of the message share. It returns the id of the event; a tool
// call uses it as tool_call_id, too.
func (m *mapper) emit(e *emission, part int, suffix string, d core.Draft) (id string) {
	d.EventID = m.partID(e, part, suffix)
	d.TS, d.AgentID = e.ts, e.agent.Ptr()
	if d.EventType == envelopes.ToolCall {
		d.ToolCallID = new(d.EventID)
	}
	if e.textPart < 0 && e.events == 0 {
		d.MessageMetadata = e.metadata
	}
	if e.from != nil && !m.isAtWork(e.from) {
		from := *e.from
		if e.events > 0 {
			from.Raw = nil
		}
		d.From = &from
	}
	e.events++
	if m.Emit(d) {
		e.emitted = true
	}
	return d.EventID
}

// isAtWork reports whether a pending record is the current one. The end of input is not.
func (m *mapper) isAtWork(p *core.Pending) bool {
	return p.Record == m.Session.Records && !m.Record.Origin.End
}

// partID returns the id of the event of a part, made from the run, the message and the part, or, without a run, from
// the number of its record.
func (m *mapper) partID(e *emission, part int, suffix string) string {
	switch {
	case e.run != "":
		return core.BoundID(e.run + ":" + strconv.Itoa(e.index) + ":" + strconv.Itoa(e.firstPart+part) + suffix)
	case e.from == nil || m.isAtWork(e.from):
		return m.OrdinalID(&core.Pending{Record: m.Session.Records})
	}
	id := "@" + strconv.FormatUint(e.from.Record, 10)
	if e.events > 0 {
		id += "." + strconv.Itoa(e.events)
	}
	return id
}

// textDraft returns the event of the message's text. Different metadata makes it a different event.
func (e *emission) textDraft() core.Draft {
	d := core.ChatDraft(envelopes.AssistantMessage, e.text, nil)
	d.Identity, d.MessageMetadata = string(e.metadata), e.metadata
	if e.speaker.of(e.message) == human {
		d.EventType = envelopes.UserMessage
	}
	return d
}

// artifactDraft returns the event of a part with a name: a file that the agent made.
func artifactDraft(p *envelopes.ACPPart) core.Draft {
	d := core.Draft{OnChannel: envelopes.ChannelFilesystem}
	d.EventType = envelopes.FileSnapshot
	if text, ok := p.Text(); ok {
		d.Text = &text
	} else if p.ContentEncoding == envelopes.ACPPlain {
		d.Text = p.Content
	}
	d.Content = contentOf(p, d.Text)
	d.Touch(*p.Name, "")
	return d
}

// messageText returns the text of a message without its artifacts, and the part where it begins. White space alone is
// no text. A message of an image, for example, has an event without text at the part of the image; first is -1 for an
// empty message.
func messageText(parts []envelopes.ACPPart) (text *string, first int) {
	var b strings.Builder
	first, other := -1, -1
	for i := range parts {
		p := &parts[i]
		switch t, ok := p.Text(); {
		case p.Name != nil:
		case ok && t != "":
			if first < 0 {
				first = i
			}
			b.WriteString(t)
		case !ok && (p.Content != nil || p.ContentURL != nil) && other < 0:
			other = i
		}
	}
	if strings.TrimSpace(b.String()) != "" {
		return new(b.String()), first
	}
	return nil, other
}

// messageMetadata returns the metadata of the parts in the form of an event; nil for none. Beyond its limits it omits
// the input and output of tools, which have their own events, then cuts long strings, then cuts the list.
func messageMetadata(parts []envelopes.ACPPart) jsontext.Value {
	out := jsontext.Value{'['}
	n := 0
	for i := range parts {
		m := parts[i].Metadata
		if m == nil || n == maxMessageMetadata {
			continue
		}
		v, err := m.MarshalJSON()
		if s, ok := m.(*envelopes.ACPTrajectory); ok && len(out)+len(v) > maxMessageMetadataSize {
			short := *s
			short.ToolInput, short.ToolOutput = nil, nil
			v, err = short.MarshalJSON()
		}
		if len(out)+len(v) > maxMessageMetadataSize {
			v = core.Shorten(v, core.MaxFieldText)
		}
		if err != nil || len(out)+len(v) > 2*maxMessageMetadataSize {
			continue
		}
		if n > 0 {
			out = append(out, ',')
		}
		out = append(out, v...)
		n++
	}
	if n == 0 {
		return nil
	}
	return append(out, ']')
}
