package broker

import (
	"context"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"tributary/envelopes"
)

// TraceSystem is the messaging system in all spans.
var TraceSystem = semconv.MessagingSystemKey.String("nats")

// TraceScope names the instrumentation of this package if no tracer is passed.
const TraceScope = "tributary/pipeline"

// FailSpan sets the error of a span.
func FailSpan(span trace.Span, description, kind string) {
	span.SetStatus(codes.Error, description)
	span.SetAttributes(semconv.ErrorTypeKey.String(kind))
}

// RecordContext parses a W3C trace context of a record or a hop. An invalid text gives an invalid context.
func RecordContext(ctx context.Context, traceparent, tracestate string) trace.SpanContext {
	if traceparent == "" {
		return trace.SpanContext{}
	}
	ctx = trace.ContextWithSpanContext(ctx, trace.SpanContext{})
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{
		envelopes.HeaderTraceparent: traceparent,
		envelopes.HeaderTracestate:  tracestate,
	}))
}

// InjectTrace sets the trace context of ctx in the hop headers of messages.
func InjectTrace(ctx context.Context, messages ...*nats.Msg) {
	hop := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, hop)
	for _, m := range messages {
		SetTrace(m.Header, hop[envelopes.HeaderTraceparent], hop[envelopes.HeaderTracestate])
	}
}

// SetTrace sets the trace context of the hop, if it is not empty.
func SetTrace(h nats.Header, traceparent, tracestate string) {
	if traceparent != "" {
		h[envelopes.HeaderTraceparent] = []string{traceparent}
	}
	if tracestate != "" {
		h[envelopes.HeaderTracestate] = []string{tracestate}
	}
}
