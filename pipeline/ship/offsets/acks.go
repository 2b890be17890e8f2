package offsets

import (
	"slices"
	"time"

	"tributary/pipeline/streams"
)

// Ack is how far a file was acknowledged when the raw stream of each cell had reached a sequence.
type Ack struct {
	At  int64             `json:"at"`  // offset: everything before it is acknowledged
	Seq streams.Positions `json:"seq"` // last sequence of each cell by then; never below an earlier ack
}

// maxAcks is how many acks a file keeps.
const maxAcks = 8

// Acks are the acks of a file in order: the first, the latest, and in between the fewer the older. Elements are never
// changed in place.
type Acks []Ack

// With returns a with one more ack at its end.
func (a Acks) With(at int64, seq streams.Positions) Acks {
	if n := len(a); n > 0 {
		for c, before := range a[n-1].Seq {
			if seq.In(c) < before {
				seq = seq.With(c, before)
			}
		}
	}
	return Acks(thin(append(slices.Clip(a), Ack{at, seq}), maxAcks))
}

// upTo returns the acks that remain valid after the stream of a cell lost everything behind a sequence.
func (a Acks) upTo(cell int, seq uint64) Acks {
	for n := len(a); n > 0; n-- {
		if a[n-1].Seq.In(cell) <= seq {
			return a[:n:n]
		}
	}
	return nil
}

// before returns the acks up to an offset. The first ack behind it is kept too, lowered to the offset.
func (a Acks) before(at int64) Acks {
	n := 0
	for n < len(a) && a[n].At <= at {
		n++
	}
	left := a[:n:n]
	if n < len(a) && at > left.end() {
		left = append(left, Ack{at, a[n].Seq})
	}
	return left
}

// end returns the acknowledged offset of the file; 0 for no acks.
func (a Acks) end() int64 {
	if len(a) == 0 {
		return 0
	}
	return a[len(a)-1].At
}

// Checkpoint identifies a message that the broker acknowledged.
type Checkpoint struct {
	Seq  uint64    `json:"seq"`
	ID   string    `json:"id,omitzero"`   // its message id
	Time time.Time `json:"time,omitzero"` // when the broker stored it; only for a message without an id
}

// Is reports whether m, the message now at the sequence of c, is the acknowledged one.
func (c Checkpoint) Is(m streams.RawMark) bool {
	if c.ID != "" {
		return m.ID == c.ID
	}
	return m.Time.Equal(c.Time)
}

// maxCheckpoints is how many checkpoints are kept for a stream. They locate the place where a stream was rolled back,
// as far as the oldest one, with an error of about a twentieth of the messages behind that place.
const maxCheckpoints = 64

// Checkpoints are the checkpoints of a stream in the order of their sequences: the first, the latest, and in between
// the fewer the older.
type Checkpoints []Checkpoint

// with returns c with one more checkpoint at its end.
func (c Checkpoints) with(next Checkpoint) Checkpoints {
	return Checkpoints(thin(append(slices.Clip(c), next), maxCheckpoints))
}

// upTo returns the checkpoints up to a sequence.
func (c Checkpoints) upTo(seq uint64) Checkpoints {
	n := 0
	for n < len(c) && c[n].Seq <= seq {
		n++
	}
	return c[:n:n]
}

// Last returns the sequence of the newest checkpoint; 0 for none.
func (c Checkpoints) Last() uint64 {
	if len(c) == 0 {
		return 0
	}
	return c[len(c)-1].Seq
}

// thin drops every other element of the older half of list, except the first, until at most limit are left. It reuses
// the memory of list.
func thin[T any](list []T, limit int) []T {
	for len(list) > limit {
		old := list[1 : 1+limit/2]
		for i := range limit / 4 {
			old[i] = old[2*i+1]
		}
		list = append(list[:1+limit/4], list[1+limit/2:]...)
	}
	return list
}
