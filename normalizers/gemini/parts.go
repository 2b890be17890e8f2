package gemini

import (
	"strings"

	"tributary/envelopes/jsonscan"
	"tributary/normalizers/lenient"
)

// parts are the parts of a content: an array of them, one part, or one string.
type parts struct {
	parts   []part
	present bool
}

// part is a part in the form of the API.
type part struct {
	Text             lenient.Text                 `json:"text"`
	Thought          lenient.Flag                 `json:"thought"`
	FunctionCall     lenient.Object[functionCall] `json:"functionCall"`
	FunctionResponse lenient.Object[response]     `json:"functionResponse"`

	partBeside

	hasText bool // a string, or a non-empty text
}

// ReadJSON implements [lenient.reader].
func (p *parts) ReadJSON(c *jsonscan.Scanner) {
	*p = parts{}
	switch c.Kind() {
	case '"', '{':
		p.present = true
		p.readPart(c)
	case '[':
		p.present = true
		c.Enter()
		for c.Kind() != 0 {
			p.readPart(c)
		}
		c.Leave()
	default:
		c.Value()
	}
}

// readPart reads the next part and skips a value that is not a part.
func (p *parts) readPart(c *jsonscan.Scanner) {
	var part part
	switch c.Kind() {
	case '"':
		part.Text.ReadJSON(c)
		part.hasText = true
	case '{':
		lenient.ReadNext(c, &part)
		part.hasText = part.Text != ""
	default:
		c.Value()
		return
	}
	p.parts = append(p.parts, part)
}

// isMedia reports whether a part is an image, a file or code.
func (p *part) isMedia() bool {
	return !p.hasText && !bool(p.Thought) && !p.FunctionCall.OK && !p.FunctionResponse.OK
}

// isResponse reports whether a part is the response of a tool.
func (p *part) isResponse() bool { return p.FunctionResponse.OK }

// has reports whether is returns true for one of the parts.
func (p *parts) has(is func(*part) bool) bool {
	for i := range p.parts {
		if is(&p.parts[i]) {
			return true
		}
	}
	return false
}

// text joins the texts of the parts except thoughts, without a separator, as the vendor does.
func (p *parts) text() string {
	var b strings.Builder
	for i := range p.parts {
		if !p.parts[i].Thought {
			b.WriteString(string(p.parts[i].Text))
		}
	}
	return b.String()
}

// prompt is [parts.text] without the parts that a machine added to what a human typed, unless there are no others.
func (p *parts) prompt() string { return strings.Join(p.promptTexts(), "") }

// promptTexts returns the texts of [parts.prompt], each unwrapped.
func (p *parts) promptTexts() []string {
	var typed, all []string
	for i := range p.parts {
		if is := &p.parts[i]; !bool(is.Thought) && is.Text != "" {
			text := unwrapped(string(is.Text))
			all = append(all, text)
			if !isNote(text) {
				typed = append(typed, text)
			}
		}
	}
	if strings.TrimSpace(strings.Join(typed, "")) == "" {
		return all
	}
	return typed
}

// first returns the first text that is not blank, trimmed.
func (p *parts) first() string {
	for _, s := range p.promptTexts() {
		if s = strings.TrimSpace(s); s != "" {
			return s
		}
	}
	return ""
}
