package redact_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/core"
	"tributary/pipeline/redact"
)

// repeated are records of a size that are a text again and again.
func repeated(text string, size int) map[string][]byte {
	long := strings.Repeat(text, size/len(text))
	return map[string][]byte{
		"in one line":     []byte(`{"text":` + quote(long) + `}`),
		"in many lines":   []byte(`{"text":` + quote(strings.Repeat(text+"\n", size/(len(text)+1))) + `}`),
		"with secrets":    []byte(`{"text":` + quote(strings.Repeat(text+`="`+mixed+`" `, size/(len(text)+len(mixed)+5))) + `}`),
		"in a plain text": []byte(long),
	}
}

const mixed = "Zk3Vq9Xw2Lm7Tb4Rp8Yn1Gd6Hs5Jf0Ca9Ue3Io7E"

// The work that a record takes grows as it does, whichever keyword is repeated in it.
func TestWorkIsLinearInARecord(t *testing.T) {
	if testing.Short() {
		t.Skip("much work for one goroutine")
	}
	t.Parallel()
	r := newRedactor(t, redact.Secrets)
	texts := map[string][]string{
		"headers of private keys": {"-----BEGIN RSA PRIVATE KEY-----", "-----BEGIN RSA PRIVATE KEY-----\n", "-----BEGIN PRIVATE KEY----- x "},
		"assignments":             {"api_key = Zk3Vq9Xw2Lm7Tb4Rp8Yn1Gd6Hs5Jf0Ca ", "api_key=Zk3Vq9Xw2Lm7Tb4Rp8Yn1Gd6Hs5Jf0Ca;"},
		"base64":                  {"Zk3Vq9Xw2Lm7Tb4Rp8Yn1Gd6Hs5Jf0Ca\n", "YXBpX2tleT0K", `\\\\`, "a\u200b", "A\x00", "ghp_\n"},
	}
	for rule, keywords := range r.Keywords() {
		texts[rule] = append(texts[rule], keywords...)
	}
	check := func(name, text string, size int, places ...string) {
		half, whole := repeated(text, size/2), repeated(text, size)
		for _, place := range places {
			before, _ := r.Work(half[place])
			after, err := r.Work(whole[place])
			if after*10 > before*22 {
				t.Errorf("%s: %q %s: work of %d for the half, and %d", name, text, place, before, after)
			}
			if after > redact.Most(len(whole[place]))+(1<<20) {
				t.Errorf("%s: %q %s: work of %d: %v", name, text, place, after, err)
			}
		}
	}
	seen := map[string]bool{}
	for name, list := range texts {
		for _, text := range list[:min(len(list), 2)] {
			if !seen[text] {
				seen[text] = true
				check(name, text, 32<<10, "in one line", "in many lines", "with secrets", "in a plain text")
			}
		}
		check(name, list[0], 256<<10, "in one line")
	}
}

// What takes long in an expression is searched by parts: the records of which each took seconds, or a minute, are searched
// within the work of a record, and their secrets are gone.
func TestManyFindingsInALongLineAreReplaced(t *testing.T) {
	if testing.Short() {
		t.Skip("much work for one goroutine")
	}
	t.Parallel()
	r := newRedactor(t, redact.Secrets)
	for name, c := range map[string]struct {
		text string
		n    int
	}{
		"headers of private keys": {"-----BEGIN RSA PRIVATE KEY----- " + mixed + " ", 850},
		"bare headers":            {"-----BEGIN RSA PRIVATE KEY-----", 2000},
		"assignments":             {"api_key = " + mixed + " ", 2000},
	} {
		record := []byte(`{"text":` + quote(strings.Repeat(c.text, c.n)) + `}`)
		out, hits := r.Record(record)
		if len(hits) == 0 || hits[0].Rule == redact.RuleUnsearched || bytes.Contains(out, []byte(mixed)) || !jsontext.Value(out).IsValid() {
			t.Errorf("%s: %d hits in %.300s", name, len(hits), out)
		}
	}
}

// costly is a record that takes more work than it may.
func costly(tb testing.TB, secret string) (r *redact.Redactor, record []byte) {
	tb.Helper()
	rules := filepath.Join(tb.TempDir(), "rules.toml")
	if err := os.WriteFile(rules, []byte("[[rules]]\nid = \"slow\"\nregex = 'x(?:[^y]*y|)'\nkeywords = ['slow-']\n"), 0o600); err != nil {
		tb.Fatal(err)
	}
	r, err := redact.New(redact.Config{Mode: redact.Secrets, Key: key, Rules: rules})
	if err != nil {
		tb.Fatal(err)
	}
	return r, fmt.Appendf(nil, `{"type":"user","uuid":"u-1","n":12,"text":"slow-%s %s"}`, strings.Repeat("x", 12_000), secret)
}

// Of a record that takes too much work nothing is sent but what metadata_only sends.
func TestContentOfARecordThatTakesTooMuchWorkIsReplaced(t *testing.T) {
	if testing.Short() {
		t.Skip("much work for one goroutine")
	}
	t.Parallel()
	r, record := costly(t, mixed)
	out, hits := r.Record(record)
	if len(hits) != 1 || hits[0].Rule != redact.RuleUnsearched {
		t.Fatalf("hits %+v", hits)
	}
	if s := string(out); !strings.HasPrefix(s, `{"type":"user","uuid":"u-1","n":12,"text":"[redacted:unsearched:`) || len(s) > 100 {
		t.Errorf("%.300s", s)
	}
	if again, hits := r.Record(out); !bytes.Equal(again, out) || len(hits) > 0 {
		t.Errorf("redacted twice: %s", again)
	}
	if same, _ := r.Record(record); !bytes.Equal(same, out) {
		t.Errorf("redacted once more: %s", same)
	}
	if out, hits, err := r.Search(t.Context(), record); !errors.Is(err, redact.ErrUnsearched) || out != nil || hits != nil {
		t.Errorf("%.100s, %v, %v", out, hits, err)
	}
	plain := []byte("slow-" + strings.Repeat("x", 12_000) + mixed)
	if out, hits := r.Record(plain); len(hits) != 1 || !strings.HasPrefix(string(out), "[redacted:unsearched:") || len(out) > 50 {
		t.Errorf("plain text: %.300s", out)
	}
	// What would be metadata is replaced where it takes too much work, too.
	ids := `{"type":"user","id":[` + strings.Repeat(`"slow-`+strings.Repeat("x", 200)+`",`, 400) + `"x"]}`
	if out, hits := r.Record([]byte(ids)); len(hits) != 1 || !strings.HasPrefix(string(out), "[redacted:unsearched:") || len(out) > 50 {
		t.Errorf("metadata: %.300s", out)
	}
}

// A record of more values than any record may have is not searched: what is found in it could take many times its bytes.
func TestRecordOfTooManyValuesIsNotSearched(t *testing.T) {
	t.Parallel()
	record := []byte("[" + strings.Repeat(`"x",`, core.MaxValues) + `"x"]`)
	for _, mode := range []redact.Mode{redact.Secrets, redact.MetadataOnly} {
		r := newRedactor(t, mode)
		if _, _, err := r.Search(t.Context(), record); !errors.Is(err, redact.ErrUnsearched) {
			t.Errorf("%s: %v", mode, err)
		}
		out, hits := r.Record(record)
		if len(hits) != 1 || hits[0].Rule != redact.RuleUnsearched || string(out) != hits[0].Placeholder {
			t.Errorf("%s: %.100s with %d hits", mode, out, len(hits))
		}
	}
}

// A search ends when its context does, before it or in the midst of it, and leaves nothing behind.
func TestSearchEndsWithItsContext(t *testing.T) {
	t.Parallel()
	r, record := costly(t, mixed)
	stop := errors.New("nobody waits")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stop)
	for range 1000 {
		if out, _, err := r.Search(ctx, record); !errors.Is(err, stop) || out != nil {
			t.Fatalf("%.100s, %v", out, err)
		}
	}
	ctx, cancel = context.WithCancelCause(t.Context())
	go cancel(stop)
	long := []byte("slow-" + strings.Repeat("x", 16<<20)) // which takes minutes otherwise
	if out, _, err := r.Search(ctx, long); !errors.Is(err, stop) || out != nil {
		t.Fatalf("%.100s, %v", out, err)
	}
}

// Records that take too much work, one after the other, leave neither goroutines nor memory behind.
func TestBadRecordsLeaveNothingBehind(t *testing.T) {
	r, record := costly(t, mixed)
	n := 5
	if testing.Short() {
		n = 1 // ten times as slow under the race detector
	}
	var before, after runtime.MemStats
	_, _ = r.Record(record)
	runtime.GC()
	runtime.ReadMemStats(&before)
	synctest.Test(t, func(t *testing.T) { // it ends when all goroutines of a search have ended
		for range n {
			if _, _, err := r.Search(t.Context(), record); !errors.Is(err, redact.ErrUnsearched) {
				t.Fatal(err)
			}
		}
	})
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 64<<20 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
}

// BenchmarkCorpus redacts the lines of the logs of TRIBUTARY_CORPUS, and reports the most work of a record.
//
//	go test -run='^$' -bench=Corpus -count=6 ./pipeline/redact
func BenchmarkCorpus(b *testing.B) {
	corpus := os.Getenv("TRIBUTARY_CORPUS")
	if corpus == "" {
		b.Skip("TRIBUTARY_CORPUS is not set")
	}
	var lines [][]byte
	size := 0
	err := filepath.WalkDir(corpus, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || filepath.Ext(path) == ".db" {
			return err
		}
		data, err := os.ReadFile(path)
		for line := range bytes.Lines(data) {
			lines, size = append(lines, line), size+len(line)
		}
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	r := newRedactor(b, redact.Secrets)
	b.SetBytes(int64(size))
	hits := 0
	for b.Loop() {
		hits = 0
		for _, line := range lines {
			_, found := r.Record(line)
			hits += len(found)
		}
	}
	b.ReportMetric(float64(hits), "hits")
}

// FuzzRecord redacts any bytes: what was JSON stays JSON, and the work has its limit.
func FuzzRecord(f *testing.F) {
	for _, place := range places {
		f.Add([]byte(place("api_key=" + mixed)))
	}
	f.Add([]byte("ghp_Zk3Vq9Xw2Lm7Tb4R\n  p8Yn1Gd6Hs5Jf0Ca9Ue3\nIo7E\u200bk2W\x00"))
	r := newRedactor(f, redact.Secrets)
	f.Fuzz(func(t *testing.T, record []byte) {
		out, hits := r.Record(record)
		if jsontext.Value(record).IsValid() && !jsontext.Value(out).IsValid() {
			t.Errorf("%q became %q", record, out)
		}
		if len(hits) == 0 && !bytes.Equal(out, record) {
			t.Errorf("%q became %q without a hit", record, out)
		}
		if work, _ := r.Work(record); work > redact.Most(len(record))+len(record)+1<<10 {
			t.Errorf("%q takes work of %d", record, work)
		}
	})
}
