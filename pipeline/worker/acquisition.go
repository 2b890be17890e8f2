package worker

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"tributary/pipeline/broker"
	"tributary/pipeline/streams"
)

// acquisition is one try to become the owner of a partition (README.md, Commit protocol). Its steps
// follow one another: read, check and fence, mend.
type acquisition struct {
	p      *partition
	last   streams.Checkpoint // the newest one
	stored broker.Stored      // its message

	mine     streams.Checkpoint // the newest one, stored again under the name of this worker
	sequence uint64             // of mine in the events stream
}

// settling is for how many heartbeats workers that begin together, as with a generation that becomes live, may not know each
// other yet, and acquire what is assigned to others.
const settling = 5

// acquire makes this worker the owner of the partition.
func (p *partition) acquire(ctx context.Context) (*ownership, error) {
	a := acquisition{p: p}
	if err := a.read(ctx); err != nil {
		return nil, err
	}
	if err := a.checkAndFence(ctx); err != nil {
		return nil, err
	}
	if p.lost {
		p.lost = false
		p.log.Info("partition goes on: the raw stream has its records again", slog.Uint64("sequence", a.mine.Raw))
	}
	a.note(ctx)
	a.reportUnconfirmed(ctx)
	p.condemned.forgive(a.mine.Raw)
	if err := a.mend(ctx); err != nil {
		return nil, err
	}
	if a.mine.Tries > streams.MaxTogether {
		p.log.Warn("committing records one at a time", slog.Int("tries", a.mine.Tries), slog.Uint64("sequence", a.mine.Raw+1))
	}
	return newOwnership(ctx, p, a.mine, a.sequence), nil
}

// read reads the newest checkpoint of the partition. When another worker has
// overtaken this one, it waits for a heartbeat first: without the wait the two would do
// nothing but acquire the partition from each other. While the heartbeats of the workers cannot
// be exchanged, both believe that the partition is theirs: it waits until they can.
func (a *acquisition) read(ctx context.Context) error {
	p, s := a.p, a.p.stage
	if err := a.readCheckpoint(ctx); err != nil {
		return err
	}
	if p.acquired && a.last.Owner != s.owner && a.last.Owner != "" { // a command that retires the generation is no worker
		overtaken := change{changeOvertaken, "overtaken", streams.OwnerName(a.last.Owner)}
		if time.Since(s.began) < settling*s.config.Heartbeat {
			overtaken = change{changeHandedOver, "assigned to another worker", ""}
		}
		s.changes.note(overtaken, p.number, a.last.Epoch)
		for first := true; first || s.blind.Load(); first = false {
			if err := broker.Pause(ctx, s.config.Heartbeat); err != nil {
				return err
			}
			if broker.Closed(p.drain) {
				return errOvertaken // it stays with the other worker
			}
		}
		if err := a.readCheckpoint(ctx); err != nil {
			return err
		}
	}
	return a.last.BelongsTo(&s.generation)
}

// readCheckpoint reads the checkpoint of the partition from the leader.
func (a *acquisition) readCheckpoint(ctx context.Context) (err error) {
	s := a.p.stage
	if err := s.acquiring.Acquire(ctx); err != nil {
		return err
	}
	defer s.acquiring.Release()
	a.last, a.stored, err = streams.GetCheckpoint(ctx, s.js, a.p.cell.name, a.p.number)
	return err
}

// checkAndFence makes this worker the owner behind the newest checkpoint, unless the raw stream has lost
// its tail or the batch of the checkpoint is not whole.
func (a *acquisition) checkAndFence(ctx context.Context) error {
	p, s := a.p, a.p.stage
	end, err := p.cell.end.Get(ctx)
	if err != nil {
		return fmt.Errorf("check raw stream: %w", err)
	}
	if err := s.acquiring.Acquire(ctx); err != nil {
		return err
	}
	defer s.acquiring.Release()
	if err := a.last.CheckRaw(ctx, s.js, p.cell.raw, p.number, end); err != nil {
		return err
	}
	if err := a.checkWhole(ctx); err != nil {
		return err
	}
	return a.fence(ctx)
}

// fence stores the newest checkpoint again under the name of this worker. After that no
// commit that began before can succeed, whichever worker sent it and whenever it arrives.
func (a *acquisition) fence(ctx context.Context) error {
	p, s := a.p, a.p.stage
	mine := a.last.WithCounted()
	mine.Owner = s.owner
	mine.Since = cmp.Or(a.last.Since, a.stored.Sequence)
	mine.Epoch++
	mine.Revision = s.config.Revision
	mine.Tries = p.countAttempt(a.last)
	mine.Slow, mine.Timeouts = p.countTimeouts(a.last)
	p.tries = mine.Tries // also when the answer gets lost
	a.mine, a.sequence = mine, a.stored.Sequence
	return a.store(ctx)
}

// store stores the checkpoint of this worker in place of the one before it.
func (a *acquisition) store(ctx context.Context) error {
	p, s := a.p, a.p.stage
	sequence, err := a.mine.Store(ctx, s.js, p.cell.name, p.number, a.sequence)
	if err != nil {
		return err
	}
	a.sequence = sequence
	s.config.Handover.Fenced(p.cell.name, sequence)
	return nil
}

// note counts and logs that the partition is acquired.
func (a *acquisition) note(ctx context.Context) {
	p, t := a.p, a.p.stage.telemetry
	kind, cause := changeAcquired, p.cause
	if p.acquired {
		kind, cause = changeRecovered, causeRecovery
	}
	p.acquired, p.epoch = true, a.mine.Epoch
	if p.number == 0 {
		p.stage.retention.look()
	}
	t.count(ctx, t.acquisitions, 1, attribute.String("cause", cause))
	p.stage.changes.note(change{kind, cause, streams.OwnerName(a.last.Owner)}, p.number, a.mine.Epoch)
}

// reportUnconfirmed reports the entry whose outcome was unknown, when the checkpoint that was
// fenced says that it is stored: this worker wrote it, and no other can have since.
func (a *acquisition) reportUnconfirmed(ctx context.Context) {
	e, last := a.p.unconfirmed.Swap(nil), a.last
	if e != nil && last.Owner == a.p.stage.owner && last.Epoch <= e.checkpoint.Epoch+1 && last.Raw >= e.checkpoint.Raw && last.Archived >= e.checkpoint.Archived {
		a.p.stage.report(ctx, *e)
	}
}
