package ship_test

import (
	"testing"

	"github.com/nats-io/nats.go"
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
