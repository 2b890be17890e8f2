package console

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"tributary/cmd/internal/console/index"
	"tributary/cmd/internal/console/search"
	"tributary/envelopes"
	"tributary/pipeline/events"
	"tributary/pipeline/sessions/summaries"
	"tributary/pipeline/streams"
)

// Limits of a search. A page with a script continues a search in a live stream.
const (
	searchHits   = 50
	searchLong   = 20 * time.Second       // of a page that continues a search
	searchStream = time.Minute            // of a live stream
	searchWait   = 5 * time.Second        // for a slot
	searchReport = 200 * time.Millisecond // between two reports of a live stream
)

// searchPage is the data of the view of searches.
type searchPage struct {
	Text  string
	Tool  string
	Types []typeChoice

	Asked  bool
	Titles *titleHits // nil if titles are not searched
	Hits   []*searchHit
	Covers *searchCovers
	Notice string
}

// AnyType reports whether types were chosen.
func (p *searchPage) AnyType() bool {
	return slices.ContainsFunc(p.Types, func(t typeChoice) bool { return t.Chosen })
}

// typeChoice is a type of events to choose.
type typeChoice struct {
	Name    envelopes.EventType
	Chosen  bool
	Default bool // searched if no type is chosen
}

// searchHit is a hit and the title of its session.
type searchHit struct {
	*search.Hit
	Title string // of its session; empty if it has none
	Key   string // unique among all hits
}

// Failed reports whether the hit is of a call that failed.
func (h *searchHit) Failed() bool { return h.Status == envelopes.StatusError }

// searchCovers is the coverage of a search for the page.
type searchCovers struct {
	*search.Coverage
	Running    bool
	Found      int
	Generation string
	More       string // the address of the page that continues; empty if nothing is left
	Live       string // the address of the stream that continues
	Since      time.Time
	Left       []searchLeft
}

// searchLeft is a part of the events stream of a cell that was not searched.
type searchLeft struct {
	Cell   int
	Before uint64
}

// searching is the search of a request.
type searching struct {
	*request
	search     search.Search
	text       string
	generation string
	stale      bool // the place to continue is of another generation
	titles     titles
}

// newSearching parses q, type and tool of the query.
func (r *request) newSearching() (*searching, error) {
	query := r.URL.Query()
	s := &searching{request: r, text: query.Get("q")}
	own := url.Values{}
	for _, name := range []string{"q", "type", "tool"} {
		if values := slices.DeleteFunc(slices.Clone(query[name]), func(v string) bool { return v == "" }); len(values) > 0 {
			own[name] = values
		}
		if slices.ContainsFunc(query[name], func(v string) bool { return len(v) > longestValue }) {
			return nil, invalid(name+" is too long", "write at most 1,024 bytes")
		}
	}
	r.filter.own = own
	s.search = search.Search{
		Source: envelopes.Source(r.filter.Source), Tool: strings.TrimSpace(query.Get("tool")), Stored: r.filter.storedSince(), Match: r.filter.selects,
		Hits: searchHits,
	}
	for _, name := range own["type"] {
		t := envelopes.EventType(name)
		if !slices.Contains(envelopes.EventTypes, t) {
			return nil, invalid("type names no type of events", "choose some of the list")
		}
		s.search.Types = append(s.search.Types, t)
	}
	return s, nil
}

// begin parses the terms and the place where the search continues; an empty place is the end of the stream.
func (s *searching) begin(ctx context.Context, before string) (err error) {
	if s.search.Terms, err = search.Parse(s.text); err != nil {
		return invalid(err.Error(), "")
	}
	if s.generation, err = s.request.generation(ctx); err != nil {
		return err
	}
	if before == "" {
		return nil
	}
	positions, generation, ok := parsePlace(before)
	if !ok {
		return invalid("before is no place in the stream", "begin the search anew")
	}
	if s.stale = generation != s.generation; !s.stale {
		s.search.Before = positions
	}
	return nil
}

// run waits for a slot and searches.
func (s *searching) run(ctx context.Context, found func(*search.Hit) error, progress func(*search.Coverage) error) (*search.Coverage, error) {
	leave, err := s.enterSearch(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	return s.search.Run(ctx, s.config.JetStream, s.generation, found, progress)
}

// enterSearch waits for one of the slots for requests that read all events. leave frees the slot.
func (c *Console) enterSearch(ctx context.Context) (leave func(), err error) {
	waiting, cancel := context.WithTimeoutCause(ctx, searchWait, &problem{
		Status: http.StatusServiceUnavailable, Text: "as many searches run as may", Cure: "try again in a moment", Retry: 5 * time.Second,
	})
	defer cancel()
	if err := c.searches.Acquire(waiting); err != nil {
		return nil, err
	}
	return c.searches.Release, nil
}

// search answers with the page of a search.
func (r *request) search() error {
	s, err := r.newSearching()
	if err != nil {
		return err
	}
	p := &searchPage{Text: s.text, Tool: s.search.Tool}
	for _, t := range envelopes.EventTypes {
		p.Types = append(p.Types, typeChoice{t, slices.Contains(s.search.Types, t), slices.Contains(search.DefaultTypes, t)})
	}
	if strings.TrimSpace(s.text) == "" {
		return r.page("search", "Search", p)
	}
	ctx, query := r.Context(), r.URL.Query()
	if err := s.begin(ctx, query.Get("before")); err != nil {
		return err
	}
	if s.stale {
		p.Notice = "Another generation is live now, so the search has begun anew."
	}
	if query.Get("before") == "" && len(s.search.Types) == 0 && s.search.Tool == "" {
		p.Titles = s.titled(ctx)
	}
	s.search.Time = s.limits.Search
	if query.Has("long") {
		s.search.Time = searchLong
	}
	var hits []*search.Hit
	coverage, err := s.run(ctx, func(h *search.Hit) error {
		hits = append(hits, h)
		return nil
	}, nil)
	if err != nil {
		return err
	}
	s.titles.load(ctx, s.request, s.generation, hits)
	for _, h := range hits {
		p.Hits = append(p.Hits, s.hit(h))
	}
	p.Asked, p.Covers = true, s.covers(coverage, len(hits), false)
	return r.page("search", "Search", p)
}

// titleHits are the sessions with matching titles, from events or set by users.
type titleHits struct {
	Sessions []titleHit
	More     int
	Filling  bool   // not all titles are known yet
	Left     int    // about how many older sessions are not in the index, so that their titles are not searched
	Problem  string // why titles of events cannot be read
	Untitled string // why titles that users set cannot be read
}

// titleHit is a session with a matching title.
type titleHit struct {
	events.SessionID
	Title string
	Last  time.Time
}

// titlesShown limits the shown sessions with matching titles.
const titlesShown = 5

// titled returns the sessions whose titles match, the latest first.
func (s *searching) titled(ctx context.Context) *titleHits {
	waiting, cancel := context.WithTimeout(ctx, firstPaint)
	defer cancel()
	s.index.Await(waiting)
	q := index.Query{Limit: titlesShown, Filter: s.filter.sessions()}
	q.Titled = s.search.Terms.In
	list, err := s.index.List(q, s.now)
	if err != nil {
		return &titleHits{Problem: err.Error()}
	}
	hits := &titleHits{Filling: list.Filling, Left: list.Left, More: list.Matches - len(list.Sessions)}
	if list.Problem != nil {
		hits.Problem = s.problemOf(ctx, list.Problem).Error()
	}
	if list.Untitled != nil {
		hits.Untitled = s.problemOf(ctx, list.Untitled).Error()
	}
	for i := range list.Sessions {
		found := &list.Sessions[i]
		hits.Sessions = append(hits.Sessions, titleHit{found.SessionID, found.Title, found.Last.In(s.filter.Zone)})
	}
	return hits
}

// hit returns a hit for the page.
func (s *searching) hit(h *search.Hit) *searchHit {
	if h.Time.IsZero() {
		h.Time = h.Stored
	}
	h.Time = h.Time.In(s.filter.Zone)
	title := s.titles.known[events.SessionID{Source: h.Source, Session: h.Session}]
	return &searchHit{h, title, strconv.Itoa(h.Cell) + "-" + strconv.FormatUint(h.Position, 10)}
}

// covers returns the coverage of a search for the page.
func (s *searching) covers(c *search.Coverage, found int, running bool) *searchCovers {
	v := &searchCovers{Coverage: new(*c), Running: running, Found: found, Generation: s.generation, Since: s.search.Stored}
	if !c.Oldest.IsZero() {
		v.Oldest, v.Newest = c.Oldest.In(s.filter.Zone), c.Newest.In(s.filter.Zone)
	}
	if !v.Since.IsZero() {
		v.Since = v.Since.In(s.filter.Zone)
	}
	if c.Next == nil {
		return v
	}
	for cell := range c.Next {
		v.Left = append(v.Left, searchLeft{cell, c.Next.In(cell)})
	}
	query := s.filter.all()
	query.Set("before", placeOf(s.generation, c.Next))
	v.Live = "/search/hits?" + query.Encode()
	query.Set("long", "1")
	v.More = "/search?" + query.Encode()
	return v
}

// placeOf writes the place where a search continues: the generation and the positions.
func placeOf(generation string, next streams.Positions) string {
	parts := make([]string, len(next))
	for cell := range next {
		parts[cell] = strconv.FormatUint(next.In(cell), 36)
	}
	return generation + "." + strings.Join(parts, ".")
}

// parsePlace is the inverse of [placeOf].
func parsePlace(text string) (next streams.Positions, generation string, ok bool) {
	generation, rest, ok := strings.Cut(text, ".")
	if !ok || len(text) > longestValue {
		return nil, "", false
	}
	for cell, part := range strings.Split(rest, ".") {
		position, err := strconv.ParseUint(part, 36, 64)
		if err != nil {
			return nil, "", false
		}
		next = next.With(cell, position)
	}
	return next, generation, true
}

// searchHits answers with a live stream of the hits and the coverage of a search.
func (r *request) searchHits() error {
	s, err := r.newSearching()
	if err != nil {
		return err
	}
	return r.live(func(ctx context.Context, out *stream) error {
		before := out.Last
		if before == "" {
			before = r.URL.Query().Get("before")
		}
		if err := s.begin(ctx, before); err != nil {
			return err
		}
		return s.stream(ctx, out)
	})
}

// stream sends hits and reports. A browser continues an interrupted stream after the last report, and ignores the hits
// that it has.
func (s *searching) stream(ctx context.Context, out *stream) error {
	found, reported := 0, time.Now()
	s.search.Time = searchStream
	report := func(name string, c *search.Coverage, running bool) error {
		v := s.covers(c, found, running)
		html, err := s.fragment("search", "covers", v)
		if err != nil {
			return err
		}
		id := ""
		if running && c.Next != nil {
			id = placeOf(s.generation, c.Next)
		}
		reported = time.Now()
		return out.send(name, id, map[string]any{"html": html, "live": v.Live, "stop": c.Stop})
	}
	coverage, err := s.run(ctx, func(h *search.Hit) error {
		found++
		s.titles.load(ctx, s.request, s.generation, []*search.Hit{h})
		html, err := s.fragment("search", "hit", s.hit(h))
		if err != nil {
			return err
		}
		return out.send("hit", "", map[string]string{"html": html})
	}, func(c *search.Coverage) error {
		if time.Since(reported) < searchReport {
			return nil
		}
		return report("progress", c, true)
	})
	if err != nil {
		return err
	}
	if err := report("end", coverage, false); err != nil {
		return nil //nolint:nilerr // the browser has gone away
	}
	<-ctx.Done() // the browser ends the stream; it would open one again that ends by itself
	return nil
}

// titles are the titles of the sessions of hits, each read once.
type titles struct {
	view   *summaries.View // nil if it cannot be opened
	known  map[events.SessionID]string
	silent atomic.Bool // the service of titles does not answer
}

// titlesAtOnce is how many titles are read at the same time.
const titlesAtOnce = 4

// load reads the titles of the sessions of hits, if they are not known. The page shows the id of a session whose title is
// missing or cannot be read.
func (t *titles) load(ctx context.Context, r *request, generation string, hits []*search.Hit) {
	if t.known == nil {
		t.known = map[events.SessionID]string{}
		// A title does not depend on an event that cannot be read.
		t.view, _ = summaries.Open(ctx, r.config.JetStream, generation, func(error) {})
	}
	if t.view == nil {
		return
	}
	wanted := map[events.SessionID]bool{}
	for _, h := range hits {
		id := events.SessionID{Source: h.Source, Session: h.Session}
		if _, known := t.known[id]; !known {
			wanted[id] = true
		}
	}
	var mu sync.Mutex
	var reading errgroup.Group
	reading.SetLimit(titlesAtOnce)
	for id := range wanted {
		reading.Go(func() error {
			title := t.set(ctx, r, id)
			if title == "" {
				if fold, err := t.view.Session(ctx, id); err == nil {
					title = fold.Summary(r.now).Title
				}
			}
			mu.Lock()
			defer mu.Unlock()
			t.known[id] = title
			return nil
		})
	}
	_ = reading.Wait() // never fails
}

// set returns the title that users set for a session, empty for none.
func (t *titles) set(ctx context.Context, r *request, id events.SessionID) string {
	if t.silent.Load() {
		return ""
	}
	stored, err := r.storedTitle(ctx, id)
	if err != nil {
		t.silent.Store(true)
	}
	return stored.Title
}
