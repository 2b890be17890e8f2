package index

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"tributary/pipeline/events"
)

// TestPages compares pages of many entries, of which some have the same value, with those of a list that is sorted.
func TestPages(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	compare := func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(a.row.id.Session, b.row.id.Session))
	}
	for _, n := range []int{0, 1, 100, 5000} {
		all := make([]entry, n)
		for i := range all {
			all[i] = entry{number: int64(random.IntN(n/3 + 1)), row: &row{id: events.SessionID{Session: strconv.FormatUint(random.Uint64(), 16)}}}
		}
		sorted := slices.SortedFunc(slices.Values(all), compare)
		for _, skip := range []int{0, 1, 50, 99, 100, 999, 1000, 2500, 4990, 4999, 5000, 6000} {
			for _, limit := range []int{0, 1, 50, 2000} {
				p := page{skip: skip, limit: limit, compare: compare}
				for _, e := range all {
					p.add(e)
				}
				want := sorted[min(skip, n):]
				if limit > 0 {
					want = want[:min(limit, len(want))]
				}
				if got := p.entries(); !slices.Equal(got, want) {
					t.Errorf("%d entries from %d, %d at most: %d, want %d", n, skip, limit, len(got), len(want))
				}
			}
		}
	}
}

// TestTextsAreComparedAsPeopleDo has capital letters, letters of other alphabets, and nothing.
func TestTextsAreComparedAsPeopleDo(t *testing.T) {
	t.Parallel()
	want := []string{"add", "Addendum", "ADDITION", "b", "Éclair", "éclairs", "日本", ""}
	for i, a := range want {
		for j, b := range want {
			if got := compareText(a, b); got != cmp.Compare(i, j) {
				t.Errorf("%q and %q: %d", a, b, got)
			}
		}
	}
}
