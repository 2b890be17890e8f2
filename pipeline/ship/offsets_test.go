package ship_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tributary/pipeline/ship"
)

// offsetsOf returns how far an offsets file says that each log is shipped.
func offsetsOf(t *testing.T, path string) map[string]int64 {
	t.Helper()
	s, err := ship.OpenOffsets(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return s.Done()
}

// Wherever a crash cuts off the offsets file, it has what was stored up to then, and goes on.
func TestOffsetsCutOffAnywhereAreThoseOfASaveBefore(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "offsets.json")
	s, err := ship.OpenOffsets(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	states := []map[string]int64{{}} // by complete lines behind the header
	for n, change := range []func() error{
		func() error { return s.Advance(1, "one", 10) },
		func() error { return s.Advance(2, "two", 20) },
		func() error { return s.Advance(1, "one", 30) },
		func() error { return s.Advance(1, "renamed", 30) },
		func() error { return s.Forget(2) },
		func() error { return s.Advance(3, "three", 5) },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		states = append(states, s.Done())
		if diff := cmp.Diff(states[n+1], offsetsOf(t, path)); diff != "" {
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
		s, err := ship.OpenOffsets(t.Context(), path)
		if err != nil {
			t.Fatalf("cut off at %d: %v", n, err)
		}
		if diff := cmp.Diff(want, s.Done()); diff != "" {
			t.Fatalf("cut off at %d (-want +got):\n%s", n, diff)
		}
		if n%40 != 0 && n < len(whole) && whole[max(0, n-1)] != '\n' && whole[n] != '\n' {
			continue // what follows takes time
		}
		if err := s.Advance(9, "nine", 9); err != nil {
			t.Fatalf("cut off at %d: %v", n, err)
		}
		if diff := cmp.Diff(s.Done(), offsetsOf(t, path)); diff != "" || s.Done()["nine"] != 9 {
			t.Fatalf("cut off at %d, then gone on (-want +got):\n%s", n, diff)
		}
	}
}

func TestDamagedByteOfTheOffsetsLosesOnlyWhatIsBehind(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "offsets.json")
	s, err := ship.OpenOffsets(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		if err := s.Advance(1, "one", int64(n+1)); err != nil {
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
		if got := offsetsOf(t, path)["one"]; got != 1 {
			t.Fatalf("damaged at %d: shipped up to %d, want 1", at, got)
		}
	}
}

// What is appended depends on what has changed, not on how many logs there are, and the file
// does not grow without limit.
func TestOffsetsAreAppendedAndCompacted(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "offsets.json")
	s, err := ship.OpenOffsets(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	const logs, changes = 500, 300
	size := func() int64 {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	for n := range uint64(logs) {
		s.Set(n, fmt.Sprintf("log-%d", n), 1)
	}
	if err := s.Advance(7, "log-7", 1); err != nil {
		t.Fatal(err)
	}
	before, compactions, largest := size(), 0, int64(0)
	for n := range changes {
		for other := range uint64(9) {
			s.Set(10+other, fmt.Sprintf("log-%d", 10+other), int64(n+2))
		}
		if err := s.Advance(7, "log-7", int64(n+2)); err != nil {
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
	if got := offsetsOf(t, path); len(got) != logs || got["log-7"] != changes+1 {
		t.Errorf("%d logs, log 7 up to %d", len(got), got["log-7"])
	}
}

// Cut off between any two saves, a file of real offsets ships what is missing, and nothing is
// stored twice.
func TestShipGoesOnFromOffsetsThatWereCutOff(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	for n := range 5 {
		e.append("garden/one.jsonl", lines(prompts("one", 2*n, 2*n+1)...))
		e.append(fmt.Sprintf("garden/other-%d.jsonl", n), lines(prompt(fmt.Sprintf("other-%d", n), 1)))
		e.once()
	}
	stored := e.count()
	whole, err := os.ReadFile(e.offsets)
	if err != nil {
		t.Fatal(err)
	}
	for end, b := range whole {
		if b != '\n' {
			continue
		}
		for _, n := range []int{end - 100, end, end + 1} {
			if err := os.WriteFile(e.offsets, whole[:max(0, n)], 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := ship.OpenOffsets(t.Context(), e.offsets)
			if err != nil {
				t.Fatal(err)
			}
			if acknowledged, relied := s.Seen(); relied > acknowledged {
				t.Fatalf("cut off at %d: an offset relies on message %d, and the stream has acknowledged %d: a loss in between is not noticed", n, relied, acknowledged)
			}
			if got := e.once(); got.Records != got.Duplicates {
				t.Errorf("cut off at %d of %d: shipped %+v", n, len(whole), got)
			}
			if got := e.once(); got.Records != 0 {
				t.Errorf("cut off at %d of %d: then shipped %+v", n, len(whole), got)
			}
		}
	}
	if now := len(recordsOf(e.all())); now != 15 {
		t.Errorf("the raw stream has %d records, %d messages before", now, stored)
	}
}

// Where a search takes long, active logs and changed folders are noticed without one.
func TestChangesAreNoticedWithoutASearchOfEverything(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		took   time.Duration
		active bool
		change func(e *edge)
		want   int
	}{
		{"an active log grows", time.Hour, true, func(e *edge) { e.append("garden/one.jsonl", lines(prompt("one", 2))) }, 1},
		{"an idle log grows, and the next search is far", time.Hour, false, func(e *edge) { e.append("garden/one.jsonl", lines(prompt("one", 2))) }, 0},
		{"an idle log grows, and a search is cheap", 0, false, func(e *edge) { e.append("garden/one.jsonl", lines(prompt("one", 2))) }, 1},
		{"nothing happens", 0, true, func(*edge) {}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := &edge{t: t, root: t.TempDir()}
			e.mkdir("garden")
			e.write("garden/one.jsonl", lines(prompt("one", 1)))
			e.write("garden/two.jsonl", lines(prompt("two", 1)))
			got, err := ship.Rescanned(t.Context(), e.config(), c.took, c.active, func() { c.change(e) })
			if err != nil || got != c.want {
				t.Errorf("%d logs are enqueued (%v), want %d", got, err, c.want)
			}
		})
	}
}
