package normalizers

import (
	"slices"
	"strings"

	"tributary/envelopes"
)

// maxCopilotOpen is how many bytes of JSON a text may take that is being joined; beyond
// it the text goes on in another event.
const maxCopilotOpen = 32 << 10

// copilotOpen is a text that is being joined: a message in chunks, or a paragraph of
// plain text.
type copilotOpen struct {
	Message fingerprint `json:"id,omitzero"`   // zero for a paragraph
	From    held        `json:"from,omitzero"` // its last record
	ID      string      `json:"eid,omitzero"`  // of that record
	Words   string      `json:"w,omitzero"`
	Agent   string      `json:"agent,omitzero"`
	Model   string      `json:"model,omitzero"`
}

// fitsOpen reports whether a session may keep a text: in JSON a byte takes at most six.
func fitsOpen(s string) bool {
	return 6*len(s) <= maxCopilotOpen || len(s) <= maxCopilotOpen && len(appendQuote(nil, s)) <= maxCopilotOpen
}

// flush tells the text that was joined, as an event of its last record.
func (c *copilotFold) flush() {
	is := c.s.Copilot.Open
	c.s.Copilot.Open = copilotOpen{}
	if strings.TrimSpace(is.Words) == "" {
		return
	}
	agent, told := c.agent, c.told
	c.agent = is.Agent
	d := draft{on: envelopes.ChannelChat, from: &is.From}
	d.EventType, d.Text, d.Model = envelopes.AssistantMessage, &is.Words, text(is.Model).ptr()
	c.put(text(is.ID), d)
	c.agent, c.told = agent, told // of the record at work
}

// prompt maps a message to the agent. What a human typed is content, never
// transformedContent, in which the runtime has put its own words.
func (c *copilotFold) prompt() SkipReason {
	words, source := c.data.Content, string(c.data.Source)
	sent := strings.HasPrefix(source, "agent-")
	machine := source != "" && source != "user" && !sent
	switch {
	case bool(c.data.Autopilot), machine,
		strings.HasPrefix(strings.TrimSpace(string(words)), "<system_notification>"):
		c.inject(words)
		return SkipDuplicate
	case strings.TrimSpace(string(words)) == "" && len(c.data.Attachments) == 0:
		c.runtime(envelopes.Meta, "")
		return SkipDuplicate
	}
	c.inside = sent && c.agent == ""
	d := draft{on: envelopes.ChannelChat}
	d.EventType, d.Text = envelopes.UserMessage, words.ptr()
	if c.agent != "" || c.inside {
		d.Origin = envelopes.OriginAgent
	}
	c.put(c.ID, d)
	return SkipDuplicate
}

// inject emits a text that the runtime puts into the conversation.
func (c *copilotFold) inject(words text) {
	d := draft{on: envelopes.ChannelSystem, identity: string(c.Data)}
	d.EventType, d.Text, d.Origin = envelopes.Meta, words.ptr(), envelopes.OriginInjected
	c.put(c.ID, d)
}

// systemPrompt maps the instructions of an agent, which are written again with every
// prompt: they are told once.
func (c *copilotFold) systemPrompt() SkipReason {
	prompts := &c.s.Copilot.Prompts
	is := fingerprintOf(c.agent, string(c.data.Content))
	if slices.Contains(*prompts, is) {
		return SkipDuplicate
	}
	*prompts = prompts.push(is, maxSystemPrompts, nil)
	c.inject(c.data.Content)
	return SkipDuplicate
}

// continues reports whether the record goes on with the message that is being joined:
// a response is cut into messages, and one of them into chunks under its one messageId.
func (c *copilotFold) continues() bool {
	open := &c.s.Copilot.Open
	return c.Type == "assistant.message" && open.Message != (fingerprint{}) &&
		open.Message == fingerprintOf("message", string(c.data.MessageID)) && open.Agent == c.agent
}

// message maps what the model said: its reasoning, its words, and the calls that it
// requests, in this order.
func (c *copilotFold) message() SkipReason {
	d := &c.data
	c.uses(d.Model)
	open := c.s.Copilot.Open
	if !c.continues() {
		open = copilotOpen{}
	}
	words := open.Words + string(d.Content)
	c.think(d.Reasoning)

	said := -1 // the event with the words
	partial := d.MessageID != "" && d.ChunkCount.count() > d.ChunkIndex.count()+1 && len(d.Requests) == 0 && fitsOpen(words)
	if partial {
		if c.s.Copilot.Open.Message == (fingerprint{}) {
			c.flush() // a paragraph
		}
		c.s.Copilot.Open = copilotOpen{
			Message: fingerprintOf("message", string(d.MessageID)),
			From:    c.hold(), ID: boundID(string(c.ID)), Words: words, Agent: c.agent,
		}
		if model := c.speaker(); model != nil {
			c.s.Copilot.Open.Model = cut(*model, maxName)
		}
	} else {
		if c.continues() {
			c.s.Copilot.Open = copilotOpen{}
		}
		if strings.TrimSpace(words) != "" {
			m := draft{on: envelopes.ChannelChat}
			m.EventType, m.Text, m.Model = envelopes.AssistantMessage, &words, c.speaker()
			if c.put(c.ID, m) {
				said = len(c.events) - 1
			}
		}
	}
	mirrored := false
	for i := range d.Requests {
		mirrored = !c.request(&d.Requests[i]) || mirrored
	}
	c.chargeMessage(said)
	if partial && c.first >= 0 {
		c.s.Copilot.Open.From.Raw = nil // an event of the record carries it
	}
	switch {
	case partial:
		return SkipProgress
	case c.told:
		return SkipDuplicate
	case mirrored:
		return SkipMirror
	default:
		return SkipEmpty
	}
}

// think emits the reasoning of a message, unless a record of its own told it before.
func (c *copilotFold) think(words text) {
	if strings.TrimSpace(string(words)) == "" || c.thoughtBefore(words, true) {
		return
	}
	id := c.ID
	if id != "" {
		id += "#reasoning"
	}
	d := draft{on: envelopes.ChannelChat}
	d.EventType, d.Text, d.Model = envelopes.Reasoning, words.ptr(), c.speaker()
	c.put(id, d)
}

// thought maps a reasoning with a record of its own, unless its message told it before.
func (c *copilotFold) thought() SkipReason {
	words := c.data.Content
	switch {
	case strings.TrimSpace(string(words)) == "":
		return SkipEmpty
	case c.thoughtBefore(words, false):
		return SkipMirror
	}
	d := draft{on: envelopes.ChannelChat}
	d.EventType, d.Text, d.Model = envelopes.Reasoning, words.ptr(), c.speaker()
	c.put(c.ID, d)
	return SkipDuplicate
}

// thoughtBefore reports whether the last reasoning was the same one in the other of its
// two forms: each is told by one of them.
func (c *copilotFold) thoughtBefore(words text, spoken bool) bool {
	is := copilotThought{Words: fingerprintOf(c.agent, strings.TrimSpace(string(words))), Spoken: spoken}
	last := c.s.Copilot.Thought
	if last.Words == is.Words && last.Spoken != is.Spoken {
		c.s.Copilot.Thought = copilotThought{}
		return true
	}
	c.s.Copilot.Thought = is
	return false
}
