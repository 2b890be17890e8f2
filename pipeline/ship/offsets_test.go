package ship_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"tributary/pipeline/ship"
	"tributary/pipeline/ship/offsets"
)

// storedOffsets is what an offsets file has of its last stream, read by its format alone.
type storedOffsets struct {
	Stream map[string]any                   // as stored
	Files  map[offsets.Inode]offsets.Offset // with an offset
}

// readOffsets reads the complete lines of an offsets file.
func readOffsets(tb testing.TB, path string) storedOffsets {
	tb.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	is := storedOffsets{Files: map[offsets.Inode]offsets.Offset{}}
	lines := bytes.Split(content, []byte("\n"))
	for _, line := range lines[1:max(1, len(lines)-1)] {
		var change struct {
			Stream map[string]any   `json:"stream"`
			Files  []offsets.Offset `json:"files"`
			Gone   []offsets.Inode  `json:"gone"`
		}
		_, data, _ := bytes.Cut(line, []byte(" ")) // behind the checksum
		if err := json.Unmarshal(data, &change); err != nil {
			tb.Fatal(err)
		}
		if change.Stream != nil {
			if change.Stream["created"] != is.Stream["created"] {
				clear(is.Files)
			}
			is.Stream = change.Stream
		}
		for _, e := range change.Files {
			is.Files[e.Inode] = e
		}
		for _, id := range change.Gone {
			delete(is.Files, id)
		}
	}
	return is
}

// done returns how far each log is shipped, by its path.
func (s storedOffsets) done() map[string]int64 {
	done := map[string]int64{}
	for _, e := range s.Files {
		done[e.Path] = e.Done
	}
	return done
}

// seen returns the last sequence that the stream has acknowledged, and the highest that an offset relies on.
func (s storedOffsets) seen() (acknowledged, relied uint64) {
	if list, ok := s.Stream["acknowledged"].([]any); ok && len(list) > 0 {
		last, _ := list[len(list)-1].(map[string]any)
		seq, _ := last["seq"].(float64)
		acknowledged = uint64(seq)
	}
	for _, e := range s.Files {
		for _, a := range e.Acks {
			relied = max(relied, a.Seq.In(0))
		}
	}
	return acknowledged, relied
}

// downgraded returns the offsets as version 2 of the format has them.
func (s storedOffsets) downgraded(tb testing.TB) []byte {
	tb.Helper()
	s.Stream["files"] = slices.Collect(maps.Values(s.Files))
	data, err := json.Marshal(map[string]any{"version": 2, "streams": []any{s.Stream}})
	if err != nil {
		tb.Fatal(err)
	}
	return data
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
			if acknowledged, relied := readOffsets(t, e.offsets).seen(); relied > acknowledged {
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
