package sessions

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"time"

	"tributary/envelopes"
	"tributary/pipeline/spill"
)

// StatsQuery selects what [Stats] sums up.
type StatsQuery struct {
	By           []Dimension    // none for a single row
	Zone         *time.Location // of periods; nil is UTC
	Since, Until time.Time      // only events at or after Since and before Until count; zero for no limit
	Project      string         // only sessions of this project, given by its root or the end of its path; empty for all
	Models       bool           // rows have Row.Models

	// Only events with these values count, empty for all: the rows are those that a division by these dimensions
	// would have for them. A repository is given by its name or the end of it.

	Repository, Branch, Host, User, Model string
}

// Dimensions returns the dimensions of the rows: By, with the source in front if a session is named without it,
// because two sources may have sessions with the same id.
func (q *StatsQuery) Dimensions() []Dimension {
	if slices.Contains(q.By, BySession) && !slices.Contains(q.By, BySource) {
		return slices.Concat([]Dimension{BySource}, q.By)
	}
	return q.By
}

// Row is a row of statistics.
type Row struct {
	Values   []string // in the order of [StatsQuery.Dimensions]; empty for unknown, and for everything but tool calls
	Sessions int64    // sessions with an event in this row
	Sums
	Models map[string]*Billed // by model, empty if unknown; see StatsQuery.Models
}

// Copies are tokens that no row counts, because they are copies of API calls in other sessions.
type Copies struct {
	Calls int64 // one for each session with a copy
	Usage envelopes.Usage
}

// rowItem is what a part of a session adds to a row.
type rowItem struct {
	Values   []string           `json:"v,omitzero"`
	Sessions int64              `json:"n,omitzero"`
	Sums     Sums               `json:"u,omitzero"`
	Models   map[string]*Billed `json:"m,omitempty"`
}

// keyItem is what a session used of one API call, in one row.
type keyItem struct {
	Session string  `json:"s"` // independent of the dimensions
	First   int64   `json:"t"` // time of its first event
	Row     rowItem `json:"r"`
	Left    bool    `json:"x,omitzero"` // excluded by the filters
}

// Stats sums up the steps of all sessions by the dimensions of q and passes the rows to visit, in no order. The steps
// of a session must be in order.
//
// An API call whose tokens are in several sessions counts in one of them: in the session with most of its tokens, or
// the earliest of these (envelopes/README.md, Sums over a fleet). All sums except Sessions add up: their totals are
// the same for any dimensions.
//
// The memory is bounded for any number of sessions, calls and rows. Within one session, the parts of its events
// beyond maxParts count as [OtherName], and API calls beyond maxKeys count even if other sessions have them, too.
func Stats(steps iter.Seq2[Step, error], q StatsQuery, m Memory, visit func(*Row) error) (Copies, error) {
	copies, err := StatsOfAll(steps, []StatsQuery{q}, m, func(_ int, r *Row) error { return visit(r) })
	return copies[0], err
}

// StatsOfAll is [Stats] for several queries at once, which share the memory. visit gets the rows query by query, with
// the index of the query.
func StatsOfAll(steps iter.Seq2[Step, error], queries []StatsQuery, m Memory, visit func(query int, r *Row) error) ([]Copies, error) {
	copies := make([]Copies, len(queries))
	m.Bytes = m.bytes() / max(1, len(queries))
	all := make([]*stats, len(queries))
	for i, q := range queries {
		all[i] = newStats(q, m, func(r *Row) error { return visit(i, r) })
		defer all[i].close()
	}
	for step, err := range steps {
		for _, s := range all {
			if err == nil {
				err = s.folds.Put(sessionKey(step.Source, step.Session), &step)
			}
		}
		if err != nil {
			return copies, err
		}
	}
	for i, s := range all {
		err := s.finish()
		copies[i] = s.copies
		if err != nil {
			return copies, err
		}
	}
	return copies, nil
}

// stats is the state of one query of [Stats].
type stats struct {
	query      StatsQuery
	dimensions []Dimension
	parts      []Dimension // event dimensions that folds divide by
	filters    []filter
	folds      spill.Grouper[*Fold, Step]
	rows       spill.Grouper[*Row, rowItem]
	keys       spill.Grouper[*keyUses, keyItem]
	copies     Copies
}

// filter selects events by the value of a dimension.
type filter struct {
	dimension Dimension
	wanted    string
}

// has reports whether the filter selects a value; the end of a repository's name selects it, too.
func (f *filter) has(value string) bool {
	return value == f.wanted || f.dimension == ByRepository && InRepository(value, f.wanted)
}

// newStats returns the state of a query that passes its rows to visit.
func newStats(q StatsQuery, m Memory, visit func(*Row) error) *stats {
	s := &stats{query: q, dimensions: q.Dimensions()}
	for _, f := range []filter{{ByRepository, q.Repository}, {ByBranch, q.Branch}, {ByHost, q.Host}, {ByUser, q.User}, {ByModel, q.Model}} {
		if f.wanted != "" {
			s.filters = append(s.filters, f)
		}
	}
	division := Division{
		Model: slices.Contains(q.By, ByModel) || q.Models || q.Model != "", Tool: slices.Contains(q.By, ByTool),
		Zone: q.Zone, Since: q.Since, Until: q.Until, Keyed: true,
	}
	for _, d := range q.By {
		if d.ofEvent() {
			division.By = append(division.By, d)
		}
	}
	for _, f := range s.filters {
		if f.dimension.ofEvent() && !slices.Contains(division.By, f.dimension) {
			division.By = append(division.By, f.dimension)
		}
	}
	s.parts = division.By
	s.folds = spill.Grouper[*Fold, Step]{
		Dir: m.Dir, Limit: m.bytes(),
		New:  func(string) *Fold { return NewFold(division) },
		Add:  func(f *Fold, step *Step) int { return f.Add(step) },
		Done: func(_ string, f *Fold) error { return s.session(f) },
	}
	s.rows = spill.Grouper[*Row, rowItem]{
		Dir: m.Dir, Limit: m.bytes(),
		New:  func(string) *Row { return &Row{} },
		Add:  addToRow,
		Done: func(_ string, r *Row) error { return visit(r) },
	}
	s.keys = spill.Grouper[*keyUses, keyItem]{
		Dir: m.Dir, Limit: m.bytes(),
		New:  func(string) *keyUses { return &keyUses{} },
		Add:  (*keyUses).add,
		Done: s.settle,
	}
	return s
}

// finish passes on the rows once all steps are added.
func (s *stats) finish() error {
	if err := s.folds.Finish(); err != nil {
		return err
	}
	if err := s.keys.Finish(); err != nil {
		return err
	}
	return s.rows.Finish()
}

// close removes the temporary files.
func (s *stats) close() {
	_ = s.folds.Close() // the work has ended, or its first error counts
	_ = s.rows.Close()
	_ = s.keys.Close()
}

// session adds a session: its sums to the rows, its tokens with a unique key to the keys.
func (s *stats) session(f *Fold) error {
	if !f.summary.InProject(s.query.Project) {
		return nil
	}
	rows := map[string]*rowItem{}
	for cell, sums := range f.countedCells() {
		row, selected := s.row(f, cell)
		if !selected {
			continue
		}
		key := row.key()
		if rows[key] == nil {
			row.Sessions = 1
			rows[key] = &row
		}
		rows[key].Sums.Merge(sums)
		s.addModel(rows[key], cell.Model, sums.Billed())
	}
	for key, row := range rows {
		if err := s.rows.Put(key, row); err != nil {
			return err
		}
	}
	for k, tokens := range f.keyedCells() {
		row, selected := s.row(f, k.Cell)
		row.Sums.Usage, row.Sums.Large = tokens.Usage, tokens.Large
		s.addModel(&row, k.Cell.Model, *tokens)
		item := keyItem{f.summary.Session, f.summary.FirstSeen.UnixNano(), row, !selected}
		if err := s.keys.Put(sessionKey(f.summary.Source, k.Key), &item); err != nil {
			return err
		}
	}
	return nil
}

// row returns an empty row for a cell of a session, and whether the filters select it.
func (s *stats) row(f *Fold, c Cell) (row rowItem, selected bool) {
	parts := strings.Split(c.Part, separator)
	value := func(d Dimension) string {
		switch d {
		case ByModel:
			return c.Model
		case ByTool:
			return c.Tool
		case BySource:
			return string(f.summary.Source)
		case ByProject:
			return f.summary.ProjectName()
		case BySession:
			return f.summary.Session
		default:
			return parts[slices.Index(s.parts, d)]
		}
	}
	row.Values = make([]string, len(s.dimensions))
	for i, d := range s.dimensions {
		row.Values[i] = value(d)
	}
	unwanted := func(f filter) bool { return !f.has(value(f.dimension)) }
	return row, !slices.ContainsFunc(s.filters, unwanted)
}

// addModel adds the tokens of a model, if the query asks for them.
func (s *stats) addModel(row *rowItem, model string, t Billed) {
	if s.query.Models && t != (Billed{}) {
		row.Models = AddTokens(row.Models, model, &t)
	}
}

// AddTokens adds the tokens of a model to models, and returns models, a new map if it was nil.
func AddTokens(models map[string]*Billed, model string, t *Billed) map[string]*Billed {
	if models == nil {
		models = map[string]*Billed{}
	}
	if models[model] == nil {
		models[model] = &Billed{}
	}
	models[model].Merge(t)
	return models
}

// key returns the key of the row.
func (r *rowItem) key() string { return strings.Join(r.Values, separator) }

// addToRow adds an item to its row.
func addToRow(r *Row, i *rowItem) (grown int) {
	if r.Sessions == 0 && r.Events == 0 && r.Usage.Total() == 0 { // the first item
		grown = 600
		for _, value := range i.Values {
			grown += 16 + len(value)
		}
	}
	before := len(r.Latencies) + len(r.Measured) + 24*len(r.Models)
	r.Values = i.Values
	r.Sessions += i.Sessions
	r.Merge(&i.Sums)
	for model, t := range i.Models {
		r.Models = AddTokens(r.Models, model, t)
	}
	return grown + 16*(len(r.Latencies)+len(r.Measured)+24*len(r.Models)-before)
}

// keyUses are the uses of one API call.
type keyUses struct{ items []keyItem }

func (k *keyUses) add(i *keyItem) (grown int) {
	k.items = append(k.items, *i)
	return 600 + len(i.Session)
}

// settle adds the tokens of an API call to the rows, from the session with most of them.
func (s *stats) settle(_ string, k *keyUses) error {
	best := k.items[0]
	if len(k.items) > 1 {
		best = k.best()
	}
	copies := map[string]bool{}
	for i := range k.items {
		item := &k.items[i]
		if item.Left {
			continue
		}
		if item.Session != best.Session {
			s.copies.Usage.Add(&item.Row.Sums.Usage)
			copies[item.Session] = true
			continue
		}
		if err := s.rows.Put(item.Row.key(), &item.Row); err != nil {
			return err
		}
	}
	s.copies.Calls += int64(len(copies))
	return nil
}

// best returns an item of the session whose tokens count: the one with most of them, of equal ones that whose vendor
// stated the highest cost.
func (k *keyUses) best() keyItem {
	used := map[string]envelopes.Usage{}
	for i := range k.items {
		u := used[k.items[i].Session]
		u.Add(&k.items[i].Row.Sums.Usage)
		used[k.items[i].Session] = u
	}
	return slices.MinFunc(k.items, func(a, b keyItem) int {
		ua, ub := used[a.Session], used[b.Session]
		return cmp.Or(cmp.Compare(ub.Total(), ua.Total()), cmp.Compare(ub.CostUSD, ua.CostUSD), cmp.Compare(a.First, b.First), cmp.Compare(a.Session, b.Session))
	})
}
