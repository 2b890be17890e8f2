package broker

import "context"

// Limit admits a limited number of goroutines at a time.
type Limit chan struct{}

// NewExclusive returns a Limit that admits one goroutine at a time.
func NewExclusive() Limit { return NewLimit(1) }

// NewLimit returns a Limit that admits n goroutines at a time.
func NewLimit(n int) Limit { return make(Limit, n) }

// Acquire waits for admission, or until ctx ends. After a nil error the caller must call Release.
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
