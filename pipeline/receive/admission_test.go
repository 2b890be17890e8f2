package receive_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"tributary/envelopes"
	"tributary/pipeline/receive"
)

// tokenLine is a line of a file of tokens.
func tokenLine(token, rest string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:]) + " " + rest + "\n"
}

func readTokens(t *testing.T, lines ...string) (*receive.Tokens, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens, err := receive.ReadTokens(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return tokens, path
}

// hook posts a hook that claims another user, and returns the status.
func (e *endpoint) hook(header ...string) int {
	e.tb.Helper()
	header = append(header, "Content-Type", "application/json", "Tributary-User", "mallory", "Tributary-Verified", "1")
	answer, text := e.post("/v1/hooks/claude", []byte(`{"session_id":"one","user":"mallory"}`), header...)
	if answer.StatusCode == http.StatusUnauthorized && answer.Header.Get("WWW-Authenticate") != "Bearer" {
		e.tb.Errorf("%v: %s", answer.Header, text)
	}
	return answer.StatusCode
}

// edges returns the senders of the stored records.
func (e *endpoint) edges() []*envelopes.Edge {
	e.tb.Helper()
	var list []*envelopes.Edge
	for _, r := range e.stored() {
		list = append(list, r.Origin.Edge)
	}
	return list
}

// A token is known by its digest; its line names the user, the host and labels. What a request claims besides does not
// count. Without a known token nothing is stored, by HTTP and gRPC.
func TestTokens(t *testing.T) {
	t.Parallel()
	tokens, path := readTokens(t, "# senders\n\n", tokenLine("t0", "user=ada@example.com team=payments env=dev"), tokenLine("t1", "user=zoe host=build-7"))
	e := start(t, receive.Config{Admission: receive.Admission{Tokens: tokens, Edge: &envelopes.Edge{Labels: map[string]string{"env": "prod", "site": "x"}}}})
	for header, want := range map[string]int{"": 401, "Bearer t2": 401, "Basic t0": 401, "t0": 401, "Bearer ": 401, "Bearer t0": 200} {
		if got := e.hook("Authorization", header); got != want {
			t.Errorf("%q: %d, want %d", header, got, want)
		}
	}
	client := plogotlp.NewGRPCClient(e.dial())
	request := plogotlp.NewExportRequestFromLogs(logsOf("claude-code", "one", "x"))
	if _, err := client.Export(t.Context(), request); status.Code(err) != codes.Unauthenticated {
		t.Errorf("without a token: %v", err)
	}
	if _, err := client.Export(metadata.AppendToOutgoingContext(t.Context(), "authorization", "bearer t1"), request); err != nil {
		t.Error(err)
	}
	want := []*envelopes.Edge{
		{User: "ada@example.com", Labels: map[string]string{"team": "payments", "env": "dev", "site": "x"}, Verified: true},
		{User: "zoe", Host: "build-7", Labels: map[string]string{"env": "prod", "site": "x"}, Verified: true},
	}
	if diff := cmp.Diff(want, e.edges()); diff != "" {
		t.Errorf("senders (-want +got):\n%s", diff)
	}

	// The file is read again: t0 is not known any more. A file that cannot be read changes nothing.
	if err := os.WriteFile(path, []byte(tokenLine("t3", "user=ada")), 0o600); err != nil {
		t.Fatal(err)
	}
	e.await("t3 is known", func() bool { return e.hook("Authorization", "Bearer t3") == 200 })
	if got := e.hook("Authorization", "Bearer t0"); got != 401 {
		t.Errorf("a removed token: %d", got)
	}
	if err := os.WriteFile(path, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(1200 * time.Millisecond); time.Now().Before(until); {
		if got := e.hook("Authorization", "Bearer t3"); got != 200 {
			t.Fatalf("with a broken file: %d", got)
		}
	}
}

// await waits until something holds.
func (e *endpoint) await(what string, holds func() bool) {
	e.tb.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for limit := time.After(patience); !holds(); {
		select {
		case <-look.C:
		case <-limit:
			e.tb.Fatalf("%s: not within %v\n%s", what, patience, e.log)
		}
	}
}

// A line that cannot be read is named by its number, and nothing of it is repeated.
func TestBadTokens(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ line, want string }{
		"no digest":    {"secret user=ada", "line 2 does not begin with the SHA-256"},
		"short digest": {"abcd user=ada", "line 2 does not begin with the SHA-256"},
		"no user":      {tokenLine("t", "team=secret"), "line 2 has no user"},
		"no value":     {tokenLine("t", "user=ada secret="), "line 2 has something that is not NAME=VALUE"},
		"no name":      {tokenLine("t", "user=ada secret"), "line 2 has something that is not NAME=VALUE"},
		"two users":    {tokenLine("t", "user=ada user=secret"), "line 2 has something that is not NAME=VALUE, or a name twice"},
		"bad label":    {tokenLine("t", "user=ada a,secret=b"), "line 2 a label has a name"},
		"long user":    {tokenLine("t", "user="+strings.Repeat("secret", 50)), "line 2 user is not"},
		"twice":        {tokenLine("known", "user=secret"), "line 2 has the token of a line before it"},
	} {
		path := filepath.Join(t.TempDir(), "tokens")
		if err := os.WriteFile(path, []byte(tokenLine("known", "user=ada")+c.line), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := receive.ReadTokens(path, nil)
		if text := fmt.Sprint(err); !strings.Contains(text, c.want) || strings.Contains(text, "secret") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// The header of a proxy counts only if the request comes from one, and names the user that records state.
func TestProxies(t *testing.T) {
	t.Parallel()
	here := start(t, receive.Config{Admission: receive.Admission{
		Header: "X-Forwarded-User",
		Rename: func(host, user string) (string, string) { return host, "pseudonym of " + user },
	}})
	if got := here.hook(); got != 401 {
		t.Errorf("without the header: %d", got)
	}
	if got := here.hook("X-Forwarded-User", "ada"); got != 200 {
		t.Errorf("with the header: %d", got)
	}
	if got := here.hook("X-Forwarded-User", "a\x80da"); got != 403 {
		t.Errorf("with a name that is no text: %d", got)
	}
	if diff := cmp.Diff([]*envelopes.Edge{{User: "pseudonym of ada", Verified: true}}, here.edges()); diff != "" {
		t.Errorf("senders (-want +got):\n%s", diff)
	}
	elsewhere := start(t, receive.Config{Admission: receive.Admission{Header: "X-Forwarded-User", Proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}})
	if got := elsewhere.hook("X-Forwarded-User", "ada"); got != 401 {
		t.Errorf("from no proxy: %d", got)
	}
}

// Without tokens, certificates and a header everybody is let in, except for pages of a browser; records state the sender
// of the configuration, not verified.
func TestOpenReceiver(t *testing.T) {
	t.Parallel()
	e := start(t, receive.Config{Admission: receive.Admission{Edge: &envelopes.Edge{Host: "h", User: "u"}}})
	if got := e.hook(); got != 200 {
		t.Errorf("without a proof: %d", got)
	}
	if got := e.hook("Origin", "https://example.com"); got != 403 {
		t.Errorf("of a page: %d", got)
	}
	if diff := cmp.Diff([]*envelopes.Edge{{Host: "h", User: "u"}}, e.edges()); diff != "" {
		t.Errorf("senders (-want +got):\n%s", diff)
	}
}
