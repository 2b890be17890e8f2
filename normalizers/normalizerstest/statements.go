package normalizerstest

import "slices"

// Statements are what the log of a file and its telemetry state. Of the k-th statement of a text in each of the two, that
// of the log counts. A reader embeds them, and calls [Statements.Advance] behind each record.
type Statements struct {
	seen     map[string]bool
	logged   map[string]int
	exported []statement
	lines    []int // numbers of the lines from the one that is read on
}

type statement struct {
	key string
	Utterance
}

// NewStatements returns those of a file that is not read yet.
func NewStatements(lines []Line) *Statements {
	s := &Statements{seen: make(map[string]bool), logged: make(map[string]int)}
	for _, l := range lines {
		if !l.Bad {
			s.lines = append(s.lines, l.Number)
		}
	}
	return s
}

// Advance goes to the next line.
func (s *Statements) Advance() { s.lines = s.lines[1:] }

// IsFirst reports whether something comes for the first time.
func (s *Statements) IsFirst(what string) bool {
	first := !s.seen[what]
	s.seen[what] = true
	return first
}

// Log notes a text of the log.
func (s *Statements) Log(key string) { s.logged[key]++ }

// Export notes a text of the telemetry in the line that is read.
func (s *Statements) Export(key string, u Utterance) {
	u.Line = s.lines[0]
	s.exported = append(s.exported, statement{key, u})
}

// AddTo adds the texts that only the telemetry states to those of the log.
func (s *Statements) AddTo(a *Account) {
	for _, e := range s.exported {
		if s.logged[e.key]--; s.logged[e.key] >= 0 {
			continue
		}
		at := slices.IndexFunc(a.Talk, func(o Utterance) bool { return o.Line > e.Line })
		if at < 0 {
			at = len(a.Talk)
		}
		a.Talk = slices.Insert(a.Talk, at, e.Utterance)
	}
}
