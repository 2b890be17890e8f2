package search

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"tributary/pipeline/filters"
)

// Limits of a query.
const (
	MaxTerms = 16
	MaxBytes = 400 // of all terms
)

// Errors of [Parse].
var (
	ErrNoTerms = errors.New("nothing to search for: write a word, or a phrase in quotes")
	ErrTooLong = fmt.Errorf("the text to search for is too long: write at most %d words and %d bytes", MaxTerms, MaxBytes)
)

// Terms are words and phrases. They match without regard to case, but ASCII letters match only ASCII letters; white space
// in a phrase matches any white space. An event is a hit if each term is in one of its texts.
type Terms struct {
	list []term
	any  *regexp.Regexp // matches every term
}

// term is a word or a phrase.
type term struct {
	text    string
	match   *regexp.Regexp
	needles []needle
	plain   bool // the whole term is one needle
}

// needle is a part of a term whose characters JSON does not have to escape: the JSON of an event that has the term
// contains the needle, or an escape that was not necessary.
type needle struct {
	lower    []byte
	rarest   int // index of the byte that is the rarest in events
	nonASCII bool
}

// Parse parses a query of words, and of phrases in double quotes.
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
	return !slices.ContainsFunc(t.list, func(one term) bool { return one.find(text) == nil })
}

// newTerms compiles words and phrases.
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

// expressionOf returns the regular expression of a term.
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

// needlesOf returns the longest parts of a term whose characters JSON does not have to escape and that have one spelling
// in lower case. A slash belongs to no needle, because many programs escape it.
func needlesOf(text string) []needle {
	var needles []needle
	var n needle
	end := func() {
		if len(n.lower) > 0 {
			n.rarest = rarestOf(n.lower)
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
			n.lower, n.nonASCII = utf8.AppendRune(n.lower, r), true
		default:
			end()
		}
	}
	end()
	return needles
}

// frequent lists the most frequent bytes of events in JSON, the most frequent first.
const frequent = "etaoinsrlcdupmhf0_g1:b2-,3y.456789vkwx=()jqz"

// rarestOf returns the index of the byte of a text in lower case that is the rarest in events.
func rarestOf(lower []byte) (index int) {
	rarest := -1
	for i, b := range lower {
		rank := strings.IndexByte(frequent, b)
		if rank < 0 {
			rank = len(frequent)
		}
		if rank > rarest {
			index, rarest = i, rank
		}
	}
	return index
}

// mayMatch reports whether an event in JSON can be a hit: false is certain.
func (t *Terms) mayMatch(data []byte) bool {
	if t.lacks(data) {
		return false
	}
	var texts [][]byte // data with its escapes resolved; nil until a needle needs it
	for i := range t.list {
		for _, n := range t.list[i].needles {
			if n.nonASCII || n.index(data) >= 0 {
				continue
			}
			if texts == nil {
				text := filters.Unescaped(data)
				texts = [][]byte{text, filters.Unescaped(text)} // the text of a call is JSON, too
			}
			if !slices.ContainsFunc(texts, func(text []byte) bool { return n.index(text) >= 0 }) {
				return false
			}
		}
	}
	return true
}

// lacks reports whether JSON has neither a needle nor an escape that may stand for a part of it. Unlike [Terms.mayMatch], it
// does not resolve escapes.
func (t *Terms) lacks(data []byte) bool {
	for i := range t.list {
		for _, n := range t.list[i].needles {
			switch {
			case n.index(data) >= 0:
			case n.nonASCII && !bytes.Contains(data, unicodeEscape), !n.nonASCII && !filters.HasASCIIEscape(data):
				return true
			}
		}
	}
	return false
}

var unicodeEscape = []byte(`\u`)

// lackedBy reports whether no event of a filter has all terms: true is certain.
func (t *Terms) lackedBy(f *filters.Filter) bool {
	return slices.ContainsFunc(t.list, func(one term) bool {
		return slices.ContainsFunc(one.needles, func(n needle) bool {
			return !n.nonASCII && !f.Has(n.lower) // JSON may have escapes for other characters
		})
	})
}

// find returns the bounds of the first match of the term in a text, nil if it does not match.
func (t *term) find(text string) []int {
	data := []byte(text)
	for _, n := range t.needles {
		at := n.index(data)
		switch {
		case at < 0:
			return nil
		case t.plain:
			return []int{at, at + len(n.lower)}
		}
	}
	return t.match.FindStringIndex(text)
}

// index returns the index of the first needle in a text, whose ASCII letters may have either case; -1 if the text has
// none. It searches for the rarest byte of the needle, because bytes.IndexByte compares many bytes at once.
func (n *needle) index(text []byte) int {
	if len(text) < len(n.lower) {
		return -1
	}
	lower := n.lower[n.rarest]
	upper := upperOf(lower)
	from, end := n.rarest, len(text)-len(n.lower)+n.rarest+1 // the range of the byte
	atLower, atUpper := -1, -1
	for {
		if atLower < from {
			atLower = indexFrom(text[:end], from, lower)
		}
		if atUpper < from {
			atUpper = end
			if upper != lower {
				atUpper = indexFrom(text[:end], from, upper)
			}
		}
		at := min(atLower, atUpper)
		if at == end {
			return -1
		}
		if equalsLower(text[at-n.rarest:][:len(n.lower)], n.lower) {
			return at - n.rarest
		}
		from = at + 1
	}
}

// indexFrom returns the index of the first b in a text from an index on, the length of the text if there is none.
func indexFrom(text []byte, from int, b byte) int {
	if at := bytes.IndexByte(text[from:], b); at >= 0 {
		return from + at
	}
	return len(text)
}

// equalsLower reports whether a text equals one in lower case, without regard to the case of ASCII letters.
func equalsLower(text, lower []byte) bool {
	for i, b := range text {
		if b != lower[i] && b != upperOf(lower[i]) {
			return false
		}
	}
	return true
}

// upperOf returns an ASCII letter in upper case, and any other byte unchanged.
func upperOf(b byte) byte {
	if 'a' <= b && b <= 'z' {
		return b - ('a' - 'A')
	}
	return b
}
