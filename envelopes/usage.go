package envelopes

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
}

// Total returns the sum of the five parts.
func (u *Usage) Total() int64 {
	return u.Input + u.CacheRead + u.CacheWrite + u.Output + u.Reasoning
}
