package pipeline_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/pipeline"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/redact"
)

// redactWith returns the Redact of a worker with a key.
func redactWith(key string) func(redact.Mode) (*redact.Redactor, error) {
	return func(mode redact.Mode) (*redact.Redactor, error) {
		return redact.New(redact.Config{Mode: mode, Key: redact.Key(key)})
	}
}

// redacted returns a topology whose records are redacted with a key.
func redacted(tb testing.TB, key string) pipeline.Topology {
	tb.Helper()
	r, err := redactWith(key)(redact.Secrets)
	if err != nil {
		tb.Fatal(err)
	}
	top := topology(2)
	top.Settings.Redact, top.Settings.RedactKey = redact.Secrets, r.Fingerprint()
	return top
}

const redactKey = "a key of the tests, of no value"

// A stage that redacts lets no secret out of the raw stream: not into events, states and dead
// letters, and not through the commands that read the raw stream for them.
func TestRedactingStageLetsNoSecretOutOfTheRawStream(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	top := redacted(t, redactKey)
	js := server.Provision(top)
	server.Uncompressed(js)
	secrets := pipelinetest.Secrets()
	publish := func(r normalizers.Record, header nats.Header) {
		t.Helper()
		m := pipeline.RawMessage(r)
		if int64(len(r.Data)) > js.Conn().MaxPayload()/2 {
			if _, err := pipeline.NewClaims(js).Put(t.Context(), r.Data); err != nil {
				t.Fatal(err)
			}
			m = pipeline.ClaimMessage(r)
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
		publish(normalizers.Record{Source: envelopes.ClaudeCode, Session: "one", Data: []byte(record)}, nil)
		publish(normalizers.Record{Source: envelopes.ClaudeCode, Session: "one", Data: []byte(record + ",,")}, nats.Header{"X-Note": {s.Core[:strings.IndexByte(s.Core+"\n", '\n')], s.Text[:strings.IndexByte(s.Text+"\n", '\n')]}})
	}
	large := strings.Repeat("water ", 1<<20)
	publish(normalizers.Record{Source: envelopes.ClaudeCode, Session: "two", Data: []byte(`{"type":"user","uuid":"u-big","sessionId":"two","message":{"role":"user","content":"` + secrets[0].Text + " " + large + `"}}`)}, nil)
	publish(normalizers.Record{Source: envelopes.ClaudeCode, Session: "two", Data: []byte(`{"broken ` + secrets[0].Text + " " + large)}, nil)

	reader := sdkmetric.NewManualReader()
	s := start(t, js, pipeline.Config{Topology: top, Redact: redactWith(redactKey), Meter: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("test")})
	if err := pipeline.CatchUp(deadline(t), js, top); err != nil {
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
	for l, err := range pipeline.DeadLetters(t.Context(), js, "v1", pipeline.DeadLettersQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		letters++
		data, err := l.LoadRecord(t.Context(), js)
		switch {
		case l.Claim != (pipeline.Claim{}):
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
	if err := pipeline.CheckUnredacted(t.Context(), js, "v1"); err == nil || !strings.Contains(err.Error(), "generation v1 has redact=redacted") {
		t.Errorf("raw records: %v", err)
	}
	read := server.RequireNowhere(js, pipelinetest.Cores(secrets), pipeline.RawStream, "OBJ_CLAIMS")
	if read["EVENTS_v1"] < 2*len(secrets) {
		t.Errorf("read %v", read)
	}
}

// redactions returns the counts of a metric by rule.
func redactions(metrics metricdata.ResourceMetrics) map[string]int64 {
	counts := map[string]int64{}
	for _, scope := range metrics.ScopeMetrics {
		for _, m := range scope.Metrics {
			if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == "tributary.redactions" {
				for _, p := range sum.DataPoints {
					rule, _ := p.Attributes.Value("rule")
					counts[rule.AsString()] += p.Value
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
	run := func(cfg pipeline.Config) error {
		t.Helper()
		stage, err := pipeline.New(js, cfg)
		if err != nil {
			return err
		}
		return stage.Run(deadline(t))
	}
	plain := topology(2)
	for name, c := range map[string]struct {
		cfg  pipeline.Config
		want string
	}{
		"another mode": {pipeline.Config{Topology: withRedaction(top, redact.Full, ""), Redact: redactWith(redactKey)}, "redact"},
		"another key": {
			pipeline.Config{Topology: plain, Redact: redactWith("another key of the tests")},
			"is redacted with the key of fingerprint " + top.Settings.RedactKey + ", and this worker has another one",
		},
		"another fingerprint": {pipeline.Config{Topology: redacted(t, "another key of the tests"), Redact: redactWith("another key of the tests")}, "redact_key"},
		"no key":              {pipeline.Config{Topology: plain}, "generation v1 has redact=redacted, and this worker no key"},
	} {
		if err := run(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	referenced := top
	referenced.Generation, referenced.Settings.Raw = "v2", pipeline.RawReferenced
	if err := pipeline.Provision(t.Context(), js, referenced); err == nil || !strings.Contains(err.Error(), "use raw=carried") {
		t.Errorf("raw=referenced: %v", err)
	}
	s := start(t, js, pipeline.Config{Topology: plain, Redact: redactWith(redactKey)})
	pipelinetest.Publish(t, js, pipelinetest.Workload(1, 3, 20)...)
	if err := pipeline.CatchUp(deadline(t), js, plain); err != nil {
		t.Fatal(err)
	}
	s.stop(t)
	if stored := server.RequireNowhere(js, []string{redactKey}); cmp.Equal(stored, map[string]int{}) {
		t.Error("nothing is stored")
	}
}

func withRedaction(top pipeline.Topology, mode redact.Mode, key string) pipeline.Topology {
	top.Settings.Redact, top.Settings.RedactKey = mode, key
	return top
}
