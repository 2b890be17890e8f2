package receive_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"tributary/pipeline/receive"
)

// spanChannel is an exporter of spans.
type spanChannel chan tracetest.SpanStub

// ExportSpans implements [sdktrace.SpanExporter].
func (c spanChannel) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	for _, s := range spans {
		c <- tracetest.SpanStubFromReadOnlySpan(s)
	}
	return nil
}

// Shutdown implements [sdktrace.SpanExporter].
func (spanChannel) Shutdown(context.Context) error { return nil }

// await returns the next span, which ends after its client has the answer.
func (c spanChannel) await(t *testing.T) tracetest.SpanStub {
	t.Helper()
	select {
	case s := <-c:
		return s
	case <-time.After(patience):
		t.Fatal("no span ends")
		return tracetest.SpanStub{}
	}
}

// Each request is a span, in the trace of its client if that names one. What it stores continues the trace, so that the
// spans of the worker follow that of the request.
func TestEveryRequestIsASpan(t *testing.T) {
	t.Parallel()
	spans := make(spanChannel, 1)
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	e := start(t, receive.Config{Tracer: provider.Tracer("receive")})
	const (
		clientTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
		clientSpan  = "00f067aa0ba902b7"
		hook        = `{"session_id":"one","hook_event_name":"Stop"}`
	)
	post := func(path, kind, body string, want int, header ...string) tracetest.SpanStub {
		t.Helper()
		answer, text := e.post(path, []byte(body), append([]string{"Content-Type", kind}, header...)...)
		if answer.StatusCode != want {
			t.Fatalf("%s: %s %s", path, answer.Status, text)
		}
		return spans.await(t)
	}
	named := post("/v1/hooks/claude", "application/json", hook, http.StatusOK,
		"Traceparent", "00-"+clientTrace+"-"+clientSpan+"-01", "Tracestate", "vendor=x")
	unnamed := post("/v1/records/codex/a%2Fb", "application/x-ndjson", "{}\n{}", http.StatusOK)
	refused := post("/v1/hooks/claude", "application/json", "[secret", http.StatusBadRequest)
	partly := post("/v1/logs", "application/x-protobuf", string(protobufOf(t, logsOf("claude-code", "", "secret"))), http.StatusOK)
	if _, err := plogotlp.NewGRPCClient(e.dial()).Export(t.Context(), plogotlp.NewExportRequestFromLogs(logsOf("claude-code", "two", "x"))); err != nil {
		t.Fatal(err)
	}
	called := spans.await(t)

	if p := named.Parent; p.TraceID().String() != clientTrace || p.SpanID().String() != clientSpan || !p.IsRemote() {
		t.Errorf("parent %v", p)
	}
	if unnamed.Parent.IsValid() || unnamed.SpanContext.TraceID() == named.SpanContext.TraceID() {
		t.Errorf("parent %v of a request that names none", unnamed.Parent)
	}
	got := map[string]string{}
	for _, s := range []tracetest.SpanStub{named, unnamed, refused, partly, called} {
		attributes := map[string]string{}
		for _, a := range s.Attributes {
			attributes[string(a.Key)] = a.Value.String()
		}
		if s.SpanKind != trace.SpanKindServer || attributes["http.request.method"] != http.MethodPost {
			t.Errorf("span %s: kind %v, %v", s.Name, s.SpanKind, attributes)
		}
		text := s.Status.Code.String()
		if s.Status.Code == codes.Error {
			text += " " + attributes["error.type"] + ": " + s.Status.Description
		}
		got[s.Name+", "+attributes["http.route"]] += text + "\n"
	}
	want := map[string]string{
		"receive hooks, POST /v1/hooks/{agent}":                                        "Unset\nError malformed: the body is not the JSON object of a hook\n",
		"receive records, POST /v1/records/{source}/{session}":                         "Unset\n",
		"receive logs, POST /v1/logs":                                                  "Error partly: records that are not stored: 1 without a session (an attribute such as session.id names it)\n",
		"receive logs, POST /opentelemetry.proto.collector.logs.v1.LogsService/Export": "Unset\n",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}

	var origins []string
	for _, r := range e.stored() {
		origins = append(origins, r.Session+" "+r.Origin.Traceparent+" "+r.Origin.Tracestate)
	}
	parent := func(s tracetest.SpanStub) string {
		return "00-" + s.SpanContext.TraceID().String() + "-" + s.SpanContext.SpanID().String() + "-01"
	}
	wantOrigins := []string{
		"one " + parent(named) + " vendor=x", "a/b " + parent(unnamed) + " ", "a/b " + parent(unnamed) + " ", "two " + parent(called) + " ",
	}
	if diff := cmp.Diff(wantOrigins, origins); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

// Without a tracer, a record continues the trace of the client, and one that is too long is left out.
func TestRecordsContinueTheTraceOfTheClient(t *testing.T) {
	t.Parallel()
	e := start(t, receive.Config{})
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for _, header := range []string{parent, strings.Repeat("0", 600), ""} {
		answer, text := e.post("/v1/hooks/claude", []byte(`{"session_id":"one","hook_event_name":"Stop"}`), "Content-Type", "application/json", "Traceparent", header)
		if answer.StatusCode != http.StatusOK {
			t.Fatalf("%s %s", answer.Status, text)
		}
	}
	var got []string
	for _, r := range e.stored() {
		got = append(got, r.Origin.Traceparent)
	}
	if diff := cmp.Diff([]string{parent, "", ""}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A message of a subject is a span of a consumer, in the trace that its headers name, and its records continue that one.
func TestEveryMessageIsASpan(t *testing.T) {
	t.Parallel()
	spans := make(spanChannel, 1)
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	e := start(t, receive.Config{Subjects: atSubjects(t), Tracer: provider.Tracer("receive")})
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	m := nats.NewMsg("otel_logs")
	m.Header["traceparent"] = []string{parent}
	m.Data = protobufOf(t, logsOf("claude-code", "one", "x"))
	if err := e.js.Conn().PublishMsg(m); err != nil {
		t.Fatal(err)
	}
	s := spans.await(t)
	if s.Name != "receive nats_logs" || s.SpanKind != trace.SpanKindConsumer || s.Parent.TraceID() != s.SpanContext.TraceID() ||
		!strings.Contains(parent, s.Parent.SpanID().String()) || !slices.Contains(s.Attributes, attribute.String("messaging.destination.name", "otel_logs")) {
		t.Errorf("span %s: kind %v, parent %v, %v", s.Name, s.SpanKind, s.Parent, s.Attributes)
	}
	want := "00-" + s.SpanContext.TraceID().String() + "-" + s.SpanContext.SpanID().String() + "-01"
	if list := e.stored(); len(list) != 1 || list[0].Origin.Traceparent != want {
		t.Errorf("records %v, want the parent %s", list, want)
	}
}
