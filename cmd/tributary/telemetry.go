package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel/exporters/stdout/stdoutmetric"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// telemetry is the SDK of OpenTelemetry, configured by the OTEL_ settings. Without an exporter
// nothing is recorded, but spans have valid ids, so that every record has a trace context for
// a later consumer that exports traces.
type telemetry struct {
	tracing bool // traces are exported
	traces  *sdktrace.TracerProvider
	metrics *sdkmetric.MeterProvider
}

// newTelemetry starts the exporters that c names. The caller stops them with Shutdown.
func newTelemetry(ctx context.Context, c *config) (*telemetry, error) {
	res, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(semconv.ServiceName(c.ServiceName), semconv.ServiceVersion(version())),
		resource.WithFromEnv(),
	)
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	traces, err := traceOptions(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("OTEL_TRACES_EXPORTER: %w", err)
	}
	metrics, err := metricOptions(ctx, c)
	if errors.Is(err, syscall.EADDRINUSE) {
		err = fmt.Errorf("name another port in OTEL_EXPORTER_PROMETHEUS_PORT, a different one for each worker of a host: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("OTEL_METRICS_EXPORTER: %w", err)
	}
	return &telemetry{
		tracing: !c.SDKDisabled && c.TracesExporter != "none",
		traces:  sdktrace.NewTracerProvider(append(traces, sdktrace.WithResource(res))...),
		metrics: sdkmetric.NewMeterProvider(append(metrics, sdkmetric.WithResource(res))...),
	}, nil
}

// Shutdown sends what is still buffered and stops the exporters.
func (t *telemetry) Shutdown(ctx context.Context) error {
	return errors.Join(t.traces.Shutdown(ctx), t.metrics.Shutdown(ctx))
}

func traceOptions(ctx context.Context, c *config) ([]sdktrace.TracerProviderOption, error) {
	if c.SDKDisabled || c.TracesExporter == "none" {
		return []sdktrace.TracerProviderOption{sdktrace.WithSampler(sdktrace.NeverSample())}, nil
	}
	var exporter sdktrace.SpanExporter
	var err error
	if c.TracesExporter == "console" { // standard output is for data
		exporter, err = stdouttrace.New(stdouttrace.WithWriter(os.Stderr))
	} else {
		exporter, err = autoexport.NewSpanExporter(ctx)
	}
	if err != nil {
		return nil, err
	}
	return []sdktrace.TracerProviderOption{sdktrace.WithBatcher(exporter)}, nil
}

func metricOptions(ctx context.Context, c *config) ([]sdkmetric.Option, error) {
	if c.SDKDisabled || c.MetricsExporter == "none" {
		return nil, nil
	}
	var reader sdkmetric.Reader
	var err error
	if c.MetricsExporter == "console" {
		var exporter sdkmetric.Exporter
		exporter, err = stdoutmetric.New(stdoutmetric.WithWriter(os.Stderr))
		reader = sdkmetric.NewPeriodicReader(exporter)
	} else {
		reader, err = autoexport.NewMetricReader(ctx)
	}
	if err != nil {
		return nil, err
	}
	return []sdkmetric.Option{sdkmetric.WithReader(reader)}, nil
}

// scope names the instrumentation of this program.
const scope = "tributary"

// tracer makes the spans of producers.
func (t *telemetry) tracer() trace.Tracer { return t.traces.Tracer(scope) }

// stageTracer makes the spans of a stage; nil if no exporter would send them, because a stage
// passes the trace context of a record on without them.
func (t *telemetry) stageTracer() trace.Tracer {
	if !t.tracing {
		return nil
	}
	return t.tracer()
}

// shutdownTimeout bounds the wait for the receivers of telemetry at the end.
const shutdownTimeout = 5 * time.Second

// shutdown stops t at the end of a command, whose context may have ended.
func (a *app) shutdown(ctx context.Context, t *telemetry) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := t.Shutdown(ctx); err != nil {
		a.log.WarnContext(ctx, "telemetry could not be sent: see OTEL_TRACES_EXPORTER and OTEL_METRICS_EXPORTER", "within", shutdownTimeout, "error", err)
	}
}
