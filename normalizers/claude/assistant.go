package claude

import (
	"cmp"
	"strconv"
	"strings"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// assistant emits the events of an assistant's record. The first event gets the tokens that the record adds.
func assistant(c *mapper) {
	matchPartial(c)
	content := &c.Message.Value.Content
	text, _ := content.text()
	hasText := strings.TrimSpace(text) != ""
	if hasText && !c.internal {
		c.st.Runs.LastText = core.PromptKey(text)
	}
	c.st.Logged = true
	before := len(c.Events)
	if bool(c.IsAPIErrorMessage) || c.streamed && lenient.IsValue(c.Error) {
		vendorError(c, text)
		hasText = false
	}
	m := assistantMessage{
		blocks: content.blocks,
		id:     func(suffix string) lenient.Text { return withSuffix(c.UUID, suffix) },
		result: func(b *block) { emitToolResult(c, b) },
	}
	if hasText {
		m.text = &text
	}
	if hasText && !c.copied && c.st.Unknown > 0 && !c.Session.HasEvent(string(c.UUID)) {
		m.supersedes = c.logAnswer(cmp.Or(c.RequestID, c.RequestIDSnake), text)
	}
	if hasText && m.supersedes == "" {
		m.supersedes = c.retracted()
	}
	c.emitMessage(m)

	isNew := !c.Duplicate
	usage := usageIncrement(c)
	if len(c.Events) == before {
		switch {
		case !c.Duplicate:
			c.emptyMessage(c.UUID)
		case usage != nil: // already emitted; its token counts have grown
			c.emptyMessage(c.usageID(c.UUID))
		}
	}
	if usage != nil {
		c.AddUsage(usage, vendorFigures(usage, c.Message.Value.Usage.Value.OutputDetails.Value.Thinking.OK))
	}
	advisorUsage(c, isNew)
}

// assistantMessage is a message of the assistant: from a record, or joined from deltas.
type assistantMessage struct {
	blocks    []block
	text      *string // text of all text blocks; nil to emit none
	truncated bool    // the text is truncated
	// supersedes is the event that the text replaces; empty for none.
	supersedes string
	id         func(suffix string) lenient.Text // returns the id of an event whose block has none
	result     func(*block)                     // emits a tool result; nil for a message joined from deltas, which has none
}

// emitMessage emits the blocks of a message in order. All text blocks are one event, at the place of the first.
func (e *emitter) emitMessage(m assistantMessage) {
	thoughts := 0
	for i := range m.blocks {
		b := &m.blocks[i]
		if b.isThinking() {
			thoughts++
		}
		switch {
		case b.emitted:
		case b.Type == "text" && m.text != nil:
			e.utter(m.id(""), envelopes.AssistantMessage, m.text, m.truncated, m.supersedes)
			m.text = nil
		case b.isThinking():
			e.utter(m.id("#thinking"+strconv.Itoa(thoughts-1)), envelopes.Reasoning, b.Thinking.Ptr(), b.truncated, "")
		case b.isCall():
			e.toolCall(b)
		case b.isResult() && m.result != nil:
			m.result(b)
		}
	}
}

// utter emits what the assistant said or thought, in place of an earlier event unless supersedes is empty.
func (e *emitter) utter(id lenient.Text, t envelopes.EventType, text *string, truncated bool, supersedes string) {
	d := core.ChatDraft(t, text, e.model.Ptr())
	d.TextTruncated, d.Supersedes = truncated, supersedes
	e.put(id, d)
}

// retracted returns the event that the record takes back, after a refusal or a call that could not be read: the first one
// named that is still there, because an event replaces one other. Empty for none.
func (c *mapper) retracted() string {
	if c.Session.HasEvent(string(c.UUID)) {
		return ""
	}
	for _, names := range [...]lenient.List[lenient.Text]{c.SupersedesUUIDs, c.Supersedes, c.RetractedUUIDs, c.RetractedSnake} {
		for _, name := range names {
			key := core.FingerprintOf("retracted", string(name))
			if _, gone := c.Session.IDs.Get(key); !gone && c.Session.HasEvent(string(name)) {
				c.Session.IDs.Put(key, core.Fingerprint{})
				return core.BoundID(string(name))
			}
		}
	}
	return ""
}

// usageID returns the id of an event that has only the tokens of a record whose other events were emitted before. The
// tokens may grow several times.
func (e *emitter) usageID(of lenient.Text) lenient.Text {
	id := withSuffix(of, "#usage")
	for n := 2; e.Session.HasEvent(string(id)); n++ {
		id = withSuffix(of, "#usage"+strconv.Itoa(n))
	}
	return id
}

// emptyMessage emits the meta event of a message without events.
func (e *emitter) emptyMessage(id lenient.Text) {
	d := core.SystemDraft(envelopes.Meta, "")
	d.Model = e.model.Ptr()
	e.put(id, d)
}

// vendorError emits the error reported in the record; text is the record's text beside it.
func vendorError(c *mapper, text string) {
	code, message := core.VendorError(c.Error)
	if code == "" {
		code = string(cmp.Or(lenient.Scalar(c.APIErrorStatus), c.APIRefusalCategory))
	}
	message = cmp.Or(message, text)
	c.putError(c.UUID, code, message, cmp.Or(text, message))
}
