// Package figures computes the figures of sessions for commands and pages: statistics by any dimensions, and the cost
// of tokens.
//
// Start with [New], which takes a [Query], and with [List.Read], which reads the events. A [Row] has the figures
// under the names of tributary stats -o json. [Pricing] computes the cost of tokens and names what has no price.
//
// The invariant: every figure is computed here, so that it is the same wherever it is shown.
package figures

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"tributary/envelopes"
	"tributary/pipeline/events"
	"tributary/pipeline/sessions"
	"tributary/pipeline/sessions/summaries"
)

// Query selects the events and the figures of a list.
type Query struct {
	Source  envelopes.Source // only events of this agent; empty for all
	Session string           // only events of this session: its whole id; empty for all
	Stats   sessions.StatsQuery
	Before  *sessions.StatsQuery // of the period to compare with, see [Before]; nil for none
	Sort    string               // a column, with :asc or :desc; empty for periods, then tokens
	Limit   int                  // rows; 0 for all

	// Group returns the values of the row to which a row is added, false to leave the row out. Nil keeps all
	// rows. If several lists are read at once, the earlier ones are finished before it is called. A row of several
	// rows has no sessions, because a session can be in each.
	Group func(values []string) ([]string, bool)
}

// Before returns the query of the previous period, which is as long as the one of q and ends where that begins. A
// period without an end ends now. The result is false if q has no beginning, or none before its end.
func Before(q sessions.StatsQuery, now time.Time) (sessions.StatsQuery, bool) {
	until := q.Until
	if until.IsZero() {
		until = now
	}
	if q.Since.IsZero() || !q.Since.Before(until) {
		return q, false
	}
	zone := cmp.Or(q.Zone, time.UTC)
	q.Until = q.Since
	days := int(math.Round(until.Sub(q.Since).Hours() / 24))
	if q.Since.In(zone).AddDate(0, 0, days).Equal(until) { // a day of a clock change does not have 24 hours
		q.Since = q.Since.In(zone).AddDate(0, 0, -days)
	} else {
		q.Since = q.Since.Add(-until.Sub(q.Since))
	}
	return q, true
}

// List is rows of statistics with their costs.
type List struct {
	Dimensions []sessions.Dimension // columns that name a row
	Rows       []Row                // in their order
	Left       int                  // rows beyond the limit
	Total      Row                  // of all rows; it has Sessions only without dimensions, because a session can be in several rows
	Copies     sessions.Copies      // copied calls, which no row counts

	query   Query
	pricing *Pricing
	top     Top[Row]
	before  map[string]*Row // rows of the previous period by their values
	grouped map[string]*sessions.Row
}

// Row is a row of statistics with its cost.
type Row struct {
	sessions.Row
	Cost   Cost
	Before *Row // the row of the previous period; nil unless compared
}

// New returns an empty list. The error is [ErrColumn] if the query sorts by an unknown column.
func New(q Query, pricing *Pricing) (*List, error) {
	q.Stats.Models = true // costs need them
	l := &List{Dimensions: q.Stats.Dimensions(), query: q, pricing: pricing}
	if q.Before != nil {
		l.query.Before = new(*q.Before)
		l.query.Before.Models = true
	}
	order, ok := l.order()
	if !ok {
		return l, ErrColumn
	}
	l.top = Top[Row]{Limit: q.Limit, Order: order}
	return l, nil
}

// Compared reports whether the list compares two periods.
func (l *List) Compared() bool { return l.query.Before != nil }

// Read reads the events of the query and finishes the list: see [Read].
func (l *List) Read(ctx context.Context, view *summaries.View) error {
	return Read(ctx, view, sessions.Memory{}, l)
}

// Read reads events once and finishes several lists, at least one, which must select the same source and session. If
// a list has a period or a project, it reads from the first event of the sessions in question. m bounds the memory of
// all lists together, without their rows.
func Read(ctx context.Context, view *summaries.View, m sessions.Memory, lists ...*List) error {
	var queries []sessions.StatsQuery
	var add []func(*sessions.Row)
	var of []int // the list of each query
	for i, l := range lists {
		if l.Compared() {
			queries, add, of = append(queries, *l.query.Before), append(add, l.AddBefore), append(of, i)
		}
		queries, add, of = append(queries, l.query.Stats), append(add, l.Add), append(of, i)
	}
	var wanted func(*summaries.Record) bool
	if !slices.ContainsFunc(queries, needsAll) {
		wanted = func(r *summaries.Record) bool {
			return slices.ContainsFunc(queries, func(q sessions.StatsQuery) bool {
				return (q.Since.IsZero() || !r.LastSeen.Before(q.Since)) && (q.Until.IsZero() || r.FirstSeen.Before(q.Until)) && r.InProject(q.Project)
			})
		}
	}
	steps, err := view.Steps(ctx, events.Query{Source: lists[0].query.Source, Session: lists[0].query.Session}, wanted)
	if err != nil {
		return err
	}
	finished := 0
	// The rows of a period follow those of the previous period, and the rows of a list those of the earlier lists.
	copies, err := sessions.StatsOfAll(steps, queries, m, func(i int, r *sessions.Row) error {
		for ; finished < of[i]; finished++ {
			lists[finished].Finish()
		}
		add[i](r)
		return nil
	})
	if err != nil {
		return err
	}
	for ; finished < len(lists); finished++ {
		lists[finished].Finish()
	}
	for i := range queries {
		lists[of[i]].Copies = copies[i] // of the period itself, the last query of the list
	}
	return nil
}

// needsAll reports whether a query needs all sessions, because the records of sessions cannot limit it.
func needsAll(q sessions.StatsQuery) bool {
	return q.Since.IsZero() && q.Until.IsZero() && q.Project == ""
}

// row returns a row and its cost.
func (l *List) row(r *sessions.Row) *Row {
	return &Row{Row: *r, Cost: l.pricing.Cost(r.Models)}
}

// AddBefore adds a row of the previous period. Call it before the first [List.Add].
func (l *List) AddBefore(r *sessions.Row) {
	if l.before == nil {
		l.before = map[string]*Row{}
	}
	l.before[rowKey(r.Values)] = l.row(r)
}

// Add adds a row.
func (l *List) Add(r *sessions.Row) {
	if l.query.Group != nil {
		l.group(r)
		return
	}
	row := l.row(r)
	l.Total.add(r)
	if key := rowKey(r.Values); l.Compared() {
		if row.Before = l.before[key]; row.Before == nil {
			row.Before = l.row(&sessions.Row{Values: r.Values})
		} else {
			l.Total.beforeTotal().add(&row.Before.Row)
			delete(l.before, key)
		}
	}
	l.top.Add(row)
}

// group adds a row to the row that Group names.
func (l *List) group(r *sessions.Row) {
	values, ok := l.query.Group(r.Values)
	if !ok {
		return
	}
	key := rowKey(values)
	sum := l.grouped[key]
	if sum == nil {
		if l.grouped == nil {
			l.grouped = map[string]*sessions.Row{}
		}
		sum = &sessions.Row{Values: values, Sessions: r.Sessions}
		l.grouped[key] = sum
	} else {
		sum.Sessions = 0
	}
	total := Row{Row: *sum}
	total.add(r)
	*sum = total.Row
}

// Finish orders the rows. Call it after all rows are added.
func (l *List) Finish() {
	for _, r := range l.grouped {
		l.Total.add(r)
		l.top.Add(l.row(r))
	}
	for _, before := range l.before { // rows that only the previous period has
		l.Total.beforeTotal().add(&before.Row)
		row := l.row(&sessions.Row{Values: before.Values})
		row.Before = before
		l.top.Add(row)
	}
	l.Rows, l.Left = l.top.Sorted(), l.top.Left
	if l.query.Sort == "" {
		slices.SortStableFunc(l.Rows, func(a, b Row) int {
			for i, d := range l.Dimensions {
				if c := cmp.Compare(a.Values[i], b.Values[i]); c != 0 && d.IsPeriod() {
					return c
				}
			}
			return 0
		})
	}
	if l.Compared() {
		l.Total.beforeTotal().Cost = l.pricing.Cost(l.Total.Before.Models)
	}
	l.Total.Cost = l.pricing.Cost(l.Total.Models)
	if len(l.Dimensions) == 0 && len(l.Rows) == 1 {
		l.Total.Sessions = l.Rows[0].Sessions
		if l.Compared() {
			l.Total.Before.Sessions = l.Rows[0].Before.Sessions
		}
	}
}

// Unpriced returns the models of all rows that lack a price, the model with the most tokens first.
func (l *List) Unpriced() []Unpriced { return l.pricing.Unpriced(l.Total.Models) }

// UnpricedBefore is [List.Unpriced] of the previous period.
func (l *List) UnpricedBefore() []Unpriced {
	if l.Total.Before == nil {
		return nil
	}
	return l.pricing.Unpriced(l.Total.Before.Models)
}

// beforeTotal returns the sum of the rows of the previous period.
func (r *Row) beforeTotal() *Row {
	if r.Before == nil {
		r.Before = &Row{}
	}
	return r.Before
}

// add adds a row to a sum.
func (r *Row) add(o *sessions.Row) {
	r.Merge(&o.Sums)
	for model, used := range o.Models {
		r.Models = sessions.AddTokens(r.Models, model, used)
	}
}

// rowKey returns a key of the values of a row.
func rowKey(values []string) string { return strings.Join(values, "\x00") }
