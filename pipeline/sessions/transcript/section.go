package transcript

import (
	"strings"
	"time"

	"tributary/envelopes"
	"tributary/pipeline/sessions"
)

// Section is a turn of the main conversation, or the work of a subagent for one prompt. Its sums include the
// subagents below it.
type Section struct {
	Title    string                      `json:"title,omitzero"` // for a subagent, the purpose of its call
	Begin    time.Time                   `json:"begin,omitzero"`
	End      time.Time                   `json:"end,omitzero"`
	Items    int                         `json:"items"` // without noise
	Calls    int                         `json:"calls"`
	Failures int                         `json:"failures"`        // failed calls
	Errors   int                         `json:"errors"`          // errors reported by the vendor
	Copied   bool                        `json:"copied,omitzero"` // its prompt is history of another session
	Models   map[string]*sessions.Billed `json:"models,omitempty"`
}

// Turn is everything from a prompt to the next one. Turn 0 precedes the first prompt.
type Turn struct {
	Number int `json:"turn"`
	Section
}

// Usage returns the tokens of all models.
func (s *Section) Usage() envelopes.Usage {
	var sum envelopes.Usage
	for _, b := range s.Models {
		sum.Add(&b.Usage)
	}
	return sum
}

// billed returns the tokens of a model, for the caller to add to.
func (s *Section) billed(model string) *sessions.Billed {
	if s.Models == nil {
		s.Models = map[string]*sessions.Billed{}
	}
	if s.Models[model] == nil {
		s.Models[strings.Clone(model)] = &sessions.Billed{}
	}
	return s.Models[model]
}

// count counts an item n times.
func (s *Section) count(i *Item, n int) {
	if i.IsNoise() {
		return
	}
	s.Items += n
	switch {
	case i.Type == Error:
		s.Errors += n
	case i.Call != nil:
		s.Calls += n
		if i.Failed() {
			s.Failures += n
		}
	}
}

// add adds the sums of a section below s.
func (s *Section) add(o *Section) {
	s.Items += o.Items
	s.Calls += o.Calls
	s.Failures += o.Failures
	s.Errors += o.Errors
	for model, b := range o.Models {
		s.billed(model).Merge(b)
	}
}
