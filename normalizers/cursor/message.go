package cursor

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// block is a part of a message.
type block struct {
	Type      lenient.Text   `json:"type"`
	Text      lenient.Text   `json:"text"`
	Thinking  lenient.Text   `json:"thinking"`
	ID        lenient.Text   `json:"id"`
	Name      lenient.Text   `json:"name"`
	Input     jsontext.Value `json:"input"`
	ToolUseID lenient.Text   `json:"tool_use_id"`
	Content   jsontext.Value `json:"content"`
	IsError   lenient.Flag   `json:"is_error"`
}

// blocks returns the blocks of the record's message.
func (r *wireRecord) blocks() []block { return readBlocks(r.Message.Value.Content) }

// readBlocks reads the blocks of a content; a string is a block of text.
func readBlocks(v jsontext.Value) []block {
	if v.Kind() == '"' {
		return []block{{Type: "text", Text: lenient.Text(lenient.Unquote(v))}}
	}
	if v.Kind() != '[' {
		return nil
	}
	var blocks []block
	for _, e := range lenient.Elements(v) {
		var b block
		if e.Kind() == '"' {
			b.Type, b.Text = "text", lenient.Text(lenient.Unquote(e))
		}
		lenient.ReadObject(e, &b)
		blocks = append(blocks, b)
	}
	return blocks
}

// joinTexts joins the texts of blocks.
func joinTexts(blocks []block, separator string) string {
	var texts []string
	for _, b := range blocks {
		if b.Type == "text" {
			texts = append(texts, string(b.Text))
		}
	}
	return strings.Join(texts, separator)
}

// emitMessage emits a prompt, or a message of a transcript: an event per block, except that all texts are one event
// at the place of the first. A message without anything known is kept whole.
func emitMessage(m *mapper) {
	m.st.Answer = answer{}
	m.Session.SetModel(string(m.Message.Value.Model))
	blocks := m.blocks()
	text := joinTexts(blocks, "\n")
	isKnown, textEmitted := len(blocks) > 0, false
	for i := range blocks {
		b := &blocks[i]
		switch b.Type {
		case "text", "image":
			textEmitted = textEmitted || emitMessageText(m, b, text)
		case "thinking":
			emitThought(m, string(b.Thinking+b.Text))
		case "tool_use":
			emitToolUse(m, b)
		case "tool_result":
			emitToolResult(m, b)
		default:
			m.Unknown(core.UnknownBlock, b.Type)
			isKnown = false
		}
	}
	if m.First < 0 && !m.Duplicate && !isKnown && (len(blocks) > 0 || !m.Message.OK) {
		m.putSystem(envelopes.Meta, "")
	}
}

// emitThought emits a thought of a message, unless the database has those of the session.
func emitThought(m *mapper, text string) {
	switch {
	case strings.TrimSpace(text) == "":
	case m.st.thinks(formTranscript):
		m.emitText(envelopes.Reasoning, text, nil)
	default:
		m.skip = core.SkipMirror
	}
}

// emitMessageText emits the text of a message at the first block that represents it, and reports whether b is such a
// block: a text, or, in a prompt without text, an image.
func emitMessageText(m *mapper, b *block, text string) bool {
	isHuman := m.Role == "user" || m.Type == "user"
	switch {
	case b.Type == "image" && (!isHuman || strings.TrimSpace(text) != ""):
		return false
	case b.Type == "image":
		m.Emit(core.DraftOf(m.st.prompt(), ""))
	case isHuman:
		emitPrompt(m, text)
	default:
		m.emitText(envelopes.AssistantMessage, text, nil)
	}
	return true
}
