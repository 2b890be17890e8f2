package core

import (
	"strconv"

	"tributary/normalizers/lenient"
)

// Pairs finds the API calls of which two sides of a log both state the tokens, without an id in common: a statement
// belongs to an unmatched one of the other side with the same counts. It uses the memory of API calls.
type Pairs struct{ calls *Memory[Consumption] }

// PairsOf returns the pairs of a session.
func PairsOf(s *Session) Pairs { return Pairs{&s.APICalls} }

// Noted returns the counts that [Pairs.Note] noted of an id; false for none.
func (p Pairs) Noted(as string, id lenient.Text) (counts Consumption, ok bool) {
	counts, ok = p.calls.Get(FingerprintOf(as, string(id)))
	return counts, ok && id != ""
}

// Note notes what an id is, with its counts. It ignores an empty id.
func (p Pairs) Note(as string, id lenient.Text, counts Consumption) {
	if id != "" {
		p.calls.Put(FingerprintOf(as, string(id)), counts)
	}
}

// Leave adds an unmatched statement of a side. Run has the number of those with equal counts.
func (p Pairs) Leave(side string, counts Consumption) {
	key := unmatched(side, counts)
	c, _ := p.calls.Get(key)
	c.Run++
	p.calls.Put(key, c)
}

// Take removes an unmatched statement of a side; false if there is none.
func (p Pairs) Take(side string, counts Consumption) bool {
	key := unmatched(side, counts)
	c, _ := p.calls.Get(key)
	if c.Run == 0 {
		return false
	}
	c.Run--
	p.calls.Put(key, c)
	return true
}

func unmatched(side string, c Consumption) Fingerprint {
	text := func(n int64) string { return strconv.FormatInt(n, 10) }
	return FingerprintOf("open", side, text(c.Input), text(c.CacheRead), text(c.Output), text(c.Reasoning))
}
