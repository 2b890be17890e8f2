// Package spill groups any number of items by key in bounded memory: what does not fit goes to
// temporary files.
//
// Start with [Grouper]: Put adds the items, Finish passes each key with its state to Done, Close
// removes the files.
//
// The invariant: all items of a key are added to one state, in the order of Put, and Done is
// called once for each key, however small the memory is.
package spill

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/klauspost/compress/s2"
)

// fanOut is the number of files into which the items of one level are divided.
const fanOut = 16

// fileBuffer is the memory of one open file, in bytes.
const fileBuffer = 64 << 10

// Grouper folds items of type T by key into states of type S. The items of a key are added in the order of
// [Grouper.Put].
//
// States stay in memory while their sizes add up to less than Limit. The items of every later key go to files,
// divided by the hash of the key; [Grouper.Finish] ends the states in memory, then groups each file in the same way.
// A state in memory may go on growing, so one key needs memory for its own state whatever the limit.
//
// T travels through the files as JSON. A Grouper is not safe for concurrent use.
type Grouper[S, T any] struct {
	Dir   string // folder of the temporary files; empty for the system's
	Limit int    // bytes of all states in memory

	New  func(key string) S
	Add  func(state S, item *T) (grown int) // grown is in bytes
	Done func(key string, state S) error    // is called once for each key

	states  map[string]S
	size    int
	dir     string // temporary folder, empty before the first file
	files   [fanOut]*file
	seed    maphash.Seed
	Spilled int64 // items written to files; an item counts each time
}

// entry is an item in a file.
type entry[T any] struct {
	Key  string `json:"k"`
	Item T      `json:"i"`
}

// Put adds an item to the state of its key. After an error only [Grouper.Close] may follow.
func (g *Grouper[S, T]) Put(key string, item *T) error {
	if g.states == nil {
		g.states, g.seed = map[string]S{}, maphash.MakeSeed()
	}
	state, resident := g.states[key]
	if !resident && len(g.states) > 0 && g.size >= g.Limit {
		return g.spill(key, item)
	}
	if !resident {
		state = g.New(key)
		g.size += len(key)
	}
	g.size += g.Add(state, item)
	g.states[key] = state
	return nil
}

// spill writes an item to the file of its key.
func (g *Grouper[S, T]) spill(key string, item *T) error {
	if g.dir == "" {
		var err error
		if g.dir, err = os.MkdirTemp(g.Dir, "tributary-spill-"); err != nil {
			return fmt.Errorf("too many groups for the memory, and no folder for temporary files: %w", err)
		}
	}
	g.Spilled++
	n := maphash.String(g.seed, key) % fanOut
	if g.files[n] == nil {
		f, err := create(filepath.Join(g.dir, strconv.FormatUint(n, 10)))
		if err != nil {
			return err
		}
		g.files[n] = f
	}
	data, err := json.Marshal(&entry[T]{key, *item})
	if err != nil {
		return fmt.Errorf("temporary file: %w", err)
	}
	return g.files[n].write(data)
}

// Finish passes every key with its state to Done, in no order, and removes the files. It
// returns the first error of Done.
func (g *Grouper[S, T]) Finish() error {
	err := g.finish()
	return errors.Join(err, g.Close())
}

func (g *Grouper[S, T]) finish() error {
	for key, state := range g.states {
		if err := g.Done(key, state); err != nil {
			return err
		}
	}
	g.states, g.size = nil, 0
	for n, f := range g.files {
		if f == nil {
			continue
		}
		g.files[n] = nil
		if err := g.regroup(f); err != nil {
			return err
		}
	}
	return nil
}

// regroup groups the items of a file.
func (g *Grouper[S, T]) regroup(f *file) error {
	below := &Grouper[S, T]{Dir: g.dir, Limit: g.Limit, New: g.New, Add: g.Add, Done: g.Done}
	err := f.each(func(data []byte) error {
		var e entry[T]
		if err := json.Unmarshal(data, &e); err != nil {
			return fmt.Errorf("temporary file: %w", err)
		}
		return below.Put(e.Key, &e.Item)
	})
	if err != nil {
		return errors.Join(err, below.Close())
	}
	err = below.Finish()
	g.Spilled += below.Spilled
	return err
}

// Close removes the files. It may be called at any time, and more than once.
func (g *Grouper[S, T]) Close() error {
	var all []error
	for n, f := range g.files {
		if f != nil {
			all = append(all, f.file.Close())
			g.files[n] = nil
		}
	}
	if g.dir != "" {
		all = append(all, os.RemoveAll(g.dir))
		g.dir = ""
	}
	g.states = nil
	return errors.Join(all...)
}

// file is a temporary file of byte strings, compressed.
type file struct {
	file *os.File
	out  *s2.Writer
	head [binary.MaxVarintLen64]byte
}

func create(name string) (*file, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("temporary file: %w", err)
	}
	return &file{file: f, out: s2.NewWriter(f, s2.WriterBlockSize(fileBuffer), s2.WriterConcurrency(1))}, nil
}

// write appends a byte string.
func (f *file) write(data []byte) error {
	_, err := f.out.Write(binary.AppendUvarint(f.head[:0], uint64(len(data))))
	if err == nil {
		_, err = f.out.Write(data)
	}
	if err != nil {
		return fmt.Errorf("temporary file: %w", err)
	}
	return nil
}

// each passes the byte strings to visit, in their order, and removes the file. visit must not
// keep them.
func (f *file) each(visit func(data []byte) error) error {
	err := f.out.Close()
	if err == nil {
		_, err = f.file.Seek(0, io.SeekStart)
	}
	if err == nil {
		err = read(f.file, visit)
	}
	return errors.Join(err, f.file.Close(), os.Remove(f.file.Name()))
}

func read(r io.Reader, visit func(data []byte) error) error {
	in := bufio.NewReader(s2.NewReader(r, s2.ReaderMaxBlockSize(fileBuffer)))
	var data []byte
	for {
		n, err := binary.ReadUvarint(in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("temporary file: %w", err)
		}
		if uint64(cap(data)) < n {
			data = make([]byte, n)
		}
		data = data[:n]
		if _, err := io.ReadFull(in, data); err != nil {
			return fmt.Errorf("temporary file: %w", err)
		}
		if err := visit(data); err != nil {
			return err
		}
	}
}
