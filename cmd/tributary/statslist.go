package main

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
	"tributary/pipeline/sessions"
)

// statsLine is a row of statistics with its cost.
type statsLine struct {
	sessions.Row
	cost   cost
	before *statsLine // of the period before; nil unless it is compared
}

// statsList sums up rows of statistics, and prints them.
type statsList struct {
	dimensions []sessions.Dimension // columns that name a row
	compared   bool
	pricing    *pricing
	lines      topList[statsLine]
	before     map[string]*statsLine // rows of the period before, by their values
	total      statsLine             // of all rows
	rows       []statsLine           // that are printed, in their order
}

// line returns a row with its cost.
func (l *statsList) line(r *sessions.Row) *statsLine {
	return &statsLine{Row: *r, cost: l.pricing.of(r.Models)}
}

// addPrevious adds a row of the period before.
func (l *statsList) addPrevious(r *sessions.Row) error {
	if l.before == nil {
		l.before = map[string]*statsLine{}
	}
	l.before[rowKey(r.Values)] = l.line(r)
	return nil
}

// add adds a row.
func (l *statsList) add(r *sessions.Row) error {
	line := l.line(r)
	l.total.addRow(r)
	if key := rowKey(r.Values); l.compared {
		if line.before = l.before[key]; line.before == nil {
			line.before = l.line(&sessions.Row{Values: r.Values})
		} else {
			l.total.beforeTotal().addRow(&line.before.Row)
			delete(l.before, key)
		}
	}
	return l.lines.add(line)
}

// finish ends the list once all rows are added. byPeriod orders the rows by their periods first.
func (l *statsList) finish(byPeriod bool) {
	for _, before := range l.before { // rows that the period has not
		l.total.beforeTotal().addRow(&before.Row)
		line := l.line(&sessions.Row{Values: before.Values})
		line.before = before
		_ = l.lines.add(line) // never fails
	}
	l.rows = l.lines.sorted()
	if byPeriod {
		slices.SortStableFunc(l.rows, func(a, b statsLine) int {
			for i, d := range l.dimensions {
				if c := cmp.Compare(a.Values[i], b.Values[i]); c != 0 && d.IsPeriod() {
					return c
				}
			}
			return 0
		})
	}
	clear(l.pricing.missing) // noted for each row
	if l.compared {
		l.total.beforeTotal().cost = l.pricing.of(l.total.before.Models)
	}
	l.total.cost = l.pricing.of(l.total.Models)
}

// beforeTotal returns the sum of the rows of the period before.
func (s *statsLine) beforeTotal() *statsLine {
	if s.before == nil {
		s.before = &statsLine{}
	}
	return s.before
}

// addRow adds a row to a sum.
func (s *statsLine) addRow(r *sessions.Row) {
	s.Merge(&r.Sums)
	for model, used := range r.Models {
		s.Models = sessions.AddTokens(s.Models, model, used)
	}
}

// rowKey is a key of the values of a row.
func rowKey(values []string) string { return strings.Join(values, "\x00") }

// moreTokens orders rows by tokens, calls, events and names.
func moreTokens(a, b statsLine) int {
	return cmp.Or(cmp.Compare(b.Usage.Total(), a.Usage.Total()), cmp.Compare(b.Calls, a.Calls), cmp.Compare(b.Events, a.Events), slices.Compare(a.Values, b.Values))
}

// order returns the order that --sort names: a column with or without a direction.
func (l *statsList) order(sort string) (func(a, b statsLine) int, error) {
	if sort == "" {
		return moreTokens, nil
	}
	name, way := sort, ""
	for _, w := range []string{"asc", "desc"} {
		if column, ok := strings.CutSuffix(sort, ":"+w); ok {
			name, way = column, w
		}
	}
	if i := slices.Index(l.dimensions, sessions.Dimension(name)); i >= 0 {
		return func(a, b statsLine) int {
			c := cmp.Compare(a.Values[i], b.Values[i])
			if way == "desc" {
				c = -c
			}
			return cmp.Or(c, moreTokens(a, b))
		}, nil
	}
	for _, f := range l.figures() {
		if f.name != name {
			continue
		}
		return func(a, b statsLine) int {
			x, hasX := number(f.value(&a))
			y, hasY := number(f.value(&b))
			c := cmp.Compare(y, x)
			if way == "asc" {
				c = -c
			}
			switch {
			case hasX && !hasY:
				c = -1
			case !hasX && hasY:
				c = 1
			}
			return cmp.Or(c, moreTokens(a, b))
		}, nil
	}
	names := texts(l.dimensions)
	for _, f := range l.figures() {
		names = append(names, f.name)
	}
	return nil, usageError{fmt.Errorf("--sort %q: write one of %s, and :asc or :desc behind it for the direction", sort, strings.Join(names, ", "))}
}

// number returns a figure as a number, false if it is unknown.
func number(value any) (n float64, ok bool) {
	switch v := value.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

// statsFigure is a column of a row: an int64, a float64, or nil if it is unknown.
type statsFigure struct {
	name  string
	value func(*statsLine) any
}

// statsFigures are the figures of a row, by their names in JSON and CSV.
var statsFigures = []statsFigure{
	{"sessions", func(r *statsLine) any { return r.Sessions }},
	{"events", func(r *statsLine) any { return r.Events }},
	{"input", func(r *statsLine) any { return r.Usage.Input }},
	{"cache_read", func(r *statsLine) any { return r.Usage.CacheRead }},
	{"cache_write", func(r *statsLine) any { return r.Usage.CacheWrite }},
	{"output", func(r *statsLine) any { return r.Usage.Output }},
	{"reasoning", func(r *statsLine) any { return r.Usage.Reasoning }},
	{"total", func(r *statsLine) any { return r.Usage.Total() }},
	{"cache_hit_rate", func(r *statsLine) any { return hitRate(&r.Usage) }}, // the part of prompts that came from the cache
	{"calls", func(r *statsLine) any { return r.Calls }},
	{"failures", func(r *statsLine) any { return r.Failures }},
	{"error_rate", func(r *statsLine) any { return known(r.Calls > 0, float64(r.Failures)/float64(r.Calls)) }}, // failures of calls
	{"latency_p50_ms", func(r *statsLine) any { p50, _ := r.Latencies.Percentiles(); return knownAt(p50) }},
	{"latency_p95_ms", func(r *statsLine) any { _, p95 := r.Latencies.Percentiles(); return knownAt(p95) }},
	{"measured_p50_ms", func(r *statsLine) any { p50, _ := r.Measured.Percentiles(); return knownAt(p50) }},
	{"measured_p95_ms", func(r *statsLine) any { _, p95 := r.Measured.Percentiles(); return knownAt(p95) }},
	{"errors", func(r *statsLine) any { return r.Errors }},
	{"prompts", func(r *statsLine) any { return r.Prompts }},
	{"active_seconds", func(r *statsLine) any { return r.Active().Seconds() }},
	{"cost_usd", func(r *statsLine) any { return known(r.cost.priced, r.cost.rounded()) }},
	{"unpriced", func(r *statsLine) any { return r.cost.unpriced }}, // tokens that are not in the cost
	{"cache_write_1h", func(r *statsLine) any { return r.Usage.CacheWrite1h }},
	{"web_search_requests", func(r *statsLine) any { return r.Usage.WebSearchRequests }},
	{"vendor_cost_usd", func(r *statsLine) any { return r.Usage.CostUSD }}, // that vendors state
}

// hitRate returns which part of the tokens of prompts came from the cache, nil without prompts.
func hitRate(u *envelopes.Usage) any {
	prompts := u.Input + u.CacheRead + u.CacheWrite
	return known(prompts > 0, float64(u.CacheRead)/float64(prompts))
}

// oldFigures are figures under the names that they have until the next release.
var oldFigures = []statsFigure{
	{"tokens_input", func(r *statsLine) any { return r.Usage.Input }},
	{"tokens_output", func(r *statsLine) any { return r.Usage.Output }},
}

// figures returns the figures of a row, with those of the period before and the change if both are compared.
func (l *statsList) figures() []statsFigure {
	if !l.compared {
		return statsFigures
	}
	list := slices.Clone(statsFigures)
	for _, f := range statsFigures {
		list = append(list, statsFigure{"previous_" + f.name, func(r *statsLine) any { return f.value(r.before) }})
	}
	for _, f := range statsFigures {
		list = append(list, statsFigure{"delta_" + f.name, func(r *statsLine) any { return difference(f.value(r), f.value(r.before)) }})
	}
	return list
}

// difference returns a less b, nil if one of them is unknown.
func difference(a, b any) any {
	switch a := a.(type) {
	case int64:
		if b, ok := b.(int64); ok {
			return a - b
		}
	case float64:
		if b, ok := b.(float64); ok {
			return math.Round((a-b)*1e9) / 1e9 // without the noise of binary fractions
		}
	}
	return nil
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
func (l *statsList) row(r *statsLine) statsRow {
	var row statsRow
	for i, d := range l.dimensions {
		row = append(row, statsMember{string(d), known(r.Values[i] != "", r.Values[i])})
	}
	for _, f := range slices.Concat(l.figures(), oldFigures) {
		row = append(row, statsMember{f.name, f.value(r)})
	}
	return row
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
	for _, d := range l.dimensions {
		heads = append(heads, string(d))
	}
	for _, f := range slices.Concat(l.figures(), oldFigures) {
		heads = append(heads, f.name)
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
	priority int    // see [terminal.Column]
	figure   string // whose change the table has if periods are compared; empty for none
	text     func(r *statsLine) string
}{
	{"SESSIONS", 9, "sessions", func(r *statsLine) string { return terminal.Thousands(r.Sessions) }},
	{"PROMPTS", 6, "prompts", func(r *statsLine) string { return terminal.Thousands(r.Prompts) }},
	{"EVENTS", 5, "", func(r *statsLine) string { return terminal.Thousands(r.Events) }},
	{"CALLS", 11, "calls", func(r *statsLine) string { return terminal.Thousands(r.Calls) }},
	{"FAILED", 10, "", func(r *statsLine) string { return terminal.Percent(r.Failures, r.Calls) }},
	{"P50", 3, "", func(r *statsLine) string { p50, _ := r.Latencies.Percentiles(); return terminal.Millis(p50) }},
	{"P95", 6, "", func(r *statsLine) string { _, p95 := r.Latencies.Percentiles(); return terminal.Millis(p95) }},
	{"MEASURED P50", 2, "", func(r *statsLine) string { p50, _ := r.Measured.Percentiles(); return terminal.Millis(p50) }},
	{"MEASURED P95", 7, "", func(r *statsLine) string { _, p95 := r.Measured.Percentiles(); return terminal.Millis(p95) }},
	{"ACTIVE", 8, "active_seconds", func(r *statsLine) string { return terminal.Rough(r.Active().Round(time.Second)) }},
	{"INPUT", 12, "", func(r *statsLine) string { return terminal.Thousands(r.Usage.Input) }},
	{"CACHE READ", 4, "", func(r *statsLine) string { return terminal.Thousands(r.Usage.CacheRead) }},
	{"CACHE WRITE", 3, "", func(r *statsLine) string { return terminal.Thousands(r.Usage.CacheWrite) }},
	{"OUTPUT", 12, "", func(r *statsLine) string { return terminal.Thousands(r.Usage.Output) }},
	{"REASONING", 1, "", func(r *statsLine) string { return terminal.Thousands(r.Usage.Reasoning) }},
	{"TOTAL", 0, "total", func(r *statsLine) string { return terminal.Thousands(r.Usage.Total()) }},
	{"COST", 0, "cost_usd", func(r *statsLine) string { return r.cost.text() }},
}

// table returns the rows for people, with the sum of all rows.
func (l *statsList) table() *terminal.Table {
	t := &terminal.Table{}
	for _, d := range l.dimensions {
		t.Columns = append(t.Columns, terminal.Column{Head: strings.ToUpper(string(d)), Text: !d.IsPeriod(), Path: d == sessions.ByProject || d == sessions.ByRepository || d == sessions.ByBranch})
	}
	for _, c := range statsColumns {
		t.Columns = append(t.Columns, terminal.Column{Head: c.head, Right: true, Priority: 2 * c.priority})
		if l.compared && c.figure != "" {
			// It is left out before its figure.
			t.Columns = append(t.Columns, terminal.Column{Head: "CHANGE", Right: true, Priority: max(0, 2*c.priority-1)})
		}
	}
	for i := range l.rows {
		r := &l.rows[i]
		var names []string
		for n, d := range l.dimensions {
			names = append(names, valueText(d, r.Values[n]))
		}
		t.Add(l.values(names, r)...)
	}
	if len(l.rows)+l.lines.left > 1 && len(l.dimensions) > 0 {
		names := make([]string, len(l.dimensions))
		names[0] = "all"
		t.Foot = l.values(names, &l.total)
		for i, c := range t.Columns {
			if c.Head == "SESSIONS" { // a session can be in several rows, so that their number has no sum
				t.Foot[i] = ""
				if l.compared {
					t.Foot[i+1] = ""
				}
			}
		}
	}
	for i, c := range slices.Backward(t.Columns) { // nothing is measured, or no vendor states anything
		if strings.HasSuffix(c.Head, "P50") || strings.HasSuffix(c.Head, "P95") {
			l.dropEmpty(t, i)
		}
	}
	return t
}

// dropEmpty removes a column that no row has a value in.
func (l *statsList) dropEmpty(t *terminal.Table, column int) {
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

// values returns the values of a row of the table.
func (l *statsList) values(names []string, r *statsLine) []string {
	values := names
	for _, c := range statsColumns {
		values = append(values, c.text(r))
		if l.compared && c.figure != "" {
			values = append(values, change(c.figure, r))
		}
	}
	return values
}

// change returns the change of a figure since the period before, in percent.
func change(figure string, r *statsLine) string {
	i := slices.IndexFunc(statsFigures, func(f statsFigure) bool { return f.name == figure })
	now, hasNow := number(statsFigures[i].value(r))
	before, hadBefore := number(statsFigures[i].value(r.before))
	switch {
	case !hasNow || !hadBefore:
		return "?"
	case now == before:
		return "="
	case before == 0:
		return "new"
	}
	return fmt.Sprintf("%+.1f%%", 100*(now-before)/before)
}
