package pipeline

import "context"

// exclusive admits a limited number of goroutines at a time. A goroutine stops waiting when its context ends.
type exclusive chan struct{}

// newExclusive returns an exclusive that admits one goroutine at a time.
func newExclusive() exclusive { return newLimit(1) }

// newLimit returns an exclusive that admits n goroutines at a time.
func newLimit(n int) exclusive { return make(exclusive, n) }

// acquire waits for admission. After a nil error the caller calls release.
func (e exclusive) acquire(ctx context.Context) error {
	select {
	case e <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// release ends an admission.
func (e exclusive) release() { <-e }
