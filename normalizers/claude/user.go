package claude

import (
	"strings"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// user emits the events of a user record. Its content, not its type, decides what it is; the first matching case
// counts.
func user(c *mapper) {
	c.flushThread()
	content := &c.Message.Value.Content
	text, hasText := content.text()
	switch {
	case content.results() > 0:
		userBlocks(c, text)
	case lenient.IsValue(c.ToolUseResult):
		emitToolResult(c, &block{Content: *content})
	case bool(c.IsCompactSummary):
		c.speak(c.UUID, core.DraftOf(core.SpeechSummary, text))
	case bool(c.IsMeta), bool(c.IsSynthetic), bool(c.ClientComposed):
		if c.speak(c.UUID, injected(lenient.Text(text))) {
			c.st.mark(text)
		}
	case strings.TrimSpace(text) != "":
		userText(c, text, c.Origin.Value)
	case len(content.blocks) > 0 && !hasText:
		c.speak(c.UUID, mediaPrompt())
	default:
		c.putSystem(c.UUID, envelopes.Meta, "")
	}
}

// userBlocks emits the blocks of a user record with tool results in order. text is the text of all text blocks, which
// are one event, at the place of the first.
func userBlocks(c *mapper, text string) {
	textEmitted := strings.TrimSpace(text) == ""
	blocks := c.Message.Value.Content.blocks
	for i := range blocks {
		switch b := &blocks[i]; {
		case b.isResult():
			emitToolResult(c, b)
		case b.Type == "text" && !textEmitted:
			textEmitted = true
			userText(c, text, c.Origin.Value)
		}
	}
}

// userText emits a text of role user by its speaker. It skips a prompt that the queue has already emitted.
func userText(c *mapper, s string, from origin) {
	kind, text := c.classify(s, from)
	if isPrompt(kind) && c.st.hasEmitted(text, c.knownRecords()) {
		c.skip = core.SkipMirror
		c.st.noteQueued(c.UUID)
		return
	}
	d := core.DraftOf(kind, text)
	c.st.Logged = true
	if !c.internal && !c.copied && len(c.st.Prompts) > 0 && !c.Session.HasEvent(string(c.UUID)) {
		d.Supersedes = c.st.logPrompt(c.PromptID, text, isPrompt(kind))
	}
	if c.speak(c.UUID, d) {
		c.st.mark(s)
	}
}

// classify classifies a text by its beginning, then by what the record states about its
// author.
func (r *wireRecord) classify(s string, from origin) (kind core.Speech, text string) {
	kind, text = speechOf(s)
	if kind != core.SpeechHuman {
		return kind, text
	}
	switch {
	case from.Kind == "task-notification", from.Kind == "auto-continuation", from.Kind == "observer-activity", r.PromptSource == "system":
		return core.SpeechInjected, s
	case from.Kind == "coordinator", from.From != "" || from.SenderTaskID != "":
		return core.SpeechAgent, s
	default:
		return kind, text
	}
}

// speak emits what a participant of the conversation said. The prompt of a subagent comes from its agent. It returns
// false if the session has emitted the event before.
func (e *emitter) speak(id lenient.Text, d core.Draft) bool {
	if d.EventType == envelopes.UserMessage && e.internal {
		d.Origin = envelopes.OriginAgent
	}
	return e.put(id, d)
}

// injected returns the event of a text that Claude Code put into the conversation.
func injected(text lenient.Text) core.Draft {
	d := core.DraftOf(core.SpeechInjected, "")
	d.Text = text.Ptr()
	return d
}

// mediaPrompt returns the event of a prompt without text: only an image or a document.
func mediaPrompt() core.Draft {
	d := core.DraftOf(core.SpeechHuman, "")
	d.Text = nil
	return d
}
