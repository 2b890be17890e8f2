package worker_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"tributary/envelopes"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/worker"
)

// What a normalizer does not know is counted by version, kind and name, once: also where a commit
// is lost, and its records are normalized again. A log that states any number of names makes few series.
func TestMetricsCountWhatIsNotKnown(t *testing.T) {
	t.Parallel()
	const hostile = 2000
	top := topology(2)
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	proxy := pipelinetest.NewProxy(t, server)
	proxy.Arm(pipelinetest.BeforeCommit, pipelinetest.BeforeAck)
	reader := sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	message := func(session string, n int, version, rest string) *nats.Msg {
		return rawMessage("raw.claude_code."+session,
			fmt.Sprintf(`{"sessionId":%q,"uuid":"%s-%d","version":%q,"timestamp":"2026-03-09T09:00:00Z",%s}`, session, session, n, version, rest))
	}
	record := func(session string, n int, version, rest string) {
		pipelinetest.PublishMessages(t.Context(), t, js, message(session, n, version, rest))
	}
	record("a", 1, "2.1.1", `"type":"dream-journal"`)
	record("a", 2, "2.1.1", `"type":"dream-journal"`)
	record("a", 3, "9.9.9", `"type":"dream-journal"`)
	record("b", 1, "2.1.1", `"type":"assistant","message":{"id":"m","role":"assistant","content":[{"type":"hologram"},{"type":"text","text":"a"}],"usage":{"input_tokens":1,"output_tokens":1,"qubits":1}}`)
	record("b", 2, "2.1.1", `"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"scent"}]}]}`)
	s := start(t, pipelinetest.Connect(t, proxy.URL()), worker.Config{Topology: top, Meter: provider.Meter("test")})
	pipelinetest.Expectation{Topology: top}.RequireExact(t, js) // these names come first
	var all []*nats.Msg
	for i := range hostile {
		all = append(all, message("c", i, fmt.Sprintf("3.0.%d", i), fmt.Sprintf(`"type":"hostile%d"`, i)))
	}
	pipelinetest.PublishMessages(t.Context(), t, js, all...)
	pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	s.stop(t)
	requireDrift(t, s.Drift())

	var got metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &got); err != nil {
		t.Fatal(err)
	}
	series := make(map[string]int64)
	for _, m := range got.ScopeMetrics[0].Metrics {
		if m.Name != "tributary.unknown" {
			continue
		}
		for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
			if source, _ := p.Attributes.Value("source"); source.AsString() == "claude_code" {
				series[p.Attributes.Encoded(attribute.DefaultEncoder())] = p.Value
			}
		}
	}
	for want, n := range map[string]int64{
		"generation=v1,kind=record_type,live=true,name=dream-journal,source=claude_code,version=2.1.1": 2,
		"generation=v1,kind=record_type,live=true,name=dream-journal,source=claude_code,version=9.9.9": 1,
		"generation=v1,kind=block_type,live=true,name=hologram,source=claude_code,version=2.1.1":       1,
		"generation=v1,kind=usage_field,live=true,name=qubits,source=claude_code,version=2.1.1":        1,
		"generation=v1,kind=tool_output,live=true,name=scent,source=claude_code,version=2.1.1":         1,
	} {
		if series[want] != n {
			t.Errorf("%s is %d, want %d, of %v", want, series[want], n, series)
		}
	}
	total := int64(0)
	for _, n := range series {
		total += n
	}
	if total != hostile+6 || len(series) > 256+4 {
		t.Errorf("%d series count %d, want %d", len(series), total, hostile+6)
	}
	if !strings.Contains(fmt.Sprint(series), "name=other") {
		t.Errorf("no series counts the rest: %v", series)
	}
}

// requireDrift checks what the stage says of the drift of its records: items and newer versions, in few rows.
func requireDrift(t *testing.T, list []worker.Drifted) {
	t.Helper()
	if len(list) > 33 {
		t.Errorf("%d rows", len(list))
	}
	for _, want := range []worker.Drifted{
		{Source: envelopes.ClaudeCode, Version: "2.1.1", Items: 5},
		{Source: envelopes.ClaudeCode, Version: "9.9.9", Newer: true, Items: 1},
	} {
		if !slices.Contains(list, want) {
			t.Errorf("no %+v in %+v", want, list)
		}
	}
}
