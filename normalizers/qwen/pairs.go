package qwen

import (
	"strconv"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// pairs finds the API calls of which two sides of a log both state the tokens, without an id in common: a statement
// belongs to an unmatched one of the other side with the same counts. It uses the memory of API calls.
type pairs struct {
	calls *core.Memory[core.Consumption]
}

// noted returns the counts that note noted of an id; false for none.
func (p pairs) noted(as string, id lenient.Text) (counts core.Consumption, ok bool) {
	counts, ok = p.calls.Get(core.FingerprintOf(as, string(id)))
	return counts, ok && id != ""
}

// note notes what an id is, with its counts. It ignores an empty id.
func (p pairs) note(as string, id lenient.Text, counts core.Consumption) {
	if id != "" {
		p.calls.Put(core.FingerprintOf(as, string(id)), counts)
	}
}

// leave adds an unmatched statement of a side. Run has the number of those with equal counts.
func (p pairs) leave(side string, counts core.Consumption) {
	key := unmatched(side, counts)
	c, _ := p.calls.Get(key)
	c.Run++
	p.calls.Put(key, c)
}

// take removes an unmatched statement of a side; false if there is none.
func (p pairs) take(side string, counts core.Consumption) bool {
	key := unmatched(side, counts)
	c, _ := p.calls.Get(key)
	if c.Run == 0 {
		return false
	}
	c.Run--
	p.calls.Put(key, c)
	return true
}

func unmatched(side string, c core.Consumption) core.Fingerprint {
	text := func(n int64) string { return strconv.FormatInt(n, 10) }
	return core.FingerprintOf("open", side, text(c.Input), text(c.CacheRead), text(c.Output), text(c.Reasoning))
}
