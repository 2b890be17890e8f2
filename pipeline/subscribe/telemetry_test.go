package subscribe_test

import (
	"context"
	"errors"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/subscribe"
	"tributary/pipeline/worker"
)

// The handler runs in a span of the trace in which the event was published, which links to the
// creation of its record, and the metrics count what it was passed.
func TestHandlerRunsInTheTraceOfItsEvent(t *testing.T) {
	t.Parallel()
	js := pipelinetest.NewServer(t).Provision(topology())
	recorder := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("test")
	record := prompts("s", "one")[0]
	record.Origin.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	pipelinetest.Publish(t, js, record)
	stage, err := worker.New(js, worker.Config{Topology: topology(), Tracer: tracer})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- stage.Run(context.WithoutCancel(t.Context())) }()
	caughtUp(t, js, "v1")
	stage.Drain()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	reader := sdkmetric.NewManualReader()
	s := newSubscription(t, js, subscribe.Config{
		Tracer: tracer, Meter: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("test"),
	})
	var inside trace.SpanContext
	err = s.Run(deadline(t), func(ctx context.Context, e subscribe.Event) error {
		if e.Delivery == 1 {
			return errors.New("once")
		}
		inside = trace.SpanContextFromContext(ctx)
		s.Drain()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var spans []sdktrace.ReadOnlySpan
	var published trace.SpanContext
	for _, span := range recorder.Ended() {
		switch span.Name() {
		case "process events":
			spans = append(spans, span)
		case "publish events":
			published = span.SpanContext()
		}
	}
	if len(spans) != 2 {
		t.Fatalf("%d spans of deliveries", len(spans))
	}
	last := spans[1]
	if last.SpanContext().SpanID() != inside.SpanID() || last.Parent().SpanID() != published.SpanID() || last.SpanKind() != trace.SpanKindConsumer {
		t.Errorf("the span %v of the handler %v has the parent %v, want %v", last.SpanContext(), inside, last.Parent(), published)
	}
	if links := last.Links(); len(links) != 2 || links[1].SpanContext.SpanID().String() != "b7ad6b7169203331" {
		t.Errorf("links %v", last.Links())
	}
	attributes := attribute.NewSet(last.Attributes()...)
	if name, _ := attributes.Value("messaging.destination.subscription.name"); name.AsString() != "test" {
		t.Errorf("attributes %v", last.Attributes())
	}
	var got metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &got); err != nil {
		t.Fatal(err)
	}
	counts := map[bool]int64{} // by whether there was an error
	for _, m := range got.ScopeMetrics[0].Metrics {
		if data, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == "messaging.client.consumed.messages" {
			for _, p := range data.DataPoints {
				counts[p.Attributes.HasValue("error.type")] += p.Value
			}
		}
	}
	if counts[true] != 1 || counts[false] != 1 {
		t.Errorf("counts %v", counts)
	}
}
