package events

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/broker"
	"tributary/pipeline/streams"
)

// Mark identifies an event that a reader has read. A stream that was restored from an older copy has another message
// at its position, or none.
type Mark struct {
	Position uint64    `json:"position"`
	Stored   time.Time `json:"stored"`      // when the broker stored it
	ID       string    `json:"id,omitzero"` // of the event; empty if it was unreadable
}

// MarkOf returns the mark of an event.
func MarkOf(e *Event) Mark { return Mark{e.Position, e.Stored, e.EventID} }

// Marks are events of one cell that a reader has read, in position order: the first one and the last ones, with
// distances that grow with their age. A few dozen suffice for any stream.
type Marks []Mark

// Last returns the position of the last mark; 0 for none.
func (m Marks) Last() uint64 {
	if len(m) == 0 {
		return 0
	}
	return m[len(m)-1].Position
}

// With returns a copy of m with a later mark.
func (m Marks) With(next Mark) Marks {
	out := Marks{next}
	span := -1 // distance of the mark before, as a power of 2
	for _, mark := range slices.Backward(m) {
		distance := 0
		for d := next.Position - mark.Position; d > 1; d >>= 1 {
			distance++
		}
		if distance == span {
			out[len(out)-1] = mark // drop the older one of two at about the same distance
			continue
		}
		out, span = append(out, mark), distance
	}
	slices.Reverse(out)
	return out
}

// UpTo returns the marks up to a position.
func (m Marks) UpTo(position uint64) Marks {
	n, _ := slices.BinarySearchFunc(m, position+1, func(a Mark, p uint64) int { return cmp.Compare(a.Position, p) })
	return slices.Clone(m[:n])
}

// Parting is where a stream begins to differ from what a reader has read.
type Parting struct {
	// Common is the last mark of the reader that the stream has; zero for none. Later events may be stored again at
	// other positions.
	Common Mark
	// Expired means that the stream no longer has the event of Common, and that events behind it may have expired,
	// too.
	Expired bool
	// From is the first position to read: behind Common, or the first one stored since the first mark.
	From uint64
}

// FindParting compares the marks of a reader with the events stream of a cell, according to its leader. parted is
// false if the stream has the last mark, or had it until it expired.
func FindParting(ctx context.Context, js jetstream.JetStream, generation string, cell int, marks Marks) (p Parting, parted bool, err error) {
	name := envelopes.CellName(generation, cell)
	for i, m := range slices.Backward(marks) {
		is, err := compareMark(ctx, js, name, m)
		if err != nil {
			return p, false, fmt.Errorf("compare with stream %s: %w", streams.EventsStream(name), err)
		}
		if is != markParted {
			return Parting{Common: m, Expired: is == markExpired, From: m.Position + 1}, i < len(marks)-1, nil
		}
	}
	if len(marks) == 0 {
		return p, false, nil
	}
	p.From, err = positionAt(ctx, js, streams.EventsStream(name), marks[0].Stored)
	return p, true, err
}

// markState is the state of a stream at a mark.
type markState int

const (
	markSame    markState = iota
	markExpired           // the event and all before it have expired
	markParted            // another history
)

// compareMark compares a mark with the stream of a cell.
func compareMark(ctx context.Context, js jetstream.JetStream, name string, m Mark) (markState, error) {
	stream := streams.EventsStream(name)
	is, found, err := compareStored(ctx, js, stream, m)
	if found || err != nil {
		return is, err
	}
	info, err := broker.LeaderInfo(ctx, js, stream)
	if err != nil {
		return markSame, err
	}
	// A replica that believed to be the leader may have answered, so ask again.
	if is, found, err = compareStored(ctx, js, stream, m); found || err != nil {
		return is, err
	}
	if info.State.LastSeq < m.Position {
		return markParted, nil
	}
	if erased, err := isErased(ctx, js, name, m.Position); erased || err != nil {
		return markSame, err
	}
	// All other events leave the stream in the order of their positions, when they expire.
	first, err := broker.LeaderGet(ctx, js, stream, broker.GetRequest{Sequence: 1, NextBySubject: streams.EventsOf(name)})
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound), err == nil && first.Sequence > m.Position:
		return markExpired, nil
	case err != nil:
		return markSame, err
	}
	return markParted, nil
}

// compareStored compares a mark with the message at its position, if any.
func compareStored(ctx context.Context, js jetstream.JetStream, stream string, m Mark) (is markState, found bool, err error) {
	stored, err := broker.ReadStored(ctx, js, stream, broker.GetRequest{Sequence: m.Position})
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return markParted, false, nil
	case err != nil:
		return markSame, false, err
	case !stored.Time.Equal(m.Stored):
		return markParted, true, nil
	}
	if e, _, err := envelopes.DecodeEvent(stored.Header, stored.Data); err == nil && m.ID != "" && e.EventID != m.ID {
		return markParted, true, nil
	}
	return markSame, true, nil
}

// LastMark returns the mark of the last event in a cell of a generation; zero for a cell without events.
func LastMark(ctx context.Context, js jetstream.JetStream, generation string, cell int) (m Mark, err error) {
	name := envelopes.CellName(generation, cell)
	stored, err := broker.LastStored(ctx, js, streams.EventsStream(name), streams.EventsOf(name))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return m, nil
	}
	if err != nil {
		return m, fmt.Errorf("read stream %s: %w", streams.EventsStream(name), err)
	}
	m = Mark{Position: stored.Sequence, Stored: stored.Time.UTC()}
	if e, _, err := envelopes.DecodeEvent(stored.Header, stored.Data); err == nil {
		m.ID = e.EventID
	}
	return m, nil
}

// positionAt returns the first position of a stream stored at or after a time; behind the end if there is none.
func positionAt(ctx context.Context, js jetstream.JetStream, stream string, at time.Time) (uint64, error) {
	r, err := broker.OpenReader(ctx, js, stream, jetstream.ConsumerConfig{
		Description: "A reader that looks for a time.", DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &at, HeadersOnly: true,
	})
	if err != nil {
		return 0, err
	}
	defer r.Close()
	return r.From, nil
}
