package claude

import (
	"cmp"
	"slices"
	"strings"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// What Claude Code writes about who said what: user records, attachments, the runtime's
// own records, and the queue of prompts that were typed while the agent worked.

const (
	maxQueued     = 64       // items of the queue
	maxQueuedText = 24 << 10 // bytes of their texts together; a longer prompt is told at once
	maxTaken      = 64       // prompts told from the queue
	mirrorWithin  = 64       // records after a prompt was told in which its own record may come
)

// state is what a session of Claude Code remembers beyond what all vendors do.
type state struct {
	Queue  core.Window[queuedPrompt]     `json:"queue,omitzero"`
	Taken  core.Window[takenPrompt]      `json:"taken,omitzero"`
	Stated core.Window[core.StatedValue] `json:"stated,omitzero"`

	Runs     runs                 `json:"runs,omitzero"`
	Partials core.Window[partial] `json:"partials,omitzero"`
}

// Size implements [core.State].
func (s *state) Size() int {
	n := 24*len(s.Taken) + 48*len(s.Stated)
	for _, q := range s.Queue {
		n += 48 + len(q.Words)
	}
	for i := range s.Partials {
		n += s.Partials[i].size()
	}
	return n
}

// queuedPrompt is an item of the queue.
type queuedPrompt struct {
	Key   core.Fingerprint `json:"k"`
	Words string           `json:"w,omitzero"` // of a human prompt that may have to be told
	Human bool             `json:"h,omitzero"`
	Told  bool             `json:"t,omitzero"` // a record told it since it was enqueued
	Early bool             `json:"e,omitzero"` // told when it was enqueued, being too long to remember
}

// takenPrompt is a prompt that was told when it left the queue: its own record, should
// one come, is a mirror.
type takenPrompt struct {
	Key    core.Fingerprint `json:"k"`
	Record uint64           `json:"n"`
}

// user maps a user record: what it holds decides, not what it is called
// (vendor-formats.md section 3.3).
func (c *mapper) user() core.SkipReason {
	c.flush(func(p partial) bool { return p.Thread == c.in })
	m := &c.Message.Value
	words, said := m.Content.text()
	switch {
	case c.results() > 0:
		skip := core.SkipDuplicate
		for i := range m.Content.blocks {
			b := &m.Content.blocks[i]
			switch {
			case b.isResult():
				c.result(b)
			case b.Type == "text" && said:
				said = false // all texts of the record are one event
				if strings.TrimSpace(words) != "" {
					skip = c.say(words, c.Origin.Value)
				}
			}
		}
		return skip
	case lenient.IsValue(c.ToolUseResult):
		c.result(&block{Content: m.Content})
	case bool(c.IsCompactSummary):
		c.tell(core.DraftOf(core.SpeechSummary, words))
	case bool(c.IsMeta), bool(c.IsSynthetic):
		d := core.DraftOf(core.SpeechInjected, words)
		d.Text = lenient.Text(words).Ptr()
		c.tell(d)
	case strings.TrimSpace(words) != "":
		return c.say(words, c.Origin.Value)
	case len(m.Content.blocks) > 0 && !said:
		// An image or a document alone is a prompt without words.
		d := core.DraftOf(core.SpeechHuman, "")
		d.Text = nil
		c.tell(d)
	default:
		c.runtime(c.UUID, envelopes.Meta, "")
	}
	return core.SkipDuplicate
}

// tell emits what somebody said. The prompt of a subagent was written by its agent.
func (c *mapper) tell(d core.Draft) {
	if d.EventType == envelopes.UserMessage && c.internal {
		d.Origin = envelopes.OriginAgent
	}
	c.put(c.UUID, d)
}

// say emits words by who said them, unless the queue has told them already.
func (c *mapper) say(s string, from origin) core.SkipReason {
	kind, words := speechOf(s)
	if kind == core.SpeechHuman {
		switch {
		case from.Kind == "task-notification", from.Kind == "auto-continuation", from.Kind == "observer-activity", c.PromptSource == "system":
			kind, words = core.SpeechInjected, s
		case from.Kind == "coordinator", from.From != "" || from.SenderTaskID != "":
			kind, words = core.SpeechAgent, s
		}
	}
	if kind == core.SpeechHuman || kind == core.SpeechCommand {
		if c.toldByQueue(words) {
			return core.SkipMirror
		}
	}
	d := core.DraftOf(kind, words)
	before := len(c.Events)
	c.tell(d)
	if len(c.Events) > before && d.EventType == envelopes.UserMessage {
		c.markTold(words)
	}
	return core.SkipDuplicate
}

// attachment is what the runtime puts beside the conversation.
type attachment struct {
	Type        lenient.Text           `json:"type"`
	CommandMode lenient.Text           `json:"commandMode"`
	IsMeta      lenient.Flag           `json:"isMeta"`
	Origin      lenient.Object[origin] `json:"origin"`
	Prompt      content                `json:"prompt"`
	Content     content                `json:"content"`
	Messages    lenient.List[mail]     `json:"messages"` // of teammates
	Stdout      lenient.Text           `json:"stdout"`
	Stderr      lenient.Text           `json:"stderr"`
}

// mail is a message of a teammate.
type mail struct {
	Text lenient.Text `json:"text"`
}

// attachment maps an attachment: a prompt that was typed while the agent worked is a
// prompt, the outcome of a hook is a log, all else is injected.
func (c *mapper) attachment() core.SkipReason {
	a := &c.Attachment.Value
	switch {
	case a.Type == "queued_command":
		words, said := a.Prompt.text()
		switch {
		case a.CommandMode == "task-notification" || bool(a.IsMeta):
			c.tell(core.DraftOf(core.SpeechInjected, words))
		case strings.TrimSpace(words) != "":
			return c.say(words, a.Origin.Value)
		case len(a.Prompt.blocks) > 0 && !said:
			d := core.DraftOf(core.SpeechHuman, "")
			d.Text = nil
			c.tell(d)
		default:
			c.runtime(c.UUID, envelopes.Meta, "")
		}
	case a.Type == "teammate_mailbox" && len(a.Messages) > 0:
		var parts []string
		for _, m := range a.Messages {
			parts = append(parts, string(m.Text))
		}
		c.tell(core.DraftOf(core.SpeechAgent, strings.Join(parts, "\n")))
	case strings.HasPrefix(string(a.Type), "hook_") && a.Type != "hook_additional_context":
		var parts []string
		content, _ := a.Content.text()
		for _, t := range []lenient.Text{a.Stdout, a.Stderr, lenient.Text(content)} {
			if t != "" {
				parts = append(parts, string(t))
			}
		}
		c.runtime(c.UUID, envelopes.Log, lenient.Text(strings.Join(parts, "\n")))
	default:
		content, _ := a.Content.text()
		d := core.DraftOf(core.SpeechInjected, "")
		d.Text = lenient.Text(content).Ptr()
		c.tell(d)
	}
	return core.SkipDuplicate
}

// system maps a record of the runtime by its subtype.
func (c *mapper) system() core.SkipReason {
	switch c.Subtype {
	case "init":
		c.introduce()
	case "status":
		if c.CompactError == "" {
			return core.SkipProgress
		}
		c.fail(c.UUID, "compact_error", string(c.CompactError), string(c.CompactError))
	case "hook_started", "hook_progress", "task_progress":
		return core.SkipProgress
	case "hook_response":
		var parts []string
		output, _ := c.Output.text()
		for _, t := range []lenient.Text{lenient.Text(output), c.Stdout, c.Stderr} {
			if t != "" && !slices.Contains(parts, string(t)) {
				parts = append(parts, string(t))
			}
		}
		c.runtime(c.UUID, envelopes.Log, lenient.Text(strings.Join(parts, "\n")))
	case "task_notification":
		d := core.DraftOf(core.SpeechInjected, "")
		d.Text = cmp.Or(c.Summary, c.words()).Ptr()
		c.tell(d)
	case "api_retry":
		c.failure(string(c.words()))
	case "local_command":
		if strings.TrimSpace(string(c.words())) != "" {
			return c.say(string(c.words()), c.Origin.Value)
		}
		c.runtime(c.UUID, envelopes.Meta, "")
	case "away_summary":
		d := core.Draft{OnChannel: envelopes.ChannelChat}
		d.EventType, d.Text = envelopes.SessionSummary, c.words().Ptr()
		c.put(c.UUID, d)
	case "mirror_error":
		message := string(lenient.Scalar(c.Error))
		c.fail(c.UUID, "", message, message)
	case "api_error", "api_refusal", "error":
		c.failure(string(c.words()))
	case "", "stop_hook_summary", "informational", "bridge_status", "model_refusal_fallback", "model_refusal_no_fallback":
		c.runtime(c.UUID, envelopes.Log, c.words())
	default:
		c.runtime(c.UUID, envelopes.Meta, c.words())
	}
	return core.SkipDuplicate
}

// queueOperation follows the queue of prompts (semantics.md section 9). A prompt is told
// by its own record, which comes when it is its turn; only one that is removed without
// such a record is told here, where the queue has its words: of a picture it has none.
func (c *mapper) queueOperation() core.SkipReason {
	q := &c.st.Queue
	switch c.Operation {
	case "enqueue":
		c.enqueue(string(c.words()))
	case "popAll":
		*q = q.Without(func(p queuedPrompt) bool { return p.Human })
	case "dequeue", "remove":
		at := c.next()
		if at < 0 {
			return core.SkipQueued
		}
		p := (*q)[at]
		i := -1
		*q = q.Without(func(queuedPrompt) bool { i++; return i == at })
		tell := c.Operation == "remove" && p.Words != "" && !p.Told && !p.Early
		if tell {
			c.UUID = "" // its id is the number of the record
			c.tell(core.DraftOf(speechOf(p.Words)))
		}
		if tell || p.Early && !p.Told {
			c.st.Taken = c.st.Taken.Push(takenPrompt{p.Key, c.Session.Records}, maxTaken, nil)
		}
	}
	return core.SkipQueued
}

// enqueue remembers a prompt. One too long to be remembered is told at once.
func (c *mapper) enqueue(content string) {
	kind, words := speechOf(content)
	p := queuedPrompt{Key: core.PromptKey(words), Human: kind == core.SpeechHuman || kind == core.SpeechCommand}
	if p.Human && strings.TrimSpace(content) != "" {
		held := len(content)
		for _, o := range c.st.Queue {
			held += len(o.Words)
		}
		if held <= maxQueuedText {
			p.Words = content
		} else {
			p.Early = true
			c.UUID = ""
			c.tell(core.DraftOf(kind, words))
		}
	}
	c.st.Queue = c.st.Queue.Push(p, maxQueued, &c.Session.Lost)
}

// next is the item that the operation takes: the one with its content, else one that was
// told since it was enqueued, else the oldest human one, else the oldest; -1 for none.
func (c *mapper) next() int {
	choices := []func(queuedPrompt) bool{
		func(p queuedPrompt) bool { return p.Told },
		func(p queuedPrompt) bool { return p.Human },
		func(queuedPrompt) bool { return true },
	}
	if content := c.words(); content != "" {
		_, words := speechOf(string(content))
		key := core.PromptKey(words)
		choices = append([]func(queuedPrompt) bool{func(p queuedPrompt) bool { return p.Key == key }}, choices...)
	}
	for _, is := range choices {
		for i, p := range c.st.Queue {
			if is(p) {
				return i
			}
		}
	}
	return -1
}

// toldByQueue reports whether the queue has told these words, and takes note that their
// record has come.
func (c *mapper) toldByQueue(words string) bool {
	key := core.PromptKey(words)
	for at, t := range c.st.Taken {
		if t.Key == key && c.Session.Records-t.Record <= mirrorWithin {
			i := -1
			c.st.Taken = c.st.Taken.Without(func(takenPrompt) bool { i++; return i == at })
			return true
		}
	}
	for at, p := range c.st.Queue {
		if p.Key == key && p.Early && !p.Told {
			p.Told = true
			c.st.Queue = c.st.Queue.With(at, p)
			return true
		}
	}
	return false
}

// markTold notes that a record told a prompt that is still in the queue.
func (c *mapper) markTold(words string) {
	key := core.PromptKey(words)
	for at, p := range c.st.Queue {
		if p.Key == key && p.Human && !p.Told {
			p.Told, p.Words = true, ""
			c.st.Queue = c.st.Queue.With(at, p)
			return
		}
	}
}
