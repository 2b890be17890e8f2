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

// KeyIsUnique reports whether the key of an event of this source is unique in the source, so
// that tokens of the same key in two sessions are the same tokens. A key that is absent,
// a position of a record, or a number of the session is not: its tokens always count. README.md,
// Sums over a fleet, has the rules.
func (u *Usage) KeyIsUnique(source Source) bool {
	return u.Key != "" && u.Key[0] != '@' && len(u.Key) > maxSessionKey[source]
}
