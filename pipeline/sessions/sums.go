package sessions

import (
	"time"

	"tributary/envelopes"
)

// Sums are the sums over the events of a part of a session, or of a row of statistics.
type Sums struct {
	Events    int64           `json:"n,omitzero"`
	Usage     envelopes.Usage `json:"u,omitzero"` // without a key
	Large     Large           `json:"w,omitzero"` // of Usage, the part of large prompts
	Calls     int64           `json:"c,omitzero"` // each counts once, however many events it has
	Failures  int64           `json:"f,omitzero"` // failed calls
	Errors    int64           `json:"e,omitzero"` // errors reported by the vendor
	Prompts   int64           `json:"p,omitzero"` // human prompts
	ActiveNS  int64           `json:"a,omitzero"` // active time in nanoseconds
	Latencies Latencies       `json:"l,omitzero"` // stated by vendors
	Measured  Latencies       `json:"d,omitzero"` // of calls without a stated one, from call to result
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
