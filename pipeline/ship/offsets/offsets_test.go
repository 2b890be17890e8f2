package offsets_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tributary/pipeline/ship/offsets"
)

// stored is an offsets file in use.
type stored struct {
	file  *offsets.File
	store *offsets.Store
}

// open opens an offsets file for its last stream.
func open(t *testing.T, path string) stored {
	t.Helper()
	f, err := offsets.Read(t.Context(), offsets.Config{Path: path, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return stored{f, f.OpenLast()}
}

// set notes that the n-th log is shipped up to an offset.
func (s stored) set(n uint64, path string, done int64) {
	s.store.Put(offsets.Offset{Inode: offsets.Inode{Number: n}, Path: path, Done: done})
}

// advance stores that the n-th log is shipped up to an offset.
func (s stored) advance(n uint64, path string, done int64) error {
	s.set(n, path, done)
	return s.file.Save(s.store)
}

// forget stores that the n-th log, which is at no path, is gone.
func (s stored) forget(n uint64) error {
	id := offsets.Inode{Number: n}
	s.store.Acquire(id, s.file)
	s.store.Release(id, s.file)
	return s.file.Save(s.store)
}

// Wherever a crash cuts off the offsets file, it has what was stored up to then, and goes on.
func TestOffsetsCutOffAnywhereAreThoseOfASaveBefore(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "offsets.json")
	s := open(t, path)
	states := []map[string]int64{{}} // by complete lines behind the header
	for n, change := range []func() error{
		func() error { return s.advance(1, "one", 10) },
		func() error { return s.advance(2, "two", 20) },
		func() error { return s.advance(1, "one", 30) },
		func() error { return s.advance(1, "renamed", 30) },
		func() error { return s.forget(2) },
		func() error { return s.advance(3, "three", 5) },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		states = append(states, s.store.Done())
		if diff := cmp.Diff(states[n+1], open(t, path).store.Done()); diff != "" {
			t.Fatalf("after change %d the file has (-want +got):\n%s", n, diff)
		}
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := bytes.Count(whole, []byte("\n")); got != len(states) {
		t.Fatalf("the file has %d lines, want the header and one for each of %d changes", got, len(states)-1)
	}
	for n := range len(whole) + 1 {
		if err := os.WriteFile(path, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		want := states[max(0, bytes.Count(whole[:n], []byte("\n"))-1)]
		s := open(t, path)
		if diff := cmp.Diff(want, s.store.Done()); diff != "" {
			t.Fatalf("cut off at %d (-want +got):\n%s", n, diff)
		}
		if n%40 != 0 && n < len(whole) && whole[max(0, n-1)] != '\n' && whole[n] != '\n' {
			continue // what follows takes time
		}
		if err := s.advance(9, "nine", 9); err != nil {
			t.Fatalf("cut off at %d: %v", n, err)
		}
		if diff := cmp.Diff(s.store.Done(), open(t, path).store.Done()); diff != "" || s.store.Done()["nine"] != 9 {
			t.Fatalf("cut off at %d, then gone on (-want +got):\n%s", n, diff)
		}
	}
}

func TestDamagedByteOfTheOffsetsLosesOnlyWhatIsBehind(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "offsets.json")
	s := open(t, path)
	for n := range 3 {
		if err := s.advance(1, "one", int64(n+1)); err != nil {
			t.Fatal(err)
		}
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	second := bytes.IndexByte(whole, '\n') + 1
	second += bytes.IndexByte(whole[second:], '\n') + 1
	third := bytes.LastIndexByte(whole[:len(whole)-1], '\n') + 1
	for at := second; at < third; at++ {
		damaged := bytes.Clone(whole)
		damaged[at] ^= 0x15
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if got := open(t, path).store.Done()["one"]; got != 1 {
			t.Fatalf("damaged at %d: shipped up to %d, want 1", at, got)
		}
	}
}

// What is appended depends on what has changed, not on how many logs there are, and the file
// does not grow without limit.
func TestOffsetsAreAppendedAndCompacted(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "offsets.json")
	s := open(t, path)
	const logs, changes = 500, 300
	size := func() int64 {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	for n := range uint64(logs) {
		s.set(n, fmt.Sprintf("log-%d", n), 1)
	}
	if err := s.advance(7, "log-7", 1); err != nil {
		t.Fatal(err)
	}
	before, compactions, largest := size(), 0, int64(0)
	for n := range changes {
		for other := range uint64(9) {
			s.set(10+other, fmt.Sprintf("log-%d", 10+other), int64(n+2))
		}
		if err := s.advance(7, "log-7", int64(n+2)); err != nil {
			t.Fatal(err)
		}
		switch now := size(); {
		case now < before:
			compactions++
			before = now
		case now > before+3000:
			t.Fatalf("ten changes have written %d bytes of %d", now-before, now)
		default:
			before, largest = now, max(largest, now)
		}
	}
	if compactions == 0 || largest > 4*before+1<<20 {
		t.Errorf("%d compactions, at most %d bytes", compactions, largest)
	}
	if got := open(t, path).store.Done(); len(got) != logs || got["log-7"] != changes+1 {
		t.Errorf("%d logs, log 7 up to %d", len(got), got["log-7"])
	}
}
