package claude

import (
	"slices"
	"strings"

	"tributary/normalizers/core"
)

const (
	maxQueued         = 64       // items of the queue
	maxQueuedText     = 24 << 10 // bytes of all their texts; a longer prompt is emitted at once
	maxEmittedPrompts = 64       // prompts emitted by the queue
	duplicateWithin   = 64       // the own record of a prompt from the queue comes within so many known records
)

// queue has the prompts that were typed while the agent worked, and those that the queue emitted.
type queue struct {
	Queue          core.Window[queuedPrompt]  `json:"queue,omitzero"`
	EmittedPrompts core.Window[emittedPrompt] `json:"taken,omitzero"`
}

func (q *queue) size() int {
	n := 24 * len(q.EmittedPrompts)
	for _, p := range q.Queue {
		n += 48 + len(p.Text)
	}
	return n
}

// queuedPrompt is an item of the queue.
type queuedPrompt struct {
	Key     core.Fingerprint `json:"k"`
	Text    string           `json:"w,omitzero"` // of a human prompt that the queue may have to emit
	Human   bool             `json:"h,omitzero"`
	Emitted bool             `json:"t,omitzero"` // emitted by a record of its own since it was enqueued
	Early   bool             `json:"e,omitzero"` // emitted when it was enqueued, because it was too long to keep
}

// emittedPrompt is a prompt emitted by the queue. If a record of its own follows, that is a duplicate.
type emittedPrompt struct {
	Key    core.Fingerprint `json:"k"`
	Record uint64           `json:"n"` // number of the record that emitted it; see knownRecords
}

// knownRecords returns how many records of the session have a known type. Records of other types are not counted,
// because the next version of Claude Code may write any number of them.
func (c *mapper) knownRecords() uint64 { return c.Session.Records - c.st.Unknown }

// queueOperation follows the queue. Usually a prompt gets a record of its own when its turn comes.
// Only a prompt that is removed without one is emitted here, if the queue has its text.
func queueOperation(c *mapper) {
	c.skip = core.SkipQueued
	q, content := &c.st.queue, string(c.text())
	switch c.Operation {
	case "enqueue":
		if !q.enqueue(content, &c.Session.Lost) {
			c.speakQueued(content)
		}
	case "dequeue", "remove":
		if text := q.dequeue(content, c.Operation == "remove", c.knownRecords()); text != "" {
			c.speakQueued(text)
		}
	case "popAll":
		q.Queue = q.Queue.Without(func(p queuedPrompt) bool { return p.Human })
	}
}

// speakQueued emits a prompt of the queue, unless telemetry or a hook has. Its id is the number of the record.
func (c *mapper) speakQueued(content string) {
	kind, text := speechOf(content)
	d := core.DraftOf(kind, text)
	d.Supersedes = c.st.queuePrompt(text)
	c.speak("", d)
}

// enqueue adds a prompt. It returns false for one that is too long to keep, which is emitted at once.
func (q *queue) enqueue(content string, lost *uint64) bool {
	p := queuedOf(content)
	if p.Human && strings.TrimSpace(content) != "" {
		size := len(content)
		for _, o := range q.Queue {
			size += len(o.Text)
		}
		if size <= maxQueuedText {
			p.Text = content
		} else {
			p.Early = true
		}
	}
	q.Queue = q.Queue.Push(p, maxQueued, lost)
	return !p.Early
}

// dequeue removes the item of an operation with this content from the queue. It returns the text to emit: of an item
// that was removed without being processed, and so has no other record. record is the number of the operation among
// the known records.
func (q *queue) dequeue(content string, removed bool, record uint64) (text string) {
	at := q.operand(content)
	if at < 0 {
		return ""
	}
	p := q.Queue[at]
	q.Queue = withoutIndex(q.Queue, at)
	if removed && !p.Emitted && !p.Early {
		text = p.Text
	}
	if text != "" || p.Early && !p.Emitted {
		q.EmittedPrompts = q.EmittedPrompts.Push(emittedPrompt{p.Key, record}, maxEmittedPrompts, nil)
	}
	return text
}

// operand returns the index of the item that an operation concerns: the one with its content, else one that a record
// has emitted since it was enqueued, else the oldest human one, else the oldest; -1 for none.
func (q *queue) operand(content string) int {
	choices := []func(queuedPrompt) bool{
		func(p queuedPrompt) bool { return p.Emitted },
		func(p queuedPrompt) bool { return p.Human },
		func(queuedPrompt) bool { return true },
	}
	if content != "" {
		key := queuedOf(content).Key
		choices = slices.Insert(choices, 0, func(p queuedPrompt) bool { return p.Key == key })
	}
	for _, choice := range choices {
		if at := slices.IndexFunc(q.Queue, choice); at >= 0 {
			return at
		}
	}
	return -1
}

// hasEmitted reports whether the queue has emitted a prompt, and notes that the prompt's own record has come; record
// is its number among the known records.
func (q *queue) hasEmitted(text string, record uint64) bool {
	key := core.PromptKey(text)
	removed := func(p emittedPrompt) bool { return p.Key == key && record-p.Record <= duplicateWithin }
	if at := slices.IndexFunc(q.EmittedPrompts, removed); at >= 0 {
		q.EmittedPrompts = withoutIndex(q.EmittedPrompts, at)
		return true
	}
	early := func(p queuedPrompt) bool { return p.Key == key && p.Early && !p.Emitted }
	if at := slices.IndexFunc(q.Queue, early); at >= 0 {
		p := q.Queue[at]
		p.Emitted = true
		q.Queue = q.Queue.With(at, p)
		return true
	}
	return false
}

// mark notes that a record emitted an item that is still in the queue, whoever its author is.
func (q *queue) mark(content string) {
	if len(q.Queue) == 0 || strings.TrimSpace(content) == "" {
		return
	}
	key := queuedOf(content).Key
	at := slices.IndexFunc(q.Queue, func(p queuedPrompt) bool { return p.Key == key && !p.Emitted })
	if at < 0 {
		return
	}
	p := q.Queue[at]
	p.Emitted, p.Text = true, ""
	q.Queue = q.Queue.With(at, p)
}

// queuedOf returns the item of the queue with a content. The key of a prompt is that of its text, so that its own record
// matches.
func queuedOf(content string) queuedPrompt {
	kind, text := speechOf(content)
	if isPrompt(kind) {
		return queuedPrompt{Key: core.PromptKey(text), Human: true}
	}
	return queuedPrompt{Key: core.PromptKey(content)}
}

// isPrompt reports whether a human typed a text to the agent.
func isPrompt(kind core.Speech) bool { return kind == core.SpeechHuman || kind == core.SpeechCommand }

// withoutIndex returns a window without one element.
func withoutIndex[T any](w core.Window[T], at int) core.Window[T] {
	if len(w) == 1 {
		return nil // as decoded
	}
	return slices.Delete(slices.Clone(w), at, at+1)
}
