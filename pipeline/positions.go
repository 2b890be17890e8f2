package pipeline

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
)

// Positions are positions in the events streams of a generation, by cell; one that is missing is 0. In JSON, that
// of a single cell is a number.
type Positions []uint64

// In returns the position in a cell.
func (p Positions) In(cell int) uint64 {
	if cell < len(p) {
		return p[cell]
	}
	return 0
}

// With returns positions with another one in a cell. They share nothing with p.
func (p Positions) With(cell int, position uint64) Positions {
	next := make(Positions, max(len(p), cell+1))
	copy(next, p)
	next[cell] = position
	return next
}

// Reach reports whether every position is at or behind that of other.
func (p Positions) Reach(other Positions) bool {
	for c, position := range other {
		if p.In(c) < position {
			return false
		}
	}
	return true
}

// Equal reports whether both are the same positions.
func (p Positions) Equal(other Positions) bool { return p.Reach(other) && other.Reach(p) }

// String lists the positions.
func (p Positions) String() string {
	if len(p) <= 1 {
		return strconv.FormatUint(p.In(0), 10)
	}
	return strings.Trim(fmt.Sprint([]uint64(p)), "[]")
}

// MarshalJSONTo writes p.
func (p Positions) MarshalJSONTo(e *jsontext.Encoder) error {
	if len(p) <= 1 {
		return json.MarshalEncode(e, p.In(0))
	}
	return json.MarshalEncode(e, []uint64(p))
}

// UnmarshalJSONFrom reads p.
func (p *Positions) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() == '[' {
		return json.UnmarshalDecode(d, (*[]uint64)(p))
	}
	*p = make(Positions, 1)
	return json.UnmarshalDecode(d, &(*p)[0])
}

// placeBits is the number of bits of a position in a place.
const placeBits = 48

// PlaceOf returns a cell and a position there in one number, which in cell 0 is the position.
func PlaceOf(cell int, position uint64) uint64 { return uint64(cell)<<placeBits | position }

// CellOf returns the cell of a place.
func CellOf(place uint64) int { return int(place >> placeBits) }

// LastPositions returns the last positions of the events streams of a generation.
func LastPositions(ctx context.Context, js jetstream.JetStream, generation string) (Positions, error) {
	streams, err := eventsStreams(ctx, js, generation)
	if err != nil {
		return nil, err
	}
	last := make(Positions, len(streams))
	for c, stream := range streams {
		last[c] = stream.CachedInfo().State.LastSeq
	}
	return last, nil
}

// eventsStreams returns the events streams of a generation, by cell.
func eventsStreams(ctx context.Context, js jetstream.JetStream, generation string) ([]jetstream.Stream, error) {
	first, err := js.Stream(ctx, EventsStream(generation))
	if err != nil {
		return nil, err
	}
	streams := []jetstream.Stream{first}
	for c := 1; c < layoutOf(first.CachedInfo().Config.Metadata).Cells; c++ {
		stream, err := js.Stream(ctx, EventsStream(envelopes.CellName(generation, c)))
		if err != nil {
			return nil, err
		}
		streams = append(streams, stream)
	}
	return streams, nil
}

// cellArrival is an event of one cell, the notice that it has caught up, or the end of its reading.
type cellArrival struct {
	event    Event
	err      error // of the event, or why the reading ended
	caughtUp bool
	ended    bool
}

// cellFeed passes on what one reader reads.
type cellFeed struct {
	arrivals chan cellArrival
	head     *cellArrival // the next event; nil when none has arrived
	caughtUp bool         // other cells do not wait for it
	ended    bool
}

// mergeAhead is how many events of a cell wait for those of others.
const mergeAhead = 64

// merge yields the events of all readers, until yield returns false. As long as a cell has events that
// were there at the beginning, the one that was stored first comes first; later ones come as
// they arrive.
func merge(ctx context.Context, readers []*eventsReader, follow bool, yield func(Event, error) bool) error {
	if len(readers) == 1 {
		return readers[0].each(ctx, readers[0].from, follow, yield)
	}
	ctx, stop := context.WithCancel(ctx)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer stop()
	arrived := make(chan struct{}, 1)
	feeds := make([]*cellFeed, len(readers))
	for i, r := range readers {
		f := &cellFeed{arrivals: make(chan cellArrival, mergeAhead)}
		feeds[i] = f
		reading.Go(func() { f.read(ctx, r, follow, arrived) })
	}
	for ctx.Err() == nil {
		next, failed := nextOf(ctx, feeds)
		switch {
		case failed != nil:
			return failed
		case next == nil && !slices.ContainsFunc(feeds, func(f *cellFeed) bool { return !f.ended }):
			return nil
		case next == nil:
			select {
			case <-arrived:
			case <-ctx.Done():
			}
		default:
			a := *next.head
			next.head = nil
			if !yield(a.event, a.err) {
				return nil
			}
		}
	}
	return nil
}

// read passes on what a reader reads.
func (f *cellFeed) read(ctx context.Context, r *eventsReader, follow bool, arrived chan<- struct{}) {
	send := func(a cellArrival) bool {
		select {
		case f.arrivals <- a:
		case <-ctx.Done():
			return false
		}
		select {
		case arrived <- struct{}{}:
		default:
		}
		return true
	}
	r.caughtUp = func() { send(cellArrival{caughtUp: true}) }
	err := r.each(ctx, r.from, follow, func(e Event, err error) bool { return send(cellArrival{event: e, err: err}) })
	send(cellArrival{err: err, ended: true})
}

// nextOf returns the feed with the next event, nil when none has one. It waits for those that have
// not caught up. failed is why one has ended.
func nextOf(ctx context.Context, feeds []*cellFeed) (next *cellFeed, failed error) {
	for _, f := range feeds {
		for f.head == nil && !f.ended {
			a, ok := f.take(ctx)
			if !ok {
				break
			}
			switch {
			case a.ended:
				f.ended, failed = true, a.err
			case a.caughtUp:
				f.caughtUp = true
			default:
				f.head = &a
			}
			if failed != nil {
				return nil, failed
			}
		}
		if f.head != nil && (next == nil || f.head.event.Stored.Before(next.head.event.Stored)) {
			next = f
		}
	}
	return next, nil
}

// take returns the next arrival. It waits for it unless the cell has caught up.
func (f *cellFeed) take(ctx context.Context) (cellArrival, bool) {
	if f.caughtUp {
		select {
		case a := <-f.arrivals:
			return a, true
		default:
			return cellArrival{}, false
		}
	}
	select {
	case a := <-f.arrivals:
		return a, true
	case <-ctx.Done():
		return cellArrival{}, false
	}
}
