package titles

import (
	"cmp"
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// telemetry holds the metrics of a service. It uses only the API of OpenTelemetry, not the SDK.
type telemetry struct {
	requests  metric.Int64Counter
	duration  metric.Float64Histogram
	conflicts metric.Int64Counter
}

func newTelemetry(meter metric.Meter) (*telemetry, error) {
	if meter == nil {
		meter = noop.NewMeterProvider().Meter("")
	}
	var t telemetry
	var errs [3]error
	t.requests, errs[0] = meter.Int64Counter("tributary.sessions.requests", metric.WithUnit("{request}"),
		metric.WithDescription("Requests about titles and pins that are answered, by endpoint and outcome: changed, unchanged, read, or the code of the error."))
	t.duration, errs[1] = meter.Float64Histogram("tributary.sessions.request.duration", metric.WithUnit("s"),
		metric.WithDescription("Time from the arrival of a request about titles and pins to its answer, by endpoint."),
		metric.WithExplicitBucketBoundaries(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5))
	t.conflicts, errs[2] = meter.Int64Counter("tributary.sessions.conflicts", metric.WithUnit("{write}"),
		metric.WithDescription("Writes of titles and pins that another writer overtook, and that were tried again."))
	return &t, errors.Join(errs[:]...)
}

// zero starts the series of successful requests at 0, so that their first increase shows.
func (t *telemetry) zero(ctx context.Context) {
	for e, name := range endpointNames {
		outcomes := []string{"changed", "unchanged"}
		if e := endpoint(e); e == endpointGet || e == endpointList {
			outcomes = []string{"read"}
		}
		for _, o := range outcomes {
			t.requests.Add(ctx, 0, metric.WithAttributes(attribute.String("endpoint", name), attribute.String("outcome", o)))
		}
	}
	t.conflicts.Add(ctx, 0)
}

// count counts a request.
func (t *telemetry) count(ctx context.Context, e endpoint, o outcome) {
	result := "changed"
	switch {
	case o.unchanged:
		result = "unchanged"
	case e == endpointGet, e == endpointList:
		result = "read"
	}
	name := attribute.String("endpoint", endpointNames[e])
	t.requests.Add(ctx, 1, metric.WithAttributes(name, attribute.String("outcome", cmp.Or(o.code, result))))
	t.duration.Record(ctx, o.took.Seconds(), metric.WithAttributes(name))
}
