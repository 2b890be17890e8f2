package normalizers

import (
	"cmp"
	"slices"
	"strings"

	"tributary/envelopes"
)

// What Claude Code writes about who said what: user records, attachments, the runtime's
// own records, and the queue of prompts that were typed while the agent worked.

const (
	maxQueued     = 64       // items of the queue
	maxQueuedText = 24 << 10 // bytes of their texts together; a longer prompt is told at once
	maxTaken      = 64       // prompts told from the queue
	maxStated     = 16       // types of records that state a value
	mirrorWithin  = 64       // records after a prompt was told in which its own record may come
)

// claudeState is what a session of Claude Code remembers beyond what all vendors do.
type claudeState struct {
	Queue  window[queuedPrompt] `json:"queue,omitzero"`
	Taken  window[takenPrompt]  `json:"taken,omitzero"`
	Stated window[statedValue]  `json:"stated,omitzero"`

	Runs     claudeRuns            `json:"runs,omitzero"`
	Partials window[claudePartial] `json:"partials,omitzero"`
}

func (s *claudeState) size() int {
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
	Key   fingerprint `json:"k"`
	Words string      `json:"w,omitzero"` // of a human prompt that may have to be told
	Human bool        `json:"h,omitzero"`
	Told  bool        `json:"t,omitzero"` // a record told it since it was enqueued
	Early bool        `json:"e,omitzero"` // told when it was enqueued, being too long to remember
}

// takenPrompt is a prompt that was told when it left the queue: its own record, should
// one come, is a mirror.
type takenPrompt struct {
	Key    fingerprint `json:"k"`
	Record uint64      `json:"n"`
}

// statedValue is the last value of a type of record.
type statedValue struct {
	Type  string      `json:"t"`
	Value fingerprint `json:"v"`
}

// user maps a user record: what it holds decides, not what it is called
// (vendor-formats.md section 3.3).
func (c *claudeFold) user() SkipReason {
	c.flush(func(p claudePartial) bool { return p.Thread == c.in })
	m := &c.Message.value
	words, said := m.Content.text()
	switch {
	case c.results() > 0:
		skip := SkipDuplicate
		for i := range m.Content.blocks {
			b := &m.Content.blocks[i]
			switch {
			case b.isResult():
				c.result(b)
			case b.Type == "text" && said:
				said = false // all texts of the record are one event
				if strings.TrimSpace(words) != "" {
					skip = c.say(words, c.Origin.value)
				}
			}
		}
		return skip
	case isValue(c.ToolUseResult):
		c.result(&claudeBlock{Content: m.Content})
	case bool(c.IsCompactSummary):
		c.tell(draftOf(speechSummary, words))
	case bool(c.IsMeta), bool(c.IsSynthetic):
		d := draftOf(speechInjected, words)
		d.Text = text(words).ptr()
		c.tell(d)
	case strings.TrimSpace(words) != "":
		return c.say(words, c.Origin.value)
	case len(m.Content.blocks) > 0 && !said:
		// An image or a document alone is a prompt without words.
		d := draftOf(speechHuman, "")
		d.Text = nil
		c.tell(d)
	default:
		c.runtime(c.UUID, envelopes.Meta, "")
	}
	return SkipDuplicate
}

// tell emits what somebody said. The prompt of a subagent was written by its agent.
func (c *claudeFold) tell(d draft) {
	if d.EventType == envelopes.UserMessage && c.internal {
		d.Origin = envelopes.OriginAgent
	}
	c.put(c.UUID, d)
}

// say emits words by who said them, unless the queue has told them already.
func (c *claudeFold) say(s string, from claudeOrigin) SkipReason {
	kind, words := speechOf(s)
	if kind == speechHuman {
		switch {
		case from.Kind == "task-notification", from.Kind == "auto-continuation", from.Kind == "observer-activity", c.PromptSource == "system":
			kind, words = speechInjected, s
		case from.Kind == "coordinator", from.From != "" || from.SenderTaskID != "":
			kind, words = speechAgent, s
		}
	}
	if kind == speechHuman || kind == speechCommand {
		if c.toldByQueue(words) {
			return SkipMirror
		}
	}
	d := draftOf(kind, words)
	before := len(c.events)
	c.tell(d)
	if len(c.events) > before && d.EventType == envelopes.UserMessage {
		c.markTold(words)
	}
	return SkipDuplicate
}

// claudeAttachment is what the runtime puts beside the conversation.
type claudeAttachment struct {
	Type        text                 `json:"type"`
	CommandMode text                 `json:"commandMode"`
	IsMeta      flag                 `json:"isMeta"`
	Origin      object[claudeOrigin] `json:"origin"`
	Prompt      claudeContent        `json:"prompt"`
	Content     claudeContent        `json:"content"`
	Messages    list[claudeMail]     `json:"messages"` // of teammates
	Stdout      text                 `json:"stdout"`
	Stderr      text                 `json:"stderr"`
}

// claudeMail is a message of a teammate.
type claudeMail struct {
	Text text `json:"text"`
}

// attachment maps an attachment: a prompt that was typed while the agent worked is a
// prompt, the outcome of a hook is a log, all else is injected.
func (c *claudeFold) attachment() SkipReason {
	a := &c.Attachment.value
	switch {
	case a.Type == "queued_command":
		words, said := a.Prompt.text()
		switch {
		case a.CommandMode == "task-notification" || bool(a.IsMeta):
			c.tell(draftOf(speechInjected, words))
		case strings.TrimSpace(words) != "":
			return c.say(words, a.Origin.value)
		case len(a.Prompt.blocks) > 0 && !said:
			d := draftOf(speechHuman, "")
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
		c.tell(draftOf(speechAgent, strings.Join(parts, "\n")))
	case strings.HasPrefix(string(a.Type), "hook_") && a.Type != "hook_additional_context":
		var parts []string
		content, _ := a.Content.text()
		for _, t := range []text{a.Stdout, a.Stderr, text(content)} {
			if t != "" {
				parts = append(parts, string(t))
			}
		}
		c.runtime(c.UUID, envelopes.Log, text(strings.Join(parts, "\n")))
	default:
		content, _ := a.Content.text()
		d := draftOf(speechInjected, "")
		d.Text = text(content).ptr()
		c.tell(d)
	}
	return SkipDuplicate
}

// system maps a record of the runtime by its subtype.
func (c *claudeFold) system() SkipReason {
	switch c.Subtype {
	case "init":
		c.introduce()
	case "status":
		if c.CompactError == "" {
			return SkipProgress
		}
		c.fail(c.UUID, "compact_error", string(c.CompactError), string(c.CompactError))
	case "hook_started", "hook_progress", "task_progress":
		return SkipProgress
	case "hook_response":
		var parts []string
		output, _ := c.Output.text()
		for _, t := range []text{text(output), c.Stdout, c.Stderr} {
			if t != "" && !slices.Contains(parts, string(t)) {
				parts = append(parts, string(t))
			}
		}
		c.runtime(c.UUID, envelopes.Log, text(strings.Join(parts, "\n")))
	case "task_notification":
		d := draftOf(speechInjected, "")
		d.Text = cmp.Or(c.Summary, c.words()).ptr()
		c.tell(d)
	case "api_retry":
		c.failure(string(c.words()))
	case "local_command":
		if strings.TrimSpace(string(c.words())) != "" {
			return c.say(string(c.words()), c.Origin.value)
		}
		c.runtime(c.UUID, envelopes.Meta, "")
	case "away_summary":
		d := draft{on: envelopes.ChannelChat}
		d.EventType, d.Text = envelopes.SessionSummary, c.words().ptr()
		c.put(c.UUID, d)
	case "mirror_error":
		message := string(scalar(c.Error))
		c.fail(c.UUID, "", message, message)
	case "api_error", "api_refusal", "error":
		c.failure(string(c.words()))
	case "", "stop_hook_summary", "informational", "bridge_status", "model_refusal_fallback", "model_refusal_no_fallback":
		c.runtime(c.UUID, envelopes.Log, c.words())
	default:
		c.runtime(c.UUID, envelopes.Meta, c.words())
	}
	return SkipDuplicate
}

// queueOperation follows the queue of prompts (semantics.md section 9). A prompt is told
// by its own record, which comes when it is its turn; only one that is removed without
// such a record is told here, where the queue has its words: of a picture it has none.
func (c *claudeFold) queueOperation() SkipReason {
	q := &c.s.Claude.Queue
	switch c.Operation {
	case "enqueue":
		c.enqueue(string(c.words()))
	case "popAll":
		*q = q.without(func(p queuedPrompt) bool { return p.Human })
	case "dequeue", "remove":
		at := c.next()
		if at < 0 {
			return SkipQueued
		}
		p := (*q)[at]
		i := -1
		*q = q.without(func(queuedPrompt) bool { i++; return i == at })
		tell := c.Operation == "remove" && p.Words != "" && !p.Told && !p.Early
		if tell {
			c.UUID = "" // its id is the number of the record
			c.tell(draftOf(speechOf(p.Words)))
		}
		if tell || p.Early && !p.Told {
			c.s.Claude.Taken = c.s.Claude.Taken.push(takenPrompt{p.Key, c.s.Records}, maxTaken, nil)
		}
	}
	return SkipQueued
}

// enqueue remembers a prompt. One too long to be remembered is told at once.
func (c *claudeFold) enqueue(content string) {
	kind, words := speechOf(content)
	p := queuedPrompt{Key: promptKey(words), Human: kind == speechHuman || kind == speechCommand}
	if p.Human && strings.TrimSpace(content) != "" {
		held := len(content)
		for _, o := range c.s.Claude.Queue {
			held += len(o.Words)
		}
		if held <= maxQueuedText {
			p.Words = content
		} else {
			p.Early = true
			c.UUID = ""
			c.tell(draftOf(kind, words))
		}
	}
	c.s.Claude.Queue = c.s.Claude.Queue.push(p, maxQueued, &c.s.state.Forgotten)
}

// next is the item that the operation takes: the one with its content, else one that was
// told since it was enqueued, else the oldest human one, else the oldest; -1 for none.
func (c *claudeFold) next() int {
	choices := []func(queuedPrompt) bool{
		func(p queuedPrompt) bool { return p.Told },
		func(p queuedPrompt) bool { return p.Human },
		func(queuedPrompt) bool { return true },
	}
	if content := c.words(); content != "" {
		_, words := speechOf(string(content))
		key := promptKey(words)
		choices = append([]func(queuedPrompt) bool{func(p queuedPrompt) bool { return p.Key == key }}, choices...)
	}
	for _, is := range choices {
		for i, p := range c.s.Claude.Queue {
			if is(p) {
				return i
			}
		}
	}
	return -1
}

// toldByQueue reports whether the queue has told these words, and takes note that their
// record has come.
func (c *claudeFold) toldByQueue(words string) bool {
	key := promptKey(words)
	for at, t := range c.s.Claude.Taken {
		if t.Key == key && c.s.Records-t.Record <= mirrorWithin {
			i := -1
			c.s.Claude.Taken = c.s.Claude.Taken.without(func(takenPrompt) bool { i++; return i == at })
			return true
		}
	}
	for at, p := range c.s.Claude.Queue {
		if p.Key == key && p.Early && !p.Told {
			p.Told = true
			c.s.Claude.Queue = c.s.Claude.Queue.with(at, p)
			return true
		}
	}
	return false
}

// markTold notes that a record told a prompt that is still in the queue.
func (c *claudeFold) markTold(words string) {
	key := promptKey(words)
	for at, p := range c.s.Claude.Queue {
		if p.Key == key && p.Human && !p.Told {
			p.Told, p.Words = true, ""
			c.s.Claude.Queue = c.s.Claude.Queue.with(at, p)
			return
		}
	}
}

// promptKey is what makes two prompts equal: their words, trimmed.
func promptKey(words string) fingerprint { return fingerprintOf(strings.TrimSpace(words)) }
