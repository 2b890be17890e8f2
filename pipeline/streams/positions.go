package streams

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/broker"
)

// Positions are positions in the events streams of a generation, by cell; a missing one is 0. In JSON, the position
// of a single cell is a number.
type Positions []uint64

// In returns the position in a cell.
func (p Positions) In(cell int) uint64 {
	if cell < len(p) {
		return p[cell]
	}
	return 0
}

// With returns a copy of p with another position in a cell.
func (p Positions) With(cell int, position uint64) Positions {
	next := make(Positions, max(len(p), cell+1))
	copy(next, p)
	next[cell] = position
	return next
}

// Reach reports whether every position is at or behind the one of other.
func (p Positions) Reach(other Positions) bool {
	for c, position := range other {
		if p.In(c) < position {
			return false
		}
	}
	return true
}

// Equal reports whether p and other have the same positions.
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

// placeBits is the number of bits for a position in a place.
const placeBits = 48

// PlaceOf combines a cell and a position in one number; in cell 0 it equals the position.
func PlaceOf(cell int, position uint64) uint64 { return uint64(cell)<<placeBits | position }

// CellOf returns the cell of a place.
func CellOf(place uint64) int { return int(place >> placeBits) }

// LastPositions returns the last positions of the events streams of a generation.
func LastPositions(ctx context.Context, js jetstream.JetStream, generation string) (Positions, error) {
	streams, err := EventsStreams(ctx, js, generation)
	if err != nil {
		return nil, err
	}
	last := make(Positions, len(streams))
	for c, stream := range streams {
		last[c] = stream.CachedInfo().State.LastSeq
	}
	return last, nil
}

// EventsStreams returns the events streams of a generation, by cell.
func EventsStreams(ctx context.Context, js jetstream.JetStream, generation string) ([]jetstream.Stream, error) {
	ctx, lost := broker.UntilDisconnected(ctx, js.Conn())
	defer lost()
	ctx, cancel := context.WithTimeout(ctx, broker.RequestTimeout)
	defer cancel()
	first, err := js.Stream(ctx, EventsStream(generation))
	if err != nil {
		return nil, broker.CauseOf(ctx, err)
	}
	streams := []jetstream.Stream{first}
	for c := 1; c < layoutOf(first.CachedInfo().Config.Metadata).Cells; c++ {
		stream, err := js.Stream(ctx, EventsStream(envelopes.CellName(generation, c)))
		if err != nil {
			return nil, broker.CauseOf(ctx, err)
		}
		streams = append(streams, stream)
	}
	return streams, nil
}
