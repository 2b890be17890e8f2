package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tributary/pipeline/broker"
	"tributary/pipeline/records"
	"tributary/pipeline/streams"
)

// A poison record ends the process every time it is tried, or makes the normalizer panic. This file gives up such
// records and no others.
//
// A process that ends leaves nothing but the count of attempts in the checkpoint ([streams.Checkpoint.Tries]): each
// acquisition of the partition adds one, each commit resets it. The count alone does not prove a poison record: it also
// grows for the records beside one, which end with the same process, and while the broker is in trouble. So the worker
// first narrows the suspicion to one record, and then tries that record alone.
const (
	maxAlone = 6 // beyond it the next record becomes a dead letter

	aloneFor   = chunkRecords           // one process may have lost as many records together
	retryAlone = 500 * time.Millisecond // minimum wait before the second attempt; each further wait is four times as long
)

// suspicion is what the attempts without progress mean for the next records of an ownership.
type suspicion struct {
	next    bool // the next record may be poison: it is tried alone
	proven  bool // the next record is poison: it becomes a dead letter without another try
	careful int  // number of records after it that are still committed one at a time
}

func newSuspicion(tries int) suspicion {
	s := suspicion{next: tries > streams.MaxTogether, proven: tries > maxAlone}
	if s.next {
		s.careful = aloneFor
	}
	return s
}

// none reports whether no record is suspect.
func (s suspicion) none() bool { return !s.next && s.careful == 0 }

// countAttempt returns the count of attempts with which the partition is acquired.
func (p *partition) countAttempt(last streams.Checkpoint) int {
	switch {
	case last.Owner == p.stage.owner: // this process is alive, so none of its own attempts ended it
		return min(p.tries, last.Tries)
	case last.Tries <= streams.MaxTogether:
		return last.Tries + 1
	default:
		return last.Tries // from here on only an attempt with the record alone counts
	}
}

// trySuspect tries one record alone and stores the attempt first. Nothing else that ends processes may count as an
// attempt of this record. So the worker tries no other suspect record meanwhile, and waits before it tries a record
// again whose last attempt failed: a kill from outside, or a poison record of another partition, would end the
// process during that wait.
func (o *ownership) trySuspect(r received) error {
	o.suspicion.next = false
	if o.suspicion.proven {
		r.err, r.body = records.ErrCrashed, nil
		return o.run(r)
	}
	if n := o.resume.Tries - streams.MaxTogether - 1; n > 0 {
		wait := retryAlone << (2 * (n - 1))
		if drained, err := o.pause(wait + rand.N(wait)); drained || err != nil {
			return err
		}
	}
	return o.tryAlone(r, func() error { return o.outbox.storeTries(o.resume.Tries + 1) })
}

// tryAlone calls prepare and runs a record while the worker tries no other suspect record, and waits until it is
// stored.
func (o *ownership) tryAlone(r received, prepare func() error) error {
	trial := o.p.stage.trial
	if err := trial.Acquire(o.ctx); err != nil {
		return err
	}
	defer o.occupy(trial.Release)()
	if err := prepare(); err != nil {
		return err
	}
	if err := o.run(r); err != nil {
		return err
	}
	return o.outbox.waitUntil(o.outbox.allStored)
}

// pause waits for d. drained reports that the partition is drained; the next owner gets the record then.
func (o *ownership) pause(d time.Duration) (drained bool, err error) {
	wait := time.NewTimer(d)
	defer wait.Stop()
	select {
	case <-wait.C:
		return false, nil
	case <-o.p.drain:
		return true, nil
	case <-o.ctx.Done():
		return false, context.Cause(o.ctx)
	}
}

// The normalizer has a limited time for a record ([Config.RecordTimeout]). Go cannot end a goroutine from outside, so
// the worker leaves a slow one behind, with everything in memory about the partition, and acquires the partition
// again. The checkpoint names the slow record and counts the attempts ([streams.Checkpoint.Timeouts]), so other
// workers know it. After the first timeout the record is tried alone; after the last it becomes a dead letter.
//
// The heartbeat of a worker says whether it left a normalizer behind. If so, the other workers get its partitions
// until the normalizer returns, because it may occupy a processor for ever.
const (
	defaultRecordTimeout = 30 * time.Second // a record of the largest size takes a few seconds
	maxTimeouts          = 3
	drainTimeout         = 2 * time.Second // for a record in progress when its partition is drained or the stage ends

	// A record times out after it was in progress at this many consecutive checks, spread evenly over the time. A
	// paused process checks only once when it continues, so the pause does not count.
	watchLooks = 10
)

// errLeftBehind ends the goroutine of a normalizer that returned too late.
var errLeftBehind = errors.New("normalizer was left behind")

// calls numbers the calls of the normalizer in an ownership: the number is odd while a call is in progress. One is
// added to it by the call when it ends, or by the goroutine that leaves the call behind.
type calls struct {
	number   atomic.Uint64
	sequence atomic.Uint64 // record of the last call
}

func (c *calls) begin(sequence uint64) (call uint64) {
	c.sequence.Store(sequence)
	return c.number.Add(1)
}

// end ends a call. It returns false when the call was left behind.
func (c *calls) end(call uint64) bool { return c.number.CompareAndSwap(call, call+1) }

// supervise runs [ownership.work] in a goroutine and returns when that ends. It does not wait for a normalizer that
// takes too long.
func (o *ownership) supervise(ctx context.Context) error {
	s := o.p.stage
	ended := make(chan error, 1)
	go func() {
		ended <- o.work()
		s.hanging.remove(o)
	}()
	limit := s.config.RecordTimeout
	look := time.NewTicker(limit / watchLooks)
	defer look.Stop()
	drain, end := (<-chan struct{})(o.p.drain), ctx.Done()
	var seen uint64
	for looks := 0; ; {
		select {
		case err := <-ended:
			return err
		case <-drain:
			drain = nil
		case <-end:
			end = nil
		case <-look.C:
			if call := o.calls.number.Load(); call%2 == 0 || call != seen {
				seen, looks = call, 0
				continue
			}
			if looks++; looks >= watchLooks && s.hanging.leaveBehind(o, seen) {
				return o.abandon(ctx)
			}
			continue
		}
		if drainTimeout < limit {
			limit = drainTimeout
			look.Reset(limit / watchLooks)
		}
	}
}

// abandon ends an ownership whose normalizer was left behind, and returns the reason.
func (o *ownership) abandon(ctx context.Context) error {
	p, sequence := o.p, o.calls.sequence.Load()
	var err error
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case broker.Closed(p.drain):
		p.log.Warn("partition released in the middle of a record: the next worker normalizes it again", slog.Uint64("sequence", sequence))
	default:
		p.slow = slowRecord{sequence, 1}
		if sequence == o.resume.Slow {
			p.slow.timeouts += o.resume.Timeouts
		}
		err = fmt.Errorf("record %d: %w: the normalizer has not returned within %v", sequence, records.ErrTimeout, p.stage.config.RecordTimeout)
		p.log.Error("normalizer does not return: other workers take over until it does; restart this worker to free its processor",
			slog.Uint64("sequence", sequence), slog.Int("timeouts", p.slow.timeouts), slog.Int("most", maxTimeouts))
		p.stage.assigned.signalEnded()
	}
	p.normalizing.End()
	o.cancel(err)
	for _, release := range slices.Backward(o.resources.all()) {
		release()
	}
	return err
}

// countTimeouts returns the slow record and its timeouts to store when the partition is acquired.
func (p *partition) countTimeouts(last streams.Checkpoint) (sequence uint64, timeouts int) {
	mine := p.slow
	switch {
	case mine.sequence <= last.Raw, last.Slow != 0 && last.Slow < mine.sequence:
		return last.Slow, last.Timeouts
	case mine.sequence == last.Slow:
		return last.Slow, max(mine.timeouts, last.Timeouts)
	default:
		return mine.sequence, mine.timeouts
	}
}

// trySlow tries a slow record alone, or makes it a dead letter. It waits for a heartbeat first, so that a worker that
// left a normalizer behind can hand the partition over.
func (o *ownership) trySlow(r received) error {
	if err := o.outbox.waitUntil(o.outbox.allStored); err != nil {
		return err
	}
	if o.resume.Timeouts >= maxTimeouts {
		o.suspicion.next = false
		r.err, r.body = records.ErrTimeout, nil
		return o.run(r)
	}
	if drained, err := o.pause(o.p.stage.config.Heartbeat); drained || err != nil {
		return err
	}
	if o.suspicion.next {
		return o.trySuspect(r)
	}
	return o.tryAlone(r, func() error { return nil })
}

// hanging lists the normalizers of a stage that were left behind and have not returned.
type hanging struct {
	mu      sync.Mutex
	records map[*ownership]uint64 // raw sequences
}

// leaveBehind leaves a call of the normalizer behind, unless it has ended.
func (h *hanging) leaveBehind(o *ownership, call uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !o.calls.end(call) {
		return false
	}
	if h.records == nil {
		h.records = make(map[*ownership]uint64)
	}
	h.records[o] = o.calls.sequence.Load()
	return true
}

// remove notes that the goroutine of an ownership has ended.
func (h *hanging) remove(o *ownership) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.records, o)
}

// list returns the raw sequences of the records in order; nil for none.
func (h *hanging) list() []uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Values(h.records))
}
