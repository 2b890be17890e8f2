package ship

import (
	"context"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/broker"
	"tributary/pipeline/records"
	"tributary/pipeline/streams"
)

// startTrace starts the trace of a record, which has its context from then on. Without a tracer
// the record has none.
func (s *Ship) startTrace(ctx context.Context, r *core.Record, id string) trace.Span {
	if s.config.Tracer == nil {
		return noop.Span{}
	}
	ctx, span := s.config.Tracer.Start(ctx, "publish raw", trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindProducer))
	origin := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, origin)
	r.Origin.Traceparent = origin[envelopes.HeaderTraceparent]
	r.Origin.Tracestate = origin[envelopes.HeaderTracestate]
	if span.IsRecording() {
		span.SetAttributes(
			broker.TraceSystem,
			semconv.MessagingOperationTypeSend,
			semconv.MessagingOperationName("publish"),
			semconv.MessagingDestinationName(streams.RawStream),
			semconv.MessagingDestinationTemplate("raw.{source}.{session}"),
			semconv.MessagingMessageID(id),
			semconv.MessagingMessageConversationID(r.Session),
			semconv.MessagingMessageBodySize(len(r.Data)),
		)
	}
	return span
}

// put stores the object of a message, in a span of the trace of the record.
func (p *publisher) put(ctx context.Context, m parcel) error {
	ctx, span := m.span.TracerProvider().Tracer("tributary/pipeline/ship").Start(trace.ContextWithSpan(ctx, m.span), "put object",
		trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(semconv.MessagingOperationTypeSend, semconv.MessagingOperationName("put")))
	claim, err := p.claims.Put(ctx, m.claimed)
	if err == nil && span.IsRecording() {
		span.SetAttributes(records.ObjectAttributes(claim)...)
	}
	endSpan(span, err)
	return err
}

// endSpan ends a span with its outcome.
func endSpan(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
		span.SetAttributes(semconv.ErrorType(err))
	}
	span.End()
}
