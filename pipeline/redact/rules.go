package redact

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"sync"

	"github.com/BurntSushi/toml"
)

// The built-in rules. gitleaksRules is the unchanged config/gitleaks.toml of gitleaks v8.30.1 (MIT, see
// gitleaks.LICENSE); ownRules extends it, and replaces rules with the same id.
var (
	//go:embed gitleaks.toml
	gitleaksRules string
	//go:embed tributary.toml
	ownRules string
)

// ruleFile is a file of rules in the format of gitleaks. Fields that select by path or commit of a source file are
// ignored, because a record has neither.
type ruleFile struct {
	Allowlist  *allowlistEntry  `toml:"allowlist"`
	Allowlists []allowlistEntry `toml:"allowlists"`
	Rules      []ruleEntry      `toml:"rules"`
}

type ruleEntry struct {
	ID          string
	Regex       string
	Path        string
	Entropy     float64
	SecretGroup int
	Keywords    []string
	Allowlist   *allowlistEntry
	Allowlists  []allowlistEntry
}

type allowlistEntry struct {
	Condition   string
	RegexTarget string
	Regexes     []string
	StopWords   []string
	Paths       []string
	Commits     []string
	TargetRules []string
}

// rule finds secrets of one kind.
type rule struct {
	id       string
	entropy  float64 // minimum entropy of a secret, in bits per byte
	group    int     // group of the expression with the secret; 0 for the first non-empty group, or the match
	keywords []string
	allow    []*allowlist

	// If every match begins with a keyword, after a lead of optional characters, the expression is tried only at
	// keywords. Otherwise it searches the whole text.
	direct bool
	lead   []rune   // character ranges of the lead
	head   anchored // what precedes the secret; tried first, because it is short
	whole  anchored
	open   bool // a match may exceed the reach; it then begins within it
	search *regexp.Regexp
	next   func() *regexp.Regexp // finds a match after the first byte of a text, as its first group
}

// anchored is an expression that is tried at one place. The zero value matches everywhere.
type anchored struct {
	reach  int                   // maximum length of a match in bytes; 0 for no limit
	begin  func() *regexp.Regexp // matches at the start of a text
	within func() *regexp.Regexp // matches after the first byte of a text
}

func newAnchored(tree *syntax.Regexp) anchored {
	expression := tree.String()
	compiled := func(before string) func() *regexp.Regexp {
		return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(before + `(?:` + expression + `)`) })
	}
	return anchored{longest(tree), compiled(`\A`), compiled(`\A(?s:.)`)}
}

// at returns the expression to try at an offset of the unit text[start:end], and the text to try it on, which begins
// at from and has reach bytes.
func (a *anchored) at(text []byte, start, end, offset, reach int) (expression *regexp.Regexp, tried []byte, from int) {
	end = min(end, offset+reach)
	if offset == start {
		return a.begin(), text[offset:end], offset
	}
	return a.within(), text[offset-1 : end], offset - 1
}

// ruleSet has the rules of one or more files.
type ruleSet struct {
	rules []*rule
	allow []*allowlist // for all rules
	added string       // content of the user's file
}

// builtInRules are the rules that every [Redactor] has.
var builtInRules = sync.OnceValue(func() ruleSet {
	var s ruleSet
	if err := errors.Join(s.add("gitleaks.toml", gitleaksRules), s.add("tributary.toml", ownRules)); err != nil {
		panic(err) // a mistake in a file
	}
	return s
})

// readRules returns the built-in rules and those in the user's file.
func readRules(path string) (ruleSet, error) {
	builtIn := builtInRules()
	s := ruleSet{rules: slices.Clone(builtIn.rules), allow: slices.Clone(builtIn.allow)}
	if path == "" {
		return s, nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return s, fmt.Errorf("read the rules of redaction: %w", err)
	}
	s.added = string(content)
	return s, s.add(path, s.added)
}

// add adds the rules of a file. A rule replaces an existing one with the same id.
func (s *ruleSet) add(name, content string) error {
	var f ruleFile
	if _, err := toml.Decode(content, &f); err != nil {
		if parse, ok := errors.AsType[toml.ParseError](err); ok {
			return fmt.Errorf("%s:%d: %s", name, parse.Position.Line, parse.Message)
		}
		return fmt.Errorf("%s: %w", name, err)
	}
	if f.Allowlist != nil {
		f.Allowlists = append(f.Allowlists, *f.Allowlist)
	}
	allow, err := compileAll(f.Allowlists)
	if err != nil {
		return fmt.Errorf("%s: allowlist: %w", name, err)
	}
	s.allow = append(s.allow, allow...)
	for i, e := range f.Rules {
		r, err := e.compile()
		if err != nil {
			return fmt.Errorf("%s: rule %d %q: %w", name, i+1, e.ID, err)
		}
		if r == nil {
			continue
		}
		if at := slices.IndexFunc(s.rules, func(o *rule) bool { return o.id == r.id }); at >= 0 {
			s.rules[at] = r
		} else {
			s.rules = append(s.rules, r)
		}
	}
	return nil
}

// ruleID matches valid rule ids, which become part of placeholders and a label of metrics.
var ruleID = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

// compile returns the rule of an entry; nil for a rule about files at certain paths.
func (e *ruleEntry) compile() (*rule, error) {
	switch {
	case !ruleID.MatchString(e.ID):
		return nil, errors.New("its id is not of a-z, 0-9, - and _, at most 64")
	case e.Regex == "" && e.Path == "":
		return nil, errors.New("it has no regex")
	case e.Path != "":
		return nil, nil //nolint:nilnil // no rule
	}
	whole, err := regexp.Compile(e.Regex)
	if err != nil {
		return nil, err
	}
	if e.SecretGroup < 0 || e.SecretGroup > whole.NumSubexp() {
		return nil, fmt.Errorf("secretGroup %d: its regex has %d groups", e.SecretGroup, whole.NumSubexp())
	}
	if e.Allowlist != nil {
		e.Allowlists = append(e.Allowlists, *e.Allowlist)
	}
	r := &rule{id: e.ID, entropy: e.Entropy, group: e.SecretGroup}
	if r.allow, err = compileAll(e.Allowlists); err != nil {
		return nil, fmt.Errorf("allowlist: %w", err)
	}
	for _, k := range e.Keywords {
		if k != "" {
			r.keywords = append(r.keywords, strings.ToLower(k))
		}
	}
	r.search = whole
	r.next = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\A(?s:.)(?s:.*?)(` + e.Regex + `)`) })
	tree, err := syntax.Parse(e.Regex, syntax.Perl)
	if err != nil {
		return nil, err
	}
	r.anchor(tree)
	return r, nil
}

// anchor finds out whether every match begins with a keyword, or with another string that can serve as one.
func (r *rule) anchor(tree *syntax.Regexp) {
	rest, lead := withoutLead(tree)
	begins, _ := beginnings(rest)
	known := func(b string) bool {
		return slices.ContainsFunc(r.keywords, func(k string) bool { return strings.HasPrefix(b, k) })
	}
	switch {
	case len(r.keywords) == 0 || len(begins) == 0:
		return
	case all(begins, known):
	case all(begins, func(b string) bool { return len(b) >= minBeginning }):
		slices.Sort(begins)
		r.keywords = slices.Compact(begins)
	default:
		return
	}
	rest = loosened(rest)
	r.direct, r.lead, r.whole = true, lead, newAnchored(rest)
	r.open = r.whole.reach == 0 && isOpen(rest)
	if r.open {
		r.whole.reach = openReach
	}
	if secret := slices.IndexFunc(rest.Sub, func(sub *syntax.Regexp) bool { return sub.Op == syntax.OpCapture }); rest.Op == syntax.OpConcat && secret > 1 {
		head := *rest
		head.Sub = rest.Sub[:secret]
		if longest(&head) > 0 {
			r.head = newAnchored(&head)
		}
	}
}

// openReach is how many bytes a rule without a limit looks at first.
const openReach = 512

// loosened returns an expression without the upper limits of long repetitions, which are expensive.
func loosened(re *syntax.Regexp) *syntax.Regexp {
	const long = 100
	copied := *re
	copied.Sub = make([]*syntax.Regexp, len(re.Sub))
	for i, sub := range re.Sub {
		copied.Sub[i] = loosened(sub)
	}
	if re.Op == syntax.OpRepeat && re.Max >= long && re.Max > re.Min {
		copied.Max = -1
	}
	return &copied
}

// isOpen reports whether an expression is a secret of any length that may end at the end of the text. In a cut text
// it matches what is there.
func isOpen(re *syntax.Regexp) bool {
	n := len(re.Sub)
	if re.Op != syntax.OpConcat || n < 2 || !strings.Contains(re.Sub[n-1].String(), "$") && !strings.Contains(re.Sub[n-1].String(), `\z`) {
		return false
	}
	for _, sub := range re.Sub[:n-2] {
		if _, ok := longestMatch(sub); !ok {
			return false
		}
	}
	return endsOpen(re.Sub[n-2])
}

// endsOpen reports whether an expression may end in an unlimited repetition.
func endsOpen(re *syntax.Regexp) bool {
	if _, ok := longestMatch(re); ok {
		return true
	}
	switch re.Op {
	case syntax.OpStar, syntax.OpPlus, syntax.OpRepeat:
		return re.Sub[0].Op == syntax.OpCharClass
	case syntax.OpCapture, syntax.OpAlternate:
		return all(re.Sub, endsOpen)
	case syntax.OpConcat:
		first := slices.IndexFunc(re.Sub, func(sub *syntax.Regexp) bool { _, ok := longestMatch(sub); return !ok })
		return endsOpen(re.Sub[first]) && all(re.Sub[first+1:], func(sub *syntax.Regexp) bool {
			return sub.Op == syntax.OpStar || sub.Op == syntax.OpQuest || sub.Op == syntax.OpRepeat && sub.Min == 0
		})
	default:
		return false
	}
}

func all[T any](list []T, is func(T) bool) bool {
	return !slices.ContainsFunc(list, func(v T) bool { return !is(v) })
}

// withoutLead splits an expression that begins with optional characters of one class, which only widen the match. It
// returns the rest and the ranges of the class.
func withoutLead(tree *syntax.Regexp) (rest *syntax.Regexp, lead []rune) {
	for tree.Op == syntax.OpConcat && len(tree.Sub) > 1 {
		first, copied := tree.Sub[0], *tree
		optional := first.Op == syntax.OpStar || first.Op == syntax.OpQuest || first.Op == syntax.OpRepeat && first.Min == 0
		switch {
		case first.Op == syntax.OpConcat:
			copied.Sub = slices.Concat(first.Sub, tree.Sub[1:])
		case optional && first.Sub[0].Op == syntax.OpCharClass:
			copied.Sub, lead = tree.Sub[1:], first.Sub[0].Rune
		default:
			return tree, lead
		}
		tree = &copied
	}
	return tree, lead
}

// Limits of beginnings of an expression.
const (
	minBeginning    = 3 // bytes
	maxBeginnings   = 128
	maxBeginning    = 24 // bytes
	maxClassMembers = 4
)

// beginnings returns lower-case strings, one of which begins every match. whole means that they are all the matches.
func beginnings(re *syntax.Regexp) (list []string, whole bool) {
	switch re.Op {
	case syntax.OpLiteral:
		return []string{strings.ToLower(string(re.Rune))}, true
	case syntax.OpEmptyMatch, syntax.OpWordBoundary, syntax.OpNoWordBoundary, syntax.OpBeginLine, syntax.OpBeginText, syntax.OpEndLine, syntax.OpEndText:
		return []string{""}, true
	case syntax.OpCharClass:
		return classMembers(re.Rune)
	case syntax.OpCapture:
		return beginnings(re.Sub[0])
	case syntax.OpPlus:
		list, _ = beginnings(re.Sub[0])
		return list, false
	case syntax.OpQuest:
		list, whole = beginnings(re.Sub[0])
		return append(slices.Clone(list), ""), whole
	case syntax.OpRepeat:
		list, whole = beginnings(re.Sub[0])
		if re.Min == 0 {
			list = append(slices.Clone(list), "")
		}
		return list, whole && re.Max == 1
	case syntax.OpAlternate:
		whole = true
		for _, sub := range re.Sub {
			l, w := beginnings(sub)
			list, whole = append(list, l...), whole && w
		}
		return list, whole
	case syntax.OpConcat:
		return concatenated(re.Sub)
	default:
		return []string{""}, false
	}
}

func concatenated(subs []*syntax.Regexp) (list []string, whole bool) {
	list = []string{""}
	for _, sub := range subs {
		next, w := beginnings(sub)
		if len(list)*len(next) > maxBeginnings || len(list[0]) > maxBeginning {
			return list, false
		}
		var product []string
		for _, a := range list {
			for _, b := range next {
				product = append(product, a+b)
			}
		}
		if list = product; !w {
			return list, false
		}
	}
	return list, true
}

func classMembers(ranges []rune) (list []string, whole bool) {
	for i := 0; i < len(ranges); i += 2 {
		if ranges[i+1]-ranges[i] > maxClassMembers || len(list) > maxClassMembers {
			return []string{""}, false
		}
		for c := ranges[i]; c <= ranges[i+1]; c++ {
			list = append(list, strings.ToLower(string(c)))
		}
	}
	slices.Sort(list)
	return slices.Compact(list), true
}

// longest returns the maximum length of a match in bytes; 0 for no limit.
func longest(re *syntax.Regexp) int {
	sum, ok := longestMatch(re)
	if !ok || sum > 1<<16 {
		return 0
	}
	return sum
}

func longestMatch(re *syntax.Regexp) (n int, ok bool) {
	switch re.Op {
	case syntax.OpLiteral:
		return 4 * len(re.Rune), true
	case syntax.OpCharClass:
		if last := re.Rune[len(re.Rune)-1]; last < 0x80 || last == 0x17f || last == 0x212a { // case folding of s and k
			return 3, true
		}
		return 4, true
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return 4, true
	case syntax.OpStar, syntax.OpPlus:
		return 0, false
	case syntax.OpRepeat:
		n, ok = longestMatch(re.Sub[0])
		return n * re.Max, ok && re.Max >= 0
	case syntax.OpAlternate:
		for _, sub := range re.Sub {
			m, bounded := longestMatch(sub)
			if !bounded {
				return 0, false
			}
			n = max(n, m)
		}
		return n, true
	default:
		for _, sub := range re.Sub {
			m, bounded := longestMatch(sub)
			if !bounded {
				return 0, false
			}
			n += m
		}
		return n, true
	}
}
