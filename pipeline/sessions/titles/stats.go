package titles

import (
	"maps"
	"sync"
	"time"
)

// Stats are the statistics of an endpoint in this process. The micro service reports them as data of the endpoint,
// because its own statistics end when a request is accepted.
type Stats struct {
	Answered  int64            `json:"answered"`         // requests, including failed ones
	Unchanged int64            `json:"unchanged"`        // answered without a change, because of a guard or because there was nothing to change
	Errors    map[string]int64 `json:"errors,omitempty"` // by error code
	Lost      int64            `json:"lost"`             // answers that could not be sent
	Time      int64            `json:"processing_time"`  // processing time of all answered requests, in nanoseconds
	Conflicts int64            `json:"conflicts"`        // writes of all endpoints that another writer overtook and that were tried again
}

// endpointStats counts [Stats].
type endpointStats struct {
	mu    sync.Mutex
	stats Stats
}

// outcome is the outcome of a request.
type outcome struct {
	code      string // error code; empty for none
	unchanged bool
	took      time.Duration
}

func (e *endpointStats) count(o outcome) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.Answered++
	e.stats.Time += o.took.Nanoseconds()
	if o.unchanged {
		e.stats.Unchanged++
	}
	if o.code != "" {
		if e.stats.Errors == nil {
			e.stats.Errors = make(map[string]int64)
		}
		e.stats.Errors[o.code]++
	}
}

func (e *endpointStats) lose() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.Lost++
}

func (e *endpointStats) snapshot(conflicts int64) Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.stats
	s.Errors, s.Conflicts = maps.Clone(s.Errors), conflicts
	return s
}
