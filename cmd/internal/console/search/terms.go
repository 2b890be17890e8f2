package search

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of what is searched for.
const (
	MaxTerms = 16
	MaxBytes = 400 // of all terms
)

// Errors of [Parse].
var (
	ErrNoTerms = errors.New("nothing to search for: write a word, or a phrase in quotes")
	ErrTooLong = fmt.Errorf("the text to search for is too long: write at most %d words and %d bytes", MaxTerms, MaxBytes)
)

// Terms are words and phrases, which match without regard to case. An event is a hit if each of them is in one of its
// texts. A white space in a phrase matches any. ASCII letters match ASCII letters alone.
type Terms struct {
	list []term
	any  *regexp.Regexp // matches each of them
}

// term is a word or a phrase.
type term struct {
	text    string
	match   *regexp.Regexp
	needles []needle
	plain   bool // its only needle is all of it
}

// needle is a part of a term that JSON holds as it stands, unless it is written with an escape that nobody has to write.
type needle struct {
	lower  []byte
	native bool // has characters that are not ASCII
}

// Parse reads what a person has written: words, and phrases in double quotes.
func Parse(text string) (Terms, error) {
	text = strings.ToValidUTF8(text, "")
	var list []string
	for n, part := range strings.Split(text, `"`) {
		if n%2 == 0 {
			list = append(list, strings.Fields(part)...)
		} else if phrase := strings.Join(strings.Fields(part), " "); phrase != "" {
			list = append(list, phrase)
		}
	}
	switch {
	case len(list) == 0:
		return Terms{}, ErrNoTerms
	case len(list) > MaxTerms, len(text) > MaxBytes:
		return Terms{}, ErrTooLong
	}
	return newTerms(list)
}

// In reports whether each term is in a text.
func (t *Terms) In(text string) bool {
	return !slices.ContainsFunc(t.list, func(one term) bool { return !one.match.MatchString(text) })
}

// Longest returns the longest term, as it was written.
func (t *Terms) Longest() string {
	return slices.MaxFunc(t.list, func(a, b term) int { return len(a.text) - len(b.text) }).text
}

// newTerms returns the terms of words and phrases.
func newTerms(list []string) (Terms, error) {
	var t Terms
	var all []string
	for _, text := range list {
		expression := expressionOf(text)
		match, err := regexp.Compile(expression)
		if err != nil {
			return t, ErrTooLong
		}
		needles := needlesOf(text)
		t.list = append(t.list, term{text, match, needles, len(needles) == 1 && len(needles[0].lower) == len(text)})
		all = append(all, expression)
	}
	var err error
	if t.any, err = regexp.Compile(strings.Join(all, "|")); err != nil {
		return t, ErrTooLong
	}
	return t, nil
}

// expressionOf returns the expression of a term.
func expressionOf(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case unicode.IsSpace(r):
			b.WriteString(`[\s\p{Z}\x{85}]+`)
		case r < utf8.RuneSelf:
			if lower, upper := unicode.ToLower(r), unicode.ToUpper(r); lower != upper {
				fmt.Fprintf(&b, "[%c%c]", lower, upper)
			} else {
				b.WriteString(regexp.QuoteMeta(string(r)))
			}
		default:
			fmt.Fprintf(&b, `[\x{%x}`, r)
			for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
				fmt.Fprintf(&b, `\x{%x}`, other)
			}
			b.WriteByte(']')
		}
	}
	return b.String()
}

// needlesOf returns the longest parts of a term whose characters JSON needs not escape and that have one spelling in
// lower case. A slash is often escaped.
func needlesOf(text string) []needle {
	var needles []needle
	var n needle
	end := func() {
		if len(n.lower) > 0 {
			needles = append(needles, n)
		}
		n = needle{}
	}
	for _, r := range text {
		switch {
		case r <= ' ', r == '"', r == '\\', r == '/', r == 0x7f, unicode.IsSpace(r), r == utf8.RuneError:
			end()
		case r < utf8.RuneSelf:
			n.lower = append(n.lower, byte(unicode.ToLower(r)))
		case unicode.SimpleFold(r) == r:
			n.lower, n.native = utf8.AppendRune(n.lower, r), true
		default:
			end()
		}
	}
	end()
	return needles
}

// scratch is memory for texts in lower case.
type scratch struct{ lower []byte }

// lowered returns text with its ASCII letters in lower case, until the next call.
func (s *scratch) lowered(text []byte) []byte {
	s.lower = appendLower(s.lower[:0], text)
	return s.lower
}

// mayMatch reports whether an event in JSON can be a hit: false is certain.
func (t *Terms) mayMatch(s *scratch, data []byte) bool {
	lower := s.lowered(data)
	var escapes, ascii presence
	for i := range t.list {
		for _, n := range t.list[i].needles {
			if bytes.Contains(lower, n.lower) {
				continue
			}
			if !n.native && !ascii.of(func() bool { return escapesASCII(data) }) ||
				n.native && !escapes.of(func() bool { return bytes.Contains(data, unicodeEscape) }) {
				return false
			}
		}
	}
	return true
}

// presence is whether something is there, once it is known.
type presence struct{ known, is bool }

func (p *presence) of(look func() bool) bool {
	if !p.known {
		p.known, p.is = true, look()
	}
	return p.is
}

var (
	unicodeEscape = []byte(`\u`)
	asciiEscape   = []byte(`\u00`)
)

// escapesASCII reports whether JSON may have a printable ASCII character as \u0020 to \u007f.
func escapesASCII(data []byte) bool {
	for {
		at := bytes.Index(data, asciiEscape)
		if at < 0 {
			return false
		}
		data = data[at+len(asciiEscape):]
		if len(data) > 0 && '2' <= data[0] && data[0] <= '7' {
			return true
		}
	}
}

// find returns where the term is first in a text, which is also there in lower case; nil if it is not.
func (t *term) find(text string, lower []byte) []int {
	for _, n := range t.needles {
		at := bytes.Index(lower, n.lower)
		switch {
		case at < 0:
			return nil
		case t.plain:
			return []int{at, at + len(n.lower)}
		}
	}
	return t.match.FindStringIndex(text)
}

// appendLower appends text with its ASCII letters in lower case, eight bytes at once.
func appendLower(dst, text []byte) []byte {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for len(text) >= 8 {
		w := binary.LittleEndian.Uint64(text)
		low := w &^ highs
		// The high bit of each byte that is from A to Z.
		upper := (low + (0x80-'A')*ones) &^ (low + (0x80-'Z'-1)*ones) &^ w & highs
		dst = binary.LittleEndian.AppendUint64(dst, w|upper>>2)
		text = text[8:]
	}
	for _, b := range text {
		if 'A' <= b && b <= 'Z' {
			b |= 0x20
		}
		dst = append(dst, b)
	}
	return dst
}
