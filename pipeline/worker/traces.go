package worker

import (
	"context"
	"strconv"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"tributary/envelopes"
	"tributary/pipeline/broker"
	"tributary/pipeline/events"
	"tributary/pipeline/records"
	"tributary/pipeline/streams"
)

// Attributes that the semantic conventions lack.
const (
	attrGeneration = attribute.Key("tributary.generation")
	attrAttempt    = attribute.Key("tributary.attempt") // attempt number on a partition; absent for the first
)

// Destinations of spans, of low cardinality as the semantic conventions require.
var (
	eventsTemplate = semconv.MessagingDestinationTemplate("events.{generation}.{source}.{session}.{type}")
)

// traces makes the spans of a stage by the semantic conventions of messaging. Without a tracer it makes none, and
// events carry the trace context of their record unchanged.
type traces struct {
	tracer     trace.Tracer // nil for no spans
	generation string
	worker     string
	replay     bool // beside a live generation: only the live one continues the trace of a record
}

func newTraces(cfg Config) traces {
	return traces{tracer: cfg.Tracer, generation: cfg.Topology.Generation, worker: cfg.Worker, replay: cfg.Pacer != nil}
}

// link returns the link to the creation of a record. It returns false without a tracer, and for a record without a
// valid context.
func (t *traces) link(ctx context.Context, r *received) (trace.Link, bool) {
	if t.tracer == nil || r.Origin.Traceparent == "" {
		return trace.Link{}, false
	}
	created := broker.RecordContext(ctx, r.Origin.Traceparent, r.Origin.Tracestate)
	if !created.IsValid() {
		return trace.Link{}, false
	}
	attrs := []attribute.KeyValue{
		events.AttrSequence.Int64(int64(r.Sequence)), //nolint:gosec // sequences stay below 2^63
		semconv.MessagingMessageConversationID(r.Session),
		semconv.MessagingMessageBodySize(len(r.Data)),
	}
	if e := r.Origin.Edge; e != nil && e.Host != "" {
		attrs = append(attrs, semconv.HostName(e.Host))
	}
	if e := r.Origin.Edge; e != nil && e.User != "" {
		attrs = append(attrs, semconv.UserName(e.User))
	}
	if id := r.raw.Header.Get(nats.MsgIdHdr); id != "" {
		attrs = append(attrs, semconv.MessagingMessageID(id))
	}
	return trace.Link{SpanContext: created, Attributes: attrs}, true
}

// traceCommit begins two spans: the work on the records of a batch, and its publication, whose context goes into
// every message. end ends both. The first span begins in the past, because only now the records to link to are known.
// The work on a single record joins its trace; a replay only links to it.
func (t *traces) traceCommit(ctx context.Context, b *batch, messages []*nats.Msg) (spanned context.Context, end func(error, string)) {
	if t.tracer == nil {
		return ctx, func(error, string) {}
	}
	links := b.links()
	parent := trace.SpanContext{}
	if len(links) == 1 && b.size.records == 1 && !t.replay {
		parent = links[0].SpanContext
	}
	in := b.entries[0].outbox.p.cell // the same for all entries
	ctx, process := t.tracer.Start(trace.ContextWithRemoteSpanContext(ctx, parent), "process raw",
		trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithTimestamp(b.started()),
		trace.WithLinks(links...),
		trace.WithAttributes(broker.TraceSystem, semconv.MessagingOperationTypeProcess, semconv.MessagingOperationName("process"),
			semconv.MessagingDestinationName(in.raw), events.RawTemplate, semconv.MessagingClientID(t.worker),
			semconv.MessagingBatchMessageCount(b.size.records), attrGeneration.String(t.generation)))
	if n := b.attempt(); n > 1 {
		process.SetAttributes(attrAttempt.Int(n))
	}
	ctx, publish := t.tracer.Start(ctx, "publish events",
		trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(broker.TraceSystem, semconv.MessagingOperationTypeSend, semconv.MessagingOperationName("publish"),
			semconv.MessagingDestinationName(streams.EventsStream(in.name)), eventsTemplate, semconv.MessagingClientID(t.worker),
			semconv.MessagingBatchMessageCount(len(messages)), attrGeneration.String(t.generation)))
	noteDeadLetters(publish, messages)
	if publish.SpanContext().IsValid() {
		for _, m := range messages {
			delete(m.Header, envelopes.HeaderTracestate)
		}
		broker.InjectTrace(ctx, messages...)
	}
	return ctx, func(err error, outcome string) {
		if err != nil {
			broker.FailSpan(publish, "the batch was not stored", outcome)
			broker.FailSpan(process, "the batch was not stored", outcome)
		}
		publish.End()
		process.End()
	}
}

// noteDeadLetters adds an event to a span for each dead letter of a batch.
func noteDeadLetters(span trace.Span, messages []*nats.Msg) {
	if !span.IsRecording() {
		return
	}
	for _, m := range messages {
		if reason := m.Header.Get(envelopes.HeaderReason); reason != "" {
			sequence, _ := strconv.ParseInt(m.Header.Get(envelopes.HeaderSequence), 10, 64) // written by the stage
			span.AddEvent("dead letter", trace.WithAttributes(events.AttrReason.String(reason), events.AttrSequence.Int64(sequence)))
		}
	}
}

// traceGet begins the span of fetching the object of a record. end ends it.
func (t *traces) traceGet(ctx context.Context, y *body) (spanned context.Context, end func(error)) {
	if t.tracer == nil {
		return ctx, func(error) {}
	}
	created := broker.RecordContext(ctx, y.traceparent, y.tracestate)
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(append(records.ObjectAttributes(y.claim),
		semconv.MessagingOperationTypeReceive, semconv.MessagingOperationName("get"), attrGeneration.String(t.generation))...)}
	if created.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: created}))
	}
	if t.replay {
		created = trace.SpanContext{}
	}
	ctx, span := t.tracer.Start(trace.ContextWithRemoteSpanContext(ctx, created), "get object", options...) //nolint:spancheck // end ends it
	return ctx, func(err error) {                                                                           //nolint:spancheck // the same
		if err != nil {
			reason, _ := records.Reason(err)
			broker.FailSpan(span, "the object could not be fetched", reason)
		}
		span.End()
	}
}
