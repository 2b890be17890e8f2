package envelopes

import "math"

// Usage is the consumption of one event in parts that never overlap, so that figures of
// different vendors can be added. On every event with tokens, TokensTotal is the sum of the
// five parts. Like all token counts the parts are increments, in tokens.
type Usage struct {
	Input      int64  `json:"input"` // uncached
	CacheRead  int64  `json:"cache_read"`
	CacheWrite int64  `json:"cache_write"`
	Output     int64  `json:"output"` // without reasoning
	Reasoning  int64  `json:"reasoning"`
	Key        string `json:"key,omitzero"` // the vendor's id of the API call

	// What a price depends on beside the parts. Prompt alone is no increment.

	CacheWrite1h      int64   `json:"cache_write_1h,omitzero"`      // part of CacheWrite: kept for an hour
	WebSearchRequests int64   `json:"web_search_requests,omitzero"` // searches that the vendor's server made
	Prompt            int64   `json:"prompt,omitzero"`              // size of the prompt of the API call, with what was cached
	CostUSD           float64 `json:"cost_usd,omitzero"`            // what the vendor states as the cost
}

// Add adds the increments of o, so that u is the sum of both. A sum has no key and no prompt.
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

// MaxCostUSD is more than any API call costs, and so little that it is a whole number of picodollars.
const MaxCostUSD = 9000

// picodollars of a dollar. Prices of a token are whole numbers of them.
const picodollars = 1e12

// AddUSD adds two amounts of dollars without the noise of binary fractions, so that sums do not depend on
// their order: each amount counts in whole picodollars.
func AddUSD(a, b float64) float64 {
	return (math.Round(a*picodollars) + math.Round(b*picodollars)) / picodollars
}

// Total returns the sum of the five parts.
func (u *Usage) Total() int64 {
	return u.Input + u.CacheRead + u.CacheWrite + u.Output + u.Reasoning
}

// KeyIsUnique reports whether the key of an event of this source is unique in the source, so
// that tokens of the same key in two sessions are the same tokens. A key that is absent,
// a position of a record, or a number of the session is not: its tokens always count. README.md,
// Sums over a fleet, has the rules.
func (u *Usage) KeyIsUnique(source Source) bool {
	return u.Key != "" && u.Key[0] != '@' && len(u.Key) > maxSessionKey[source]
}
