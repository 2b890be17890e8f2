package main

import (
	"encoding/csv"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"tributary/cmd/internal/figures"
	"tributary/cmd/internal/terminal"
	"tributary/pipeline/sessions"
)

// writeStatsJSON prints one object per row.
func writeStatsJSON(w io.Writer, l *figures.List) error {
	for i := range l.Rows {
		if err := terminal.WriteJSON(w, l.Object(&l.Rows[i])); err != nil {
			return err
		}
	}
	return nil
}

// writeStatsCSV prints a heading and the rows. Unknown values are empty.
func writeStatsCSV(w io.Writer, l *figures.List) error {
	out := csv.NewWriter(w)
	if err := out.Write(l.Columns()); err != nil {
		return err
	}
	for i := range l.Rows {
		var line []string
		for _, m := range l.Object(&l.Rows[i]) {
			line = append(line, csvField(m.Value))
		}
		if err := out.Write(line); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// csvField returns a value as a field of CSV.
func csvField(value any) string {
	switch v := value.(type) {
	case string:
		return terminal.Printable(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return ""
}

// statsColumns are the figures of the table, in its order.
var statsColumns = []struct {
	head     string
	priority int    // see [terminal.Column]
	figure   string // its change is a column if periods are compared; empty for none
	text     func(r *figures.Row) string
}{
	{"SESSIONS", 9, "sessions", func(r *figures.Row) string { return terminal.Thousands(r.Sessions) }},
	{"PROMPTS", 6, "prompts", func(r *figures.Row) string { return terminal.Thousands(r.Prompts) }},
	{"EVENTS", 5, "", func(r *figures.Row) string { return terminal.Thousands(r.Events) }},
	{"CALLS", 11, "calls", func(r *figures.Row) string { return terminal.Thousands(r.Calls) }},
	{"FAILED", 10, "", func(r *figures.Row) string { return terminal.Percent(r.Failures, r.Calls) }},
	{"P50", 3, "", func(r *figures.Row) string { p50, _ := r.Latencies.Percentiles(); return terminal.Millis(p50) }},
	{"P95", 6, "", func(r *figures.Row) string { _, p95 := r.Latencies.Percentiles(); return terminal.Millis(p95) }},
	{"MEASURED P50", 2, "", func(r *figures.Row) string { p50, _ := r.Measured.Percentiles(); return terminal.Millis(p50) }},
	{"MEASURED P95", 7, "", func(r *figures.Row) string { _, p95 := r.Measured.Percentiles(); return terminal.Millis(p95) }},
	{"ACTIVE", 8, "active_seconds", func(r *figures.Row) string { return terminal.Rough(r.Active().Round(time.Second)) }},
	{"INPUT", 12, "", func(r *figures.Row) string { return terminal.Thousands(r.Usage.Input) }},
	{"CACHE READ", 4, "", func(r *figures.Row) string { return terminal.Thousands(r.Usage.CacheRead) }},
	{"CACHE WRITE", 3, "", func(r *figures.Row) string { return terminal.Thousands(r.Usage.CacheWrite) }},
	{"OUTPUT", 12, "", func(r *figures.Row) string { return terminal.Thousands(r.Usage.Output) }},
	{"REASONING", 1, "", func(r *figures.Row) string { return terminal.Thousands(r.Usage.Reasoning) }},
	{"TOTAL", 0, "total", func(r *figures.Row) string { return terminal.Thousands(r.Usage.Total()) }},
	{"COST", 0, "cost_usd", func(r *figures.Row) string { return r.Cost.Text() }},
}

// statsTable lists the rows for people, and the sum of all rows.
func statsTable(l *figures.List) *terminal.Table {
	t := &terminal.Table{}
	for _, d := range l.Dimensions {
		t.Columns = append(t.Columns, terminal.Column{Head: strings.ToUpper(string(d)), Text: !d.IsPeriod(), Path: d == sessions.ByProject || d == sessions.ByRepository || d == sessions.ByBranch})
	}
	for _, c := range statsColumns {
		t.Columns = append(t.Columns, terminal.Column{Head: c.head, Right: true, Priority: 2 * c.priority})
		if l.Compared() && c.figure != "" {
			// It is left out before its figure.
			t.Columns = append(t.Columns, terminal.Column{Head: "CHANGE", Right: true, Priority: max(0, 2*c.priority-1)})
		}
	}
	for i := range l.Rows {
		r := &l.Rows[i]
		var names []string
		for n, d := range l.Dimensions {
			names = append(names, valueText(d, r.Values[n]))
		}
		t.Add(statsValues(l, names, r)...)
	}
	if len(l.Rows)+l.Left > 1 && len(l.Dimensions) > 0 {
		names := make([]string, len(l.Dimensions))
		names[0] = "all"
		t.Foot = statsValues(l, names, &l.Total)
		for i, c := range t.Columns {
			if c.Head == "SESSIONS" { // a session can be in several rows: no sum
				t.Foot[i] = ""
				if l.Compared() {
					t.Foot[i+1] = ""
				}
			}
		}
	}
	for i, c := range slices.Backward(t.Columns) { // nothing is measured, or no vendor states anything
		if strings.HasSuffix(c.Head, "P50") || strings.HasSuffix(c.Head, "P95") {
			dropEmpty(t, i)
		}
	}
	return t
}

// dropEmpty removes a column that is empty in every row.
func dropEmpty(t *terminal.Table, column int) {
	for _, row := range t.Rows {
		if row[column] != "" {
			return
		}
	}
	t.Columns = slices.Delete(t.Columns, column, column+1)
	for i, row := range t.Rows {
		t.Rows[i] = slices.Delete(row, column, column+1)
	}
	if t.Foot != nil {
		t.Foot = slices.Delete(t.Foot, column, column+1)
	}
}

// valueText returns the value of a dimension for people.
func valueText(d sessions.Dimension, value string) string {
	if d != sessions.ByTool && value == "" {
		return "(unknown)"
	}
	return terminal.OrDash(value)
}

// statsValues returns the values of a row of the table.
func statsValues(l *figures.List, names []string, r *figures.Row) []string {
	values := names
	for _, c := range statsColumns {
		values = append(values, c.text(r))
		if l.Compared() && c.figure != "" {
			values = append(values, figures.FigureOf(c.figure).Change(r))
		}
	}
	return values
}
