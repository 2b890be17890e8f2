package ship_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/pipeline/ship"
)

// The raw stream gets every record that the framer yields for every log of the corpus, with
// its session and in its order.
func TestCorpusIsShippedWhole(t *testing.T) {
	t.Parallel()
	corpus := os.Getenv("TRIBUTARY_CORPUS")
	if corpus == "" {
		t.Skip("TRIBUTARY_CORPUS is not set")
	}
	type key struct{ file, session string }
	want, got := map[key][]string{}, map[key][]string{}
	versions := map[string]int{} // per file identity: files with the same name and first line are versions of one file
	dir := filepath.Join(corpus, "claude_code")
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(d.Name(), ".") {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		f := normalizers.NewFramer(normalizers.File{Source: envelopes.ClaudeCode, Name: d.Name()})
		_, _ = f.Write(data) // never fails
		f.Close()
		versions[f.Ends()[0].Origin.File]++
		for r, ok := f.Next(); ok; r, ok = f.Next() {
			if !r.Record.Origin.End {
				k := key{r.Record.Origin.File, r.Record.Session}
				want[k] = append(want[k], string(r.Record.Data))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	e := newEdge(t)
	sum := e.once(func(c *ship.Config) { c.Paths, c.Source, c.Idle = []string{dir}, envelopes.ClaudeCode, 1 })
	if len(sum.Refusals) != 0 || sum.Waiting != 0 || sum.Records == 0 {
		t.Fatalf("shipped %+v", sum)
	}
	raw := e.tap()
	for range e.count() {
		r := raw.next(1)[0]
		if !r.Origin.End {
			k := key{r.Origin.File, r.Session}
			got[k] = append(got[k], string(bytes.Clone(r.Data)))
		}
	}
	if len(want) != len(got) {
		t.Errorf("%d sessions in files, want %d", len(got), len(want))
	}
	for k, records := range want {
		if versions[k.file] == 1 && !cmp.Equal(records, got[k]) {
			t.Errorf("session %s: %d records, want %d, or they differ", k.session, len(got[k]), len(records))
		}
	}
	t.Logf("%d records of %d files, %d sessions, %d duplicates", sum.Records, sum.Files, sum.Sessions, sum.Duplicates)
}
