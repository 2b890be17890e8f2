package normalizers_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
	"tributary/normalizers/normalizerstest"
)

// The list of a vendor has each member in its cases and samples that no rule reads, and so
// have the real logs of TRIBUTARY_CORPUS. Only names of members are in a list; -update adds those
// that it lacks, and no test removes a path that no log has any more.
//
//	TRIBUTARY_CORPUS=... go test ./normalizers -run TestIgnored -update
func TestIgnored(t *testing.T) {
	for _, s := range suites {
		t.Run("source="+string(s.Source), func(t *testing.T) {
			unread := make(map[string]string) // an example of each
			for _, g := range normalizerstest.Goldens(t, s) {
				addUnread(unread, g.Name, g.File(s.Source), g.Raw)
			}
			for name, data := range samplesOf(t, normalizers.VendorOf(s.Source)) {
				addUnread(unread, name, normalizerstest.FileNamed(s.Source, name), data)
			}
			if os.Getenv("TRIBUTARY_CORPUS") != "" {
				for _, f := range normalizerstest.Corpus(t, s) {
					addUnread(unread, f.Name, normalizerstest.FileNamed(s.Source, f.Name), f.Data)
				}
			}
			path := filepath.Join(filepath.Dir(s.TestData()), "ignored.txt")
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatalf("%v: make it empty, embed it in the Files of the row, and run with -update", err)
			}
			listed := slices.Collect(strings.Lines(string(data)))
			if *update {
				for name := range unread {
					listed = append(listed, name+"\n")
				}
				slices.Sort(listed)
				if err := os.WriteFile(path, []byte(strings.Join(slices.Compact(listed), "")), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if string(data) != normalizers.VendorOf(s.Source).Ignored() {
				t.Errorf("the Files of the row do not have %s", path)
			}
			if !slices.IsSorted(listed) || len(slices.Compact(listed)) != len(strings.Split(string(data), "\n"))-1 {
				t.Errorf("%s is not in order, or has a path twice", path)
			}
			for _, name := range slices.Sorted(maps.Keys(unread)) {
				if !slices.Contains(listed, name+"\n") {
					t.Errorf("%s has %s, which no rule reads and %s lacks: read it, or run with -update", unread[name], name, path)
				}
			}
		})
	}
}

// addUnread adds the members of a log that are not read, with the name of the log. Records of unknown types are left out: some cases
// invent them.
func addUnread(unread map[string]string, name string, file normalizers.File, data []byte) {
	watched := func(s *core.Session, r core.Record) (res core.Result, err error) {
		for _, f := range lenient.Unread(r.Data, func() { res, err = normalizers.Normalize(s, r) }) {
			if err == nil && len(res.Unknown) == 0 && f.Path != lenient.NameOther {
				unread[f.Path] = name
			}
		}
		return res, err
	}
	normalizerstest.Fold(watched, normalizerstest.Frame(file, data))
}

// samplesOf returns the samples of a vendor by their names.
func samplesOf(t *testing.T, v *core.Vendor) map[string][]byte {
	t.Helper()
	samples := make(map[string][]byte)
	err := fs.WalkDir(v.Samples(), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		samples[name], err = fs.ReadFile(v.Samples(), name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return samples
}
