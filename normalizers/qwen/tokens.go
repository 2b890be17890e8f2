package qwen

import (
	"strconv"

	"tributary/normalizers/chat"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// statement is what the telemetry or a message states about an API call. The input includes the cache.
type statement struct{ input, cached, output, thoughts, total lenient.Number }

// counts returns the counts that identify a call, without the total, which old versions omit.
func (s *statement) counts() core.Consumption {
	return core.Consumption{Input: s.input.Count(), CacheRead: s.cached.Count(), Output: s.output.Count(), Reasoning: s.thoughts.Count()}
}

// isApart reports whether the output excludes the thoughts, as the total shows, else the protocol of the provider.
func (s *statement) isApart(auth lenient.Text) bool {
	if total := s.total.Count(); total > 0 {
		return total == s.input.Count()+s.output.Count()+s.thoughts.Count()
	}
	return auth != "" && auth != "openai" && auth != "qwen-oauth"
}

// tokens returns the counts of a call.
func (s *statement) tokens(auth lenient.Text) chat.Tokens {
	return chat.Tokens{
		Input: s.input, CacheRead: s.cached, CacheInInput: true,
		Output: s.output, Reasoning: s.thoughts, ReasoningInOutput: !s.isApart(auth),
	}
}

// bill writes the tokens of an API call. auth is empty for a message.
//
// The telemetry and the message of a call both state it, in either order, those of a subagent in two files. A statement
// is matched with an unmatched statement of the other side that has the same counts. A message directly behind
// telemetry with the same input is also the same call, and raises its output. The id of a response identifies no call,
// because some providers repeat it.
func bill(w *chat.Writer, r *record, s statement, auth lenient.Text) {
	if w.Copied || w.First < 0 && w.Duplicate {
		return
	}
	id, counts := r.UUID, s.counts()
	calls := matcher{&w.Session.APICalls}
	switch {
	case calls.knows("matched", id):
		return
	case calls.knows("call", id): // the message states its call again
	case r.Type == "system":
		if calls.take("message", counts) {
			calls.note("matched", id, counts)
			return
		}
		calls.leave("telemetry", counts)
		if w.Agent == "" {
			calls.note("response", id, counts)
		}
	case calls.take("telemetry", counts):
		calls.note("matched", id, counts)
		return
	default:
		stated, ok := calls.Get(core.FingerprintOf("response", string(r.ParentUUID)))
		if !ok || stated.Input != counts.Input || stated.CacheRead != counts.CacheRead || !calls.take("telemetry", stated) {
			calls.leave("message", counts)
			break
		}
		calls.note("matched", id, counts)
		id = r.ParentUUID
	}
	w.Use(id, s.tokens(auth))
}

// matcher remembers statements among the API calls of a session.
type matcher struct{ *core.Memory[core.Consumption] }

func (m matcher) knows(as string, id lenient.Text) bool {
	_, ok := m.Get(core.FingerprintOf(as, string(id)))
	return ok && id != ""
}

func (m matcher) note(as string, id lenient.Text, counts core.Consumption) {
	if id != "" {
		m.Put(core.FingerprintOf(as, string(id)), counts)
	}
}

// leave adds an unmatched statement of a side. Run has the number of those with equal counts.
func (m matcher) leave(side string, counts core.Consumption) {
	key := open(side, counts)
	c, _ := m.Get(key)
	c.Run++
	m.Put(key, c)
}

// take removes an unmatched statement of a side; it returns false if there is none.
func (m matcher) take(side string, counts core.Consumption) bool {
	key := open(side, counts)
	c, _ := m.Get(key)
	if c.Run == 0 {
		return false
	}
	c.Run--
	m.Put(key, c)
	return true
}

func open(side string, c core.Consumption) core.Fingerprint {
	text := func(n int64) string { return strconv.FormatInt(n, 10) }
	return core.FingerprintOf("open", side, text(c.Input), text(c.CacheRead), text(c.Output), text(c.Reasoning))
}
