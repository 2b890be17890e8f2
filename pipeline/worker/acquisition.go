package worker

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"tributary/pipeline/broker"
	"tributary/pipeline/streams"
)

// acquisition is one attempt to become the owner of a partition (README.md, Commit protocol). Its steps run in this
// order: read, check and fence, mend.
type acquisition struct {
	p      *partition
	last   streams.Checkpoint // the newest one
	stored broker.Stored      // message of last

	mine     streams.Checkpoint // last, stored again under the name of this worker
	sequence uint64             // of mine in the events stream
}

// settling is a number of heartbeats. Workers that start together, as when a generation becomes live, may not know
// each other for so long, and acquire partitions that are assigned to others.
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
	erased, err := a.readErased(ctx)
	if err != nil {
		return nil, err
	}
	if a.mine.Tries > streams.MaxTogether {
		p.log.Warn("committing records one at a time", slog.Int("tries", a.mine.Tries), slog.Uint64("sequence", a.mine.Raw+1))
	}
	return newOwnership(ctx, p, a.mine, a.sequence, erased), nil
}

// readErased reads which sessions were erased. An erasure does not count before its command has come to the partition.
func (a *acquisition) readErased(ctx context.Context) (streams.Erased, error) {
	if a.mine.Erased == 0 {
		return nil, nil
	}
	list, err := streams.ReadErasures(ctx, a.p.stage.js, a.p.number)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(list, func(e streams.Erasure) bool { return e.Sequence == a.mine.Erased }) {
		a.p.log.Error("log of erasures has lost entries: records of erased sessions that arrive again become events; restore the stream",
			slog.String("stream", streams.ErasuresStream), slog.Uint64("entry", a.mine.Erased))
	}
	return streams.ErasedThrough(list, a.mine.Erased), nil
}

// read reads the newest checkpoint of the partition. After another worker has overtaken this one, it waits for a
// heartbeat first: otherwise the two would only acquire the partition from each other. While heartbeats cannot be
// exchanged, both workers consider the partition theirs, so it waits until they can.
func (a *acquisition) read(ctx context.Context) error {
	p, s := a.p, a.p.stage
	if err := a.readCheckpoint(ctx); err != nil {
		return err
	}
	if p.acquired && a.last.Owner != s.owner && a.last.Owner != "" { // a command that retires the generation leaves no owner
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
				return errOvertaken // the partition stays with the other worker
			}
		}
		if err := a.readCheckpoint(ctx); err != nil {
			return err
		}
	}
	return a.last.BelongsTo(&s.generation)
}

// readCheckpoint reads the newest checkpoint of the partition from the leader of the stream.
func (a *acquisition) readCheckpoint(ctx context.Context) (err error) {
	s := a.p.stage
	if err := s.acquiring.Acquire(ctx); err != nil {
		return err
	}
	defer s.acquiring.Release()
	a.last, a.stored, err = streams.GetCheckpoint(ctx, s.js, a.p.cell.name, a.p.number)
	return err
}

// checkAndFence makes this worker the owner from the newest checkpoint on. It fails when the raw stream has lost its
// tail or the batch of the checkpoint is incomplete.
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

// fence stores the newest checkpoint again under the name of this worker. From then on no commit that began earlier
// can succeed, whichever worker sent it and whenever it arrives.
func (a *acquisition) fence(ctx context.Context) error {
	p, s := a.p, a.p.stage
	mine := a.last.WithCounted()
	mine.Owner = s.owner
	mine.Since = cmp.Or(a.last.Since, a.stored.Sequence)
	mine.Epoch++
	mine.Revision = s.config.Revision
	mine.Tries = p.countAttempt(a.last)
	mine.Slow, mine.Timeouts = p.countTimeouts(a.last)
	p.tries = mine.Tries // even if the answer gets lost
	a.mine, a.sequence = mine, a.stored.Sequence
	return a.store(ctx)
}

// store replaces the checkpoint with the one of this worker.
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

// note counts and logs the acquisition.
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

// reportUnconfirmed reports the entry whose outcome was unknown if the fenced checkpoint shows that it is stored.
// Only this worker can have written that checkpoint.
func (a *acquisition) reportUnconfirmed(ctx context.Context) {
	e, last := a.p.unconfirmed.Swap(nil), a.last
	if e != nil && last.Owner == a.p.stage.owner && last.Epoch <= e.checkpoint.Epoch+1 && last.Raw >= e.checkpoint.Raw && last.Archived >= e.checkpoint.Archived {
		a.p.stage.report(ctx, *e)
	}
}
