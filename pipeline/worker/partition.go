package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/broker"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker/feed"
)

// The wait before a partition is acquired again after a failure.
const (
	minBackoff  = 50 * time.Millisecond
	maxBackoff  = 2 * time.Second
	lostBackoff = 10 * time.Second // while the raw stream lacks its tail: restoring it takes a while
)

// partition is one partition of the raw stream, as this worker sees it. The worker acquires it again and again while
// it runs. The fields here outlive an [ownership]; everything else belongs to one.
type partition struct {
	stage  *Stage
	cell   *cell
	number int
	cause  string        // why it was assigned to this worker
	drain  chan struct{} // closed to end the partition cleanly
	log    *slog.Logger

	// Read by the metrics.
	open    atomic.Int64 // records read and not stored
	cached  atomic.Int64 // memory of the session states
	waiting atomic.Int64 // when the broker stored the oldest record not yet in a chunk, in Unix nanoseconds; 0 for none

	unconfirmed atomic.Pointer[entry] // last entry with an unknown outcome; nil for none

	normalizing broker.Step // in the goroutine of the partition

	// These belong to the goroutine of the partition.
	epoch     uint64     // of the last ownership
	acquired  bool       // at least once
	slow      slowRecord // record that took too long in the last ownership
	tries     int        // attempts without progress, except those that this process survived
	condemned condemned
	lost      bool // the raw stream lacks its tail; logged once

	mu    sync.Mutex
	owned *ownership // nil between two ownerships
	err   error      // why it is not owned
	done  chan struct{}
}

var (
	errOvertaken   = errors.New("acquired by another worker")
	errNotAcquired = errors.New("not acquired yet")
)

func newPartition(s *Stage, number int, cause string) *partition {
	return &partition{
		stage:     s,
		cell:      s.cells[s.config.Topology.Layout().Cell(number)],
		number:    number,
		cause:     cause,
		drain:     make(chan struct{}),
		log:       s.config.Logger.With(slog.Int("partition", number)),
		condemned: make(condemned),
		err:       errNotAcquired,
		done:      make(chan struct{}),
	}
}

// run acquires the partition and works on it, again after each failure. It returns nil when the partition is drained
// or ctx ends, else the reason why no further try can succeed. It keeps trying while the raw stream lacks its tail,
// because that may be restored.
func (p *partition) run(ctx context.Context) error {
	backoff := minBackoff
	for ctx.Err() == nil {
		draining := broker.Closed(p.drain)
		progress, err := p.runOnce(ctx)
		if progress {
			backoff = minBackoff
		}
		switch {
		case err == nil:
			p.stage.changes.note(change{changeHandedOver, p.reasonToRelease(), ""}, p.number, p.epoch)
			return nil
		case ctx.Err() != nil, errors.Is(err, errCondemned):
			continue
		case errors.Is(err, streams.ErrRetired):
			return err // concerns all partitions: the runner reports it once
		case p.isRetired(ctx, err):
			return fmt.Errorf("%w: %s", streams.ErrRetired, p.stage.generation.Name)
		case final(err):
			p.log.Error("partition stopped", slog.Any("error", err))
			return err
		case draining, errors.Is(err, errOvertaken):
			return nil // drained before; otherwise it is acquired again, to take back an attempt that this process survived
		case errors.Is(err, streams.ErrRawLost):
			p.awaitRaw(ctx, err, backoff)
			backoff = min(2*backoff, lostBackoff)
			continue
		}
		if !broker.Fenced(err) { // the next acquisition logs the new owner, or that the generation is retired
			p.stage.changes.note(change{changeLost, err.Error(), ""}, p.number, p.epoch)
		}
		_ = broker.Pause(ctx, min(backoff, maxBackoff)) // fails only when ctx ends
		backoff = min(2*backoff, maxBackoff)
	}
	return nil
}

// isRetired reports whether a request failed because the generation is being dropped.
func (p *partition) isRetired(ctx context.Context, err error) bool {
	if !errors.Is(err, jetstream.ErrStreamNotFound) && !errors.Is(err, jetstream.ErrNoStreamResponse) && !errors.Is(err, nats.ErrNoResponders) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	g, err := streams.ReadGeneration(ctx, p.stage.js, p.stage.generation.Name)
	return errors.Is(err, streams.ErrNoGeneration) || err == nil && (g.Marked == streams.StateRetired || g.Marked == streams.StateDropping)
}

// awaitRaw waits until the raw stream that lost its tail is to be checked again, or the partition is drained.
func (p *partition) awaitRaw(ctx context.Context, err error, wait time.Duration) {
	if !p.lost {
		p.lost = true
		p.log.Error("partition stopped", slog.Any("error", err))
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-p.drain:
	case <-ctx.Done():
	}
}

// runOnce acquires the partition and works on it until the ownership ends. progress reports whether the ownership
// stored anything.
func (p *partition) runOnce(ctx context.Context) (progress bool, err error) {
	o, err := p.acquire(p.stage.link.context()) //nolint:contextcheck // the link ends with ctx, too
	if err == nil {
		p.setOwnership(o, nil)
		err = o.supervise(ctx)
		if errors.Is(err, errCondemned) {
			// The partition is acquired at once. Without this wait, a batch in flight could be stored between the
			// read of its checkpoint and the fence, which would then fail.
			_ = o.outbox.sending.Acquire(ctx)
		}
		p.tries = o.end()
		p.cached.Store(0)
		if oldest, ok := o.outbox.oldest(); ok && err != nil { // the chunk is dropped, so its records wait again
			p.waiting.Store(oldest.UnixNano())
		}
		progress = o.outbox.progress()
	}
	p.setOwnership(nil, err)
	return progress, err
}

// reasonToRelease returns why the partition was released.
func (p *partition) reasonToRelease() string {
	if broker.Closed(p.stage.drain) {
		return "drain"
	}
	return "assigned to another worker"
}

// final reports whether an error remains however often the partition is acquired.
func final(err error) bool {
	for _, f := range []error{streams.ErrNoCheckpoint, streams.ErrState, streams.ErrRetired} {
		if errors.Is(err, f) {
			return true
		}
	}
	return false
}

// setOwnership sets the present ownership, or the reason why there is none.
func (p *partition) setOwnership(o *ownership, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.owned, p.err = o, err
}

// ownership returns the present ownership, nil when there is none.
func (p *partition) ownership() *ownership {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.owned
}

// ready returns nil while the partition is owned, else the reason why it is not.
func (p *partition) ready() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.owned != nil {
		return nil
	}
	if p.err == nil {
		return errNotAcquired
	}
	return p.err
}

// finish sets the end of the partition.
func (p *partition) finish(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
	close(p.done)
}

// release ends the partition cleanly, so that another worker can own it. It may be called repeatedly, but by one
// goroutine only.
func (p *partition) release() {
	if !broker.Closed(p.drain) {
		close(p.drain)
	}
}

// ended reports whether the partition has ended, with the error if it could not go on.
func (p *partition) ended() (bool, error) {
	if !broker.Closed(p.done) {
		return false, nil
	}
	return true, p.wait()
}

// wait waits for the end of the partition and returns the error if it could not go on.
func (p *partition) wait() error {
	<-p.done
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// cell is the state of one cell while a stage works on it.
type cell struct {
	stage   *Stage
	name    string // of the generation in this cell's stream names
	raw     string // its raw stream
	feed    *feed.Feed
	end     *streams.SharedEnd // of the raw stream
	pending chan struct{}      // signaled when a chunk waits for the committer

	waiting    atomic.Int64 // bytes of the messages in the chunks of its partitions
	committing broker.Step  // of [cell.commitBatches]
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
	c.feed = feed.New(s.js, c.raw, len(t.Layout().PartitionsOf(number)), feed.DefaultLimits)
	c.feed.Acquiring, c.feed.End = s.acquiring, c.end
	return c
}

// holds reports whether the subject of a record names the right partition for its session. A single raw stream
// computes the partition itself; with several, a producer might choose a wrong one.
func (c *cell) holds(subject string) bool {
	l := c.stage.config.Topology.Layout()
	if l.Cells <= 1 {
		return true
	}
	a, err := envelopes.ParseRawSubject(subject)
	return err == nil && a.InPartition(l.Partitions)
}

// signalPending signals the committer that a partition has something to store.
func (c *cell) signalPending() {
	select {
	case c.pending <- struct{}{}:
	default:
	}
}

// signalRoom signals the partitions that wait for room in the chunks of the cell.
func (c *cell) signalRoom() {
	for _, p := range c.stage.assigned.list() {
		if o := p.ownership(); o != nil {
			o.outbox.signalRoom()
		}
	}
}

// errCondemned ends an ownership; the next one makes the record a dead letter.
var errCondemned = errors.New("record becomes a dead letter")

// condemned maps records of a partition that must not be tried again to the reason.
type condemned map[uint64]error

// add makes a record a dead letter when it is read again. Its session may be half changed, so the ownership ends and
// the next one begins before the record.
func (c condemned) add(sequence uint64, cause error) error {
	c[sequence] = cause
	return fmt.Errorf("%w: sequence %d: %w", errCondemned, sequence, cause)
}

// forgive forgets the records up to a raw sequence, because they are stored.
func (c condemned) forgive(raw uint64) {
	maps.DeleteFunc(c, func(sequence uint64, _ error) bool { return sequence <= raw })
}

// slowRecord is a record and how often it took too long.
type slowRecord struct {
	sequence uint64
	timeouts int
}
