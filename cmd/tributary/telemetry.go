package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/otlptranslator"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/exporters/stdout/stdoutmetric"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// telemetry is the SDK of OpenTelemetry, configured by the OTEL_ settings. It makes no spans without an exporter.
type telemetry struct {
	tracing bool // traces are exported
	traces  *sdktrace.TracerProvider
	metrics *sdkmetric.MeterProvider
	scraped *prometheus.Registry // what /metrics serves
}

// newTelemetry starts the exporters that c names. host is an attribute of the telemetry; empty for none. The caller
// stops the exporters with Shutdown.
func newTelemetry(ctx context.Context, c *config, host string) (*telemetry, error) {
	res, err := telemetryResource(ctx, c, host)
	if err != nil {
		return nil, err
	}
	traces, err := traceOptions(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("OTEL_TRACES_EXPORTER: %w", err)
	}
	scraped := prometheus.NewRegistry()
	metrics, err := metricOptions(ctx, c, scraped)
	if err != nil {
		return nil, fmt.Errorf("OTEL_METRICS_EXPORTER: %w", err)
	}
	return &telemetry{
		tracing: !c.SDKDisabled && c.TracesExporter != "none",
		traces:  sdktrace.NewTracerProvider(append(traces, sdktrace.WithResource(res))...),
		metrics: sdkmetric.NewMeterProvider(append(metrics, sdkmetric.WithResource(res))...),
		scraped: scraped,
	}, nil
}

// startTelemetry is [newTelemetry] for a service. Its metrics report whether the process is connected to the broker.
func (a *app) startTelemetry(ctx context.Context, host string) (*telemetry, error) {
	t, err := newTelemetry(ctx, a.config, host)
	if err != nil {
		return nil, err
	}
	return t, observeConnection(t.metrics.Meter(scope), func() bool {
		nc := a.broker.Load()
		return nc != nil && nc.IsConnected()
	})
}

// observeConnection reports whether this process is connected to the broker.
func observeConnection(meter metric.Meter, connected func() bool) error {
	_, err := meter.Int64ObservableGauge("tributary.connected", metric.WithDescription("1 while this process is connected to the broker, else 0."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			n := int64(0)
			if connected() {
				n = 1
			}
			o.Observe(n)
			return nil
		}))
	return err
}

// telemetryResource describes this program to receivers of telemetry.
func telemetryResource(ctx context.Context, c *config, host string) (*resource.Resource, error) {
	attrs := []attribute.KeyValue{semconv.ServiceName(c.ServiceName), semconv.ServiceVersion(version())}
	if host != "" {
		attrs = append(attrs, semconv.HostName(host), semconv.ServiceInstanceID(cmp.Or(c.Worker, fmt.Sprintf("%s-%d", host, os.Getpid()))))
	}
	res, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(attrs...),
		resource.WithFromEnv(),
	)
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	return res, nil
}

// Shutdown sends the buffered rest and stops the exporters.
func (t *telemetry) Shutdown(ctx context.Context) error {
	return errors.Join(t.traces.Shutdown(ctx), t.metrics.Shutdown(ctx))
}

func traceOptions(ctx context.Context, c *config) ([]sdktrace.TracerProviderOption, error) {
	if c.SDKDisabled || c.TracesExporter == "none" {
		return nil, nil
	}
	var exporter sdktrace.SpanExporter
	var err error
	if c.TracesExporter == "console" { // standard output is for data
		exporter, err = stdouttrace.New(stdouttrace.WithWriter(os.Stderr))
	} else {
		exporter, err = c.newExporter(ctx)
	}
	if err != nil {
		return nil, err
	}
	return []sdktrace.TracerProviderOption{sdktrace.WithBatcher(exporter)}, nil
}

// metricOptions returns a reader for the exporter that c names, and one for scraped if c names an address for
// scraping metrics.
func metricOptions(ctx context.Context, c *config, scraped *prometheus.Registry) ([]sdkmetric.Option, error) {
	var options []sdkmetric.Option
	if c.httpAddress() != "" {
		reader, err := scrapedReader(scraped)
		if err != nil {
			return nil, err
		}
		if !c.SDKDisabled {
			options = append(options, sdkmetric.WithReader(reader))
		}
	}
	if c.SDKDisabled || c.MetricsExporter == "none" || c.MetricsExporter == exporterPrometheus {
		return options, nil
	}
	exporter, err := newMetricExporter(ctx, c)
	if err != nil {
		return nil, err
	}
	return append(options, sdkmetric.WithReader(sdkmetric.NewPeriodicReader(exporter))), nil
}

// newMetricExporter returns the exporter that c names, which reads its other settings itself.
func newMetricExporter(ctx context.Context, c *config) (sdkmetric.Exporter, error) {
	switch {
	case c.MetricsExporter == "console":
		return stdoutmetric.New(stdoutmetric.WithWriter(os.Stderr))
	case cmp.Or(c.OTLPMetricsProtocol, c.OTLPProtocol) == protocolGRPC:
		return otlpmetricgrpc.New(ctx)
	default:
		return otlpmetrichttp.New(ctx)
	}
}

// scrapedReader returns a reader that puts its metrics into a registry, beside those of the Go runtime and the
// process.
func scrapedReader(registry *prometheus.Registry) (sdkmetric.Reader, error) {
	for _, c := range []prometheus.Collector{collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo(),
		otelprometheus.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithSuffixes))
}

// scope names the instrumentation of this program.
const scope = "tributary"

// tracer makes spans; nil if no exporter would send them: then records keep the trace context with which they come,
// and others have none.
func (t *telemetry) tracer() trace.Tracer {
	if !t.tracing {
		return nil
	}
	return t.traces.Tracer(scope)
}

// traced calls a function in a span, if traces are exported.
func (a *app) traced(ctx context.Context, name string, do func(context.Context) error) error {
	c := *a.config
	c.MetricsExporter = "none" // the port belongs to the worker
	t, err := newTelemetry(ctx, &c, hostname())
	if err != nil {
		return err
	}
	defer a.shutdown(ctx, t)
	if t.tracing {
		var span trace.Span
		ctx, span = t.tracer().Start(ctx, name)
		defer span.End()
	}
	return do(ctx)
}

// shutdownTimeout bounds the wait for the receivers of telemetry.
const shutdownTimeout = 5 * time.Second

// shutdown stops t at the end of a command, even if ctx has ended.
func (a *app) shutdown(ctx context.Context, t *telemetry) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := t.Shutdown(ctx); err != nil {
		logTelemetryError(a.log, err)
	}
}

// logTelemetryError logs an error of the SDK, which by itself writes lines of another format.
func logTelemetryError(log *slog.Logger, err error) {
	log.Warn("telemetry could not be sent: see OTEL_TRACES_EXPORTER and OTEL_METRICS_EXPORTER", "error", err)
}
