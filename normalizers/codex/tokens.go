package codex

import (
	"strconv"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// usage holds token counts as Codex states them: input includes what is cached, output
// includes reasoning.
type usage struct {
	Input      lenient.Number `json:"input_tokens"`
	Cached     lenient.Number `json:"cached_input_tokens"`
	CacheWrite lenient.Number `json:"cache_write_input_tokens"`
	Output     lenient.Number `json:"output_tokens"`
	Reasoning  lenient.Number `json:"reasoning_output_tokens"`
}

// tokenInfo is the info of a token_count.
type tokenInfo struct {
	Total lenient.Object[usage] `json:"total_token_usage"`
	Last  lenient.Object[usage] `json:"last_token_usage"`
}

// stated returns the figures that the record states: the total, where it has one.
func (i *tokenInfo) stated() *usage {
	if i.Total.OK {
		return &i.Total.Value
	}
	return &i.Last.Value
}

// pair identifies the two figures together: a token_count that is written again has the same.
func (i *tokenInfo) pair() core.Fingerprint {
	key := func(u *lenient.Object[usage]) string {
		if !u.OK {
			return ""
		}
		var b []byte
		for _, n := range u.Value.tokens() {
			b = append(strconv.AppendInt(b, n, 10), ',')
		}
		return string(b)
	}
	return core.FingerprintOf("pair", key(&i.Total), key(&i.Last))
}

// tokens are the figures of a usage, at the indices below.
type tokens [5]int64

const (
	inputTokens = iota
	cachedTokens
	cacheWriteTokens
	outputTokens
	reasoningTokens
)

func (u *usage) tokens() tokens {
	return tokens{
		inputTokens:      u.Input.Count(),
		cachedTokens:     u.Cached.Count(),
		cacheWriteTokens: u.CacheWrite.Count(),
		outputTokens:     u.Output.Count(),
		reasoningTokens:  u.Reasoning.Count(),
	}
}

func (t tokens) total() int64 { return t[inputTokens] + t[outputTokens] }

// since returns what t has above before, of no figure below zero.
func (t tokens) since(before tokens) tokens {
	for i := range t {
		t[i] = max(0, t[i]-before[i])
	}
	return t
}

// consumption turns the figures into parts that do not overlap.
func (t tokens) consumption() core.Consumption {
	cached := min(t[cachedTokens], t[inputTokens])
	written := min(t[cacheWriteTokens], t[inputTokens]-cached)
	return core.Consumption{
		Input:      t[inputTokens] - cached - written,
		CacheRead:  cached,
		CacheWrite: written,
		Output:     t[outputTokens],
		Reasoning:  min(t[reasoningTokens], t[outputTokens]),
	}
}

// tokenCount emits the increment that a token_count states (README.md, Tokens).
func (m *mapper) tokenCount() {
	if len(m.Info) > 0 && !lenient.IsValue(m.Info) {
		m.skip = core.SkipHeartbeat
		return
	}
	var info tokenInfo
	lenient.ReadObject(m.Info, &info)
	if !info.Total.OK && !info.Last.OK {
		m.putSystem(envelopes.Meta, "")
		return
	}
	use, repeated := m.count(&info)
	if repeated || m.copied { // a copy is billed in the session that it comes from
		m.skip = core.SkipDuplicate
		return
	}
	d := core.SystemDraft(envelopes.Meta, "")
	d.Model = m.model()
	m.put("", d)
	m.bill(use, info.stated())
}

// count notes the figures of a token_count, and returns what they add, or that they repeat
// earlier ones. A file with copied history repeats pairs that are not the last one, too.
func (m *mapper) count(info *tokenInfo) (use tokens, repeated bool) {
	st := m.st
	pair := info.pair()
	_, seen := m.Session.APICalls.Get(pair)
	repeated = pair == st.Pair || st.Forked && seen
	before := st.Total
	st.Pair = pair
	if info.Total.OK {
		st.Total = info.Total.Value.tokens()
	}
	if repeated {
		return tokens{}, true
	}
	m.Session.APICalls.Put(pair, core.Consumption{})
	return info.increment(before, st.Forked), false
}

// increment returns what a token_count adds to the total before it: what the total has grown
// by; where the total falls, as after a compaction or a resumption, last_token_usage.
func (i *tokenInfo) increment(before tokens, forked bool) tokens {
	total, last := i.Total.Value.tokens(), i.Last.Value.tokens()
	switch {
	case forked && i.Last.OK && before == tokens{}:
		return last // the total goes on from that of another file
	case i.Total.OK && total.total() >= before.total():
		return total.since(before)
	case i.Total.OK && !i.Last.OK:
		return total
	default:
		return last
	}
}

// bill puts an increment on the first event of the record. Figures that are not stated are
// unknown, not zero.
func (m *mapper) bill(use tokens, stated *usage) {
	key := m.st.TurnID
	if key == "" {
		key = "@" + strconv.FormatUint(m.Session.Records, 10)
	}
	now := use.consumption()
	u := now.UsageSince(core.Consumption{}, key)
	if u == nil {
		return
	}
	m.AddUsage(u, func(e *envelopes.AgentEventV1) {
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
