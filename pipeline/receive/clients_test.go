package receive_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/receive"
	"tributary/pipeline/streams"
)

// exporters are the exporters of the SDK of OpenTelemetry, by name.
func exporters(t *testing.T, address string) map[string]func(context.Context) error {
	t.Helper()
	agent := resource.NewSchemaless(attribute.String("service.name", "claude-code"), attribute.String("session.id", "one"))
	spans := func(e sdktrace.SpanExporter, err error) func(context.Context) error {
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.Shutdown(context.Background()) }) //nolint:usetesting // that of the test has ended
		p := sdktrace.NewTracerProvider(sdktrace.WithResource(agent))
		return func(ctx context.Context) error {
			_, span := p.Tracer("t").Start(ctx, "chat")
			span.End()
			return e.ExportSpans(ctx, tracetest.SpanStubs{tracetest.SpanStubFromReadOnlySpan(span.(sdktrace.ReadOnlySpan))}.Snapshots())
		}
	}
	points := func(e sdkmetric.Exporter, err error) func(context.Context) error {
		if err != nil {
			t.Fatal(err)
		}
		p := sdkmetric.NewMeterProvider(sdkmetric.WithResource(agent), sdkmetric.WithReader(sdkmetric.NewPeriodicReader(e)))
		t.Cleanup(func() { _ = p.Shutdown(context.Background()) }) //nolint:usetesting // that of the test has ended
		return func(ctx context.Context) error {
			counter, err := p.Meter("t").Int64Counter("claude_code.token.usage")
			if err != nil {
				return err
			}
			counter.Add(ctx, 1)
			return p.ForceFlush(ctx)
		}
	}
	return map[string]func(context.Context) error{
		"spans by HTTP":  spans(otlptracehttp.New(t.Context(), otlptracehttp.WithEndpoint(address), otlptracehttp.WithInsecure(), otlptracehttp.WithCompression(otlptracehttp.GzipCompression))),
		"spans by gRPC":  spans(otlptracegrpc.New(t.Context(), otlptracegrpc.WithEndpoint(address), otlptracegrpc.WithInsecure(), otlptracegrpc.WithCompressor("gzip"))),
		"points by HTTP": points(otlpmetrichttp.New(t.Context(), otlpmetrichttp.WithEndpoint(address), otlpmetrichttp.WithInsecure())),
		"points by gRPC": points(otlpmetricgrpc.New(t.Context(), otlpmetricgrpc.WithEndpoint(address), otlpmetricgrpc.WithInsecure())),
	}
}

// The exporters of the SDK of OpenTelemetry send again what is refused while the broker is away: it is stored once when
// the broker is back. The receiver is not ready meanwhile, and does not take long to say so.
func TestExportersWhileTheBrokerIsAway(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	js := server.Provision(streams.Topology{Generation: "v1", Partitions: 4})
	e := listen(t, js, receive.Config{})
	list := exporters(t, e.addr)
	for name, export := range list {
		if err := export(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := len(e.stored()); n != len(list) {
		t.Fatalf("%d records are stored, want %d", n, len(list))
	}
	server.Stop()
	e.await("the receiver knows it", func() bool { return !js.Conn().IsConnected() })
	answer, text := e.post("/v1/logs", protobufOf(t, logsOf("claude-code", "one", "x")), "Content-Type", "application/x-protobuf")
	if answer.StatusCode != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") != "5" || !strings.Contains(string(text), "the broker is away") {
		t.Errorf("%s: %q", answer.Status, text)
	}
	results := make(chan error, len(list))
	for _, export := range list {
		go func() { results <- export(t.Context()) }()
	}
	e.await("the exporters are refused", func() bool { return strings.Count(e.log.String(), "requests are refused for now") > len(list) })
	server.Start()
	for range list {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if n := len(e.stored()); n != 2*len(list) {
		t.Errorf("%d records are stored, want %d", n, 2*len(list))
	}
}
