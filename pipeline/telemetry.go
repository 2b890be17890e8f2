package pipeline

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"tributary/envelopes"
	"tributary/normalizers"
)

// The counters of what is stored.
const (
	countRecords = iota
	countEvents
	countSkipped
	countDeadLetters
	countGaps
	countLate
	countForgotten
	countUnknown
	counters
)

// counted is one series of a counter: its source, and its event type or reason. What is
// unknown has a name as its label, a kind, and the version of the agent.
type counted struct {
	counter int
	source  envelopes.Source
	label   string
	kind    normalizers.UnknownKind
	version string
}

// tally is what a chunk adds to the counters once it is stored.
type tally map[counted]int64

func (t tally) add(counter int, source envelopes.Source, label string, n int64) {
	if n != 0 {
		t[counted{counter: counter, source: source, label: label}] += n
	}
}

// addUnknown adds to the count of what is unknown in the logs of a version of an agent.
func (t tally) addUnknown(source envelopes.Source, version string, u normalizers.Unknown) {
	t[counted{countUnknown, source, u.Name, u.Kind, version}] += int64(u.Count)
}

// telemetry is the metrics and traces of a stage. It uses nothing but the API of
// OpenTelemetry.
type telemetry struct {
	tracing     bool
	tracer      trace.Tracer
	counters    [counters]metric.Int64Counter
	commits     metric.Int64Counter
	duration    metric.Float64Histogram
	meter       metric.Meter
	lag         metric.Int64ObservableGauge
	owned       metric.Int64ObservableGauge
	oldest      metric.Float64ObservableGauge
	drift       normalizers.DriftLabels
	destination string // the events stream

	base []attribute.KeyValue // of every measurement
}

// labels are the keys of the attribute [counted.label], by counter.
var labels = [counters]attribute.Key{
	countEvents:      "event_type",
	countSkipped:     "reason",
	countDeadLetters: "reason",
	countUnknown:     "name",
}

// newTelemetry makes the instruments.
func newTelemetry(cfg Config) (*telemetry, error) {
	t := &telemetry{tracing: cfg.Tracer != nil, tracer: cfg.Tracer, destination: EventsStream(cfg.Topology.Generation)}
	if t.tracer == nil {
		t.tracer = tracenoop.NewTracerProvider().Tracer("")
	}
	if t.meter = cfg.Meter; t.meter == nil {
		t.meter = metricnoop.NewMeterProvider().Meter("")
	}
	prefix := "tributary."
	if cfg.pacer != nil {
		prefix, t.base = "tributary.replay.", []attribute.KeyValue{attribute.String("generation", cfg.Topology.Generation)}
	}
	var errs []error
	counter := func(name, unit, description string) metric.Int64Counter {
		c, err := t.meter.Int64Counter(prefix+name, metric.WithUnit(unit), metric.WithDescription(description))
		errs = append(errs, err)
		return c
	}
	t.counters = [counters]metric.Int64Counter{
		countRecords:     counter("records", "{record}", "Raw records that are done, by source."),
		countEvents:      counter("events", "{event}", "Events stored, by source and type."),
		countSkipped:     counter("skipped", "{record}", "Records without an event, by source and reason."),
		countDeadLetters: counter("dead_letters", "{record}", "Records that could not be read, by source and reason."),
		countGaps:        counter("gaps", "{record}", "Records behind a gap in their file: records of the session before them are not in the raw stream, by source."),
		countLate:        counter("late", "{record}", "Records that lay in a gap and came late: their events are appended to their sessions, by source."),
		countForgotten:   counter("forgotten", "{item}", "Items that session states forgot because of a limit, by source."),
		countUnknown:     counter("unknown", "{item}", "What the normalizers do not know in records that are done, by source, version of the agent, kind (record_type, block_type, tool_output, usage_field) and name: a newer version may write something new."),
	}
	t.commits = counter("commits", "{commit}", "Atomic batches, by outcome: stored, fenced (another worker owns the partition), refused, unknown (the answer is lost: acquiring the partition again finds out).")
	var err error
	t.duration, err = t.meter.Float64Histogram(prefix+"commit.duration", metric.WithUnit("s"),
		metric.WithDescription("Time from sending a batch to its outcome, by outcome."),
		metric.WithExplicitBucketBoundaries(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5))
	errs = append(errs, err)
	t.lag, err = t.meter.Int64ObservableGauge(prefix+"lag", metric.WithUnit("{record}"),
		metric.WithDescription("Raw records of the partitions that this worker owns that are not done yet."))
	errs = append(errs, err)
	t.owned, err = t.meter.Int64ObservableGauge(prefix+"partition.owned", metric.WithUnit("{partition}"),
		metric.WithDescription("1 while this worker owns the partition, 0 until it has acquired it, by partition."))
	errs = append(errs, err)
	t.oldest, err = t.meter.Float64ObservableGauge(prefix+"oldest", metric.WithUnit("s"),
		metric.WithDescription("Age of the oldest raw record that is not done yet, by partition; 0 when there is none."))
	return t, errors.Join(append(errs, err)...)
}

// observe reports the lag and the state of each partition until the registration ends. The
// age of a record compares the clock of this machine with that of the broker.
func (t *telemetry) observe(partitions func() []*partition, f *feed) (metric.Registration, error) {
	return t.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		lag := f.waiting()
		for _, p := range partitions() {
			lag += p.open.Load()
			attrs := metric.WithAttributes(append(slices.Clip(t.base), attribute.Int("partition", p.number))...)
			owned, since, age := int64(0), p.waiting.Load(), 0.0
			if is := p.ownership(); is != nil {
				owned = 1
				if stored, ok := is.oldest(); ok { // a record in a chunk is older
					since = stored.UnixNano()
				}
			}
			if since != 0 {
				age = max(0, time.Since(time.Unix(0, since)).Seconds())
			}
			o.ObserveInt64(t.owned, owned, attrs)
			o.ObserveFloat64(t.oldest, age, attrs)
		}
		o.ObserveInt64(t.lag, lag, metric.WithAttributes(t.base...))
		return nil
	}, t.lag, t.owned, t.oldest)
}

// add counts what is stored.
func (t *telemetry) add(ctx context.Context, counts tally) {
	for c, n := range counts {
		source := c.source
		if !slices.Contains(envelopes.Sources, source) {
			source = envelopes.UnknownSource // bounds the series: a producer could name any number of sources
		}
		attrs := append(slices.Clip(t.base), attribute.String("source", string(source)))
		if c.counter == countUnknown {
			is := t.drift.Of(source, c.version, c.kind, c.label)
			attrs = append(attrs, attribute.String("version", is.Version), attribute.String("kind", string(is.Kind)))
			c.label = is.Name
		}
		if key := labels[c.counter]; key != "" {
			attrs = append(attrs, key.String(c.label))
		}
		t.counters[c.counter].Add(ctx, n, metric.WithAttributes(attrs...))
	}
}

// outcomeOf returns the name of the outcome of a batch.
func outcomeOf(err error) string {
	var api *jetstream.APIError
	switch {
	case err == nil:
		return "stored"
	case fenced(err):
		return "fenced"
	case errors.As(err, &api):
		return "refused"
	default:
		return "unknown"
	}
}

// contextOf reads the W3C trace context in which a record was created.
func contextOf(ctx context.Context, traceparent, tracestate string) trace.SpanContext {
	if traceparent == "" {
		return trace.SpanContext{}
	}
	ctx = trace.ContextWithSpanContext(ctx, trace.SpanContext{})
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{
		envelopes.HeaderTraceparent: traceparent,
		envelopes.HeaderTracestate:  tracestate,
	}))
}

// commit sends a batch and observes it: with a span of the work on its records, a span of
// its publication, whose context goes into every message, and the metrics of commits. The
// span of the work begins in the past: the records to link to are known only now.
func (t *telemetry) commit(ctx context.Context, b *batch, messages []*nats.Msg, send func() (uint64, error)) (uint64, error) {
	parent := trace.SpanContext{}
	links := b.links()
	if len(links) == 1 && b.size.records == 1 {
		parent = links[0].SpanContext
	}
	ctx, process := t.tracer.Start(trace.ContextWithRemoteSpanContext(ctx, parent), "process raw",
		trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithTimestamp(b.started()),
		trace.WithLinks(links...),
		trace.WithAttributes(
			semconv.MessagingSystemKey.String("nats"),
			semconv.MessagingOperationTypeProcess,
			semconv.MessagingOperationName("process"),
			semconv.MessagingDestinationName(RawStream),
			semconv.MessagingDestinationTemplate("raw.{source}.{session}"),
			semconv.MessagingBatchMessageCount(b.size.records),
		))
	defer process.End()
	ctx, publish := t.tracer.Start(ctx, "publish events",
		trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(
			semconv.MessagingSystemKey.String("nats"),
			semconv.MessagingOperationTypeSend,
			semconv.MessagingOperationName("publish"),
			semconv.MessagingDestinationName(t.destination),
			semconv.MessagingDestinationTemplate("events.{generation}.{source}.{session}.{type}"),
			semconv.MessagingBatchMessageCount(len(messages)),
		))
	defer publish.End()
	if publish.SpanContext().IsValid() {
		hop := propagation.MapCarrier{}
		propagation.TraceContext{}.Inject(ctx, hop)
		for _, m := range messages {
			setTrace(m.Header, hop[envelopes.HeaderTraceparent], hop[envelopes.HeaderTracestate])
		}
	}
	began := time.Now()
	last, err := send()
	outcome := outcomeOf(err)
	attrs := metric.WithAttributes(append(slices.Clip(t.base), attribute.String("outcome", outcome))...)
	t.commits.Add(ctx, 1, attrs)
	t.duration.Record(ctx, time.Since(began).Seconds(), attrs)
	if err != nil {
		for _, span := range []trace.Span{process, publish} {
			span.SetStatus(codes.Error, "the batch was not stored")
			span.SetAttributes(semconv.ErrorTypeKey.String(outcome))
		}
	}
	return last, err
}

// setTrace sets the trace context of the transport hop.
func setTrace(h nats.Header, traceparent, tracestate string) {
	h[envelopes.HeaderTraceparent] = []string{traceparent}
	if tracestate == "" {
		delete(h, envelopes.HeaderTracestate)
		return
	}
	h[envelopes.HeaderTracestate] = []string{tracestate}
}
