package opencode_test

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tributary/normalizers"
	"tributary/normalizers/normalizerstest"
	"tributary/normalizers/opencode/opencodetest"
)

// TestTruthGenerated holds generated logs to what their raw bytes say: mixtures of forms that
// no file of the corpus has.
func TestTruthGenerated(t *testing.T) {
	t.Parallel()
	s := opencodetest.Suite
	rapid.Check(t, func(rt *rapid.T) {
		data := bytes.Join(s.Lines(rt, "s1"), []byte("\n"))
		file := normalizerstest.FileNamed(s.Source, "s1.jsonl")
		if found := normalizerstest.CheckTruth(s, normalizers.Normalize, file, data, normalizerstest.NewReport()); len(found) > 0 {
			rt.Fatalf("%s\nof the file\n%s", strings.Join(found, "\n"), data)
		}
	})
}
