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
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/ship"
)

// A line without an end is dropped as it is read, whatever its length, and named; what
// stands before and behind it is shipped. It does not run beside other tests, whose memory
// would count.
func TestEndlessLine(t *testing.T) {
	if testing.Short() {
		t.Skip("reads 1 GiB")
	}
	const size = 1 << 30
	e := newEdge(t)
	e.write("garden/one.jsonl", lines(prompt("one", 1))+`{"sessionId":"one","x":"`)
	if err := os.Truncate(e.path("garden/one.jsonl"), size); err != nil { // what follows takes no room on the disk
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
	// The longest record, once as it is and once as it grows, and garbage: not the line.
	const most = size / 2
	before, peak := heap()
	t.Logf("the heap grew by %d MiB", (peak-before)>>20)
	if peak-before > most {
		t.Errorf("that is more than %d", most>>20)
	}
}

// Lines as deep as they are long are records like others: it is the stage that refuses
// them.
func TestDeepLines(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	torn := strings.Repeat(`{"a":`, 300) + "[" + strings.Repeat("1,", 1<<20) + "!"
	list := []string{
		prompt("one", 1),
		strings.Repeat("[", 10_000_000),
		prompt("one", 2),
		strings.Repeat(`{"a":`, 1_000_000),
		prompt("one", 3),
		strings.Repeat("[", 129) + strings.Repeat("]", 129),
		torn,
		prompt("one", 4),
	}
	e.write("garden/one.jsonl", lines(list...))
	if got := e.once(); got.Records != len(list) || len(got.Refused) != 0 {
		t.Fatalf("shipped %d records, refused %v", got.Records, got.Refusals)
	}
	e.holds(append(list, "end of one")...)
}

// A packed file that holds far more than its size is shipped up to a limit, and named.
func TestPackedBomb(t *testing.T) {
	t.Parallel()
	var packed bytes.Buffer
	z, err := zstd.NewWriter(&packed)
	if err != nil {
		t.Fatal(err)
	}
	line := prompt("bomb", 1) + strings.Repeat(" ", 1<<20) + "\n"
	const held = 256
	for range held {
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
	if got.Records < 16 || got.Records > held/4 || got.Sessions != 2 {
		t.Errorf("shipped %d records of %d sessions from %d bytes that hold %d lines", got.Records, got.Sessions, packed.Len(), held)
	}
}
