// Command consumer is a consumer of a company, for the script traces.sh: it follows the events of NATS_URL, and exports a
// span for each by the OTEL_ settings, until SIGTERM.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"tributary/pipeline/subscribe"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	ctx := context.Background()
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return err
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	nc, err := nats.Connect(os.Getenv("NATS_URL"))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	s, err := subscribe.New(js, subscribe.Config{
		Name: "traced", Tracer: provider.Tracer("consumer"),
		GenerationChanged: func(context.Context, subscribe.GenerationChanged) error { return nil },
	})
	if err != nil {
		return err
	}
	ended, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ended, s.Drain)
	if err := s.Run(ctx, func(context.Context, subscribe.Event) error { return nil }); err != nil {
		return err
	}
	return provider.Shutdown(ctx)
}
