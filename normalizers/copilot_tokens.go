package normalizers

import (
	"cmp"

	"tributary/envelopes"
)

// Copilot tells its tokens up to three times (semantics.md section 3, vendor-formats.md
// section 7): the output of an API call with its message; since 1.0.95 all of a call in a
// record of its own, and from the first of those on the messages carry none; and at a
// clean exit the running total of the session, which adds what is missing.

// copilotFigures are the tokens of an API call, or of a model: input with what was read
// from and written to the cache, output with reasoning.
type copilotFigures struct {
	Model      text                      `json:"model"`
	Input      number                    `json:"inputTokens"`
	Output     number                    `json:"outputTokens"`
	CacheRead  number                    `json:"cacheReadTokens"`
	CacheWrite number                    `json:"cacheWriteTokens"`
	Reasoning  number                    `json:"reasoningTokens"`
	APICallID  text                      `json:"apiCallId"`
	Accounting object[copilotAccounting] `json:"accounting"`
}

type copilotAccounting struct {
	UsageID text `json:"usageId"`
}

// copilotMetrics is what the session has used of one model.
type copilotMetrics struct {
	Usage object[copilotFigures] `json:"usage"`
}

// consumption turns the figures into parts that do not overlap.
func (f *copilotFigures) consumption() consumption {
	input, output := f.Input.count(), f.Output.count()
	read := min(f.CacheRead.count(), input)
	written := min(f.CacheWrite.count(), input-read)
	return consumption{
		Input:      input - read - written,
		CacheRead:  read,
		CacheWrite: written,
		Output:     output,
		Reasoning:  min(f.Reasoning.count(), output),
	}
}

func copilotSlot(call string) fingerprint { return fingerprintOf("api", call) }

// chargeMessage puts the output that a message states of its API call on its i-th event,
// else on its first, where the session has no records of usage. A message without any
// event gets one for it.
func (c *copilotFold) chargeMessage(i int) {
	state := &c.s.Copilot
	call := boundID(string(cmp.Or(c.data.APICallID, c.data.MessageID, c.ID)))
	told, known := c.s.apiCalls.get(copilotSlot(call))
	output := c.data.OutputTokens.count()
	sum := state.Billed.plus(consumption{Output: output - told.Output})
	more := sum.Output - state.Billed.Output
	if state.Recorded || more <= 0 {
		return
	}
	if i < 0 {
		i = c.first
	}
	if i < 0 {
		if c.told && !known {
			return // a repeat of so long ago that its call is forgotten
		}
		id := c.ID
		if id != "" {
			id += "#usage"
		}
		d := draft{on: envelopes.ChannelSystem, identity: string(c.Data)}
		d.EventType, d.Model = envelopes.Meta, c.speaker()
		if !c.put(id, d) {
			return
		}
		i = c.first
	}
	told.Output = output
	if call != "" {
		c.s.apiCalls.put(copilotSlot(call), told)
	}
	state.Billed, state.Last = sum, output
	e := &c.events[i].Event
	e.Usage = &envelopes.Usage{Output: more, Key: call}
	e.TokensOutput, e.TokensTotal = &more, new(more)
}

// usage emits the record of an API call.
func (c *copilotFold) usage(f *copilotFigures) {
	d := draft{on: envelopes.ChannelSystem, identity: string(c.Data)}
	d.EventType = envelopes.Meta
	if d.Model = c.speaker(); isCopilotModel(f.Model) {
		d.Model = f.Model.ptr()
	}
	if !c.put(c.ID, d) {
		return
	}
	state := &c.s.Copilot
	key := boundID(string(cmp.Or(f.APICallID, c.data.APICallID, f.Accounting.value.UsageID)))
	now := f.consumption()
	told, known := c.s.apiCalls.get(copilotSlot(key))
	known = known && key != ""
	if !known {
		told = consumption{}
	}
	if !known && !state.Recorded && state.Last == now.Output {
		told.Output = state.Last // the message before it told this call
	}
	state.Recorded = true
	if key != "" {
		c.s.apiCalls.put(copilotSlot(key), told.raise(now))
	}
	c.charge(state.Billed.plus(now.minus(told)), key, f)
}

// shutdown emits the end of a run, with what the total of the session, over all of its
// runs, is above the sum so far.
func (c *copilotFold) shutdown() {
	c.runtime(envelopes.SessionSummary, "")
	if c.first < 0 {
		return
	}
	var total consumption
	var stated copilotFigures
	for _, m := range c.data.Metrics.value {
		f := &m.value.Usage.value
		total = total.plus(f.consumption())
		stated.CacheRead.ok = stated.CacheRead.ok || f.CacheRead.ok
		stated.Reasoning.ok = stated.Reasoning.ok || f.Reasoning.ok
	}
	c.charge(c.s.Copilot.Billed.raise(total), "", &stated)
	if reason := c.data.ErrorReason; c.data.ShutdownType == "error" || reason != "" {
		if c.ID != "" {
			c.ID += "#error"
		}
		c.fail(cmp.Or(c.data.ShutdownType, "error"), reason)
	}
}

// charge puts what the sum has grown by on the first event; a figure that is not stated
// is unknown.
func (c *copilotFold) charge(sum consumption, key string, stated *copilotFigures) {
	u := sum.usageSince(c.s.Copilot.Billed, key)
	c.s.Copilot.Billed = sum
	if u == nil {
		return
	}
	c.bill(u, func(e *envelopes.AgentEventV1) {
		e.TokensInput = new(u.Input + u.CacheRead + u.CacheWrite)
		e.TokensOutput = new(u.Output + u.Reasoning)
		if stated.CacheRead.ok {
			e.TokensCached = &u.CacheRead
		}
		if stated.Reasoning.ok || u.Reasoning > 0 {
			e.TokensThinking = &u.Reasoning
		}
	})
}
