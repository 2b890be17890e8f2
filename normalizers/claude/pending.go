package claude

import (
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

const (
	maxPartials    = 8        // partial messages of a session
	maxBlocks      = 256      // blocks of a partial message
	maxPartialText = 32 << 10 // bytes in JSON of the text of all partial messages
)

// streamEvent is an event of the API that streams a message.
type streamEvent struct {
	Type    lenient.Text            `json:"type"`
	Index   lenient.Number          `json:"index"`
	Message lenient.Object[message] `json:"message"`
	Block   lenient.Object[block]   `json:"content_block"`
	Delta   lenient.Object[delta]   `json:"delta"`
	Usage   lenient.Object[usage]   `json:"usage"`
	Error   jsontext.Value          `json:"error"`
}

// delta is a chunk of a block.
type delta struct {
	Type        lenient.Text `json:"type"`
	Text        lenient.Text `json:"text"`
	Thinking    lenient.Text `json:"thinking"`
	PartialJSON lenient.Text `json:"partial_json"`
}

// partials are the messages that have deltas, one per thread.
type partials struct {
	Partials core.Window[partialMessage] `json:"partials,omitzero"`
}

func (ps *partials) size() (n int) {
	for i := range ps.Partials {
		n += ps.Partials[i].size()
	}
	return n
}

// partialMessage is a message that has deltas. A thread has at most one.
//
// Usually records follow that state the same blocks completely; these emit the events. If none follows, the blocks
// are emitted as far as their deltas came.
type partialMessage struct {
	Thread  core.Fingerprint          `json:"t,omitzero"`
	Agent   string                    `json:"a,omitzero"`
	Message string                    `json:"m,omitzero"` // its id; empty if its start was missed
	Model   string                    `json:"model,omitzero"`
	Blocks  core.Window[partialBlock] `json:"b,omitzero"`
	Used    core.Consumption          `json:"u,omitzero"`
	Last    core.Pending              `json:"last"`           // record of the last delta
	UUID    string                    `json:"uuid,omitzero"`  // id of that record
	Ended   bool                      `json:"ended,omitzero"` // no further delta follows
}

// partialBlock is a block of a partial message.
type partialBlock struct {
	Index     int64  `json:"i"`
	Type      string `json:"y"`
	ID        string `json:"id,omitzero"`
	Name      string `json:"n,omitzero"`
	Text      string `json:"w,omitzero"`       // for a call, its input as JSON
	Emitted   bool   `json:"emitted,omitzero"` // a record with the whole block emitted it
	Truncated bool   `json:"cut,omitzero"`     // the session did not keep all deltas
}

// size returns the approximate memory of the message in bytes.
func (p *partialMessage) size() int {
	n := 256 + len(p.Agent) + len(p.Message) + len(p.Model) + len(p.UUID) + p.Last.Size()
	for _, b := range p.Blocks {
		n += 64 + len(b.Type) + len(b.ID) + len(b.Name) + len(b.Text)
	}
	return n
}

// apiEvent adds an event of the API to the partial message of its thread.
func apiEvent(c *mapper) {
	e := &c.Event.Value
	switch e.Type {
	case "ping":
		c.skip = core.SkipHeartbeat
	case "error":
		code, message := core.VendorError(e.Error)
		c.putError(c.UUID, code, message, message)
	case "message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop":
		c.skip = core.SkipProgress
		if e.Type == "content_block_delta" && !knownDeltas[e.Delta.Value.Type] {
			c.Unknown(core.UnknownBlock, e.Delta.Value.Type)
		}
		c.updatePartial(e)
	default:
		c.Unknown(core.UnknownRecord, c.Type, e.Type)
		c.putSystem(c.UUID, envelopes.Meta, "")
	}
}

// updatePartial applies an event of the API to the partial message of the thread, or begins a new one.
func (c *mapper) updatePartial(e *streamEvent) {
	at := c.st.of(c.thread)
	if at >= 0 && (e.Type == "message_start" || c.st.Partials[at].Ended) {
		c.flushThread()
		at = -1
	}
	p := partialMessage{Thread: c.thread, Agent: string(c.agentID)}
	if at >= 0 {
		p = c.st.Partials[at]
	}
	p.Last, p.UUID = c.PendingRecord(), core.Cut(string(c.UUID), core.MaxIdentity)
	p.Ended = e.Type == "message_stop"
	c.updateMessage(&p, e)
	if e.Type == "content_block_start" || e.Type == "content_block_delta" {
		c.st.updateBlock(&p, e)
	}
	if at >= 0 {
		c.st.Partials = c.st.Partials.With(at, p)
		return
	}
	if len(c.st.Partials) == maxPartials {
		c.emitPartial(c.st.Partials[0])
	}
	c.st.Partials = c.st.Partials.Push(p, maxPartials, nil)
}

// of returns the index of the partial message of a thread; -1 for none.
func (ps *partials) of(thread core.Fingerprint) int {
	return slices.IndexFunc(ps.Partials, func(m partialMessage) bool { return m.Thread == thread })
}

// updateMessage applies what an event of the API states about the whole message.
func (e *emitter) updateMessage(p *partialMessage, event *streamEvent) {
	if m := &event.Message.Value; event.Message.OK {
		p.Message, p.Model = core.Cut(string(m.ID), core.MaxIdentity), core.Cut(string(m.Model), core.MaxName)
		p.Used = p.Used.Raise(m.Usage.Value.consumption())
		e.setModel(lenient.Text(p.Model))
		if p.Message != "" {
			// Without token counts, this attributes the call to the current run, even if its record comes after the
			// result.
			e.increment(p.Message, "", core.Consumption{})
		}
	}
	if event.Usage.OK {
		p.Used = p.Used.Raise(event.Usage.Value.consumption())
	}
}

// updateBlock applies the start of a block, or a delta, to the block with its index.
func (ps *partials) updateBlock(p *partialMessage, event *streamEvent) {
	index := event.Index.Count()
	at := slices.IndexFunc(p.Blocks, func(b partialBlock) bool { return b.Index == index })
	block := partialBlock{Index: index, Type: "text"}
	if at >= 0 {
		block = p.Blocks[at]
	}
	if start := &event.Block.Value; event.Block.OK {
		block.Type, block.ID, block.Name = core.Cut(string(start.Type), core.MaxName), core.Cut(string(start.ID), core.MaxIdentity), core.Cut(string(start.Name), core.MaxName)
		ps.appendText(&block, start.Text+start.Thinking)
	}
	delta := &event.Delta.Value
	if delta.Thinking != "" && block.Type == "text" && at < 0 {
		block.Type = "thinking" // its start was missed
	}
	ps.appendText(&block, delta.Text+delta.Thinking+delta.PartialJSON)
	switch {
	case at >= 0:
		p.Blocks = p.Blocks.With(at, block)
	case len(p.Blocks) < maxBlocks:
		p.Blocks = p.Blocks.Push(block, maxBlocks, nil)
	}
}

// appendText appends a chunk to a block, unless the session would keep too much text. A byte takes at most six in
// JSON, so most texts need not be encoded to be measured.
func (ps *partials) appendText(b *partialBlock, chunk lenient.Text) {
	if chunk == "" {
		return
	}
	size := len(chunk)
	for text := range ps.texts() {
		size += len(text)
	}
	if 6*size > maxPartialText {
		size = lenient.QuotedLen(string(chunk))
		for text := range ps.texts() {
			size += lenient.QuotedLen(text)
		}
		b.Truncated = b.Truncated || size > maxPartialText
	}
	if !b.Truncated {
		b.Text += string(chunk)
	}
}

// texts yields the texts of all blocks of all partial messages.
func (ps *partials) texts() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, p := range ps.Partials {
			for _, b := range p.Blocks {
				if !yield(b.Text) {
					return
				}
			}
		}
	}
}

// matchPartial marks the blocks of the partial message that this record states completely. A partial message with
// another id has no record yet: it is emitted before this record.
func matchPartial(c *mapper) {
	id := core.Cut(string(c.Message.Value.ID), core.MaxIdentity)
	c.flushPartials(func(p partialMessage) bool { return p.Thread == c.thread && p.Message != "" && p.Message != id })
	at := c.st.of(c.thread)
	if at < 0 {
		return
	}
	p := c.st.Partials[at]
	blocks := c.Message.Value.Content.blocks
	for i := range blocks {
		b := &blocks[i]
		j := slices.IndexFunc(p.Blocks, func(o partialBlock) bool { return !o.Emitted && o.Type == string(b.Type) })
		if j < 0 {
			continue
		}
		if b.Type == "thinking" && b.Thinking == "" {
			b.Thinking = lenient.Text(p.Blocks[j].Text) // the record has only the signature
		}
		p.Blocks = p.Blocks.With(j, partialBlock{Index: p.Blocks[j].Index, Type: p.Blocks[j].Type, Emitted: true})
	}
	c.st.Partials = c.st.Partials.With(at, p)
}

// flushThread emits the partial message of the thread.
func (e *emitter) flushThread() {
	e.flushPartials(func(p partialMessage) bool { return p.Thread == e.thread })
}

// flushPartials emits and forgets the partial messages that match; nil matches all.
func (e *emitter) flushPartials(match func(partialMessage) bool) {
	var flushed []partialMessage
	e.st.Partials = e.st.Partials.Without(func(p partialMessage) bool {
		if match != nil && !match(p) {
			return false
		}
		flushed = append(flushed, p)
		return true
	})
	for _, p := range flushed {
		e.emitPartial(p)
	}
}

// emitPartial emits the blocks of a partial message that no record has emitted. The events get the id and time of the
// record of its last delta.
func (e *emitter) emitPartial(p partialMessage) {
	of := emitter{
		Builder: e.Builder, st: e.st, thread: p.Thread, agentID: lenient.Text(p.Agent), parentToolUseID: lenient.Text(p.Agent),
		internal: p.Agent != "", model: lenient.Text(p.Model), streamed: true, pending: &p.Last,
	}
	first := len(e.Events)
	of.emitMessage(p.assistantMessage())
	if len(e.Events) == first || p.Used == (core.Consumption{}) {
		return
	}
	if u := of.increment(p.Message, "", p.Used); u != nil {
		e.AddUsageAt(first, u, vendorFigures(u, false))
	}
}

// assistantMessage returns the message as far as its deltas came.
func (p *partialMessage) assistantMessage() assistantMessage {
	m := assistantMessage{id: p.eventIDs()}
	var texts []string
	for _, b := range p.Blocks {
		m.blocks = append(m.blocks, b.block())
		if b.Type == "text" && !b.Emitted {
			texts = append(texts, b.Text)
			m.truncated = m.truncated || b.Truncated
		}
	}
	if text := strings.Join(texts, "\n"); strings.TrimSpace(text) != "" {
		m.text = &text
	}
	return m
}

// eventIDs returns a function that makes ids for events whose block has none: from the uuid of the record of the last
// delta, or else from its number.
func (p *partialMessage) eventIDs() func(suffix string) lenient.Text {
	unnamed := 0
	return func(suffix string) lenient.Text {
		if p.UUID != "" {
			return withSuffix(lenient.Text(p.UUID), suffix)
		}
		id := "@" + strconv.FormatUint(p.Last.Record, 10)
		if unnamed > 0 {
			id += "." + strconv.Itoa(unnamed)
		}
		unnamed++
		return lenient.Text(id)
	}
}

// block returns the block as far as its deltas came. The input of a call is JSON if valid, otherwise text.
func (p *partialBlock) block() block {
	b := block{
		Type: lenient.Text(p.Type), ID: lenient.Text(p.ID), Name: lenient.Text(p.Name),
		Thinking: lenient.Text(p.Text), emitted: p.Emitted, truncated: p.Truncated,
	}
	switch input := jsontext.Value(p.Text); {
	case !b.isCall():
	case len(input) == 0:
		b.Input = jsontext.Value(`{}`)
	case !p.Truncated && input.IsValid(lenient.Options):
		b.Input = input
	default:
		b.Input = lenient.AppendQuote(nil, p.Text)
	}
	return b
}
