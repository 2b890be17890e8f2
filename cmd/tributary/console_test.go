package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/streams"
)

// consoleOf waits until a process has printed the address of its console.
func consoleOf(p *process) *url.URL {
	p.t.Helper()
	p.awaitLogged("console at ")
	m := regexp.MustCompile(`console at (\S+)`).FindStringSubmatch(p.logged("console at "))
	u, err := url.Parse(m[1])
	if err != nil {
		p.t.Fatal(err)
	}
	return u
}

// page asks for a page. change may change the request.
func page(t *testing.T, client *http.Client, method, address string, change ...func(*http.Request)) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(r)
	}
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(text)
}

// browser is a client that keeps no connection open and follows no redirection by itself.
func browser(trust *x509.CertPool) *http.Client {
	return &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true, ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: trust}}, //nolint:gosec // the default of versions
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func settingsOf(list ...string) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, list...) }
}

func TestConsoleOfABroker(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	server.Provision(streams.DefaultTopology())
	p := start(t, t.TempDir(), server.URL(), "console", "--listen", "127.0.0.1:0")
	u := consoleOf(p)
	if u.Scheme != "http" || u.Hostname() != "127.0.0.1" || u.RawQuery != "" {
		t.Errorf("the address is %v", u)
	}
	client := browser(nil)
	response, text := page(t, client, http.MethodGet, u.String()+"sessions?since=7d")
	if contains(t, text, "<title>Sessions", "read-only"); response.StatusCode != http.StatusOK {
		t.Errorf("status %d", response.StatusCode)
	}
	const promote = "pipeline/generations/v1/promote"
	origin := func(name string) func(*http.Request) { return func(r *http.Request) { r.Header.Set("Origin", name) } }
	for name, refused := range map[string]struct {
		method, path string
		change       func(*http.Request)
		status       int
		text         string
	}{
		"a foreign host":         {http.MethodGet, "", func(r *http.Request) { r.Host = "evil.example" }, http.StatusMisdirectedRequest, "does not answer under this name"},
		"a form of another site": {http.MethodPost, promote, origin("http://evil.example"), http.StatusForbidden, "a page of another site"},
		"a write":                {http.MethodPost, promote, origin("http://" + u.Host), http.StatusForbidden, "start it with --write"},
		"a path outside":         {http.MethodGet, "static/0/%2e%2e%5cconsole.go", origin(""), http.StatusNotFound, "there is no such file"},
		"a session of any bytes": {http.MethodGet, "sessions/codex/%00%ff%1b%5B31m%2F..", origin(""), http.StatusNotFound, "session"},
	} {
		if response, text := page(t, client, refused.method, u.String()+refused.path, refused.change); response.StatusCode != refused.status || !strings.Contains(text, refused.text) {
			t.Errorf("%s: status %d: %s", name, response.StatusCode, text)
		}
	}
	if code := p.signal(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d\n%s", code, &p.stderr)
	}
}

func TestConsoleForOtherMachinesNeedsTLSAndAToken(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	server.Provision(streams.DefaultTopology())
	home, a := t.TempDir(), newAuthority(t)
	refused := func(code int, text string, settings ...string) {
		t.Helper()
		p := startWith(t, settingsOf(settings...), home, server.URL(), "console")
		if got := p.wait(); got != code {
			t.Errorf("%v: exit code %d", settings, got)
		}
		p.logged(text)
	}
	const everywhere = "TRIBUTARY_CONSOLE_LISTEN=0.0.0.0:0"
	refused(exitUsage, `TRIBUTARY_CONSOLE_LISTEN="0.0.0.0:0": other machines reach this address: name a certificate`, everywhere)
	refused(exitUsage, `TRIBUTARY_CONSOLE_LISTEN=":0": other machines`, "TRIBUTARY_CONSOLE_LISTEN=:0", "TRIBUTARY_CONSOLE_TOKEN=0123456789abcdef")
	refused(exitUsage, "set it and TRIBUTARY_CONSOLE_KEY both", everywhere, "TRIBUTARY_CONSOLE_CERT="+a.path("tls.crt"))
	refused(exitFailure, "TRIBUTARY_CONSOLE_CERT and TRIBUTARY_CONSOLE_KEY: ", everywhere, "TRIBUTARY_CONSOLE_CERT="+a.path("tls.crt"), "TRIBUTARY_CONSOLE_KEY="+a.path("client.key"))
	refused(exitUsage, "the token of the console is shorter than 16 bytes", "TRIBUTARY_CONSOLE_TOKEN=hunter2")
	refused(exitUsage, "TRIBUTARY_CONSOLE_TOKEN: set it or TRIBUTARY_CONSOLE_TOKEN_FILE", "TRIBUTARY_CONSOLE_TOKEN=hunter2", "TRIBUTARY_CONSOLE_TOKEN_FILE=x")
	refused(exitFailure, "TRIBUTARY_CONSOLE_TOKEN_FILE: ", "TRIBUTARY_CONSOLE_TOKEN_FILE=missing")
	refused(exitUsage, `TRIBUTARY_CONSOLE_PROXIES="10.0.0.0/40": write addresses such as`, "TRIBUTARY_CONSOLE_PROXIES=10.0.0.1,10.0.0.0/40")
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	refused(exitFailure, "the console cannot listen on "+taken.Addr().String()+": name another address", "TRIBUTARY_CONSOLE_LISTEN="+taken.Addr().String())

	p := startWith(t, settingsOf(everywhere, "TRIBUTARY_CONSOLE_CERT="+a.path("tls.crt"), "TRIBUTARY_CONSOLE_KEY="+a.path("tls.key")), home, server.URL(), "console")
	u := consoleOf(p)
	if u.Scheme != "https" || u.Hostname() != "broker.example" || len(u.Query().Get("token")) < 16 {
		t.Errorf("the address is %v", u)
	}
	trust := x509.NewCertPool()
	trust.AppendCertsFromPEM([]byte(readText(t, a.path("ca.crt"))))
	client, named := browser(trust), u.Host
	u.Host = net.JoinHostPort("127.0.0.1", u.Port())
	entered := requireToken(t, client, u, func(r *http.Request) { r.Host = named })
	if !entered.Secure {
		t.Error("the cookie is sent without TLS, too")
	}
	response, _ := page(t, client, http.MethodGet, u.String())
	if response.ProtoMajor != 2 {
		t.Errorf("the protocol is %s", response.Proto)
	}

	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("a token of a file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p = startWith(t, settingsOf(everywhere, "TRIBUTARY_CONSOLE_TOKEN_FILE="+file), home, server.URL(), "console", "--insecure-listen")
	if u = consoleOf(p); u.Scheme != "http" || u.RawQuery != "" || strings.Contains(p.stderr.String(), "a token of a file") {
		t.Errorf("the address is %v\n%s", u, &p.stderr)
	}
	u.RawQuery = url.Values{"token": {"a token of a file"}}.Encode()
	requireToken(t, browser(nil), u)
}

// TestConsoleServesARenewedCertificate replaces the certificate by one of another authority, first without its key, while the
// console serves.
func TestConsoleServesARenewedCertificate(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	server.Provision(streams.DefaultTopology())
	before, renewed := newAuthority(t), newAuthority(t)
	p := startWith(t, settingsOf("TRIBUTARY_CONSOLE_CERT="+before.path("tls.crt"), "TRIBUTARY_CONSOLE_KEY="+before.path("tls.key")),
		t.TempDir(), server.URL(), "console", "--listen", "127.0.0.1:0")
	u := consoleOf(p)
	u.Host = net.JoinHostPort("127.0.0.1", u.Port())
	served := func(a authority) bool {
		t.Helper()
		trust := x509.NewCertPool()
		trust.AppendCertsFromPEM([]byte(readText(t, a.path("ca.crt"))))
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u.String(), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := browser(trust).Do(r)
		if err != nil && !errors.As(err, new(x509.UnknownAuthorityError)) {
			t.Fatal(err)
		}
		if err == nil {
			_ = response.Body.Close()
		}
		return err == nil
	}
	replace := func(name string) {
		t.Helper()
		if err := os.WriteFile(before.path(name), []byte(readText(t, renewed.path(name))), 0o600); err != nil {
			t.Fatal(err)
		}
		later := time.Now().Add(time.Minute) // whatever the clock of the file system counts
		if err := os.Chtimes(before.path(name), later, later); err != nil {
			t.Fatal(err)
		}
	}
	if !served(before) || served(renewed) {
		t.Error("another certificate is served at the beginning")
	}
	replace("tls.crt")
	if !served(before) || served(renewed) {
		t.Error("a certificate without its key is served")
	}
	p.awaitLogged("the TLS certificate has changed and cannot be read")
	replace("tls.key")
	if served(before) || !served(renewed) {
		t.Error("the renewed certificate is not served")
	}
}

// requireToken asks a console without its token, with another one and with the right one, which is that of its address.
func requireToken(t *testing.T, client *http.Client, u *url.URL, change ...func(*http.Request)) *http.Cookie {
	t.Helper()
	bare := *u
	for _, query := range []string{"", "token=wrong"} {
		bare.RawQuery = query
		if response, text := page(t, client, http.MethodGet, bare.String(), change...); response.StatusCode != http.StatusUnauthorized || strings.Contains(text, "aria-current") {
			t.Errorf("%q: status %d: %s", query, response.StatusCode, text)
		}
	}
	response, _ := page(t, client, http.MethodGet, u.String(), change...)
	cookies := response.Cookies()
	if response.StatusCode != http.StatusSeeOther || response.Header.Get("Location") != "/" || len(cookies) != 1 {
		t.Fatalf("status %d, %v", response.StatusCode, response.Header)
	}
	bare.RawQuery = ""
	response, text := page(t, client, http.MethodGet, bare.String(), append(change, func(r *http.Request) { r.AddCookie(cookies[0]) })...)
	if contains(t, text, "<title>Overview"); response.StatusCode != http.StatusOK {
		t.Errorf("status %d", response.StatusCode)
	}
	return cookies[0]
}

// TestUpServesTheConsole runs up with the console, for which it takes another port where the usual one is in use, and without.
func TestUpServesTheConsole(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	log := filepath.Join(home, ".claude", "projects", "app", "one.jsonl")
	if err := os.MkdirAll(filepath.Dir(log), 0o700); err != nil {
		t.Fatal(err)
	}
	line := `{"type":"user","uuid":"u1","sessionId":"one","cwd":"/home/ada/app","timestamp":"2026-03-09T09:00:00Z","message":{"role":"user","content":"hello"}}` + "\n"
	if err := os.WriteFile(log, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	if taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", defaultConsole); err == nil { // else it is in use already
		t.Cleanup(func() { _ = taken.Close() })
	}
	for _, console := range []string{defaultConsole, ""} {
		p := start(t, home, "", "up", "--listen", "", "--console", console)
		p.awaitLogged("caught up, following")
		if console != "" {
			u := consoleOf(p)
			if u.Hostname() != "127.0.0.1" || u.Host == defaultConsole {
				t.Errorf("the console is at %v", u)
			}
			response, text := page(t, browser(nil), http.MethodGet, u.String())
			if contains(t, text, "<title>Overview"); response.StatusCode != http.StatusOK {
				t.Errorf("status %d", response.StatusCode)
			}
		} else if strings.Contains(p.stderr.String(), "console at") {
			t.Errorf("a console is served\n%s", &p.stderr)
		}
		if code := p.signal(syscall.SIGTERM); code != 0 {
			t.Errorf("exit code %d\n%s", code, &p.stderr)
		}
	}
}

// TestConsoleOfUpCostsNothingBeforeARequest compares the connections, subscriptions and consumers of an up with those of one that
// serves no console, before and after a page is opened.
func TestConsoleOfUpCostsNothingBeforeARequest(t *testing.T) {
	t.Parallel()
	begin := func(console string) (*process, *nats.Conn) {
		t.Helper()
		p := start(t, t.TempDir(), "", "up", "--listen", "127.0.0.1:0", "--console", console)
		p.awaitLogged("caught up, following")
		nc, err := nats.Connect(regexp.MustCompile(`nats://\S+[0-9]`).FindString(p.logged("broker at ")))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return p, nc
	}
	with, nc := begin("127.0.0.1:0")
	_, without := begin("")
	await := func(what string, is func(now, base string) bool) {
		t.Helper()
		poll := time.NewTicker(20 * time.Millisecond)
		defer poll.Stop()
		for end := time.After(patience); ; {
			now, base := brokerUse(t, nc), brokerUse(t, without)
			if is(now, base) {
				return
			}
			select {
			case <-poll.C:
			case <-end:
				t.Fatalf("%s, up has at its broker\n%s\nand without a console\n%s", what, now, base)
			}
		}
	}
	await("before the first request", func(now, base string) bool { return now == base })
	u := consoleOf(with)
	for _, path := range []string{"", "sessions"} {
		if response, _ := page(t, browser(nil), http.MethodGet, u.String()+path); response.StatusCode != http.StatusOK {
			t.Errorf("status %d", response.StatusCode)
		}
	}
	await("after a request", func(now, base string) bool {
		return strings.Count(now, "consumer of") > strings.Count(base, "consumer of") && strings.Count(now, "subscription") > strings.Count(base, "subscription")
	})
}

// randomName matches a name that differs in each process.
var randomName = regexp.MustCompile(`_INBOX\..*|[0-9A-Za-z]{22}`)

// brokerUse lists the connections, subscriptions and consumers of a broker, except those of nc. Random names are left out.
func brokerUse(t *testing.T, nc *nats.Conn) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	var use []string
	list := js.ListStreams(ctx)
	for stream := range list.Info() {
		s, err := js.Stream(ctx, stream.Config.Name)
		if err != nil {
			t.Fatal(err)
		}
		consumers := s.ListConsumers(ctx)
		for c := range consumers.Info() {
			use = append(use, fmt.Sprintf("consumer of %s: %s %v", stream.Config.Name, c.Config.Description, c.Config.FilterSubjects))
		}
		if err := consumers.Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
	m, err := nc.RequestWithContext(ctx, "$SYS.REQ.ACCOUNT.PING.CONNZ", []byte(`{"subscriptions":true}`))
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Data struct {
			Connections []struct {
				ID            uint64   `json:"cid"`
				Name          string   `json:"name"`
				Subscriptions []string `json:"subscriptions_list"`
			} `json:"connections"`
		} `json:"data"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		t.Fatal(err)
	}
	own, err := nc.GetClientID()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range answer.Data.Connections {
		if c.ID == own {
			continue
		}
		use = append(use, "connection "+c.Name)
		for _, subject := range c.Subscriptions {
			use = append(use, "subscription "+randomName.ReplaceAllString(subject, "*"))
		}
	}
	if len(use) == 0 {
		t.Fatal("the broker lists no connection of up")
	}
	slices.Sort(use)
	return strings.Join(use, "\n")
}

// TestConsoleShowsWhatTheRightsOfItsUserAllow asks as the roles of deploy/nats: one that reads sees the sessions, one that may
// not gets a page that names the right and where to grant it.
func TestConsoleShowsWhatTheRightsOfItsUserAllow(t *testing.T) {
	t.Parallel()
	b, _, js := startWithWorker(t, nil)
	if code, out := ended(b.as(t, "ACME_PRODUCER", "ship", "--once", claudeLog(t, "hello", "again"))); code != 0 {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	awaitSubject(t, js, "events.v1.>", 2)
	for role, want := range map[string]map[string]int{
		"ACME_CONSUMER": {"": http.StatusOK, "sessions": http.StatusOK, "sessions/claude_code/one": http.StatusOK, "search?q=hello": http.StatusOK, "tools": http.StatusOK, "pipeline": http.StatusOK},
		"ACME_OPERATOR": {"": http.StatusOK, "sessions": http.StatusOK, "sessions/claude_code/one": http.StatusOK, "search?q=hello": http.StatusOK, "tools": http.StatusOK, "pipeline": http.StatusOK},
		"ACME_SESSIONS": {"sessions/claude_code/one": http.StatusForbidden},
	} {
		p := b.as(t, role, "console", "--listen", "127.0.0.1:0")
		u := consoleOf(p)
		for path, status := range want {
			response, text := page(t, browser(nil), http.MethodGet, u.String()+path)
			if response.StatusCode != status {
				t.Errorf("%s: /%s: status %d\n%s", role, path, response.StatusCode, text)
			}
			if path == "pipeline" {
				if all := !strings.Contains(text, "Not everything is known: this user may not read"); all != (role == "ACME_OPERATOR") || !all && (strings.Contains(text, "No problem") || strings.Contains(text, "No worker")) {
					t.Errorf("%s: %s", role, text)
				}
			}
			if path == "sessions" {
				for begun := time.Now(); !strings.Contains(text, `href="/sessions/claude_code/one"`); _, text = page(t, browser(nil), http.MethodGet, u.String()+path) {
					if time.Since(begun) > patience {
						t.Fatalf("%s: the list has no session: %s", role, text)
					}
				}
				if strings.Contains(text, "cannot be read") || strings.Contains(text, "left out") {
					t.Errorf("%s: %s", role, text)
				}
			}
			if status == http.StatusForbidden {
				contains(t, text, "the broker denies to publish to $JS.API.", "in the permissions of this user at the broker")
			}
		}
		if denies := strings.Contains(p.stderr.String(), "denies"); denies != (role == "ACME_SESSIONS") {
			t.Errorf("%s\n%s", role, &p.stderr)
		}
		p.signal(syscall.SIGTERM)
	}
}
