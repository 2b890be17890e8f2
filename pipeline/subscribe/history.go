package subscribe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/broker"
	"tributary/pipeline/events"
	"tributary/pipeline/streams"
)

// WentBack reports that an older copy of the events stream was restored, for example from a snapshot, and that the
// subscription continues with what was stored since. Events stored after Since are made again, and passed again with
// [Event.Repeated].
type WentBack struct {
	Generation string
	Cell       int
	Since      time.Time // when the last event that certainly still exists was stored; zero for none
}

// Expired reports that events may have expired before they were passed, because the subscription was away or behind
// for longer than events are kept.
type Expired struct {
	Generation string
	Cell       int
	Most       uint64    // upper bound of their number
	Since      time.Time // when the last passed event was stored
}

// history describes the done events in the cursor, to find out whether the streams still have them.
type history struct {
	Marks   []events.Marks `json:"marks,omitempty"`   // by cell
	Records []uint64       `json:"records,omitempty"` // last raw record with a done event, by partition
	Again   []uint64       `json:"again,omitempty"`   // raw record up to which events may be passed again, by partition
	Ends    positions      `json:"ends,omitzero"`     // of the streams, when every event up to there was done
}

// last returns the last done event of each cell; zero for none.
func (h *history) last() []events.Mark {
	list := make([]events.Mark, len(h.Marks))
	for c, m := range h.Marks {
		if len(m) > 0 {
			list[c] = m[len(m)-1]
		}
	}
	return list
}

// add adds marks of done events, by cell, to a copy.
func (h *history) add(newest []events.Mark) {
	marks := make([]events.Marks, max(len(h.Marks), len(newest)))
	copy(marks, h.Marks)
	for c, m := range newest {
		if m.Position > marks[c].Last() {
			marks[c] = marks[c].With(m)
		}
	}
	h.Marks = marks
}

// note notes a done event.
func (h *history) note(e *events.Event) {
	p := e.Provenance.Partition
	if p < 0 || e.Provenance.RawSequence == 0 {
		return
	}
	for len(h.Records) <= p {
		h.Records = append(h.Records, 0)
	}
	h.Records[p] = max(h.Records[p], e.Provenance.RawSequence)
}

// repeated reports whether an event may have been passed before the stream went back.
func (h *history) repeated(e *events.Event) bool {
	p := e.Provenance.Partition
	return p >= 0 && p < len(h.Again) && e.Provenance.RawSequence <= h.Again[p]
}

// goBack finds where the streams of the generation part from the done events, and continues there.
func (d *delivery) goBack(ctx context.Context) error {
	d.cursor.add(d.newest)
	for c, marks := range d.cursor.Marks {
		p, parted, err := events.FindParting(ctx, d.js, d.cursor.Generation, c, marks)
		if err != nil {
			return err
		}
		if !parted {
			continue
		}
		since := p.Common.Stored
		back := WentBack{d.cursor.Generation, c, since}
		if err := d.callUntilDone(ctx, "WentBack", func() error {
			if d.config.WentBack == nil {
				return nil
			}
			return d.config.WentBack(ctx, back)
		}); err != nil {
			return err
		}
		d.log.WarnContext(ctx, "the events stream went back in time: events are passed again, and marked as repeated",
			slog.String("stream", streams.EventsStream(envelopes.CellName(d.cursor.Generation, c))),
			slog.Uint64("read", marks.Last()), slog.Uint64("from", p.From), slog.Time("since", since), slog.Bool("expired", p.Expired))
		d.observer.wentBack(ctx)
		d.rewind(c, p)
	}
	return d.store(ctx)
}

// callUntilDone calls a function of the program until it succeeds.
func (d *delivery) callUntilDone(ctx context.Context, name string, call func() error) error {
	for wait := d.config.Backoff; ; wait = min(2*wait, maxBackoff) {
		err := call()
		if err == nil {
			return nil
		}
		d.log.WarnContext(ctx, "function of the program failed: calling it again", slog.String("function", name), slog.Any("error", err))
		if err := d.pause(ctx, wait); err != nil {
			return err
		}
	}
}

// compare compares the cursor with the streams, which end at last, when the reading begins.
func (d *delivery) compare(ctx context.Context, last positions) error {
	for c := range d.cursor.Marks {
		p, parted, err := events.FindParting(ctx, d.js, d.cursor.Generation, c, d.cursor.Marks[c])
		switch {
		case err != nil:
			return err
		case parted:
			return d.goBack(ctx)
		case p.Expired:
			err = d.reportExpired(ctx, c, p.Common)
		case p.Common.Position > 0 && last.In(c) < d.cursor.Position.In(c):
			d.cursor.Position = d.cursor.Position.With(c, p.Common.Position) // the stream has lost no passed event
		}
		if err != nil {
			return err
		}
	}
	for c, end := range last {
		if passed := d.cursor.Position.In(c); end < passed {
			return fmt.Errorf("%w: it ends at %d, and the events up to %d were passed: remove the key %s of bucket %s to begin again",
				ErrWentBack, end, passed, d.config.Name, streams.SubscribersBucket)
		}
	}
	return nil
}

// reportExpired reports that events behind the last done one may have expired, unless there were none.
func (d *delivery) reportExpired(ctx context.Context, cell int, last events.Mark) error {
	name := envelopes.CellName(d.cursor.Generation, cell)
	from := max(d.cursor.Position.In(cell), d.cursor.Ends.In(cell)) + 1
	first, err := d.firstFrom(ctx, name, from)
	if err != nil || first <= from {
		return err
	}
	return d.reportRange(ctx, cell, from, first, last.Stored)
}

// reportRange reports that the events of a cell from position from to before first, the first existing one, may have
// expired.
func (d *delivery) reportRange(ctx context.Context, cell int, from, first uint64, since time.Time) error {
	expired := Expired{d.cursor.Generation, cell, first - from, since}
	if err := d.callUntilDone(ctx, "Expired", func() error {
		if d.config.Expired == nil {
			return nil
		}
		return d.config.Expired(ctx, expired)
	}); err != nil {
		return err
	}
	d.log.ErrorContext(ctx, "events may have expired before they were passed",
		slog.String("stream", streams.EventsStream(envelopes.CellName(d.cursor.Generation, cell))),
		slog.Uint64("most", expired.Most), slog.Time("since", expired.Since))
	d.observer.expired(ctx, expired.Most)
	d.cursor.Ends = d.cursor.Ends.With(cell, first-1) // reported once
	return d.store(ctx)
}

// reach is how far a reading has come. It belongs to the reading goroutine.
type reach struct {
	nothing *atomic.Int64 // of the subscription
	last    []events.Mark // last event of each cell
	kept    time.Duration // shortest time that an event is kept; 0 for ever
}

// reach returns how far events are done, which is where a reading begins.
func (p *progress) reach() reach {
	r := reach{nothing: &p.nothing, last: slices.Clone(p.cursor.last())}
	for c := range r.last {
		r.last[c].Position = max(r.last[c].Position, p.cursor.Position.In(c), p.cursor.Ends.In(c))
	}
	return r
}

// next notes that an event was read. It returns the previous event if events between the two may have expired unread:
// enough time has passed since that one was stored, and since there was nothing to read.
func (r *reach) next(e *events.Event) *events.Mark {
	if e.Position == 0 {
		return nil
	}
	if e.Kept > 0 && (r.kept == 0 || e.Kept < r.kept) {
		r.kept = e.Kept
	}
	for len(r.last) <= e.Cell {
		r.last = append(r.last, events.Mark{})
	}
	before := r.last[e.Cell]
	r.last[e.Cell] = events.MarkOf(e)
	behind := min(time.Since(before.Stored), time.Since(time.Unix(0, r.nothing.Load())))
	if before.Position == 0 || e.Position == before.Position+1 || r.kept == 0 || behind < r.kept {
		return nil
	}
	return &before
}

// firstFrom returns the position of the first selected event at or after a position; behind the end of the stream if
// there is none.
func (d *delivery) firstFrom(ctx context.Context, name string, from uint64) (uint64, error) {
	info, err := d.stream(ctx, name) // read first, because an event may arrive in between
	if err != nil {
		return 0, err
	}
	m, err := broker.NextStored(ctx, d.js, streams.EventsStream(name), envelopes.EventFilter(name, d.config.Source, d.config.Session, d.config.Type), from)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return info.State.LastSeq + 1, nil
	case err != nil:
		return 0, fmt.Errorf("events stream of %s: %w", name, err)
	}
	return m.Sequence, nil
}

// idle is called before the reading begins, and while no event arrives. It returns [events.ErrWentBack] if a stream
// lacks the last done event, and notes how far the streams were read.
func (d *delivery) idle(ctx context.Context) error {
	began, read := time.Now(), true
	for c := range d.cells {
		var marks events.Marks
		if c < len(d.cursor.Marks) {
			marks = d.cursor.Marks[c]
		}
		_, parted, err := events.FindParting(ctx, d.js, d.cursor.Generation, c, marks)
		if err == nil && parted {
			return events.ErrWentBack
		}
		if err != nil {
			return nil //nolint:nilerr // the reading notices that the broker is away
		}
		from := d.cursor.Position.In(c) + 1
		name := envelopes.CellName(d.cursor.Generation, c)
		info, err := d.stream(ctx, name)
		if err != nil {
			return nil //nolint:nilerr // as above
		}
		end := info.State.LastSeq
		if end <= max(from-1, d.cursor.Ends.In(c)) {
			continue
		}
		if first, err := d.firstFrom(ctx, name, from); err == nil && first > end {
			d.cursor.Ends = d.cursor.Ends.With(c, end)
		} else {
			read = false
		}
	}
	if read {
		d.nothing.Store(began.UnixNano())
	}
	return d.store(ctx)
}
