package worker_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/claims"
	"tributary/pipeline/events"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/records"
	"tributary/pipeline/redact"
	"tributary/pipeline/replay"
	"tributary/pipeline/sessions"
	"tributary/pipeline/sessions/summaries"
	"tributary/pipeline/sessions/titles"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// redactWith returns the Redact of a worker with a key.
func redactWith(key string) func(redact.Mode) (*redact.Redactor, error) {
	return func(mode redact.Mode) (*redact.Redactor, error) {
		return redact.New(redact.Config{Mode: mode, Key: redact.Key(key)})
	}
}

// redacted returns a topology whose records are redacted with a key.
func redacted(tb testing.TB, key string) streams.Topology {
	tb.Helper()
	r, err := redactWith(key)(redact.Secrets)
	if err != nil {
		tb.Fatal(err)
	}
	top := topology(2)
	top.Settings.Redact, top.Settings.RedactKey, top.Settings.RedactRules = redact.Secrets, r.Fingerprint(), r.RulesFingerprint()
	return top
}

const redactKey = "a key of the tests, of no value"

// A stage that redacts lets no secret out of the raw stream: not into events, states, dead
// letters, records and titles of sessions, and not through the commands that read the raw stream
// for them.
func TestRedactingStageLetsNoSecretOutOfTheRawStream(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("searches 12 MB with all rules: the race detector sees nothing new in that")
	}
	server := pipelinetest.NewServer(t)
	top := redacted(t, redactKey)
	js := server.Provision(top)
	server.Uncompressed(js)
	secrets := pipelinetest.Secrets()
	publish := func(r core.Record, header nats.Header) {
		t.Helper()
		m := records.Message(r)
		if int64(len(r.Data)) > js.Conn().MaxPayload()/2 {
			if _, err := claims.NewStore(js).Put(t.Context(), r.Data); err != nil {
				t.Fatal(err)
			}
			m = records.ClaimMessage(r)
		}
		maps.Copy(m.Header, header)
		if _, err := js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	for i, s := range secrets {
		quoted, err := jsontext.AppendQuote(nil, "use "+s.Text+" for it")
		if err != nil {
			t.Fatal(err)
		}
		record := fmt.Sprintf(`{"type":"user","uuid":"u-%d","sessionId":"one","timestamp":"2026-03-01T10:00:00.000Z","cwd":"/g","message":{"role":"user","content":%s}}`, i, quoted)
		publish(core.Record{Source: envelopes.ClaudeCode, Session: "one", Data: []byte(record)}, nil)
		publish(core.Record{Source: envelopes.ClaudeCode, Session: "one", Data: []byte(record + ",,")}, nats.Header{"X-Note": {s.Core[:strings.IndexByte(s.Core+"\n", '\n')], s.Text[:strings.IndexByte(s.Text+"\n", '\n')]}})
	}
	large := strings.Repeat("water ", 1<<20)
	publish(core.Record{Source: envelopes.ClaudeCode, Session: "two", Data: []byte(`{"type":"user","uuid":"u-big","sessionId":"two","message":{"role":"user","content":"` + secrets[0].Text + " " + large + `"}}`)}, nil)
	publish(core.Record{Source: envelopes.ClaudeCode, Session: "two", Data: []byte(`{"broken ` + secrets[0].Text + " " + large)}, nil)

	reader := sdkmetric.NewManualReader()
	s := start(t, js, worker.Config{Topology: top, Redact: redactWith(redactKey), Meter: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("test")})
	if err := replay.CatchUp(deadline(t), js, top); err != nil {
		t.Fatal(err)
	}
	s.stop(t)
	var metrics metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &metrics); err != nil {
		t.Fatal(err)
	}
	if n := redactions(metrics)["aws-access-token"]; n != 4 { // of records that became events
		t.Errorf("%d redactions of aws-access-token", n)
	}

	letters, refused := 0, 0
	for l, err := range events.DeadLetters(t.Context(), js, "v1", events.DeadLettersQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		letters++
		data, err := l.LoadRecord(t.Context(), js)
		switch {
		case l.Claim != (claims.Claim{}):
			refused++
			if err == nil || !strings.Contains(err.Error(), "record is redacted, and its dead letter does not have it") {
				t.Errorf("large dead letter: %v", err)
			}
		case err != nil:
			t.Error(err)
		case !strings.Contains(string(data), "[redacted:"):
			t.Errorf("dead letter %s", data)
		}
	}
	if letters != len(secrets)+1 || refused != 1 {
		t.Errorf("%d dead letters, %d refused", letters, refused)
	}
	if err := worker.CheckUnredacted(t.Context(), js, "v1"); err == nil || !strings.Contains(err.Error(), "generation v1 has redact=redacted") {
		t.Errorf("raw records: %v", err)
	}
	titled, title := titlesOfPrompts(t, js)
	awaitSummaries(t, js, top)
	read := server.RequireNowhere(js, pipelinetest.Cores(secrets), streams.RawStream, "OBJ_CLAIMS")
	if read["EVENTS_v1"] < 2*len(secrets) || read[streams.SessionsStream] < titled || titled < len(secrets)/2 || read[streams.SummariesStream("v1")] == 0 {
		t.Errorf("%d titles, such as %q, read %v", titled, title, read)
	}
}

// titlesOfPrompts gives each session the titles that programs make of its prompts, and returns how
// many there were, and the last one.
func titlesOfPrompts(t *testing.T, js jetstream.JetStream) (n int, last string) {
	t.Helper()
	service, err := titles.New(js, titles.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for e, err := range events.Read(t.Context(), js, "v1", events.Query{Types: []envelopes.EventType{envelopes.UserMessage}}) {
		if err != nil {
			t.Fatal(err)
		}
		for source, title := range map[titles.TitleSource]string{
			titles.SourceFallback: sessions.FallbackTitle(*e.Text),
			titles.SourceAuto:     sessions.SanitizeTitle(*e.Text),
		} {
			change, err := service.ApplyGeneratedTitle(t.Context(), titles.Key{Source: e.Source, SessionID: e.SessionID}, title, source, true)
			if err != nil {
				t.Fatal(err)
			}
			if change != nil {
				n, last = n+1, title
			}
		}
	}
	return n, last
}

// awaitSummaries keeps records of the sessions until they have every event.
func awaitSummaries(t *testing.T, js jetstream.JetStream, top streams.Topology) {
	t.Helper()
	keeper, err := summaries.New(js, summaries.Config{Every: time.Millisecond, Beat: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- keeper.Run(deadline(t)) }()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for kept := false; !kept; <-look.C {
		view, err := summaries.Open(deadline(t), js, top.Generation, func(err error) { t.Error(err) })
		if err != nil {
			t.Fatal(err)
		}
		status, err := view.Status(deadline(t))
		if err != nil {
			t.Fatal(err)
		}
		kept = status.Kept && status.Behind == 0
	}
	keeper.Drain()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A record at which redaction takes more work than a record may becomes a dead letter without its
// bytes, at once; it can be given back, because the raw stream has it.
func TestRecordThatTakesTooMuchWorkIsADeadLetterWithoutItsBytes(t *testing.T) {
	pipelinetest.SkipShort(t)
	t.Parallel()
	rules := filepath.Join(t.TempDir(), "rules.toml")
	// At each x the expression reads on to the end of the text, in vain.
	if err := os.WriteFile(rules, []byte("[[rules]]\nid = \"slow\"\nregex = 'x(?:[^y]*y|)'\nkeywords = ['slow-']\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	create := func(mode redact.Mode) (*redact.Redactor, error) {
		return redact.New(redact.Config{Mode: mode, Key: redact.Key(redactKey), Rules: rules})
	}
	r, err := create(redact.Secrets)
	if err != nil {
		t.Fatal(err)
	}
	top := topology(2)
	top.Settings.Redact, top.Settings.RedactKey, top.Settings.RedactRules = redact.Secrets, r.Fingerprint(), r.RulesFingerprint()
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	records := pipelinetest.Workload(65, 4, 40)
	slow := core.Record{Source: envelopes.ClaudeCode, Session: records[0].Session, Data: []byte(`{"type":"user","uuid":"slow","message":{"role":"user","content":"slow-` + strings.Repeat("x", slowSecret) + `"}}`)}
	pipelinetest.Publish(t, js, append(records[:20:20], slow)...)
	pipelinetest.Publish(t, js, records[20:]...)
	reader := sdkmetric.NewManualReader()
	var log bytes.Buffer
	s := start(t, js, worker.Config{Topology: top, Redact: create, Logger: slog.New(slog.NewTextHandler(&log, nil)), Meter: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("test")})
	if err := replay.CatchUp(deadline(t), js, top); err != nil {
		t.Fatal(err)
	}
	found := letters(t, js, events.DeadLettersQuery{Reason: "unsearched"})
	if len(found) != 1 || found[0].Sequence != 21 || found[0].Size != len(slow.Data) || found[0].Whole {
		t.Fatalf("dead letters %+v", found)
	}
	if _, err := found[0].LoadRecord(t.Context(), js); err == nil || !strings.Contains(err.Error(), "its dead letter does not have it") {
		t.Errorf("the record: %v", err)
	}
	data, err := found[0].Load(t.Context(), js)
	if err != nil || !bytes.Equal(data, slow.Data) {
		t.Errorf("a requeue has %d bytes: %v", len(data), err)
	}
	ready(t, s)
	s.stop(t)
	if text := log.String(); strings.Count(text, "takes too much work to search for secrets") != 1 || strings.Contains(text, "xxxxxxxx") {
		t.Errorf("log %s", text)
	}
	var metrics metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &metrics); err != nil {
		t.Fatal(err)
	}
	if n := counts(metrics, "tributary.dead_letters", "reason")["unsearched"]; n != 1 {
		t.Errorf("%d dead letters are counted", n)
	}
	server.RequireNowhere(js, []string{"xxxxxxxx"}, streams.RawStream)
}

// slowSecret is the length of a text that takes more work than its record may.
const slowSecret = 12_000

// redactions returns what was replaced, by rule.
func redactions(metrics metricdata.ResourceMetrics) map[string]int64 {
	return counts(metrics, "tributary.redactions", "rule")
}

// counts returns the sums of a metric by a label.
func counts(metrics metricdata.ResourceMetrics, name, label string) map[string]int64 {
	counts := map[string]int64{}
	for _, scope := range metrics.ScopeMetrics {
		for _, m := range scope.Metrics {
			if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == name {
				for _, p := range sum.DataPoints {
					value, _ := p.Attributes.Value(attribute.Key(label))
					counts[value.AsString()] += p.Value
				}
			}
		}
	}
	return counts
}

// Redaction is part of the settings of a generation: a worker with another mode, another key or
// none is refused.
func TestWorkersOfOtherRedactionAreRefused(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	top := redacted(t, redactKey)
	js := server.Provision(top)
	run := func(cfg worker.Config) error {
		t.Helper()
		stage, err := worker.New(js, cfg)
		if err != nil {
			return err
		}
		return stage.Run(deadline(t))
	}
	plain := topology(2)
	rules := filepath.Join(t.TempDir(), "rules.toml")
	if err := os.WriteFile(rules, []byte("[[rules]]\nid = 'plot'\nregex = 'PLOT-[0-9]{4}'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		cfg  worker.Config
		want string
	}{
		"another mode": {worker.Config{Topology: withRedaction(top, redact.Full, ""), Redact: redactWith(redactKey)}, "redact"},
		"another key": {
			worker.Config{Topology: plain, Redact: redactWith("another key of the tests")},
			"generation v1 has redact_key " + top.Settings.RedactKey + ", want ",
		},
		"another fingerprint": {worker.Config{Topology: redacted(t, "another key of the tests"), Redact: redactWith("another key of the tests")}, "redact_key"},
		"other rules": {
			worker.Config{Topology: plain, Redact: func(mode redact.Mode) (*redact.Redactor, error) {
				return redact.New(redact.Config{Mode: mode, Key: redact.Key(redactKey), Rules: rules})
			}},
			"generation v1 has redact_rules built-in, want ",
		},
		"no key": {worker.Config{Topology: plain}, "generation v1 has redact=redacted, but this worker has no key"},
	} {
		if err := run(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	referenced := top
	referenced.Generation, referenced.Settings.Raw = "v2", streams.RawReferenced
	if err := streams.Provision(t.Context(), js, referenced); err == nil || !strings.Contains(err.Error(), "use raw=carried") {
		t.Errorf("raw=referenced: %v", err)
	}
	s := start(t, js, worker.Config{Topology: plain, Redact: redactWith(redactKey)})
	pipelinetest.Publish(t, js, pipelinetest.Workload(1, 3, 20)...)
	if err := replay.CatchUp(deadline(t), js, plain); err != nil {
		t.Fatal(err)
	}
	s.stop(t)
	if stored := server.RequireNowhere(js, []string{redactKey}); cmp.Equal(stored, map[string]int{}) {
		t.Error("nothing is stored")
	}
}

// A generation that was made before rules were stored takes workers of any rules.
func TestGenerationWithoutStoredRulesTakesWorkersOfAnyRules(t *testing.T) {
	t.Parallel()
	top := redacted(t, redactKey)
	stored := top
	stored.Settings.RedactRules = ""
	js := pipelinetest.NewServer(t).Provision(stored)
	s := start(t, js, worker.Config{Topology: top, Redact: redactWith(redactKey)})
	if err := replay.CatchUp(deadline(t), js, top); err != nil {
		t.Fatal(err)
	}
	s.stop(t)
}

func withRedaction(top streams.Topology, mode redact.Mode, key string) streams.Topology {
	top.Settings.Redact, top.Settings.RedactKey = mode, key
	return top
}
