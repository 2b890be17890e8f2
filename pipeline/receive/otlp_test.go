package receive_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding/gzip"

	"tributary/envelopes"
	"tributary/pipeline/receive"
)

// mixed returns a request with a record, one of an unknown service, and one without a session.
func mixed() plog.Logs {
	all := logsOf("claude-code", "one", "claude_code.user_prompt")
	logsOf("other", "one", "x").ResourceLogs().MoveAndAppendTo(all.ResourceLogs())
	logsOf("claude-code", "", "x").ResourceLogs().MoveAndAppendTo(all.ResourceLogs())
	return all
}

const (
	partly = "1 of no known agent (service.name and scope name it), 1 without a session (an attribute such as session.id names it)"
	// document is the record of mixed that is stored.
	document = `{"resourceLogs":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"claude-code"}}]},` +
		`"scopeLogs":[{"scope":{"name":"claude-code.events"},"logRecords":[{"timeUnixNano":"1760000000000000000",` +
		`"body":{"stringValue":"claude_code.user_prompt"},"attributes":[{"key":"session.id","value":{"stringValue":"one"}},` +
		`{"key":"event.sequence","value":{"intValue":"0"}}]}]}]}]}`
)

// What is exported by any transport, encoding and compression is one record in the same form. The records that cannot be
// assigned are counted in the answer, which has the encoding of the request.
func TestLogsByEveryTransport(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"application/x-protobuf", "application/json"} {
		for _, encoding := range []string{"", "gzip", "zstd"} {
			t.Run(kind+" "+encoding, func(t *testing.T) {
				t.Parallel()
				e := start(t, receive.Config{})
				request := plogotlp.NewExportRequestFromLogs(mixed())
				body, err := request.MarshalProto()
				if kind == "application/json" {
					body, err = request.MarshalJSON()
				}
				if err != nil {
					t.Fatal(err)
				}
				answer, text := e.post("/v1/logs", compressed(t, encoding, body), "Content-Type", kind, "Content-Encoding", encoding)
				if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != kind {
					t.Fatalf("%s, %s: %s", answer.Status, answer.Header.Get("Content-Type"), text)
				}
				response := plogotlp.NewExportResponse()
				if kind == "application/json" {
					err = response.UnmarshalJSON(text)
				} else {
					err = response.UnmarshalProto(text)
				}
				requirePartly(t, err, response)
				requireDocument(t, e)
			})
		}
	}
	for _, options := range [][]grpc.CallOption{nil, {grpc.UseCompressor(gzip.Name)}} {
		t.Run(fmt.Sprint("gRPC ", len(options)), func(t *testing.T) {
			t.Parallel()
			e := start(t, receive.Config{})
			response, err := plogotlp.NewGRPCClient(e.dial()).Export(t.Context(), plogotlp.NewExportRequestFromLogs(mixed()), options...)
			requirePartly(t, err, response)
			requireDocument(t, e)
		})
	}
}

func requirePartly(t *testing.T, err error, r plogotlp.ExportResponse) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if p := r.PartialSuccess(); p.RejectedLogRecords() != 2 || p.ErrorMessage() != "records that are not stored: "+partly {
		t.Errorf("%d records refused: %s", p.RejectedLogRecords(), p.ErrorMessage())
	}
}

func requireDocument(t *testing.T, e *endpoint) {
	t.Helper()
	stored := e.stored()
	if len(stored) != 1 || stored[0].Source != envelopes.ClaudeCode || stored[0].Session != "one" {
		t.Fatalf("stored: %v", stored)
	}
	if diff := cmp.Diff(document, string(stored[0].Data)); diff != "" {
		t.Errorf("the record (-want +got):\n%s", diff)
	}
}

// A whole success has an empty answer; spans and data points are records of their own, of every kind of metric.
func TestTracesAndMetrics(t *testing.T) {
	t.Parallel()
	e := start(t, receive.Config{})
	conn := e.dial()
	traces := ptrace.NewTraces()
	of := traces.ResourceSpans().AppendEmpty()
	of.Resource().Attributes().PutStr("service.name", "claude-code")
	of.Resource().Attributes().PutStr("session.id", "two")
	for i := range 3 {
		span := of.ScopeSpans().AppendEmpty().Spans().AppendEmpty()
		span.SetName(fmt.Sprint("chat ", i))
		span.SetTraceID(pcommon.TraceID{1})
		span.SetSpanID(pcommon.SpanID{2, byte(i)})
	}
	answer, err := ptraceotlp.NewGRPCClient(conn).Export(t.Context(), ptraceotlp.NewExportRequestFromTraces(traces))
	if err != nil || answer.PartialSuccess().RejectedSpans() != 0 {
		t.Fatal(err, answer)
	}
	var spans []string
	for _, r := range e.stored() {
		spans = append(spans, r.Origin.Traceparent+" "+string(r.Data[strings.Index(string(r.Data), `"name"`):]))
	}
	want := []string{
		`00-01000000000000000000000000000000-0200000000000000-01 "name":"chat 0","status":{}}]}]}]}`,
		`00-01000000000000000000000000000000-0201000000000000-01 "name":"chat 1","status":{}}]}]}]}`,
		`00-01000000000000000000000000000000-0202000000000000-01 "name":"chat 2","status":{}}]}]}]}`,
	}
	if diff := cmp.Diff(want, spans); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}

	metrics := pmetric.NewMetrics()
	in := metrics.ResourceMetrics().AppendEmpty()
	in.Resource().Attributes().PutStr("service.name", "claude-code")
	list := in.ScopeMetrics().AppendEmpty().Metrics()
	add := func(name string) pmetric.Metric {
		m := list.AppendEmpty()
		m.SetName(name)
		m.SetUnit("By")
		return m
	}
	session := func(m pcommon.Map) { m.PutStr("session.id", "two") }
	sum := add("sum").SetEmptySum()
	sum.SetIsMonotonic(true)
	sum.SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
	for i := range 2 {
		p := sum.DataPoints().AppendEmpty()
		p.SetIntValue(int64(i))
		session(p.Attributes())
	}
	session(add("gauge").SetEmptyGauge().DataPoints().AppendEmpty().Attributes())
	session(add("histogram").SetEmptyHistogram().DataPoints().AppendEmpty().Attributes())
	session(add("exponential").SetEmptyExponentialHistogram().DataPoints().AppendEmpty().Attributes())
	session(add("summary").SetEmptySummary().DataPoints().AppendEmpty().Attributes())
	add("empty")
	stated, err := pmetricotlp.NewGRPCClient(conn).Export(t.Context(), pmetricotlp.NewExportRequestFromMetrics(metrics))
	if err != nil || stated.PartialSuccess().RejectedDataPoints() != 0 {
		t.Fatal(err, stated)
	}
	var names []string
	for _, r := range e.stored()[3:] {
		var d struct {
			ResourceMetrics []struct {
				ScopeMetrics []struct{ Metrics []map[string]json.RawMessage }
			}
		}
		if err := json.Unmarshal(r.Data, &d); err != nil {
			t.Fatal(err)
		}
		one := d.ResourceMetrics[0].ScopeMetrics[0].Metrics
		if len(one) != 1 || strings.Count(string(r.Data), "session.id") != 1 {
			t.Errorf("not one data point: %s", r.Data)
		}
		names = append(names, string(one[0]["name"]))
		if string(one[0]["name"]) == `"sum"` && !strings.Contains(string(r.Data), `"isMonotonic":true`) {
			t.Errorf("a sum without its kind: %s", r.Data)
		}
	}
	if diff := cmp.Diff([]string{`"sum"`, `"sum"`, `"gauge"`, `"histogram"`, `"exponential"`, `"summary"`}, names); diff != "" {
		t.Errorf("data points (-want +got):\n%s", diff)
	}
}

// A request that is sent again stores nothing twice. Equal records of one request are several, also when it is sent
// again; and so are those that an agent counts from the start again.
func TestRetriesAndRepetitions(t *testing.T) {
	t.Parallel()
	e := start(t, receive.Config{})
	request := logsOf("claude-code", "one", "a", "b", "c")
	for _, r := range request.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().All() {
		r.Attributes().Remove("event.sequence")
		r.SetTimestamp(0)
		r.Body().SetStr("equal")
	}
	resumed := logsOf("claude-code", "one", "a", "b")
	for range 3 {
		for _, l := range []plog.Logs{request, resumed} {
			if answer, text := e.post("/v1/logs", protobufOf(t, l), "Content-Type", "application/x-protobuf"); answer.StatusCode != http.StatusOK || len(text) != 0 {
				t.Fatalf("%s: %q", answer.Status, text)
			}
		}
	}
	if n := len(e.stored()); n != 5 {
		t.Errorf("%d records are stored, want 5", n)
	}
	for i, r := range resumed.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().All() {
		r.SetTimestamp(pcommon.Timestamp(1_770_000_000_000_000_000 + i))
	}
	e.post("/v1/logs", protobufOf(t, resumed), "Content-Type", "application/x-protobuf")
	if n := len(e.stored()); n != 7 {
		t.Errorf("%d records are stored, want 7", n)
	}
}

// A span by the conventions for generative AI belongs to the agent whose service or scope it names, else to the source
// of the conventions: never to both. The session is that of the conversation.
func TestSpansByTheConventions(t *testing.T) {
	t.Parallel()
	e := start(t, receive.Config{})
	traces := ptrace.NewTraces()
	add := func(service, scope, name string, attributes map[string]string) {
		of := traces.ResourceSpans().AppendEmpty()
		of.Resource().Attributes().PutStr("service.name", service)
		in := of.ScopeSpans().AppendEmpty()
		in.Scope().SetName(scope)
		span := in.Spans().AppendEmpty()
		span.SetName(name)
		for k, v := range attributes {
			span.Attributes().PutStr(k, v)
		}
	}
	chat := map[string]string{"gen_ai.operation.name": "chat", "gen_ai.conversation.id": "c1"}
	add("github-copilot", "github.copilot", "chat m", chat)
	add("renamed", "github.copilot", "permission", map[string]string{"gen_ai.conversation.id": "c1"})
	add("copilot-chat", "copilot-chat", "chat m", map[string]string{"gen_ai.operation.name": "chat", "gen_ai.conversation.id": "r1", "copilot_chat.chat_session_id": "c1"})
	add("copilot-chat", "copilot-chat", "chat m", chat) // a request that is of no chat
	add("ledger", "ledger", "chat m", chat)
	add("github-copilot", "github.copilot", "chat m", map[string]string{"gen_ai.operation.name": "chat"})
	response, err := ptraceotlp.NewGRPCClient(e.dial()).Export(t.Context(), ptraceotlp.NewExportRequestFromTraces(traces))
	if err != nil || response.PartialSuccess().RejectedSpans() != 2 {
		t.Fatalf("%d refused, %v", response.PartialSuccess().RejectedSpans(), err)
	}
	var got []string
	for _, r := range e.stored() {
		got = append(got, fmt.Sprint(r.Source, " ", r.Session))
	}
	slices.Sort(got)
	if want := []string{"copilot c1", "copilot c1", "otel c1", "vscode_copilot c1"}; !slices.Equal(got, want) {
		t.Errorf("stored %q, want %q", got, want)
	}
}
