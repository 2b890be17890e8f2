package claude

import (
	"slices"
	"strings"

	"tributary/normalizers/core"
)

const (
	maxQueued         = 64       // items of the queue
	maxQueuedText     = 24 << 10 // bytes of their texts together; a longer prompt is emitted at once
	maxEmittedPrompts = 64       // prompts that the queue emitted
	duplicateWithin   = 64       // known records after a prompt of the queue within which its own record may come
)

// queuedPrompt is an item of the queue.
type queuedPrompt struct {
	Key     core.Fingerprint `json:"k"`
	Text    string           `json:"w,omitzero"` // of a human prompt that the queue may have to emit
	Human   bool             `json:"h,omitzero"`
	Emitted bool             `json:"t,omitzero"` // by a record of its own, since it was enqueued
	Early   bool             `json:"e,omitzero"` // emitted when it was enqueued, being too long to remember
}

// emittedPrompt is a prompt that the queue emitted: a record of its own, should one come,
// is a duplicate.
type emittedPrompt struct {
	Key    core.Fingerprint `json:"k"`
	Record uint64           `json:"n"` // the number of the record that emitted it; see knownRecords
}

// knownRecords returns how many records of the session have a known type. Records of other
// types separate nothing: the next version of Claude Code may write any number of them.
func (c *mapper) knownRecords() uint64 { return c.Session.Records - c.st.Unknown }

// queueOperation follows the queue of the prompts that were typed while the agent worked
// (README.md, Queue). As a rule a prompt has a record of its own when its turn comes. Only
// a prompt that is removed without one is emitted here, as far as the queue has its text.
func (c *mapper) queueOperation() {
	c.skip = core.SkipQueued
	switch c.Operation {
	case "enqueue":
		c.enqueue(string(c.text()))
	case "dequeue":
		c.dequeue(false)
	case "remove":
		c.dequeue(true)
	case "popAll":
		c.st.Queue = c.st.Queue.Without(func(p queuedPrompt) bool { return p.Human })
	}
}

// enqueue adds a prompt. One that is too long to be remembered is emitted at once.
func (c *mapper) enqueue(content string) {
	kind, text := speechOf(content)
	p := queuedPrompt{Key: core.PromptKey(text), Human: kind == core.SpeechHuman || kind == core.SpeechCommand}
	if p.Human && strings.TrimSpace(content) != "" {
		size := len(content)
		for _, o := range c.st.Queue {
			size += len(o.Text)
		}
		if size <= maxQueuedText {
			p.Text = content
		} else {
			p.Early = true
			c.speak("", core.DraftOf(kind, text)) // its id is the number of the record
		}
	}
	c.st.Queue = c.st.Queue.Push(p, maxQueued, &c.Session.Lost)
}

// dequeue takes the item of the operation from the queue. An item that was removed, and not
// processed, has no other record.
func (c *mapper) dequeue(removed bool) {
	at := c.operand()
	if at < 0 {
		return
	}
	p := c.st.Queue[at]
	c.st.Queue = withoutIndex(c.st.Queue, at)
	emit := removed && p.Text != "" && !p.Emitted && !p.Early
	if emit {
		c.speak("", core.DraftOf(speechOf(p.Text)))
	}
	if emit || p.Early && !p.Emitted {
		c.st.EmittedPrompts = c.st.EmittedPrompts.Push(emittedPrompt{p.Key, c.knownRecords()}, maxEmittedPrompts, nil)
	}
}

// operand returns the index of the item that the operation takes: the one with its content,
// else one that a record has emitted since it was enqueued, else the oldest human one, else
// the oldest; -1 for none.
func (c *mapper) operand() int {
	choices := []func(queuedPrompt) bool{
		func(p queuedPrompt) bool { return p.Emitted },
		func(p queuedPrompt) bool { return p.Human },
		func(queuedPrompt) bool { return true },
	}
	if content := c.text(); content != "" {
		_, text := speechOf(string(content))
		key := core.PromptKey(text)
		choices = slices.Insert(choices, 0, func(p queuedPrompt) bool { return p.Key == key })
	}
	for _, choice := range choices {
		if at := slices.IndexFunc(c.st.Queue, choice); at >= 0 {
			return at
		}
	}
	return -1
}

// emittedByQueue reports whether the queue has emitted a prompt, and notes that the record
// of the prompt has come.
func (c *mapper) emittedByQueue(text string) bool {
	key := core.PromptKey(text)
	removed := func(p emittedPrompt) bool { return p.Key == key && c.knownRecords()-p.Record <= duplicateWithin }
	if at := slices.IndexFunc(c.st.EmittedPrompts, removed); at >= 0 {
		c.st.EmittedPrompts = withoutIndex(c.st.EmittedPrompts, at)
		return true
	}
	early := func(p queuedPrompt) bool { return p.Key == key && p.Early && !p.Emitted }
	if at := slices.IndexFunc(c.st.Queue, early); at >= 0 {
		p := c.st.Queue[at]
		p.Emitted = true
		c.st.Queue = c.st.Queue.With(at, p)
		return true
	}
	return false
}

// markQueued notes that a record emitted a prompt that is still in the queue.
func (c *mapper) markQueued(text string) {
	key := core.PromptKey(text)
	at := slices.IndexFunc(c.st.Queue, func(p queuedPrompt) bool { return p.Key == key && p.Human && !p.Emitted })
	if at < 0 {
		return
	}
	p := c.st.Queue[at]
	p.Emitted, p.Text = true, ""
	c.st.Queue = c.st.Queue.With(at, p)
}

// withoutIndex returns a window less one element.
func withoutIndex[T any](w core.Window[T], at int) core.Window[T] {
	if len(w) == 1 {
		return nil // as it is decoded
	}
	return slices.Delete(slices.Clone(w), at, at+1)
}
