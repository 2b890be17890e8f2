package console

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/cmd/internal/rights"
	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/events"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// enough is how long a test waits for an event.
const enough = 60 * time.Second

// malformed returns a record that becomes a dead letter.
func malformed(session, data string) core.Record {
	return core.Record{Source: envelopes.Codex, Session: session, Data: []byte(data)}
}

// stageOf runs a stage of a generation until stop is called, or the test ends.
func stageOf(tb testing.TB, js jetstream.JetStream, top streams.Topology) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	stage, err := worker.New(js, worker.Config{Topology: top})
	if err != nil {
		tb.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- stage.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, streams.ErrRetired) {
			tb.Error(err)
		}
	})
	tb.Cleanup(stop)
	return stop
}

// rebuild builds a generation beside v1.
func rebuild(tb testing.TB, js jetstream.JetStream, top streams.Topology, r replay.Request) {
	tb.Helper()
	if _, err := replay.Start(tb.Context(), js, r); err != nil {
		tb.Fatal(err)
	}
	top.Generation = r.Name
	stop := stageOf(tb, js, top)
	ctx, cancel := context.WithTimeout(tb.Context(), enough)
	defer cancel()
	if err := replay.CatchUp(ctx, js, top); err != nil {
		tb.Fatal(err)
	}
	stop()
}

// writable lets a console change things.
func writable(c *Console) *Console {
	c.config.Write = true
	return c
}

// listed returns the dead letters of a generation.
func listed(tb testing.TB, js jetstream.JetStream, q events.DeadLettersQuery) (list []events.DeadLetter) {
	tb.Helper()
	for l, err := range events.DeadLetters(tb.Context(), js, "v1", q) {
		if err != nil {
			tb.Fatal(err)
		}
		list = append(list, l)
	}
	return list
}

// TestPipelineShowsTheStateOfTheBroker has a worker, an edge with a backlog and dead letters.
func TestPipelineShowsTheStateOfTheBroker(t *testing.T) {
	t.Parallel()
	records := append(pipelinetest.Workload(7, 3, 50), malformed("broken", "{no JSON"))
	c, js, _ := normalized(t, records...)
	edge := streams.Edge{ID: "laptop.0011", Host: "laptop", Version: "<b>1</b>", Files: 3, Behind: 2, Bytes: 5000, Ended: true}
	ctx, cancel := context.WithTimeout(t.Context(), enough)
	defer cancel()
	if err := edge.Report(ctx, js.Conn()); err != nil {
		t.Fatal(err)
	}
	w := get(t, c, "/pipeline")
	requireStatus(t, w, http.StatusOK,
		"edge laptop.0011: ended", "4.9 KiB in 2 files unsent: run tributary ship there", "&lt;b&gt;1&lt;/b&gt;", // a problem with its cure, and the edge
		"Lag by partition", "Lag by edge", `<th scope="row" data-label="Check">rights</th>`, "this user may read everything that is examined",
		`<th scope="row" class="main">EVENTS_v1</th>`, `href="/pipeline/generations/v1"`,
		fmt.Sprintf(`href="/pipeline/letters?generation=v1">%d</a>`, len(listed(t, js, events.DeadLettersQuery{}))), "read-only")
	if strings.Contains(w.Body.String(), "could not be examined") {
		t.Error("something could not be examined")
	}
	requireStatus(t, get(t, c, "/pipeline/generations/v1"), http.StatusOK, fmt.Sprintf("%d of %[1]d", len(records)), ">live</span>")
}

// TestPipelineOfABrokerWithoutStreams says what to do.
func TestPipelineOfABrokerWithoutStreams(t *testing.T) {
	t.Parallel()
	c := newConsole(t, func(cfg *Config) { cfg.JetStream = pipelinetest.NewServer(t).JetStream() })
	for address, status := range map[string]int{"/pipeline": http.StatusOK, "/pipeline/letters": http.StatusNotFound, "/pipeline/diff": http.StatusNotFound, "/pipeline/generations/v1": http.StatusNotFound} {
		requireStatus(t, get(t, c, address), status, "start a worker", "tributary run")
	}
}

// liveEvents opens a stream of events of a console and calls see with each until that returns true.
func liveEvents(t *testing.T, c *Console, address string, see func(name string, value map[string]any) bool) {
	t.Helper()
	server := httptest.NewServer(c)
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), enough)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%d: %s", response.StatusCode, body(t, response))
	}
	lines := bufio.NewReader(response.Body)
	name := ""
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("the stream ends before what is awaited: %v", err)
		}
		line = strings.TrimSuffix(line, "\n")
		if after, ok := strings.CutPrefix(line, "event: "); ok {
			name = after
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			value := map[string]any{}
			if json.Unmarshal([]byte(data), &value) != nil {
				value["value"] = data
			}
			if see(name, value) {
				return
			}
		}
	}
}

// TestPipelineIsLive publishes a record that becomes a dead letter while the page is open.
func TestPipelineIsLive(t *testing.T) {
	t.Parallel()
	c, js, top := normalized(t, pipelinetest.Workload(7, 3, 30)...)
	before := len(listed(t, js, events.DeadLettersQuery{}))
	seen := map[string]bool{}
	published := false
	liveEvents(t, c, "/pipeline/live", func(name string, value map[string]any) bool {
		html, _ := value["html"].(string)
		if name != "section" || strings.Contains(html, "<script") {
			t.Fatalf("%s: %v", name, value)
		}
		section, _ := value["name"].(string)
		seen[section] = true
		if len(seen) == len(pipelineSections) && !published {
			published = true
			publish(t, js, top, malformed("broken", "{no JSON"))
		}
		return section == "generations" && strings.Contains(html, fmt.Sprintf(`href="/pipeline/letters?generation=v1">%d</a>`, before+1))
	})
}

// TestGenerationsAreChangedAfterAConfirmation promotes, rolls back and drops; each page says before what happens.
func TestGenerationsAreChangedAfterAConfirmation(t *testing.T) {
	t.Parallel()
	records := pipelinetest.Workload(7, 3, 60)
	c, js, top := normalized(t, records...)
	rebuild(t, js, top, replay.Request{Name: "b"})
	writable(c)
	requireLive := func(want string) {
		t.Helper()
		if live, err := streams.LiveGeneration(t.Context(), js); err != nil || live != want {
			t.Errorf("live is %s, want %s: %v", live, want, err)
		}
	}
	requireStatus(t, get(t, c, "/pipeline"), http.StatusOK, `href="/pipeline/generations/b/promote"`, `href="/pipeline/generations/b/drop"`, `/pipeline/diff?a=v1&amp;b=b`, ">ready</span>")
	requireStatus(t, get(t, c, "/pipeline/generations/b/promote"), http.StatusOK, "b becomes the live generation", "v1 is retired: it keeps its events", fmt.Sprintf("%d of %[1]d records", len(records)), "Make b live")
	requireLive("v1")

	for name, refused := range map[string]struct {
		address, form string
		status        int
		text          string
	}{
		"another live generation":  {"/pipeline/generations/b/promote", "live=a&state=replaying", http.StatusConflict, "v1 is live"},
		"another state":            {"/pipeline/generations/b/promote", "live=v1&state=retired", http.StatusConflict, "look again"},
		"no form":                  {"/pipeline/generations/b/promote", "", http.StatusConflict, "look again"},
		"an unknown generation":    {"/pipeline/generations/c/promote", "live=v1&state=replaying", http.StatusNotFound, "the broker has b, v1"},
		"no name of a generation":  {"/pipeline/generations/B!/drop", "live=v1&state=replaying", http.StatusNotFound, "there is no such generation"},
		"an unknown step":          {"/pipeline/generations/b/burn", "live=v1&state=replaying", http.StatusNotFound, "no such page"},
		"the live one is dropped":  {"/pipeline/generations/v1/drop", "live=v1&state=live", http.StatusConflict, "promote another generation first"},
		"nothing to roll back":     {"/pipeline/generations/b/rollback", "live=v1&state=replaying", http.StatusConflict, "nothing to roll back"},
		"nothing to go back from":  {"/pipeline/generations/v1/rollback", "live=v1&state=live", http.StatusConflict, "generation is live"},
		"a dead letter of nothing": {"/pipeline/letters/c/0.7/requeue", "", http.StatusNotFound, "no events stream"},
	} {
		t.Log(name)
		requireStatus(t, post(t, c, refused.address, refused.form), refused.status, refused.text)
	}
	requireLive("v1")
	for _, address := range []string{"/pipeline/generations/c", "/pipeline/generations/c/promote", "/pipeline/generations/b/burn"} {
		requireStatus(t, get(t, c, address), http.StatusNotFound)
	}

	w := post(t, c, "/pipeline/generations/b/promote", "live=v1&state=replaying")
	requireStatus(t, w, http.StatusSeeOther)
	requireLive("b")
	requireStatus(t, get(t, c, w.Header().Get("Location")), http.StatusOK, "The generation is live.", "Generation b")
	requireStatus(t, get(t, c, "/pipeline/generations/v1/rollback"), http.StatusOK, "v1 becomes the live generation again", "b is retired")
	requireStatus(t, post(t, c, "/pipeline/generations/v1/rollback", "live=b&state=retired"), http.StatusSeeOther)
	requireLive("v1")
	requireStatus(t, get(t, c, "/pipeline/generations/b/drop"), http.StatusOK, "are removed for good", "The raw records stay", "Remove b for good")
	requireStatus(t, post(t, c, "/pipeline/generations/b/drop", "live=v1&state=retired"), http.StatusSeeOther)
	requireStatus(t, get(t, c, "/pipeline/generations/b"), http.StatusNotFound, "there is no generation b")
	requireStatus(t, post(t, c, "/pipeline/generations/b/drop", "live=v1&state=retired"), http.StatusNotFound)
}

// TestNothingIsChangedWithoutTheRightToWrite: not by a console that only reads, and not by a form of another site.
func TestNothingIsChangedWithoutTheRightToWrite(t *testing.T) {
	t.Parallel()
	c, js, top := normalized(t, malformed("broken", "{no JSON"))
	rebuild(t, js, top, replay.Request{Name: "b"})
	letter := letterPath(&listed(t, js, events.DeadLettersQuery{})[0])
	last := func() uint64 {
		raw, err := js.Stream(t.Context(), streams.RawStream)
		if err != nil {
			t.Fatal(err)
		}
		return raw.CachedInfo().State.LastSeq
	}
	before := last()
	forms := map[string]string{
		"/pipeline/generations/b/promote": "live=v1&state=replaying", "/pipeline/generations/v1/rollback": "live=v1&state=live",
		"/pipeline/generations/b/drop": "live=v1&state=replaying", letter + "/requeue": "",
	}
	for address, form := range forms {
		requireStatus(t, post(t, c, address, form), http.StatusForbidden, "this console only reads", "--write")
	}
	requireStatus(t, get(t, c, letter+"/requeue"), http.StatusOK, "This console only reads")
	writable(c)
	for address, form := range forms {
		requireStatus(t, post(t, c, address, form, func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", "cross-site")
			r.Header.Set("Origin", "https://elsewhere.example")
		}), http.StatusForbidden, "another site")
		requireStatus(t, ask(t, c, httptest.NewRequestWithContext(t.Context(), http.MethodPut, address, http.NoBody)), http.StatusMethodNotAllowed)
	}
	all, err := streams.ReadGenerations(t.Context(), js)
	if err != nil || all.Live != "v1" || len(all.List) != 2 || last() != before {
		t.Errorf("something was changed: %+v, %d records of %d, %v", all, last(), before, err)
	}
}

// TestDeadLettersAreListedAndShown has hostile bytes, which a page shows and does not run.
func TestDeadLettersAreListedAndShown(t *testing.T) {
	t.Parallel()
	hostile := "{\"text\": <script>alert(1)</script>\x1b[31m\u202e\x00\n"
	records := []core.Record{malformed("one", hostile), malformed("two", "[no"), malformed("<i>three</i>", "{no"), {Source: "mystery", Session: "four", Data: []byte("?")}}
	c, js, _ := normalized(t, records...)
	list := listed(t, js, events.DeadLettersQuery{})
	if len(list) != len(records) {
		t.Fatalf("%d dead letters of %d", len(list), len(records))
	}
	for query, rows := range map[string]int{
		"": 4, "?agent=codex": 3, "?agent=mystery": 1, "?session=two": 1, "?reason=malformed": 3, "?reason=none": 0, "?status=settled": 0, "?status=all": 4,
		"?record=2": 1, "?since=1h": 4, "?until=1h": 0, "?partition=0&status=open": -1, "?generation=v1": 4,
	} {
		w := get(t, c, "/pipeline/letters"+query)
		requireStatus(t, w, http.StatusOK)
		if n := strings.Count(w.Body.String(), `<th scope="row" class="main"><a href="/pipeline/letters/v1/`); n != rows && rows >= 0 {
			t.Errorf("%s has %d rows, want %d", query, n, rows)
		}
		if strings.Contains(w.Body.String(), "<i>three") {
			t.Error("a session is markup")
		}
	}
	for query, text := range map[string]string{
		"?status=lost": "there is no such status", "?partition=x": "no number", "?record=-1": "no sequence", "?after=x": "no place", "?after=300.1": "no place",
		"?since=soon": "write a duration", "?reason=" + strings.Repeat("x", 2000): "too long",
	} {
		requireStatus(t, get(t, c, "/pipeline/letters"+query), http.StatusBadRequest, text)
	}
	requireStatus(t, get(t, c, "/pipeline/letters?generation=c"), http.StatusNotFound, "no events stream")

	// Pages of two: every dead letter once.
	address, seen := "/pipeline/letters?limit=2", map[string]bool{}
	for range 2 {
		text := get(t, c, address).Body.String()
		for _, l := range list {
			if strings.Contains(text, `href="`+letterPath(&l)+`"`) {
				if seen[letterPath(&l)] {
					t.Errorf("%s is on two pages", letterPath(&l))
				}
				seen[letterPath(&l)] = true
			}
		}
		_, after, more := strings.Cut(text, `rel="next" href="`)
		address, _, _ = strings.Cut(after, `"`)
		address = "/pipeline/letters" + strings.ReplaceAll(address, "&amp;", "&")
		if more != (len(seen) < len(list)) {
			t.Errorf("%d of %d are seen, more: %v", len(seen), len(list), more)
		}
	}
	if len(seen) != len(list) {
		t.Errorf("%d of %d are seen", len(seen), len(list))
	}

	first := letterPath(&list[slices.IndexFunc(list, func(l events.DeadLetter) bool { return l.Session == "one" })])
	w := get(t, c, first)
	requireStatus(t, w, http.StatusOK, "malformed", "&lt;script&gt;alert(1)&lt;/script&gt;", "Requeue", "<dt>record</dt><dd>1 of stream RAW", "Save all bytes")
	if text := w.Body.String(); strings.ContainsAny(text, "\x1b\x00\u202e") || strings.Contains(text, "<script>alert") {
		t.Error("hostile bytes are in the page")
	}
	raw := get(t, c, first+"/raw")
	requireStatus(t, raw, http.StatusOK)
	if h := raw.Header(); raw.Body.String() != hostile || h.Get("Content-Type") != "application/octet-stream" || !strings.HasPrefix(h.Get("Content-Disposition"), "attachment") ||
		h.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%q, %v", raw.Body, h)
	}
	for _, address := range []string{"/pipeline/letters/v1/0.1", "/pipeline/letters/v1/9.9", "/pipeline/letters/v1/x", "/pipeline/letters/v1/0.0", "/pipeline/letters/V!/0.1", "/pipeline/letters/v1/0.999999999/raw"} {
		requireStatus(t, get(t, c, address), http.StatusNotFound)
	}
}

// TestDeadLetterIsRequeuedOnce: a worker reads the copy, which is a dead letter again, and the first one is settled.
func TestDeadLetterIsRequeuedOnce(t *testing.T) {
	t.Parallel()
	c, js, top := normalized(t, malformed("one", "{no JSON"), core.Record{Source: "mystery", Session: "four", Data: []byte("?")})
	writable(c)
	list := listed(t, js, events.DeadLettersQuery{Source: envelopes.Codex})
	first := letterPath(&list[0])
	requireStatus(t, get(t, c, first+"/requeue"), http.StatusOK, "is published to the raw stream again", "record 1 (8 B, of session one of codex)", `action="`+first+`/requeue"`)
	w := post(t, c, first+"/requeue", "")
	requireStatus(t, w, http.StatusSeeOther)
	requireStatus(t, get(t, c, w.Header().Get("Location")), http.StatusOK, "a worker appends its events")
	ctx, cancel := context.WithTimeout(t.Context(), enough)
	defer cancel()
	if err := replay.CatchUp(ctx, js, top); err != nil {
		t.Fatal(err)
	}
	requireStatus(t, get(t, c, first), http.StatusOK, "it is settled")
	for _, w := range []*httptest.ResponseRecorder{get(t, c, first+"/requeue"), post(t, c, first+"/requeue", "")} {
		requireStatus(t, w, http.StatusConflict, "it is settled")
	}
	if n := len(listed(t, js, events.DeadLettersQuery{Source: envelopes.Codex})); n != 2 {
		t.Errorf("%d dead letters, want 2", n)
	}
	requireStatus(t, get(t, c, "/pipeline/letters?status=settled"), http.StatusOK, `href="`+first+`"`)
	requireStatus(t, post(t, c, "/pipeline/letters/v1/0.999/requeue", ""), http.StatusNotFound)
}

// TestSelectedDeadLettersAreRequeuedTogether: those that the page has counted, and no other.
func TestSelectedDeadLettersAreRequeuedTogether(t *testing.T) {
	t.Parallel()
	c, js, top := normalized(t, malformed("one", "{no"), malformed("one", "{no"), malformed("two", "{no"), core.Record{Source: "mystery", Session: "four", Data: []byte("?")})
	writable(c)
	w := get(t, c, "/pipeline/letters?session=one&since=1h")
	_, after, _ := strings.Cut(w.Body.String(), `href="/pipeline/letters/requeue?`)
	query, _, found := strings.Cut(after, `"`)
	if !found {
		t.Fatalf("no link to requeue all: %s", w.Body)
	}
	asked := get(t, c, "/pipeline/letters/requeue?"+html.UnescapeString(query))
	requireStatus(t, asked, http.StatusOK, "The records of 2 dead letters of generation v1 are published", "malformed of codex: 2 records", "Requeue 2 records")
	form := url.Values{}
	for _, field := range hidden.FindAllStringSubmatch(asked.Body.String(), -1) {
		form.Set(field[1], html.UnescapeString(field[2]))
	}
	publish(t, js, top, malformed("one", "{later")) // which nobody has confirmed
	requireStatus(t, post(t, c, "/pipeline/letters/requeue", form.Encode()), http.StatusOK, `<th scope="row">requeued</th><td class="num">2</td>`)
	ctx, cancel := context.WithTimeout(t.Context(), enough)
	defer cancel()
	if err := replay.CatchUp(ctx, js, top); err != nil {
		t.Fatal(err)
	}
	if n := len(listed(t, js, events.DeadLettersQuery{Session: "one", Standing: core.StandingSettled})); n != 2 {
		t.Errorf("%d are settled, want 2", n)
	}
	requireStatus(t, post(t, c, "/pipeline/letters/requeue", form.Encode()), http.StatusOK, "settled or purged meanwhile")
	for _, query := range []string{"agent=mystery&status=settled", "session=nosuch"} {
		requireStatus(t, get(t, c, "/pipeline/letters/requeue?"+query), http.StatusConflict, "no dead letter that is selected can be requeued")
	}
	requireStatus(t, post(t, c, "/pipeline/letters/requeue", "generation=v1&through=x"), http.StatusBadRequest, "up to which dead letter")
	c.config.Write = false
	requireStatus(t, post(t, c, "/pipeline/letters/requeue", form.Encode()), http.StatusForbidden, "this console only reads")
}

// hidden matches a field of a confirmation.
var hidden = regexp.MustCompile(`<input type="hidden" name="([a-z]+)" value="([^"]*)">`)

// TestGenerationsAreCompared by a page without a script, and by one with a script, which shows how far it is.
func TestGenerationsAreCompared(t *testing.T) {
	t.Parallel()
	c, js, top := normalized(t, samples(t)...)
	rebuild(t, js, top, replay.Request{Name: "same"})
	rebuild(t, js, top, replay.Request{Name: "shapes", Settings: streams.Settings{ToolMetadata: core.ProfileCurrent}})
	requireStatus(t, get(t, c, "/pipeline/diff?a=v1&b=same&run=1"), http.StatusOK, "Nothing differs.")
	requireStatus(t, get(t, c, "/pipeline/diff?a=v1&b=shapes"), http.StatusOK, "<option selected>shapes</option>", "One comparison runs at a time")
	differs := []string{"By agent and type", "Changed fields", "tool_metadata", "Examples", "before: "}
	requireStatus(t, get(t, c, "/pipeline/diff?a=v1&b=shapes&run=1"), http.StatusOK, differs...)
	requireStatus(t, get(t, c, "/pipeline/diff?a=v1&b=shapes&ignore=tool_metadata&run=1"), http.StatusOK, "Nothing differs.")
	requireStatus(t, get(t, c, "/pipeline/diff?a=v1&b=shapes&session=nosuch&run=1"), http.StatusOK, "Nothing was compared")
	requireStatus(t, get(t, c, "/pipeline/diff?a=v1&b=nosuch&run=1"), http.StatusNotFound, "the broker has same, shapes, v1")
	requireStatus(t, get(t, c, "/pipeline/diff?a=v1&b=shapes&ignore=x"), http.StatusBadRequest, "ignore names no field")
	requireStatus(t, get(t, c, "/pipeline/diff/live?a=v1"), http.StatusBadRequest, "choose both")

	liveEvents(t, c, "/pipeline/diff/live?a=v1&b=shapes&agent=claude_code", func(name string, value map[string]any) bool {
		if name == "problem" {
			t.Fatal(value)
		}
		html, _ := value["html"].(string)
		return name == "result" && strings.Contains(html, "tool_metadata")
	})
}

// TestOneRequestReadsForAll has requests that arrive while another one reads: they wait, and get what it has read.
func TestOneRequestReadsForAll(t *testing.T) {
	t.Parallel()
	s := newShared[int]()
	reading, release, waits := make(chan struct{}), make(chan struct{}), make(chan struct{})
	reads := 0 // changed by the request that reads; the others wait
	read := func(context.Context) (int, error) {
		if reads++; reads == 1 {
			close(reading)
			<-release
		}
		return reads, nil
	}
	results := make(chan int, 2)
	var asking sync.WaitGroup
	ask := func(waiting func()) {
		value, err := s.get(t.Context(), "a b", time.Hour, waiting, read)
		if err != nil {
			t.Error(err)
		}
		results <- value
	}
	asking.Go(func() { ask(func() { t.Error("the first one waits") }) })
	<-reading
	asking.Go(func() { ask(func() { close(waits) }) })
	<-waits
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.get(gone, "a b", time.Hour, nil, read); !errors.Is(err, context.Canceled) {
		t.Errorf("a request that is gone: %v", err)
	}
	close(release)
	asking.Wait()
	if a, b := <-results, <-results; a != 1 || b != 1 || reads != 1 {
		t.Errorf("%d and %d, read %d times", a, b, reads)
	}
	if other, err := s.get(t.Context(), "a c", time.Hour, nil, read); err != nil || other != 2 {
		t.Errorf("another key: %d, %v", other, err)
	}
	s.forget()
	if again, err := s.get(t.Context(), "a c", time.Hour, nil, read); err != nil || again != 3 {
		t.Errorf("after a change: %d, %v", again, err)
	}
	failed := errors.New("failed")
	if _, err := s.get(t.Context(), "a d", time.Hour, nil, func(context.Context) (int, error) { return 0, failed }); !errors.Is(err, failed) {
		t.Error(err)
	}
	if again, err := s.get(t.Context(), "a d", time.Hour, nil, read); err != nil || again != 4 {
		t.Errorf("after a failure: %d, %v", again, err)
	}
}

// TestRightsThatAreMissingAreNamed has a user who may neither read the edges nor change generations.
func TestRightsThatAreMissingAreNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "nats.conf")
	if err := os.WriteFile(file, []byte(`
listen: "127.0.0.1:-1"
jetstream { store_dir: "`+dir+`" }
accounts { APP {
  jetstream: enabled
  users: [
    { user: all, password: a }
    { user: some, password: b, permissions: { publish: { deny: [
      "$JS.API.STREAM.INFO.KV_TRIBUTARY_EDGES", "$JS.API.DIRECT.GET.KV_TRIBUTARY_EDGES", "$KV.TRIBUTARY.>", "raw.>"
    ] } } }
    { user: few, password: c, permissions: { publish: { deny: ["$JS.API.CONSUMER.>", "$JS.API.STREAM.INFO.EVENTS_v1"] } } }
  ] } }
`), 0o600); err != nil {
		t.Fatal(err)
	}
	url := pipelinetest.StartConfigured(t, file).ClientURL()
	as := func(user, password string, denials *rights.Denials) jetstream.JetStream {
		nc, err := nats.Connect(url, nats.UserInfo(user, password), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if d, ok := rights.Of(err); ok && denials != nil {
				denials.Note(d)
			}
		}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(2*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		return js
	}
	js := as("all", "a", nil)
	top := streams.Topology{Generation: "v1", Partitions: 2}
	if err := streams.Provision(t.Context(), js, top); err != nil {
		t.Fatal(err)
	}
	stageOf(t, js, top)
	publish(t, js, top, malformed("one", "{no JSON"))
	rebuild(t, js, top, replay.Request{Name: "b"})
	letter := letterPath(&listed(t, js, events.DeadLettersQuery{})[0])
	of := func(user, password string) *Console {
		denials := new(rights.Denials)
		return newConsole(t, func(cfg *Config) { cfg.JetStream, cfg.Denials, cfg.Write = as(user, password, denials), denials, true })
	}

	some := of("some", "b")
	requireStatus(t, get(t, some, "/pipeline"), http.StatusOK, "this user may not read the edges", "in the permissions of this user at the broker", "Lag by partition")
	requireStatus(t, post(t, some, "/pipeline/generations/b/promote", "live=v1&state=replaying"), http.StatusForbidden, "publish to $KV.TRIBUTARY.", "in the permissions of this user at the broker")
	requireStatus(t, post(t, some, letter+"/requeue", ""), http.StatusForbidden, "publish to raw.codex.one", "raw.*.*")
	if live, err := streams.LiveGeneration(t.Context(), js); err != nil || live != "v1" {
		t.Errorf("live is %s: %v", live, err)
	}
	few := of("few", "c")
	requireStatus(t, get(t, few, "/pipeline/letters"), http.StatusForbidden, "$JS.API.STREAM.INFO.EVENTS_v1", "in the permissions of this user at the broker")
	requireStatus(t, get(t, few, "/pipeline"), http.StatusOK, "the broker denies to publish to $JS.API.STREAM.INFO.EVENTS_v1")
}
