package sessions

import "tributary/envelopes"

// PromptSizes are prompt sizes in tokens above which API calls of some models cost more.
var PromptSizes = [...]int64{128_000, 200_000, 272_000}

// Large has the tokens of API calls by prompt size: above one of [PromptSizes], up to the next one.
type Large [len(PromptSizes)]envelopes.Usage

// Billed is what costs something: the use of all API calls, and the part of those with large prompts.
type Billed struct {
	envelopes.Usage
	Large Large `json:"large,omitzero"`
}

// Add adds the use stated in an event.
func (t *Billed) Add(u *envelopes.Usage) {
	t.Usage.Add(u)
	t.Large.Add(u)
}

// Merge adds other tokens.
func (t *Billed) Merge(o *Billed) {
	t.Usage.Add(&o.Usage)
	t.Large.Merge(&o.Large)
}

// Add adds the use stated in an event if its prompt is large.
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

// Above returns the tokens of prompts larger than size.
func (l *Large) Above(size int64) (sum envelopes.Usage) {
	for i := range PromptSizes {
		if PromptSizes[i] >= size {
			sum.Add(&l[i])
		}
	}
	return sum
}
