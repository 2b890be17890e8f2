package pipeline

import (
	"bufio"
	"bytes"
	"container/heap"
	"encoding/binary"
	"errors"
	"io"
	"iter"
	"os"
	"slices"
)

// sorter sorts any number of byte strings in bounded memory: it writes sorted runs to
// temporary files and merges them.
type sorter struct {
	limit int // bytes in memory

	data  []byte // the items of the present run, one behind the other
	items []sortItem
	runs  []*os.File
}

// sortItem is where an item lies in the data of its run.
type sortItem struct{ from, to int }

// sortItemBytes is the memory of an item besides its bytes.
const sortItemBytes = 16

func newSorter(limit int) *sorter { return &sorter{limit: limit} }

// add adds a copy of an item.
func (s *sorter) add(item []byte) error {
	if len(s.items) > 0 && len(s.data)+len(item)+sortItemBytes*len(s.items) > s.limit {
		if err := s.spill(); err != nil {
			return err
		}
	}
	from := len(s.data)
	s.data = append(s.data, item...)
	s.items = append(s.items, sortItem{from, len(s.data)})
	return nil
}

func (s *sorter) item(i sortItem) []byte { return s.data[i.from:i.to] }

// sort sorts the present run.
func (s *sorter) sort() {
	slices.SortFunc(s.items, func(a, b sortItem) int { return bytes.Compare(s.item(a), s.item(b)) })
}

// spill writes the present run to a file that has no name any more, so that it vanishes with
// the process.
func (s *sorter) spill() error {
	s.sort()
	f, err := os.CreateTemp("", "tributary-diff-")
	if err != nil {
		return err
	}
	s.runs = append(s.runs, f)
	_ = os.Remove(f.Name()) // where an open file cannot be removed, close removes it
	w := bufio.NewWriterSize(f, 256<<10)
	var length [binary.MaxVarintLen64]byte
	for _, i := range s.items {
		item := s.item(i)
		if _, err := w.Write(length[:binary.PutUvarint(length[:], uint64(len(item)))]); err != nil {
			return err
		}
		if _, err := w.Write(item); err != nil {
			return err
		}
	}
	s.data, s.items = s.data[:0], s.items[:0]
	return w.Flush()
}

// close removes the files.
func (s *sorter) close() {
	for _, f := range s.runs {
		_ = f.Close()
		_ = os.Remove(f.Name()) // it is gone already where an open file can be removed
	}
}

// sorted iterates over the items in the order of their bytes, once. An item is valid until
// the next one. An error ends the iteration.
func (s *sorter) sorted() iter.Seq2[[]byte, error] {
	if len(s.runs) == 0 {
		return func(yield func([]byte, error) bool) {
			s.sort()
			for _, i := range s.items {
				if !yield(s.item(i), nil) {
					return
				}
			}
		}
	}
	return func(yield func([]byte, error) bool) {
		if err := s.merge(yield); err != nil {
			yield(nil, err)
		}
	}
}

// merge yields the items of all runs in their order, until yield returns false.
func (s *sorter) merge(yield func([]byte, error) bool) error {
	if err := s.spill(); err != nil {
		return err
	}
	var open runHeap
	for _, f := range s.runs {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return err
		}
		r := &run{from: bufio.NewReaderSize(f, 64<<10)}
		more, err := r.next()
		if err != nil {
			return err
		}
		if more {
			open = append(open, r)
		}
	}
	heap.Init(&open)
	for len(open) > 0 {
		r := open[0]
		if !yield(r.item, nil) {
			return nil
		}
		more, err := r.next()
		switch {
		case err != nil:
			return err
		case more:
			heap.Fix(&open, 0)
		default:
			heap.Pop(&open)
		}
	}
	return nil
}

// run reads a sorted run.
type run struct {
	from *bufio.Reader
	item []byte
}

// next reads the next item; false at the end.
func (r *run) next() (bool, error) {
	n, err := binary.ReadUvarint(r.from)
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	r.item = slices.Grow(r.item[:0], int(n))[:n]
	_, err = io.ReadFull(r.from, r.item)
	return err == nil, err
}

// runHeap is a heap of runs by their next items.
type runHeap []*run

func (h runHeap) Len() int           { return len(h) }
func (h runHeap) Less(i, j int) bool { return bytes.Compare(h[i].item, h[j].item) < 0 }
func (h runHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements [heap.Interface].
func (h *runHeap) Push(x any) { *h = append(*h, x.(*run)) }

// Pop implements [heap.Interface].
func (h *runHeap) Pop() any {
	last := len(*h) - 1
	r := (*h)[last]
	*h = (*h)[:last]
	return r
}
