// Package jsonscan has fast paths for the JSON of records and events: [Check] proves in one pass that a value is
// strict JSON, [Scanner] reads a value that is known to be JSON without checking it again, and [AppendString] writes
// a string.
//
// They handle the common case only. Callers need package jsontext for the rest: what Check cannot prove may still be
// JSON. BenchmarkCheck and its neighbors compare both.
package jsonscan

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Form is what [Check] proved about a value. The zero value means nothing.
type Form struct {
	Strict  bool // strict JSON, within the depth
	Compact bool // no white space between its tokens; only set for a strict value
}

// maxNames is how many names of one object are compared.
const maxNames = 64

// Check returns the form of data. It is strict if it is one JSON value in UTF-8 of at most maxDepth levels, in which
// no object repeats a name and no string has a lone surrogate. A positive answer is certain. Check gives up in rare
// cases: it does not call an object strict that has more than 64 names, or an escape in a name.
func Check(data []byte, maxDepth int) Form {
	c := checkers.Get().(*checker)
	defer checkers.Put(c)
	return c.check(data, maxDepth)
}

// Member is a member of an object, unchanged; the name is without its quotes.
type Member struct{ Name, Value jsontext.Value }

// CheckMembers is [Check], and splits a strict object into its members. It appends them to dst in order; they share
// the memory of data. For any other value it appends none.
func CheckMembers(dst []Member, data []byte, maxDepth int) (Form, []Member) {
	c := checkers.Get().(*checker)
	defer checkers.Put(c)
	form := c.check(data, maxDepth)
	if form.Strict {
		for _, n := range c.names {
			dst = append(dst, Member{data[n.from:n.to:n.to], data[n.value:n.end:n.end]})
		}
	}
	return form, dst
}

// checkers are pooled for their lists of names.
var checkers = sync.Pool{New: func() any { return new(checker) }}

// checker is a check in progress. Its methods take the index where something begins, and return the index behind it,
// or failed if it is not strict JSON.
type checker struct {
	data   []byte
	names  []name // of the open objects, then of the value itself
	spaced bool   // there is white space between tokens
}

// name is the position of a name and its value in an object, and the first bytes of the name as a number, by which
// most names differ.
type name struct {
	from, to   int
	value, end int // of the value; not set while it is open
	head       uint64
}

// check is [Check].
func (c *checker) check(data []byte, maxDepth int) Form {
	c.data, c.names, c.spaced = data, c.names[:0], false
	i := c.space(0)
	if i < len(data) && data[i] == '{' {
		i = c.object(i, maxDepth-1)
	} else {
		i = c.value(i, maxDepth)
	}
	end := c.space(i)
	c.data = nil
	if end != len(data) || end == 0 {
		return Form{}
	}
	return Form{Strict: true, Compact: !c.spaced}
}

// failed is an index beyond any data. All methods return it if they are given it.
const failed = math.MaxInt

// space skips white space.
func (c *checker) space(i int) int {
	for i < len(c.data) {
		switch c.data[i] {
		case ' ', '\t', '\n', '\r':
			c.spaced = true
			i++
		default:
			return i
		}
	}
	return i
}

// value checks a value of at most depth levels.
func (c *checker) value(i, depth int) int {
	if i >= len(c.data) {
		return failed
	}
	switch b := c.data[i]; {
	case b == '"':
		return c.text(i)
	case b == '{':
		n := len(c.names)
		i = c.object(i, depth-1)
		c.names = c.names[:n]
		return i
	case b == '[':
		return c.array(i, depth-1)
	case b == '-' || isDigit(b):
		return c.number(i)
	case b == 't':
		return c.literal(i, "true")
	case b == 'f':
		return c.literal(i, "false")
	case b == 'n':
		return c.literal(i, "null")
	default:
		return failed
	}
}

// literal checks true, false or null.
func (c *checker) literal(i int, text string) int {
	if end := i + len(text); end <= len(c.data) && string(c.data[i:end]) == text {
		return end
	}
	return failed
}

// object checks an object whose values have at most depth levels. It leaves its names in c.names for the caller.
func (c *checker) object(i, depth int) int {
	if depth < 0 {
		return failed
	}
	first := len(c.names)
	if i = c.space(i + 1); i < len(c.data) && c.data[i] == '}' {
		return i + 1
	}
	for i < len(c.data) && c.data[i] == '"' {
		end := c.text(i)
		if end == failed || !c.isNew(i+1, end-1, first) {
			return failed
		}
		if i = c.space(end); i >= len(c.data) || c.data[i] != ':' {
			return failed
		}
		value, at := c.space(i+1), len(c.names)-1
		if end = c.value(value, depth); end == failed {
			return failed
		}
		c.names[at].value, c.names[at].end = value, end
		if i = c.space(end); i >= len(c.data) {
			return failed
		}
		if c.data[i] == '}' {
			return i + 1
		}
		if c.data[i] != ',' {
			return failed
		}
		i = c.space(i + 1)
	}
	return failed
}

// isNew reports whether a name differs from those from first on, and adds it to them.
func (c *checker) isNew(from, to, first int) bool {
	n := name{from: from, to: to}
	text := c.data[from:to]
	if len(text) >= 8 {
		n.head = binary.LittleEndian.Uint64(text)
	} else {
		for _, b := range text {
			n.head = n.head<<8 | uint64(b)
		}
	}
	if len(c.names)-first == maxNames || bytes.IndexByte(text, '\\') >= 0 {
		return false
	}
	for _, o := range c.names[first:] {
		if o.head == n.head && string(c.data[o.from:o.to]) == string(text) {
			return false
		}
	}
	c.names = append(c.names, n)
	return true
}

// array checks an array whose elements have at most depth levels.
func (c *checker) array(i, depth int) int {
	if depth < 0 {
		return failed
	}
	if i = c.space(i + 1); i < len(c.data) && c.data[i] == ']' {
		return i + 1
	}
	for {
		if i = c.space(c.value(i, depth)); i >= len(c.data) {
			return failed
		}
		if c.data[i] == ']' {
			return i + 1
		}
		if c.data[i] != ',' {
			return failed
		}
		i = c.space(i + 1)
	}
}

// number checks a number.
func (c *checker) number(i int) int {
	if c.data[i] == '-' {
		i++
	}
	switch {
	case i >= len(c.data) || !isDigit(c.data[i]):
		return failed
	case c.data[i] == '0':
		i++
	default:
		i = c.digits(i)
	}
	if i < len(c.data) && c.data[i] == '.' {
		i = c.digits(i + 1)
	}
	if i < len(c.data) && (c.data[i] == 'e' || c.data[i] == 'E') {
		if i++; i < len(c.data) && (c.data[i] == '+' || c.data[i] == '-') {
			i++
		}
		i = c.digits(i)
	}
	return i
}

// digits checks one digit or more.
func (c *checker) digits(i int) int {
	begin := i
	for i < len(c.data) && isDigit(c.data[i]) {
		i++
	}
	if i == begin {
		return failed
	}
	return i
}

func isDigit(b byte) bool { return '0' <= b && b <= '9' }

// text checks a string.
func (c *checker) text(i int) int {
	data := c.data
	for i++; i < len(data); {
		if i+8 <= len(data) {
			found := special(binary.LittleEndian.Uint64(data[i:]))
			if found == 0 {
				i += 8
				continue
			}
			i += bits.TrailingZeros64(found) / 8
		}
		switch b := data[i]; {
		case b == '"':
			return i + 1
		case b == '\\':
			if i = c.escape(i); i == failed {
				return failed
			}
		case b < ' ':
			return failed
		case b < utf8.RuneSelf:
			i++
		default:
			r, n := utf8.DecodeRune(data[i:])
			if r == utf8.RuneError && n == 1 {
				return failed
			}
			i += n
		}
	}
	return failed
}

// escape checks an escape sequence, including the second half of a surrogate pair.
func (c *checker) escape(i int) int {
	if i+1 >= len(c.data) {
		return failed
	}
	switch c.data[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2
	case 'u':
	default:
		return failed
	}
	switch r := hex4(c.data[i+2:]); {
	case r < 0, 0xdc00 <= r && r < 0xe000:
		return failed
	case 0xd800 <= r && r < 0xdc00:
		if rest := c.data[i+6:]; len(rest) < 6 || rest[0] != '\\' || rest[1] != 'u' || hex4(rest[2:])>>10 != 0xdc00>>10 {
			return failed
		}
		return i + 12
	default:
		return i + 6
	}
}

// hex4 returns the value of four hexadecimal digits; -1 if b does not begin with them.
func hex4(b []byte) rune {
	if len(b) < 4 {
		return -1
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case isDigit(c):
			r = r<<4 | rune(c-'0')
		case 'a' <= c && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case 'A' <= c && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return -1
		}
	}
	return r
}

// Constants with the same value in every byte of a word.
const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// Plain returns how many leading bytes of a string's body stand for themselves: ASCII without quotes, backslashes and
// control characters.
func Plain(b []byte) int {
	i := 0
	for ; i+8 <= len(b); i += 8 {
		if found := special(binary.LittleEndian.Uint64(b[i:])); found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for ; i < len(b); i++ {
		if c := b[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return i
		}
	}
	return i
}

// word returns the first eight bytes as a little-endian number. The compiler makes it one load.
func word(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// special has the high bit set in the first byte of w that is not plain. Later bytes may have it, too, because the
// subtractions borrow from them.
func special(w uint64) uint64 {
	quote, backslash := w^ones*'"', w^ones*'\\'
	return ((w - ones*' ') | (quote - ones) | (backslash - ones) | w) & highs
}

// escaped is [special] for bytes with an escape sequence.
func escaped(w uint64) uint64 {
	quote, backslash := w^ones*'"', w^ones*'\\'
	return ((w - ones*' ') | (quote - ones) | (backslash - ones)) &^ w & highs
}

// backslashes is [special] for backslashes.
func backslashes(w uint64) uint64 {
	w ^= ones * '\\'
	return (w - ones) &^ w & highs
}
