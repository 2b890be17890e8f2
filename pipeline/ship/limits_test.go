package ship_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"tributary/envelopes"
	"tributary/pipeline/ship"
)

// A line without an end is dropped as it is read, whatever its length, and named; what
// stands before and behind it is shipped. It does not run beside other tests, whose memory
// would count.
func TestEndlessLine(t *testing.T) {
	if testing.Short() {
		t.Skip("reads 512 MiB")
	}
	const size = 512 << 20
	e := newEdge(t)
	e.write("garden/one.jsonl", lines(prompt("one", 1))+`{"sessionId":"one","x":"`)
	if err := os.Truncate(e.path("garden/one.jsonl"), size); err != nil { // what follows takes no room on the disk
		t.Fatal(err)
	}
	peak := watchHeap(t)
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
	// The longest record, once as it is and once as it grows, and as much garbage.
	const most = 4 * 80 << 20
	if got := peak(); got > most {
		t.Errorf("the heap grew by %d MiB, more than %d", got>>20, most>>20)
	} else {
		t.Logf("the heap grew by %d MiB", got>>20)
	}
}

// watchHeap returns a function that tells by how many bytes the heap has grown at most.
func watchHeap(tb testing.TB) func() uint64 {
	tb.Helper()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	before, most := m.HeapInuse, m.HeapInuse
	stop := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				runtime.ReadMemStats(&m)
				most = max(most, m.HeapInuse)
			case <-stop:
				return
			}
		}
	})
	end := sync.OnceFunc(func() { close(stop); watch.Wait() })
	tb.Cleanup(end)
	return func() uint64 { end(); return most - before }
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

// A compressed file is never unpacked: below the roots it is no log, and one that is named
// has to say of which vendor it is. What is shipped of it is as long as it is.
func TestCompressedFile(t *testing.T) {
	t.Parallel()
	var packed, zipped bytes.Buffer
	z, err := zstd.NewWriter(&packed)
	if err != nil {
		t.Fatal(err)
	}
	g := gzip.NewWriter(&zipped)
	for _, w := range []io.WriteCloser{z, g} {
		for range 64 {
			if _, err := w.Write([]byte(strings.Repeat(prompt("bomb", 1)+"\n", 1<<20/200))); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for name, data := range map[string][]byte{"bomb.jsonl.zst": packed.Bytes(), "bomb.jsonl.gz": zipped.Bytes()} {
		e := newEdge(t)
		e.write("garden/"+name, string(data))
		e.write("garden/one.jsonl", lines(prompt("one", 1)))
		if got := e.once(); got.Records != 1 || len(got.Refused) != 0 {
			t.Errorf("%s below a root: shipped %+v", name, got)
		}
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		got := e.once(func(c *ship.Config) { c.Paths = []string{path} })
		if got.Records != 0 || got.Refused[ship.ReasonUnknownSource] != 1 {
			t.Errorf("%s by its name: shipped %+v", name, got)
		}
		got = e.once(func(c *ship.Config) { c.Paths, c.Source = []string{path}, envelopes.ClaudeCode })
		if got.Bytes > int64(len(data)) {
			t.Errorf("%s of a vendor: %d bytes shipped of %d", name, got.Bytes, len(data))
		}
	}
}
