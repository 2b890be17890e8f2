package jsonscan

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// Scanner reads a value without validating it. The value must be JSON, but may have strings that are not UTF-8,
// repeated names in an object, and lone surrogates. For anything else the results are meaningless, but a Scanner
// always comes to an end.
//
// The values that it returns share the memory of the data.
type Scanner struct {
	data []byte
	at   int
}

// NewScanner returns a Scanner in front of a value.
func NewScanner(data []byte) Scanner { return Scanner{data: data} }

// Kind returns the kind of the next value; 0 at the end of an object, of an array, or of the data.
func (c *Scanner) Kind() jsontext.Kind {
	for c.at < len(c.data) {
		switch b := c.data[c.at]; b {
		case ' ', '\t', '\n', '\r', ',', ':':
			c.at++
		case '"', '{', '[', 't', 'f', 'n':
			return jsontext.Kind(b)
		case '}', ']':
			return 0
		default:
			return '0'
		}
	}
	return 0
}

// Rest returns what follows, from the next value on if its kind was asked for.
func (c *Scanner) Rest() []byte { return c.data[c.at:] }

// Value returns the next value and advances past it; nil at the end.
func (c *Scanner) Value() jsontext.Value {
	kind := c.Kind()
	begin := c.at
	switch kind {
	case 0:
		return nil
	case '"':
		c.at = c.textEnd(begin)
	case '{', '[':
		c.at = c.containerEnd(begin)
	default:
		c.at = c.scalarEnd(begin)
	}
	return c.data[begin:c.at:c.at]
}

// text returns the text of the next string and advances past it.
func (c *Scanner) text() string { return Unquote(c.Value()) }

// Enter advances past the beginning of the next object or array.
func (c *Scanner) Enter() { c.at++ }

// Leave advances past the end of an object or array that was read completely.
func (c *Scanner) Leave() {
	if c.at < len(c.data) {
		c.at++
	}
}

// Close is [Scanner.Leave] for a value that is all of the data except for white space. It reports whether the data
// ends there.
func (c *Scanner) Close() bool {
	if c.at >= len(c.data) {
		return false
	}
	c.at++
	return len(bytes.TrimRight(c.data[c.at:], " \t\r\n")) == 0
}

// Name returns the name of the next member and advances past it, unchanged unless it has an escape or is not UTF-8.
// It returns false at the end of the object.
func (c *Scanner) Name() ([]byte, bool) {
	if c.Kind() != '"' {
		return nil, false
	}
	quoted := c.Value()
	if len(quoted) < 2 {
		return nil, false
	}
	for _, b := range quoted {
		if b == '\\' || b >= 0x80 {
			return []byte(Unquote(quoted)), true
		}
	}
	return quoted[1 : len(quoted)-1], true
}

// textEnd returns the index behind the string at i.
func (c *Scanner) textEnd(i int) int {
	for at := i + 1; ; {
		n := bytes.IndexByte(c.data[at:], '"')
		if n < 0 {
			return len(c.data)
		}
		at += n + 1
		before := at - 2
		for before > i && c.data[before] == '\\' {
			before--
		}
		if (at-before)%2 == 0 {
			return at
		}
	}
}

// containerEnd returns the index behind the object or array at i.
func (c *Scanner) containerEnd(i int) int {
	for depth := 0; i < len(c.data); {
		switch c.data[i] {
		case '"':
			i = c.textEnd(i)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return len(c.data)
}

// scalarEnd returns the index behind the number, or the literal, at i.
func (c *Scanner) scalarEnd(i int) int {
	for ; i < len(c.data); i++ {
		switch c.data[i] {
		case ' ', '\t', '\n', '\r', ',', ':', '}', ']':
			return i
		}
	}
	return i
}
