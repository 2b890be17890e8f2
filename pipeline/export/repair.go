package export

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/broker"
	"tributary/pipeline/events"
	"tributary/pipeline/streams"
)

// ErrNotRepairable means that the events stream went back in time, and that files have events that it no longer has.
var ErrNotRepairable = errors.New("the events stream went back in time, and these files cannot be repaired: export to another place")

// cell returns the cell of the archive's events.
func (a *archive) cell() int { return streams.CellOf(a.manifest.Through) }

// repair compares the archive with the events stream. If an older copy of the stream was restored, it removes the
// files with events that the stream lacks, because the same events will be stored again at other positions. It
// returns the number of these files.
func (a *archive) repair(ctx context.Context, js jetstream.JetStream, log *slog.Logger) (removed int, err error) {
	m := &a.manifest
	p, parted, err := events.FindParting(ctx, js, m.Generation, a.cell(), m.Marks)
	switch {
	case err != nil:
		return 0, ofBroker(err)
	case parted && !p.Expired:
	case parted:
		return 0, fmt.Errorf("%s: %w", a.place, ErrNotRepairable)
	case p.Expired:
		return 0, a.logExpired(ctx, js, log)
	case len(m.Marks) == 0:
		return 0, a.checkEnd(ctx, js)
	default:
		return 0, nil
	}
	if p.Common == (events.Mark{}) { // every file is removed, so none of their events may have expired
		first, parted, err := events.FindParting(ctx, js, m.Generation, a.cell(), events.Marks{m.First})
		switch {
		case err != nil:
			return 0, ofBroker(err)
		case m.First.Position == 0, !parted && first.Expired:
			return 0, fmt.Errorf("%s: %w", a.place, ErrNotRepairable)
		}
		m.First = events.Mark{}
	}
	read := m.Marks.Last()
	m.Through, m.Pending, m.Marks = streams.PlaceOf(a.cell(), p.Common.Position), span{}, m.Marks.UpTo(p.Common.Position)
	m.Removing, m.Read, a.there = true, 0, nil
	if err := a.save(ctx); err != nil {
		return 0, err
	}
	list, err := a.place.list(ctx)
	if err != nil {
		return 0, err
	}
	if removed, err = a.finishRemoval(ctx, list); err != nil {
		return removed, err
	}
	log.WarnContext(ctx, "the events stream went back in time: making files again", "stream", streams.EventsStream(envelopes.CellName(m.Generation, a.cell())),
		"read", read, "from", p.Common.Position+1, "removed", removed)
	return removed, nil
}

// finishRemoval removes the files behind the manifest, if the manifest says so.
func (a *archive) finishRemoval(ctx context.Context, list []stored) (removed int, err error) {
	if !a.manifest.Removing {
		return 0, nil
	}
	for _, f := range list {
		if s, ok := spanOf(f.name, a.manifest.Format); !ok || streams.CellOf(s.First) != a.cell() || s.First <= a.manifest.Through {
			continue
		}
		if err := a.place.remove(ctx, f.name); err != nil {
			return removed, err
		}
		removed++
	}
	a.manifest.Removing = false
	return removed, a.save(ctx)
}

// checkEnd notices a stream shorter than an archive without marks, written by an older version.
func (a *archive) checkEnd(ctx context.Context, js jetstream.JetStream) error {
	last, err := streams.LastPositions(ctx, js, a.manifest.Generation)
	if err == nil && streams.PlaceOf(a.cell(), last.In(a.cell())) < a.manifest.Through {
		err = fmt.Errorf("%s: %w", a.place, ErrNotRepairable)
	}
	return ofBroker(err)
}

// logExpired logs that events behind the archive may have expired.
func (a *archive) logExpired(ctx context.Context, js jetstream.JetStream, log *slog.Logger) error {
	name := envelopes.CellName(a.manifest.Generation, a.cell())
	next := max(a.manifest.Through, a.manifest.Read) + 1
	m, err := broker.NextStored(ctx, js, streams.EventsStream(name), envelopes.EventFilter(name, "", "", ""), next-streams.PlaceOf(a.cell(), 0))
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return nil
	case err != nil:
		return ofBroker(fmt.Errorf("read stream %s: %w", streams.EventsStream(name), err))
	}
	if first := streams.PlaceOf(a.cell(), m.Sequence); first > next {
		log.WarnContext(ctx, "events may have expired before they were exported", "from", next, "to", first-1)
	}
	return nil
}
