package ship

import (
	"context"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/broker"
	"tributary/pipeline/streams"
)

// startTrace starts the trace of a record and sets the trace context of the record. Without a tracer the record gets
// none.
func (s *Ship) startTrace(ctx context.Context, r *core.Record, id string) trace.Span {
	if s.config.Tracer == nil {
		return tracenoop.Span{}
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

// endSpan ends a span with its outcome.
func endSpan(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
		span.SetAttributes(semconv.ErrorType(err))
	}
	span.End()
}
