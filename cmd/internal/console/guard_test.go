package console

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// end is how long a test waits for what must happen.
const end = 60 * time.Second

// header returns a change of a request: a header.
func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func host(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }

func from(address string) func(*http.Request) {
	return func(r *http.Request) { r.RemoteAddr = address }
}

// serve serves a console at an address of its own until the end of the test.
func serve(t *testing.T, c *Console, change ...func(*http.Server)) (address string) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := c.server()
	for _, f := range change {
		f(server)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	go func() { served <- c.serve(ctx, listener, server) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

// dial opens a connection, which ends with the test, and writes a request.
func dial(t *testing.T, address, request string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(end)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

// extra are routes of tests: one of each kind.
func extra(answer func(*request) error) []route {
	return append(routes(), route{"GET /extra", answer, reads}, route{"POST /extra", answer, writes}, route{"GET /extra/live", answer, live})
}

// assembled is [newConsole] with the routes of tests.
func assembled(t *testing.T, answer func(*request) error, change ...func(*Config)) *Console {
	t.Helper()
	cfg := newConsole(t).config
	for _, c := range change {
		c(&cfg)
	}
	c, err := assemble(cfg, extra(answer))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestForeignHostsAreRefused(t *testing.T) {
	t.Parallel()
	c := newConsole(t, func(c *Config) { c.Guard.Hosts = []string{"console.example"} })
	open := newConsole(t, func(c *Config) { c.Guard.Addresses = true })
	for _, h := range []string{"localhost", "localhost:1", "LOCALHOST.:8423", "127.0.0.1", "127.9.9.9:8423", "[::1]:8423", "[::ffff:127.0.0.1]:1", "Console.Example:443"} {
		requireStatus(t, get(t, c, "/", host(h)), http.StatusOK)
	}
	for _, h := range []string{"evil.example", "localhost.evil.example:8423", "192.0.2.7:8423", "", "127.0.0.1.evil.example", "notlocalhost", "[::2]", "console.example.evil"} {
		for _, path := range []string{"/", "/login", c.assets.address("app.js"), "/extra"} {
			requireStatus(t, get(t, c, path, host(h)), http.StatusMisdirectedRequest, "this console does not answer under this name")
		}
		requireStatus(t, post(t, c, "/login", "token=x", host(h)), http.StatusMisdirectedRequest)
	}
	requireStatus(t, get(t, open, "/", host("192.0.2.7:8423")), http.StatusOK)
	requireStatus(t, get(t, open, "/", host("evil.example")), http.StatusMisdirectedRequest)
}

func TestPagesOfOtherSitesAreRefused(t *testing.T) {
	t.Parallel()
	called := 0
	c := assembled(t, func(*request) error { called++; return nil }, func(c *Config) { c.Write = true })
	for name, change := range map[string]func(*http.Request){
		"of another site":    header("Sec-Fetch-Site", "cross-site"),
		"of a sibling":       header("Sec-Fetch-Site", "same-site"),
		"of an old browser":  func(r *http.Request) { r.Header.Del("Sec-Fetch-Site"); r.Header.Set("Origin", "http://evil.example") },
		"of an other port":   func(r *http.Request) { r.Header.Del("Sec-Fetch-Site"); r.Header.Set("Origin", "http://localhost:9999") },
		"of a hidden origin": func(r *http.Request) { r.Header.Del("Sec-Fetch-Site"); r.Header.Set("Origin", "null") },
	} {
		w := post(t, c, "/extra", "a=b", change)
		if w.Code != http.StatusForbidden || called != 0 {
			t.Errorf("%s: status %d, %d calls", name, w.Code, called)
		}
	}
	requireStatus(t, get(t, c, "/extra", header("Sec-Fetch-Site", "cross-site"), header("Sec-Fetch-Dest", "image")), http.StatusForbidden)
	requireStatus(t, get(t, c, "/extra", header("Sec-Fetch-Site", "cross-site"), header("Sec-Fetch-Dest", "iframe")), http.StatusForbidden)
	if called != 0 {
		t.Errorf("%d calls", called)
	}
	requireStatus(t, post(t, c, "/extra", "a=b"), http.StatusOK)
	requireStatus(t, get(t, c, "/extra", header("Sec-Fetch-Site", "cross-site"), header("Sec-Fetch-Dest", "document")), http.StatusOK) // a link
	if called != 2 {
		t.Errorf("%d calls", called)
	}
}

// TestOnlyAConsoleThatMayWritesWrites also holds for the routes of the views: all that take a form write.
func TestOnlyAConsoleThatMayWriteWrites(t *testing.T) {
	t.Parallel()
	called := 0
	count := func(*request) error { called++; return nil }
	c := assembled(t, count)
	for _, route := range extra(count) {
		method, path, _ := strings.Cut(route.pattern, " ")
		if (method == http.MethodPost) != (route.kind == writes) || method != http.MethodGet && method != http.MethodPost {
			t.Errorf("%s has the kind %d", route.pattern, route.kind)
		}
		if route.kind == writes {
			path = strings.NewReplacer("{source}", "codex", "{session}", "s", "{", "", "}", "").Replace(path)
			requireStatus(t, post(t, c, path, "a=b"), http.StatusForbidden, "this console only reads", "start it with --write")
		}
	}
	if called != 0 {
		t.Errorf("%d calls", called)
	}
}

func TestNothingOutsideIsServed(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	address := serve(t, c)
	base := assetsPath + c.assets.digest
	for _, path := range []string{
		base + "/../console.go", base + "/..%2fconsole.go", base + "/%2e%2e/%2e%2e/etc/passwd", base + "//etc/passwd", base + "/", assetsPath + "x/app.js",
		base + "/app.js%00", "/../../etc/passwd", "/templates/layout.html", "/static", "/.env", "/%2fevil.example", "/sessions/codex", "//evil.example/..", "/\\evil.example",
	} {
		_, r := dial(t, address, "GET "+path+" HTTP/1.1\r\nHost: "+address+"\r\nConnection: close\r\n\r\n")
		response, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		text := body(t, response)
		to, err := response.Location() // the mux sends an address that is not clean to the clean one
		moved := err == nil && to.Host == "" && strings.HasPrefix(to.Path, "/") && !strings.HasPrefix(to.Path, "//")
		if response.StatusCode != http.StatusNotFound && response.StatusCode != http.StatusBadRequest && !moved {
			t.Errorf("%s: status %d: %.200s", path, response.StatusCode, text)
		}
		if strings.Contains(text, "package console") || strings.Contains(text, "root:") || strings.Contains(text, "{{define") {
			t.Errorf("%s: %.200s", path, text)
		}
		_ = response.Body.Close()
	}
	requireStatus(t, post(t, c, "/sessions", ""), http.StatusMethodNotAllowed)
	requireStatus(t, ask(t, c, httptest.NewRequestWithContext(t.Context(), http.MethodDelete, "/sessions", http.NoBody), header("Sec-Fetch-Site", "same-origin")), http.StatusMethodNotAllowed)
}

// TestSessionsOfAnyBytes: an id of an address that can be none is no session, whatever its bytes are.
func TestSessionsOfAnyBytes(t *testing.T) {
	t.Parallel()
	var asked []string
	c := assembled(t, func(*request) error { return nil })
	c.mux.HandleFunc("GET /ids/{source}/{session}", func(w http.ResponseWriter, r *http.Request) {
		id, err := (&request{Console: c, Request: r, w: w}).sessionID()
		asked = append(asked, id.Session)
		c.fail(w, r, err)
	})
	for _, segment := range []string{"%ff%fe", "~", "~%21", "~_w", "~/"} {
		w := get(t, c, "/ids/codex/"+segment)
		requireStatus(t, w, http.StatusNotFound)
	}
	for _, id := range []string{"..", "a/b", "\x00\x1b]0;x\x07", "<script>alert(1)</script>", "\u202e.>*", "%2e%2e", strings.Repeat("ä", 2000)} {
		asked = nil
		requireStatus(t, get(t, c, "/ids/codex/"+pathID(id)), http.StatusOK)
		if len(asked) != 1 || asked[0] != id {
			t.Errorf("%q is asked for as %q", id, asked)
		}
	}
	w := get(t, c, "/ids/codex/"+url.PathEscape("<script>alert(1)</script>")+"/x")
	if requireStatus(t, w, http.StatusNotFound); strings.Contains(w.Body.String(), "<script>alert") {
		t.Error("the page has the script of the address")
	}
}

const token = "a token of the tests"

func withToken(c *Config) { c.Guard.Token = token }

func TestTokenIsAskedFor(t *testing.T) {
	t.Parallel()
	called := 0
	c := assembled(t, func(*request) error { called++; return nil }, withToken, func(c *Config) { c.Write = true })
	for _, path := range []string{"/", "/sessions?since=7d", "/extra", "/extra/live", "/nothing", "/extra?token=", "/extra?token=wrong", "/extra?token=" + token[1:]} {
		requireStatus(t, get(t, c, strings.ReplaceAll(path, " ", "+")), http.StatusUnauthorized, "This console asks for its token")
	}
	requireStatus(t, post(t, c, "/extra?token="+url.QueryEscape(token), "token="+url.QueryEscape(token)), http.StatusUnauthorized)
	for _, cookie := range []http.Cookie{{Name: c.guard.cookie, Value: "wrong"}, {Name: c.guard.cookie, Value: token}, {Name: "tributary", Value: c.guard.credential}} {
		requireStatus(t, get(t, c, "/extra", func(r *http.Request) { r.AddCookie(&cookie) }), http.StatusUnauthorized)
	}
	if called != 0 {
		t.Errorf("%d calls", called)
	}
	requireStatus(t, get(t, c, c.assets.address("app.css")), http.StatusOK) // of the form
}

func TestTokenLetsIn(t *testing.T) {
	t.Parallel()
	c := assembled(t, func(*request) error { return nil }, withToken)
	enter := map[string]*httptest.ResponseRecorder{
		"/extra?since=7d": get(t, c, "/extra?since=7d&token="+url.QueryEscape(token)),
		"/sessions":       post(t, c, "/login", url.Values{"token": {token}, "to": {"/sessions"}}.Encode()),
	}
	for to, w := range enter {
		requireStatus(t, w, http.StatusSeeOther)
		if got := w.Header().Get("Location"); got != to {
			t.Errorf("goes on to %s, want %s", got, to)
		}
		cookies := w.Result().Cookies() //nolint:bodyclose // of a recorder
		if len(cookies) != 1 || !cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteLaxMode || strings.Contains(cookies[0].Value, token) {
			t.Fatalf("the cookies are %v", cookies)
		}
		requireStatus(t, get(t, c, "/extra", func(r *http.Request) { r.AddCookie(cookies[0]) }), http.StatusOK)
	}
	requireStatus(t, get(t, c, "/login?to=/tools"), http.StatusOK, `value="/tools"`)
	requireStatus(t, post(t, c, "/login", "token=wrong&to=/tools"), http.StatusUnauthorized, "this is not the token", `value="/tools"`)
	other := newConsole(t, func(c *Config) { c.Guard.Token = token + "2" })
	if other.guard.cookie == c.guard.cookie {
		t.Error("consoles with two tokens have one cookie")
	}
	if _, err := New(Config{JetStream: c.config.JetStream, Logger: c.config.Logger, Guard: Guard{Token: "short"}}); err == nil || strings.Contains(err.Error(), "short\"") {
		t.Errorf("a short token: %v", err)
	}
	tls := newConsole(t, withToken, func(c *Config) { c.Guard.TLS = true })
	if cookies := get(t, tls, "/?token="+url.QueryEscape(token)).Result().Cookies(); len(cookies) != 1 || !cookies[0].Secure { //nolint:bodyclose // of a recorder
		t.Errorf("the cookies are %v", cookies)
	}
}

// TestLoginLeadsNowhereElse: an address that a page of another site made does not lead there.
func TestLoginLeadsNowhereElse(t *testing.T) {
	t.Parallel()
	c := newConsole(t, withToken)
	for _, to := range []string{"//evil.example", "https://evil.example", `/\evil.example`, "/\t/evil.example", "\\\\evil.example", "javascript:alert(1)"} {
		w := post(t, c, "/login", url.Values{"token": {token}, "to": {to}}.Encode())
		u, err := url.Parse(w.Header().Get("Location"))
		if w.Code != http.StatusSeeOther || err != nil || u.Host != "" || !strings.HasPrefix(u.Path, "/") || strings.HasPrefix(w.Header().Get("Location"), "//") {
			t.Errorf("%q leads to %q, %v", to, w.Header().Get("Location"), err)
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/?token="+url.QueryEscape(token), http.NoBody)
	r.URL.Path = "//evil.example/"
	if w := ask(t, c, r); w.Header().Get("Location") != "/evil.example/" {
		t.Errorf("leads to %q", w.Header().Get("Location"))
	}
}

func TestProxyNamesItsUser(t *testing.T) {
	t.Parallel()
	var user string
	answer := func(r *request) error {
		user = userOf(r.Request)
		return nil
	}
	c := assembled(t, answer, func(c *Config) {
		c.Guard.Header = "X-Forwarded-User"
		c.Guard.Proxies = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}
	})
	ada := header("X-Forwarded-User", "ada")
	if requireStatus(t, get(t, c, "/extra", ada, from("10.1.2.3:4711")), http.StatusOK); user != "ada" {
		t.Errorf("the user is %q", user)
	}
	requireStatus(t, get(t, c, "/extra", ada, from("[::ffff:10.1.2.3]:4711")), http.StatusOK)
	requireStatus(t, get(t, c, "/extra", ada, from("10.2.2.3:4711")), http.StatusUnauthorized, "no proxy names you")
	requireStatus(t, get(t, c, "/extra", from("10.1.2.3:4711")), http.StatusUnauthorized)
	requireStatus(t, get(t, c, "/extra", header("X-Forwarded-User", " "), from("10.1.2.3:4711")), http.StatusUnauthorized)
	requireStatus(t, get(t, c, "/extra", ada, func(r *http.Request) { r.Header.Add("X-Forwarded-User", "eve") }, from("10.1.2.3:4711")), http.StatusUnauthorized)
	requireStatus(t, get(t, c, "/login"), http.StatusNotFound)
	alone := assembled(t, answer, func(c *Config) { c.Guard.Header = "X-Forwarded-User" })
	requireStatus(t, get(t, alone, "/extra", ada, from("127.0.0.1:4711")), http.StatusOK)
	requireStatus(t, get(t, alone, "/extra", ada, from("192.0.2.1:4711")), http.StatusUnauthorized)
}

func TestEveryAnswerHasThePolicy(t *testing.T) {
	t.Parallel()
	c := newConsole(t, withToken)
	for path, change := range map[string]func(*http.Request){
		"/": host("localhost"), "/login": host("localhost"), "/nothing": host("evil.example"), c.assets.address("app.js"): host("localhost"),
	} {
		h := get(t, c, path, change).Header()
		if policy := h.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'; script-src 'self';") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: %q", path, policy)
		}
		for name, value := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin", "X-Frame-Options": "DENY", "Cross-Origin-Resource-Policy": "same-origin"} {
			if h.Get(name) != value {
				t.Errorf("%s: %s is %q", path, name, h.Get(name))
			}
		}
	}
}

func TestRequestsAreBounded(t *testing.T) {
	t.Parallel()
	entered, leave := make(chan struct{}), make(chan struct{})
	c := assembled(t, func(r *request) error {
		if r.URL.Query().Get("do") == "wait" {
			entered <- struct{}{}
			<-leave
			return nil
		}
		return r.ParseForm()
	}, func(c *Config) {
		c.Write = true
		c.Limits = Limits{Requests: 2, Body: 1000}
	})
	requireStatus(t, post(t, c, "/extra?do=read", "a="+strings.Repeat("x", 2000)), http.StatusRequestEntityTooLarge, "write at most 1000 B")
	var waiting sync.WaitGroup
	for range 2 {
		waiting.Go(func() { get(t, c, "/extra?do=wait") })
		<-entered
	}
	w := get(t, c, "/extra?do=read")
	if requireStatus(t, w, http.StatusServiceUnavailable, "the console answers as many requests as it may"); w.Header().Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	requireStatus(t, get(t, c, c.assets.address("app.css")), http.StatusOK)
	close(leave)
	waiting.Wait()
	requireStatus(t, get(t, c, "/extra?do=read"), http.StatusOK)
}

func TestLongRequestIsEnded(t *testing.T) {
	t.Parallel()
	c := assembled(t, func(r *request) error {
		<-r.Context().Done()
		return r.Context().Err()
	}, func(c *Config) { c.Limits.Duration = 50 * time.Millisecond })
	requireStatus(t, get(t, c, "/extra"), http.StatusGatewayTimeout, "this took longer than 50ms", "choose a shorter range")
}

func TestServerBoundsWhatItReads(t *testing.T) {
	t.Parallel()
	address := serve(t, newConsole(t))
	_, r := dial(t, address, "GET / HTTP/1.1\r\nHost: localhost\r\nX-A: "+strings.Repeat("a", 64<<10)+"\r\n\r\n")
	response, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("status %d", response.StatusCode)
	}
	_ = response.Body.Close()
	address = serve(t, newConsole(t), func(s *http.Server) { s.ReadHeaderTimeout = 50 * time.Millisecond })
	_, r = dial(t, address, "GET / HTTP/1.1\r\nHost: localhost\r\n") // and never the end of the header
	if data, err := io.ReadAll(r); err != nil && !errors.Is(err, net.ErrClosed) {
		t.Errorf("%q, %v", data, err)
	}
}

// streaming is an answer that sends an event and waits.
func streaming(r *request) error {
	return r.live(func(ctx context.Context, s *stream) error {
		if err := s.send("row", "17", map[string]string{"last": s.Last, "text": "a\nb\u2028"}); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	})
}

// TestThousandLiveStreams opens more streams than may be: others are refused with a word, and one gets the place of a stream
// that ends.
func TestThousandLiveStreams(t *testing.T) {
	t.Parallel()
	const open, most = 1000, 64
	c := assembled(t, streaming)
	address := serve(t, c)
	request := "GET /extra/live HTTP/1.1\r\nHost: " + address + "\r\n\r\n"
	var mu sync.Mutex
	var accepted []net.Conn
	refused := 0
	var opening sync.WaitGroup
	for range 20 {
		opening.Go(func() {
			for range open / 20 {
				conn, r := dial(t, address, request)
				response, err := http.ReadResponse(r, nil)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if response.StatusCode == http.StatusOK {
					accepted = append(accepted, conn)
				} else {
					refused++
					text := body(t, response)
					if response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") == "" || !strings.Contains(text, "as many live streams are open as may be") {
						t.Errorf("status %d, %v, %.200s", response.StatusCode, response.Header, text)
					}
				}
				mu.Unlock()
			}
		})
	}
	opening.Wait()
	if len(accepted) != most || refused != open-most {
		t.Fatalf("%d streams are open and %d refused", len(accepted), refused)
	}
	requireStatus(t, get(t, c, "/sessions"), http.StatusOK) // pages are not kept out by streams
	if err := accepted[0].Close(); err != nil {
		t.Fatal(err)
	}
	for begin := time.Now(); time.Since(begin) < end; {
		_, r := dial(t, address, request)
		response, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if response.StatusCode == http.StatusOK {
			return
		}
	}
	t.Error("the place of a stream that ended stays taken")
}

// TestLiveStreamOutlivesTheLimitsOfRequests reads heartbeats for longer than a request may take.
func TestLiveStreamOutlivesTheLimitsOfRequests(t *testing.T) {
	t.Parallel()
	c := assembled(t, streaming, func(c *Config) { c.Limits = Limits{Heartbeat: 100 * time.Millisecond, Duration: time.Second} })
	address := serve(t, c, func(s *http.Server) { s.ReadTimeout, s.WriteTimeout = time.Second, time.Second })
	_, r := dial(t, address, "GET /extra/live?last=x HTTP/1.1\r\nHost: "+address+"\r\nLast-Event-ID: 16\r\n\r\n")
	response, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	var text strings.Builder
	for beats := 0; beats < 20 && lines.Scan(); {
		if lines.Text() == ":" {
			beats++
			continue
		}
		fmt.Fprintln(&text, lines.Text())
	}
	if !strings.HasPrefix(text.String(), "retry: 3000\n\nid: 17\nevent: row\ndata: {\"last\":\"16\",\"text\":\"a\\nb\\u2028\"}\n") || lines.Err() != nil {
		t.Errorf("%s, %v", &text, lines.Err())
	}
	c.Close()
	for lines.Scan() { // up to the end
	}
	if lines.Err() != nil {
		t.Errorf("the stream goes on when the console is closed: %v", lines.Err())
	}
}

func TestLiveStreamNamesItsProblem(t *testing.T) {
	t.Parallel()
	c := assembled(t, func(r *request) error {
		return r.live(func(context.Context, *stream) error { return notFound("there is no such session", "choose another") })
	})
	w := get(t, c, "/extra/live")
	requireStatus(t, w, http.StatusOK, "event: problem\ndata: {\"cure\":\"choose another\",\"text\":\"there is no such session\"}\n\n")
}

// TestLogsHaveNoPayload asks for pages with a text of a session, which no log has, also not where a view panics.
func TestLogsHaveNoPayload(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	c := assembled(t, func(r *request) error {
		if r.URL.Query().Get("panic") != "" {
			panic("payload")
		}
		return invalid("payload is not found", "")
	}, func(c *Config) {
		c.Write = true
		c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	requireStatus(t, get(t, c, "/extra?panic=payload"), http.StatusInternalServerError, "the console made a mistake")
	requireStatus(t, get(t, c, "/extra?q=payload"), http.StatusBadRequest)
	requireStatus(t, get(t, c, "/sessions?since=payload"), http.StatusBadRequest)
	requireStatus(t, get(t, c, "/payload"), http.StatusNotFound)
	requireStatus(t, post(t, c, "/extra", "title=payload"), http.StatusBadRequest)
	if text := log.String(); strings.Contains(text, "payload") || !strings.Contains(text, "a view of the console panicked") || !strings.Contains(text, `level=INFO msg="request of the console" route="POST /extra"`) {
		t.Errorf("the log is %s", text)
	}
}

// TestNothingIsReadBeforeAPageIsOpened counts what the broker gets.
func TestNothingIsReadBeforeAPageIsOpened(t *testing.T) {
	t.Parallel()
	c := newConsole(t, withToken)
	nc := c.config.JetStream.Conn()
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	before, subscriptions := nc.Stats(), nc.NumSubscriptions()
	serve(t, c)
	get(t, c, "/sessions") // without the token
	get(t, c, "/sessions", host("evil.example"))
	get(t, c, c.assets.address("app.js"))
	if after := nc.Stats(); after.OutMsgs != before.OutMsgs || nc.NumSubscriptions() != subscriptions {
		t.Errorf("%d messages and %d subscriptions before a page is opened", after.OutMsgs-before.OutMsgs, nc.NumSubscriptions()-subscriptions)
	}
}
