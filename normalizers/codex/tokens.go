package codex

import (
	"cmp"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// usage has token counts as Codex states them: input includes cached tokens, output includes reasoning.
type usage struct {
	Input      lenient.Number `json:"input_tokens"`
	Cached     lenient.Number `json:"cached_input_tokens"`
	CacheRead  lenient.Number `json:"cache_read_input_tokens"` // another name of cached_input_tokens
	CacheWrite lenient.Number `json:"cache_write_input_tokens"`
	Output     lenient.Number `json:"output_tokens"`
	Reasoning  lenient.Number `json:"reasoning_output_tokens"`

	usageBeside
}

// cached returns the cached part of the input, by either name.
func (u *usage) cached() lenient.Number {
	if u.Cached.OK {
		return u.Cached
	}
	return u.CacheRead
}

// readable reports whether the counts are valid: input and output are present, and none is below zero.
func (u *usage) readable() bool {
	for _, n := range []lenient.Number{u.Input, u.Cached, u.CacheRead, u.CacheWrite, u.Output, u.Reasoning} {
		if n.Value < 0 || n.Value > lenient.MaxCount {
			return false
		}
	}
	return u.Input.OK && u.Output.OK
}

// tokenInfo is the info of a token_count.
type tokenInfo struct {
	Total lenient.Object[usage] `json:"total_token_usage"`
	Last  lenient.Object[usage] `json:"last_token_usage"`

	infoBeside
}

// readTokenInfo reads the info of a token_count. It returns false if the info has neither a readable total nor an
// increment instead.
func readTokenInfo(v jsontext.Value) (info tokenInfo, ok bool) {
	lenient.ReadObject(v, &info)
	var stated struct {
		Total jsontext.Value `json:"total_token_usage"`
	}
	lenient.ReadObject(v, &stated)
	info.Last.OK = info.Last.OK && info.Last.Value.readable()
	if lenient.IsValue(stated.Total) {
		return info, info.Total.OK && info.Total.Value.readable()
	}
	return info, info.Last.OK
}

// stated returns the counts that the record states: the total, if it has one.
func (i *tokenInfo) stated() *usage {
	if i.Total.OK {
		return &i.Total.Value
	}
	return &i.Last.Value
}

// prompt returns the size of the prompt of the API call with these tokens; 0 if the record has those of several
// calls.
func (i *tokenInfo) prompt(use tokens) int64 {
	if last := i.Last.Value.tokens(); i.Last.OK && use == last {
		return last[inputTokens]
	}
	return 0
}

// pair identifies both counts together, which are the same in a repeated token_count. of is the session of the total.
func (i *tokenInfo) pair(of string) core.Fingerprint {
	return core.FingerprintOf("pair", of, i.key())
}

// key returns both counts as a string.
func (i *tokenInfo) key() string {
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
	return key(&i.Total) + ";" + key(&i.Last)
}

// tokens are the counts of a usage, at the indices below.
type tokens [5]int64

const (
	inputTokens = iota
	cachedTokens
	cacheWriteTokens
	outputTokens
	reasoningTokens
)

func (u *usage) tokens() tokens {
	cached := u.cached()
	return tokens{
		inputTokens:      u.Input.Count(),
		cachedTokens:     cached.Count(),
		cacheWriteTokens: u.CacheWrite.Count(),
		outputTokens:     u.Output.Count(),
		reasoningTokens:  u.Reasoning.Count(),
	}
}

func (t tokens) total() int64 { return t[inputTokens] + t[outputTokens] }

// since returns what t has above before, at least zero for each count.
func (t tokens) since(before tokens) tokens {
	for i := range t {
		t[i] = max(0, t[i]-before[i])
	}
	return t
}

// plus returns the sum of t and u.
func (t tokens) plus(u tokens) tokens {
	for i := range t {
		t[i] += u[i]
	}
	return t
}

// minus returns what t has above u; counts may be below zero.
func (t tokens) minus(u tokens) tokens {
	for i := range t {
		t[i] -= u[i]
	}
	return t
}

// above returns the counts of t with negative ones set to zero.
func (t tokens) above() tokens { return t.since(tokens{}) }

// consumption converts the counts to parts that do not overlap.
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

// totals are the running total of the file, and what the two kinds of records with tokens have billed.
type totals struct {
	Total   tokens       `json:"total,omitzero"`   // last running total
	Counted string       `json:"counted,omitzero"` // id of the last session of the file that began its own total
	Ahead   tokens       `json:"ahead,omitzero"`   // what token_usage_records of the turn have above its token_counts
	Review  bool         `json:"review,omitzero"`  // a review is in progress
	Outer   tokens       `json:"outer,omitzero"`   // running total before the review
	Sent    core.Balance `json:"sent,omitzero"`    // of the telemetry
}

// logged returns what the telemetry has not billed of tokens that the rollout would bill.
func (t *totals) logged(use tokens) tokens { return use.fresh(t.Sent.Logged) }

// exported returns what the rollout has not billed of tokens that the telemetry states.
func (t *totals) exported(use tokens) tokens { return use.fresh(t.Sent.Exported) }

// fresh returns what a balance leaves of the counts. Old telemetry does not state what is written to a cache, so that
// is a part of the uncached input.
func (t tokens) fresh(balance func([5]int64) [5]int64) tokens {
	cached, reasoning := min(t[cachedTokens], t[inputTokens]), min(t[reasoningTokens], t[outputTokens])
	all := [5]int64{t[inputTokens] - cached, cached, 0, t[outputTokens] - reasoning, reasoning}
	left := balance(all)
	if left == all {
		return t
	}
	return tokens{
		inputTokens:      left[0] + left[1],
		cachedTokens:     left[1],
		cacheWriteTokens: min(t[cacheWriteTokens], left[0]),
		outputTokens:     left[3] + left[4],
		reasoningTokens:  left[4],
	}
}

// count notes the counts of a token_count, and returns what they add, or whether they repeat earlier ones: the last
// pair, one from before a review, or one from copied history. forked means that the file continues another one.
func (t *totals) count(info *tokenInfo, forked bool, pairs *core.Memory[core.Consumption]) (use tokens, repeated bool) {
	pair := info.pair(t.Counted)
	_, repeated = pairs.Get(pair)
	before := t.Total
	if info.Total.OK {
		t.Total = info.Total.Value.tokens()
	}
	if repeated {
		return tokens{}, true
	}
	pairs.Put(pair, core.Consumption{})
	return info.increment(before, forked), false
}

// enterReview notes that a review begins, which has a total of its own.
func (t *totals) enterReview() {
	if !t.Review {
		t.Review, t.Outer = true, t.Total
	}
}

// exitReview notes that the review ends, so the previous total continues.
func (t *totals) exitReview() {
	if !t.Review {
		return
	}
	if t.Total.total() < t.Outer.total() {
		t.Total = t.Outer
	}
	t.Review, t.Outer = false, tokens{}
}

// tokenCount emits the increment stated in a token_count (README.md, Tokens).
func tokenCount(m *mapper) {
	if len(m.Info) > 0 && !lenient.IsValue(m.Info) {
		m.skip = core.SkipHeartbeat
		return
	}
	info, ok := readTokenInfo(m.Info)
	noteInfo(m.Builder, &info)
	if !ok {
		m.putUsage(tokens{}, tokens{}, info.stated(), "", 0)
		return
	}
	m.endOpenCopy()
	use, repeated := m.st.count(&info, m.st.Forked, &m.Session.APICalls)
	if repeated || m.copied { // a copy is billed in its original session
		m.skip = core.SkipDuplicate
		return
	}
	fresh := use.since(m.st.Ahead.above())
	m.st.Ahead = m.st.Ahead.minus(use)
	m.putUsage(use, fresh, info.stated(), "", info.prompt(use))
}

// usageRecord emits the tokens of one API response, stated in a token_usage_record. A token_count beside it states
// the same tokens, and only one of the two is billed: Ahead is what the records of the turn have above its
// token_counts, below zero if they have less.
func usageRecord(m *mapper) {
	st := m.st
	info := tokenInfo{Total: m.ThreadUsage, Last: m.Usage}
	noteInfo(m.Builder, &info)
	info.Total.OK = info.Total.OK && info.Total.Value.readable()
	info.Last.OK = info.Last.OK && info.Last.Value.readable()
	if !info.Total.OK && !info.Last.OK {
		m.putUsage(tokens{}, tokens{}, info.stated(), "", 0)
		return
	}
	m.endOpenCopy()
	foreign := m.ThreadID != "" && st.MetaID != "" && string(m.ThreadID) != st.MetaID
	if m.copied || foreign || repeatsResponse(m, &info) {
		m.skip = core.SkipDuplicate
		return
	}
	var use tokens
	if info.Last.OK {
		use = info.Last.Value.tokens()
	} else { // the total of the thread alone counts like that of a token_count
		use = info.increment(st.Total, false)
		st.Total = info.Total.Value.tokens()
		m.putUsage(use, use, info.stated(), m.ResponseID, 0)
		return
	}
	fresh := use.since(tokens{}.minus(st.Ahead).above())
	st.Ahead = st.Ahead.plus(use)
	m.putUsage(use, fresh, &info.Last.Value, m.ResponseID, info.prompt(use))
}

// repeatsResponse notes the response of a token_usage_record, and reports whether the session already has its tokens.
func repeatsResponse(m *mapper, info *tokenInfo) bool {
	key := core.FingerprintOf("response", string(m.ResponseID))
	if m.ResponseID == "" {
		if !info.Total.OK {
			return false
		}
		key = core.FingerprintOf("thread", string(m.ThreadID), info.key())
	}
	_, seen := m.Session.APICalls.Get(key)
	m.Session.APICalls.Put(key, core.Consumption{})
	return seen
}

// putUsage emits a meta event with the tokens that no other record of the turn, nor the telemetry, has stated. If another one has stated
// all of them, the record is skipped.
func (e *emitter) putUsage(use, fresh tokens, stated *usage, key lenient.Text, prompt int64) {
	fresh = e.st.logged(fresh)
	if fresh == (tokens{}) && use != fresh {
		e.skip = core.SkipMirror
		return
	}
	d := core.SystemDraft(envelopes.Meta, "")
	d.Model = e.model()
	e.put("", d)
	e.bill(fresh, stated, string(key), prompt)
}

// increment returns what a token_count adds to the previous total: the growth of the total, or, if the total falls,
// as after a compaction or resumption, last_token_usage.
func (i *tokenInfo) increment(before tokens, forked bool) tokens {
	total, last := i.Total.Value.tokens(), i.Last.Value.tokens()
	switch {
	case forked && i.Last.OK && before == tokens{}:
		return last // the total continues that of another file
	case i.Total.OK && total.total() >= before.total():
		return total.since(before)
	case i.Total.OK && !i.Last.OK:
		return total
	default:
		return last
	}
}

// bill puts an increment on the first event of the record. Counts that are not stated are unknown, not zero. The key
// is the id of the response, else of the turn, else of the record. prompt is 0 if the tokens are those of several API
// calls.
func (e *emitter) bill(use tokens, stated *usage, response string, prompt int64) {
	key := cmp.Or(response, e.st.TurnID)
	if key == "" {
		key = "@" + strconv.FormatUint(e.Session.Records, 10)
	}
	now := use.consumption()
	u := now.UsageSince(core.Consumption{}, key)
	if u == nil {
		return
	}
	u.Prompt = prompt
	e.AddUsage(u, func(ev *envelopes.AgentEventV1) {
		ev.TokensInput = new(u.Input + u.CacheRead + u.CacheWrite)
		ev.TokensOutput = new(u.Output + u.Reasoning)
		if stated.cached().OK {
			ev.TokensCached = &u.CacheRead
		}
		if stated.Reasoning.OK {
			ev.TokensThinking = &u.Reasoning
		}
	})
}
