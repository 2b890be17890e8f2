package pipelinetest

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// duckDB is the package of npm that runs the statements of sql.md.
const duckDB = "@duckdb/node-api@1.5.6-r.1"

// Statement is a query in SQL.
type Statement struct {
	Name   string `json:"name"`
	SQL    string `json:"sql"`
	Script bool   `json:"script"` // several statements without an answer
}

// Answer is what a query returns.
type Answer struct {
	Rows []json.RawMessage `json:"rows"`
	MS   int               `json:"ms"`
}

// Statements returns the queries of sql.md in the folder of the package export, the views first.
func Statements(tb testing.TB, export string) []Statement {
	tb.Helper()
	page, err := os.ReadFile(filepath.Join(export, "sql.md"))
	if err != nil {
		tb.Fatal(err)
	}
	var list []Statement
	for _, m := range regexp.MustCompile("(?s)<!-- query: (.*?) -->\n```sql\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		list = append(list, Statement{m[1], m[2], m[1] == "views"})
	}
	if len(list) != 16 {
		tb.Fatalf("sql.md has %d queries, want the views and fifteen questions", len(list))
	}
	return list
}

// Ask runs queries with DuckDB in the folder that has events, by the script in the folder of the package export. Without
// Node and its packages the test is skipped.
func Ask(tb testing.TB, export, dir string, list []Statement) map[string]Answer {
	tb.Helper()
	node, packages := NodePackages(tb, duckDB)
	script, err := filepath.Abs(filepath.Join(export, "testdata", "duckdb.mjs"))
	if err != nil {
		tb.Fatal(err)
	}
	input, err := json.Marshal(list)
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.CommandContext(tb.Context(), node, script, packages)
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(input)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		tb.Fatalf("duckdb: %v\n%s", err, &stderr)
	}
	var answers map[string]Answer
	if err := json.Unmarshal(out, &answers); err != nil {
		tb.Fatal(err)
	}
	return answers
}
