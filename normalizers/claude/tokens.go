package claude

import (
	"cmp"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// usage are the token figures of a message, or of a run in its result (README.md, Tokens).
type usage struct {
	Input         lenient.Number                `json:"input_tokens"`
	Output        lenient.Number                `json:"output_tokens"`
	CacheRead     lenient.Number                `json:"cache_read_input_tokens"`
	CacheWrite    lenient.Number                `json:"cache_creation_input_tokens"`
	CacheCreation lenient.Object[cacheCreation] `json:"cache_creation"`
	OutputDetails lenient.Object[outputDetails] `json:"output_tokens_details"`
}

type cacheCreation struct {
	FiveMinutes lenient.Number `json:"ephemeral_5m_input_tokens"`
	OneHour     lenient.Number `json:"ephemeral_1h_input_tokens"`
}

type outputDetails struct {
	Thinking lenient.Number `json:"thinking_tokens"`
}

// consumption returns the figures in the form in which a session remembers them.
func (u *usage) consumption() core.Consumption {
	figures := core.Consumption{
		Input:      u.Input.Count(),
		CacheRead:  u.CacheRead.Count(),
		CacheWrite: u.CacheWrite.Count(),
		Output:     u.Output.Count(),
	}
	if !u.CacheWrite.OK {
		figures.CacheWrite = u.CacheCreation.Value.FiveMinutes.Count() + u.CacheCreation.Value.OneHour.Count()
	}
	figures.Reasoning = min(u.OutputDetails.Value.Thinking.Count(), figures.Output)
	return figures
}

// usageIncrement returns the tokens that the message of the record adds to the session;
// nil for none. Figures without an id of their API call count with the first record only.
func (c *mapper) usageIncrement() *envelopes.Usage {
	call := string(cmp.Or(c.Message.Value.ID, c.RequestID))
	if !c.Message.Value.Usage.OK || call == "" && c.Duplicate || c.copied {
		return nil
	}
	return c.increment(call, c.Message.Value.Usage.Value.consumption())
}

// increment returns what the figures of an API call are above the highest ones that its
// thread has stated; nil for nothing. Calls of the main conversation count for their run,
// too, and what the result of the run has carried already is deducted.
func (e *emitter) increment(call string, figures core.Consumption) *envelopes.Usage {
	var before core.Consumption
	slot := core.FingerprintOf(string(e.thread[:]), call)
	if call != "" {
		before, _ = e.Session.APICalls.Get(slot)
	}
	now := before.Raise(figures)
	u := now.UsageSince(before, call)
	if u == nil {
		u = new(envelopes.Usage)
	}
	if !e.internal {
		now.Run = e.st.Runs.addCall(u, before, now, e.streamed)
	}
	if call != "" && now != before {
		e.Session.APICalls.Put(slot, now)
	}
	if u.Total() == 0 {
		return nil
	}
	return u
}

// vendorFigures returns a function that sets the vendor's own figures of an increment.
// Thinking tokens are set where the vendor states them.
func vendorFigures(u *envelopes.Usage, thinking bool) func(*envelopes.AgentEventV1) {
	return func(e *envelopes.AgentEventV1) {
		e.TokensInput = &u.Input
		e.TokensOutput = new(u.Output + u.Reasoning)
		e.TokensCached = &u.CacheRead
		if thinking {
			e.TokensThinking = &u.Reasoning
		}
	}
}
