package worker

import (
	"context"
	"maps"
	"slices"
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

// eventsTemplate is the destination of spans, of low cardinality as the semantic conventions require.
var eventsTemplate = semconv.MessagingDestinationTemplate("events.{generation}.{source}.{session}.{type}")

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
// If the batch has one record, the first span joins the trace of the record. If it has several, each record gets
// another span in its own trace, see traceRecords. A replay only links to the records.
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
	if parent.IsValid() {
		process.SetAttributes(ofRecord(links[0])...)
	}
	if n := b.attempt(); n > 1 {
		process.SetAttributes(attrAttempt.Int(n))
	}
	ctx, publish := t.tracer.Start(ctx, "publish events",
		trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(broker.TraceSystem, semconv.MessagingOperationTypeSend, semconv.MessagingOperationName("publish"),
			semconv.MessagingDestinationName(streams.EventsStream(in.name)), eventsTemplate, semconv.MessagingClientID(t.worker),
			semconv.MessagingBatchMessageCount(len(messages)), attrGeneration.String(t.generation)))
	noteDeadLetters(publish, messages)
	spans := []trace.Span{publish, process}
	if publish.SpanContext().IsValid() {
		own := t.traceRecords(ctx, b, links, process)
		for _, m := range messages {
			hop := ctx
			if s := own[spanOf(broker.RecordContext(ctx, m.Header.Get(envelopes.HeaderTraceparent), ""))]; s != nil {
				hop = trace.ContextWithSpan(ctx, s)
			}
			delete(m.Header, envelopes.HeaderTracestate)
			broker.InjectTrace(hop, m)
		}
		spans = slices.AppendSeq(spans, maps.Values(own))
	}
	return ctx, func(err error, outcome string) {
		for _, s := range spans {
			if err != nil {
				broker.FailSpan(s, "the batch was not stored", outcome)
			}
			s.End()
		}
	}
}

// ofRecord returns the attributes of a link to the creation of a record, without the sender: host.name of a span is the
// host of this process.
func ofRecord(l trace.Link) []attribute.KeyValue {
	return slices.DeleteFunc(slices.Clone(l.Attributes), func(a attribute.KeyValue) bool {
		return a.Key == semconv.HostNameKey || a.Key == semconv.UserNameKey
	})
}

// spanID identifies a span among those of all traces.
type spanID struct {
	trace trace.TraceID
	span  trace.SpanID
}

func spanOf(c trace.SpanContext) spanID { return spanID{c.TraceID(), c.SpanID()} }

// traceRecords begins a span for each record of a batch with several records, in the trace of the record, with a link
// to the span of the batch. It returns the spans by the span in which the record was created, which is the context of
// the record's messages.
func (t *traces) traceRecords(ctx context.Context, b *batch, links []trace.Link, process trace.Span) map[spanID]trace.Span {
	own := make(map[spanID]trace.Span)
	if b.size.records == 1 || t.replay {
		return own
	}
	for _, l := range links {
		key := spanOf(l.SpanContext)
		if own[key] != nil {
			continue // several records of a producer were created in one span
		}
		_, own[key] = t.tracer.Start(trace.ContextWithRemoteSpanContext(ctx, l.SpanContext), "process raw", //nolint:spancheck // the caller ends it
			trace.WithSpanKind(trace.SpanKindConsumer),
			trace.WithTimestamp(b.started()),
			trace.WithLinks(trace.Link{SpanContext: process.SpanContext()}),
			trace.WithAttributes(append(ofRecord(l), broker.TraceSystem, semconv.MessagingOperationTypeProcess,
				semconv.MessagingOperationName("process"), semconv.MessagingDestinationName(b.entries[0].outbox.p.cell.raw), events.RawTemplate,
				semconv.MessagingClientID(t.worker), attrGeneration.String(t.generation))...))
	}
	return own
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
