package envelopes

import "slices"

// recent holds the values that were put in last, by key, within a number of values and a
// sum of the sizes of values and keys: the oldest go first. A value that is put in again is new again. The
// zero value is empty.
type recent[T any] struct {
	values map[string]recentValue[T]
	order  []recentKey // oldest first; keys that were put in again stand there twice
	clock  uint64
	size   int
}

type recentValue[T any] struct {
	value T
	size  int
	put   uint64
}

type recentKey struct {
	key string
	put uint64
}

// get is the value of a key that is still there.
func (r *recent[T]) get(key string) (T, bool) {
	v, ok := r.values[key]
	return v.value, ok
}

// put puts a value in and lets the oldest go that are beyond the limits. The newest stays,
// whatever its size.
func (r *recent[T]) put(key string, value T, size, maxValues, maxSize int) {
	if r.values == nil {
		r.values = map[string]recentValue[T]{}
	}
	size += len(key)
	r.clock++
	r.size += size - r.values[key].size
	r.values[key] = recentValue[T]{value, size, r.clock}
	r.order = append(r.order, recentKey{key, r.clock})
	for len(r.values) > 1 && (len(r.values) > maxValues || r.size > maxSize) {
		if oldest := r.order[0]; !r.stale(oldest) {
			r.remove(oldest.key)
		}
		r.order = r.order[1:]
	}
	if len(r.order) > 2*maxValues {
		r.order = slices.DeleteFunc(r.order, r.stale)
	}
}

// stale reports whether a place in the order is that of a value that is gone, or new again.
func (r *recent[T]) stale(k recentKey) bool {
	v, ok := r.values[k.key]
	return !ok || v.put != k.put
}

// remove takes a value out.
func (r *recent[T]) remove(key string) {
	r.size -= r.values[key].size
	delete(r.values, key)
}
