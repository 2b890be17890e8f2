package worker

import (
	"context"
	"time"

	"tributary/pipeline/broker"
)

// How the replays of a worker share its time with the live stage.
const (
	paceSlice = 2 * time.Millisecond   // time that a replay normalizes between two rests
	paceRest  = 5                      // while the live stage is active, a replay rests this many times as long as it works
	paceLimit = 500 * time.Millisecond // longest rest
	paceIdle  = 500 * time.Millisecond // a live stage without records for so long is not active
	paceAhead = 32                     // records that a replay reads ahead, see ReadAhead
)

// While the live stage is active, the batches of a replay are small, so that no live commit waits long for one at the
// broker and its disk.
var (
	paceChunk = batchSize{16, 32, 64 << 10}
	paceBatch = batchSize{0, 64, 128 << 10}
)

// Pacer keeps the replays of a worker out of the way of its live stage. Only one partition of all replays normalizes
// at a time, so replays use one processor at most. While the live stage is active, replays rest after each time slice
// and each commit, for several times as long as that took. This spares the broker, too.
//
// A nil Pacer never waits.
type Pacer struct {
	active func() bool // reports whether the live stage has records, or had some recently
	slot   broker.Limit
	end    time.Time // end of the present slice; belongs to the owner of the slot
}

// NewPacer returns the pacer for all replays of a process; active reports whether its live stage has something to do.
func NewPacer(active func() bool) *Pacer { return &Pacer{active: active, slot: broker.NewExclusive()} }

// acquire waits for the slot. After a nil error the caller calls release.
func (p *Pacer) acquire(ctx context.Context) error {
	if p == nil {
		return nil
	}
	if err := p.slot.Acquire(ctx); err != nil {
		return err
	}
	if time.Now().Before(p.end) {
		return nil
	}
	if err := p.rest(ctx, paceSlice); err != nil {
		p.slot.Release()
		return err
	}
	p.end = time.Now().Add(paceSlice)
	return nil
}

func (p *Pacer) release() {
	if p != nil {
		p.slot.Release()
	}
}

// rest waits after work that took so long, if the live stage is active.
func (p *Pacer) rest(ctx context.Context, took time.Duration) error {
	if p == nil || !p.active() {
		return nil
	}
	return broker.Pause(ctx, min(paceRest*took, paceLimit))
}

// limits returns the limits of a chunk and of a batch.
func (p *Pacer) limits() (chunk, batch batchSize) {
	if p == nil || !p.active() {
		return chunkLimits, batchLimits
	}
	return paceChunk, paceBatch
}

// ahead returns how many records are read ahead.
func (p *Pacer) ahead() int {
	if p == nil {
		return broker.ReadAhead
	}
	return paceAhead
}

// Active reports whether the stage has records to process, or had some within the last half second.
func (s *Stage) Active() bool {
	if time.Since(time.Unix(0, s.received.Load())) < paceIdle {
		return true
	}
	if n, _ := s.unread(); n > 0 {
		return true
	}
	for _, p := range s.assigned.list() {
		if p.open.Load() > 0 {
			return true
		}
	}
	return false
}
