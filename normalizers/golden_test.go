package normalizers_test

import (
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

	"tributary/normalizers"
	"tributary/normalizers/normalizerstest"
)

var update = flag.Bool("update", false, "rewrite the expected events in testdata")

// TestGolden compares the events and the skipped records of every case with the sections of its
// file; -update rewrites them.
//
//	go test ./normalizers -run TestGolden -update
func TestGolden(t *testing.T) {
	for _, s := range suites {
		t.Run("source="+string(s.Source), func(t *testing.T) {
			for _, g := range normalizerstest.Goldens(t, s) {
				t.Run(g.Name, func(t *testing.T) {
					outcome := g.Outcome(t, s.Source)
					expected := g.Expected(t, outcome)
					if *update {
						g.Archive.Files = expected
						if err := os.WriteFile(g.Path, txtar.Format(g.Archive), 0o644); err != nil {
							t.Fatal(err)
						}
						return
					}
					if diff := cmp.Diff(sections(g.Archive.Files), sections(expected)); diff != "" {
						t.Errorf("%s (-want +got):\n%s%s", g.Path, diff, changedEvents(t, g, outcome))
					}
				})
			}
		})
	}
}

// sections returns the lines of each section of a file.
func sections(files []txtar.File) map[string][]string {
	out := make(map[string][]string)
	for _, f := range files {
		out[f.Name] = strings.Split(strings.TrimSuffix(string(f.Data), "\n"), "\n")
	}
	return out
}

// changedEvents prints in full the first events whose short form, which ends its first line with
// a digest of the whole event, is not in the file of the case.
func changedEvents(t *testing.T, g normalizerstest.Golden, o normalizerstest.Outcome) string {
	t.Helper()
	const most = 3
	var known string
	for _, f := range g.Archive.Files {
		if f.Name == "events.txt" {
			known = "\n" + string(f.Data)
		}
	}
	var b strings.Builder
	changed := 0
	for i, short := range normalizerstest.ShortForms(t, o.Events) {
		if strings.Contains(known, "\n"+short) {
			continue
		}
		if changed++; changed > most {
			continue
		}
		full, err := normalizerstest.FullForm(o.Events[i])
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "event %d as it is now:\n%s", i+1, normalizerstest.Clip(string(full)))
	}
	if changed > most {
		fmt.Fprintf(&b, "and %d more events that changed\n", changed-most)
	}
	return b.String()
}

// TestRevision finds a revision that was forgotten: <vendor>/testdata/revision.txt has the
// revision, and a digest of the records and of the events of every case. Where the same records
// yield other events the revision must be another one. Before a revision is released the file may be
// deleted and written again with -update.
func TestRevision(t *testing.T) {
	for _, s := range suites {
		t.Run("source="+string(s.Source), func(t *testing.T) {
			path := filepath.Join(s.TestData(), "revision.txt")
			now := revisionNow(t, s)
			data, err := os.ReadFile(path)
			if err != nil && (!*update || !os.IsNotExist(err)) {
				t.Fatalf("%v: write it with -update", err)
			}
			revision, then := readRevision(string(data))
			for _, name := range slices.Sorted(maps.Keys(now)) {
				was, ok := then[name]
				switch {
				case ok && was.records == now[name].records && was.events != now[name].events && revision == normalizers.Revision:
					t.Errorf("%s: the same records yield other events: raise normalizers.Revision above %d", name, revision)
				case was != now[name] && !*update:
					t.Errorf("%s: not in %s as it is: run the test with -update", name, path)
				}
			}
			if revision != normalizers.Revision && !*update {
				t.Errorf("%s is of revision %d, the package of %d: run the test with -update", path, revision, normalizers.Revision)
			}
			if *update && !t.Failed() {
				writeRevision(t, path, now)
			}
		})
	}
}

// caseDigest identifies the records and the events of a case.
type caseDigest struct{ records, events string }

// revisionNow returns the digests of the cases of a vendor.
func revisionNow(t *testing.T, s normalizerstest.Suite) map[string]caseDigest {
	t.Helper()
	now := make(map[string]caseDigest)
	for _, g := range normalizerstest.Goldens(t, s) {
		outcome := g.Outcome(t, s.Source)
		now[g.Name] = caseDigest{
			normalizerstest.Digest(g.Raw, 8),
			normalizerstest.Digest(append(outcome.JSON(t), outcome.Skipped...), 8),
		}
	}
	return now
}

// readRevision reads what writeRevision wrote.
func readRevision(data string) (revision int, digests map[string]caseDigest) {
	digests = make(map[string]caseDigest)
	for l := range strings.Lines(data) {
		f := strings.Fields(l)
		switch {
		case len(f) == 2 && f[0] == "revision":
			_, _ = fmt.Sscan(f[1], &revision)
		case len(f) == 3:
			digests[f[0]] = caseDigest{f[1], f[2]}
		}
	}
	return revision, digests
}

func writeRevision(t *testing.T, path string, digests map[string]caseDigest) {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "revision %d\n", normalizers.Revision)
	for _, name := range slices.Sorted(maps.Keys(digests)) {
		fmt.Fprintf(&b, "%s %s %s\n", name, digests[name].records, digests[name].events)
	}
	if err := os.WriteFile(path, []byte(b.String()), fs.FileMode(0o644)); err != nil {
		t.Fatal(err)
	}
}
