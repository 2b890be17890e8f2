package claude

import (
	"slices"
	"strings"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// attachment is what Claude Code puts beside the conversation.
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

	BlockingError lenient.Object[blockingError] `json:"blockingError"` // of a hook that forbids a call
	Message       lenient.Text                  `json:"message"`       // of a hook that stops the agent
}

// blockingError is why a hook forbids a call.
type blockingError struct {
	Text lenient.Text `json:"blockingError"`
}

// mail is a message of a teammate.
type mail struct {
	Text lenient.Text `json:"text"`
}

// attached emits the event of an attachment by its type. An unknown type is injected content.
func attached(c *mapper) {
	a := &c.Attachment.Value
	switch {
	case a.Type == "queued_command":
		queuedCommand(c, a)
	case a.Type == "teammate_mailbox" && len(a.Messages) > 0:
		var parts []string
		for _, m := range a.Messages {
			parts = append(parts, string(m.Text))
		}
		c.speak(c.UUID, core.DraftOf(core.SpeechAgent, strings.Join(parts, "\n")))
	case strings.HasPrefix(string(a.Type), "hook_") && a.Type != "hook_additional_context", a.Type == "async_hook_response":
		c.putSystem(c.UUID, envelopes.Log, distinctLines(a.Stdout, a.Stderr, a.text(), a.BlockingError.Value.Text, a.Message))
	default:
		if !knownAttachments[a.Type] {
			c.Unknown(core.UnknownRecord, c.Type, a.Type)
		}
		d := injected(a.text())
		d.Metadata = attachmentFact(c, a.Type)
		c.speak(c.UUID, d)
	}
}

// queuedCommand emits a prompt that was typed while the agent worked, or a notification of Claude Code from the queue
// of prompts.
func queuedCommand(c *mapper, a *attachment) {
	text, hasText := a.Prompt.text()
	switch {
	case a.CommandMode == "task-notification" || bool(a.IsMeta):
		if c.speak(c.UUID, core.DraftOf(core.SpeechInjected, text)) {
			c.st.mark(text)
		}
	case strings.TrimSpace(text) != "":
		userText(c, text, a.Origin.Value)
	case len(a.Prompt.blocks) > 0 && !hasText:
		c.speak(c.UUID, mediaPrompt())
	default:
		c.putSystem(c.UUID, envelopes.Meta, "")
	}
}

// text returns the text of the content.
func (a *attachment) text() lenient.Text {
	text, _ := a.Content.text()
	return lenient.Text(text)
}

// distinctLines joins the texts that a hook states, whose members may repeat each other.
func distinctLines(texts ...lenient.Text) lenient.Text {
	for i := range texts {
		if slices.ContainsFunc(texts[:i], func(t lenient.Text) bool { return isSameText(t, texts[i]) }) {
			texts[i] = ""
		}
	}
	return joinLines(texts...)
}

// isSameText reports whether texts differ in the white space around them at most.
func isSameText(a, b lenient.Text) bool {
	return strings.TrimSpace(string(a)) == strings.TrimSpace(string(b))
}

// joinLines joins the non-empty texts with line ends.
func joinLines(texts ...lenient.Text) lenient.Text {
	var parts []string
	for _, t := range texts {
		if t != "" {
			parts = append(parts, string(t))
		}
	}
	return lenient.Text(strings.Join(parts, "\n"))
}
