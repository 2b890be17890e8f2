package sessions

import "tributary/envelopes"

// PromptSizes are the sizes of a prompt above which API calls of some models have other prices.
var PromptSizes = [...]int64{128_000, 200_000, 272_000}

// Large are tokens of API calls with a prompt above one of [PromptSizes], and not above the next one.
type Large [len(PromptSizes)]envelopes.Usage

// Billed is what costs something: what API calls used, and of it what those with a large prompt used.
type Billed struct {
	envelopes.Usage
	Large Large `json:"large,omitzero"`
}

// Add adds what an event states.
func (t *Billed) Add(u *envelopes.Usage) {
	t.Usage.Add(u)
	t.Large.Add(u)
}

// Merge adds other tokens.
func (t *Billed) Merge(o *Billed) {
	t.Usage.Add(&o.Usage)
	t.Large.Merge(&o.Large)
}

// Add adds what an event states, if its prompt is large.
func (l *Large) Add(u *envelopes.Usage) {
	for i := len(PromptSizes) - 1; i >= 0; i-- {
		if u.Prompt > PromptSizes[i] {
			l[i].Add(u)
			return
		}
	}
}

// Merge adds other tokens.
func (l *Large) Merge(o *Large) {
	for i := range o {
		l[i].Add(&o[i])
	}
}

// Above returns the tokens of prompts above a size.
func (l *Large) Above(size int64) (sum envelopes.Usage) {
	for i := range PromptSizes {
		if PromptSizes[i] >= size {
			sum.Add(&l[i])
		}
	}
	return sum
}
