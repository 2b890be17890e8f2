package ship_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/ship"
)

// A line without an end is dropped as it is read, whatever its length, and reported; the
// records before and behind it are shipped. The test is not parallel, because the memory of
// other tests would count. With -limits.large the line has 1 GiB.
func TestEndlessLineIsDroppedInBoundedMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("reads 384 MiB")
	}
	const record = core.MaxRecordBytes
	size, limit := int64(6*record), uint64(5*record)
	if *limitsLarge {
		size, limit = 16*record, 8*record
	}
	e := newEdge(t)
	e.write("garden/one.jsonl", lines(prompt("one", 1))+`{"sessionId":"one","x":"`)
	if err := os.Truncate(e.path("garden/one.jsonl"), size); err != nil { // the rest of the line takes no space on the disk
		t.Fatal(err)
	}
	heap := pipelinetest.WatchHeap(t)
	p := e.tap()
	f := e.follow()
	f.until("the line is refused", func(s ship.Summary) bool { return s.Refused[ship.ReasonTooLarge] == 1 })
	p.expect(prompt("one", 1))
	e.append("garden/one.jsonl", "\"}\n"+lines(prompt("one", 3)))
	p.expect(prompt("one", 3))
	f.stop()
	s := f.ship.Summary()
	if r := s.Refusals[0]; len(s.Refusals) != 1 || r.Line != 2 || r.Path != e.path("garden/one.jsonl") {
		t.Errorf("refused %+v", s.Refusals)
	}
	// The heap may hold the longest record, its copy when the buffer grows, and garbage, but
	// not the line.
	before, peak := heap()
	t.Logf("the heap grew by %d MiB", (peak-before)>>20)
	if peak-before > limit {
		t.Errorf("the heap grew by more than %d MiB", limit>>20)
	}
}

// The stage refuses records that are nested too deep; ship sends them.
func TestDeepLinesAreShippedAsRecords(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("reads 16 MB")
	}
	e := newEdge(t)
	truncated := strings.Repeat(`{"a":`, 300) + "[" + strings.Repeat("1,", 1<<20) + "!"
	list := []string{
		prompt("one", 1),
		strings.Repeat("[", 10_000_000),
		prompt("one", 2),
		strings.Repeat(`{"a":`, 1_000_000),
		prompt("one", 3),
		strings.Repeat("[", 129) + strings.Repeat("]", 129),
		truncated,
		prompt("one", 4),
	}
	e.write("garden/one.jsonl", lines(list...))
	if got := e.once(); got.Records != len(list) || len(got.Refused) != 0 {
		t.Fatalf("shipped %d records, refused %v", got.Records, got.Refusals)
	}
	e.wantStored(append(list, "end of one")...)
}

// A packed file with far more content than its size is shipped up to a limit and reported.
func TestPackedBombIsShippedUpToALimit(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("writes 256 MB")
	}
	var packed bytes.Buffer
	z, err := zstd.NewWriter(&packed)
	if err != nil {
		t.Fatal(err)
	}
	line := prompt("bomb", 1) + strings.Repeat(" ", 1<<20) + "\n"
	const unpacked = 256
	for range unpacked {
		if _, err := io.WriteString(z, line); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	e := newEdge(t)
	e.write("garden/bomb.jsonl.zst", packed.String())
	e.write("garden/one.jsonl", lines(prompt("one", 1)))
	got := e.once()
	if got.Refused[ship.ReasonUnreadable] != 1 || !errors.Is(got.Refusals[0].Err, normalizers.ErrUnpack) {
		t.Errorf("refused %v: %v", got.Refused, got.Refusals)
	}
	if got.Records < 16 || got.Records > unpacked/4 || got.Sessions != 2 {
		t.Errorf("shipped %d records of %d sessions from %d bytes with %d lines", got.Records, got.Sessions, packed.Len(), unpacked)
	}
}
