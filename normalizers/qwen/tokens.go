package qwen

import (
	"tributary/normalizers/chat"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
	"tributary/normalizers/otlp"
)

// isApart reports whether the output of an API call excludes its thoughts, as the total shows, else the protocol of the
// provider.
func isApart(c otlp.Counts, auth lenient.Text) bool {
	if total := c.Total.Count(); total > 0 {
		return total == c.Input.Count()+c.Output.Count()+c.Thoughts.Count()
	}
	return auth != "" && auth != "openai" && auth != "qwen-oauth"
}

// tokensOf returns the tokens of an API call.
func tokensOf(c otlp.Counts, auth lenient.Text) chat.Tokens {
	return chat.Tokens{
		Input: c.Input, CacheRead: c.Cached, CacheInInput: true,
		Output: c.Output, Reasoning: c.Thoughts, ReasoningInOutput: !isApart(c, auth),
	}
}

// bill writes the tokens of an API call. auth is empty for a message.
//
// The telemetry and the message of a call both state it, in either order, those of a subagent in two files. A statement
// is matched with an unmatched statement of the other side that has the same counts. A message directly behind
// telemetry with the same input is also the same call, and raises its output. The id of a response identifies no call,
// because some providers repeat it.
func bill(w *chat.Writer, r *record, c otlp.Counts, auth lenient.Text) {
	if w.Copied || w.First < 0 && w.Duplicate {
		return
	}
	side, other := "message", "telemetry"
	if r.Type == "system" {
		side, other = other, side
	}
	// The total is left out, because old versions omit it.
	counts := core.Consumption{Input: c.Input.Count(), CacheRead: c.Cached.Count(), Output: c.Output.Count(), Reasoning: c.Thoughts.Count()}
	id, calls := r.UUID, pairs{&w.Session.APICalls}
	_, isMatched := calls.noted("matched", id)
	_, isCall := calls.noted("call", id)
	stated, isAnswer := calls.noted("response", r.ParentUUID)
	isAnswer = isAnswer && side == "message" && stated.Input == counts.Input && stated.CacheRead == counts.CacheRead
	switch {
	case isMatched:
		return
	case isCall: // the message states its call again
	case calls.take(other, counts):
		calls.note("matched", id, counts)
		return
	case isAnswer && calls.take(other, stated):
		calls.note("matched", id, counts)
		id = r.ParentUUID
	default:
		if calls.leave(side, counts); side == "telemetry" && w.Agent == "" {
			calls.note("response", id, counts)
		}
	}
	w.Use(id, tokensOf(c, auth))
}
