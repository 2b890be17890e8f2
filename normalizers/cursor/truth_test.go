package cursor_test

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tributary/normalizers"
	"tributary/normalizers/cursor/cursortest"
	"tributary/normalizers/normalizerstest"
)

// TestTruthCursorGenerated holds generated streams to the same: interleavings of deltas,
// repeats and tools that no file of the corpus has.
func TestTruthCursorGenerated(t *testing.T) {
	t.Parallel()
	s := cursortest.Suite
	rapid.Check(t, func(rt *rapid.T) {
		data := bytes.Join(s.Lines(rt, "s1"), []byte("\n"))
		if found := normalizerstest.CheckTruth(s, normalizers.Normalize, normalizerstest.FileNamed(s.Source, "s1.jsonl"), data, normalizerstest.NewReport()); len(found) > 0 {
			rt.Fatalf("%s\nof the file\n%s", strings.Join(found, "\n"), data)
		}
	})
}
