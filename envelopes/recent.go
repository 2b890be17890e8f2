package envelopes

import "slices"

// recent is a map that evicts its oldest values when there are too many, or when values and keys exceed a total size.
// Putting a value again makes it the newest. The zero value is empty.
type recent[T any] struct {
	values map[string]recentValue[T]
	order  []recentKey // oldest first, with stale elements for values put again or removed
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

// get returns the value of a key; false for an absent or evicted key.
func (r *recent[T]) get(key string) (T, bool) {
	v, ok := r.values[key]
	return v.value, ok
}

// put stores a value and evicts the oldest values beyond the limits. It never evicts the newest
// value, whatever its size.
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

// stale reports whether an element of order belongs to a value that was removed or put again.
func (r *recent[T]) stale(k recentKey) bool {
	v, ok := r.values[k.key]
	return !ok || v.put != k.put
}

// remove deletes a value.
func (r *recent[T]) remove(key string) {
	r.size -= r.values[key].size
	delete(r.values, key)
}
