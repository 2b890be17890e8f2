package redact

import (
	"bytes"
	"slices"
	"unicode/utf8"

	ahocorasick "github.com/BobuSumisu/aho-corasick"
)

// matcher finds the keywords of all rules in one pass.
type matcher struct {
	trie      *ahocorasick.Trie
	byKeyword [][]*rule // rules by keyword pattern
	longest   int       // length of the longest keyword, in bytes
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
				m.longest = max(m.longest, len(k))
			}
			m.byKeyword[i] = append(m.byKeyword[i], r)
		}
	}
	m.trie = ahocorasick.NewTrieBuilder().AddStrings(keywords).Build()
	return m
}

// span is a part of a text.
type span struct{ start, end int }

// finding is a secret and its place in a text.
type finding struct {
	start, end int
	rule       string
	generic    bool   // the rule recognizes the name beside a secret, not the secret
	secret     []byte // part of a text of the scan
}

// maxDepth is how many levels of escapes and encodings are searched.
const maxDepth = 4

// scan is a search for secrets. It keeps its buffers for the next search.
type scan struct {
	*matcher
	budget

	text  []byte // a JSON record with the escapes in its strings resolved
	units []int
	lower []byte // a part of a text in lower case
}

// free drops buffers enlarged by a large record.
func (s *scan) free() {
	const kept = 1 << 20
	if cap(s.text) > kept {
		s.text = nil
	}
	if cap(s.units) > kept/8 {
		s.units = nil
	}
}

// record returns the secrets in a record, in order and without overlaps. Its error is why the record was not
// searched.
func (s *scan) record(done <-chan struct{}, data []byte, json bool) ([]finding, error) {
	s.budget = newBudget(done, len(data))
	var found []finding
	if json {
		s.text, s.units = flatten(s.text[:0], s.units[:0], data)
		found = merge(s.search(s.text, s.units, 0))
		locate(data, found)
	} else {
		s.units = append(s.units[:0], len(data))
		found = merge(s.search(data, s.units, 0))
	}
	return found, s.err
}

// search returns the secrets in a text. No secret extends across the end of a unit.
func (s *scan) search(text []byte, units []int, depth int) []finding {
	if !s.spend(len(text)) {
		return nil
	}
	found, blobs := s.encoded(text, depth)
	found, mark := s.keywords(found, text, units, blobs)
	start := 0
	for _, end := range units {
		if s.over() {
			return nil
		}
		found = s.wrapped(found, text, start, end, depth)
		if mark&markEscape != 0 {
			found = s.escaped(found, text[start:end], start, depth)
		}
		if mark&markInvisible != 0 {
			found = s.hidden(found, text, start, end, depth)
		}
		start = end
	}
	return found
}

// keywords adds the secrets that appear unencoded in a text, outside of opaque parts. mark describes the text.
func (s *scan) keywords(found []finding, text []byte, units []int, blobs []span) (all []finding, mark byte) {
	start, unit := 0, 0
	var wide []*rule // rules that search the present unit
	mark = s.walk(text, func(last, n, pattern int) bool {
		at := last - n + 1
		for at >= units[unit] {
			found = s.searchAll(found, wide, text, start, units[unit])
			start, unit, wide = units[unit], unit+1, wide[:0]
		}
		for len(blobs) > 0 && blobs[0].end <= at {
			blobs = blobs[1:]
		}
		if last >= units[unit] || len(blobs) > 0 && at > blobs[0].start {
			return true
		}
		for _, r := range s.byKeyword[pattern] {
			switch {
			case r.direct:
				found = s.try(found, r, text, start, units[unit], at)
			case !slices.Contains(wide, r):
				wide = append(wide, r)
			}
		}
		return !s.over()
	})
	if unit < len(units) {
		found = s.searchAll(found, wide, text, start, units[unit])
	}
	start = 0
	for _, end := range units {
		found = s.searchAll(found, s.always, text, start, end)
		start = end
	}
	return found, mark
}

// walkBytes is how much of a text is converted to lower case at a time.
const walkBytes = 64 << 10

// walk calls f for each keyword in a text, with the index of its last byte, its length, and its pattern. mark
// describes the text.
func (s *scan) walk(text []byte, f func(last, n, pattern int) bool) (mark byte) {
	for from, going := 0, true; from < len(text) && going; from += walkBytes {
		start := max(0, from-s.longest+1)
		var m byte
		s.lower, m = appendLower(s.lower[:0], text[start:min(len(text), from+walkBytes)])
		mark |= m
		s.trie.Walk(s.lower, func(last, n, pattern int64) bool {
			if at := start + int(last); at >= from {
				going = f(at, int(n), int(pattern))
			}
			return going
		})
	}
	return mark
}

// escaped searches a unit again with its escapes resolved: JSON in a string, or source code.
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

// try tests whether a match of a rule begins at a keyword in the unit text[start:end].
func (s *scan) try(found []finding, r *rule, text []byte, start, end, at int) []finding {
	if r.head.reach > 0 {
		expression, tried, _ := r.head.at(text, start, end, at, r.head.reach+utf8.UTFMax)
		if !s.spend(len(tried)) || !expression.Match(tried) {
			return found
		}
	}
	var m []int
	reach := end - at
	if r.whole.reach > 0 {
		reach = r.whole.reach + utf8.UTFMax
	}
	expression, tried, from := r.whole.at(text, start, end, at, reach)
	if r.whole.reach == 0 {
		m = s.find(expression, tried)
	} else if s.spend(len(tried)) {
		m = expression.FindSubmatchIndex(tried)
		if r.open && m != nil && m[1] == len(tried) {
			m = s.find(expression, text[from:end])
		}
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
	return s.add(found, r, text, from, m)
}

// maxLead is how far a match may extend before its keyword.
const maxLead = 50

// searchAll searches the unit text[start:end] with rules.
func (s *scan) searchAll(found []finding, rules []*rule, text []byte, start, end int) []finding {
	for _, r := range rules {
		if !s.spend(end-start) || !r.search.Match(text[start:end]) {
			continue
		}
		m, from := s.find(r.search, text[start:end]), start
		for m != nil {
			found = s.add(found, r, text, from, m)
			at := from + max(m[1], m[0]+1)
			if at >= end {
				break
			}
			if m, from = s.find(r.next(), text[at-1:end]), at-1; m != nil {
				m = m[2:]
			}
		}
	}
	return found
}

// add adds the secret of a match, unless its entropy is too low or an allowlist excludes it. The offsets in m count
// from from.
func (s *scan) add(found []finding, r *rule, text []byte, from int, m []int) []finding {
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
	if f.start == f.end || !s.spend(f.end-f.start) {
		return found
	}
	f.secret = text[f.start:f.end]
	if r.entropy > 0 && entropyOf(f.secret) <= r.entropy {
		return found
	}
	matched := [2]int{from + m[0], from + m[1]}
	allows := func(a *allowlist) bool {
		return s.spend(a.work(f.secret, matched)) && a.allows(r.id, f.secret, text, matched)
	}
	if slices.ContainsFunc(r.allow, allows) || slices.ContainsFunc(s.allow, allows) {
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

// Properties of a text that appendLower finds.
const (
	markEscape    = 1 << iota // it has a backslash
	markInvisible             // it may have an invisible character
)

// lowerCase has each byte in ASCII lower case, and marks the properties that it shows.
var lowerCase, marks = func() (lower, marks [256]byte) {
	for i := range lower {
		lower[i] = byte(i)
		if 'A' <= i && i <= 'Z' {
			lower[i] += 'a' - 'A'
		}
	}
	marks['\\'], marks[0] = markEscape, markInvisible
	for _, c := range []byte("\u00ad\u034f\u061c\u180e\u200b\ufeff\U000e0001") { // first bytes of invisible characters
		if c >= 0xc0 {
			marks[c] = markInvisible
		}
	}
	return lower, marks
}()

// appendLower appends text in ASCII lower case, and returns its properties.
func appendLower(dst, text []byte) (lower []byte, mark byte) {
	n := len(dst)
	dst = append(dst, text...)
	for i, c := range text {
		dst[n+i] = lowerCase[c]
		mark |= marks[c]
	}
	return dst, mark
}
