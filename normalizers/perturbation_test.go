package normalizers_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"tributary/normalizers/normalizerstest"
)

// garbage are lines that cannot be read, some of which begin like a document over several lines.
var garbage = []string{
	`[1,2,`,
	`{"type":"user","message":{"content":[`,
	`{`,
	`[`,
	`}`,
	`{"a":1`,
	`{"a":[{"b":"`,
}

// TestFramingLineOfGarbageCostsNoOtherRecord holds a log to this: one more line that cannot be
// read, between any two lines, adds one dead letter and changes no other record.
func TestFramingLineOfGarbageCostsNoOtherRecord(t *testing.T) {
	t.Parallel()
	lines := []string{
		`{"type":"user","uuid":"u1","sessionId":"s","timestamp":"2026-03-01T09:00:00Z","message":{"role":"user","content":"one"}}`,
		`{"type":"user","uuid":"u2","sessionId":"s","timestamp":"2026-03-01T09:00:01Z","message":{"role":"user","content":"two"}}`,
		`{"type":"user","uuid":"u3","sessionId":"s","timestamp":"2026-03-01T09:00:02Z","message":{"role":"user","content":"three"}}`,
	}
	for _, bad := range garbage {
		for at := range len(lines) + 1 {
			for _, more := range []string{"", "}", "]", "}]}"} { // a second line that seems to end the first
				if at < len(lines) && json.Valid([]byte(bad+lines[at]+more)) {
					continue // it does end it: the lines are one document
				}
				t.Run(fmt.Sprintf("%s before line %d, closed by %q", bad, at, more), func(t *testing.T) {
					t.Parallel()
					var file bytes.Buffer
					for i, l := range lines {
						if i == at {
							file.WriteString(bad + "\n")
						}
						file.WriteString(l + "\n")
						if i == at && more != "" {
							file.WriteString(more + "\n")
						}
					}
					if at == len(lines) {
						file.WriteString(bad + "\n")
					}
					var good []string
					for _, r := range normalizerstest.Frame(normalizerstest.FileNamed("claude_code", "f.jsonl"), file.Bytes()) {
						if !r.Record.Origin.End && json.Valid(r.Record.Data) {
							good = append(good, string(r.Record.Data))
						}
					}
					if len(good) != len(lines) {
						t.Fatalf("%d records can be read, want %d:\n%s", len(good), len(lines), file.String())
					}
					for i := range lines {
						if good[i] != lines[i] {
							t.Errorf("record %d is %s", i, good[i])
						}
					}
				})
			}
		}
	}
}

// TestGoldenLogsArePerturbedInEveryPosition puts one more line between any two records of the
// golden cases.
func TestGoldenLogsArePerturbedInEveryPosition(t *testing.T) {
	t.Parallel()
	for _, s := range suites {
		t.Run("source="+string(s.Source), func(t *testing.T) {
			t.Parallel()
			logs := 0
			for _, g := range normalizerstest.Goldens(t, s) {
				log, ok := normalizerstest.NewLog(s, g.File(s.Source), g.Raw)
				if !ok {
					continue
				}
				logs++
				t.Run(g.Name, func(t *testing.T) {
					t.Parallel()
					for position := range log.Positions() {
						if err := log.Perturb(position); err != nil {
							t.Fatal(err)
						}
					}
				})
			}
			if logs == 0 {
				t.Error("no case is a log of lines")
			}
		})
	}
}

// TestGeneratedLogsArePerturbed puts one more line between two records of generated logs.
func TestGeneratedLogsArePerturbed(t *testing.T) {
	t.Parallel()
	for _, s := range suites {
		t.Run("source="+string(s.Source), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(rt *rapid.T) {
				data := bytes.Join(s.Lines(rt, "s1"), []byte("\n"))
				log, ok := normalizerstest.NewLog(s, normalizerstest.FileNamed(s.Source, "s1.jsonl"), data)
				if !ok {
					return
				}
				position := rapid.IntRange(0, log.Positions()-1).Draw(rt, "position")
				if err := log.Perturb(position); err != nil {
					rt.Fatalf("%v\nof the file\n%s", err, data)
				}
			})
		})
	}
}

// TestCorpusIsPerturbedByGarbage puts lines of garbage in front of every record of the logs of
// the corpus, of every second and of every third. What a record of an unknown type changes there
// is a law of its own, unknown_record_changes_nothing.
func TestCorpusIsPerturbedByGarbage(t *testing.T) {
	t.Parallel()
	for _, s := range suites {
		t.Run("source="+string(s.Source), func(t *testing.T) {
			t.Parallel()
			for _, f := range normalizerstest.Corpus(t, s) {
				t.Run(f.Name, func(t *testing.T) {
					log, ok := normalizerstest.NewLog(s, normalizerstest.FileNamed(s.Source, f.Name), f.Data)
					if !ok {
						t.Skip("no log of lines")
					}
					for n := 1; n <= 3; n++ {
						if err := log.Litter(n); err != nil {
							t.Errorf("in front of every record of %d: %v", n, err)
						}
					}
				})
			}
		})
	}
}
