package progress

import (
	"context"
	"sync"
	"time"
)

// inBackground runs a function until stop, which ends its context and waits for the function.
func inBackground(ctx context.Context, run func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// ticks yields after each interval until ctx ends.
func ticks(ctx context.Context, every time.Duration) func(yield func() bool) {
	return func(yield func() bool) {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if !yield() {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}
