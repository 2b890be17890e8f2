// Package kilotest describes Kilo Code to the tests: clinetest reads and generates the files of its tasks, opencodetest
// the rows of its database, and this package what Kilo Code does in its own way with these.
package kilotest

import (
	"encoding/json"
	"maps"
	"strings"

	"pgregory.net/rapid"

	"tributary/envelopes"
	"tributary/normalizers/cline/clinetest"
	"tributary/normalizers/normalizerstest"
	"tributary/normalizers/opencode/opencodetest"
)

// Suite describes Kilo Code to the tests of all vendors.
var Suite = func() normalizerstest.Suite {
	s, rows := tasks, opencodetest.Suite
	s.Unknown = append(s.Unknown, `{"table":"of_tomorrow","row":{"x":1}}`)
	s.Lines = lines
	s.Ledger = func() normalizerstest.Ledger { return ledger{tasks.Ledger(), rows.Ledger()} }
	s.Interpret = interpret
	s.ResumeID = func() func(session string, record any) string {
		ofRows := rows.ResumeID()
		return func(session string, record any) string {
			if table(record) == "" {
				record = nil // no task states an id
			}
			return ofRows(session, record)
		}
	}
	return s
}()

var tasks = clinetest.SuiteOf(envelopes.Kilo, "kilo")

// table returns the table of a row; empty for another record.
func table(record any) string {
	if normalizerstest.Member[map[string]any](record, "row") == nil {
		return ""
	}
	return normalizerstest.Member[string](record, "table")
}

// imported stands for the table of a row that was imported.
const imported = "imported"

// asOpenCode returns a row as OpenCode writes it; nil for a record that is no row. The steps of a message have its cost,
// and what was imported from a task says nothing.
func asOpenCode(data []byte) []byte {
	v := normalizerstest.Parse(data)
	of, row := table(v), normalizerstest.Member[map[string]any](v, "row")
	if of == "" {
		return nil
	}
	is := normalizerstest.Member[map[string]any](row, "data")
	switch id := normalizerstest.Member[string](row, "id"); {
	case of == "session":
	case strings.Contains(id, "_migrated_"):
		of = imported
	case of == "message":
		delete(is, "cost")
	default:
		metadata := normalizerstest.Member[map[string]any](is, "state", "metadata")
		code, ok := metadata["exitCode"]
		if _, stated := metadata["exit"]; ok && !stated {
			metadata["exit"] = code
		}
	}
	out, _ := json.Marshal(map[string]any{"table": of, "row": row}) // never fails
	return out
}

// interpret reads a file, which has either rows or a task.
func interpret(name string, lines []normalizerstest.Line) normalizerstest.Account {
	isOfRows := false
	as := make([]normalizerstest.Line, len(lines))
	for i, l := range lines {
		if as[i] = l; l.Bad {
			continue
		}
		if data := asOpenCode(l.Data); data != nil {
			as[i].Data, isOfRows = data, true
		}
	}
	if isOfRows {
		return opencodetest.Suite.Interpret(name, as)
	}
	return tasks.Interpret(name, lines)
}

// ledger has the tokens of tasks and of rows.
type ledger struct{ tasks, rows normalizerstest.Ledger }

// Add implements [normalizerstest.Ledger].
func (l ledger) Add(session string, record []byte) {
	if row := asOpenCode(record); row != nil {
		if table(normalizerstest.Parse(row)) != imported {
			l.rows.Add(session, row)
		}
		return
	}
	l.tasks.Add(session, record)
}

// Sums implements [normalizerstest.Ledger].
func (l ledger) Sums(session string) normalizerstest.Figures {
	sum := l.tasks.Sums(session)
	sum.Add(l.rows.Sums(session))
	return sum
}

// lines generates a task, or the rows of a session, some of which were imported.
func lines(t *rapid.T, session string) (out [][]byte) {
	if rapid.Bool().Draw(t, "task") {
		return tasks.Lines(t, session)
	}
	for _, line := range opencodetest.Suite.Lines(t, session) {
		if table(normalizerstest.Parse(line)) == "" {
			continue
		}
		if rapid.IntRange(0, 9).Draw(t, "change") == 0 {
			line = changed(t, line)
		}
		out = append(out, line)
	}
	return out
}

// changed returns a row that was imported, or that states an exit code as only Kilo Code does.
func changed(t *rapid.T, line []byte) []byte {
	v := normalizerstest.Parse(line)
	row := normalizerstest.Member[map[string]any](v, "row")
	metadata := normalizerstest.Member[map[string]any](row, "data", "state", "metadata")
	if metadata != nil && rapid.Bool().Draw(t, "exit code") {
		maps.Copy(metadata, map[string]any{"exitCode": rapid.SampledFrom([]any{0, 2, nil}).Draw(t, "code")})
	} else if table(v) != "session" {
		row["id"] = "prt_migrated_" + normalizerstest.Member[string](row, "id")
	}
	out, _ := json.Marshal(v) // never fails
	return out
}
