package pipeline

import (
	"sync/atomic"

	"tributary/envelopes"
	"tributary/pipeline/broker"
	"tributary/pipeline/streams"
)

// cell is a cell as a stage works on it.
type cell struct {
	stage   *Stage
	name    string // under which it stores the generation
	raw     string // its raw stream
	feed    *feed
	end     *streams.SharedEnd // of the raw stream
	pending chan struct{}      // signaled when a chunk waits for the committer

	waiting    atomic.Int64 // bytes of the messages in the chunks of its partitions
	committing broker.Step  // of the loop of that name
}

func newCell(s *Stage, number int) *cell {
	t := s.config.Topology
	c := &cell{
		stage:   s,
		name:    envelopes.CellName(t.Generation, number),
		raw:     streams.RawStreamOf(number),
		pending: make(chan struct{}, 1),
	}
	c.end = streams.NewSharedEnd(s.js, c.raw)
	c.feed = newFeed(s.js, c.raw, len(t.Layout().PartitionsOf(number)), defaultFeedLimits)
	c.feed.acquiring, c.feed.end = s.acquiring, c.end
	return c
}

// holds reports whether the subject of a record names the partition of its session. A
// single raw stream computes that itself; with several a producer might choose another one.
func (c *cell) holds(subject string) bool {
	l := c.stage.config.Topology.Layout()
	if l.Cells <= 1 {
		return true
	}
	a, err := envelopes.ParseRawSubject(subject)
	return err == nil && a.InPartition(l.Partitions)
}

// unread returns how many records of the partitions are not read, or wait in a queue, and of how
// many partitions that is known.
func (s *Stage) unread() (n int64, known int) {
	for _, c := range s.cells {
		more, of := c.feed.waiting()
		n, known = n+more, known+of
	}
	return n, known
}

// countLag returns how many records of the partitions are not done. While a partition is acquired
// again, its records are not known: the number that was returned before is the least then.
func (s *Stage) countLag() int64 {
	n, known := s.unread()
	for _, p := range s.list() {
		n += p.open.Load()
		if ended, _ := p.ended(); !ended {
			known--
		}
	}
	if known < 0 {
		n = max(n, s.lag.Load())
	}
	s.lag.Store(n)
	return n
}
