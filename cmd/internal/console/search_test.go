package console

import (
	"bufio"
	"context"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"tributary/normalizers/core"
	"tributary/pipeline/pipelinetest"
)

// breakingOut is a session that tries to break out of the page of a search.
func breakingOut() []core.Record {
	inMain := map[string]any{"gitBranch": "main", "cwd": "/src/shop"}
	return []core.Record{
		claude("out", "user", 0, prompt("why does <script>alert('needle')</script> \u202eevil\x1b[31m not break the page?"), inMain),
		claude("out", "assistant", 1, answer(1, toolUse("t1", "Bash", map[string]any{"command": `grep "a needle" café.txt`})), inMain),
		claude("out", "user", 2, result("t1", "no <b>needle</b> in café.txt", true), inMain),
	}
}

var moreLink = regexp.MustCompile(`href="([^"]*)" id="more"`)

func TestSearchShowsHitsAndWhatIsLeft(t *testing.T) {
	t.Parallel()
	c, js, top := normalized(t, pipelinetest.Workload(3, 10, 600)...)
	c.limits.Search = time.Minute
	publish(t, js, top, breakingOut()...)

	w := get(t, c, "/search")
	requireStatus(t, w, http.StatusOK, `name="q"`, "Search prompts")
	page := get(t, c, "/search?q=needle").Body.String()
	for _, text := range []string{
		"3 hits", "Everything was searched", `&lt;script&gt;alert(&#39;<mark>needle</mark>&#39;)`, "�evil not break", `grep &#34;a <mark>needle</mark>&#34; café.txt`,
		`href="/sessions/claude_code/out/events/u0"`, `<span class="badge bad">failed</span>`, "why does &lt;script&gt;",
	} {
		if !strings.Contains(page, text) {
			t.Errorf("no %q in the page", text)
		}
	}
	c.index.Await(t.Context())
	page = get(t, c, "/search?q=why+needle").Body.String()
	requireIn(t, "titles", page, `Sessions with this title`, `<li><a href="/sessions/claude_code/out">why does &lt;script&gt;`)
	if strings.Contains(page, "<script>alert") || strings.Contains(page, "\x1b") || strings.Contains(page, "\u202e") {
		t.Error("the page has markup of the log")
	}
	page = get(t, c, "/search?q=needle").Body.String()
	if strings.Index(page, "/u0\"") < strings.Index(page, "/u2\"") {
		t.Error("the older hit is before the newer one")
	}
	for query, hits := range map[string]string{
		`q="a+needle"+café`:          "1 hit<",
		"q=needle&type=user_message": "1 hit<",
		"q=needle&tool=bash":         "2 hits",
		"q=needle&project=shop":      "3 hits",
		"q=needle&project=other":     "0 hits",
		"q=needle&branch=main":       "3 hits",
		"q=needle&repo=x":            "0 hits",
		"q=needle&source=codex":      "0 hits",
		"q=needle&since=2026-03-09T09:00:01Z&until=2026-03-09T09:00:02Z": "1 hit<",
		"q=claude-opus-4-5":                     "0 hits",
		"q=stream&type=meta&type=file_snapshot": "0 hits",
	} {
		requireStatus(t, get(t, c, "/search?"+strings.ReplaceAll(query, `"`, "%22")), http.StatusOK, hits)
	}
	for query, text := range map[string]string{
		"q=%22%22": "nothing to search for", "q=" + strings.Repeat("x+", 20): "too long", "q=x&type=y": "no type", "q=x&before=y": "no place",
		"q=" + strings.Repeat("x", 1100): "too long",
	} {
		requireStatus(t, get(t, c, "/search?"+query), http.StatusBadRequest, text)
	}

	want := strings.Count(allHits(t, c, "/search?q=stream"), "data-key=")
	if live := hitsOf(t, c, "/search/hits?q=stream"); live != searchHits || want <= 2*searchHits {
		t.Errorf("%d hits in a live stream, %d in pages", live, want)
	}
	requireStatus(t, get(t, c, "/search?q=needle&before=v0.5"), http.StatusOK, "3 hits", "begun anew")
}

// allHits returns the pages of a search, each of which goes on from the one before.
func allHits(t *testing.T, c *Console, address string) string {
	t.Helper()
	var all strings.Builder
	for range 100 {
		page := get(t, c, address).Body.String()
		all.WriteString(page)
		more := moreLink.FindStringSubmatch(page)
		if more == nil {
			if !strings.Contains(page, "Everything was searched") {
				t.Errorf("the last page does not say so: %s", page)
			}
			return all.String()
		}
		address = html.UnescapeString(more[1])
	}
	t.Fatal("the search has no end")
	return ""
}

// hitsOf counts the hits of a live stream up to its end.
func hitsOf(t *testing.T, c *Console, address string) (hits int) {
	t.Helper()
	server := httptest.NewServer(c)
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	for lines := bufio.NewScanner(io.LimitReader(response.Body, 10<<20)); lines.Scan(); {
		switch lines.Text() {
		case "event: hit":
			hits++
		case "event: end":
			return hits
		case "event: problem":
			t.Fatal("the search has failed")
		}
	}
	t.Fatal("the stream has no end")
	return 0
}

// TestTooManySearchesAreRefused has another search take the only place.
func TestTooManySearchesAreRefused(t *testing.T) {
	t.Parallel()
	c := newConsole(t, func(cfg *Config) { cfg.Limits.Searches, cfg.Limits.Search = 1, time.Minute })
	if err := c.searches.Acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	requireStatus(t, get(t, c, "/search?q=x"), http.StatusServiceUnavailable, "as many searches run as may")
	c.searches.Release()
	requireStatus(t, get(t, c, "/search?q=x"), http.StatusOK, "0 hits")
}
