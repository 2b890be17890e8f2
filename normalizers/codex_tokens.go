package normalizers

import (
	"strconv"

	"tributary/envelopes"
)

// codexUsage are token counts as Codex states them: input with what is cached, output
// with reasoning.
type codexUsage struct {
	Input      number `json:"input_tokens"`
	Cached     number `json:"cached_input_tokens"`
	CacheWrite number `json:"cache_write_input_tokens"`
	Output     number `json:"output_tokens"`
	Reasoning  number `json:"reasoning_output_tokens"`
}

// codexInfo is the body of a token_count.
type codexInfo struct {
	Total object[codexUsage] `json:"total_token_usage"`
	Last  object[codexUsage] `json:"last_token_usage"`
}

// codexTokens are the figures of a codexUsage.
type codexTokens [5]int64

func (u *codexUsage) tokens() codexTokens {
	return codexTokens{u.Input.count(), u.Cached.count(), u.CacheWrite.count(), u.Output.count(), u.Reasoning.count()}
}

func (t codexTokens) total() int64 { return t[0] + t[3] }

// consumption turns the figures into parts that do not overlap.
func (t codexTokens) consumption() consumption {
	cached := min(t[1], t[0])
	written := min(t[2], t[0]-cached)
	return consumption{
		Input:      t[0] - cached - written,
		CacheRead:  cached,
		CacheWrite: written,
		Output:     t[3],
		Reasoning:  min(t[4], t[3]),
	}
}

// tokenCount maps a token_count: what the running total has grown by (semantics.md
// section 3).
func (c *codexFold) tokenCount() SkipReason {
	if len(c.Info) > 0 && !isValue(c.Info) {
		return SkipHeartbeat
	}
	var info codexInfo
	readObject(c.Info, &info)
	if !info.Total.ok && !info.Last.ok {
		c.runtime(envelopes.Meta, "")
		return SkipDuplicate
	}
	st := c.st
	total, last := info.Total.value.tokens(), info.Last.value.tokens()
	pair := fingerprintOf("pair", codexKey(info.Total.ok, total), codexKey(info.Last.ok, last))
	_, seen := c.s.apiCalls.get(pair)
	if pair == st.Pair || st.Forked && seen {
		if info.Total.ok {
			st.Total = total
		}
		st.Pair = pair
		return SkipDuplicate
	}
	c.s.apiCalls.put(pair, consumption{})
	before := st.Total
	st.Pair = pair
	if info.Total.ok {
		st.Total = total
	}
	if c.copied {
		return SkipDuplicate // billed in the session that it is copied from
	}
	use := last
	inherited := st.Forked && info.Last.ok && before == (codexTokens{}) // goes on from a total of another file
	switch {
	case inherited:
	case info.Total.ok && total.total() >= before.total():
		for i := range use {
			use[i] = max(0, total[i]-before[i])
		}
	case info.Total.ok && !info.Last.ok:
		use = total
	}
	d := draft{on: envelopes.ChannelSystem}
	d.EventType, d.Model = envelopes.Meta, text(c.s.Model).ptr()
	c.put("", d)
	stated := info.Last.value
	if info.Total.ok {
		stated = info.Total.value
	}
	c.billTokens(use, &stated)
	return SkipDuplicate
}

// billTokens bills an increment on the first event of the record; a figure that is not
// stated is unknown.
func (c *codexFold) billTokens(use codexTokens, stated *codexUsage) {
	key := c.st.Turn
	if key == "" {
		key = "@" + strconv.FormatUint(c.s.Records, 10)
	}
	now := use.consumption()
	u := now.usageSince(consumption{}, key)
	if u == nil {
		return
	}
	c.bill(u, func(e *envelopes.AgentEventV1) {
		e.TokensInput = new(u.Input + u.CacheRead + u.CacheWrite)
		e.TokensOutput = new(u.Output + u.Reasoning)
		if stated.Cached.ok {
			e.TokensCached = &u.CacheRead
		}
		if stated.Reasoning.ok {
			e.TokensThinking = &u.Reasoning
		}
	})
}

func codexKey(ok bool, t codexTokens) string {
	if !ok {
		return ""
	}
	var b []byte
	for _, n := range t {
		b = append(strconv.AppendInt(b, n, 10), ',')
	}
	return string(b)
}
