package events

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/broker"
	"tributary/pipeline/streams"
)

// ErrNoEvent means that a session has no such event in a generation.
var ErrNoEvent = errors.New("no such event")

// EventAt returns the first event of a session with at least this sequence. It reads few events however many the
// session has, and skips unreadable ones. It returns [ErrNoEvent] if there is none.
func EventAt(ctx context.Context, js jetstream.JetStream, generation string, id SessionID, sequence uint64) (Event, error) {
	e, err := eventAt(ctx, js, generation, id, sequence)
	if err != nil {
		return Event{}, fmt.Errorf("find event %d of a session in %s: %w", sequence, generation, err)
	}
	return e, nil
}

func eventAt(ctx context.Context, js jetstream.JetStream, generation string, id SessionID, sequence uint64) (Event, error) {
	readers, err := openEvents(ctx, js, generation, eventsReader{Query: Query{Source: id.Source, Session: id.Session}, read: readEvent})
	if err != nil {
		return Event{}, err
	}
	for _, r := range readers { // one of the cells has all events of the session
		e, err := r.at(ctx, sequence)
		if !errors.Is(err, ErrNoEvent) {
			return e, err
		}
	}
	return Event{}, ErrNoEvent
}

// at is [EventAt] in the cell of the reader. Within a session, sequences grow with positions.
func (r *eventsReader) at(ctx context.Context, sequence uint64) (Event, error) {
	found, none := Event{}, ErrNoEvent
	first, last := max(r.from, r.stream.CachedInfo().State.FirstSeq), r.end // the event is between these
	for first <= last {
		middle := first + (last-first)/2
		e, err := r.next(ctx, middle)
		for err != nil && e.Position > 0 && e.Position <= last { // unreadable: the next one shows the side
			e, err = r.next(ctx, e.Position+1)
		}
		switch {
		case err != nil && e.Position == 0 && !errors.Is(err, jetstream.ErrMsgNotFound):
			return Event{}, err
		case err != nil || e.Position > last:
			last = middle - 1
		case e.Sequence < sequence:
			first = e.Position + 1
		default:
			found, none = e, nil
			last = middle - 1
		}
	}
	return found, none
}

// next reads the first event of the query from a position on. If it is unreadable, the result has its Position.
func (r *eventsReader) next(ctx context.Context, from uint64) (Event, error) {
	stream := streams.EventsStream(r.name)
	m, err := broker.NextStored(ctx, r.js, stream, r.filters[0], from)
	if err != nil {
		return Event{}, err
	}
	e, err := r.read(stream, broker.Message{Msg: &nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data}, Sequence: m.Sequence, Stored: m.Time})
	e.Cell = r.cell
	return e, err
}

// FindEvent returns the event with an id. It reads the headers of the session's events, and the events themselves if
// the generation has ids nowhere else. It returns [ErrNoEvent] if there is none.
func FindEvent(ctx context.Context, js jetstream.JetStream, generation string, id SessionID, event string) (Event, error) {
	e, err := findEvent(ctx, js, generation, id, event)
	if err != nil {
		return Event{}, fmt.Errorf("find an event of a session in %s: %w", generation, err)
	}
	return e, nil
}

func findEvent(ctx context.Context, js jetstream.JetStream, generation string, id SessionID, event string) (Event, error) {
	q := Query{Source: id.Source, Session: id.Session}
	structured, escaped := false, envelopes.EscapeAttribute(event)
	e, err := firstOf(ctx, js, generation, eventsReader{Query: q, read: readID, headersOnly: true}, func(e *Event) bool {
		structured = structured || e.EventID == ""
		return e.EventID == escaped
	})
	if structured && errors.Is(err, ErrNoEvent) {
		e, err = firstOf(ctx, js, generation, eventsReader{Query: q, read: readEvent}, func(e *Event) bool { return e.EventID == event })
	}
	if err != nil {
		return Event{}, err
	}
	q.Cells = []int{e.Cell}
	readers, err := openEvents(ctx, js, generation, eventsReader{Query: q, read: readEvent})
	if err != nil {
		return Event{}, err
	}
	if e, err = readers[0].next(ctx, e.Position); err == nil && e.EventID != event || errors.Is(err, jetstream.ErrMsgNotFound) {
		err = ErrNoEvent // removed meanwhile
	}
	return e, err
}

// firstOf returns the first event of readers for which is returns true.
func firstOf(ctx context.Context, js jetstream.JetStream, generation string, template eventsReader, is func(*Event) bool) (Event, error) {
	readers, err := openEvents(ctx, js, generation, template)
	if err != nil {
		return Event{}, err
	}
	found, none := Event{}, ErrNoEvent
	err = merge(ctx, readers, false, func(e Event, err error) bool {
		if err == nil && is(&e) {
			found, none = e, nil
		}
		return none != nil
	})
	return found, errors.Join(err, context.Cause(ctx), none)
}

// readID reads only the id of an event from its attribute; empty for an event in structured mode, which has no
// attributes in its headers.
func readID(_ string, m broker.Message) (Event, error) {
	e := newEvent(m)
	var err error
	e.EventID, err = envelopes.DecodeHeaderValue(m.Header.Get("ce-id"))
	return e, err
}
