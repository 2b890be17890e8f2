package core

import (
	"encoding/binary"

	"tributary/envelopes"
	"tributary/normalizers/lenient"
)

// Consumption is what one API call has used so far, in the vendor's own figures. A
// vendor that repeats or grows the figures over several records gets the difference on
// each event (README.md, Tokens), so that sums are right at any moment.
type Consumption struct {
	Input      int64 // without cache
	CacheRead  int64
	CacheWrite int64
	Output     int64 // with reasoning
	Reasoning  int64 // part of Output
	Tool       int64 // of tools, where the vendor counts them beside the input
	// Reported is the part of Reasoning that events have carried: no event can carry more
	// reasoning than output. Where the cache is a part of the input it is that of CacheRead.
	Reported int64
	// Run is the run of the agent that the call belongs to, 0 for none.
	Run int64
	// Request is the number of the request that the call states beside its id, 0 for none.
	Request int64
}

// Raise returns the highest figure of each field of a and b.
func (a Consumption) Raise(b Consumption) Consumption {
	return Consumption{
		Input:      max(a.Input, b.Input),
		CacheRead:  max(a.CacheRead, b.CacheRead),
		CacheWrite: max(a.CacheWrite, b.CacheWrite),
		Output:     max(a.Output, b.Output),
		Reasoning:  max(a.Reasoning, b.Reasoning),
		Tool:       max(a.Tool, b.Tool),
		Reported:   a.Reported,
		Run:        a.Run,
		Request:    a.Request,
	}
}

// Plus adds b to a, as far as sums are exact.
func (a Consumption) Plus(b Consumption) Consumption {
	add := func(x, y int64) int64 { return min(x+y, lenient.MaxExact) }
	a.Input = add(a.Input, b.Input)
	a.CacheRead = add(a.CacheRead, b.CacheRead)
	a.CacheWrite = add(a.CacheWrite, b.CacheWrite)
	a.Output = add(a.Output, b.Output)
	a.Reasoning = add(a.Reasoning, b.Reasoning)
	return a
}

// Minus is what a has above b, of no part below zero.
func (a Consumption) Minus(b Consumption) Consumption {
	return Consumption{
		Input:      max(0, a.Input-b.Input),
		CacheRead:  max(0, a.CacheRead-b.CacheRead),
		CacheWrite: max(0, a.CacheWrite-b.CacheWrite),
		Output:     max(0, a.Output-b.Output),
		Reasoning:  max(0, a.Reasoning-b.Reasoning),
	}
}

// Add counts what an event carries.
func (a *Consumption) Add(u *envelopes.Usage) {
	*a = a.Plus(Consumption{
		Input: u.Input, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite, Output: u.Output + u.Reasoning, Reasoning: u.Reasoning,
	})
}

// UsageSince is the increment from before to now as the usage of an event, nil when
// there is none. It moves Reported.
func (a *Consumption) UsageSince(before Consumption, key string) *envelopes.Usage {
	output := a.Output - before.Output
	reasoning := min(a.Reasoning-before.Reported, output)
	a.Reported = before.Reported + reasoning
	u := &envelopes.Usage{
		Input:      a.Input - before.Input,
		CacheRead:  a.CacheRead - before.CacheRead,
		CacheWrite: a.CacheWrite - before.CacheWrite,
		Output:     output - reasoning,
		Reasoning:  reasoning,
		Key:        BoundID(key),
	}
	if u.Total() == 0 {
		return nil
	}
	return u
}

// parts are the figures in the order in which they are written.
func (a *Consumption) parts() [9]*int64 {
	return [...]*int64{&a.Input, &a.CacheRead, &a.CacheWrite, &a.Output, &a.Reasoning, &a.Reported, &a.Tool, &a.Run, &a.Request}
}

func (a Consumption) append(dst []byte) []byte {
	for _, v := range a.parts() {
		dst = binary.AppendUvarint(dst, uint64(*v))
	}
	return dst
}

// encodedSize is how many bytes append adds.
func (a Consumption) encodedSize() int {
	n := 0
	for _, v := range a.parts() {
		n += uvarintSize(uint64(*v))
	}
	return n
}

// readConsumption is the inverse of append; it returns the bytes read, 0 when damaged.
func readConsumption(b []byte) (a Consumption, n int) {
	for _, v := range a.parts() {
		u, w := binary.Uvarint(b[n:])
		if w <= 0 || u > lenient.MaxExact {
			return Consumption{}, 0
		}
		*v = int64(u)
		n += w
	}
	return a, n
}
