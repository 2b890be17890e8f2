package envelopes

import (
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// The model is a list whose oldest elements are removed.
func TestRecentEvictsTheOldest(t *testing.T) {
	t.Parallel()
	type kept struct {
		key         string
		value, size int
	}
	rapid.Check(t, func(t *rapid.T) {
		const maxValues, maxSize = 4, 30
		var r recent[int]
		var list []kept
		for i := range rapid.IntRange(0, 60).Draw(t, "steps") {
			key := strconv.Itoa(rapid.IntRange(0, 6).Draw(t, "key"))
			list = slices.DeleteFunc(list, func(k kept) bool { return k.key == key })
			if rapid.IntRange(0, 5).Draw(t, "remove") == 0 {
				r.remove(key)
				continue
			}
			size := rapid.IntRange(0, 40).Draw(t, "size")
			r.put(key, i, size, maxValues, maxSize)
			list = append(list, kept{key, i, size + len(key)})
			sum := func() (n int) {
				for _, k := range list {
					n += k.size
				}
				return n
			}
			for len(list) > 1 && (len(list) > maxValues || sum() > maxSize) {
				list = list[1:]
			}
			if r.size != sum() || len(r.values) != len(list) || len(r.order) > 2*maxValues {
				t.Fatalf("%d values of size %d in %d elements, want %d of %d", len(r.values), r.size, len(r.order), len(list), sum())
			}
			for _, k := range list {
				if v, ok := r.get(k.key); !ok || v != k.value {
					t.Fatalf("%s is %d, %t, want %d", k.key, v, ok, k.value)
				}
			}
		}
	})
}
