package sessions

import (
	"maps"
	"math"
	"slices"
)

// Latencies counts latencies in milliseconds in classes with a width of 2% of their values, so a quantile is off by
// at most 1% before rounding to a millisecond. Merging Latencies loses nothing. The zero value is empty.
type Latencies map[int16]int64

// latencyBase is the ratio of the bounds of a class.
var latencyBase = math.Log(1.02)

// class returns the class of a latency; 0 for less than a millisecond.
func class(ms int64) int16 {
	if ms <= 0 {
		return 0
	}
	return int16(1 + math.Round(math.Log(float64(ms))/latencyBase))
}

// add adds n latencies; a negative n removes them.
func (l *Latencies) add(ms, n int64) {
	if *l == nil {
		*l = Latencies{}
	}
	c := class(ms)
	if (*l)[c] += n; (*l)[c] == 0 {
		delete(*l, c)
	}
}

// Merge adds the latencies of o.
func (l *Latencies) Merge(o Latencies) {
	if *l == nil && len(o) > 0 {
		*l = make(Latencies, len(o))
	}
	for c, n := range o {
		(*l)[c] += n
	}
}

// Quantile returns the latency in milliseconds at quantile q, 0 to 1: of n sorted latencies the one at position
// ceil(q*n). It returns false if there are none.
func (l Latencies) Quantile(q float64) (ms int64, ok bool) {
	total := int64(0)
	for _, n := range l {
		total += n
	}
	if total == 0 {
		return 0, false
	}
	rank := max(1, int64(math.Ceil(q*float64(total))))
	for _, c := range slices.Sorted(maps.Keys(l)) {
		if rank -= l[c]; rank <= 0 {
			if c == 0 {
				return 0, true
			}
			return int64(math.Round(math.Exp(float64(c-1) * latencyBase))), true
		}
	}
	return 0, false // unreachable: the ranks add up
}

// Percentiles returns the median and the 95th percentile in milliseconds; nil if there are no latencies.
func (l Latencies) Percentiles() (p50, p95 *int64) {
	if v, ok := l.Quantile(0.5); ok {
		p50 = &v
	}
	if v, ok := l.Quantile(0.95); ok {
		p95 = &v
	}
	return p50, p95
}
