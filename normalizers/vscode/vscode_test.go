package vscode_test

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tributary/normalizers"
	"tributary/normalizers/normalizerstest"
	"tributary/normalizers/vscode/vscodetest"
)

// A journal has the same texts, calls, results and tokens as the session that its entries make.
func TestJournalIsTheSession(t *testing.T) {
	t.Parallel()
	s := vscodetest.Suite
	rapid.Check(t, func(rt *rapid.T) {
		data := bytes.Join(s.Lines(rt, "s1"), []byte("\n"))
		file := normalizerstest.FileNamed(s.Source, "s1.jsonl")
		if found := normalizerstest.CheckTruth(s, normalizers.Normalize, file, data, normalizerstest.NewReport()); len(found) > 0 {
			rt.Fatalf("%s\nof the file\n%s", strings.Join(found, "\n"), data)
		}
	})
}
