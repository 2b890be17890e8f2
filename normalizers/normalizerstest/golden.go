package normalizerstest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"tributary/envelopes"
	"tributary/normalizers"
)

// Golden is one file <vendor>/testdata/<case>.txtar: raw.jsonl are the records of a
// vendor's file, written by hand after the shape that the comment names; events.jsonl the
// events, one on a line; skipped.txt the line and the reason of each record without one.
type Golden struct {
	Name    string // the case
	Path    string
	Archive *txtar.Archive
	Raw     []byte
	Events  []byte
	Skipped []byte
}

// File describes the vendor's file: its stem is the session of last resort.
func (g Golden) File(source envelopes.Source) normalizers.File {
	return FileNamed(source, g.Name+".jsonl")
}

// TestData returns the folder of the vendor's test data, for a test of the vendor's folder or
// of the folder above it.
func (s Suite) TestData() string {
	if here, err := os.Getwd(); err == nil && filepath.Base(here) == s.Room {
		return "testdata"
	}
	return filepath.Join(s.Room, "testdata")
}

// Goldens reads the cases of a vendor; a vendor without one fails the test.
func Goldens(tb testing.TB, s Suite) []Golden {
	tb.Helper()
	folder := s.TestData()
	paths, err := filepath.Glob(filepath.Join(folder, "*.txtar"))
	if err != nil {
		tb.Fatal(err)
	}
	if len(paths) == 0 {
		tb.Fatalf("%s has no case", folder)
	}
	var out []Golden
	for _, path := range paths {
		a, err := txtar.ParseFile(path)
		if err != nil {
			tb.Fatal(err)
		}
		g := Golden{Name: strings.TrimSuffix(filepath.Base(path), ".txtar"), Path: path, Archive: a}
		for _, f := range a.Files {
			switch f.Name {
			case "raw.jsonl":
				g.Raw = f.Data
			case "events.jsonl":
				g.Events = f.Data
			case "skipped.txt":
				g.Skipped = f.Data
			default:
				tb.Fatalf("%s: unknown section %s", path, f.Name)
			}
		}
		if len(g.Raw) == 0 || len(bytes.TrimSpace(a.Comment)) == 0 {
			tb.Fatalf("%s: needs a comment with its provenance and a section raw.jsonl", path)
		}
		out = append(out, g)
	}
	return out
}

// Outcome is what a golden file expects of its records.
func (g Golden) Outcome(tb testing.TB, source envelopes.Source) (events, skipped []byte) {
	tb.Helper()
	for _, s := range Fold(normalizers.Normalize, Frame(g.File(source), g.Raw)) {
		for _, e := range s.Result.Events {
			b, err := Encode(e.Event)
			if err != nil {
				tb.Fatal(err)
			}
			events = append(append(events, b...), '\n')
		}
		switch {
		case s.Failed():
			reason, _ := normalizers.Reason(s.Err)
			skipped = fmt.Appendf(skipped, "%d dead letter: %s\n", s.Line, reason)
		case s.Result.Skip != "":
			skipped = fmt.Appendf(skipped, "%d %s\n", s.Line, s.Result.Skip)
		}
	}
	return events, skipped
}
