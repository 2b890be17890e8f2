package broker

import "context"

// Limit admits a limited number of goroutines at a time. A goroutine stops waiting when its context ends.
type Limit chan struct{}

// NewExclusive returns an exclusive that admits one goroutine at a time.
func NewExclusive() Limit { return NewLimit(1) }

// NewLimit returns an exclusive that admits n goroutines at a time.
func NewLimit(n int) Limit { return make(Limit, n) }

// Acquire waits for admission. After a nil error the caller calls release.
func (e Limit) Acquire(ctx context.Context) error {
	select {
	case e <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Release ends an admission.
func (e Limit) Release() { <-e }
