package normalizers_test

import (
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"tributary/normalizers"
	"tributary/normalizers/normalizerstest"
)

var update = flag.Bool("update", false, "rewrite the expectations in testdata from what Normalize yields")

// TestGolden holds every case to its expectation; -update rewrites them.
//
//	go test ./normalizers -run TestGolden -update
func TestGolden(t *testing.T) {
	for _, s := range suites {
		t.Run("source="+string(s.Source), func(t *testing.T) {
			for _, g := range normalizerstest.Goldens(t, s) {
				t.Run(g.Name, func(t *testing.T) {
					events, skipped := g.Outcome(t, s.Source)
					if *update {
						g.Archive.Files = []txtar.File{{Name: "raw.jsonl", Data: g.Raw}, {Name: "events.jsonl", Data: events}}
						if len(skipped) > 0 {
							g.Archive.Files = append(g.Archive.Files, txtar.File{Name: "skipped.txt", Data: skipped})
						}
						if err := os.WriteFile(g.Path, txtar.Format(g.Archive), 0o644); err != nil {
							t.Fatal(err)
						}
						return
					}
					if diff := cmp.Diff(splitLines(g.Events), splitLines(events)); diff != "" {
						t.Errorf("events (-want +got):\n%s", diff)
					}
					if diff := cmp.Diff(string(g.Skipped), string(skipped)); diff != "" {
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
		for _, g := range normalizerstest.Goldens(t, s) {
			events, skipped := g.Outcome(t, s.Source)
			now[string(s.Source)+"/"+g.Name] = [2]string{digest(g.Raw), digest(append(events, skipped...))}
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
