package console

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/sessions/summaries"
	set "tributary/pipeline/sessions/titles"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// within bounds the wait for what must happen.
const within = time.Minute

// fleet is a broker with a worker that keeps the records of sessions, and titles and pins.
type fleet struct {
	*pipelinetest.Server

	t   *testing.T
	js  jetstream.JetStream
	top streams.Topology
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	server := pipelinetest.NewServer(t)
	f := &fleet{Server: server, t: t, top: streams.Topology{Generation: "v1", Partitions: 2}}
	f.js = server.Provision(f.top)
	k, err := summaries.New(f.js, summaries.Config{Every: time.Millisecond, Beat: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	f.start(k.Run, k.Drain)
	service, err := set.New(f.js, set.Config{})
	if err != nil {
		t.Fatal(err)
	}
	f.start(service.Serve, service.Drain)
	return f
}

// start runs something until the end of the test, or until stop.
func (f *fleet) start(run func(context.Context) error, drain func()) (stop func()) {
	f.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- run(context.WithoutCancel(f.t.Context())) }()
	stop = func() {
		drain()
		if err := <-ended; err != nil {
			f.t.Error(err)
		}
		ended <- nil
	}
	f.t.Cleanup(stop)
	return stop
}

// add stores records, which a stage normalizes.
func (f *fleet) add(records ...core.Record) {
	f.t.Helper()
	pipelinetest.Publish(f.t, f.js, records...)
	f.catchUp(f.top)
}

// catchUp runs a stage until a generation has every record.
func (f *fleet) catchUp(top streams.Topology) {
	f.t.Helper()
	stage, err := worker.New(f.js, worker.Config{Topology: top})
	if err != nil {
		f.t.Fatal(err)
	}
	stop := f.start(stage.Run, stage.Drain)
	if err := replay.CatchUp(f.t.Context(), f.js, top); err != nil {
		f.t.Fatal(err)
	}
	stop()
}

// console returns a console of the fleet, which may change things if write says so.
func (f *fleet) console(write bool) *Console {
	f.t.Helper()
	c, err := New(Config{JetStream: f.js, Zone: time.UTC, Write: write, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(c.Close)
	return c
}

// talk returns the records of a session of Claude Code: a prompt each, at a time.
func talk(session, prompt string, at time.Time, line int) core.Record {
	text, err := json.Marshal(map[string]any{
		"type": "user", "uuid": fmt.Sprintf("%s-%d", session, line), "sessionId": session, "timestamp": at.UTC().Format(time.RFC3339), "cwd": "/home/ada/" + session,
		"gitBranch": "fix/" + session, "message": map[string]any{"role": "user", "content": prompt},
	})
	if err != nil {
		panic(err)
	}
	return core.Record{Source: envelopes.ClaudeCode, Session: session, Data: text}
}

// row is a session as a page shows it.
type row struct{ title, state, html string }

var (
	tags    = regexp.MustCompile(`<[^>]*>`)
	spaces  = regexp.MustCompile(`\s+`)
	keyAttr = regexp.MustCompile(`^[^"]*"s-([^"]+)"`)
)

// rowsOf returns the sessions of a page.
func rowsOf(page string) []row {
	var rows []row
	for i, part := range strings.Split(page, "<tr id=") {
		if i == 0 {
			continue
		}
		part, _, _ = strings.Cut(part, "</tr>")
		shown := func(from, to string) string {
			_, rest, _ := strings.Cut(part, from)
			text, _, _ := strings.Cut(rest, to)
			return strings.TrimSpace(spaces.ReplaceAllString(html.UnescapeString(tags.ReplaceAllString(text, " ")), " "))
		}
		rows = append(rows, row{shown(`data-focus="open"`, "</a>"), shown(`<span class="badge `, "</span>"), part})
	}
	for i := range rows {
		_, rows[i].title, _ = strings.Cut(rows[i].title, ">")
		_, rows[i].state, _ = strings.Cut(rows[i].state, ">")
		rows[i].title, rows[i].state = strings.TrimSpace(rows[i].title), strings.TrimSpace(rows[i].state)
	}
	return rows
}

// titlesOf returns the titles of a page.
func titlesOf(rows []row) []string {
	var list []string
	for _, r := range rows {
		list = append(list, r.title)
	}
	return list
}

// awaitPage asks for a page of the list until it is wanted.
func awaitPage(t *testing.T, c http.Handler, address string, wanted func(page string, rows []row) bool) (string, []row) {
	t.Helper()
	end := time.Now().Add(within)
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for {
		w := get(t, c, address)
		requireStatus(t, w, http.StatusOK)
		page := w.Body.String()
		if rows := rowsOf(page); wanted(page, rows) {
			return page, rows
		}
		if time.Now().After(end) {
			t.Fatalf("%s is not as it should be: %s", address, page)
		}
		<-poll.C
	}
}

// shows is that of a page with so many sessions that is complete.
func shows(n int) func(string, []row) bool {
	return func(page string, rows []row) bool {
		return len(rows) == n && !strings.Contains(page, "The list is being made")
	}
}

func TestSessionsAreListed(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	now := time.Now()
	f.add(
		talk("one", "Fix the <b>parser</b>.", now.Add(-time.Hour), 1),
		talk("two", "Write a page \x1b[31mabout it.", now.Add(-time.Minute), 1),
		talk("three", "Ask again.", now.Add(-24*time.Hour), 1),
	)
	c := f.console(false)
	page, rows := awaitPage(t, c, "/sessions", shows(3))
	want := []string{"Write a page about it", "Fix the <b>parser</b>", "Ask again"}
	if got := titlesOf(rows); !slices.Equal(got, want) {
		t.Errorf("titles %q, want %q", got, want)
	}
	if got := []string{rows[0].state, rows[1].state, rows[2].state}; !slices.Equal(got, []string{"working", "unanswered", "unanswered"}) {
		t.Errorf("states %q", got)
	}
	for _, text := range []string{"<h1>Sessions</h1>", "1 to 3 of 3 sessions", "3 sessions in memory", `aria-sort="descending"`, "<dt>ended_in_tool</dt>"} {
		if !strings.Contains(page, text) {
			t.Errorf("no %q", text)
		}
	}
	for _, text := range []string{"<b>", "\x1b", `action="/sessions/claude_code`, "rename"} {
		if strings.Contains(page, text) {
			t.Errorf("the page has %q", text)
		}
	}
	if !strings.Contains(rows[1].html, `href="/sessions/claude_code/one"`) || !strings.Contains(rows[1].html, "fix/one") || !strings.Contains(rows[1].html, "/home/ada/one") {
		t.Errorf("row %s", rows[1].html)
	}
	for address, want := range map[string][]string{
		"?sort=title":                    {"Ask again", "Fix the <b>parser</b>", "Write a page about it"},
		"?sort=title&reverse=1":          {"Write a page about it", "Fix the <b>parser</b>", "Ask again"},
		"?sort=last&reverse=1":           {"Ask again", "Fix the <b>parser</b>", "Write a page about it"},
		"?title=PARSER":                  {"Fix the <b>parser</b>"},
		"?state=unanswered":              {"Fix the <b>parser</b>", "Ask again"},
		"?since=2h&sort=first":           {"Write a page about it", "Fix the <b>parser</b>"},
		"?branch=fix/two":                {"Write a page about it"},
		"?project=ada/three":             {"Ask again"},
		"?source=codex":                  nil,
		"?sort=title&limit=1&after=1":    {"Fix the <b>parser</b>"},
		"?sort=title&limit=2&after=2":    {"Write a page about it"},
		"?sort=title&limit=2&after=9999": nil,
	} {
		w := get(t, c, "/sessions"+address)
		requireStatus(t, w, http.StatusOK)
		if got := titlesOf(rowsOf(w.Body.String())); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
	requireStatus(t, get(t, c, "/sessions?sort=title&limit=1"), http.StatusOK, `rel="next" href="?after=1&amp;limit=1&amp;sort=title"`, `href="?limit=1&amp;reverse=1&amp;sort=title"`)
	requireStatus(t, get(t, c, "/sessions?title=x&state=failed"), http.StatusOK, "No session is selected", `value="x"`, `<option value="failed" selected>`)
	for _, bad := range []string{"?sort=size", "?state=asleep", "?after=x", "?after=-1", "?title=%ff"} {
		requireStatus(t, get(t, c, "/sessions"+bad), http.StatusBadRequest)
	}
}

func TestSessionsAreRenamedAndPinned(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	const id = "a/b ..\x1b"
	f.add(talk("one", "First.", time.Now(), 1), talk(id, "Second.", time.Now().Add(-time.Hour), 1))
	reader, c := f.console(false), f.console(true)
	path := sessionPath(envelopes.ClaudeCode, id)
	for _, refused := range []string{path + "/title", path + "/pin"} {
		requireStatus(t, post(t, reader, refused, "title=x&pinned=true&version=0"), http.StatusForbidden, "--write")
	}
	requireStatus(t, get(t, reader, path+"/title"), http.StatusForbidden, "--write")
	_, rows := awaitPage(t, c, "/sessions", shows(2))
	if rows[1].title != "Second" || !strings.Contains(rows[1].html, `action="`+path+`/pin"`) || !strings.Contains(rows[1].html, `href="`+path+`/title?back=%2Fsessions"`) {
		t.Fatalf("rows %+v", rows)
	}
	requireStatus(t, get(t, c, path+"/title?back=/sessions"), http.StatusOK, `name="version" value="0"`, `value="Second"`, `href="/sessions">Cancel`)
	w := post(t, c, path+"/title", "title=+Another+title+&version=0&back=/sessions%3Fsort%3Dtitle")
	requireStatus(t, w, http.StatusSeeOther)
	if w.Header().Get("Location") != "/sessions?sort=title" {
		t.Errorf("goes on to %q", w.Header().Get("Location"))
	}
	rows = rowsOf(get(t, c, "/sessions").Body.String()) // the form waits until the list shows it
	if rows[1].title != "Another title" {
		t.Errorf("rows %+v", rows)
	}
	requireStatus(t, post(t, c, path+"/pin", "pinned=true&version=1&back=//example.com/x"), http.StatusSeeOther)
	if rows = rowsOf(get(t, c, "/sessions").Body.String()); rows[0].title != "Another title" || !strings.Contains(rows[0].html, "★") {
		t.Errorf("rows %+v", rows)
	}
	// Somebody else was faster: the page shows the newer title, keeps what was written, and its form has the newer version.
	requireStatus(t, post(t, c, path+"/title", "title=A+third+title&version=1"), http.StatusConflict,
		"Nothing was changed", "<b>Another title</b>", "it is pinned", `value="A third title"`, `name="version" value="2"`)
	requireStatus(t, post(t, c, path+"/pin", "pinned=false&version=0"), http.StatusConflict, "<b>Another title</b>")
	requireStatus(t, post(t, c, path+"/title", "title=A+third+title&version=2"), http.StatusSeeOther)
	for address, form := range map[string]string{
		path + "/title": "title=+&version=3", path + "/pin": "pinned=perhaps&version=3", path + "/title?x": "title=x", "/sessions/codex/unknown/title": "title=x&version=0",
	} {
		requireStatus(t, post(t, c, address, form), http.StatusBadRequest)
	}
	hostile := url.Values{"title": {"</title><script>x</script>\x1b[31m\u202egnp.exe"}, "version": {"3"}}
	requireStatus(t, post(t, c, path+"/title", hostile.Encode()), http.StatusSeeOther)
	for _, address := range []string{"/sessions", path + "/title"} {
		page := get(t, c, address).Body.String()
		if strings.Contains(page, "<script>x") || strings.ContainsAny(page, "\x1b\u202e") || !strings.Contains(page, "&lt;script&gt;x") {
			t.Errorf("%s has the title as it is: %s", address, page)
		}
	}
	cross := post(t, c, path+"/title", "title=x&version=3", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") })
	requireStatus(t, cross, http.StatusForbidden)
}

func TestNobodyToRename(t *testing.T) {
	t.Parallel()
	c := newConsole(t, func(cfg *Config) { cfg.Write = true })
	requireStatus(t, post(t, c, "/sessions/codex/one/title", "title=x&version=0"), http.StatusServiceUnavailable, "no worker answers")
	awaitPage(t, c, "/sessions", func(page string, _ []row) bool { return strings.Contains(page, "There is no session yet") })
}

// liveRows reads the events of the rows of a page.
func liveRows(t *testing.T, address, page string) <-chan changedRows {
	t.Helper()
	_, rest, ok := strings.Cut(page, `data-live="`)
	live, _, _ := strings.Cut(rest, `"`)
	if !ok {
		t.Fatalf("the page has no address of changes: %s", page)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+html.UnescapeString(live), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("status %d: %s", response.StatusCode, body(t, response))
	}
	events := make(chan changedRows, 100)
	go func() {
		defer close(events)
		lines := bufio.NewScanner(response.Body)
		lines.Buffer(nil, 4<<20)
		for lines.Scan() {
			if data, is := strings.CutPrefix(lines.Text(), "data: "); is {
				var changed changedRows
				if json.Unmarshal([]byte(data), &changed) != nil {
					return
				}
				events <- changed
			}
		}
	}()
	return events
}

// next waits for an event that is wanted.
func next(t *testing.T, events <-chan changedRows, wanted func(*changedRows) bool) changedRows {
	t.Helper()
	end := time.After(within)
	for {
		select {
		case e, open := <-events:
			if !open {
				t.Fatal("the stream has ended")
			}
			if wanted(&e) {
				return e
			}
		case <-end:
			t.Fatal("no event")
		}
	}
}

func TestRowsThatChangeAreSent(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.add(talk("one", "First.", time.Now(), 1), talk("two", "Second.", time.Now().Add(-time.Minute), 1))
	c := f.console(true)
	server := serve(t, c)
	page, rows := awaitPage(t, c, "/sessions?limit=1", shows(1))
	events := liveRows(t, server, page)
	f.add(talk("one", "Once more.", time.Now(), 2))
	e := next(t, events, func(e *changedRows) bool { return len(e.Rows) == 1 })
	if key := keyAttr.FindStringSubmatch(rows[0].html)[1]; e.Rows[0].Key != key || !strings.Contains(e.Rows[0].HTML, ">2</td>") || !strings.Contains(e.Rows[0].HTML, "☆") {
		t.Errorf("row %+v, want that of %s", e.Rows[0], key)
	}
	f.add(talk("three", "Third.", time.Now(), 1)) // which the page does not show
	next(t, events, func(e *changedRows) bool { return e.Others == 1 && len(e.Rows) == 0 })
	requireStatus(t, post(t, c, "/sessions/claude_code/one/title", "title=Other&version=0"), http.StatusSeeOther)
	next(t, events, func(e *changedRows) bool { return len(e.Rows) == 1 && strings.Contains(e.Rows[0].HTML, ">Other</a>") })
	requireStatus(t, get(t, c, "/sessions/live?rows="+strings.Repeat("x,", 300)), http.StatusBadRequest)
}

// TestPageIsToldOfAnotherGeneration promotes a generation while a page is open, and rolls back.
func TestPageIsToldOfAnotherGeneration(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.add(talk("one", "First.", time.Now(), 1))
	c := f.console(false)
	server := serve(t, c)
	page, _ := awaitPage(t, c, "/sessions", shows(1))
	events := liveRows(t, server, page)
	if _, err := replay.Start(t.Context(), f.js, replay.Request{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	pipelinetest.Publish(t, f.js, talk("two", "Second.", time.Now(), 1))
	b := f.top
	b.Generation = "b"
	f.catchUp(b)
	if _, err := replay.Promote(t.Context(), f.js, "b", true); err != nil {
		t.Fatal(err)
	}
	next(t, events, func(e *changedRows) bool { return e.Anew })
	page, _ = awaitPage(t, c, "/sessions", shows(2))
	if !strings.Contains(page, `title="Generation of the events">b<`) {
		t.Error("the page does not name the generation")
	}
	events = liveRows(t, server, page)
	if _, _, err := replay.RollBack(t.Context(), f.js); err != nil {
		t.Fatal(err)
	}
	next(t, events, func(e *changedRows) bool { return e.Anew })
	awaitPage(t, c, "/sessions", shows(1))
}

// TestPageIsToldThatTheStreamWentBack puts the events back to an older copy while a page is open.
func TestPageIsToldThatTheStreamWentBack(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.add(talk("one", "First.", time.Now(), 1))
	saved := f.CopyStore()
	f.add(talk("two", "Second.", time.Now(), 1))
	c := f.console(false)
	server := serve(t, c)
	page, _ := awaitPage(t, c, "/sessions", shows(2))
	events := liveRows(t, server, page)
	saved.PutBack(streams.EventsStream("v1"))
	next(t, events, func(e *changedRows) bool { return e.Anew })
	_, rows := awaitPage(t, c, "/sessions", shows(1))
	if rows[0].title != "First" {
		t.Errorf("rows %+v", rows)
	}
}

// TestFormsKeepTheFilter is that of the links of a filter, and of the form that leads back.
func TestFormsKeepTheFilter(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.add(talk("one", "First.", time.Now(), 1))
	c := f.console(true)
	address := "/sessions?" + url.Values{"sort": {"title"}, "since": {"7d"}, "branch": {"fix/one"}}.Encode()
	page, rows := awaitPage(t, c, address, shows(1))
	for _, link := range []string{`href="?branch=fix%2Fone&amp;since=24h&amp;sort=title"`, `href="?since=7d&amp;sort=title" aria-label="Remove Branch fix/one"`} {
		if !strings.Contains(page, link) {
			t.Errorf("no %s in %s", link, page)
		}
	}
	if !strings.Contains(rows[0].html, `name="back" value="`+html.EscapeString(address)+`"`) {
		t.Errorf("row %s", rows[0].html)
	}
}
