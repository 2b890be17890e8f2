package index

import (
	"cmp"
	"reflect"
	"slices"
	"time"
	"unique"

	"tributary/cmd/internal/figures"
	"tributary/envelopes"
	"tributary/pipeline/events"
	"tributary/pipeline/sessions"
	"tributary/pipeline/sessions/titles"
)

// Session is an entry of the list.
type Session struct {
	events.SessionID

	Title       string // empty for none
	TitleSource sessions.TitleSource
	Pinned      bool
	Version     uint64 // of title and pin, for a change that names the version it replaces

	Project    string // see [sessions.Summary.ProjectName]
	IsRoot     bool   // the project is a path, no hash
	Repository string
	Branch     string
	Host       string
	User       string
	Model      string // the most used one

	sessions.Activity // at the time of the question

	First, Last                                      time.Time // zero if unknown
	Active                                           time.Duration
	Tokens, Events, Prompts, Calls, Failures, Errors int64
	Cost                                             figures.Cost

	Change uint64 // number of the last change of this entry
}

// row is a session in memory. Rows share equal values.
type row struct {
	id       events.SessionID
	title    string // from the events
	branch   string
	set      *set // title and pin that users set; nil for none
	project  unique.Handle[project]
	origin   unique.Handle[origin]
	models   unique.Handle[models]
	tool     unique.Handle[string]
	first    int64 // nanoseconds since 1970, 0 if unknown, like the two that follow
	last     int64
	since    int64 // the beginning of the phase
	active   int64 // milliseconds
	tokens   int64
	usd      float64
	unpriced int64
	position uint64 // of the last event
	change   uint64
	events   uint32
	prompts  uint32
	calls    uint32
	failures uint32
	errors   uint32
	searches uint32
	phase    uint8 // index in phases
	state    uint8 // index in states
	titled   uint8 // index in titleSources
	priced   bool
}

// project is where a session works; name is [sessions.Summary.ProjectName].
type project struct {
	name, hash string
	rooted     bool // name is the root
}

// origin is where the files of a session are, and who sent its records.
type origin struct{ repository, host, user string }

// models are the models that a session used, separated by line ends, and the most used one.
type models struct{ all, main string }

// set is the title and the pin that users and programs set.
type set struct {
	title   string
	source  sessions.TitleSource
	pinned  bool
	version uint64
}

var titleSources = []sessions.TitleSource{"", sessions.TitleOfVendor, sessions.TitleOfAgent, sessions.TitleOfPrompt}

// mapEntry is the approximate memory of a map entry for a row.
const mapEntry = 120

// bytes returns the approximate memory of a row, without shared values.
func (r *row) bytes() int64 {
	return int64(reflect.TypeFor[row]().Size()) + mapEntry + int64(len(r.id.Session)+len(r.title)+len(r.branch))
}

// rowOf returns the row of a record.
func rowOf(s *sessions.Summary, position uint64, pricing *figures.Pricing) row {
	used := make(map[string]*sessions.Billed, len(s.Models))
	for i := range s.Models {
		used[s.Models[i].Model] = &sessions.Billed{Usage: s.Models[i].Usage(), Large: s.Models[i].Large}
	}
	cost := pricing.Cost(used)
	number := func(n int64) uint32 { return uint32(max(0, min(n, 1<<32-1))) }
	r := row{
		id: events.SessionID{Source: sourceOf(s.Source), Session: s.Session}, title: s.Title, branch: s.Branch,
		project: unique.Make(project{s.ProjectName(), s.ProjectHash, s.Project != nil}),
		origin:  unique.Make(origin{s.Repository, s.Host, s.User}),
		models:  unique.Make(modelsOf(s.Models)),
		tool:    unique.Make(s.Tool),
		first:   nanoseconds(s.FirstSeen), last: nanoseconds(s.LastSeen), since: nanoseconds(s.Since),
		active: s.ActiveMS, tokens: s.Usage.Total,
		usd: cost.Rounded(), unpriced: cost.Unpriced, searches: number(cost.Searches), priced: cost.Priced,
		position: position,
		events:   number(s.Events), prompts: number(s.Prompts), calls: number(s.Calls), failures: number(s.Failures), errors: number(s.Errors),
		phase: uint8(max(0, slices.Index(sessions.Phases, s.Phase))), state: uint8(max(0, slices.Index(sessions.States, s.State))),
		titled: uint8(max(0, slices.Index(titleSources, s.TitleSource))),
	}
	return r
}

// sourceOf returns the constant equal to a source, so that its text is in memory once.
func sourceOf(s envelopes.Source) envelopes.Source {
	if i := slices.Index(envelopes.Sources, s); i >= 0 {
		return envelopes.Sources[i]
	}
	return s
}

func modelsOf(list []sessions.ModelUse) (m models) {
	most := int64(-1)
	for _, used := range list {
		m.all += used.Model + "\n"
		if used.Total > most {
			m.main, most = used.Model, used.Total
		}
	}
	return m
}

func nanoseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func timeOf(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

// shownTitle returns the title for lists.
func (r *row) shownTitle() string {
	if r.set != nil && r.set.title != "" {
		return r.set.title
	}
	return r.title
}

func (r *row) pinned() bool { return r.set != nil && r.set.pinned }

// activity returns what the session does at the time now.
func (r *row) activity(now time.Time) sessions.Activity {
	a := sessions.Activity{State: sessions.States[r.state], Phase: sessions.Phases[r.phase], Since: timeOf(r.since), Tool: r.tool.Value()}
	return a.At(now, timeOf(r.last))
}

// session returns the entry of the row at the time now.
func (r *row) session(now time.Time) Session {
	p, o := r.project.Value(), r.origin.Value()
	s := Session{
		SessionID: r.id, Title: r.title, TitleSource: titleSources[r.titled],
		Project: p.name, IsRoot: p.rooted, Repository: o.repository, Branch: r.branch, Host: o.host, User: o.user, Model: r.models.Value().main,
		Activity: r.activity(now),
		First:    timeOf(r.first), Last: timeOf(r.last), Active: time.Duration(r.active) * time.Millisecond,
		Tokens: r.tokens, Events: int64(r.events), Prompts: int64(r.prompts), Calls: int64(r.calls), Failures: int64(r.failures), Errors: int64(r.errors),
		Cost:   figures.Cost{USD: r.usd, Priced: r.priced, Unpriced: r.unpriced, Searches: int64(r.searches)},
		Change: r.change,
	}
	if r.set != nil {
		s.Pinned, s.Version = r.set.pinned, r.set.version
		if r.set.title != "" {
			s.Title, s.TitleSource = r.set.title, r.set.source
		}
	}
	return s
}

// same reports whether two rows are equal in all that lists show or select by.
func (r row) same(o row) bool {
	o.change, o.position = r.change, r.position
	return r == o
}

// setOf returns the title and the pin of a record.
func setOf(s *titles.Session) set {
	return set{s.Title, sessions.TitleSource(s.TitleSource), s.Pinned, s.MetadataVersion}
}

// table has the rows of a generation.
type table struct {
	generation string
	limit      int
	rows       []row
	numbers    map[events.SessionID]int32 // indexes of rows
	bytes      int64
	left       int   // about how many sessions exceed the limit
	horizon    int64 // time of the last event of the newest session that was left out; 0 for none
	begun      time.Time
	complete   time.Time // since when all sessions are in it; zero while it is filled
	stored     time.Time // when the records were last stored, if nobody keeps them; else zero
}

func newTable(generation string, limit int) *table {
	return &table{generation: generation, limit: limit, numbers: map[events.SessionID]int32{}, begun: time.Now()}
}

func (t *table) find(id events.SessionID) *row {
	if n, ok := t.numbers[id]; ok {
		return &t.rows[n]
	}
	return nil
}

// put adds or replaces a row, unless the row is of fewer events. It reports whether it changed anything.
func (t *table) put(r row) bool {
	old := t.find(r.id)
	switch {
	case old == nil && t.left > 0 && r.last <= t.horizon && !r.pinned():
		t.left++
		return false
	case old == nil:
		if t.numbers[r.id] = int32(len(t.rows)); len(t.rows) < cap(t.rows) || len(t.rows) == 0 {
			t.rows = append(t.rows, r)
		} else {
			t.rows = append(slices.Grow(t.rows, max(64, len(t.rows)/8)), r)
		}
		t.bytes += r.bytes()
		if t.left > 0 && !t.complete.IsZero() && r.first < t.complete.UnixNano() {
			t.left-- // the session was left out, and has a new event
		}
		if len(t.rows) > t.limit+t.limit/16 {
			t.evict()
		}
	case r.position < old.position, old.same(r):
		return false
	default:
		t.bytes += r.bytes() - old.bytes()
		*old = r
	}
	return true
}

// evict removes rows beyond the limit: those with the oldest last events, pinned ones last.
func (t *table) evict() {
	older := func(a, b *row) int {
		if a.pinned() != b.pinned() {
			if a.pinned() {
				return 1
			}
			return -1
		}
		return cmp.Compare(a.last, b.last)
	}
	order := make([]*row, len(t.rows))
	for i := range t.rows {
		order[i] = &t.rows[i]
	}
	slices.SortFunc(order, older)
	kept := make([]row, 0, t.limit+t.limit/8)
	for _, r := range order[len(order)-t.limit:] {
		kept = append(kept, *r)
	}
	for _, r := range order[:len(order)-t.limit] {
		t.left++
		t.horizon = max(t.horizon, r.last)
	}
	t.rows, t.bytes = kept, 0
	clear(t.numbers)
	for i := range kept {
		t.numbers[kept[i].id] = int32(i)
		t.bytes += kept[i].bytes()
	}
}
