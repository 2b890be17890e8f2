package ship_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/redact"
	"tributary/pipeline/ship"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

func redactor(tb testing.TB, mode redact.Mode) *redact.Redactor {
	tb.Helper()
	r, err := redact.New(redact.Config{Mode: mode, Key: redact.Key("a key of the tests, of no value")})
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// secretLog returns a log of Claude Code with every secret in a prompt, a tool output, a name of a
// member, a list of lines and base64, and a line that is broken. Its first line has a secret, too.
func secretLog() (records []string) {
	quoted := func(s string) string { return string(must(jsontext.AppendQuote(nil, s))) }
	for i, s := range pipelinetest.Secrets() {
		head := fmt.Sprintf(`{"type":"user","uuid":"u-%d-%%d","sessionId":"one","timestamp":"2026-03-01T10:00:00.000Z","cwd":"/home/ada/garden","message":{"role":"user","content":`, i)
		encoded := base64.StdEncoding.EncodeToString([]byte("export X=1\n" + s.Text + "\n"))
		records = append(records,
			fmt.Sprintf(head, 0)+quoted("use "+s.Text+" for it")+`}}`,
			fmt.Sprintf(head, 1)+`[{"type":"tool_result","tool_use_id":"t-1","content":`+quoted("out:\n"+s.Text+"\n")+`}]},"toolUseResult":{"stdout":`+quoted(s.Text)+`,`+quoted(s.Text)+`:1,"lines":["`+strings.ReplaceAll(strings.Trim(quoted(s.Text), `"`), `\n`, `","`)+`"]}}`,
			fmt.Sprintf(head, 2)+quoted("base64 "+encoded+" and JSON "+quoted(`{"k":`+quoted("a\n"+s.Text)+`}`))+`}}`,
			fmt.Sprintf(head, 3)+quoted("unfinished "+s.Text+" record")+`,,`,
		)
	}
	last := pipelinetest.Secrets()[0].Text
	return append(records, fmt.Sprintf(`{"type":"user","uuid":"big","sessionId":"one","timestamp":"2026-03-01T11:00:00.000Z","message":{"role":"user","content":"%s %s"}}`,
		strings.Repeat("water ", 1<<20), last))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// What is shipped with redaction has no secret: neither the raw stream nor its objects, nor
// anything that is made of it, in messages and on the disk.
func TestRedactedShipLeavesNoSecretAtTheBroker(t *testing.T) {
	pipelinetest.SkipShort(t)
	t.Parallel()
	e := newEdge(t)
	e.server.Uncompressed(e.js)
	records := secretLog()
	e.write("garden/one.jsonl", lines(records...))
	withRedactor := func(c *ship.Config) { c.Redactor, c.Host, c.Version = redactor(t, redact.Secrets), "edge", "1" }
	sum := e.once(withRedactor)
	if sum.Records != len(records) || len(sum.Refusals) > 0 {
		t.Fatalf("shipped %+v", sum)
	}
	for _, rule := range []string{"aws-access-token", "github-pat", "private-key", "jwt", "url-password", "generic-api-key"} {
		if sum.Redacted[rule] < 5 {
			t.Errorf("%d of %s are counted", sum.Redacted[rule], rule)
		}
	}
	top := streams.Topology{Generation: "v1", Partitions: 4}
	stage := must(worker.New(e.js, worker.Config{Topology: top}))
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := stage.Run(t.Context()); err != nil {
			t.Error(err)
		}
	})
	pipelinetest.Expectation{Topology: top}.RequireExact(t, e.js)
	stage.Drain()
	ended.Wait()

	// The identity of the file does not depend on the secret of the first line.
	want := core.HexHash("garden/one.jsonl\n" + string(must1(redactor(t, redact.Secrets).Record([]byte(records[0])))))[:32]
	if got := e.tap().next(1)[0]; got.Origin.File != want {
		t.Errorf("file %s, want %s", got.Origin.File, want)
	}
	if err := os.Remove(e.offsets); err != nil {
		t.Fatal(err)
	}
	if again := e.once(withRedactor); again.Records != len(records) || again.Duplicates != len(records) {
		t.Errorf("shipped again %+v", again)
	}
	read := e.server.RequireNowhere(e.js, pipelinetest.Cores(pipelinetest.Secrets()))
	if read["RAW"] < len(records) || read["EVENTS_v1"] < len(records) || read["OBJ_CLAIMS"] < 2 || read["KV_TRIBUTARY_EDGES"] == 0 {
		t.Errorf("read %v", read)
	}
}

func must1[T, U any](v T, _ U) T { return v }

// Documents state their digest, which is that of the bytes that are sent.
func TestDigestOfARedactedDocumentIsThatOfWhatIsSent(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	dir := t.TempDir()
	secret := pipelinetest.Secrets()[2].Text
	document := `{"sessionId":"g-1","projectHash":"9126","startTime":"2026-03-01T10:00:00.000Z","lastUpdated":"2026-03-01T10:00:00.000Z","messages":[{"id":"m-1","timestamp":"2026-03-01T10:00:00.000Z","type":"user","content":"use ` + secret + `"}]}`
	if err := os.WriteFile(filepath.Join(dir, "session-1.json"), []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	e.once(func(c *ship.Config) {
		c.Redactor, c.Paths, c.Source = redactor(t, redact.Secrets), []string{dir}, envelopes.Gemini
	})
	got := e.tap().next(1)[0]
	if strings.Contains(string(got.Data), secret) || got.Origin.Digest != core.HexHash(string(got.Data)) || got.Origin.Digest == "" {
		t.Errorf("%s with digest %s", got.Data, got.Origin.Digest)
	}
}

func TestDryRunListsWhereSecretsAre(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.write("garden/one.jsonl", lines(prompt("one", 1), strings.Replace(prompt("one", 2), "water", pipelinetest.Secrets()[0].Text, 1), prompt("one", 3)))
	var mu sync.Mutex
	var list []string
	sum := e.once(func(c *ship.Config) {
		c.DryRun, c.Redactor = true, redactor(t, redact.Secrets)
		c.Redacted = func(r ship.Redaction) {
			mu.Lock()
			defer mu.Unlock()
			list = append(list, fmt.Sprintf("%s:%d: %s", filepath.Base(r.Path), r.Line, r.Rule))
		}
	})
	if len(list) != 1 || list[0] != "one.jsonl:2: aws-access-token" || sum.Redacted["aws-access-token"] != 1 || e.count() != 0 {
		t.Errorf("%q, %v", list, sum.Redacted)
	}
}

// A record that takes too much work to search is sent without its content, which the log, the metric and the
// heartbeat say; the others are sent as they are, and it is the same message when it is shipped again.
func TestRecordThatTakesTooMuchWorkIsSentWithoutItsContent(t *testing.T) {
	if testing.Short() {
		t.Skip("much work for one goroutine")
	}
	t.Parallel()
	e := newEdge(t)
	rules := filepath.Join(t.TempDir(), "rules.toml")
	if err := os.WriteFile(rules, []byte("[[rules]]\nid = \"slow\"\nregex = 'x(?:[^y]*y|)'\nkeywords = ['slow-']\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	slow := "slow-" + strings.Repeat("x", 12_000)
	e.write("garden/one.jsonl", lines(prompt("one", 1), strings.Replace(prompt("one", 2), "water", slow, 1), prompt("one", 3)))
	var log bytes.Buffer
	ship := func(c *ship.Config) {
		c.Redactor = must(redact.New(redact.Config{Mode: redact.Secrets, Key: redact.Key("a key of the tests, of no value"), Rules: rules}))
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		c.Host, c.Version = "edge", "1"
	}
	sum := e.once(ship)
	if sum.Records != 3 || sum.Redacted[redact.RuleUnsearched] != 1 || len(sum.Redacted) != 1 || sum.Trouble == nil || !strings.Contains(sum.Trouble.Error(), "one.jsonl:2: ") {
		t.Errorf("shipped %+v", sum)
	}
	got := e.tap().next(3)
	if string(got[0].Data) != prompt("one", 1) || string(got[2].Data) != prompt("one", 3) {
		t.Errorf("sent %s and %s", got[0].Data, got[2].Data)
	}
	if sent := string(got[1].Data); strings.Contains(sent, "xxx") || !strings.Contains(sent, "[redacted:unsearched:") || !strings.Contains(sent, `"type":"user"`) {
		t.Errorf("sent %.300s", sent)
	}
	if text := log.String(); strings.Count(text, "record takes too much work to search for secrets") != 1 || !strings.Contains(text, "line=2") || strings.Contains(text, "xxx") {
		t.Errorf("log %s", text)
	}
	edges := must(streams.Edges(t.Context(), e.js))
	if len(edges) != 1 || !strings.Contains(edges[0].Error, "too much work to search") {
		t.Errorf("edges %+v", edges)
	}
	if err := os.Remove(e.offsets); err != nil {
		t.Fatal(err)
	}
	if again := e.once(ship); again.Records != 3 || again.Duplicates != 3 {
		t.Errorf("shipped again %+v", again)
	}
}
