package ship_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"tributary/pipeline/ship"
)

func TestEveryRecordStartsATrace(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.write("garden/one.jsonl", lines(prompts("one", 1, 3)...))
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	e.once(func(c *ship.Config) { c.Tracer = provider.Tracer("ship") })

	byParent := map[string]tracetest.SpanStub{}
	traces := map[trace.TraceID]bool{}
	for _, s := range spans.GetSpans() {
		traces[s.SpanContext.TraceID()] = true
		byParent["00-"+s.SpanContext.TraceID().String()+"-"+s.SpanContext.SpanID().String()+"-01"] = s
		if s.Name != "publish raw" || s.SpanKind != trace.SpanKindProducer || s.Parent.IsValid() {
			t.Errorf("span %s of kind %v, parent %v", s.Name, s.SpanKind, s.Parent.IsValid())
		}
	}
	all := e.all()
	if len(traces) != len(all) {
		t.Errorf("%d traces for %d messages", len(traces), len(all))
	}
	for _, r := range all {
		s, ok := byParent[r.Origin.Traceparent]
		if !ok {
			t.Fatalf("no span is the parent %q", r.Origin.Traceparent)
		}
		attributes := map[string]string{}
		for _, a := range s.Attributes {
			attributes[string(a.Key)] = a.Value.String()
		}
		for key, want := range map[string]string{
			"messaging.system":                  "nats",
			"messaging.operation.type":          "send",
			"messaging.operation.name":          "publish",
			"messaging.destination.name":        "RAW",
			"messaging.destination.template":    "raw.{source}.{session}",
			"messaging.message.id":              r.header.Get(nats.MsgIdHdr),
			"messaging.message.conversation_id": "one",
		} {
			if attributes[key] != want {
				t.Errorf("%s is %q, want %q", key, attributes[key], want)
			}
		}
	}
}

// The object of a large record is stored in the trace of the record.
func TestObjectIsStoredInTheTraceOfItsRecord(t *testing.T) {
	t.Parallel()
	e := newEdge(t, smallMessages)
	e.write("garden/one.jsonl", strings.Replace(lines(prompt("one", 1)), "water", strings.Repeat("water ", 100<<10/6), 1))
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	e.once(func(c *ship.Config) { c.Tracer = provider.Tracer("ship") })
	var put, published []tracetest.SpanStub
	for _, s := range spans.GetSpans() {
		switch s.Name {
		case "put object":
			put = append(put, s)
		case "publish raw":
			published = append(published, s)
		}
	}
	if len(put) != 1 || put[0].SpanKind != trace.SpanKindClient || put[0].Status.Code != codes.Unset {
		t.Fatalf("the objects are put by %v", put)
	}
	for _, s := range published {
		if s.SpanContext.SpanID() == put[0].Parent.SpanID() {
			return
		}
	}
	t.Error("the span of the object is not in the trace of a record")
}

// A tracer that does not sample still provides a context, which travels.
func TestTraceContextTravelsWhenNotSampled(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.write("garden/one.jsonl", lines(prompt("one", 1)))
	provider := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))
	e.once(func(c *ship.Config) { c.Tracer = provider.Tracer("ship") })
	for _, r := range e.all() {
		if p := r.Origin.Traceparent; len(p) != 55 || p[53:] != "00" {
			t.Errorf("traceparent is %q", p)
		}
	}
}

func TestNoTraceContextWithoutATracer(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.write("garden/one.jsonl", lines(prompt("one", 1)))
	e.once()
	for _, r := range e.all() {
		if _, ok := r.header["traceparent"]; ok {
			t.Error("the record has a traceparent")
		}
	}
}
