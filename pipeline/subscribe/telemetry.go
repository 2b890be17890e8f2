package subscribe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"tributary/envelopes"
	"tributary/pipeline/broker"
)

// observer has the metrics and traces of a subscription, by the semantic conventions of messaging.
type observer struct {
	name     string
	tracing  bool
	tracer   trace.Tracer
	consumed metric.Int64Counter
	duration metric.Float64Histogram
	backs    metric.Int64Counter
	expiries metric.Int64Counter
}

func newObserver(cfg *Config) (*observer, error) {
	o := &observer{name: cfg.Name, tracing: cfg.Tracer != nil, tracer: cfg.Tracer}
	if o.tracer == nil {
		o.tracer = tracenoop.NewTracerProvider().Tracer("")
	}
	meter := cfg.Meter
	if meter == nil {
		meter = metricnoop.NewMeterProvider().Meter("")
	}
	var err error
	o.consumed, err = meter.Int64Counter("messaging.client.consumed.messages", metric.WithUnit("{message}"),
		metric.WithDescription("Events passed to the handler, by subscription and error."))
	if err != nil {
		return nil, err
	}
	o.duration, err = meter.Float64Histogram("messaging.process.duration", metric.WithUnit("s"),
		metric.WithDescription("Time in the handler, by subscription and error."),
		metric.WithExplicitBucketBoundaries(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10))
	if err != nil {
		return nil, err
	}
	o.backs, err = meter.Int64Counter("tributary.subscription.rollbacks", metric.WithUnit("{rollback}"),
		metric.WithDescription("How often the events stream of a subscription went back in time."))
	if err != nil {
		return nil, err
	}
	o.expiries, err = meter.Int64Counter("tributary.subscription.expired", metric.WithUnit("{message}"),
		metric.WithDescription("Upper bound of the events that may have expired before they were passed."))
	if err == nil { // so that the series exist before the first time
		o.backs.Add(context.Background(), 0, o.ofSubscription())
		o.expiries.Add(context.Background(), 0, o.ofSubscription())
	}
	return o, err
}

// ofSubscription returns the attribute of counts for the subscription as a whole.
func (o *observer) ofSubscription() metric.MeasurementOption {
	return metric.WithAttributes(semconv.MessagingDestinationSubscriptionName(o.name))
}

// wentBack counts a restored stream.
func (o *observer) wentBack(ctx context.Context) { o.backs.Add(ctx, 1, o.ofSubscription()) }

// expired counts events that may have expired.
func (o *observer) expired(ctx context.Context, most uint64) {
	o.expiries.Add(ctx, int64(most), o.ofSubscription())
}

// process calls the handler in a span, with links to the publication of each event and the creation of its record.
// For a single event, its publication is also the parent.
func (o *observer) process(ctx context.Context, events []Event, handle BatchHandler) error {
	base := []attribute.KeyValue{
		semconv.MessagingSystemKey.String("nats"),
		semconv.MessagingOperationTypeProcess,
		semconv.MessagingOperationName("process"),
		semconv.MessagingDestinationSubscriptionName(o.name),
	}
	ctx, span := o.tracer.Start(o.parent(ctx, events), "process events", o.options(ctx, events, base)...)
	defer span.End()
	began := time.Now()
	err := handle(ctx, events)
	if err != nil {
		base = append(base, semconv.ErrorTypeKey.String(errorType(err)))
		span.SetStatus(codes.Error, "the handler failed")
	}
	with := metric.WithAttributes(base...)
	o.consumed.Add(ctx, int64(len(events)), with)
	o.duration.Record(ctx, time.Since(began).Seconds(), with)
	return err
}

// parent returns ctx in the trace of the publication of a single event.
func (o *observer) parent(ctx context.Context, events []Event) context.Context {
	if !o.tracing || len(events) > 1 {
		return ctx
	}
	return trace.ContextWithRemoteSpanContext(ctx, broker.RecordContext(ctx, events[0].Traceparent, events[0].Tracestate))
}

// options returns the links and attributes of the span of a delivery.
func (o *observer) options(ctx context.Context, events []Event, base []attribute.KeyValue) []trace.SpanStartOption {
	if !o.tracing {
		return nil
	}
	var links []trace.Link
	for i := range events {
		e := &events[i]
		for _, c := range []trace.SpanContext{broker.RecordContext(ctx, e.Traceparent, e.Tracestate), broker.RecordContext(ctx, e.Provenance.Traceparent, e.Provenance.Tracestate)} {
			if c.IsValid() {
				links = append(links, trace.Link{SpanContext: c, Attributes: []attribute.KeyValue{semconv.CloudEventsEventID(e.EventID)}})
			}
		}
	}
	attributes := append(slices.Clip(base), semconv.MessagingDestinationTemplate("events.{generation}.{source}.{session}.{type}"))
	if len(events) == 1 {
		attributes = append(attributes, semconv.CloudEventsEventID(events[0].EventID), semconv.CloudEventsEventSubject(events[0].SessionID),
			semconv.CloudEventsEventType(envelopes.SchemaVersion+"."+string(events[0].EventType)))
	} else {
		attributes = append(attributes, semconv.MessagingBatchMessageCount(len(events)))
	}
	return []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithLinks(links...), trace.WithAttributes(attributes...)}
}

// errorType returns a name for the kind of an error, from a small set.
func errorType(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "timeout"
	}
	return fmt.Sprintf("%T", err)
}
