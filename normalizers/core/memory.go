package core

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"iter"
	"slices"
	"sync"
)

// Fingerprint stands for a string in the memory of a session: the first 6 bytes of its sha256. In 3 of 100 million
// sessions two of 4,096 ids have the same one.
type Fingerprint [6]byte

// FingerprintOf hashes parts; different parts with the same concatenation hash differently.
func FingerprintOf(parts ...string) Fingerprint {
	buffer := hashed.Get().(*[]byte)
	b := (*buffer)[:0]
	for i, p := range parts {
		if i > 0 {
			b = append(b, 0xff) // never in UTF-8
		}
		b = append(b, p...)
	}
	sum := sha256.Sum256(b)
	if *buffer = b; cap(b) <= maxHashed {
		hashed.Put(buffer)
	}
	return Fingerprint(sum[:6])
}

// hashed pools buffers in which parts are joined.
var hashed = sync.Pool{New: func() any { return new([]byte) }}

// maxHashed is the size of the largest pooled buffer.
const maxHashed = 64 << 10

// String returns the fingerprint as 8 characters of base64url.
func (f Fingerprint) String() string { return base64.RawURLEncoding.EncodeToString(f[:]) }

// MarshalText writes the text of [Fingerprint.String].
func (f Fingerprint) MarshalText() ([]byte, error) {
	return base64.RawURLEncoding.AppendEncode(nil, f[:]), nil
}

// UnmarshalText is the inverse of MarshalText.
func (f *Fingerprint) UnmarshalText(b []byte) error {
	var buf [9]byte
	if len(b) > 12 {
		return fmt.Errorf("%w: a fingerprint of %d characters", ErrSession, len(b))
	}
	n, err := base64.RawURLEncoding.Decode(buf[:], b)
	if err != nil || n != len(f) {
		return fmt.Errorf("%w: a fingerprint is damaged", ErrSession)
	}
	copy(f[:], buf[:n])
	return nil
}

// Window is a short list of remembered things, oldest first. It is never changed in place, so a copy stays as it was.
type Window[T any] []T

// Push appends v and drops the oldest elements beyond limit, adding their number to lost unless that is nil.
func (w Window[T]) Push(v T, limit int, lost *uint64) Window[T] {
	if over := len(w) + 1 - limit; over > 0 {
		w = w[over:]
		if lost != nil {
			*lost += uint64(over)
		}
	}
	out := make(Window[T], len(w)+1)
	copy(out, w)
	out[len(w)] = v
	return out
}

// Without returns the window without the elements that match.
func (w Window[T]) Without(match func(T) bool) Window[T] {
	for i, v := range w {
		if !match(v) {
			continue
		}
		out := make(Window[T], i, len(w)-1)
		copy(out, w)
		for _, v := range w[i+1:] {
			if !match(v) {
				out = append(out, v)
			}
		}
		if len(out) == 0 {
			return nil // as decoded
		}
		return out
	}
	return w
}

// With returns the window with v at index i.
func (w Window[T]) With(i int, v T) Window[T] {
	out := slices.Clone(w)
	out[i] = v
	return out
}

// Memory is a long table of remembered things that drops the oldest entry beyond its limit. It is changed in place,
// because it is too long to be copied for every record. Changes since the last commit can be rolled back.
type Memory[V any] struct {
	limit int
	ring  []entry[V]          // grows to limit, then is overwritten in a circle
	next  int                 // slot of the next new entry
	index map[Fingerprint]int // slot of a key
	undo  []undo[V]

	recording bool       // recorded has every entry put and committed since record was called
	recorded  []entry[V] // in order of Put
}

type entry[V any] struct {
	key   Fingerprint
	value V
}

// undo is an entry that was put, and the previous content of its slot.
type undo[V any] struct {
	put     entry[V]
	slot    int
	was     entry[V]
	existed bool // was was overwritten, not new
	updated bool // same key with another value
}

func newMemory[V any](limit int) Memory[V] {
	return Memory[V]{limit: limit, index: make(map[Fingerprint]int)}
}

// reserve makes room for n entries in an empty memory.
func (m *Memory[V]) reserve(n int) {
	n = min(n, m.limit)
	m.ring, m.index = make([]entry[V], 0, n), make(map[Fingerprint]int, n)
}

// Get returns the value of k.
func (m *Memory[V]) Get(k Fingerprint) (V, bool) {
	slot, ok := m.index[k]
	if !ok {
		var zero V
		return zero, false
	}
	return m.ring[slot].value, true
}

// Find returns the oldest entry whose value matches.
func (m *Memory[V]) Find(match func(V) bool) (Fingerprint, V, bool) {
	for k, v := range m.all() {
		if match(v) {
			return k, v, true
		}
	}
	var zero V
	return Fingerprint{}, zero, false
}

// Put sets the value of k.
func (m *Memory[V]) Put(k Fingerprint, v V) {
	if slot, ok := m.index[k]; ok {
		m.undo = append(m.undo, undo[V]{put: entry[V]{k, v}, slot: slot, was: m.ring[slot], existed: true, updated: true})
		m.ring[slot].value = v
		return
	}
	u := undo[V]{put: entry[V]{k, v}, slot: m.next}
	if m.next == len(m.ring) {
		m.ring = append(m.ring, u.put)
	} else {
		u.was, u.existed = m.ring[m.next], true
		delete(m.index, u.was.key)
		m.ring[m.next] = u.put
	}
	m.undo = append(m.undo, u)
	m.index[k] = m.next
	m.next = (m.next + 1) % m.limit
}

// record begins to record entries that are put.
func (m *Memory[V]) record() { m.recording, m.recorded = true, m.recorded[:0] }

func (m *Memory[V]) commit() {
	if m.recording {
		m.recording = len(m.recorded)+len(m.undo) <= maxRecorded
	}
	if m.recording {
		for _, u := range m.undo {
			m.recorded = append(m.recorded, u.put)
		}
	} else {
		m.recorded = nil
	}
	m.undo = m.undo[:0]
}

func (m *Memory[V]) rollback() {
	for _, u := range slices.Backward(m.undo) {
		if !u.updated {
			delete(m.index, m.ring[u.slot].key)
			m.next = u.slot
		}
		if !u.existed {
			m.ring = m.ring[:u.slot]
			continue
		}
		m.ring[u.slot] = u.was
		m.index[u.was.key] = u.slot
	}
	m.undo = m.undo[:0]
}

// drop drops the n oldest entries for good, and returns the number dropped.
func (m *Memory[V]) drop(n int) int {
	n = min(n, len(m.ring))
	kept := newMemory[V](m.limit)
	skip := n
	for k, v := range m.all() {
		if skip > 0 {
			skip--
			continue
		}
		kept.Put(k, v)
	}
	kept.commit()
	*m = kept
	return n
}

// all yields the entries, oldest first.
func (m *Memory[V]) all() iter.Seq2[Fingerprint, V] {
	return func(yield func(Fingerprint, V) bool) {
		first := 0
		if len(m.ring) == m.limit {
			first = m.next
		}
		for i := range m.ring {
			e := m.ring[(first+i)%len(m.ring)]
			if !yield(e.key, e.value) {
				return
			}
		}
	}
}
