package jsonscan

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// Scanner reads a JSON value without checking it: the value is known to be JSON, but for strings
// that are not UTF-8, names that an object has twice, and lone surrogates. Of anything else a
// Scanner returns something without meaning, and comes to an end.
//
// The values that it returns share the memory of the data.
type Scanner struct {
	data []byte
	at   int
}

// NewScanner returns the Scanner in front of a value.
func NewScanner(data []byte) Scanner { return Scanner{data: data} }

// Kind returns the kind of the value that is next; 0 at the end of an object or an array, and of
// the data.
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

// Value returns the value that is next, and passes it; nil at the end.
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

// text returns the text of the string that is next, and passes it.
func (c *Scanner) text() string { return Unquote(c.Value()) }

// Enter passes the begin of the object or array that is next.
func (c *Scanner) Enter() { c.at++ }

// Leave passes the end of the object or array, of which everything has been read.
func (c *Scanner) Leave() {
	if c.at < len(c.data) {
		c.at++
	}
}

// Close is [Scanner.Leave] for the value that is all of the data, but for white space. It reports whether that ends
// there.
func (c *Scanner) Close() bool {
	if c.at >= len(c.data) {
		return false
	}
	c.at++
	return len(bytes.TrimRight(c.data[c.at:], " \t\r\n")) == 0
}

// Name returns the name of the member that is next, and passes it: as it stands in the data,
// unless it has an escape or is not UTF-8. It returns false at the end of the object.
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
