package claude

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes/jsonscan"
	"tributary/normalizers/lenient"
)

// content is the content of a message or of a tool result: a string, or blocks.
type content struct {
	blocks  []block
	present bool
}

// block is a part of a content. A string counts as a block of type text. The content of an image or a document is not
// read.
type block struct {
	Type      lenient.Text   `json:"type"`
	Text      lenient.Text   `json:"text"`
	Thinking  lenient.Text   `json:"thinking"`
	ID        lenient.Text   `json:"id"`
	Name      lenient.Text   `json:"name"`
	Input     jsontext.Value `json:"input"`
	ToolUseID lenient.Text   `json:"tool_use_id"`
	IsError   lenient.Kind   `json:"is_error"`
	ErrorCode lenient.Text   `json:"error_code"` // of the result of a tool run by the server
	Content   content        `json:"content"`

	// Only for a block joined from deltas.
	emitted   bool // a record has emitted it
	truncated bool // the session did not keep all deltas
}

// ReadJSON implements [lenient.reader].
func (c *content) ReadJSON(from *jsonscan.Scanner) {
	*c = content{}
	switch from.Kind() {
	case '"':
		c.readBlock(from)
	case '[':
		c.readBlocks(from)
	case '{': // one block, such as the result of a tool run by the server
		c.readBlock(from)
		if c.blocks[0].Type == "" {
			c.blocks = nil
		}
	case 'n':
		from.Value()
	default:
		c.present = true
		from.Value()
	}
}

// readBlocks reads an array of blocks. An element that is not a block keeps its index.
func (c *content) readBlocks(from *jsonscan.Scanner) {
	c.present = true
	from.Enter()
	for from.Kind() != 0 {
		c.readBlock(from)
	}
	from.Leave()
}

// readBlock reads the next value as a block.
func (c *content) readBlock(from *jsonscan.Scanner) {
	c.present = true
	c.blocks = append(c.blocks, block{})
	b := &c.blocks[len(c.blocks)-1]
	switch from.Kind() {
	case '"':
		b.Type = "text"
		b.Text.ReadJSON(from)
	case '{':
		lenient.ReadNext(from, b)
	default:
		from.Value()
	}
}

// text returns the texts of all blocks, joined with line ends; false if there are none.
func (c *content) text() (string, bool) {
	var parts []string
	for i := range c.blocks {
		if b := &c.blocks[i]; b.Type == "text" || b.Type == "advisor_result" {
			parts = append(parts, string(b.Text))
		}
	}
	return strings.Join(parts, "\n"), len(parts) > 0
}

// results returns the number of tool results.
func (c *content) results() int {
	n := 0
	for i := range c.blocks {
		if c.blocks[i].isResult() {
			n++
		}
	}
	return n
}

// isThinking reports whether the block is reasoning, which may be redacted.
func (b *block) isThinking() bool { return b.Type == "thinking" || b.Type == "redacted_thinking" }

// isCall reports whether the block is a tool call, run by the client or by the server (server_tool_use).
func (b *block) isCall() bool { return strings.HasSuffix(string(b.Type), "tool_use") }

// isResult reports whether the block is a tool result, from the client or the server (web_search_tool_result). The
// SDK omits the type of a result.
func (b *block) isResult() bool {
	return strings.HasSuffix(string(b.Type), "tool_result") || b.Type == "" && b.ToolUseID != ""
}

// errorCode returns the first error code of the blocks; empty for none.
func (c *content) errorCode() string {
	for i := range c.blocks {
		if code := c.blocks[i].ErrorCode; code != "" {
			return string(code)
		}
	}
	return ""
}
