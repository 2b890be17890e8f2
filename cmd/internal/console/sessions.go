package console

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"tributary/cmd/internal/console/index"
	"tributary/cmd/internal/terminal"
	"tributary/pipeline/events"
	"tributary/pipeline/sessions"
)

// The page of the list of sessions reads an index in memory (package index), which is built when somebody opens the list.

const (
	sessionsOnPage  = 50
	mostSessions    = 200                   // on one page
	firstPaint      = 60 * time.Millisecond // how long a page waits while the list is built
	sessionsChanged = time.Second           // interval of the checks for changes
)

// sessionList is the data of the view of sessions.
type sessionList struct {
	*index.List

	Rows     []sessionRow
	Heads    []sessionHead
	Orders   []choice
	States   []choice
	Reverse  bool
	Title    string // the part of titles to find
	Phases   []sessions.Phase
	Pager    pager
	Live     string // address of the changes of the rows
	Each     int64  // approximate bytes in memory for each session
	Limit    int    // of sessions in memory
	Failure  string // why records cannot be read
	NoTitles string // why titles and pins cannot be read
	Refresh  int    // seconds after which the page is loaded again; 0 for never
	From, To int    // numbers of the first and the last row
}

// sessionRow is a session of the list.
type sessionRow struct {
	index.Session

	Key   string // of the row
	Path  string // of the session
	Back  string // address of the list
	Query string // of the form that renames it and returns to the list
	Badge string // class of the state
	Zone  *time.Location
	Now   time.Time
	Write bool
}

// choice is a value to choose.
type choice struct {
	Value, Name string
	Chosen      bool
}

// sessionHead is the head of a column: a link for each of its orders.
type sessionHead struct {
	Links  []headLink
	Number bool
	Sort   string // aria-sort: ascending, descending, or empty
}

type headLink struct {
	Name, Query string
	Current     bool
}

// sessionColumns are the heads of the columns, with the orders of the index.
var sessionColumns = []struct {
	number bool
	links  [][2]string // order and name
}{
	{false, [][2]string{{"title", "Session"}}},
	{false, [][2]string{{"state", "State"}}},
	{false, [][2]string{{"repo", "Repository"}, {"branch", "Branch"}}},
	{false, [][2]string{{"host", "Host"}, {"user", "User"}}},
	{false, [][2]string{{"model", "Model"}}},
	{false, [][2]string{{"last", "Last"}}},
	{true, [][2]string{{"active", "Active"}}},
	{true, [][2]string{{"prompts", "Prompts"}}},
	{true, [][2]string{{"calls", "Calls"}}},
	{true, [][2]string{{"failures", "Failed"}}},
	{true, [][2]string{{"cost", "Cost"}}},
}

// orderNames are the names of the orders for people.
var orderNames = map[string]string{
	"last": "last event", "first": "first event", "tokens": "tokens", "cost": "cost", "active": "active time", "calls": "calls", "failures": "failed calls",
	"errors": "errors", "events": "events", "prompts": "prompts", "title": "title", "state": "state", "project": "project", "repo": "repository",
	"branch": "branch", "host": "host", "user": "user", "source": "agent", "model": "model",
}

// sessions answers with the list of sessions.
func (r *request) sessions() error {
	q, p, err := r.sessionQuery()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), firstPaint)
	defer cancel()
	r.index.Await(ctx)
	l, err := r.index.List(q, r.now)
	if err != nil {
		return err
	}
	if l.Problem != nil && l.Count == 0 {
		return l.Problem
	}
	r.named = cmp.Or(l.Generation, r.config.Generation)
	r.filter.own = ownValues(r.URL.Query(), "sort", "reverse", "state", "title", "limit")
	data := &sessionList{
		List: l, Heads: r.sessionHeads(&q), Reverse: q.Reverse, Title: r.URL.Query().Get("title"), Phases: sessions.Phases,
		Limit: index.DefaultLimit, From: q.Skip + 1, To: q.Skip + len(l.Sessions),
	}
	for i := range l.Sessions {
		data.Rows = append(data.Rows, r.sessionRow(&l.Sessions[i], r.URL.RequestURI()))
	}
	for _, name := range index.Orders() {
		data.Orders = append(data.Orders, choice{name, orderNames[name], name == q.Sort})
	}
	for _, name := range sessions.StateNames() {
		data.States = append(data.States, choice{name, strings.ReplaceAll(name, "_", " "), name == q.State})
	}
	if l.Count > 0 {
		data.Each = l.Bytes / int64(l.Count)
	}
	end := ""
	if q.Skip+len(l.Sessions) < l.Matches {
		end = strconv.Itoa(q.Skip + p.Limit)
	}
	data.Pager = r.pager(p, end)
	data.Live = r.sessionsLive(data)
	if l.Untitled != nil {
		data.NoTitles = r.problemOf(r.Context(), l.Untitled).Error()
	}
	switch {
	case l.Problem != nil:
		data.Failure = r.problemOf(r.Context(), l.Problem).Error()
		data.Refresh = 10
	case l.Filling:
		data.Refresh = min(1+l.Count, 2) // sooner while the list is empty, which takes only a moment
	}
	return r.page("sessions", "Sessions", data)
}

// ownValues returns the values of some names of a query.
func ownValues(query url.Values, names ...string) url.Values {
	own := url.Values{}
	for _, name := range names {
		if value := query.Get(name); value != "" {
			own.Set(name, value)
		}
	}
	return own
}

// sessionQuery parses the query of the list.
func (r *request) sessionQuery() (index.Query, paging, error) {
	query := r.URL.Query()
	title := query.Get("title")
	q := index.Query{Sort: cmp.Or(query.Get("sort"), index.Orders()[0]), Reverse: query.Get("reverse") != "", Filter: r.filter.sessions()}
	q.State, q.Titled = query.Get("state"), index.TitleContains(title)
	p, err := r.paging(sessionsOnPage, mostSessions)
	if err != nil {
		return q, p, err
	}
	if !index.IsOrder(q.Sort) {
		return q, p, invalid("sort names no order", "write one of "+strings.Join(index.Orders(), ", "))
	}
	if q.State != "" && !slices.Contains(sessions.StateNames(), q.State) {
		return q, p, invalid("state names no state", "write one of "+strings.Join(sessions.StateNames(), ", "))
	}
	if len(title) > longestValue || !utf8.ValidString(title) {
		return q, p, invalid("title cannot be read", "write at most 1,024 bytes of text")
	}
	if p.After != "" {
		if q.Skip, err = strconv.Atoi(p.After); err != nil || q.Skip < 0 {
			return q, p, invalid("after names no place of the list", "begin with the first page")
		}
	}
	q.Limit = p.Limit
	return q, p, nil
}

// sessionHeads returns the heads of the columns. The link of the current order reverses it.
func (r *request) sessionHeads(q *index.Query) []sessionHead {
	var heads []sessionHead
	for _, column := range sessionColumns {
		head := sessionHead{Number: column.number}
		for _, l := range column.links {
			query := r.URL.Query()
			for _, name := range []string{"after", "reverse", "token"} {
				query.Del(name)
			}
			query.Set("sort", l[0])
			link := headLink{Name: l[1], Current: q.Sort == l[0]}
			if link.Current {
				ascending := index.IsText(l[0]) != q.Reverse
				head.Sort = map[bool]string{true: "ascending", false: "descending"}[ascending]
				if !q.Reverse {
					query.Set("reverse", "1")
				}
			}
			link.Query = queryOf(query)
			head.Links = append(head.Links, link)
		}
		heads = append(heads, head)
	}
	return heads
}

// stateBadges are the classes of states.
var stateBadges = map[sessions.Phase]string{
	sessions.PhaseWorking: "good", sessions.PhaseInTool: "good", sessions.PhasePrompt: "info", sessions.PhasePermission: "warn",
	sessions.PhaseFailed: "bad", sessions.PhaseEnded: "warn", sessions.PhaseEndedInTool: "warn",
}

// sessionRow returns the row of a session. back is the address of the list.
func (r *request) sessionRow(s *index.Session, back string) sessionRow {
	return sessionRow{
		Session: *s, Key: index.Key(s.SessionID), Path: sessionPath(s.Source, s.Session), Back: back, Query: "?" + url.Values{"back": {back}}.Encode(),
		Badge: stateBadges[s.Phase], Zone: r.filter.Zone, Now: r.now, Write: r.config.Write,
	}
}

// Columns returns how many columns the list has.
func (l *sessionList) Columns() int { return len(l.Heads) }

// ID returns the id of the session.
func (s *sessionRow) ID() string { return s.SessionID.Session }

// Name returns the title, else the id.
func (s *sessionRow) Name() string { return cmp.Or(s.Title, s.ID()) }

// State returns what the session does, with the tool.
func (s *sessionRow) State() string { return s.Activity.Text() }

// Lasts reports whether the row shows how long the phase lasts: in a tool, or while the session waits for a permission.
func (s *sessionRow) Lasts() bool {
	return (s.Phase == sessions.PhaseInTool || s.Phase == sessions.PhasePermission) && !s.Since.IsZero()
}

// sessionsLive returns the address of the changes of the rows of a page.
func (r *request) sessionsLive(l *sessionList) string {
	query := r.filter.all()
	keys := make([]string, len(l.Rows))
	for i := range l.Rows {
		keys[i] = l.Rows[i].Key
	}
	query.Set("rows", strings.Join(keys, ","))
	query.Set("epoch", strconv.FormatUint(l.Epoch, 10))
	query.Set("change", strconv.FormatUint(l.Change, 10))
	query.Set("at", strconv.FormatInt(r.now.UnixMilli(), 10))
	query.Set("back", r.URL.RequestURI())
	return "/sessions/live?" + query.Encode()
}

// changedRows is a message to the page about changes.
type changedRows struct {
	Rows   []changedRow `json:"rows"`
	Others int          `json:"others"` // how many selected sessions without a row on the page have changed
	Anew   bool         `json:"anew"`   // the index was built again, and the page shows the one before
}

// changedRow is a row that has changed.
type changedRow struct {
	Key    string `json:"key"`
	HTML   string `json:"html"`
	Spoken string `json:"spoken"` // for screen readers; empty if the state is the same
}

// followSessions answers with a stream of the rows of a page that change. The page names its rows by keys, and the last
// change that it shows.
func (r *request) followSessions() error {
	q, _, err := r.sessionQuery()
	if err != nil {
		return err
	}
	query := r.URL.Query()
	keys := strings.Split(query.Get("rows"), ",")
	if len(keys) > mostSessions {
		return invalid("rows names too many rows", "follow the rows of one page")
	}
	number := func(name string) uint64 {
		n, _ := strconv.ParseUint(query.Get(name), 10, 63) // 0 is before every change
		return n
	}
	epoch, begun, since := number("epoch"), number("change"), number("change")
	at := time.UnixMilli(int64(number("at")))
	return r.live(func(ctx context.Context, s *stream) error {
		if n, err := strconv.ParseUint(s.Last, 10, 64); err == nil {
			since, at = n, time.Time{} // the time of that change is unknown: the page gets every row
		}
		ids, err := r.index.Find(keys)
		if err != nil {
			return err
		}
		f := rowsFollower{request: r, filter: q.Filter, ids: ids, epoch: epoch, since: since, begun: begun, back: query.Get("back"), states: map[events.SessionID]string{}}
		if err := f.noteShown(at); err != nil {
			return err
		}
		tick := time.NewTicker(sessionsChanged)
		defer tick.Stop()
		for {
			if err := f.send(s); err != nil {
				return err
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return nil
			}
		}
	})
}

// rowsFollower sends the rows that change.
type rowsFollower struct {
	*request

	filter       index.Filter
	ids          []events.SessionID
	epoch        uint64
	begun, since uint64 // the last change when the page was made, and the last change that it has
	others       int
	back         string
	states       map[events.SessionID]string // as the page shows them
}

// noteShown sets the states as the page shows them, which was made at the time at; none if that is zero.
func (f *rowsFollower) noteShown(at time.Time) error {
	shown, _, _, err := f.index.Changed(f.filter, f.ids, 0, at)
	for i := range shown {
		if !at.IsZero() {
			f.states[shown[i].SessionID] = shown[i].Activity.Text()
		}
	}
	return err
}

// send sends what has changed since the last call, if anything.
func (f *rowsFollower) send(s *stream) error {
	f.now = time.Now()
	shown, others, status, err := f.index.Changed(f.filter, f.ids, f.begun, f.now)
	if err != nil {
		return err
	}
	if f.epoch != 0 && status.Epoch != f.epoch {
		f.epoch = 0 // once
		return s.send("rows", "", changedRows{Anew: true})
	}
	var changed changedRows
	for i := range shown {
		one := &shown[i]
		state := one.Activity.Text()
		if one.Change <= f.since && f.states[one.SessionID] == state {
			continue
		}
		row := f.sessionRow(one, f.back)
		html, err := f.fragment("sessions", "session-row", &row)
		if err != nil {
			return err
		}
		spoken := ""
		if before := f.states[one.SessionID]; before != "" && before != state {
			spoken = cmp.Or(terminal.OneLine(one.Title), one.SessionID.Session) + ": " + terminal.OneLine(state)
		}
		f.states[one.SessionID] = state
		changed.Rows = append(changed.Rows, changedRow{Key: row.Key, HTML: html, Spoken: spoken})
	}
	f.since = status.Change
	if len(changed.Rows) == 0 && others == f.others {
		return nil
	}
	changed.Others, f.others = others, others
	return s.send("rows", strconv.FormatUint(f.since, 10), changed)
}
