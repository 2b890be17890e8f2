package pipeline

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Items come back in their order, all of them, whether they fit the memory or not.
func TestSorterSortsInBoundedMemory(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		items := rapid.SliceOf(rapid.SliceOfN(rapid.Byte(), 0, 40)).Draw(t, "items")
		s := newSorter(rapid.IntRange(1, 400).Draw(t, "limit"))
		defer s.close()
		for _, item := range items {
			if err := s.add(item); err != nil {
				t.Fatal(err)
			}
		}
		var got [][]byte
		for item, err := range s.sorted() {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, slices.Clone(item))
		}
		slices.SortFunc(items, bytes.Compare)
		if !slices.EqualFunc(got, items, bytes.Equal) {
			t.Fatalf("%d items came back of %d, or in another order", len(got), len(items))
		}
	})
}
