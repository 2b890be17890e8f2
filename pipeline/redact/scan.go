package redact

import (
	"bytes"
	"encoding/base64"
	"regexp"
	"slices"
	"unicode/utf8"

	ahocorasick "github.com/BobuSumisu/aho-corasick"
)

// matcher finds the keywords of all rules in one pass.
type matcher struct {
	trie      *ahocorasick.Trie
	byKeyword [][]*rule // rules that a keyword belongs to, by pattern
	always    []*rule   // rules without keywords
	allow     []*allowlist
}

func newMatcher(s ruleSet) *matcher {
	m := &matcher{allow: s.allow}
	var keywords []string
	for _, r := range s.rules {
		if len(r.keywords) == 0 {
			m.always = append(m.always, r)
		}
		for _, k := range r.keywords {
			i := slices.Index(keywords, k)
			if i < 0 {
				i = len(keywords)
				keywords, m.byKeyword = append(keywords, k), append(m.byKeyword, nil)
			}
			m.byKeyword[i] = append(m.byKeyword[i], r)
		}
	}
	m.trie = ahocorasick.NewTrieBuilder().AddStrings(keywords).Build()
	return m
}

// finding is a secret at a place in a text.
type finding struct {
	start, end int
	rule       string
	generic    bool // of a rule that knows the name beside a secret, not the secret
	secret     string
}

// Limits of what is searched in other forms than it has.
const (
	maxDepth  = 4   // levels of escapes and encodings
	minBase64 = 20  // characters of base64 that may be a text
	minBlob   = 256 // characters of base64 that are opaque unless they are a text
	probe     = 16  // characters that are decoded first, to see whether they are a text
)

// scan is a search for secrets. It keeps its buffers for the next one.
type scan struct {
	*matcher
	text  []byte // of a JSON record, without the escapes in its strings
	units []int
	lower [maxDepth][]byte
}

// record returns the secrets in a record, in order and without overlaps.
func (s *scan) record(data []byte, json bool) []finding {
	if !json {
		s.units = append(s.units[:0], len(data))
		return merge(s.search(data, s.units, 0))
	}
	s.text, s.units = flatten(s.text[:0], s.units[:0], data)
	found := merge(s.search(s.text, s.units, 0))
	locate(data, found)
	return found
}

// search returns the secrets in a text. No secret extends over the end of a unit.
func (s *scan) search(text []byte, units []int, depth int) []finding {
	found, blobs := s.encoded(text, depth)
	s.lower[depth] = appendLower(s.lower[depth][:0], text)
	start, unit := 0, 0
	var wide []*rule // rules that search the present unit
	s.trie.Walk(s.lower[depth], func(last, n, pattern int64) bool {
		at := int(last - n + 1)
		for at >= units[unit] {
			found = searchAll(found, s.allow, wide, text, start, units[unit])
			start, unit, wide = units[unit], unit+1, wide[:0]
		}
		for len(blobs) > 0 && blobs[0][1] <= at {
			blobs = blobs[1:]
		}
		if int(last) >= units[unit] || len(blobs) > 0 && at > blobs[0][0] {
			return true
		}
		for _, r := range s.byKeyword[pattern] {
			switch {
			case r.direct:
				found = r.try(found, s.allow, text, start, units[unit], at)
			case !slices.Contains(wide, r):
				wide = append(wide, r)
			}
		}
		return true
	})
	if unit < len(units) {
		found = searchAll(found, s.allow, wide, text, start, units[unit])
	}
	start = 0
	for _, end := range units {
		found = searchAll(found, s.allow, s.always, text, start, end)
		found = s.escaped(found, text[start:end], start, depth)
		start = end
	}
	return found
}

// escaped searches a unit once more without its escapes: JSON in a string, or source code.
func (s *scan) escaped(found []finding, unit []byte, start, depth int) []finding {
	if depth+1 >= maxDepth || bytes.IndexByte(unit, '\\') < 0 {
		return found
	}
	text := unescape(make([]byte, 0, len(unit)), unit)
	if len(text) == len(unit) {
		return found
	}
	inner := merge(s.search(text, []int{len(text)}, depth+1))
	locate(unit, inner)
	for _, f := range inner {
		f.start, f.end = f.start+start, f.end+start
		found = append(found, f)
	}
	return found
}

// encoded returns the runs of base64 that are a text with a secret, as findings, and those that
// are long and no text, such as images, signatures and encrypted content.
func (s *scan) encoded(text []byte, depth int) (found []finding, blobs [][2]int) {
	for i := 0; i < len(text); i++ {
		if !base64Characters[text[i]] {
			continue
		}
		start := i
		for i < len(text) && base64Characters[text[i]] {
			i++
		}
		run := text[start:i]
		switch {
		case len(run) < minBase64:
		case isText(decodeBase64(run[:probe])):
			if plain := decodeBase64(run); depth+1 < maxDepth && isText(plain) {
				if inner := merge(s.search(plain, []int{len(plain)}, depth+1)); len(inner) > 0 {
					for i < len(text) && text[i] == '=' {
						i++
					}
					f := inner[0]
					found = append(found, finding{start, i, f.rule, f.generic, f.secret})
				}
			}
		case len(run) >= minBlob:
			blobs = append(blobs, [2]int{start, i})
		}
	}
	return found, blobs
}

// try tests whether a match begins at a keyword of a unit, which is text[start:end].
func (r *rule) try(found []finding, allow []*allowlist, text []byte, start, end, at int) []finding {
	if r.head.reach > 0 {
		if expression, tried, _ := r.head.at(text, start, end, at); !expression.Match(tried) {
			return found
		}
	}
	expression, tried, from := r.whole.at(text, start, end, at)
	m := expression.FindSubmatchIndex(tried)
	if r.open && m != nil && m[1] == len(tried) {
		m = expression.FindSubmatchIndex(text[from:end])
	}
	if m == nil {
		return found
	}
	m[0] = at - from
	for range maxLead {
		if before := from + m[0] - 1; before < start || !inRanges(r.lead, rune(text[before])) {
			break
		}
		m[0]--
	}
	return r.add(found, allow, text, from, m)
}

// maxLead is how far a match extends over the characters before its keyword.
const maxLead = 50

// searchAll searches a unit, which is text[start:end], with rules.
func searchAll(found []finding, allow []*allowlist, rules []*rule, text []byte, start, end int) []finding {
	for _, r := range rules {
		for _, m := range r.search.FindAllSubmatchIndex(text[start:end], -1) {
			found = r.add(found, allow, text, start, m)
		}
	}
	return found
}

// add adds the secret of a match, unless its entropy is low or an allowlist excludes it. The
// offsets of the match begin at from.
func (r *rule) add(found []finding, allow []*allowlist, text []byte, from int, m []int) []finding {
	group := r.group
	for g := 1; group == 0 && g < len(m)/2; g++ {
		if m[2*g] >= 0 && m[2*g+1] > m[2*g] {
			group = g
		}
	}
	if m[2*group] < 0 {
		return found
	}
	f := finding{start: from + m[2*group], end: from + m[2*group+1], rule: r.id, generic: r.lead != nil}
	if f.start == f.end {
		return found
	}
	f.secret = string(text[f.start:f.end])
	if r.entropy > 0 && entropyOf(f.secret) <= r.entropy {
		return found
	}
	matched := [2]int{from + m[0], from + m[1]}
	allows := func(a *allowlist) bool { return a.allows(r.id, f.secret, text, matched) }
	if slices.ContainsFunc(r.allow, allows) || slices.ContainsFunc(allow, allows) {
		return found
	}
	return append(found, f)
}

func inRanges(ranges []rune, c rune) bool {
	for i := 0; i < len(ranges); i += 2 {
		if ranges[i] <= c && c <= ranges[i+1] {
			return true
		}
	}
	return false
}

// base64Characters are those of both alphabets, padding excluded.
var base64Characters = func() (t [256]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_") {
		t[c] = true
	}
	return t
}()

var urlAlphabet = regexp.MustCompile(`[-_]`)

// decodeBase64 decodes a run of either alphabet as far as it is whole bytes. It returns nil for
// one of both.
func decodeBase64(run []byte) []byte {
	encoding := base64.RawStdEncoding
	if urlAlphabet.Match(run) {
		encoding = base64.RawURLEncoding
	}
	if len(run)%4 == 1 {
		run = run[:len(run)-1]
	}
	out := make([]byte, encoding.DecodedLen(len(run)))
	n, err := encoding.Decode(out, run)
	if err != nil {
		return nil
	}
	return out[:n]
}

// isText reports whether b is text of which most is ASCII.
func isText(b []byte) bool {
	if len(b) == 0 {
		return false
	}
	for _, c := range b {
		if c < ' ' && c != '\n' && c != '\r' && c != '\t' || c == 0x7f {
			return false
		}
	}
	// A probe may end within a character.
	for range utf8.UTFMax {
		if utf8.Valid(b) || len(b) == 0 {
			break
		}
		b = b[:len(b)-1]
	}
	ascii := 0
	for _, c := range b {
		if c < utf8.RuneSelf {
			ascii++
		}
	}
	return utf8.Valid(b) && 4*ascii > 3*len(b)
}

// appendLower appends text with the capitals of ASCII in lower case.
func appendLower(dst, text []byte) []byte {
	n := len(dst)
	dst = append(dst, text...)
	for i, c := range dst[n:] {
		if 'A' <= c && c <= 'Z' {
			dst[n+i] = c + 'a' - 'A'
		}
	}
	return dst
}
