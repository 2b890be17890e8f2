package codex

import (
	"strconv"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// usage are token counts as Codex states them: input with what is cached, output
// with reasoning.
type usage struct {
	Input      lenient.Number `json:"input_tokens"`
	Cached     lenient.Number `json:"cached_input_tokens"`
	CacheWrite lenient.Number `json:"cache_write_input_tokens"`
	Output     lenient.Number `json:"output_tokens"`
	Reasoning  lenient.Number `json:"reasoning_output_tokens"`
}

// info is the body of a token_count.
type info struct {
	Total lenient.Object[usage] `json:"total_token_usage"`
	Last  lenient.Object[usage] `json:"last_token_usage"`
}

// tokens are the figures of a codexUsage.
type tokens [5]int64

func (u *usage) tokens() tokens {
	return tokens{u.Input.Count(), u.Cached.Count(), u.CacheWrite.Count(), u.Output.Count(), u.Reasoning.Count()}
}

func (t tokens) total() int64 { return t[0] + t[3] }

// consumption turns the figures into parts that do not overlap.
func (t tokens) consumption() core.Consumption {
	cached := min(t[1], t[0])
	written := min(t[2], t[0]-cached)
	return core.Consumption{
		Input:      t[0] - cached - written,
		CacheRead:  cached,
		CacheWrite: written,
		Output:     t[3],
		Reasoning:  min(t[4], t[3]),
	}
}

// tokenCount maps a token_count: what the running total has grown by (semantics.md
// section 3).
func (c *mapper) tokenCount() core.SkipReason {
	if len(c.Info) > 0 && !lenient.IsValue(c.Info) {
		return core.SkipHeartbeat
	}
	var info info
	lenient.ReadObject(c.Info, &info)
	if !info.Total.OK && !info.Last.OK {
		c.runtime(envelopes.Meta, "")
		return core.SkipDuplicate
	}
	st := c.st
	total, last := info.Total.Value.tokens(), info.Last.Value.tokens()
	pair := core.FingerprintOf("pair", key(info.Total.OK, total), key(info.Last.OK, last))
	_, seen := c.Session.APICalls.Get(pair)
	if pair == st.Pair || st.Forked && seen {
		if info.Total.OK {
			st.Total = total
		}
		st.Pair = pair
		return core.SkipDuplicate
	}
	c.Session.APICalls.Put(pair, core.Consumption{})
	before := st.Total
	st.Pair = pair
	if info.Total.OK {
		st.Total = total
	}
	if c.copied {
		return core.SkipDuplicate // billed in the session that it is copied from
	}
	use := last
	inherited := st.Forked && info.Last.OK && before == (tokens{}) // goes on from a total of another file
	switch {
	case inherited:
	case info.Total.OK && total.total() >= before.total():
		for i := range use {
			use[i] = max(0, total[i]-before[i])
		}
	case info.Total.OK && !info.Last.OK:
		use = total
	}
	d := core.Draft{OnChannel: envelopes.ChannelSystem}
	d.EventType, d.Model = envelopes.Meta, lenient.Text(c.Session.Model).Ptr()
	c.put("", d)
	stated := info.Last.Value
	if info.Total.OK {
		stated = info.Total.Value
	}
	c.billTokens(use, &stated)
	return core.SkipDuplicate
}

// billTokens bills an increment on the first event of the record; a figure that is not
// stated is unknown.
func (c *mapper) billTokens(use tokens, stated *usage) {
	key := c.st.Turn
	if key == "" {
		key = "@" + strconv.FormatUint(c.Session.Records, 10)
	}
	now := use.consumption()
	u := now.UsageSince(core.Consumption{}, key)
	if u == nil {
		return
	}
	c.AddUsage(u, func(e *envelopes.AgentEventV1) {
		e.TokensInput = new(u.Input + u.CacheRead + u.CacheWrite)
		e.TokensOutput = new(u.Output + u.Reasoning)
		if stated.Cached.OK {
			e.TokensCached = &u.CacheRead
		}
		if stated.Reasoning.OK {
			e.TokensThinking = &u.Reasoning
		}
	})
}

func key(ok bool, t tokens) string {
	if !ok {
		return ""
	}
	var b []byte
	for _, n := range t {
		b = append(strconv.AppendInt(b, n, 10), ',')
	}
	return string(b)
}
