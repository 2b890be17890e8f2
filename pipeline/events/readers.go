package events

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/broker"
	"tributary/pipeline/streams"
)

// Reader is the progress of a reader of the events of a generation, such as a subscription or an export.
type Reader struct {
	Generation string
	Created    time.Time // creation of the first events stream: a dropped generation may return under its name
	Source     envelopes.Source
	Session    string
	Type       envelopes.EventType // it reads only this type; empty for all
	Marks      []Marks             // of events that it has read, by cell
	Done       streams.Positions   // positions up to which it has read every event, by cell
}

// ReaderStatus is the progress of a reader of events compared with the streams.
type ReaderStatus struct {
	Generation string            `json:"generation"`
	Done       streams.Positions `json:"done"`               // positions up to which it has read every event, by cell
	Read       time.Time         `json:"read,omitzero"`      // when the last event read was stored
	Behind     uint64            `json:"behind"`             // unread events
	Oldest     time.Time         `json:"oldest,omitzero"`    // when the first unread event was stored
	Expires    time.Time         `json:"expires,omitzero"`   // when that event leaves the stream; zero for never
	Expired    uint64            `json:"expired,omitzero"`   // upper bound of events that expired unread
	WentBack   bool              `json:"went_back,omitzero"` // a stream no longer has what was read: events behind that will be read again
	Dropped    bool              `json:"dropped,omitzero"`   // the generation is gone
}

// Status compares the progress of the reader with the streams.
func (r *Reader) Status(ctx context.Context, js jetstream.JetStream) (ReaderStatus, error) {
	is := ReaderStatus{Generation: r.Generation, Done: r.Done}
	streams, err := streams.EventsStreams(ctx, js, r.Generation)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound), err == nil && !r.Created.IsZero() && !streams[0].CachedInfo().Created.Equal(r.Created):
		is.Dropped = true
		return is, nil
	case err != nil:
		return is, fmt.Errorf("events streams of %s: %w", r.Generation, err)
	}
	for c, stream := range streams {
		if err := r.compare(ctx, js, &is, c, stream.CachedInfo().State.LastSeq); err != nil {
			return is, err
		}
	}
	return is, nil
}

// compare compares the progress with the stream of a cell, which ended at position end a moment ago.
func (r *Reader) compare(ctx context.Context, js jetstream.JetStream, is *ReaderStatus, cell int, end uint64) error {
	var marks Marks
	if cell < len(r.Marks) {
		marks = r.Marks[cell]
	}
	p, parted, err := FindParting(ctx, js, r.Generation, cell, marks)
	if err != nil {
		return err
	}
	from := r.Done.In(cell) + 1
	if parted || from > end+1 {
		is.WentBack, from = true, p.From
	}
	if p.Common.Stored.After(is.Read) {
		is.Read = p.Common.Stored
	}
	name := envelopes.CellName(r.Generation, cell)
	stream, filter := streams.EventsStream(name), envelopes.EventFilter(name, r.Source, r.Session, r.Type)
	next := end + 1
	first, err := broker.NextStored(ctx, js, stream, filter, from)
	switch {
	case err == nil:
		next = first.Sequence
		if is.Oldest.IsZero() || first.Time.Before(is.Oldest) {
			is.Oldest, is.Expires = first.Time, time.Time{}
			if kept := ttlOf(first.Header); kept > 0 {
				is.Expires = first.Time.Add(kept)
			}
		}
		n, err := broker.CountFrom(ctx, js, stream, next, filter)
		if err != nil {
			return err
		}
		is.Behind += n
	case !errors.Is(err, jetstream.ErrMsgNotFound):
		return fmt.Errorf("read stream %s: %w", stream, err)
	}
	if p.Expired && !parted && next > from {
		is.Expired += next - from
	}
	return nil
}
