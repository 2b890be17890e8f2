package chat

import (
	"strconv"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// Tokens are the counts of an API call, under the vendor's names for them.
type Tokens struct {
	Input, CacheRead, CacheWrite, Output, Reasoning lenient.Number

	Several           bool // the counts are of several API calls, so that they state the size of no prompt
	CacheInInput      bool // Input includes the cache
	ReasoningInOutput bool // Output includes Reasoning

	CacheWrite1h lenient.Number // part of CacheWrite that is kept for an hour
	// Cost is what the vendor states, in US dollars.
	Cost lenient.Number
}

// consumption returns the counts in parts that do not overlap, but for the reasoning.
func (t *Tokens) consumption() core.Consumption {
	c := core.Consumption{
		Input: t.Input.Count(), CacheRead: t.CacheRead.Count(), CacheWrite: t.CacheWrite.Count(),
		Output: t.Output.Count(), Reasoning: t.Reasoning.Count(), Cost: core.CostOf(t.Cost),
		CacheWrite1h: min(t.CacheWrite1h.Count(), t.CacheWrite.Count()),
	}
	if t.CacheInInput {
		c.CacheRead = min(c.CacheRead, c.Input)
		c.CacheWrite = min(c.CacheWrite, c.Input-c.CacheRead)
		c.Input -= c.CacheRead + c.CacheWrite
	}
	if !t.ReasoningInOutput {
		c.Output += c.Reasoning
	}
	c.Reasoning = min(c.Reasoning, c.Output)
	return c
}

// set writes an increment under the vendor's names.
func (t *Tokens) set(e *envelopes.AgentEventV1) {
	input, output := e.Usage.Input, e.Usage.Output
	if t.CacheInInput {
		input += e.Usage.CacheRead + e.Usage.CacheWrite
	}
	if t.ReasoningInOutput {
		output += e.Usage.Reasoning
	}
	e.TokensInput, e.TokensOutput = &input, &output
	if t.CacheRead.OK {
		e.TokensCached = new(e.Usage.CacheRead)
	}
	if t.Reasoning.OK {
		e.TokensThinking = new(e.Usage.Reasoning)
	}
}

// Use adds the tokens of an API call to the first event of the record, or writes an event for them if it has none.
// call is the vendor's id of the API call: of counts stated several times the highest count. Without an id each
// statement is a call of its own. History of another session has no tokens, and what the other channel has billed is not
// billed again.
func (w *Writer) Use(call lenient.Text, t Tokens) {
	now := t.consumption()
	var before core.Consumption
	switch {
	case call != "":
		before = Billed(w.Session, call)
		now = before.Raise(now)
	case w.First < 0 && w.Duplicate:
		return // the record repeats an earlier one
	}
	u := now.UsageSince(before, string(call))
	if call != "" {
		w.Session.APICalls.Put(keyOf(call), now)
	}
	if u == nil || w.Copied || !w.leave(u) {
		return
	}
	if call != "" && !t.Several {
		u.Prompt = now.Prompt()
	}
	if w.First < 0 {
		w.put(w.usageID(), core.SystemDraft(envelopes.Meta, ""))
	}
	if w.First >= 0 { // the tokens are priced by the model, which a summary or a text of the runtime lacks
		if e := &w.Events[w.First].Event; e.Model == nil {
			e.Model = w.model()
		}
	}
	w.AddUsage(u, t.set)
}

// Billed returns what was billed of an API call of a session so far.
func Billed(s *core.Session, call lenient.Text) core.Consumption {
	billed, _ := s.APICalls.Get(keyOf(call))
	return billed
}

func keyOf(call lenient.Text) core.Fingerprint { return core.FingerprintOf("call", string(call)) }

// usageID returns the id of an event that only has tokens. Counts that grow do not replace earlier ones but add to
// them, so each gets an id of its own.
func (w *Writer) usageID() lenient.Text {
	if w.ID == "" {
		return ""
	}
	id := w.ID + "#usage"
	for n := 2; w.Session.HasEvent(string(id)); n++ {
		id = w.ID + lenient.Text("#usage"+strconv.Itoa(n))
	}
	return id
}
