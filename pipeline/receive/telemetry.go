package receive

import (
	"context"
	"errors"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"tributary/envelopes"
	"tributary/pipeline/redact"
)

// routes are the names of routes in metrics.
var routes = []string{"logs", "traces", "metrics", "hooks", "records", "nats_logs", "nats_traces", "nats_metrics"}

// unknownAgent is the source of exported records of no known agent.
const unknownAgent = "unknown"

// metrics count what is received. Their labels have few values, which a client cannot choose.
type metrics struct {
	requests   metric.Int64Counter
	duration   metric.Float64Histogram
	records    metric.Int64Counter
	bytes      metric.Int64Counter
	redactions metric.Int64Counter
}

const metricPrefix = "tributary.receive."

func newMetrics(meter metric.Meter, room *room) (*metrics, error) {
	if meter == nil {
		meter = metricnoop.NewMeterProvider().Meter("")
	}
	m := &metrics{}
	errs := make([]error, 6)
	m.requests, errs[0] = meter.Int64Counter(metricPrefix+"requests", metric.WithUnit("{request}"),
		metric.WithDescription("Requests to the receiver, by route and outcome."))
	m.duration, errs[1] = meter.Float64Histogram(metricPrefix+"request.duration", metric.WithUnit("s"),
		metric.WithDescription("Time from the arrival of a request to its answer, by route."),
		metric.WithExplicitBucketBoundaries(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10))
	m.records, errs[2] = meter.Int64Counter(metricPrefix+"records", metric.WithUnit("{record}"),
		metric.WithDescription("Records received, by source and outcome: stored, or refused; of no known agent, the source is unknown."))
	m.bytes, errs[3] = meter.Int64Counter(metricPrefix+"bytes", metric.WithUnit("By"),
		metric.WithDescription("Bytes of the records that the broker has acknowledged, by source."))
	m.redactions, errs[4] = meter.Int64Counter(metricPrefix+"redactions", metric.WithUnit("{item}"),
		metric.WithDescription("Secrets, or texts, that were replaced in the records that the broker has acknowledged, by rule."))
	_, errs[5] = meter.Int64ObservableGauge(metricPrefix+"in_flight", metric.WithUnit("By"),
		metric.WithDescription("Bytes of the requests in progress."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(room.used.Load())
			return nil
		}))
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	// So that the series exist before the first time.
	ctx := context.Background()
	for _, route := range routes {
		for _, outcome := range outcomes {
			m.requests.Add(ctx, 0, ofRoute(route, outcome))
		}
	}
	for _, rule := range []string{redact.RuleContent, redact.RuleUnsearched} {
		m.redactions.Add(ctx, 0, metric.WithAttributes(attribute.String("rule", rule)))
	}
	return m, nil
}

func ofRoute(route, outcome string) metric.MeasurementOption {
	return metric.WithAttributes(attribute.String("route", route), attribute.String("outcome", outcome))
}

func (m *metrics) took(ctx context.Context, route string, took time.Duration) {
	m.duration.Record(ctx, took.Seconds(), metric.WithAttributes(attribute.String("route", route)))
}

func (m *metrics) stored(ctx context.Context, p parcel) {
	source := attribute.String("source", string(p.record.Source))
	m.records.Add(ctx, 1, metric.WithAttributes(source, attribute.String("outcome", "stored")))
	m.bytes.Add(ctx, int64(len(p.record.Data)), metric.WithAttributes(source))
	for _, h := range p.hits {
		m.redactions.Add(ctx, 1, metric.WithAttributes(attribute.String("rule", h.Rule)))
	}
}

// refused counts a record that is not stored; of no known agent if source is empty.
func (m *metrics) refused(ctx context.Context, source envelopes.Source) {
	if source == "" {
		source = unknownAgent
	}
	m.records.Add(ctx, 1, metric.WithAttributes(attribute.String("source", string(source)), attribute.String("outcome", "refused")))
}

// startSpan starts the span of a request, in the trace of its client. Without a tracer there is none.
func (r *Receiver) startSpan(req *http.Request, route string, kind trace.SpanKind, about ...attribute.KeyValue) (*http.Request, trace.Span) {
	if r.config.Tracer == nil {
		return req, tracenoop.Span{}
	}
	ctx := propagation.TraceContext{}.Extract(req.Context(), propagation.HeaderCarrier(req.Header))
	ctx, span := r.config.Tracer.Start(ctx, "receive "+route, trace.WithSpanKind(kind))
	if span.IsRecording() {
		span.SetAttributes(about...)
	}
	return req.WithContext(ctx), span
}

// endSpan ends a span with its outcome.
func endSpan(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
		span.SetAttributes(semconv.ErrorTypeKey.String(outcomeOf(err)))
	}
	span.End()
}

// traceOf returns the context in which the records of a request are made: the span of the request, else that of the
// client.
func traceOf(ctx context.Context, req *http.Request) (traceparent, tracestate string) {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return envelopes.TraceContext(req.Header.Get(envelopes.HeaderTraceparent), req.Header.Get(envelopes.HeaderTracestate))
	}
	origin := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, origin)
	return origin[envelopes.HeaderTraceparent], origin[envelopes.HeaderTracestate]
}
