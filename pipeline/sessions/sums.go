package sessions

import (
	"time"

	"tributary/envelopes"
)

// Sums are what the events of a part of a session, or of a row of statistics, add up to.
type Sums struct {
	Events    int64           `json:"n,omitzero"`
	Usage     envelopes.Usage `json:"u,omitzero"` // without a key
	Large     Large           `json:"w,omitzero"` // of it, that of large prompts
	Calls     int64           `json:"c,omitzero"` // each once, however many events it has
	Failures  int64           `json:"f,omitzero"` // calls that failed
	Errors    int64           `json:"e,omitzero"` // errors that the vendor reports
	Prompts   int64           `json:"p,omitzero"` // prompts of a human
	ActiveNS  int64           `json:"a,omitzero"` // active time in nanoseconds
	Latencies Latencies       `json:"l,omitzero"` // that vendors state
	Measured  Latencies       `json:"d,omitzero"` // of calls without one, from the call to its result
}

// Merge adds the sums of o.
func (s *Sums) Merge(o *Sums) {
	s.Events += o.Events
	s.Usage.Add(&o.Usage)
	s.Large.Merge(&o.Large)
	s.Calls += o.Calls
	s.Failures += o.Failures
	s.Errors += o.Errors
	s.Prompts += o.Prompts
	s.ActiveNS += o.ActiveNS
	s.Latencies.Merge(o.Latencies)
	s.Measured.Merge(o.Measured)
}

// Active returns the active time.
func (s *Sums) Active() time.Duration { return time.Duration(s.ActiveNS) }

// Billed returns what the API calls used.
func (s *Sums) Billed() Billed { return Billed{Usage: s.Usage, Large: s.Large} }
