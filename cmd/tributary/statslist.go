package main

import (
	"cmp"
	"encoding/csv"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tributary/cmd/internal/terminal"
	"tributary/pipeline/sessions"
)

// moreTokens orders rows by tokens, calls and names.
func moreTokens(a, b sessions.Row) int {
	c := cmp.Or(cmp.Compare(b.Usage.Total(), a.Usage.Total()), cmp.Compare(b.Calls, a.Calls), cmp.Compare(b.Events, a.Events))
	for _, d := range sessions.Dimensions {
		c = cmp.Or(c, cmp.Compare(a.Value(d), b.Value(d)))
	}
	return c
}

// rowsInOrder returns rows in the order in which they are printed: by day, then those with most tokens first.
func rowsInOrder(rows []sessions.Row, by []sessions.Dimension) []sessions.Row {
	if slices.Contains(by, sessions.ByDay) {
		slices.SortStableFunc(rows, func(a, b sessions.Row) int { return cmp.Compare(a.Day, b.Day) })
	}
	return rows
}

// statsList prints rows of statistics.
type statsList struct {
	by      []sessions.Dimension
	rows    []sessions.Row
	pricing *pricing
}

// dimensions returns the columns that name a row: those that the user names, and the source of a session, because
// two sources can have a session of the same id.
func (l *statsList) dimensions() []sessions.Dimension {
	if slices.Contains(l.by, sessions.BySession) && !slices.Contains(l.by, sessions.BySource) {
		return slices.Concat([]sessions.Dimension{sessions.BySource}, l.by)
	}
	return l.by
}

// statsRow is a row as JSON and CSV have it: its dimensions, its figures and its cost.
type statsRow []statsMember

// statsMember is a member of a row. The value is a string, an int64, a float64, or nil if it is unknown.
type statsMember struct {
	name  string
	value any
}

// MarshalJSONTo writes the members in their order.
func (row statsRow) MarshalJSONTo(e *jsontext.Encoder) error {
	err := e.WriteToken(jsontext.BeginObject)
	for _, m := range row {
		if err == nil {
			err = e.WriteToken(jsontext.String(m.name))
		}
		if err == nil {
			err = json.MarshalEncode(e, m.value)
		}
	}
	return cmp.Or(err, e.WriteToken(jsontext.EndObject))
}

// row returns a row of statistics as JSON and CSV have it.
func (l *statsList) row(r *sessions.Row) statsRow {
	var row statsRow
	for _, d := range l.dimensions() {
		row = append(row, statsMember{string(d), known(r.Value(d) != "", r.Value(d))})
	}
	u := &r.Usage
	p50, p95 := r.Latency()
	row = append(row,
		statsMember{"sessions", r.Sessions},
		statsMember{"events", r.Events},
		statsMember{"tokens_input", u.Input},
		statsMember{"tokens_output", u.Output},
		statsMember{"cache_read", u.CacheRead},
		statsMember{"cache_write", u.CacheWrite},
		statsMember{"reasoning", u.Reasoning},
		statsMember{"total", u.Total()},
		statsMember{"calls", r.Calls},
		statsMember{"failures", r.Failures},
		statsMember{"error_rate", known(r.Calls > 0, float64(r.Failures)/float64(r.Calls))}, // failures of calls
		statsMember{"latency_p50_ms", knownAt(p50)},
		statsMember{"latency_p95_ms", knownAt(p95)},
		statsMember{"errors", r.Errors},
		statsMember{"prompts", r.Prompts},
		statsMember{"active_seconds", r.Active().Seconds()},
	)
	c := l.pricing.of(r.Models)
	return append(row,
		statsMember{"cost_usd", known(c.priced, c.rounded())},
		statsMember{"unpriced", c.unpriced}, // tokens that are not in the cost
		statsMember{"cache_write_1h", u.CacheWrite1h},
		statsMember{"web_search_requests", u.WebSearchRequests},
		statsMember{"vendor_cost_usd", u.CostUSD}, // that vendors state
	)
}

// known returns a value, nil if it is unknown.
func known(is bool, value any) any {
	if !is {
		return nil
	}
	return value
}

// knownAt returns the value of a pointer, nil for none.
func knownAt(n *int64) any {
	if n == nil {
		return nil
	}
	return *n
}

// json prints the rows, one object each.
func (l *statsList) json(w io.Writer) error {
	for i := range l.rows {
		if err := terminal.WriteJSON(w, l.row(&l.rows[i])); err != nil {
			return err
		}
	}
	return nil
}

// csv prints the rows with a heading. What is unknown is empty.
func (l *statsList) csv(w io.Writer) error {
	out := csv.NewWriter(w)
	var heads []string
	for _, m := range l.row(new(sessions.Row)) {
		heads = append(heads, m.name)
	}
	if err := out.Write(heads); err != nil {
		return err
	}
	for i := range l.rows {
		var line []string
		for _, m := range l.row(&l.rows[i]) {
			line = append(line, m.csv())
		}
		if err := out.Write(line); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// csv returns the value as a field of CSV.
func (m statsMember) csv() string {
	switch v := m.value.(type) {
	case string:
		return terminal.Printable(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return ""
}

// statsColumns are the figures that the table has, in its order.
var statsColumns = []struct {
	head     string
	priority int // see [terminal.Column]
	text     func(r *sessions.Row) string
}{
	{"SESSIONS", 7, func(r *sessions.Row) string { return terminal.Thousands(r.Sessions) }},
	{"EVENTS", 4, func(r *sessions.Row) string { return terminal.Thousands(r.Events) }},
	{"CALLS", 9, func(r *sessions.Row) string { return terminal.Thousands(r.Calls) }},
	{"FAILED", 8, func(r *sessions.Row) string { return terminal.Percent(r.Failures, r.Calls) }},
	{"P50", 2, func(r *sessions.Row) string { p50, _ := r.Latency(); return terminal.Millis(p50) }},
	{"P95", 5, func(r *sessions.Row) string { _, p95 := r.Latency(); return terminal.Millis(p95) }},
	{"ACTIVE", 6, func(r *sessions.Row) string { return terminal.Rough(r.Active().Round(time.Second)) }},
	{"INPUT", 10, func(r *sessions.Row) string { return terminal.Thousands(r.Usage.Input) }},
	{"CACHE READ", 3, func(r *sessions.Row) string { return terminal.Thousands(r.Usage.CacheRead) }},
	{"CACHE WRITE", 2, func(r *sessions.Row) string { return terminal.Thousands(r.Usage.CacheWrite) }},
	{"OUTPUT", 10, func(r *sessions.Row) string { return terminal.Thousands(r.Usage.Output) }},
	{"REASONING", 1, func(r *sessions.Row) string { return terminal.Thousands(r.Usage.Reasoning) }},
	{"TOTAL", 0, func(r *sessions.Row) string { return terminal.Thousands(r.Usage.Total()) }},
}

// table returns the rows for people, with their sum.
func (l *statsList) table() *terminal.Table {
	t := &terminal.Table{}
	for _, d := range l.dimensions() {
		t.Columns = append(t.Columns, terminal.Column{Head: strings.ToUpper(string(d)), Text: d != sessions.ByDay})
	}
	for _, c := range statsColumns {
		t.Columns = append(t.Columns, terminal.Column{Head: c.head, Right: true, Priority: c.priority})
	}
	t.Columns = append(t.Columns, terminal.Column{Head: "COST", Right: true})
	var sum sessions.Row
	var total cost
	for i := range l.rows {
		r := &l.rows[i]
		sum.Merge(&r.Sums)
		var names []string
		for _, d := range l.dimensions() {
			names = append(names, terminal.OrDash(r.Value(d)))
		}
		c := l.pricing.of(r.Models)
		total.add(c)
		t.Add(values(names, r, c)...)
	}
	if len(l.rows) > 1 && len(l.by) > 0 {
		names := make([]string, len(l.dimensions()))
		names[0] = "all"
		t.Foot = values(names, &sum, total)
		t.Foot[len(names)] = "" // a session can be in several rows, so that their number has no sum
	}
	return t
}

// values returns the values of a row of the table.
func values(names []string, r *sessions.Row, c cost) []string {
	values := names
	for _, c := range statsColumns {
		values = append(values, c.text(r))
	}
	return append(values, c.text())
}
