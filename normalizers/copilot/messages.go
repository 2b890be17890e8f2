package copilot

import (
	"slices"
	"strings"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// maxOpen is how many bytes of JSON a text may take that is being joined; beyond
// it the text goes on in another event.
const maxOpen = 32 << 10

// openMessage is a text that is being joined: a message in chunks, or a paragraph of
// plain text.
type openMessage struct {
	Message core.Fingerprint `json:"id,omitzero"`   // zero for a paragraph
	From    core.Pending     `json:"from,omitzero"` // its last record
	ID      string           `json:"eid,omitzero"`  // of that record
	Words   string           `json:"w,omitzero"`
	Agent   string           `json:"agent,omitzero"`
	Model   string           `json:"model,omitzero"`
}

// fitsOpen reports whether a session may keep a text: in JSON a byte takes at most six.
func fitsOpen(s string) bool {
	return 6*len(s) <= maxOpen || len(s) <= maxOpen && len(lenient.AppendQuote(nil, s)) <= maxOpen
}

// flush tells the text that was joined, as an event of its last record.
func (c *mapper) flush() {
	is := c.st.Open
	c.st.Open = openMessage{}
	if strings.TrimSpace(is.Words) == "" {
		return
	}
	agent, told := c.agent, c.Duplicate
	c.agent = is.Agent
	d := core.Draft{OnChannel: envelopes.ChannelChat, From: &is.From}
	d.EventType, d.Text, d.Model = envelopes.AssistantMessage, &is.Words, lenient.Text(is.Model).Ptr()
	c.put(lenient.Text(is.ID), d)
	c.agent, c.Duplicate = agent, told // of the record at work
}

// prompt maps a message to the agent. What a human typed is content, never
// transformedContent, in which the runtime has put its own words.
func (c *mapper) prompt() core.SkipReason {
	words, source := c.data.Content, string(c.data.Source)
	sent := strings.HasPrefix(source, "agent-")
	machine := source != "" && source != "user" && !sent
	switch {
	case bool(c.data.Autopilot), machine,
		strings.HasPrefix(strings.TrimSpace(string(words)), "<system_notification>"):
		c.inject(words)
		return core.SkipDuplicate
	case strings.TrimSpace(string(words)) == "" && len(c.data.Attachments) == 0:
		c.runtime(envelopes.Meta, "")
		return core.SkipDuplicate
	}
	c.inside = sent && c.agent == ""
	d := core.Draft{OnChannel: envelopes.ChannelChat}
	d.EventType, d.Text = envelopes.UserMessage, words.Ptr()
	if c.agent != "" || c.inside {
		d.Origin = envelopes.OriginAgent
	}
	c.put(c.ID, d)
	return core.SkipDuplicate
}

// inject emits a text that the runtime puts into the conversation.
func (c *mapper) inject(words lenient.Text) {
	d := core.Draft{OnChannel: envelopes.ChannelSystem, Identity: string(c.Data)}
	d.EventType, d.Text, d.Origin = envelopes.Meta, words.Ptr(), envelopes.OriginInjected
	c.put(c.ID, d)
}

// systemPrompt maps the instructions of an agent, which are written again with every
// prompt: they are told once.
func (c *mapper) systemPrompt() core.SkipReason {
	prompts := &c.st.Prompts
	is := core.FingerprintOf(c.agent, string(c.data.Content))
	if slices.Contains(*prompts, is) {
		return core.SkipDuplicate
	}
	*prompts = prompts.Push(is, maxSystemPrompts, nil)
	c.inject(c.data.Content)
	return core.SkipDuplicate
}

// continues reports whether the record goes on with the message that is being joined:
// a response is cut into messages, and one of them into chunks under its one messageId.
func (c *mapper) continues() bool {
	open := &c.st.Open
	return c.Type == "assistant.message" && open.Message != (core.Fingerprint{}) &&
		open.Message == core.FingerprintOf("message", string(c.data.MessageID)) && open.Agent == c.agent
}

// message maps what the model said: its reasoning, its words, and the calls that it
// requests, in this order.
func (c *mapper) message() core.SkipReason {
	d := &c.data
	c.uses(d.Model)
	open := c.st.Open
	if !c.continues() {
		open = openMessage{}
	}
	words := open.Words + string(d.Content)
	c.think(d.Reasoning)

	said := -1 // the event with the words
	partial := d.MessageID != "" && d.ChunkCount.Count() > d.ChunkIndex.Count()+1 && len(d.Requests) == 0 && fitsOpen(words)
	if partial {
		if c.st.Open.Message == (core.Fingerprint{}) {
			c.flush() // a paragraph
		}
		c.st.Open = openMessage{
			Message: core.FingerprintOf("message", string(d.MessageID)),
			From:    c.PendingRecord(), ID: core.BoundID(string(c.ID)), Words: words, Agent: c.agent,
		}
		if model := c.speaker(); model != nil {
			c.st.Open.Model = core.Cut(*model, core.MaxName)
		}
	} else {
		if c.continues() {
			c.st.Open = openMessage{}
		}
		if strings.TrimSpace(words) != "" {
			m := core.Draft{OnChannel: envelopes.ChannelChat}
			m.EventType, m.Text, m.Model = envelopes.AssistantMessage, &words, c.speaker()
			if c.put(c.ID, m) {
				said = len(c.Events) - 1
			}
		}
	}
	mirrored := false
	for i := range d.Requests {
		mirrored = !c.request(&d.Requests[i]) || mirrored
	}
	c.chargeMessage(said)
	if partial && c.First >= 0 {
		c.st.Open.From.Raw = nil // an event of the record carries it
	}
	switch {
	case partial:
		return core.SkipProgress
	case c.Duplicate:
		return core.SkipDuplicate
	case mirrored:
		return core.SkipMirror
	default:
		return core.SkipEmpty
	}
}

// think emits the reasoning of a message, unless a record of its own told it before.
func (c *mapper) think(words lenient.Text) {
	if strings.TrimSpace(string(words)) == "" || c.thoughtBefore(words, true) {
		return
	}
	id := c.ID
	if id != "" {
		id += "#reasoning"
	}
	d := core.Draft{OnChannel: envelopes.ChannelChat}
	d.EventType, d.Text, d.Model = envelopes.Reasoning, words.Ptr(), c.speaker()
	c.put(id, d)
}

// thought maps a reasoning with a record of its own, unless its message told it before.
func (c *mapper) thought() core.SkipReason {
	words := c.data.Content
	switch {
	case strings.TrimSpace(string(words)) == "":
		return core.SkipEmpty
	case c.thoughtBefore(words, false):
		return core.SkipMirror
	}
	d := core.Draft{OnChannel: envelopes.ChannelChat}
	d.EventType, d.Text, d.Model = envelopes.Reasoning, words.Ptr(), c.speaker()
	c.put(c.ID, d)
	return core.SkipDuplicate
}

// thoughtBefore reports whether the last reasoning was the same one in the other of its
// two forms: each is told by one of them.
func (c *mapper) thoughtBefore(words lenient.Text, spoken bool) bool {
	is := thought{Words: core.FingerprintOf(c.agent, strings.TrimSpace(string(words))), Spoken: spoken}
	last := c.st.Thought
	if last.Words == is.Words && last.Spoken != is.Spoken {
		c.st.Thought = thought{}
		return true
	}
	c.st.Thought = is
	return false
}
