package events

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/broker"
	"tributary/pipeline/streams"
)

// Span is a part of the events stream of a cell: positions First to Last; empty if First is behind Last.
type Span struct {
	Cell  int    `json:"cell"`
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
}

// Sizes of the parts of a span.
const (
	firstPart = 512     // positions
	maxPart   = 1 << 20 // positions
	growth    = 4       // maximum ratio of a part to the part returned before it
	partBytes = 16 << 20
)

// Parts cuts a span into parts, last part first. The first part is small, so that a reader has results early; the next
// ones grow up to about 16 MB.
type Parts struct {
	left Span
	size uint64
}

// NewParts returns the parts of a span.
func NewParts(s Span) *Parts {
	s.First = max(s.First, 1)
	return &Parts{s, firstPart}
}

// Left returns what is left of the span.
func (p *Parts) Left() Span { return p.left }

// Next returns the part before the one returned last. It returns false if no part is left.
func (p *Parts) Next() (Span, bool) {
	if p.left.First > p.left.Last {
		return Span{}, false
	}
	return p.From(p.left.Last - min(p.size, p.left.Last) + 1), true
}

// From returns all that is left from a position on as the next part, whatever its size.
func (p *Parts) From(first uint64) Span {
	part := Span{p.left.Cell, max(first, p.left.First), p.left.Last}
	p.left.Last = part.First - 1
	return part
}

// Note adapts the size of the next parts to the number of bytes read of a part.
func (p *Parts) Note(part Span, read int64) {
	positions := part.Last - part.First + 1
	size := growth * positions
	if read > 0 {
		size = min(size, positions*partBytes/uint64(read))
	}
	p.size = min(max(size, firstPart), maxPart)
}

// Message is an event as stored, before it is decoded.
type Message struct {
	broker.Message
	Cell   int
	Source envelopes.Source
	Type   envelopes.EventType
	stream string
}

// JSON returns the event as JSON in the memory of the message; false if the message is a document with the event
// inside (structured mode).
func (m *Message) JSON() ([]byte, bool) {
	return m.Data, m.Header.Get("ce-specversion") != ""
}

// Outline decodes the event as [Outlines] does.
func (m *Message) Outline() (Event, error) {
	e, err := readOutline(m.stream, m.Message)
	e.Cell = m.Cell
	return e, err
}

// Spans reads parts of the events streams of a generation. A reader that wants the newest events first reads parts
// from the end to the beginning, each of them forward.
type Spans struct {
	Stored     []Span // span of each cell when opened
	generation string
	readers    []*eventsReader
	noBodies   atomic.Bool // [Spans.Bodies] has failed once
}

// OpenSpans returns the spans of a generation. Source, Session, Sessions, Types and Cells of the query select the
// messages to read. If the query selects all events, the stream is read without a filter: the server needs longer to
// find the next matching message than to send the few messages that are no events.
func OpenSpans(ctx context.Context, js jetstream.JetStream, generation string, q Query) (*Spans, error) {
	q = Query{Source: q.Source, Session: q.Session, Sessions: q.Sessions, Types: q.Types, Cells: q.Cells}
	readers, err := openEvents(ctx, js, generation, eventsReader{Query: q})
	if err != nil {
		return nil, fmt.Errorf("open events of %s: %w", generation, err)
	}
	s := &Spans{generation: generation, readers: readers}
	for _, r := range readers {
		if slices.Equal(r.filters, []string{envelopes.EventFilter(r.name, "", "", "")}) {
			r.filters = []string{}
		}
		s.Stored = append(s.Stored, Span{r.cell, r.stream.CachedInfo().State.FirstSeq, r.end})
	}
	return s, nil
}

// Read iterates over the messages of a part of a span in order. Several parts may be read at the same time. For a
// message of another program it yields the message with an error and continues; an error without a message ends it,
// as ctx does.
func (s *Spans) Read(ctx context.Context, part Span) iter.Seq2[*Message, error] {
	return func(yield func(*Message, error) bool) {
		for _, all := range s.readers {
			if all.cell != part.Cell {
				continue
			}
			r := *all
			r.from, r.end = part.First, min(part.Last, all.end)
			if r.from > r.end {
				continue
			}
			var m *Message
			r.read = func(stream string, read broker.Message) (e Event, err error) {
				m = &Message{Message: read, Cell: r.cell, stream: stream}
				e, err = readAddress(stream, read)
				m.Source, m.Type = e.Source, e.EventType
				return e, err
			}
			if err := r.each(ctx, r.from, false, func(_ Event, err error) bool { return yield(m, err) }); err != nil {
				yield(nil, fmt.Errorf("read events of %s: %w", s.generation, err))
			}
			return
		}
	}
}

// bodyBytes is about how much of a part is read with one request.
const bodyBytes = 4 << 20

// Bodies passes the bodies of all messages of a part to see, in order, and returns when the first and the last of them
// were stored. The broker sends no headers, so that takes about half as long as [Spans.Read]. It is not whole if see
// returns false, if the query selects only some of the messages, or if not every position of the part could be read: the
// user has no right to direct gets, a message was removed, or a replica is behind.
func (s *Spans) Bodies(ctx context.Context, js jetstream.JetStream, part Span, see func(body []byte) bool) (first, last time.Time, whole bool) {
	i := slices.IndexFunc(s.readers, func(r *eventsReader) bool { return r.cell == part.Cell })
	if i < 0 || len(s.readers[i].filters) > 0 || s.noBodies.Load() {
		return first, last, false
	}
	r, stopped := s.readers[i], false
	stream := streams.EventsStream(r.name)
	for from := part.First; from <= part.Last; {
		read, err := broker.ReadBodies(ctx, js, stream, from, int(part.Last-from+1), bodyBytes, func(body []byte) bool { //nolint:gosec // a part has less than 2^31 positions
			stopped = !see(body)
			return !stopped
		})
		if err != nil && ctx.Err() == nil {
			s.noBodies.Store(true)
		}
		if err != nil || stopped || read < from || read > part.Last {
			return first, last, false
		}
		from = read + 1
	}
	for position, stored := range map[uint64]*time.Time{part.First: &first, part.Last: &last} {
		var err error
		if *stored, err = s.storedAt(ctx, js, part.Cell, position); err != nil {
			return first, last, false
		}
	}
	return first, last, true
}

// storedAt returns when the message at a position of a cell was stored. It returns [jetstream.ErrMsgNotFound] if there is none.
func (s *Spans) storedAt(ctx context.Context, js jetstream.JetStream, cell int, position uint64) (time.Time, error) {
	i := slices.IndexFunc(s.readers, func(r *eventsReader) bool { return r.cell == cell })
	if i < 0 {
		return time.Time{}, jetstream.ErrMsgNotFound
	}
	m, err := broker.ReadStored(ctx, js, streams.EventsStream(s.readers[i].name), broker.GetRequest{Sequence: position})
	if err != nil {
		return time.Time{}, err
	}
	return m.Time, nil
}

// readAddress reads only the subject of an event.
func readAddress(stream string, m broker.Message) (Event, error) {
	e := newEvent(m)
	if !strings.HasPrefix(m.Subject, "events.") {
		return e, errNotEvent
	}
	address, err := envelopes.ParseEventSubject(m.Subject)
	if err != nil {
		return e, fmt.Errorf("event %d of %s: %w", e.Position, stream, err)
	}
	e.Source, e.EventType = address.Source, address.EventType
	return e, nil
}
