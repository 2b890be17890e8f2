package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"tributary/cmd/internal/terminal"
	"tributary/pipeline/genai"
)

// exportTogether is the number of spans per request.
const exportTogether = 512

// exportSpans sends the spans of a session to the receiver of the OTEL_EXPORTER_OTLP_ settings.
func exportSpans(ctx context.Context, a *app, spans []*genai.Span) error {
	to := a.config.tracesEndpoint()
	exporter, err := a.config.newExporter(ctx)
	if err != nil {
		return fmt.Errorf("OTEL_EXPORTER_OTLP_: %w", err)
	}
	defer func() { _ = exporter.Shutdown(context.WithoutCancel(ctx)) }() // everything was sent or refused
	res, err := telemetryResource(ctx, a.config, "")                     // the session may be of another host
	if err != nil {
		return err
	}
	ended := &endedSpans{}
	provider := sdktrace.NewTracerProvider(sdktrace.WithResource(res), sdktrace.WithIDGenerator(statedIDs{}),
		sdktrace.WithSampler(sdktrace.AlwaysSample()), sdktrace.WithSpanProcessor(ended))
	tracer := provider.Tracer(scope, trace.WithInstrumentationVersion(version()), trace.WithSchemaURL(genai.SchemaURL))
	traces := 0
	for chunk := range slices.Chunk(spans, exportTogether) {
		for _, s := range chunk {
			if s.Parent == nil {
				traces++
			}
			replaySpan(ctx, tracer, s)
		}
		if err := exporter.ExportSpans(ctx, ended.take()); err != nil {
			return fmt.Errorf("export to %s: %w: start the receiver, or name another one in OTEL_EXPORTER_OTLP_ENDPOINT", to, err)
		}
	}
	fmt.Fprintf(a.stderr, "exported %s in %s to %s\n", terminal.Plural(len(spans), "span"), terminal.Plural(traces, "trace"), to)
	return nil
}

// protocolGRPC names the protocol that is not the default.
const protocolGRPC = "grpc"

// newExporter returns an exporter for the protocol of the settings. The exporter reads the other settings itself.
func (c *config) newExporter(ctx context.Context) (*otlptrace.Exporter, error) {
	if c.tracesProtocol() == protocolGRPC {
		return otlptracegrpc.New(ctx)
	}
	return otlptracehttp.New(ctx)
}

func (c *config) tracesProtocol() string { return cmp.Or(c.OTLPTracesProtocol, c.OTLPProtocol) }

// tracesEndpoint returns the receiver of traces, without user and password.
func (c *config) tracesEndpoint() string {
	standard := "http://localhost:4318"
	if c.tracesProtocol() == protocolGRPC {
		standard = "http://localhost:4317"
	}
	return redactURL(cmp.Or(c.OTLPTracesEndpoint, c.OTLPEndpoint, standard))
}

// replaySpan starts and ends a span with its own times and ids.
func replaySpan(ctx context.Context, tracer trace.Tracer, s *genai.Span) {
	ctx = context.WithValue(ctx, spanKey{}, s)
	ctx = trace.ContextWithSpanContext(ctx, spanContextOf(s.Parent))
	options := []trace.SpanStartOption{trace.WithTimestamp(s.Start), trace.WithSpanKind(s.Kind()), trace.WithAttributes(s.Attributes...)}
	if s.Previous != nil {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: spanContextOf(s.Previous)}))
	}
	_, span := tracer.Start(ctx, s.Name, options...)
	if s.Failure != "" {
		span.SetStatus(codes.Error, s.Failure)
	}
	span.End(trace.WithTimestamp(s.End))
}

// spanContextOf returns the context of a span, zero if s is nil.
func spanContextOf(s *genai.Span) trace.SpanContext {
	if s == nil {
		return trace.SpanContext{}
	}
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: s.TraceID, SpanID: s.SpanID, TraceFlags: trace.FlagsSampled})
}

// spanKey is the context key of the span to start.
type spanKey struct{}

// statedIDs gives each span the ids of the span in its context.
type statedIDs struct{}

func (statedIDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	s := ctx.Value(spanKey{}).(*genai.Span)
	return s.TraceID, s.SpanID
}

func (statedIDs) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	return ctx.Value(spanKey{}).(*genai.Span).SpanID
}

// endedSpans collects spans that have ended. The command exports them itself, because a processor of the SDK would
// only log a failed export.
type endedSpans struct{ spans []sdktrace.ReadOnlySpan }

func (e *endedSpans) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (e *endedSpans) OnEnd(s sdktrace.ReadOnlySpan)                   { e.spans = append(e.spans, s) }
func (e *endedSpans) Shutdown(context.Context) error                  { return nil }
func (e *endedSpans) ForceFlush(context.Context) error                { return nil }

// take returns the spans that have ended since the last call.
func (e *endedSpans) take() []sdktrace.ReadOnlySpan {
	spans := e.spans
	e.spans = nil
	return spans
}
