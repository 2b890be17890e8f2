package ship_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go"

	"tributary/pipeline/ship"
)

// pack returns content, compressed as the extension of name says.
func pack(tb testing.TB, name, content string) string {
	tb.Helper()
	var b bytes.Buffer
	var w io.WriteCloser = gzip.NewWriter(&b)
	if filepath.Ext(name) == ".zst" {
		var err error
		if w, err = zstd.NewWriter(&b); err != nil {
			tb.Fatal(err)
		}
	}
	_, err := io.WriteString(w, content)
	if err := errors.Join(err, w.Close()); err != nil {
		tb.Fatal(err)
	}
	return b.String()
}

// A packed log yields the same records, with the same identities, as the plain log.
func TestPackedLogIsTheSameLog(t *testing.T) {
	t.Parallel()
	for _, ext := range []string{".zst", ".gz"} {
		plain, packed := newEdge(t), newEdge(t)
		content := lines(prompts("one", 1, 1500)...) + prompt("one", 1501)
		plain.write("garden/one.jsonl", content)
		name := "garden/one.jsonl" + ext
		packed.write(name, pack(t, name, content))
		packed.write("garden/notes.txt"+ext, pack(t, name, "no log"))

		plain.once()
		dry := packed.once(func(c *ship.Config) { c.DryRun = true })
		got := packed.once()
		if got.Files != 1 || got.Records != 1501 || got.Waiting != 0 || len(got.Refusals) != 0 || dry.Records != got.Records {
			t.Errorf("%s: shipped %+v, a dry run announced %+v", ext, got, dry)
		}
		same := cmp.Comparer(func(a, b stored) bool {
			return a.Session == b.Session && a.Origin == b.Origin &&
				a.header.Get(nats.MsgIdHdr) == b.header.Get(nats.MsgIdHdr) && string(a.Data) == string(b.Data)
		})
		if diff := cmp.Diff(recordsOf(plain.all()), recordsOf(packed.all()), same); diff != "" {
			t.Errorf("%s: packing changes the records:\n%s", ext, diff)
		}
		if again := packed.once(); again.Records != 0 || again.Waiting != 0 {
			t.Errorf("%s: nothing is new, but %+v was shipped", ext, again)
		}
	}
}

// A packed log is rewritten and shipped as a whole; the broker drops the records it has.
func TestRepackedLogShipsOnlyNewRecords(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	raw := e.tap()
	e.write("garden/one.jsonl", lines(prompt("one", 1)))
	f := e.follow()
	raw.expect(prompt("one", 1))
	for n := 2; n <= 4; n++ {
		e.write("garden/one.jsonl.zst", pack(t, ".zst", lines(prompts("one", 1, n)...)))
		raw.expect(prompt("one", n))
	}
	if err := os.Remove(e.path("garden/one.jsonl")); err != nil {
		t.Fatal(err)
	}
	raw.expect("end of one")
	// A file of several compressed parts is one log.
	e.append("garden/one.jsonl.zst", pack(t, ".zst", lines(prompt("one", 5))))
	raw.expect(prompt("one", 5))
	f.until("the broker has dropped the other records", func(s ship.Summary) bool { return s.Duplicates == 1+2+3+4 })
}

func TestPackedDocumentIsShippedAsADocument(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	path := filepath.Join(t.TempDir(), "session.json.gz")
	if err := os.WriteFile(path, []byte(pack(t, path, conversation(5, "calm"))), 0o600); err != nil {
		t.Fatal(err)
	}
	e.once(func(c *ship.Config) { c.Paths = []string{path} })
	e.wantStored(conversation(5, "calm"), "end of g")
}

// The readable part of a damaged file is shipped and the file is reported; the rest is
// shipped when the file is replaced by a good one.
func TestDamagedPackedLogIsShippedAsFarAsReadable(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(string) string{
		"cut off":      func(s string) string { return s[:len(s)-3] },
		"another bit":  func(s string) string { return s[:len(s)-6] + string(s[len(s)-6]^1) + s[len(s)-5:] },
		"not packed":   func(string) string { return lines(prompt("one", 1)) },
		"of two parts": func(s string) string { return s + "rubbish" },
	} {
		for _, ext := range []string{".zst", ".gz"} {
			if testing.Short() && (ext == ".gz" || name != "cut off") {
				continue // the same goroutines with another library, or another damage
			}
			e := newEdge(t)
			path := "garden/one.jsonl" + ext
			whole := pack(t, path, lines(prompts("one", 1, 2000)...))
			e.write(path, damage(whole))
			e.write("garden/two.jsonl", lines(prompt("two", 1)))
			for range 2 {
				got := e.once()
				if got.Refused[ship.ReasonUnreadable] != 1 || !strings.Contains(got.Refusals[0].Error(), path) {
					t.Errorf("%s%s: shipped %+v", name, ext, got)
				}
			}
			raw := e.tap()
			before := e.count()
			raw.next(before)
			f := e.follow()
			f.until("the file is reported", func(s ship.Summary) bool { return s.Refused[ship.ReasonUnreadable] == 1 })
			e.write(path, whole)
			f.until("all is shipped", func(s ship.Summary) bool { return s.Records-s.Duplicates+before >= 2002 })
			if got := f.ship.Summary().Refused[ship.ReasonUnreadable]; got != 1 {
				t.Errorf("%s%s: reported %d times", name, ext, got)
			}
			f.stop()
			var got []string
			for _, r := range recordsOf(e.all()) {
				if r.Session == "one" {
					got = append(got, string(r.Data))
				}
			}
			if diff := cmp.Diff(prompts("one", 1, 2000), got); diff != "" {
				t.Errorf("%s%s: raw stream (-want +got):\n%s", name, ext, diff)
			}
		}
	}
}

// A packed file may be seen before its first byte is written.
func TestEmptyPackedLogIsNoError(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.write("garden/one.jsonl.gz", "")
	e.write("garden/two.jsonl.zst", "")
	if got := e.once(); got.Files != 2 || len(got.Refusals) != 0 {
		t.Errorf("shipped %+v", got)
	}
}
