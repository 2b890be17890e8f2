package normalizers_test

import (
	"maps"
	"slices"
	"testing"
)

// seedRows are the acceptance rows of the seeds that are about normalizers, by their
// names: each file that holds some is one entry.
var seedRows = []map[string]func(*testing.T){
	seedClaude,
	seedOpenCode,
}

// TestSeed runs every acceptance row of the seeds that is about normalizers. Rows against
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
