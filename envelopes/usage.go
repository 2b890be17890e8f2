package envelopes

// Usage is the consumption of one event in parts that never overlap, so that vendors
// can be added together. On every event that has tokens, TokensTotal is the sum of the
// five parts. Like all token counts of an event the figures are increments.
type Usage struct {
	Input      int64  `json:"input"` // without what was read from or written to a cache
	CacheRead  int64  `json:"cache_read"`
	CacheWrite int64  `json:"cache_write"`
	Output     int64  `json:"output"` // without reasoning
	Reasoning  int64  `json:"reasoning"`
	Key        string `json:"key,omitzero"` // the vendor's id of the API call
}

// Total is the sum of the five parts.
func (u *Usage) Total() int64 {
	return u.Input + u.CacheRead + u.CacheWrite + u.Output + u.Reasoning
}
