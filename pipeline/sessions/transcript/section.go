package transcript

import (
	"strings"
	"time"

	"tributary/envelopes"
	"tributary/pipeline/sessions"
)

// Section is a turn of the main conversation, or what a subagent did for one prompt. Its sums include those of the
// subagents below it.
type Section struct {
	Title    string                      `json:"title,omitzero"` // of a subagent: what its call is for
	Begin    time.Time                   `json:"begin,omitzero"`
	End      time.Time                   `json:"end,omitzero"`
	Items    int                         `json:"items"` // without noise
	Calls    int                         `json:"calls"`
	Failures int                         `json:"failures"`        // calls that failed
	Errors   int                         `json:"errors"`          // that the vendor reports
	Copied   bool                        `json:"copied,omitzero"` // its prompt is history of another session
	Models   map[string]*sessions.Billed `json:"models,omitempty"`
}

// Turn is what happened from a prompt to the next one. Turn 0 is before the first prompt.
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

// billed returns the tokens of a model, to add more.
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

// add adds the sums of a section below.
func (s *Section) add(o *Section) {
	s.Items += o.Items
	s.Calls += o.Calls
	s.Failures += o.Failures
	s.Errors += o.Errors
	for model, b := range o.Models {
		s.billed(model).Merge(b)
	}
}
