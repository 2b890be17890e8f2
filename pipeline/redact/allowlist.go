package redact

import (
	"bytes"
	"math"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
)

// allowlist excludes findings that are not secrets.
type allowlist struct {
	target  string           // what regexes are compared with: match, line, or by default the secret
	all     bool             // every condition must hold
	regexes []*regexp.Regexp // each alone, because most are anchored, which one large expression cannot use
	edges   bool             // a regex matches at line ends, which a cut line does not have
	words   *wordSet
	rules   []string // ids of the rules it applies to; empty for all
}

// lineWindow is how many bytes of a line an allowlist sees before and behind a match, because a line may be as long
// as a record. An allowlist that needs more of it excludes nothing.
const lineWindow = 512

func compileAll(entries []allowlistEntry) ([]*allowlist, error) {
	var list []*allowlist
	for _, e := range entries {
		a := &allowlist{target: e.RegexTarget, all: strings.EqualFold(e.Condition, "AND"), rules: e.TargetRules}
		a.words = newWordSet(e.StopWords)
		for _, x := range e.Regexes {
			tree, err := syntax.Parse(x, syntax.Perl)
			if err != nil {
				return nil, err
			}
			a.edges = a.edges || hasEdges(tree)
			a.regexes = append(a.regexes, regexp.MustCompile(x))
		}
		if a.regexes == nil && a.words == nil || a.all && len(e.Paths)+len(e.Commits) > 0 {
			continue // selects by path or commit
		}
		list = append(list, a)
	}
	return list, nil
}

// hasEdges reports whether an expression depends on what is beside a place.
func hasEdges(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpBeginLine, syntax.OpEndLine, syntax.OpBeginText, syntax.OpEndText,
		syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return true
	default:
		return slices.ContainsFunc(re.Sub, hasEdges)
	}
}

// allows reports whether the list excludes a secret of a rule; matched is its match in the text.
func (a *allowlist) allows(rule string, secret, text []byte, matched [2]int) bool {
	if len(a.rules) > 0 && !slices.Contains(a.rules, rule) {
		return false
	}
	if a.regexes != nil {
		if matches := a.matches(secret, text, matched); matches != a.all || a.words == nil {
			return matches
		}
	}
	return a.words.in(secret)
}

// work returns the work, in bytes, to decide whether the list excludes a secret.
func (a *allowlist) work(secret []byte, matched [2]int) int {
	switch a.target {
	case "match":
		return matched[1] - matched[0]
	case "line":
		return matched[1] - matched[0] + 2*lineWindow
	default:
		return len(secret)
	}
}

func (a *allowlist) matches(secret, text []byte, matched [2]int) bool {
	target := secret
	switch a.target {
	case "match":
		target = text[matched[0]:matched[1]]
	case "line":
		line, cut := lineOf(text, matched)
		if cut && a.edges {
			return false
		}
		target = line
	}
	return slices.ContainsFunc(a.regexes, func(x *regexp.Regexp) bool { return x.Match(target) })
}

// lineOf returns the line of a match, cut to what an allowlist sees.
func lineOf(text []byte, matched [2]int) (line []byte, cut bool) {
	from, to := max(0, matched[0]-lineWindow), min(len(text), matched[1]+lineWindow)
	start := bytes.LastIndexByte(text[from:matched[0]], '\n') + 1
	end := bytes.IndexByte(text[matched[1]:to], '\n')
	cut = start == 0 && from > 0 || end < 0 && to < len(text)
	if end >= 0 {
		to = matched[1] + end
	}
	return text[from+start : to], cut
}

// wordStart is the length of the prefix by which words are looked up.
const wordStart = 3

// wordSet is a set of lower-case words. The zero value and nil are empty.
type wordSet struct {
	long  map[[wordStart]byte][]string // by prefix
	short []string
}

func newWordSet(words []string) *wordSet {
	if len(words) == 0 {
		return nil
	}
	s := &wordSet{long: make(map[[wordStart]byte][]string)}
	for _, w := range words {
		if w = strings.ToLower(w); len(w) < wordStart {
			s.short = append(s.short, w)
			continue
		}
		start := [wordStart]byte([]byte(w))
		s.long[start] = append(s.long[start], w)
	}
	return s
}

// in reports whether a text contains one of the words, ignoring case.
func (s *wordSet) in(text []byte) bool {
	if s == nil {
		return false
	}
	lower := strings.ToLower(string(text))
	for _, w := range s.short {
		if strings.Contains(lower, w) {
			return true
		}
	}
	for i := range len(lower) - wordStart + 1 {
		for _, w := range s.long[[wordStart]byte([]byte(lower[i:i+wordStart]))] {
			if strings.HasPrefix(lower[i:], w) {
				return true
			}
		}
	}
	return false
}

// entropyOf returns the Shannon entropy of a text, in bits per byte.
func entropyOf(text []byte) float64 {
	var counts [256]int
	for _, c := range text {
		counts[c]++
	}
	sum := 0.0
	for _, c := range counts {
		if c > 0 {
			p := float64(c) / float64(len(text))
			sum -= p * math.Log2(p)
		}
	}
	return sum
}
