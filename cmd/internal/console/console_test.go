package console

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/streams"
)

func TestMain(m *testing.M) {
	if code, is := pipelinetest.RunProgram(nil); is {
		os.Exit(code)
	}
	pipelinetest.Configure()
	goleak.VerifyTestMain(m, pipelinetest.ServerLeaks()...)
}

// newConsole returns a console over a broker that has streams and no record. change may change its settings.
func newConsole(tb testing.TB, change ...func(*Config)) *Console {
	tb.Helper()
	js := pipelinetest.NewServer(tb).Provision(streams.DefaultTopology())
	cfg := Config{JetStream: js, Zone: time.UTC, Logger: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&cfg)
	}
	c, err := New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Close)
	return c
}

// get asks a console for an address.
func get(tb testing.TB, c http.Handler, address string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	tb.Helper()
	return ask(tb, c, httptest.NewRequestWithContext(tb.Context(), http.MethodGet, address, http.NoBody), change...)
}

// post sends a form to a console, as a page of it does.
func post(tb testing.TB, c http.Handler, address, form string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	tb.Helper()
	r := httptest.NewRequestWithContext(tb.Context(), http.MethodPost, address, strings.NewReader(form))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	return ask(tb, c, r, change...)
}

func ask(tb testing.TB, c http.Handler, r *http.Request, change ...func(*http.Request)) *httptest.ResponseRecorder {
	tb.Helper()
	r.Host = "localhost:8423"
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	return w
}

// requireStatus checks the status of an answer and some texts in it.
func requireStatus(tb testing.TB, w *httptest.ResponseRecorder, status int, texts ...string) {
	tb.Helper()
	if w.Code != status {
		tb.Errorf("status %d, want %d: %.300s", w.Code, status, w.Body)
	}
	for _, text := range texts {
		if !strings.Contains(w.Body.String(), text) {
			tb.Errorf("no %q in %.2000s", text, w.Body)
		}
	}
}

func TestEveryViewHasAPage(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	for _, v := range views {
		w := get(t, c, v.Path+"?since=7d&source=codex")
		requireStatus(t, w, http.StatusOK, `<html lang="en">`, `href="`+v.Path+`?since=7d&amp;source=codex" aria-current="page">`+v.Name, "read-only")
	}
}

func TestAssetsOfPagesExistAndAreKept(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	page := get(t, c, "/").Body.String()
	found := 0
	for part := range strings.SplitSeq(page, `"`) {
		if !strings.HasPrefix(part, assetsPath) {
			continue
		}
		found++
		w := get(t, c, part)
		requireStatus(t, w, http.StatusOK)
		if w.Header().Get("Content-Type") == "application/octet-stream" || !strings.Contains(w.Header().Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %v", part, w.Header())
		}
	}
	if found < 3 {
		t.Errorf("%d assets", found)
	}
	own := 0
	for name, data := range c.assets.files {
		if !strings.HasPrefix(name, "vendor/") {
			own += len(data)
		}
	}
	if own > 250_000 {
		t.Errorf("the assets have %d bytes", own)
	}
}

// TestTemplatesNeedNothingInline: the policy of the page forbids what would not work without it.
func TestTemplatesNeedNothingInline(t *testing.T) {
	t.Parallel()
	files, err := templateFiles.ReadDir("templates")
	if err != nil || len(files) < len(views) {
		t.Fatal(len(files), err)
	}
	for _, f := range files {
		text, err := templateFiles.ReadFile("templates/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, inline := range []string{"<style", " style=", " onclick=", " onload=", "javascript:", "<script>", "http://", "https://", "<iframe"} {
			if strings.Contains(string(text), inline) {
				t.Errorf("%s has %q", f.Name(), inline)
			}
		}
	}
	for name, data := range newConsole(t).assets.files {
		if !strings.HasPrefix(name, "vendor/") && strings.Contains(strings.ReplaceAll(string(data), "http://www.w3.org/", ""), "://") {
			t.Errorf("%s names another host", name)
		}
	}
}

func TestIDsOfAnyBytesHavePaths(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"a", "..", ".", "../..", "a/b", "~x", "%2e", "\x00\x1b[31m", "späß", "a?b#c", strings.Repeat("long", 100), "a.b", ":", "\u202e"} {
		segment := pathID(id)
		for _, c := range segment {
			if !strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.:~", c) {
				t.Errorf("the path of %q is %q", id, segment)
			}
		}
		if segment == "." || segment == ".." {
			t.Errorf("the path of %q is %q", id, segment)
		}
		if back, ok := parsePathID(segment); !ok || back != id {
			t.Errorf("%q is %q in a path, and %q again", id, segment, back)
		}
	}
	for _, wrong := range []string{"", "~", "~!", "\xff", "~_w"} {
		if id, ok := parsePathID(wrong); ok {
			t.Errorf("%q is the path of %q", wrong, id)
		}
	}
}

func TestFilterIsPrintedAsItIsRead(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	const query = "?branch=main&host=h&model=gpt-5&project=%2Fsrc&repo=r&since=7d&source=codex&tz=Europe%2FBerlin&until=2026-03-09&user=u"
	now := time.Date(2026, 3, 10, 0, 0, 0, 0, time.UTC)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/"+query, http.NoBody)
	f, err := parseFilter(r.URL.Query(), now, time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	if f.Query() != query {
		t.Errorf("%s is printed as %s", query, f.Query())
	}
	if want := time.Date(2026, 3, 8, 23, 0, 0, 0, time.UTC); !f.To.Equal(want) {
		t.Errorf("until is %v, want %v", f.To, want)
	}
	if want := now.Add(-7 * 24 * time.Hour); !f.From.Equal(want) {
		t.Errorf("since is %v, want %v", f.From, want)
	}
	for query, text := range map[string]string{
		"since=soon": "write a duration such as 24h or 7d", "until=x": "until", "tz=Mars": "tz names no time zone", "source=x": "source names no agent",
		"user=%ff": "user cannot be read", "repo=" + strings.Repeat("x", 2000): "repo cannot be read",
	} {
		requireStatus(t, get(t, c, "/sessions?"+query), http.StatusBadRequest, text)
	}
}

func TestPagesOfAList(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	of := func(query string) (*request, paging, error) {
		r, err := c.newRequest(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/sessions"+query, http.NoBody))
		if err != nil {
			t.Fatal(err)
		}
		p, err := r.paging(50, 200)
		return r, p, err
	}
	r, p, err := of("?source=codex&sort=cost")
	if err != nil || p != (paging{Limit: 50}) {
		t.Errorf("%+v, %v", p, err)
	}
	if links := r.pager(p, "17"); links != (pager{Next: "?after=17&sort=cost&source=codex"}) {
		t.Errorf("%+v", links)
	}
	r, p, err = of("?after=17&limit=1000&sort=cost")
	if err != nil || p != (paging{Limit: 200, After: "17"}) {
		t.Errorf("%+v, %v", p, err)
	}
	if links := r.pager(p, ""); links != (pager{First: "?limit=1000&sort=cost"}) {
		t.Errorf("%+v", links)
	}
	if _, _, err := of("?limit=-1"); err == nil {
		t.Error("a limit of -1 is taken")
	}
}

func TestEveryFunctionOfTemplatesTakesWhatIsUsed(t *testing.T) {
	t.Parallel()
	f := functions(&assets{})
	number := f["number"].(func(any) string)
	for _, n := range []any{1234, int64(1234), uint64(1234), int32(1234), uint32(1234)} {
		if number(n) != "1,234" {
			t.Errorf("%T is %s", n, number(n))
		}
	}
	at := time.Date(2026, 3, 9, 9, 14, 5, 0, time.FixedZone("", 3600))
	if got := when(at); got != `<time datetime="2026-03-09T09:14:05+01:00" title="2026-03-09 09:14:05.000 +01:00">2026-03-09 09:14:05</time>` {
		t.Errorf("%s", got)
	}
	if got := ago(at, at.Add(3*time.Hour)); !strings.Contains(string(got), ">3 h ago<") {
		t.Errorf("%s", got)
	}
	if got := f["line"].(func(any) string)("a\x1b[31mb\u202ec\nd"); got != "ab\ufffdc d" {
		t.Errorf("%q", got)
	}
}

// body reads an answer to its end.
func body(tb testing.TB, response *http.Response) string {
	tb.Helper()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return string(data)
}

// TestBrokerIsAway: every view says that the broker is away, and when to try again.
func TestBrokerIsAway(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	c, err := New(Config{JetStream: server.Provision(streams.DefaultTopology()), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	away := c.config.JetStream.Conn().StatusChanged(nats.RECONNECTING)
	server.Stop()
	select {
	case <-away:
	case <-time.After(end):
		t.Fatal("the connection is not lost")
	}
	for _, path := range []string{"/", "/sessions/codex/one", "/search?q=x", "/tools", "/pipeline"} {
		w := get(t, c, path)
		if requireStatus(t, w, http.StatusServiceUnavailable, "the connection to the broker is lost"); w.Header().Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After", path)
		}
	}
}

// TestAConsoleIsOpenedByItsFirstPage asks for an asset, which is none, and for a page.
func TestAConsoleIsOpenedByItsFirstPage(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	requireStatus(t, get(t, c, assetsPath+"none/none.css"), http.StatusNotFound)
	if c.Opened() {
		t.Error("an asset has opened the console")
	}
	requireStatus(t, get(t, c, "/search"), http.StatusOK)
	if !c.Opened() {
		t.Error("a page has not opened the console")
	}
}
