package figures

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/pipeline/sessions"
)

// Figure is a column of a row.
type Figure struct {
	Name  string // in JSON and CSV
	value func(*Row) any
}

// Of returns the value of a row: an int64, a float64, or nil if unknown.
func (f Figure) Of(r *Row) any { return f.value(r) }

// Figures are all figures of a row, in the order of columns.
var Figures = []Figure{
	{"sessions", func(r *Row) any { return r.Sessions }},
	{"events", func(r *Row) any { return r.Events }},
	{"input", func(r *Row) any { return r.Usage.Input }},
	{"cache_read", func(r *Row) any { return r.Usage.CacheRead }},
	{"cache_write", func(r *Row) any { return r.Usage.CacheWrite }},
	{"output", func(r *Row) any { return r.Usage.Output }},
	{"reasoning", func(r *Row) any { return r.Usage.Reasoning }},
	{"total", func(r *Row) any { return r.Usage.Total() }},
	{"cache_hit_rate", func(r *Row) any { return hitRate(&r.Usage) }}, // share of the tokens of prompts that came from the cache
	{"calls", func(r *Row) any { return r.Calls }},
	{"failures", func(r *Row) any { return r.Failures }},
	{"error_rate", func(r *Row) any { return known(r.Calls > 0, float64(r.Failures)/float64(r.Calls)) }}, // failures per call
	{"latency_p50_ms", func(r *Row) any { p50, _ := r.Latencies.Percentiles(); return knownAt(p50) }},
	{"latency_p95_ms", func(r *Row) any { _, p95 := r.Latencies.Percentiles(); return knownAt(p95) }},
	{"measured_p50_ms", func(r *Row) any { p50, _ := r.Measured.Percentiles(); return knownAt(p50) }},
	{"measured_p95_ms", func(r *Row) any { _, p95 := r.Measured.Percentiles(); return knownAt(p95) }},
	{"errors", func(r *Row) any { return r.Errors }},
	{"prompts", func(r *Row) any { return r.Prompts }},
	{"active_seconds", func(r *Row) any { return r.Active().Seconds() }},
	{"cost_usd", func(r *Row) any { return known(r.Cost.Priced, r.Cost.Rounded()) }},
	{"unpriced", func(r *Row) any { return r.Cost.Unpriced }}, // tokens without a price
	{"cache_write_1h", func(r *Row) any { return r.Usage.CacheWrite1h }},
	{"web_search_requests", func(r *Row) any { return r.Usage.WebSearchRequests }},
	{"vendor_cost_usd", func(r *Row) any { return r.Usage.CostUSD }}, // as vendors state it
}

// oldFigures are figures under their old names, which end with the next release.
var oldFigures = []Figure{
	{"tokens_input", func(r *Row) any { return r.Usage.Input }},
	{"tokens_output", func(r *Row) any { return r.Usage.Output }},
}

// FigureOf returns the figure with this name in [Figures]. It panics if there is none.
func FigureOf(name string) Figure {
	return Figures[slices.IndexFunc(Figures, func(f Figure) bool { return f.Name == name })]
}

// hitRate returns the share of the tokens of prompts that came from the cache, nil without prompts.
func hitRate(u *envelopes.Usage) any {
	prompts := u.Input + u.CacheRead + u.CacheWrite
	return known(prompts > 0, float64(u.CacheRead)/float64(prompts))
}

// known returns value, or nil unless is.
func known(is bool, value any) any {
	if !is {
		return nil
	}
	return value
}

// knownAt returns the value of a pointer, nil for nil.
func knownAt(n *int64) any {
	if n == nil {
		return nil
	}
	return *n
}

// Number returns a figure as a number; ok is false if it is unknown.
func Number(value any) (n float64, ok bool) {
	switch v := value.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

// Change returns the change of a figure since the previous period, in percent: ? if unknown, = for none, new if the
// figure was 0.
func (f Figure) Change(r *Row) string {
	now, hasNow := Number(f.value(r))
	before, hadBefore := Number(f.value(r.Before))
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

// figures returns the figures of a row; if periods are compared, also the previous ones and the differences.
func (l *List) figures() []Figure {
	if !l.Compared() {
		return Figures
	}
	list := slices.Clone(Figures)
	for _, f := range Figures {
		list = append(list, Figure{"previous_" + f.Name, func(r *Row) any { return f.value(r.Before) }})
	}
	for _, f := range Figures {
		list = append(list, Figure{"delta_" + f.Name, func(r *Row) any { return difference(f.value(r), f.value(r.Before)) }})
	}
	return list
}

// difference returns a-b, nil if one of them is unknown.
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

// Sortable lists the columns by which rows can be sorted.
func (l *List) Sortable() []string {
	var names []string
	for _, d := range l.Dimensions {
		names = append(names, string(d))
	}
	for _, f := range l.figures() {
		names = append(names, f.Name)
	}
	return names
}

// Columns lists the columns of a row in JSON and CSV.
func (l *List) Columns() []string {
	names := l.Sortable()
	for _, f := range oldFigures {
		names = append(names, f.Name)
	}
	return names
}

// Object is a row in JSON and CSV: dimensions, figures and cost.
type Object []Member

// Member is a member of an object. Its value is a string, an int64, a float64, or nil if unknown.
type Member struct {
	Name  string
	Value any
}

// MarshalJSONTo writes the members in order.
func (o Object) MarshalJSONTo(e *jsontext.Encoder) error {
	err := e.WriteToken(jsontext.BeginObject)
	for _, m := range o {
		if err == nil {
			err = e.WriteToken(jsontext.String(m.Name))
		}
		if err == nil {
			err = json.MarshalEncode(e, m.Value)
		}
	}
	return cmp.Or(err, e.WriteToken(jsontext.EndObject))
}

// Object returns a row of the list for JSON and CSV.
func (l *List) Object(r *Row) Object {
	var o Object
	for i, d := range l.Dimensions {
		o = append(o, Member{string(d), known(r.Values[i] != "", r.Values[i])})
	}
	for _, f := range slices.Concat(l.figures(), oldFigures) {
		o = append(o, Member{f.Name, f.value(r)})
	}
	return o
}

// moreTokens orders rows by tokens, calls, events, then names.
func moreTokens(a, b Row) int {
	return cmp.Or(cmp.Compare(b.Usage.Total(), a.Usage.Total()), cmp.Compare(b.Calls, a.Calls), cmp.Compare(b.Events, a.Events), slices.Compare(a.Values, b.Values))
}

// order returns the order that the query names, false if the list has no such column.
func (l *List) order() (func(a, b Row) int, bool) {
	if l.query.Sort == "" {
		return moreTokens, true
	}
	name, way := l.query.Sort, ""
	for _, w := range []string{"asc", "desc"} {
		if column, ok := strings.CutSuffix(name, ":"+w); ok {
			name, way = column, w
			break
		}
	}
	if i := slices.Index(l.Dimensions, sessions.Dimension(name)); i >= 0 {
		return func(a, b Row) int {
			c := cmp.Compare(a.Values[i], b.Values[i])
			if way == "desc" {
				c = -c
			}
			return cmp.Or(c, moreTokens(a, b))
		}, true
	}
	for _, f := range l.figures() {
		if f.Name != name {
			continue
		}
		return func(a, b Row) int {
			x, hasX := Number(f.value(&a))
			y, hasY := Number(f.value(&b))
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
		}, true
	}
	return nil, false
}
