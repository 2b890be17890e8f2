package core

import (
	"encoding/binary"
	"math"

	"tributary/envelopes"
	"tributary/normalizers/lenient"
)

// Consumption is what one API call has used so far, in the vendor's own numbers. If a vendor repeats or raises these
// over several records, each event gets the difference (README.md, Tokens), so that sums are right at any moment.
type Consumption struct {
	Input      int64 // without cache
	CacheRead  int64
	CacheWrite int64
	Output     int64 // with reasoning
	Reasoning  int64 // part of Output
	Tool       int64 // of tools, if the vendor counts them beside the input
	// Reported is the part of Reasoning already on events, because no event can have more reasoning than output. If
	// the cache is a part of the input, it is that of CacheRead.
	Reported int64
	// Run is the agent run of the call; 0 for none.
	Run int64
	// Request is the request number that the call states beside its id; 0 for none.
	Request int64

	CacheWrite1h int64 // part of CacheWrite
	WebSearches  int64
	Cost         int64 // stated by the vendor, in picodollars
}

// Prompt returns the size of the prompt, if the numbers are those of one API call.
func (a Consumption) Prompt() int64 { return a.Input + a.CacheRead + a.CacheWrite }

// Raise returns the higher number of a and b for each field.
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

		CacheWrite1h: max(a.CacheWrite1h, b.CacheWrite1h),
		WebSearches:  max(a.WebSearches, b.WebSearches),
		Cost:         max(a.Cost, b.Cost),
	}
}

// Plus adds b to a, up to the limit of exact sums.
func (a Consumption) Plus(b Consumption) Consumption {
	add := func(x, y int64) int64 { return min(x+y, lenient.MaxExact) }
	a.Input = add(a.Input, b.Input)
	a.CacheRead = add(a.CacheRead, b.CacheRead)
	a.CacheWrite = add(a.CacheWrite, b.CacheWrite)
	a.Output = add(a.Output, b.Output)
	a.Reasoning = add(a.Reasoning, b.Reasoning)
	a.CacheWrite1h = add(a.CacheWrite1h, b.CacheWrite1h)
	a.WebSearches = add(a.WebSearches, b.WebSearches)
	a.Cost = add(a.Cost, b.Cost)
	return a
}

// Minus returns what a has above b, at least zero for each part.
func (a Consumption) Minus(b Consumption) Consumption {
	return Consumption{
		Input:      max(0, a.Input-b.Input),
		CacheRead:  max(0, a.CacheRead-b.CacheRead),
		CacheWrite: max(0, a.CacheWrite-b.CacheWrite),
		Output:     max(0, a.Output-b.Output),
		Reasoning:  max(0, a.Reasoning-b.Reasoning),

		CacheWrite1h: min(max(0, a.CacheWrite1h-b.CacheWrite1h), max(0, a.CacheWrite-b.CacheWrite)),
		WebSearches:  max(0, a.WebSearches-b.WebSearches),
		Cost:         max(0, a.Cost-b.Cost),
	}
}

// Add adds what an event carries.
func (a *Consumption) Add(u *envelopes.Usage) {
	*a = a.Plus(Consumption{
		Input: u.Input, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite, Output: u.Output + u.Reasoning, Reasoning: u.Reasoning,
		CacheWrite1h: u.CacheWrite1h, WebSearches: u.WebSearchRequests, Cost: picodollars(u.CostUSD),
	})
}

// UsageSince returns the increment from before to now as the usage of an event; nil if there is none. It updates
// Reported.
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

		WebSearchRequests: a.WebSearches - before.WebSearches,
		CostUSD:           dollars(a.Cost - before.Cost),
	}
	u.CacheWrite1h = min(a.CacheWrite1h-before.CacheWrite1h, u.CacheWrite)
	if IsEmpty(u) {
		return nil
	}
	return u
}

// IsEmpty reports whether a usage has nothing to bill.
func IsEmpty(u *envelopes.Usage) bool {
	return u.Total() == 0 && u.WebSearchRequests == 0 && u.CostUSD == 0
}

// CostOf returns a cost stated by a vendor, in picodollars; 0 for an invalid cost of an API call.
func CostOf(usd lenient.Number) int64 {
	if !usd.OK || usd.Value < 0 || usd.Value > envelopes.MaxCostUSD {
		return 0
	}
	return picodollars(usd.Value)
}

func picodollars(usd float64) int64     { return int64(math.Round(usd * 1e12)) }
func dollars(picodollars int64) float64 { return min(float64(picodollars)/1e12, envelopes.MaxCostUSD) }

// parts returns the numbers in encoding order. Those from rare on are 0 in most calls, and written only if one of
// them is not.
func (a *Consumption) parts() [12]*int64 {
	return [...]*int64{
		&a.Input, &a.CacheRead, &a.CacheWrite, &a.Output, &a.Reasoning, &a.Reported, &a.Tool, &a.Run, &a.Request,
		&a.CacheWrite1h, &a.WebSearches, &a.Cost,
	}
}

// rare is the index of the first rare part, see [Consumption.parts].
const rare = 9

// written returns the numbers that append writes. The lowest bit of the first one is set if the rare parts follow.
func (a *Consumption) written() (numbers [12]uint64, n int) {
	n = rare
	for i, v := range a.parts() {
		numbers[i] = uint64(*v)
		if i >= rare && *v != 0 {
			n = len(numbers)
		}
	}
	numbers[0] <<= 1
	if n > rare {
		numbers[0]++
	}
	return numbers, n
}

func (a Consumption) append(dst []byte) []byte {
	numbers, n := a.written()
	for _, v := range numbers[:n] {
		dst = binary.AppendUvarint(dst, v)
	}
	return dst
}

// encodedSize returns how many bytes append adds.
func (a Consumption) encodedSize() int {
	size := 0
	numbers, n := a.written()
	for _, v := range numbers[:n] {
		size += uvarintSize(v)
	}
	return size
}

// readConsumption is the inverse of append; it returns the number of bytes read, 0 for damaged data.
func readConsumption(b []byte) (a Consumption, n int) {
	numbers := rare
	for i, v := range a.parts() {
		if i == numbers {
			break
		}
		u, w := binary.Uvarint(b[n:])
		if i == 0 {
			numbers += int(u&1) * (len(a.parts()) - rare)
			u >>= 1
		}
		if w <= 0 || u > lenient.MaxExact {
			return Consumption{}, 0
		}
		*v = int64(u)
		n += w
	}
	return a, n
}
