package worker

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"tributary/pipeline/broker"
	"tributary/pipeline/events"
	"tributary/pipeline/streams"
)

// ownership is one period in which this worker owns a partition, with everything that it
// has in memory about it. All of that is dropped together when anything is in doubt.
//
// Three goroutines use it: one runs records through the stages, see [ownership.work]; the
// committer collects the waiting chunk between two records; the goroutine of the partition
// waits for the first, and leaves it behind when the normalizer does not return.
type ownership struct {
	p      *partition
	ctx    context.Context // ends with the ownership; its cause is the reason
	cancel context.CancelCauseFunc

	// between is held while a record is normalized and appended, and while the committer seals
	// the chunk. Between the two the sessions know a record that the chunk lacks: states that
	// were encoded then would be ahead of their checkpoint.
	between broker.Limit
	calls   calls
	sending broker.Limit // held while a batch with an entry of the partition is in flight
	skipped uint64       // belongs to the committer: the call of the normalizer that it no longer waits for

	maxPayload int64 // of the broker; asking the connection waits for a batch that is being sent

	// These belong to the goroutine that works.
	turn      time.Time  // when it last gave way to other goroutines
	received  []received // of the present read
	sessions  *sessionCache
	histories *events.Histories
	resume    streams.Checkpoint // where the ownership began
	suspicion suspicion

	room chan struct{} // signaled when a chunk is sealed or stored

	mu         sync.Mutex
	checkpoint streams.Checkpoint // the newest one
	sequence   uint64             // of the checkpoint in the events stream
	building   *chunk             // accepts records
	sealed     *chunk             // is being stored; nil when none is
	stored     uint64             // number of the last chunk that is stored in full
	advanced   bool               // a chunk with records is stored in full
	tries      int                // as in the checkpoint, without an attempt in progress
	waiting    int                // bytes of the messages that wait in its chunks, as the cell counts them
	ended      bool               // its chunks are dropped
	held       []func()           // see [ownership.hold]
}

func newOwnership(ctx context.Context, p *partition, c streams.Checkpoint, sequence uint64) *ownership {
	cfg := p.stage.config
	o := &ownership{
		p:          p,
		sessions:   newSessionCache(p.stage.js, p.cell.name, p.number, cfg.SessionBytes/cfg.Topology.Partitions, p.stage.generation.Settings),
		histories:  events.NewHistories(p.stage.js, p.cell.raw),
		resume:     c,
		suspicion:  newSuspicion(c.Tries),
		room:       make(chan struct{}, 1),
		between:    broker.NewExclusive(),
		sending:    broker.NewExclusive(),
		checkpoint: c,
		sequence:   sequence,
		building:   newChunk(1),
		tries:      c.Tries,
		maxPayload: p.stage.nc.MaxPayload(),
	}
	o.ctx, o.cancel = context.WithCancelCause(ctx)
	return o
}

// acquire makes this worker the owner of the partition (README.md, Commit protocol).
func (p *partition) acquire(ctx context.Context) (*ownership, error) {
	last, stored, err := p.newestCheckpoint(ctx)
	if err != nil {
		return nil, err
	}
	if err := last.BelongsTo(&p.stage.generation); err != nil {
		return nil, err
	}
	mine, sequence, err := p.checkAndFence(ctx, last, stored)
	if err != nil {
		return nil, err
	}
	if p.lost {
		p.lost = false
		p.log.Info("partition goes on: the raw stream has its records again", slog.Uint64("sequence", mine.Raw))
	}
	p.noteAcquisition(ctx, last, mine.Epoch)
	p.reportUnconfirmed(ctx, last)
	p.forgive(mine.Raw)
	if mine, sequence, err = p.mend(ctx, mine, sequence); err != nil {
		return nil, err
	}
	if mine.Tries > streams.MaxTogether {
		p.log.Warn("commits records one at a time", slog.Int("tries", mine.Tries), slog.Uint64("sequence", mine.Raw+1))
	}
	return newOwnership(ctx, p, mine, sequence), nil
}

// checkAndFence makes this worker the owner behind a checkpoint, unless the raw stream has lost
// its tail or the batch of the checkpoint is not whole.
func (p *partition) checkAndFence(ctx context.Context, last streams.Checkpoint, stored broker.Stored) (streams.Checkpoint, uint64, error) {
	end, err := p.cell.end.Get(ctx)
	if err != nil {
		return streams.Checkpoint{}, 0, fmt.Errorf("check raw stream: %w", err)
	}
	if err := p.stage.acquiring.Acquire(ctx); err != nil {
		return streams.Checkpoint{}, 0, err
	}
	defer p.stage.acquiring.Release()
	if err := last.CheckRaw(ctx, p.stage.js, p.cell.raw, p.number, end); err != nil {
		return streams.Checkpoint{}, 0, err
	}
	if err := p.checkWhole(ctx, stored); err != nil {
		return streams.Checkpoint{}, 0, err
	}
	return p.fence(ctx, last, stored.Sequence)
}

// newestCheckpoint reads the checkpoint of the partition. When another worker has
// overtaken this one, it waits for a heartbeat first: without the wait the two would do
// nothing but acquire the partition from each other. While the heartbeats of the workers cannot
// be exchanged, both believe that the partition is theirs: it waits until they can.
func (p *partition) newestCheckpoint(ctx context.Context) (streams.Checkpoint, broker.Stored, error) {
	s := p.stage
	last, stored, err := p.readCheckpoint(ctx)
	if err != nil || !p.acquired || last.Owner == s.owner {
		return last, stored, err
	}
	p.stage.changes.note(change{changeOvertaken, "overtaken", streams.OwnerName(last.Owner)}, p.number, last.Epoch)
	for first := true; first || s.blind.Load(); first = false {
		if err := broker.Pause(ctx, s.config.Heartbeat); err != nil {
			return streams.Checkpoint{}, broker.Stored{}, err
		}
		if broker.Closed(p.drain) {
			return streams.Checkpoint{}, broker.Stored{}, errOvertaken // it stays with the other worker
		}
	}
	return p.readCheckpoint(ctx)
}

// ReadCheckpoint reads the checkpoint of the partition from the leader.
func (p *partition) readCheckpoint(ctx context.Context) (streams.Checkpoint, broker.Stored, error) {
	s := p.stage
	if err := s.acquiring.Acquire(ctx); err != nil {
		return streams.Checkpoint{}, broker.Stored{}, err
	}
	defer s.acquiring.Release()
	return streams.GetCheckpoint(ctx, s.js, p.cell.name, p.number)
}

// noteAcquisition counts and logs that the partition is acquired, behind a checkpoint.
func (p *partition) noteAcquisition(ctx context.Context, last streams.Checkpoint, epoch uint64) {
	kind, cause := changeAcquired, p.cause
	if p.acquired {
		kind, cause = changeRecovered, causeRecovery
	}
	p.acquired, p.epoch = true, epoch
	if p.number == 0 {
		p.stage.noteAcquired()
	}
	t := p.stage.telemetry
	t.count(ctx, t.acquisitions, 1, attribute.String("cause", cause))
	p.stage.changes.note(change{kind, cause, streams.OwnerName(last.Owner)}, p.number, epoch)
}

// fence stores the newest checkpoint again under the name of this worker. After that no
// commit that began before can succeed, whichever worker sent it and whenever it arrives.
func (p *partition) fence(ctx context.Context, last streams.Checkpoint, sequence uint64) (streams.Checkpoint, uint64, error) {
	s := p.stage
	mine := last.WithCounted()
	mine.Owner = s.owner
	mine.Since = cmp.Or(last.Since, sequence)
	mine.Epoch++
	mine.Revision = s.config.Revision
	mine.Tries = p.countAttempt(last)
	mine.Slow, mine.Timeouts = p.countTimeouts(last)
	p.tries = mine.Tries // also when the answer gets lost
	sequence, err := mine.Store(ctx, s.js, p.cell.name, p.number, sequence)
	if err == nil {
		s.config.Handover.Fenced(p.cell.name, sequence)
	}
	return mine, sequence, err
}

// end ends the ownership and returns the attempts without progress.
func (o *ownership) end() int {
	o.cancel(nil)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.p.cell.waiting.Add(-int64(o.waiting))
	o.ended = true
	return o.tries
}

// wait counts bytes of messages that wait in a chunk; below zero for those that wait no longer. The
// caller holds the lock.
func (o *ownership) wait(bytes int) {
	if !o.ended {
		o.waiting += bytes
		o.p.cell.waiting.Add(int64(bytes))
	}
}

// hasRoom reports whether the chunk that is built accepts a record: it is not full, and empty if
// the chunks of all partitions of the cell together wait with too much. The caller holds the lock.
func (o *ownership) hasRoom() bool {
	limits, _ := o.p.stage.config.Pacer.limits()
	return !o.building.full(limits) && (o.building.records == 0 || o.p.cell.waiting.Load() < maxWaiting)
}

// progress reports whether the ownership has stored records.
func (o *ownership) progress() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.advanced
}

// oldest returns when the broker stored the oldest record that waits in a chunk; false
// when none does.
func (o *ownership) oldest() (time.Time, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.sealed != nil && o.sealed.records > 0:
		return o.sealed.oldest, true
	case o.building.records > 0:
		return o.building.oldest, true
	default:
		return time.Time{}, false
	}
}

// waitingSince returns when the oldest chunk that waits was begun; false when none waits.
func (o *ownership) waitingSince() (time.Time, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.sealed != nil:
		return o.sealed.started, true
	case !o.building.empty():
		return o.building.started, true
	default:
		return time.Time{}, false
	}
}

// allStored reports whether no chunk waits. The caller holds the lock.
func (o *ownership) allStored() bool { return o.building.empty() && o.sealed == nil }

// waitUntil waits until a condition, which it calls with the lock held, is true.
func (o *ownership) waitUntil(condition func() bool) error {
	for {
		o.mu.Lock()
		done := condition()
		o.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-o.room:
		case <-o.ctx.Done():
			return context.Cause(o.ctx)
		}
	}
}

// storeTries stores the checkpoint again with another count of attempts. No batch with an
// entry of the partition may be in flight.
func (o *ownership) storeTries(tries int) error {
	o.mu.Lock()
	c, last := o.checkpoint, o.sequence
	o.mu.Unlock()
	c.Tries = tries
	sequence, err := c.Store(o.ctx, o.p.stage.js, o.p.cell.name, o.p.number, last)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.checkpoint, o.sequence = c, sequence
	return nil
}
