package pipeline

import (
	"context"
	"time"
)

// How the replays of a worker divide its time with the live stage.
const (
	paceSlice = 2 * time.Millisecond  // a replay works for so long between two looks at the live stage
	paceYield = 10 * time.Millisecond // and waits for at most so long while the live stage has records in hand
	paceLook  = time.Millisecond
)

// pacer keeps the replays of a worker out of the way of its live stage. Of all partitions of
// all replays one normalizes at a time, so that the replays take one processor at most. Before
// each slice of time they wait while the live stage has records in hand, but not for ever: a
// live stage that never rests leaves a replay a sixth of one processor.
//
// A nil pacer admits everyone at once.
type pacer struct {
	busy func() bool // reports whether the live stage has records in hand
	slot exclusive
	end  time.Time // of the present slice; belongs to the owner of the slot
}

func newPacer(busy func() bool) *pacer { return &pacer{busy: busy, slot: newExclusive()} }

// acquire waits for the slot. After a nil error the caller calls release.
func (p *pacer) acquire(ctx context.Context) error {
	if p == nil {
		return nil
	}
	if err := p.slot.acquire(ctx); err != nil {
		return err
	}
	if time.Now().Before(p.end) {
		return nil
	}
	if err := p.yield(ctx); err != nil {
		p.slot.release()
		return err
	}
	p.end = time.Now().Add(paceSlice)
	return nil
}

func (p *pacer) release() {
	if p != nil {
		p.slot.release()
	}
}

// yield waits while the live stage is busy, for at most paceYield.
func (p *pacer) yield(ctx context.Context) error {
	if !p.busy() {
		return nil
	}
	limit, look := time.NewTimer(paceYield), time.NewTicker(paceLook)
	defer limit.Stop()
	defer look.Stop()
	for p.busy() {
		select {
		case <-look.C:
		case <-limit.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// busy reports whether the stage has records to process, or in hand.
func (s *Stage) busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.partitions {
		if p.unread.Load()+p.open.Load() > 0 {
			return true
		}
	}
	return false
}
