package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

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

// The causes for which a partition is acquired.
const (
	causeStart    = "start"    // no worker is known to have worked on the partition
	causeHandover = "handover" // another worker released it
	causeTakeover = "takeover" // another worker died, or did not release it in time
	causeRecovery = "recovery" // this worker had lost it
)

// changesTogether is how long a change of ownership waits to be logged with others.
const changesTogether = 250 * time.Millisecond

// changes logs which partitions a worker acquires, releases and loses: one line for all that change together for the
// same cause.
type changes struct {
	log *slog.Logger

	mu      sync.Mutex
	pending map[change]*changed
	flush   *time.Timer // nil while nothing is pending
}

// changeKind is what happens to a partition.
type changeKind int

const (
	changeAcquired changeKind = iota
	changeRecovered
	changeHandedOver
	changeOvertaken
	changeLost
)

// change is what the partitions of one log line have in common.
type change struct {
	kind   changeKind
	cause  string
	worker string // previous or next owner; empty when unknown
}

// changed lists the partitions of one log line.
type changed struct {
	partitions []int
	epoch      uint64 // highest epoch of them
}

func newChanges(log *slog.Logger) *changes {
	return &changes{log: log, pending: make(map[change]*changed)}
}

// note records a change of a partition.
func (c *changes) note(is change, partition int, epoch uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending[is] == nil {
		c.pending[is] = new(changed)
	}
	p := c.pending[is]
	if !slices.Contains(p.partitions, partition) {
		p.partitions = append(p.partitions, partition)
	}
	p.epoch = max(p.epoch, epoch)
	if c.flush == nil {
		c.flush = time.AfterFunc(changesTogether, c.write)
	}
}

// write logs the pending changes.
func (c *changes) write() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flush != nil {
		c.flush.Stop()
		c.flush = nil
	}
	for _, is := range slices.SortedFunc(maps.Keys(c.pending), func(a, b change) int { return cmp.Compare(a.kind, b.kind) }) {
		p := c.pending[is]
		slices.Sort(p.partitions)
		attrs := []any{slog.String("partitions", streams.Ranges(p.partitions)), slog.Uint64("epoch", p.epoch), slog.String("cause", is.cause)}
		if is.worker != "" {
			attrs = append(attrs, slog.String("from", is.worker))
		}
		switch is.kind {
		case changeAcquired:
			c.log.Info("partitions acquired", attrs...)
		case changeRecovered:
			c.log.Info("partitions recovered", attrs...)
		case changeHandedOver:
			c.log.Info("partitions handed over", attrs...)
		case changeOvertaken:
			c.log.Warn("partitions acquired by another worker", attrs...)
		case changeLost:
			c.log.Warn("partitions lost: acquiring them again", attrs...)
		}
	}
	clear(c.pending)
}
