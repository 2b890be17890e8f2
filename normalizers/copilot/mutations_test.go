package copilot_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"tributary/normalizers/copilot/copilottest"
	"tributary/normalizers/normalizerstest"
)

// Of a log that is cut, resumed, or written by a version whose shutdowns state the session, the
// events bill what the log itself bills, at whatever record that happens.

// sums returns the tokens of the events of a log, which are those that the independent reader
// finds.
func sums(t *testing.T, records ...[]byte) normalizerstest.Figures {
	t.Helper()
	return copilottest.Suite.Billed(t, "events.jsonl", records...)
}

// parsed is a record with what the mutations read.
type parsed struct {
	Type string `json:"type"`
	Data struct {
		Metrics map[string]struct {
			Usage map[string]int `json:"usage"`
		} `json:"modelMetrics"`
	} `json:"data"`
}

func parse(record []byte) parsed {
	var p parsed
	_ = json.Unmarshal(record, &p) // of another shape: no shutdown
	return p
}

// ofTheSession returns a log whose shutdowns state their run as one whose shutdowns state the
// session.
func ofTheSession(records [][]byte) [][]byte {
	total := make(map[string]map[string]int)
	var out [][]byte
	for _, r := range records {
		p := parse(r)
		if p.Type != "session.shutdown" {
			out = append(out, r)
			continue
		}
		metrics := members{}
		for model, m := range p.Data.Metrics {
			if total[model] == nil {
				total[model] = make(map[string]int)
			}
			for name, n := range m.Usage {
				total[model][name] += n
			}
		}
		for model, usage := range total {
			metrics[model] = members{"usage": usage}
		}
		out = append(out, record(1_000+len(out), p.Type, members{"modelMetrics": metrics}))
	}
	return out
}

// checkMutations holds the mutations of a log to its sum.
func checkMutations(t *testing.T, data []byte) {
	t.Helper()
	var records [][]byte
	for _, l := range normalizerstest.ReadLines(data) {
		records = append(records, l.Data)
	}
	whole := sums(t, records...)
	if whole.Total == 0 {
		t.Fatal("the log bills nothing")
	}
	runs := 0
	for n, r := range records {
		switch kind := parse(r).Type; kind {
		case "session.shutdown":
			runs++
			idle := [][]byte{record(2_000+n, "session.resume", members{}), record(3_000+n, kind, members{"modelMetrics": members{}})}
			if got := sums(t, slices.Concat(records[:n+1], idle, records[n+1:])...); got != whole {
				t.Errorf("with a run of nothing behind record %d: %+v, want %+v", n+1, got, whole)
			}
		case "session.start", "session.resume", "user.message", "assistant.message":
		default:
			continue
		}
		sums(t, records[:n]...) // cut
		if got := sums(t, slices.Concat(records[:n], records)...); got != whole {
			t.Errorf("begun again at record %d: %+v, want %+v", n+1, got, whole)
		}
	}
	if got := sums(t, ofTheSession(records)...); got != whole {
		t.Errorf("with the totals of the session in %d shutdowns: %+v, want %+v", runs, got, whole)
	}
}

func TestMutatedLogsKeepTheSums(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"runs", "turn"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkMutations(t, copilottest.Golden(t, name).Raw)
		})
	}
	t.Run("runs of two models", func(t *testing.T) {
		t.Parallel()
		var lines [][]byte
		for n := range 4 {
			begin := "session.resume"
			if n == 0 {
				begin = "session.start"
			}
			lines = append(lines, run(n+1, begin, 300-50*n, members{"gpt-5": used(1_000, 200-50*n, 100, 0), fmt.Sprint("model ", n%2): used(700, 100, 0, 0)})...)
		}
		checkMutations(t, bytes.Join(lines, []byte("\n")))
	})
}

func TestCorpusMutatedLogsKeepTheSums(t *testing.T) {
	t.Parallel()
	for _, f := range normalizerstest.Corpus(t, copilottest.Suite) {
		if strings.HasPrefix(f.Name, normalizerstest.Fresh) {
			t.Run(f.Name, func(t *testing.T) {
				t.Parallel()
				checkMutations(t, f.Data)
			})
		}
	}
}
