package copilot

import (
	"cmp"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// Copilot tells its tokens up to three times (semantics.md section 3, vendor-formats.md
// section 7): the output of an API call with its message; since 1.0.95 all of a call in a
// record of its own, and from the first of those on the messages carry none; and at a
// clean exit the running total of the session, which adds what is missing.

// figures are the tokens of an API call, or of a model: input with what was read
// from and written to the cache, output with reasoning.
type figures struct {
	Model      lenient.Text               `json:"model"`
	Input      lenient.Number             `json:"inputTokens"`
	Output     lenient.Number             `json:"outputTokens"`
	CacheRead  lenient.Number             `json:"cacheReadTokens"`
	CacheWrite lenient.Number             `json:"cacheWriteTokens"`
	Reasoning  lenient.Number             `json:"reasoningTokens"`
	APICallID  lenient.Text               `json:"apiCallId"`
	Accounting lenient.Object[accounting] `json:"accounting"`
}

type accounting struct {
	UsageID lenient.Text `json:"usageId"`
}

// metrics is what the session has used of one model.
type metrics struct {
	Usage lenient.Object[figures] `json:"usage"`
}

// consumption turns the figures into parts that do not overlap.
func (f *figures) consumption() core.Consumption {
	input, output := f.Input.Count(), f.Output.Count()
	read := min(f.CacheRead.Count(), input)
	written := min(f.CacheWrite.Count(), input-read)
	return core.Consumption{
		Input:      input - read - written,
		CacheRead:  read,
		CacheWrite: written,
		Output:     output,
		Reasoning:  min(f.Reasoning.Count(), output),
	}
}

func slot(call string) core.Fingerprint { return core.FingerprintOf("api", call) }

// chargeMessage puts the output that a message states of its API call on its i-th event,
// else on its first, where the session has no records of usage. A message without any
// event gets one for it.
func (c *mapper) chargeMessage(i int) {
	state := c.st
	call := core.BoundID(string(cmp.Or(c.data.APICallID, c.data.MessageID, c.ID)))
	told, known := c.Session.APICalls.Get(slot(call))
	output := c.data.OutputTokens.Count()
	sum := state.Billed.Plus(core.Consumption{Output: output - told.Output})
	more := sum.Output - state.Billed.Output
	if state.Recorded || more <= 0 {
		return
	}
	if i < 0 {
		i = c.First
	}
	if i < 0 {
		if c.Duplicate && !known {
			return // a repeat of so long ago that its call is forgotten
		}
		id := c.ID
		if id != "" {
			id += "#usage"
		}
		d := core.Draft{OnChannel: envelopes.ChannelSystem, Identity: string(c.Data)}
		d.EventType, d.Model = envelopes.Meta, c.speaker()
		if !c.put(id, d) {
			return
		}
		i = c.First
	}
	told.Output = output
	if call != "" {
		c.Session.APICalls.Put(slot(call), told)
	}
	state.Billed, state.Last = sum, output
	e := &c.Events[i].Event
	e.Usage = &envelopes.Usage{Output: more, Key: call}
	e.TokensOutput, e.TokensTotal = &more, new(more)
}

// usage emits the record of an API call.
func (c *mapper) usage(f *figures) {
	d := core.Draft{OnChannel: envelopes.ChannelSystem, Identity: string(c.Data)}
	d.EventType = envelopes.Meta
	if d.Model = c.speaker(); isModel(f.Model) {
		d.Model = f.Model.Ptr()
	}
	if !c.put(c.ID, d) {
		return
	}
	state := c.st
	key := core.BoundID(string(cmp.Or(f.APICallID, c.data.APICallID, f.Accounting.Value.UsageID)))
	now := f.consumption()
	told, known := c.Session.APICalls.Get(slot(key))
	known = known && key != ""
	if !known {
		told = core.Consumption{}
	}
	if !known && !state.Recorded && state.Last == now.Output {
		told.Output = state.Last // the message before it told this call
	}
	state.Recorded = true
	if key != "" {
		c.Session.APICalls.Put(slot(key), told.Raise(now))
	}
	c.charge(state.Billed.Plus(now.Minus(told)), key, f)
}

// shutdown emits the end of a run, with what the total of the session, over all of its
// runs, is above the sum so far.
func (c *mapper) shutdown() {
	c.runtime(envelopes.SessionSummary, "")
	if c.First < 0 {
		return
	}
	var total core.Consumption
	var stated figures
	for _, m := range c.data.Metrics.Value {
		f := &m.Value.Usage.Value
		total = total.Plus(f.consumption())
		stated.CacheRead.OK = stated.CacheRead.OK || f.CacheRead.OK
		stated.Reasoning.OK = stated.Reasoning.OK || f.Reasoning.OK
	}
	c.charge(c.st.Billed.Raise(total), "", &stated)
	if reason := c.data.ErrorReason; c.data.ShutdownType == "error" || reason != "" {
		if c.ID != "" {
			c.ID += "#error"
		}
		c.fail(cmp.Or(c.data.ShutdownType, "error"), reason)
	}
}

// charge puts what the sum has grown by on the first event; a figure that is not stated
// is unknown.
func (c *mapper) charge(sum core.Consumption, key string, stated *figures) {
	u := sum.UsageSince(c.st.Billed, key)
	c.st.Billed = sum
	if u == nil {
		return
	}
	c.AddUsage(u, func(e *envelopes.AgentEventV1) {
		e.TokensInput = new(u.Input + u.CacheRead + u.CacheWrite)
		e.TokensOutput = new(u.Output + u.Reasoning)
		if stated.CacheRead.OK {
			e.TokensCached = &u.CacheRead
		}
		if stated.Reasoning.OK || u.Reasoning > 0 {
			e.TokensThinking = &u.Reasoning
		}
	})
}
