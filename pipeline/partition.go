package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"tributary/normalizers"
)

// Attempts without progress, see [Checkpoint]. A record that ends the process cannot say
// so: only the count of attempts tells, and it must tell the record from its neighbours
// and from a broker in trouble.
const (
	maxTogether = 3 // above it the next record is tried alone, and those after it one at a time
	maxAlone    = 6 // above it the next record becomes a dead letter

	aloneFor   = commitRecords          // as many as may have been lost together
	retryAlone = 500 * time.Millisecond // at least, before the second attempt; four times as long before the next
)

// SuspectTries is the count of attempts in a checkpoint up to which nothing is known: above
// it the next record is one that may end workers.
const SuspectTries = maxTogether

// How long a partition waits before it tries again what failed.
const (
	minBackoff = 50 * time.Millisecond
	maxBackoff = 2 * time.Second
)

// partition is one partition of the raw stream as this worker works on it. It is claimed
// again and again, for as long as it runs; what is here lives over the claims, all the
// rest is in the [ownership].
type partition struct {
	stage  *Stage
	number int
	drain  chan struct{} // closed when it is to end well
	log    *slog.Logger

	unread atomic.Int64 // records behind the last one read
	open   atomic.Int64 // records read, but not done
	behind atomic.Int64 // when the broker stored the oldest record that is in no chunk, in Unix nanoseconds; 0 for none

	// These belong to the goroutine of the partition.
	claimed   bool             // once at least
	tries     int              // attempts without progress, without those that this worker survived
	condemned map[uint64]error // records that must not be tried again, and why

	mu    sync.Mutex
	owned *ownership // nil between two claims
	err   error      // why it is not owned
	done  chan struct{}
}

var errOvertaken = errors.New("claimed by another worker")

var errUnclaimed = errors.New("not claimed yet")

func newPartition(s *Stage, number int) *partition {
	return &partition{
		stage:     s,
		number:    number,
		drain:     make(chan struct{}),
		log:       s.config.Logger.With(slog.Int("partition", number)),
		condemned: make(map[uint64]error),
		err:       errUnclaimed,
		done:      make(chan struct{}),
	}
}

// run claims the partition and works on it, again after each failure, until it is drained
// or ctx ends (nil), or it cannot go on (why).
func (p *partition) run(ctx context.Context) error {
	backoff, level := minBackoff, slog.LevelWarn
	for ctx.Err() == nil {
		draining := closed(p.drain)
		o, err := p.claim(p.stage.linked()) //nolint:contextcheck // the link ends with ctx, too
		if err == nil {
			p.own(o, nil)
			err = o.work()
			p.tries = o.end()
			if oldest, ok := o.oldest(); ok && err != nil { // which is dropped, and not done
				p.behind.Store(oldest.UnixNano())
			}
			if o.progress() {
				backoff, level = minBackoff, slog.LevelWarn
			}
		}
		p.own(nil, err)
		p.unread.Add(p.open.Swap(0))
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil, errors.Is(err, errCondemned):
			continue
		case final(err):
			p.log.Error("partition stopped", slog.Any("error", err))
			return err
		case draining:
			return nil // else it is claimed once more, to take back an attempt that was survived
		}
		p.log.Log(ctx, level, "partition is claimed again", slog.Any("error", err))
		level = slog.LevelDebug // the first of a row is enough
		_ = pause(ctx, backoff) // which ends early only with ctx
		backoff = min(2*backoff, maxBackoff)
	}
	return nil
}

// final reports whether an error stays, however often it is tried.
func final(err error) bool {
	for _, f := range []error{ErrNoCheckpoint, ErrRawLost, ErrState} {
		if errors.Is(err, f) {
			return true
		}
	}
	return false
}

// claim makes this worker the owner: it stores the newest checkpoint again under its own
// name. After this no older commit can succeed, whoever sent it and whenever it arrives.
func (p *partition) claim(ctx context.Context) (*ownership, error) {
	s := p.stage
	g := s.config.Topology.Generation
	last, sequence, err := readCheckpoint(ctx, s.js, g, p.number)
	if err == nil && p.claimed && last.Owner != s.owner {
		// Overtaken. At once again would leave both with nothing but claims.
		p.log.Warn("partition was claimed by another worker", slog.String("worker", last.Owner))
		if err = pause(ctx, s.config.Heartbeat); err == nil && closed(p.drain) {
			err = errOvertaken // it is the other's
		}
		if err == nil {
			last, sequence, err = readCheckpoint(ctx, s.js, g, p.number)
		}
	}
	if err != nil {
		return nil, err
	}
	if err := last.checkRaw(ctx, s.js, p.number); err != nil {
		return nil, err
	}
	mine := last
	mine.Owner = s.owner
	mine.Epoch++
	mine.Revision = normalizers.Revision
	switch {
	case last.Owner == s.owner: // this process lives: no attempt of its own has ended one
		mine.Tries = min(p.tries, last.Tries)
	case last.Tries <= maxTogether:
		mine.Tries++
	}
	p.tries = mine.Tries // also if the answer gets lost
	if sequence, err = mine.store(ctx, s.js, g, p.number, sequence); err != nil {
		return nil, err
	}
	p.claimed = true
	maps.DeleteFunc(p.condemned, func(sequence uint64, _ error) bool { return sequence <= mine.Raw })
	if mine.Tries > maxTogether {
		p.log.Warn("records are tried one at a time", slog.Int("tries", mine.Tries), slog.Uint64("sequence", mine.Raw+1))
	}
	return newOwnership(ctx, p, mine, sequence), nil
}

// own notes the present ownership, or why there is none.
func (p *partition) own(o *ownership, err error) {
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

// ready returns why the partition is not worked on, nil when it is.
func (p *partition) ready() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.owned != nil {
		return nil
	}
	if p.err == nil {
		return errUnclaimed
	}
	return p.err
}

// finish notes the end of the partition.
func (p *partition) finish(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
	close(p.done)
}

// release makes the partition end well: it is another worker's from now on. It may be
// called by one goroutine only, and more than once.
func (p *partition) release() {
	if !closed(p.drain) {
		close(p.drain)
	}
}

// over reports whether the partition has ended, and why where it could not go on.
func (p *partition) over() (bool, error) {
	if !closed(p.done) {
		return false, nil
	}
	return true, p.wait()
}

// wait returns how the partition ended.
func (p *partition) wait() error {
	<-p.done
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// errCondemned ends an ownership whose next try will go better.
var errCondemned = errors.New("record becomes a dead letter")

// condemn makes the record a dead letter when it comes again. The session that it was
// folded into cannot be trusted, so the partition begins again before it.
func (p *partition) condemn(sequence uint64, cause error) error {
	p.condemned[sequence] = cause
	return fmt.Errorf("%w: sequence %d: %w", errCondemned, sequence, cause)
}
