package broker

import (
	"fmt"
	"sync/atomic"
	"time"
)

// stepLimit is how long one step of a loop may take. Every request of a step ends earlier, so a loop that exceeds it
// is stuck.
const stepLimit = 2 * time.Minute

// Step watches the work of a loop between two waits. The zero value is a waiting loop. Only the loop calls Begin and
// End; any goroutine may call Check.
type Step struct {
	began atomic.Int64 // in Unix nanoseconds; 0 while the loop waits
}

// Begin notes that the loop has begun a step.
func (s *Step) Begin() { s.BeginAt(time.Now()) }

// BeginAt notes when the loop began a step.
func (s *Step) BeginAt(now time.Time) { s.began.Store(now.UnixNano()) }

// End notes that the loop waits.
func (s *Step) End() { s.began.Store(0) }

// Check returns an error that begins with what if the step in progress has taken more than 2 minutes.
func (s *Step) Check(what string) error {
	began := s.began.Load()
	if began == 0 {
		return nil
	}
	if took := time.Since(time.Unix(0, began)); took > stepLimit {
		return fmt.Errorf("%s has made no progress for %v", what, took.Round(time.Second))
	}
	return nil
}
