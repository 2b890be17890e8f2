package events

import (
	"context"
	"fmt"
	"iter"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/broker"
)

// Span is a part of the events stream of a cell: its positions from First to Last, none if First is behind Last.
type Span struct {
	Cell        int
	First, Last uint64
}

// Sizes of the parts of a span.
const (
	firstPart = 512     // positions
	maxPart   = 1 << 20 // positions
	partBytes = 32 << 20
)

// Parts cuts a span into parts, of which the last one comes first. It is small, so that something is known at once, and
// those before it get larger, up to about 32 MB.
type Parts struct {
	left Span
	size uint64
}

// NewParts returns the parts of a span.
func NewParts(s Span) *Parts {
	s.First = max(s.First, 1)
	return &Parts{s, firstPart}
}

// Next returns the part before the one that it returned last, of which so many bytes were read. It reports false if none is left.
func (p *Parts) Next(read int64) (Span, bool) {
	if p.left.First > p.left.Last {
		return Span{}, false
	}
	if read > 0 {
		p.resize(read)
	}
	part := p.left
	if part.Last-part.First >= p.size {
		part.First = part.Last - p.size + 1
	}
	p.left.Last = part.First - 1
	return part, true
}

// resize changes the size of the parts, of which one had so many bytes.
func (p *Parts) resize(read int64) {
	for range 2 {
		if read < partBytes/2 && p.size < maxPart {
			p.size, read = 2*p.size, 2*read
		}
	}
	if read > partBytes && p.size > firstPart {
		p.size /= 2
	}
}

// Message is an event as its stream holds it, before it is decoded.
type Message struct {
	broker.Message
	Cell   int
	Source envelopes.Source
	Type   envelopes.EventType
	stream string
}

// JSON returns the event as JSON, which shares the memory of the message; false where the message is a document
// that has the event within (structured mode).
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
	Stored     []Span // what each cell had when the spans were opened
	generation string
	readers    []*eventsReader
}

// OpenSpans returns the spans of a generation. Source, Session, Sessions, Types and Cells of the query
// select the messages that are read.
func OpenSpans(ctx context.Context, js jetstream.JetStream, generation string, q Query) (*Spans, error) {
	q = Query{Source: q.Source, Session: q.Session, Sessions: q.Sessions, Types: q.Types, Cells: q.Cells}
	readers, err := openEvents(ctx, js, generation, eventsReader{Query: q})
	if err != nil {
		return nil, fmt.Errorf("open events of %s: %w", generation, err)
	}
	s := &Spans{generation: generation, readers: readers}
	for _, r := range readers {
		s.Stored = append(s.Stored, Span{r.cell, r.stream.CachedInfo().State.FirstSeq, r.end})
	}
	return s, nil
}

// Read iterates over the messages of a part of one of the spans, in their order. Several parts may be read at the
// same time. A message of another program is yielded with an error, and the iteration goes on; an error without a
// message ends it, as ctx does.
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

// readAddress reads what the subject of an event states, and no content.
func readAddress(stream string, m broker.Message) (Event, error) {
	e := newEvent(m)
	address, err := envelopes.ParseEventSubject(m.Subject)
	if err != nil {
		return e, fmt.Errorf("event %d of %s: %w", e.Position, stream, err)
	}
	e.Source, e.EventType = address.Source, address.EventType
	return e, nil
}
