package sessions

import (
	"cmp"
	"iter"
	"strings"

	"tributary/envelopes"
	"tributary/pipeline/spill"
)

// defaultMemory is the approximate memory, in bytes, for summing up any number of sessions.
const defaultMemory = 64 << 20

// Memory bounds the memory of Each and Stats.
type Memory struct {
	Bytes int    // approximate; 0 is defaultMemory
	Dir   string // folder of temporary files; empty for the system's
}

func (m Memory) bytes() int {
	if m.Bytes <= 0 {
		return defaultMemory
	}
	return m.Bytes
}

// sessionKey returns the key of a session in groups.
func sessionKey(source envelopes.Source, session string) string {
	return string(source) + "\x00" + session
}

// Each passes the fold of each session to visit, in no order, once all steps are read. The steps of a session must be
// in order. begin returns the fold that the steps of a session are added to; nil starts with empty folds. Each stops
// at the first error of a step, of begin or of visit.
//
// Its memory is bounded for any number of sessions: those that do not fit are grouped on disk.
func Each(steps iter.Seq2[Step, error], d Division, m Memory, begin func(envelopes.Source, string) (*Fold, error), visit func(*Fold) error) error {
	var failed error
	g := spill.Grouper[*Fold, Step]{
		Dir: m.Dir, Limit: m.bytes(),
		New: func(key string) *Fold {
			if begin == nil || failed != nil {
				return NewFold(d)
			}
			source, session, _ := strings.Cut(key, "\x00")
			f, err := begin(envelopes.Source(source), session)
			if err != nil {
				failed = err
				return NewFold(d)
			}
			return f
		},
		Add: func(f *Fold, s *Step) int { return f.Add(s) },
		Done: func(_ string, f *Fold) error {
			if failed != nil {
				return failed
			}
			return visit(f)
		},
	}
	for s, err := range steps {
		if err == nil {
			err = cmp.Or(g.Put(sessionKey(s.Source, s.Session), &s), failed)
		}
		if err != nil {
			_ = g.Close() // the first error counts
			return err
		}
	}
	return g.Finish()
}
