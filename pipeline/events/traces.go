package events

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"tributary/envelopes"
	"tributary/pipeline/broker"
	"tributary/pipeline/streams"
)

// OutcomeStored is the outcome of a stored batch.
const OutcomeStored = "stored"

// OutcomeOf returns the name of the outcome of a batch.
func OutcomeOf(err error) string {
	var api *jetstream.APIError
	var full *streams.FullError
	switch {
	case err == nil:
		return OutcomeStored
	case broker.Fenced(err):
		return "fenced"
	case errors.As(err, &api), errors.As(err, &full):
		return "refused"
	default:
		return "unknown"
	}
}

// Attributes that the semantic conventions lack.
const (
	AttrSequence = attribute.Key("tributary.record.sequence") // of a record in the raw stream
	AttrReason   = attribute.Key("tributary.dead_letter.reason")
)

// Destinations of spans, of low cardinality as the semantic conventions require.
var (
	RawTemplate = semconv.MessagingDestinationTemplate("raw.{source}.{session}")
)

// traceRequeue begins the span of publishing the copy of a dead letter's record, in the trace of the record, and sets
// the context of the span on the copy.
func (l *DeadLetter) traceRequeue(ctx context.Context, m *nats.Msg) trace.Span {
	outer := trace.SpanFromContext(ctx)
	if !outer.SpanContext().IsValid() {
		return outer
	}
	created := broker.RecordContext(ctx, l.Header.Get(envelopes.HeaderTraceparent), l.Header.Get(envelopes.HeaderTracestate))
	var links []trace.Link
	if published := broker.RecordContext(ctx, l.traceparent, l.tracestate); published.IsValid() {
		links = append(links, trace.Link{SpanContext: published})
	}
	if created.IsValid() {
		links = append(links, trace.Link{SpanContext: outer.SpanContext()})
		ctx = trace.ContextWithRemoteSpanContext(ctx, created)
	}
	ctx, span := outer.TracerProvider().Tracer(broker.TraceScope).Start(ctx, "publish raw", //nolint:spancheck // the caller ends it
		trace.WithSpanKind(trace.SpanKindProducer), trace.WithLinks(links...),
		trace.WithAttributes(broker.TraceSystem, semconv.MessagingOperationTypeSend, semconv.MessagingOperationName("publish"),
			semconv.MessagingDestinationName(streams.RawStreamOf(l.Cell)), RawTemplate, semconv.MessagingMessageID(m.Header.Get(nats.MsgIdHdr)),
			semconv.MessagingMessageConversationID(l.Session), semconv.MessagingMessageBodySize(len(m.Data)),
			AttrSequence.Int64(int64(l.Sequence)), AttrReason.String(l.Reason))) //nolint:gosec // a broker does not get to 2^63
	m.Header.Del(envelopes.HeaderTracestate)
	broker.InjectTrace(ctx, m)
	return span //nolint:spancheck // the same
}
