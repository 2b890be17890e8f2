package normalizers_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"tributary/envelopes"
	"tributary/normalizers"
)

var update = flag.Bool("update", false, "rewrite the expectations in testdata from what Normalize yields")

// golden is one file testdata/<source>/<case>.txtar: raw.jsonl are the records of a
// vendor's file, written by hand after the shape that the comment names; events.jsonl the
// events, one on a line; skipped.txt the line and the reason of each record without one.
type golden struct {
	name    string // the case
	path    string
	archive *txtar.Archive
	raw     []byte
	events  []byte
	skipped []byte
}

// file describes the vendor's file: its stem is the session of last resort.
func (g golden) file(source envelopes.Source) normalizers.File {
	return fileNamed(source, g.name+".jsonl")
}

// goldens reads the cases of a source; a source without one fails the test.
func goldens(tb testing.TB, source envelopes.Source) []golden {
	tb.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", string(source), "*.txtar"))
	if err != nil {
		tb.Fatal(err)
	}
	if len(paths) == 0 {
		tb.Fatalf("testdata/%s has no case", source)
	}
	var out []golden
	for _, path := range paths {
		a, err := txtar.ParseFile(path)
		if err != nil {
			tb.Fatal(err)
		}
		g := golden{name: strings.TrimSuffix(filepath.Base(path), ".txtar"), path: path, archive: a}
		for _, f := range a.Files {
			switch f.Name {
			case "raw.jsonl":
				g.raw = f.Data
			case "events.jsonl":
				g.events = f.Data
			case "skipped.txt":
				g.skipped = f.Data
			default:
				tb.Fatalf("%s: unknown section %s", path, f.Name)
			}
		}
		if len(g.raw) == 0 || len(bytes.TrimSpace(a.Comment)) == 0 {
			tb.Fatalf("%s: needs a comment with its provenance and a section raw.jsonl", path)
		}
		out = append(out, g)
	}
	return out
}

// outcome is what a golden file expects of its records.
func (g golden) outcome(tb testing.TB, source envelopes.Source) (events, skipped []byte) {
	tb.Helper()
	for _, s := range fold(normalizers.Normalize, frame(g.file(source), g.raw)) {
		for _, e := range s.result.Events {
			b, err := encode(e.Event)
			if err != nil {
				tb.Fatal(err)
			}
			events = append(append(events, b...), '\n')
		}
		switch {
		case s.failed():
			reason, _ := normalizers.Reason(s.err)
			skipped = fmt.Appendf(skipped, "%d dead letter: %s\n", s.line, reason)
		case s.result.Skip != "":
			skipped = fmt.Appendf(skipped, "%d %s\n", s.line, s.result.Skip)
		}
	}
	return events, skipped
}

// TestGolden holds every case to its expectation; -update rewrites them.
//
//	go test ./normalizers -run TestGolden -update
func TestGolden(t *testing.T) {
	for _, s := range suites {
		t.Run("source="+string(s.source), func(t *testing.T) {
			for _, g := range goldens(t, s.source) {
				t.Run(g.name, func(t *testing.T) {
					events, skipped := g.outcome(t, s.source)
					if *update {
						g.archive.Files = []txtar.File{{Name: "raw.jsonl", Data: g.raw}, {Name: "events.jsonl", Data: events}}
						if len(skipped) > 0 {
							g.archive.Files = append(g.archive.Files, txtar.File{Name: "skipped.txt", Data: skipped})
						}
						if err := os.WriteFile(g.path, txtar.Format(g.archive), 0o644); err != nil {
							t.Fatal(err)
						}
						return
					}
					if diff := cmp.Diff(splitLines(g.events), splitLines(events)); diff != "" {
						t.Errorf("events (-want +got):\n%s", diff)
					}
					if diff := cmp.Diff(string(g.skipped), string(skipped)); diff != "" {
						t.Errorf("skipped (-want +got):\n%s", diff)
					}
				})
			}
		})
	}
}

func splitLines(b []byte) []string {
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
}

// TestRevision says when [normalizers.Revision] was forgotten: testdata/revision.txt holds
// the revision and a digest of the records and of the events of every case. With the same
// records and other events the revision must be another one. Before a revision is out in
// the world the file may be deleted and written again with -update.
func TestRevision(t *testing.T) {
	const path = "testdata/revision.txt"
	digest := func(b []byte) string { sum := sha256.Sum256(b); return hex.EncodeToString(sum[:8]) }
	now := make(map[string][2]string)
	for _, s := range suites {
		for _, g := range goldens(t, s.source) {
			events, skipped := g.outcome(t, s.source)
			now[string(s.source)+"/"+g.name] = [2]string{digest(g.raw), digest(append(events, skipped...))}
		}
	}
	var revision int
	then := make(map[string][2]string)
	data, err := os.ReadFile(path)
	if err != nil && (!*update || !os.IsNotExist(err)) {
		t.Fatalf("%v: write it with -update", err)
	}
	for l := range strings.Lines(string(data)) {
		f := strings.Fields(l)
		switch {
		case len(f) == 2 && f[0] == "revision":
			_, _ = fmt.Sscan(f[1], &revision)
		case len(f) == 3:
			then[f[0]] = [2]string{f[1], f[2]}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		was, ok := then[name]
		switch {
		case ok && was[0] == now[name][0] && was[1] != now[name][1] && revision == normalizers.Revision:
			t.Errorf("%s: the same records yield other events: raise normalizers.Revision above %d", name, revision)
		case was != now[name] && !*update:
			t.Errorf("%s: not in %s as it is: run the test with -update", name, path)
		}
	}
	if !*update {
		if revision != normalizers.Revision {
			t.Errorf("%s is of revision %d, the package of %d: run the test with -update", path, revision, normalizers.Revision)
		}
		return
	}
	if t.Failed() {
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "revision %d\n", normalizers.Revision)
	for _, name := range slices.Sorted(maps.Keys(now)) {
		fmt.Fprintf(&b, "%s %s %s\n", name, now[name][0], now[name][1])
	}
	if err := os.WriteFile(path, []byte(b.String()), fs.FileMode(0o644)); err != nil {
		t.Fatal(err)
	}
}
