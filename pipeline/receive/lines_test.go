package receive_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tributary/envelopes"
	"tributary/pipeline/receive"
)

// A hook is stored as it is, in the session that it names. Hooks have neither a time nor an id: equal ones are several,
// unless the client names them.
func TestHooks(t *testing.T) {
	t.Parallel()
	e := start(t, receive.Config{})
	const stop = `{"session_id":"one", "hook_event_name":"Stop"}`
	for range 2 {
		answer, text := e.post("/v1/hooks/claude", []byte(stop), "Content-Type", "application/json; charset=utf-8")
		if answer.StatusCode != http.StatusOK || len(text) != 0 {
			t.Fatalf("%s: %q", answer.Status, text)
		}
		e.post("/v1/hooks/claude", []byte(stop), "Content-Type", "application/json", "Idempotency-Key", "k")
	}
	stored := e.stored()
	if len(stored) != 3 {
		t.Errorf("%d records are stored, want 3", len(stored))
	}
	for _, r := range stored {
		if r.Source != envelopes.ClaudeCode || r.Session != "one" || string(r.Data) != stop || r.Origin.Time.IsZero() {
			t.Errorf("stored: %+v", r)
		}
	}
}

// Lines are records of the session in the path, in their order. If one is no JSON, none is stored, and the answer names
// it.
func TestLines(t *testing.T) {
	t.Parallel()
	e := start(t, receive.Config{})
	const path = "/v1/records/codex/a%2Fb"
	answer, text := e.post(path, []byte("{\"n\":1}\r\n\n{\"n\":1}\n[2]"), "Content-Type", "application/x-ndjson")
	if answer.StatusCode != http.StatusOK || strings.TrimSpace(string(text)) != `{"stored":3}` {
		t.Fatalf("%s: %s", answer.Status, text)
	}
	answer, text = e.post(path, []byte("{\"n\":3}\nsecret\n{\"n\":4}\n{"), "Content-Type", "application/x-ndjson")
	const refused = `{"code":3,"message":"nothing is stored, because some lines are no JSON","refused":[{"line":2,"reason":"not JSON"},{"line":4,"reason":"not JSON"}]}`
	if answer.StatusCode != http.StatusBadRequest || strings.TrimSpace(string(text)) != refused {
		t.Errorf("%s: %s", answer.Status, text)
	}
	var got []string
	for _, r := range e.stored() {
		got = append(got, string(r.Source)+" "+r.Session+" "+string(r.Data))
	}
	if diff := cmp.Diff([]string{`codex a/b {"n":1}`, `codex a/b {"n":1}`, `codex a/b [2]`}, got); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
}

// A record that is too large for a message travels by claim check.
func TestLargeRecords(t *testing.T) {
	t.Parallel()
	e := start(t, receive.Config{})
	large := fmt.Sprintf(`{"session_id":"one","text":%q}`, bytes.Repeat([]byte("x"), 9<<20))
	for range 2 {
		if answer, text := e.post("/v1/records/codex/one", []byte("{}\n"+large+"\n[]"), "Content-Type", "application/x-ndjson"); answer.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", answer.Status, text)
		}
	}
	stored := e.stored()
	if len(stored) != 3 || !strings.HasPrefix(string(stored[1].Data), "CLAIMS/") || string(stored[2].Data) != "[]" {
		t.Errorf("stored: %.200v", stored)
	}
}

// What is not sent as the pages say is refused with the status of the mistake, and nothing is stored.
func TestRefusedRequests(t *testing.T) {
	t.Parallel()
	e := start(t, receive.Config{Limits: receive.Limits{Records: 2, Body: 1 << 20}})
	const protobuf, json, lines = "application/x-protobuf", "application/json", "application/x-ndjson"
	three := protobufOf(t, logsOf("claude-code", "one", "a", "b", "c"))
	t.Run("requests", func(t *testing.T) {
		for name, c := range map[string]struct {
			path, kind, encoding string
			body                 []byte
			status               int
			text                 string
		}{
			"no type":                  {"/v1/logs", "", "", nil, 415, "application/x-protobuf or application/json"},
			"type of a page":           {"/v1/logs", "text/plain", "", nil, 415, "application/x-protobuf or application/json"},
			"encoding":                 {"/v1/logs", protobuf, "br", nil, 415, "gzip, zstd or identity"},
			"not gzip":                 {"/v1/logs", protobuf, "gzip", []byte("secret"), 400, "not compressed as its header says"},
			"gzip that ends early":     {"/v1/logs", protobuf, "gzip", compressed(t, "gzip", three)[:30], 400, "not compressed as its header says"},
			"not zstd":                 {"/v1/logs", protobuf, "zstd", []byte("secret"), 400, "not compressed as its header says"},
			"no protobuf":              {"/v1/logs", protobuf, "", []byte("secret"), 400, "not an export request in protobuf"},
			"protobuf that ends early": {"/v1/logs", protobuf, "", three[:len(three)-3], 400, "not an export request in protobuf"},
			"no JSON":                  {"/v1/traces", json, "", []byte("secret"), 400, "not an export request in OTLP/JSON"},
			"wrong JSON":               {"/v1/metrics", json, "", []byte(`{"resourceMetrics":7}`), 400, "not an export request in OTLP/JSON"},
			"many records":             {"/v1/logs", protobuf, "", three, 413, "TRIBUTARY_RECEIVE_MAX_RECORDS"},
			"large":                    {"/v1/logs", protobuf, "", make([]byte, 1<<20+1), 413, "TRIBUTARY_RECEIVE_MAX_BODY"},
			"large when inflated":      {"/v1/logs", protobuf, "gzip", compressed(t, "gzip", make([]byte, 1<<20+1)), 413, "TRIBUTARY_RECEIVE_MAX_BODY"},
			"hook as a text":           {"/v1/hooks/claude", "text/plain", "", []byte(`{"session_id":"one"}`), 415, "application/json"},
			"hook of another agent":    {"/v1/hooks/nobody", json, "", []byte(`{"session_id":"one"}`), 404, "no agent whose hooks"},
			"hook that is a list":      {"/v1/hooks/claude", json, "", []byte(`["secret"]`), 400, "not the JSON object of a hook"},
			"hook without a session":   {"/v1/hooks/claude", json, "", []byte(`{"hook_event_name":"secret"}`), 400, "no session_id"},
			"lines as a form":          {"/v1/records/codex/one", "application/x-www-form-urlencoded", "", []byte(`{}`), 415, "application/x-ndjson"},
			"unknown source":           {"/v1/records/secret/one", lines, "", []byte(`{}`), 400, "no known source"},
			"long session":             {"/v1/records/codex/" + strings.Repeat("secret", 200), lines, "", []byte(`{}`), 400, "1 to 1,024 bytes"},
			"many lines":               {"/v1/records/codex/one", lines, "", []byte("{}\n{}\n{}"), 413, "TRIBUTARY_RECEIVE_MAX_RECORDS"},
			"unknown path":             {"/v1/profiles", protobuf, "", nil, 404, ""},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				e := &endpoint{tb: t, js: e.js, url: e.url, client: e.client}
				header := []string{"Content-Type", c.kind}
				if c.encoding != "" {
					header = append(header, "Content-Encoding", c.encoding)
				}
				answer, text := e.post(c.path, c.body, header...)
				if answer.StatusCode != c.status || !strings.Contains(string(text), c.text) || strings.Contains(string(text), "secret") {
					t.Errorf("%s: %q, want %d and %q", answer.Status, text, c.status, c.text)
				}
				if answer.Header.Get("Retry-After") != "" {
					t.Errorf("the client should send it again")
				}
			})
		}
	})
	if n := len(e.stored()); n != 0 {
		t.Errorf("%d records are stored", n)
	}
	if strings.Contains(e.log.String(), "secret") {
		t.Errorf("the log repeats a request:\n%s", e.log)
	}
}
