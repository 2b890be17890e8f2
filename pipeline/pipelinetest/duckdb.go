package pipelinetest

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// duckDB is the package of npm that runs the statements of views.sql and questions.sql.
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

// Statements returns views.sql of the package export, then the queries of questions.sql.
func Statements(tb testing.TB, export string) []Statement {
	tb.Helper()
	read := func(file string) string {
		text, err := os.ReadFile(filepath.Join(export, file))
		if err != nil {
			tb.Fatal(err)
		}
		return string(text)
	}
	list := []Statement{{Name: "views", SQL: read("views.sql"), Script: true}}
	for i, query := range strings.Split(read("questions.sql"), "-- query: ") {
		if name, sql, _ := strings.Cut(query, "\n"); i > 0 {
			list = append(list, Statement{Name: name, SQL: sql})
		}
	}
	if len(list) != 16 {
		tb.Fatalf("questions.sql has %d queries, want fifteen", len(list)-1)
	}
	return list
}

// Ask runs queries with DuckDB in the folder dir of events, by the script of the package export. Without Node and its
// packages it skips the test.
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
