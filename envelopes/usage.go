package envelopes

import "math"

// Usage is the consumption of one event in parts that never overlap, so that numbers of different vendors can be
// added. On every event with tokens, TokensTotal is the sum of the five parts. The parts are increments, in tokens.
type Usage struct {
	Input      int64  `json:"input"` // uncached
	CacheRead  int64  `json:"cache_read"`
	CacheWrite int64  `json:"cache_write"`
	Output     int64  `json:"output"` // without reasoning
	Reasoning  int64  `json:"reasoning"`
	Key        string `json:"key,omitzero"` // vendor's id of the API call

	// Further facts that prices depend on. Only Prompt is not an increment.

	CacheWrite1h      int64   `json:"cache_write_1h,omitzero"`      // part of CacheWrite that is kept for an hour
	WebSearchRequests int64   `json:"web_search_requests,omitzero"` // searches by the vendor's server
	Prompt            int64   `json:"prompt,omitzero"`              // size of the API call's prompt, including cached tokens
	CostUSD           float64 `json:"cost_usd,omitzero"`            // cost stated by the vendor
}

// Add adds the increments of o to u. The sum has no key and no prompt.
func (u *Usage) Add(o *Usage) {
	u.Input += o.Input
	u.CacheRead += o.CacheRead
	u.CacheWrite += o.CacheWrite
	u.Output += o.Output
	u.Reasoning += o.Reasoning
	u.CacheWrite1h += o.CacheWrite1h
	u.WebSearchRequests += o.WebSearchRequests
	u.CostUSD = AddUSD(u.CostUSD, o.CostUSD)
}

// MaxCostUSD exceeds the cost of any API call, and is exact in picodollars.
const MaxCostUSD = 9000

// picodollars is the number of picodollars in a dollar. Token prices are whole picodollars.
const picodollars = 1e12

// AddUSD adds two amounts of dollars, each rounded to picodollars, so that sums do not depend on their order.
func AddUSD(a, b float64) float64 {
	return (math.Round(a*picodollars) + math.Round(b*picodollars)) / picodollars
}

// Total returns the sum of the five parts.
func (u *Usage) Total() int64 {
	return u.Input + u.CacheRead + u.CacheWrite + u.Output + u.Reasoning
}

// KeyIsUnique reports whether the key of an event of this source is unique in the source, so that equal keys in two
// sessions mean the same tokens. It is not if the key is absent, a position of a record, or a number of the session:
// such tokens always count. README.md, Sums over a fleet, has the rules.
func (u *Usage) KeyIsUnique(source Source) bool {
	return u.Key != "" && u.Key[0] != '@' && len(u.Key) > maxSessionKey[source]
}
