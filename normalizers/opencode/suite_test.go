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

// TestLawsGenerated holds generated logs to the laws of all vendors.
func TestLawsGenerated(t *testing.T) {
	t.Parallel()
	s := opencodetest.Suite
	rapid.Check(t, func(rt *rapid.T) {
		normalizerstest.CheckRapid(rt, s, normalizerstest.Generated(rt, s), true)
	})
}

// TestCorpus holds the files of the corpus to what their raw bytes say, and to the laws.
func TestCorpus(t *testing.T) {
	t.Parallel()
	s := opencodetest.Suite
	all := normalizerstest.NewReport()
	for _, f := range normalizerstest.Corpus(t, s) {
		t.Run(f.Name, func(t *testing.T) {
			file := normalizerstest.FileNamed("", f.Name)
			for _, p := range normalizerstest.CheckTruth(s, normalizers.Normalize, file, f.Data, all) {
				t.Error(p)
			}
			normalizerstest.CheckLaws(t, s, normalizerstest.Frame(file, f.Data), true)
		})
	}
	t.Log("\n" + all.String())
}
