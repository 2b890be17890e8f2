package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"tributary/pipeline/streams"
)

// assigned holds the partitions assigned to a stage, and the goroutines that work on them.
type assigned struct {
	stage *Stage
	ended chan struct{} // signaled when a partition has ended

	mu         sync.Mutex
	partitions map[int]*partition // started and not yet removed
	mine       []int              // assigned to this worker
	known      bool               // mine has been set
}

func newAssigned(s *Stage) *assigned {
	return &assigned{stage: s, ended: make(chan struct{}, 1), partitions: make(map[int]*partition)}
}

// set makes mine the partitions of this worker. It releases those no longer assigned and starts the new ones, except
// those in awaited, which another worker still has to hand over. cause returns why a partition is acquired. A
// partition calls fail to end the stage when no partition of the generation can be trusted.
func (a *assigned) set(ctx context.Context, mine []int, awaited map[int]bool, cause func(partition int) string, fail context.CancelCauseFunc) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mine, a.known = mine, true
	for n, p := range a.partitions {
		assigned := slices.Contains(mine, n)
		if !assigned {
			p.release()
		}
		if ended, err := p.ended(); ended && (err == nil || !assigned) {
			delete(a.partitions, n)
		}
	}
	for _, n := range mine {
		if a.partitions[n] == nil && !awaited[n] {
			a.partitions[n] = a.start(ctx, n, cause(n), fail)
		}
	}
}

// start begins to work on a partition until it is released, ctx ends, or it cannot go on.
func (a *assigned) start(ctx context.Context, number int, cause string, fail context.CancelCauseFunc) *partition {
	p := newPartition(a.stage, number, cause)
	go func() {
		err := p.run(ctx)
		if errors.Is(err, streams.ErrNoCheckpoint) {
			fail(err) // the generation was tampered with: no partition of it can be trusted
		}
		p.finish(err)
		a.signalEnded()
	}()
	return p
}

// signalEnded makes [Stage.Run] assign the partitions anew.
func (a *assigned) signalEnded() {
	select {
	case a.ended <- struct{}{}:
	default:
	}
}

// stopped returns why none of the assigned partitions can go on; nil while at least one can.
func (a *assigned) stopped() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var errs []error
	for _, n := range a.mine {
		p := a.partitions[n]
		if p == nil {
			return nil
		}
		_, err := p.ended()
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// has reports whether a partition is assigned to this worker.
func (a *assigned) has(partition int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Contains(a.mine, partition)
}

// ready returns what is missing until every partition of this worker is owned.
func (a *assigned) ready() []error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.known {
		return []error{errors.New("not started")}
	}
	var errs []error
	for _, n := range a.mine {
		err := errAwaited
		if p := a.partitions[n]; p != nil {
			err = p.ready()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("partition %d: %w", n, err))
		}
	}
	return errs
}

// wait waits until every partition has ended, and returns the errors of those that could not go on.
func (a *assigned) wait() error {
	var errs []error
	for _, p := range a.list() {
		errs = append(errs, p.wait())
	}
	return errors.Join(errs...)
}

// list returns the started partitions by number.
func (a *assigned) list() []*partition {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.SortedFunc(maps.Values(a.partitions), func(p, q *partition) int { return p.number - q.number })
}

// working returns the numbers, in order, of the partitions that have not ended.
func (a *assigned) working() []int {
	return numbers(slices.DeleteFunc(a.list(), func(p *partition) bool {
		ended, _ := p.ended()
		return ended
	}))
}

// numbers returns the numbers of partitions.
func numbers(partitions []*partition) []int {
	out := make([]int, len(partitions))
	for i, p := range partitions {
		out[i] = p.number
	}
	return out
}

// everyPartition returns the numbers 0 to n-1.
func everyPartition(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}
