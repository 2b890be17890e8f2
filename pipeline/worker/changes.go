package worker

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"tributary/pipeline/streams"
)

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
