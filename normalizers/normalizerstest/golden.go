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
	"tributary/normalizers/core"
)

// Golden is one case: the file <vendor>/testdata/<case>.txtar with a comment that states where
// the shape of the records comes from, and the sections
//
//   - raw.jsonl: the records of a vendor's file, written by hand; or sample.txt: the path of a sample with them,
//   - event-N.json: event N of the case in full; a case may have none, or one, and renaming it shows another event,
//   - events.txt: all events in short form, see [shortForm],
//   - skipped.txt: line and reason of each record without an event.
//
// All but the first are written by go test ./normalizers -run TestGolden -update.
type Golden struct {
	Name    string // the case
	Path    string
	Archive *txtar.Archive
	Raw     []byte // the records
}

// File describes the vendor's file. Its stem is the session if nothing else names one.
func (g Golden) File(source envelopes.Source) normalizers.File {
	return FileNamed(source, g.Name+".jsonl")
}

// TestData returns the folder of the vendor's test data, for tests in the vendor's folder or its parent.
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
		if len(a.Files) == 0 || len(bytes.TrimSpace(a.Comment)) == 0 {
			tb.Fatalf("%s: needs a comment with its provenance and a section with its records", path)
		}
		switch first := a.Files[0]; first.Name {
		case "raw.jsonl":
			g.Raw = first.Data
		case "sample.txt":
			sample := filepath.Join(filepath.Dir(folder), "samples", strings.TrimSpace(string(first.Data)))
			if g.Raw, err = os.ReadFile(sample); err != nil {
				tb.Fatalf("%s: %v", path, err)
			}
		default:
			tb.Fatalf("%s: its first section is %s, want raw.jsonl or sample.txt", path, first.Name)
		}
		out = append(out, g)
	}
	return out
}

// Outcome is what the records of a case yield.
type Outcome struct {
	Events  []envelopes.AgentEventV1
	Skipped []byte // the section skipped.txt
}

// Outcome frames and normalizes the records of the case.
func (g Golden) Outcome(tb testing.TB, source envelopes.Source) Outcome {
	tb.Helper()
	var out Outcome
	for _, s := range Fold(normalizers.Normalize, Frame(g.File(source), g.Raw)) {
		for _, e := range s.Result.Events {
			out.Events = append(out.Events, e.Event)
		}
		switch {
		case s.Failed():
			reason, _ := core.Reason(s.Err)
			out.Skipped = fmt.Appendf(out.Skipped, "%d dead letter: %s\n", s.Line, reason)
		case s.Result.Skip != "":
			out.Skipped = fmt.Appendf(out.Skipped, "%d %s\n", s.Line, s.Result.Skip)
		}
	}
	return out
}

// JSON returns the events as they are published, one on a line.
func (o Outcome) JSON(tb testing.TB) []byte {
	tb.Helper()
	var out []byte
	for _, e := range o.Events {
		b, err := Encode(e)
		if err != nil {
			tb.Fatal(err)
		}
		out = append(append(out, b...), '\n')
	}
	return out
}

// Expected returns the sections that the file of the case should have for an outcome.
func (g Golden) Expected(tb testing.TB, o Outcome) []txtar.File {
	tb.Helper()
	files := g.Archive.Files[:1:1]
	if len(o.Events) > 0 {
		if full := min(g.fullEvent(), len(o.Events)); full > 0 {
			b, err := FullForm(o.Events[full-1])
			if err != nil {
				tb.Fatal(err)
			}
			files = append(files, txtar.File{Name: fmt.Sprintf("event-%d.json", full), Data: b})
		}
		files = append(files, txtar.File{Name: "events.txt", Data: []byte(strings.Join(ShortForms(tb, o.Events), ""))})
	}
	if len(o.Skipped) > 0 {
		files = append(files, txtar.File{Name: "skipped.txt", Data: o.Skipped})
	}
	return files
}

// fullEvent returns the number, from 1, of the event that the case has in full; 0 for none.
func (g Golden) fullEvent() int {
	for _, f := range g.Archive.Files {
		var n int
		if _, err := fmt.Sscanf(f.Name, "event-%d.json", &n); err == nil && n > 0 {
			return n
		}
	}
	return 0
}
