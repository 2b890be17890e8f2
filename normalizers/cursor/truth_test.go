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

// TestGeneratedStreamsMatchTheirBytes compares generated streams with their raw bytes:
// interleavings of deltas, repeats and tools that no file of the corpus has.
func TestGeneratedStreamsMatchTheirBytes(t *testing.T) {
	t.Parallel()
	s := cursortest.Suite
	rapid.Check(t, func(rt *rapid.T) {
		data := bytes.Join(s.Lines(rt, "s1"), []byte("\n"))
		if found := normalizerstest.CheckTruth(s, normalizers.Normalize, normalizerstest.FileNamed(s.Source, "s1.jsonl"), data, normalizerstest.NewReport()); len(found) > 0 {
			rt.Fatalf("%s\nof the file\n%s", strings.Join(found, "\n"), data)
		}
	})
}
