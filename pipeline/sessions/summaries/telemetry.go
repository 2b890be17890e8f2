package summaries

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"tributary/pipeline/events"
)

// telemetry holds the metrics of a keeper. It uses only the API of OpenTelemetry, not the SDK.
type telemetry struct {
	meter   metric.Meter
	events  metric.Int64Counter
	commits metric.Int64Counter
	lag     metric.Int64ObservableGauge
}

func newTelemetry(meter metric.Meter) (*telemetry, error) {
	if meter == nil {
		meter = noop.NewMeterProvider().Meter("")
	}
	t := &telemetry{meter: meter}
	var errs [3]error
	t.events, errs[0] = meter.Int64Counter("tributary.summaries.events", metric.WithUnit("{event}"),
		metric.WithDescription("Events that this worker has added to records of sessions, by generation."))
	t.commits, errs[1] = meter.Int64Counter("tributary.summaries.commits", metric.WithUnit("{commit}"),
		metric.WithDescription("Atomic batches of records of sessions, by generation and outcome: stored, refused (another worker keeps them), unknown (the answer is lost: taking them over again finds out)."))
	t.lag, errs[2] = meter.Int64ObservableGauge("tributary.summaries.lag", metric.WithUnit("{event}"),
		metric.WithDescription("Events that are not in the records of sessions yet, by generation; only of the worker that keeps them."))
	return t, errors.Join(errs[:]...)
}

func generationLabel(generation string) attribute.KeyValue {
	return attribute.String("generation", generation)
}

// add counts events.
func (t *telemetry) add(ctx context.Context, generation string, n int) {
	t.events.Add(ctx, int64(n), metric.WithAttributes(generationLabel(generation)))
}

// commit counts a batch.
func (t *telemetry) commit(ctx context.Context, generation string, err error) {
	outcome := "unknown"
	if err == nil {
		outcome = "stored"
	} else if _, answered := errors.AsType[*jetstream.APIError](err); answered {
		outcome = "refused"
	}
	t.commits.Add(ctx, 1, metric.WithAttributes(generationLabel(generation), attribute.String("outcome", outcome)))
}

// observe reports the lag of a leader until end is called.
func (t *telemetry) observe(l *leader) (end func(), err error) {
	r, err := t.meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		n, err := events.Count(ctx, l.js, l.generation, *l.position.Load())
		if err != nil {
			return err
		}
		o.ObserveInt64(t.lag, int64(n), metric.WithAttributes(generationLabel(l.generation)))
		return nil
	}, t.lag)
	if err != nil {
		return nil, err
	}
	return func() { _ = r.Unregister() }, nil
}
