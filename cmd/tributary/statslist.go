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
	pricing *pricing // nil for no costs
}

// statsJSON is what a row has beside its dimensions, in JSON and as columns of CSV.
type statsJSON struct {
	Sessions int64 `json:"sessions"`
	Events   int64 `json:"events"`
	sessions.Tokens
	Calls     int64    `json:"calls"`
	Failures  int64    `json:"failures"`
	ErrorRate *float64 `json:"error_rate"` // failures of calls; null without calls
	P50       *int64   `json:"latency_p50_ms"`
	P95       *int64   `json:"latency_p95_ms"`
	Errors    int64    `json:"errors"`
	Prompts   int64    `json:"prompts"`
	Active    float64  `json:"active_seconds"`
}

// costJSON is what a row has beside that with --prices.
type costJSON struct {
	Cost     *float64 `json:"cost_usd"` // null if no token has a price
	Unpriced int64    `json:"unpriced"` // tokens that are not in the cost
}

// toStatsJSON returns the figures of a row.
func toStatsJSON(r *sessions.Row) statsJSON {
	j := statsJSON{
		Sessions: r.Sessions, Events: r.Events, Tokens: sessions.TokensOf(&r.Usage), Calls: r.Calls, Failures: r.Failures,
		Errors: r.Errors, Prompts: r.Prompts, Active: r.Active().Seconds(),
	}
	if r.Calls > 0 {
		j.ErrorRate = new(float64(r.Failures) / float64(r.Calls))
	}
	j.P50, j.P95 = r.Latency()
	return j
}

// dimensions returns the columns that name a row: those that the user names, and the source of a session, because
// two sources can have a session of the same id.
func (l *statsList) dimensions() []sessions.Dimension {
	if slices.Contains(l.by, sessions.BySession) && !slices.Contains(l.by, sessions.BySource) {
		return slices.Concat([]sessions.Dimension{sessions.BySource}, l.by)
	}
	return l.by
}

// json prints the rows, one object each. Unknown dimensions are null.
func (l *statsList) json(w io.Writer) error {
	for i := range l.rows {
		r := &l.rows[i]
		line, err := l.object(r)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "%s\n", line); err != nil {
			return err
		}
	}
	return nil
}

// object returns a row as an object, its dimensions first.
func (l *statsList) object(r *sessions.Row) ([]byte, error) {
	var b strings.Builder
	b.WriteByte('{')
	for _, d := range l.dimensions() {
		value := "null"
		if v := r.Value(d); v != "" {
			quoted, err := marshal(v)
			if err != nil {
				return nil, err
			}
			value = string(quoted)
		}
		fmt.Fprintf(&b, "%q:%s,", string(d), value)
	}
	figures, err := marshal(toStatsJSON(r))
	if err != nil {
		return nil, err
	}
	b.Write(figures[1 : len(figures)-1])
	if l.pricing != nil {
		cost, err := marshal(l.cost(r))
		if err != nil {
			return nil, err
		}
		b.WriteByte(',')
		b.Write(cost[1 : len(cost)-1])
	}
	b.WriteByte('}')
	return []byte(b.String()), nil
}

// cost returns the cost of a row.
func (l *statsList) cost(r *sessions.Row) costJSON {
	c := l.pricing.of(r.Models)
	j := costJSON{Unpriced: c.unpriced}
	if c.priced {
		j.Cost = new(math.Round(c.usd*1e9) / 1e9) // without the noise of binary fractions
	}
	return j
}

// csv prints the rows with a heading. What is unknown is empty.
func (l *statsList) csv(w io.Writer) error {
	out := csv.NewWriter(w)
	heads := texts(l.dimensions())
	heads = append(heads, "sessions", "events", "tokens_input", "tokens_output", "cache_read", "cache_write", "reasoning", "total",
		"calls", "failures", "error_rate", "latency_p50_ms", "latency_p95_ms", "errors", "prompts", "active_seconds")
	if l.pricing != nil {
		heads = append(heads, "cost_usd", "unpriced")
	}
	if err := out.Write(heads); err != nil {
		return err
	}
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	float := func(f *float64) string {
		if f == nil {
			return ""
		}
		return strconv.FormatFloat(*f, 'f', -1, 64)
	}
	optional := func(n *int64) string {
		if n == nil {
			return ""
		}
		return number(*n)
	}
	for i := range l.rows {
		r := &l.rows[i]
		var cells []string
		for _, d := range l.dimensions() {
			cells = append(cells, terminal.Printable(r.Value(d)))
		}
		j := toStatsJSON(r)
		cells = append(cells, number(j.Sessions), number(j.Events), number(j.Input), number(j.Output), number(j.CacheRead), number(j.CacheWrite),
			number(j.Reasoning), number(j.Total), number(j.Calls), number(j.Failures), float(j.ErrorRate), optional(j.P50), optional(j.P95),
			number(j.Errors), number(j.Prompts), float(&j.Active))
		if l.pricing != nil {
			c := l.cost(r)
			cells = append(cells, float(c.Cost), number(c.Unpriced))
		}
		if err := out.Write(cells); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// table returns the rows for people, with their sum.
func (l *statsList) table() *terminal.Table {
	t := &terminal.Table{}
	for _, d := range l.dimensions() {
		t.Columns = append(t.Columns, terminal.Column{Head: strings.ToUpper(string(d)), Text: d != sessions.ByDay})
	}
	for _, c := range []terminal.Column{
		{Head: "SESSIONS", Priority: 7},
		{Head: "EVENTS", Priority: 4},
		{Head: "CALLS", Priority: 9},
		{Head: "FAILED", Priority: 8},
		{Head: "P50", Priority: 2},
		{Head: "P95", Priority: 5},
		{Head: "ACTIVE", Priority: 6},
		{Head: "INPUT", Priority: 10},
		{Head: "CACHE READ", Priority: 3},
		{Head: "CACHE WRITE", Priority: 2},
		{Head: "OUTPUT", Priority: 10},
		{Head: "REASONING", Priority: 1},
		{Head: "TOTAL"},
	} {
		c.Right = true
		t.Columns = append(t.Columns, c)
	}
	if l.pricing != nil {
		t.Columns = append(t.Columns, terminal.Column{Head: "COST", Right: true})
	}
	var sum sessions.Row
	var total cost
	for i := range l.rows {
		r := &l.rows[i]
		sum.Merge(&r.Sums)
		t.Rows = append(t.Rows, l.cells(r, &total))
	}
	if len(l.rows) > 1 && len(l.by) > 0 {
		t.Foot = l.foot(&sum, total)
	}
	return t
}

// cells returns the cells of a row, and adds its cost to total.
func (l *statsList) cells(r *sessions.Row, total *cost) []string {
	var cells []string
	for _, d := range l.dimensions() {
		cells = append(cells, terminal.OrDash(r.Value(d)))
	}
	cells = append(cells, terminal.Thousands(r.Sessions))
	cells = append(cells, figures(r)...)
	if l.pricing != nil {
		c := l.pricing.of(r.Models)
		total.add(c)
		cells = append(cells, c.text())
	}
	return cells
}

// figures returns the figures of a row from its events on.
func figures(r *sessions.Row) []string {
	p50, p95 := r.Latency()
	u := &r.Usage
	return []string{
		terminal.Thousands(r.Events), terminal.Thousands(r.Calls), terminal.Percent(r.Failures, r.Calls), terminal.Millis(p50), terminal.Millis(p95), terminal.Rough(r.Active().Round(time.Second)),
		terminal.Thousands(u.Input), terminal.Thousands(u.CacheRead), terminal.Thousands(u.CacheWrite), terminal.Thousands(u.Output), terminal.Thousands(u.Reasoning), terminal.Thousands(u.Total()),
	}
}

// foot returns the sum of all rows. A session can be in several rows, so their number has no sum.
func (l *statsList) foot(sum *sessions.Row, total cost) []string {
	cells := make([]string, len(l.dimensions()), len(l.dimensions())+14)
	cells[0] = "all"
	cells = append(cells, "")
	cells = append(cells, figures(sum)...)
	if l.pricing != nil {
		cells = append(cells, total.text())
	}
	return cells
}

// marshal returns a value in JSON.
func marshal(v any) ([]byte, error) { return json.Marshal(v, json.Deterministic(true)) }
