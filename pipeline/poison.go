package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"time"

	"tributary/pipeline/records"
	"tributary/pipeline/streams"
)

// A poison record is one that cannot be survived: it ends the process, each time that it
// is tried, or it makes the normalizer panic. This file gives such records up without
// giving up any other.
//
// A process that ends leaves nothing but the count of attempts in the checkpoint
// ([Checkpoint.Tries]): acquiring the partition adds one, a commit resets it. The count
// must distinguish a poison record from its neighbors, which end with the same process, and from
// a broker in trouble. So it first narrows the suspicion to one record, and then tries that
// record alone.
const (
	maxAlone = 6 // above it the next record becomes a dead letter

	aloneFor   = chunkRecords           // as many records as one process may have lost together
	retryAlone = 500 * time.Millisecond // the least wait before the second attempt; each further wait is four times as long
)

// suspicion is what the attempts without progress mean for the next records of an
// ownership.
type suspicion struct {
	next    bool // the next record may be poison: it is tried alone
	proven  bool // the next record is poison: it becomes a dead letter without another try
	careful int  // records after it that are still committed one at a time
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
	case last.Owner == p.stage.owner: // this process is alive: none of its own attempts ended one
		return min(p.tries, last.Tries)
	case last.Tries <= streams.MaxTogether:
		return last.Tries + 1
	default:
		return last.Tries // from here on only an attempt alone counts
	}
}

// trySuspect tries one record alone and stores the attempt before it. Nothing else that
// ends processes may count as an attempt of this record. So no other suspect record of the
// worker is tried meanwhile, and a record whose last attempt failed waits before the next:
// a kill from outside, or a poison record of another partition, ends the process in that
// wait.
func (o *ownership) trySuspect(r received) error {
	o.suspicion.next = false
	if o.suspicion.proven {
		r.err, r.body = records.ErrCrashed, nil
		return o.run(r)
	}
	if n := o.tries - streams.MaxTogether - 1; n > 0 {
		wait := retryAlone << (2 * (n - 1))
		if drained, err := o.pause(wait + rand.N(wait)); drained || err != nil {
			return err
		}
	}
	return o.tryAlone(r, func() error { return o.storeTries(o.tries + 1) })
}

// tryAlone runs a record while no other suspect record of the worker is tried, after prepare,
// and waits until it is stored.
func (o *ownership) tryAlone(r received, prepare func() error) error {
	trial := o.p.stage.trial
	if err := trial.Acquire(o.ctx); err != nil {
		return err
	}
	defer o.hold(trial.Release)()
	if err := prepare(); err != nil {
		return err
	}
	if err := o.run(r); err != nil {
		return err
	}
	return o.waitUntil(o.allStored)
}

// pause waits for d; drained reports that the partition is drained, and the record is left to
// the next owner.
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

// forgetAttempt takes back the attempt of an ownership that ends well, unless the count is
// about one record already.
func (o *ownership) forgetAttempt() error {
	if tries := o.checkpoint.Tries; tries == 0 || tries > streams.MaxTogether {
		return nil
	}
	return o.storeTries(0)
}

// errCondemned ends an ownership whose successor makes the record a dead letter.
var errCondemned = errors.New("record becomes a dead letter")

// condemn makes a record a dead letter when it is read again. The session that the record
// was normalized into may be half changed, so the ownership ends and the next one begins
// before the record.
func (p *partition) condemn(sequence uint64, cause error) error {
	p.condemned[sequence] = cause
	return fmt.Errorf("%w: sequence %d: %w", errCondemned, sequence, cause)
}

// forgive forgets the condemned records up to a raw sequence: they are stored.
func (p *partition) forgive(raw uint64) {
	maps.DeleteFunc(p.condemned, func(sequence uint64, _ error) bool { return sequence <= raw })
}
