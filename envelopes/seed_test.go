package envelopes

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// seedRows are the acceptance rows about envelopes, by number and sentence: one map per file
// with rows.
var seedRows = []map[string]func(*testing.T){acpSeedRows, entrySeedRows, acpProjectionRows}

// TestSeed runs every acceptance row about envelopes. Rows that compare with the results of
// other projects need TRIBUTARY_GOLDENS, the folder of these results, and are skipped without
// it.
func TestSeed(t *testing.T) {
	t.Parallel()
	for _, rows := range seedRows {
		for _, name := range slices.Sorted(maps.Keys(rows)) {
			t.Run(name, rows[name])
		}
	}
}

// goldenFile reads a file below TRIBUTARY_GOLDENS; it skips the test if that is not set.
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
