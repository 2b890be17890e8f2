package normalizers_test

import (
	"maps"
	"slices"
	"testing"
)

// seedRows are the acceptance rows of the seeds that are about normalizers, by their
// names, one entry for each file of rows.
var seedRows = []map[string]func(*testing.T){
	seedClaude,
	seedOpenCode,
	cursorRows,
	acpSeedRows,
	projectionRows,
	copilotRows,
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
