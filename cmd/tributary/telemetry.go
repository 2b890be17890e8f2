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

// telemetry is the SDK of OpenTelemetry, set up by the OTEL_ settings. With no exporter
// nothing is recorded, but spans still have valid ids: every record carries a trace
// context, whoever traces it later.
type telemetry struct {
	tracing bool // traces are exported
	traces  *sdktrace.TracerProvider
	metrics *sdkmetric.MeterProvider
}

// newTelemetry starts the exporters that c names. The caller ends them by Shutdown.
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
		err = fmt.Errorf("name another port in OTEL_EXPORTER_PROMETHEUS_PORT, each worker of a host has its own: %w", err)
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

// Shutdown sends what has not been sent and ends the exporters.
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

// tracer makes the spans of what produces records.
func (t *telemetry) tracer() trace.Tracer { return t.traces.Tracer(scope) }

// stageTracer makes the spans of a stage; nil when nobody would see them, for a stage
// carries the context of a record on in any case.
func (t *telemetry) stageTracer() trace.Tracer {
	if !t.tracing {
		return nil
	}
	return t.tracer()
}

// shutdown ends t when a command ends, also when its context has ended before.
func (a *app) shutdown(ctx context.Context, t *telemetry) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := t.Shutdown(ctx); err != nil {
		a.log.WarnContext(ctx, "telemetry was not sent", "error", err)
	}
}
