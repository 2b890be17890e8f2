package pipeline

import (
	"context"
	"errors"
	"maps"
	"slices"

	"tributary/pipeline/streams"
)

// The partitions of a stage: those that are assigned to it, and the goroutines that work
// on them.

// assign makes mine the partitions of this worker. It releases those that are no longer
// assigned and starts those that are new, but for those in awaited, which another worker
// has yet to hand over; cause returns why a partition is acquired. fail ends the stage: a partition calls it when it finds that no
// partition of the generation can be trusted.
func (s *Stage) assign(ctx context.Context, mine []int, awaited map[int]bool, cause func(partition int) string, fail context.CancelCauseFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.assigned, s.started = mine, true
	for n, p := range s.partitions {
		assigned := slices.Contains(mine, n)
		if !assigned {
			p.release()
		}
		if ended, err := p.ended(); ended && (err == nil || !assigned) {
			delete(s.partitions, n)
		}
	}
	for _, n := range mine {
		if s.partitions[n] == nil && !awaited[n] {
			s.partitions[n] = s.startPartition(ctx, n, cause(n), fail)
		}
	}
}

// startPartition begins to work on a partition, until it is released, ctx ends, or it
// cannot go on.
func (s *Stage) startPartition(ctx context.Context, number int, cause string, fail context.CancelCauseFunc) *partition {
	p := newPartition(s, number, cause)
	go func() {
		err := p.run(ctx)
		if errors.Is(err, streams.ErrNoCheckpoint) {
			fail(err) // the generation was tampered with: no partition of it can be trusted
		}
		p.finish(err)
		s.signalEnded()
	}()
	return p
}

// signalEnded signals the goroutine of [Stage.Run] that the partitions have to be assigned anew.
func (s *Stage) signalEnded() {
	select {
	case s.ended <- struct{}{}:
	default:
	}
}

// stopped returns why none of the assigned partitions can go on, nil while one can.
func (s *Stage) stopped() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, n := range s.assigned {
		p := s.partitions[n]
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

// waitForPartitions waits until every partition has ended, and returns the reasons of
// those that could not go on.
func (s *Stage) waitForPartitions() error {
	var errs []error
	for _, p := range s.list() {
		errs = append(errs, p.wait())
	}
	return errors.Join(errs...)
}

// list returns the partitions that were started, by number.
func (s *Stage) list() []*partition {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.partitions), func(a, b *partition) int { return a.number - b.number })
}

// working returns the numbers of the partitions that have not ended, in their order.
func (s *Stage) working() []int {
	return numbers(slices.DeleteFunc(s.list(), func(p *partition) bool {
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

// everyPartition returns the numbers of n partitions, in their order.
func everyPartition(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}
