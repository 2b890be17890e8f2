package index

import (
	"cmp"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
	"unique"

	"tributary/envelopes"
	"tributary/pipeline/events"
	"tributary/pipeline/sessions"
)

// Filter selects sessions. An empty value selects all.
type Filter struct {
	From, To time.Time // of the last event, without To itself
	Source   envelopes.Source
	Project  string                  // root, the end of its path, or hash
	Model    string                  // a model that the session used, or a part of its name
	State    string                  // see [sessions.Activity.Is]
	Titled   func(title string) bool // selects titles; nil for all

	Repository         string // its name, or the end of it
	Branch, Host, User string // exactly
}

// Query selects and orders sessions.
type Query struct {
	Filter

	Sort    string // an order of [Orders]; empty for the first one
	Reverse bool   // numbers and times ascending, texts descending
	Skip    int    // sessions to skip
	Limit   int    // sessions to return; 0 for all
}

// List is an answer to a [Query].
type List struct {
	Status

	Sessions []Session // pinned ones first
	Matches  int       // how many sessions the filter selects
}

// order is an order of sessions, by number or by text; the other one is nil.
type order struct {
	name   string
	number func(*row) int64  // the largest first
	text   func(*row) string // alphabetical; sessions without a text come last
}

// orders are all orders; the first is the default.
var orders = []order{
	{"last", func(r *row) int64 { return r.last }, nil},
	{"first", func(r *row) int64 { return r.first }, nil},
	{"tokens", func(r *row) int64 { return r.tokens }, nil},
	{"cost", (*row).amount, nil},
	{"active", func(r *row) int64 { return r.active }, nil},
	{"calls", func(r *row) int64 { return int64(r.calls) }, nil},
	{"failures", func(r *row) int64 { return int64(r.failures) }, nil},
	{"errors", func(r *row) int64 { return int64(r.errors) }, nil},
	{"events", func(r *row) int64 { return int64(r.events) }, nil},
	{"prompts", func(r *row) int64 { return int64(r.prompts) }, nil},
	{"title", nil, (*row).shownTitle},
	{"state", nil, nil}, // depends on the time: see stateOrder
	{"project", nil, func(r *row) string { return r.project.Value().name }},
	{"repo", nil, func(r *row) string { return r.origin.Value().repository }},
	{"branch", nil, func(r *row) string { return r.branch }},
	{"host", nil, func(r *row) string { return r.origin.Value().host }},
	{"user", nil, func(r *row) string { return r.origin.Value().user }},
	{"source", nil, func(r *row) string { return string(r.id.Source) }},
	{"model", nil, func(r *row) string { return r.models.Value().main }},
}

// amount returns the cost of a session in billionths of a dollar, 0 if nothing has a price.
func (r *row) amount() int64 {
	if !r.priced {
		return 0
	}
	return int64(math.Round(r.usd * 1e9))
}

// Orders lists the names of the orders.
func Orders() []string {
	names := make([]string, len(orders))
	for i := range orders {
		names[i] = orders[i].name
	}
	return names
}

// stateOrder returns the order of states at the time now: sessions that need a person come first.
func stateOrder(now time.Time) func(*row) int64 {
	phases := []sessions.Phase{
		sessions.PhaseNone, sessions.PhaseEnded, sessions.PhaseEndedInTool, sessions.PhaseWorking, sessions.PhaseInTool,
		sessions.PhasePrompt, sessions.PhaseFailed, sessions.PhasePermission,
	}
	return func(r *row) int64 { return int64(slices.Index(phases, r.activity(now).Phase)) }
}

// matcher returns the filter as a function for many rows. Only one goroutine may use it.
func (f *Filter) matcher(now time.Time) func(*row) bool {
	from, to := nanoseconds(f.From), nanoseconds(f.To)
	ofProject := memo(func(p project) bool {
		return p.hash == f.Project || p.rooted && endsIn(p.name, f.Project)
	})
	ofOrigin := memo(func(o origin) bool {
		is := func(wanted, value string) bool { return wanted == "" || wanted == value }
		return (f.Repository == "" || endsIn(o.repository, f.Repository)) && is(f.Host, o.host) && is(f.User, o.user)
	})
	ofModels := memo(func(m models) bool { return strings.Contains(m.all, f.Model) })
	anywhere := f.Repository == "" && f.Host == "" && f.User == ""
	return func(r *row) bool {
		if f.Source != "" && r.id.Source != f.Source || f.Branch != "" && r.branch != f.Branch || from != 0 && r.last < from || to != 0 && r.last >= to {
			return false
		}
		if f.Project != "" && !ofProject(r.project) || !anywhere && !ofOrigin(r.origin) || f.Model != "" && !ofModels(r.models) {
			return false
		}
		if f.State != "" {
			if a := r.activity(now); !a.Is(f.State) {
				return false
			}
		}
		return f.Titled == nil || f.Titled(r.shownTitle())
	}
}

// TitleContains returns a value of [Filter.Titled] for a part of a title, without regard to case; nil for an empty part.
func TitleContains(part string) func(title string) bool {
	if part == "" {
		return nil
	}
	part = strings.ToLower(part)
	return func(title string) bool { return strings.Contains(strings.ToLower(title), part) }
}

// endsIn reports whether a path consists of names, or ends in them.
func endsIn(path, names string) bool {
	return path == names || strings.HasSuffix(path, "/"+strings.TrimPrefix(names, "/"))
}

// memo returns a function that calls is once for each distinct value, because many rows share a value.
func memo[T comparable](is func(T) bool) func(unique.Handle[T]) bool {
	known := map[unique.Handle[T]]bool{}
	return func(h unique.Handle[T]) bool {
		answer, ok := known[h]
		if !ok {
			answer = is(h.Value())
			known[h] = answer
		}
		return answer
	}
}

// entry is a row and the values that order it.
type entry struct {
	row    *row
	pinned bool
	number int64
	text   string
}

// compareText compares two texts without regard to case; the empty text is the last.
func compareText(a, b string) int {
	if a == "" || b == "" {
		return cmp.Compare(len(b), len(a))
	}
	for i := 0; i < len(a) && i < len(b); i++ {
		x, y := lower(a[i]), lower(b[i])
		if x >= utf8.RuneSelf && y >= utf8.RuneSelf {
			return cmp.Compare(strings.ToLower(a[i:]), strings.ToLower(b[i:]))
		}
		if x != y {
			return cmp.Compare(x, y)
		}
	}
	return cmp.Compare(len(a), len(b))
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// compare returns the order of entries for a query: pinned ones first, then the value, then source and id.
func (q *Query) compare(o *order) func(a, b entry) int {
	return func(a, b entry) int {
		if a.pinned != b.pinned {
			if a.pinned {
				return -1
			}
			return 1
		}
		c := cmp.Compare(b.number, a.number)
		if o.text != nil {
			c = compareText(a.text, b.text)
		}
		if q.Reverse {
			c = -c
		}
		return cmp.Or(c, cmp.Compare(a.row.id.Source, b.row.id.Source), cmp.Compare(a.row.id.Session, b.row.id.Session))
	}
}

// findOrder returns the order with this name, the default if the name is empty.
func findOrder(name string) (order, bool) {
	for _, o := range orders {
		if o.name == name || name == "" {
			return o, true
		}
	}
	return order{}, false
}

// IsOrder reports whether an order has this name.
func IsOrder(name string) bool {
	_, is := findOrder(name)
	return is
}

// IsText reports whether an order is alphabetical, and so ascending unless reversed.
func IsText(name string) bool {
	o, is := findOrder(name)
	return is && o.text != nil
}

// List returns the sessions that a query selects at the time now. An unknown order stands for the default.
func (x *Index) List(q Query, now time.Time) (*List, error) {
	m, err := x.ask()
	if err != nil {
		return nil, err
	}
	o, is := findOrder(q.Sort)
	if !is {
		o = orders[0]
	}
	if o.name == "state" {
		o.number = stateOrder(now)
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	l := &List{Status: m.status()}
	if m.table == nil {
		return l, nil
	}
	wanted, compare := q.matcher(now), q.compare(&o)
	p := page{skip: q.Skip, limit: q.Limit, compare: compare}
	for i := range m.table.rows {
		r := &m.table.rows[i]
		if !wanted(r) {
			continue
		}
		l.Matches++
		e := entry{row: r, pinned: r.pinned()}
		if o.text != nil {
			e.text = o.text(r)
		} else {
			e.number = o.number(r)
		}
		p.add(e)
	}
	for _, e := range p.entries() {
		l.Sessions = append(l.Sessions, e.row.session(now))
	}
	return l, nil
}

// page collects entries and returns a range of them in order.
type page struct {
	skip, limit int // entries before the page, and on it; limit 0 for all that follow
	compare     func(a, b entry) int
	list        []entry
	full        bool // list begins with skip+limit entries in order: greater ones are not on the page
}

// maxSorted is the last place up to which a page drops greater entries while it collects. A later page has all entries
// in memory for a moment.
const maxSorted = 1024

func (p *page) add(e entry) {
	end := p.skip + p.limit
	if p.limit == 0 || end > maxSorted {
		p.list = append(p.list, e)
		return
	}
	if p.full && p.compare(e, p.list[end-1]) > 0 {
		return
	}
	if p.list = append(p.list, e); len(p.list) >= 2*end+64 {
		slices.SortFunc(p.list, p.compare)
		p.list, p.full = p.list[:end], true
	}
}

// entries returns the entries of the page in order.
func (p *page) entries() []entry {
	list := p.list
	if p.skip >= len(list) {
		return nil
	}
	if p.skip > 0 {
		least(list, p.skip, p.compare)
		list = list[p.skip:]
	}
	if p.limit > 0 && p.limit < len(list) {
		least(list, p.limit, p.compare)
		list = list[:p.limit]
	}
	slices.SortFunc(list, p.compare)
	return list
}

// least moves the n least entries to the beginning of a list, in any order. It takes linear time on average.
func least(list []entry, n int, compare func(a, b entry) int) {
	for len(list) > 1 && 0 < n && n < len(list) {
		pivot := list[rand.IntN(len(list))]
		i := 0
		for j := range list { // lesser entries first; no two entries are equal
			if compare(list[j], pivot) < 0 {
				list[i], list[j] = list[j], list[i]
				i++
			}
		}
		switch {
		case n <= i:
			list = list[:i]
		case i == 0:
			at := slices.IndexFunc(list, func(e entry) bool { return e.row == pivot.row })
			list[0], list[at] = list[at], list[0]
			list, n = list[1:], n-1
		default:
			list, n = list[i:], n-i
		}
	}
}

// Key returns a short name of a session for addresses. Two sessions of a list have the same key in one of a billion
// lists.
func Key(id events.SessionID) string {
	h := fnv.New64a()
	h.Write([]byte(id.Source))
	h.Write([]byte{0})
	h.Write([]byte(id.Session))
	return strconv.FormatUint(h.Sum64(), 36)
}

// Find returns the sessions in the index that have one of the keys.
func (x *Index) Find(keys []string) ([]events.SessionID, error) {
	m, err := x.ask()
	if err != nil {
		return nil, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.table == nil {
		return nil, nil
	}
	wanted := map[string]bool{}
	for _, key := range keys {
		wanted[key] = true
	}
	var found []events.SessionID
	for i := range m.table.rows {
		if id := m.table.rows[i].id; wanted[Key(id)] {
			found = append(found, id)
		}
	}
	return found, nil
}

// Changed returns those of ids that are in the index, at the time now, and how many other sessions of the filter have
// changed after the change since.
func (x *Index) Changed(f Filter, ids []events.SessionID, since uint64, now time.Time) (shown []Session, others int, status Status, err error) {
	m, err := x.ask()
	if err != nil {
		return nil, 0, Status{}, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	status = m.status()
	if m.table == nil {
		return nil, 0, status, nil
	}
	seen := map[events.SessionID]bool{}
	for _, id := range ids {
		if r := m.table.find(id); r != nil {
			shown = append(shown, r.session(now))
		}
		seen[id] = true
	}
	if status.Change == since {
		return shown, 0, status, nil
	}
	wanted := f.matcher(now)
	for i := range m.table.rows {
		if r := &m.table.rows[i]; r.change > since && !seen[r.id] && wanted(r) {
			others++
		}
	}
	return shown, others, status, nil
}
