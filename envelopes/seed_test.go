package envelopes

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// seedRows are the acceptance rows of the seeds that are about envelopes, by their names:
// each file that holds some is one entry.
var seedRows = []map[string]func(*testing.T){acpSeedRows, entrySeedRows, acpProjectionRows}

// TestSeed runs every acceptance row of the seeds that is about envelopes. Rows against
// the expected results of the seeds' own projects are skipped while TRIBUTARY_GOLDENS is
// not set.
func TestSeed(t *testing.T) {
	t.Parallel()
	for _, rows := range seedRows {
		for _, name := range slices.Sorted(maps.Keys(rows)) {
			t.Run(name, rows[name])
		}
	}
}

// goldenFile reads a file below TRIBUTARY_GOLDENS; unset, the test is skipped.
func goldenFile(tb testing.TB, name ...string) []byte {
	tb.Helper()
	root := os.Getenv("TRIBUTARY_GOLDENS")
	if root == "" {
		tb.Skip("TRIBUTARY_GOLDENS is not set")
	}
	data, err := os.ReadFile(filepath.Join(append([]string{root}, name...)...))
	if err != nil {
		tb.Fatal(err)
	}
	return data
}
