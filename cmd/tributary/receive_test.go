package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/streams"
)

// receiverAt returns the address of HTTP of a receiver that listens.
func receiverAt(p *process) string {
	p.t.Helper()
	p.awaitLogged("receiver at ")
	address, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(p.logged("receiver at ")), "receiver at "), " ")
	return address
}

// postHook posts a hook.
func postHook(ctx context.Context, client *http.Client, url string) (status int, text string, err error) {
	return post(ctx, client, url+"/v1/hooks/claude", `{"session_id":"one","hook_event_name":"UserPromptSubmit","prompt":"water the garden"}`)
}

// post posts JSON.
func post(ctx context.Context, client *http.Client, url, body string) (status int, text string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(data), err
}

// What a receiver stores becomes events of the session, with the user that was verified. Its readiness is that of the
// broker, and a signal ends it.
func TestReceiveWithCertificates(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	home := t.TempDir()
	ca := newAuthority(t)
	p := startWith(t, func(cmd *exec.Cmd) {
		cmd.Env = append(cmd.Env, "TRIBUTARY_IDENTITY=plain", "TRIBUTARY_LABELS=site=x",
			"TRIBUTARY_RECEIVE_CERT="+ca.path("tls.crt"), "TRIBUTARY_RECEIVE_KEY="+ca.path("tls.key"),
			"TRIBUTARY_RECEIVE_CLIENT_CA="+ca.path("ca.crt"))
	}, home, server.URL(), "receive", "--listen", "0.0.0.0:0", "--grpc", "")
	_, port, _ := strings.Cut(receiverAt(p), "]:")
	url := "https://127.0.0.1:" + port
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(readText(t, ca.path("ca.crt"))))
	client := func(certificates ...tls.Certificate) *http.Client {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: certificates}, ForceAttemptHTTP2: true}
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport}
	}
	if status, text, err := postHook(t.Context(), client(), url); status != http.StatusUnauthorized {
		t.Errorf("without a certificate: %d %s, %v", status, text, err)
	}
	pair, err := tls.LoadX509KeyPair(ca.path("client.crt"), ca.path("client.key"))
	if err != nil {
		t.Fatal(err)
	}
	known := client(pair)
	// There is no raw stream before the first worker: the answer names the time after which to try again.
	if status, text, err := postHook(t.Context(), known, url); status != http.StatusServiceUnavailable {
		t.Errorf("without a raw stream: %d %s, %v", status, text, err)
	}
	js := server.Provision(streams.DefaultTopology())
	if status, text, err := postHook(t.Context(), known, url); status != http.StatusOK {
		t.Fatalf("with a certificate: %d %s, %v", status, text, err)
	}
	if code := p.signal(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d\n%s", code, &p.stderr)
	}
	worker := start(t, home, server.URL(), "run")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := awaitStored(ctx, js, streams.EventsStream("v1"), "events.v1.>", 1); err != nil {
		t.Fatalf("%v\n%s", err, &worker.stderr)
	}
	events := storedEvents(t, js, "v1")["one"]
	if !bytes.Contains(events, []byte(`"edge":{"user":"stage.acme.example","labels":{"site":"x"},"verified":true}`)) {
		t.Errorf("events: %s", events)
	}
}

// up takes what agents of this machine post, and stops with it.
func TestUpReceives(t *testing.T) {
	t.Parallel()
	p := startWith(t, func(cmd *exec.Cmd) {
		cmd.Env = append(cmd.Env, "TRIBUTARY_RECEIVE_LISTEN=127.0.0.1:0", "TRIBUTARY_RECEIVE_GRPC=127.0.0.1:0")
	}, t.TempDir(), "", "up", "--listen", "127.0.0.1:0", "--console", "", "--data", t.TempDir())
	url := "http://" + receiverAt(p)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	if status, text, err := postHook(t.Context(), client, url); status != http.StatusOK {
		t.Fatalf("%d %s, %v", status, text, err)
	}
	p.expect("water the garden")
	if code := p.signal(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d\n%s", code, &p.stderr)
	}
}

// A receiver that everybody could send to listens on this machine alone, and one that other machines reach has TLS.
func TestReceiveRefusesAddresses(t *testing.T) {
	t.Parallel()
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, settings := range map[string][]string{
		"cannot listen on 0.0.0.0:0: other machines reach this address, and everybody could send: set TRIBUTARY_RECEIVE_TOKENS": nil,
		"name a certificate in TRIBUTARY_RECEIVE_CERT and _KEY":                                                                 {"TRIBUTARY_RECEIVE_TOKENS=" + tokens},
		"TRIBUTARY_RECEIVE_TOKENS: stat /missing":                                                                               {"TRIBUTARY_RECEIVE_TOKENS=/missing"},
		"certificates of senders need TLS: set TRIBUTARY_RECEIVE_CERT":                                                          {"TRIBUTARY_RECEIVE_CLIENT_CA=" + tokens},
		"TRIBUTARY_RECEIVE_PROXIES: name the header of the proxies":                                                             {"TRIBUTARY_RECEIVE_PROXIES=10.0.0.0/8"},
		`TRIBUTARY_RECEIVE_MAX_BODY="65": write 1 to 64`:                                                                        {"TRIBUTARY_RECEIVE_MAX_BODY=65"},
		`TRIBUTARY_RECEIVE_MAX_IN_FLIGHT="1": write at least TRIBUTARY_RECEIVE_MAX_BODY`:                                        {"TRIBUTARY_RECEIVE_MAX_IN_FLIGHT=1"},
	} {
		p := startWith(t, func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, settings...) }, t.TempDir(), "nats://127.0.0.1:1", "receive", "--listen", "0.0.0.0:0", "--grpc", "")
		if code, out := ended(p); code != exitUsage || !strings.Contains(out, want) {
			t.Errorf("exit code %d, want %q:\n%s", code, want, out)
		}
	}
}
