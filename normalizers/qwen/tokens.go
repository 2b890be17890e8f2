package qwen

import (
	"strconv"

	"tributary/normalizers/chat"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// statement is what the telemetry or a message states about an API call. The input includes the cache.
type statement struct{ input, cached, output, thoughts, total lenient.Number }

// counts are the figures that identify a call. The total is not among them, because old versions omit it.
func (s *statement) counts() core.Consumption {
	return core.Consumption{Input: s.input.Count(), CacheRead: s.cached.Count(), Output: s.output.Count(), Reasoning: s.thoughts.Count()}
}

// isApart reports whether the output is without the thoughts: the total tells, else the way to the provider.
func (s *statement) isApart(auth lenient.Text) bool {
	if total := s.total.Count(); total > 0 {
		return total == s.input.Count()+s.output.Count()+s.thoughts.Count()
	}
	return auth != "" && auth != "openai" && auth != "qwen-oauth"
}

// bill writes the tokens of an API call. auth is empty for a message.
//
// The telemetry and the message of a call both state it, in either order, and those of a subagent in two files. A
// statement is the other side's if that has stated the same counts, and no call of this side is matched with those
// yet. A message directly behind telemetry with the same input is the same call, too, and raises its output. The id of
// a response does not tell, because some providers repeat it.
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
		told, ok := calls.Get(core.FingerprintOf("response", string(r.ParentUUID)))
		if !ok || told.Input != counts.Input || told.CacheRead != counts.CacheRead || !calls.take("telemetry", told) {
			calls.leave("message", counts)
			break
		}
		calls.note("matched", id, counts)
		id = r.ParentUUID
	}
	w.Use(id, chat.Tokens{
		Input: s.input, CacheRead: s.cached, CacheInInput: true,
		Output: s.output, Reasoning: s.thoughts, ReasoningInOutput: !s.isApart(auth),
	})
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

// leave counts a statement of a side that has no counterpart yet, in Run.
func (m matcher) leave(side string, counts core.Consumption) {
	key := open(side, counts)
	c, _ := m.Get(key)
	c.Run++
	m.Put(key, c)
}

// take removes such a statement; it returns false if there is none.
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
