package ship

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"tributary/pipeline/redact"
)

// reasons are the values of [Reason].
var reasons = []Reason{ReasonTooLarge, ReasonUnknownSource, ReasonUnreadable, ReasonLocked, ReasonDamaged, ReasonUnknownSchema}

// instruments are the metrics of a Ship. They read its [Summary] when they are collected, and cost nothing otherwise.
type instruments struct {
	meter metric.Meter
	errs  []error
	list  []metric.Observable
	reads []func(metric.Observer, Summary)
}

// startMetrics reports the metrics of the Ship until stop is called.
func (s *Ship) startMetrics(meter metric.Meter) (stop func(), err error) {
	if meter == nil {
		meter = noop.NewMeterProvider().Meter("")
	}
	m := &instruments{meter: meter}
	m.counter("records", "{record}", "Records that the broker has acknowledged.", func(sum Summary) int64 { return int64(sum.Records) })
	m.counter("duplicates", "{record}", "Records acknowledged that the broker already had.", func(sum Summary) int64 { return int64(sum.Duplicates) })
	m.counter("bytes", "By", "Bytes of the records that the broker has acknowledged.", func(sum Summary) int64 { return sum.Bytes })
	m.counter("stalls", "{stall}", "Times that the broker stopped taking records.", func(sum Summary) int64 { return int64(sum.Stalls) })
	m.counter("losses", "{loss}", "Times that the raw stream had lost records that it had acknowledged.", func(sum Summary) int64 { return int64(len(sum.Losses)) })
	m.counter("revived", "{message}", "Messages that the broker took for duplicates of removed ones, stored under other ids.", func(sum Summary) int64 { return int64(sum.Revived) })
	m.gauge("files", "{file}", "Logs found.", func(sum Summary) int64 { return int64(sum.Files) })
	m.gauge("hidden", "{folder}", "Hidden folders below the paths that were skipped at the start.", func(sum Summary) int64 { return int64(sum.Hidden) })
	m.gauge("held", "{file}", "Logs whose end is held back until it is complete.", func(sum Summary) int64 { return int64(len(sum.Held)) })
	m.gauge("stalled", "", "1 while the broker takes no records, else 0.", func(sum Summary) int64 {
		if sum.Stalled != nil {
			return 1
		}
		return 0
	})
	m.gauge("backlog", "By", "Bytes of logs that the broker has not acknowledged, by sizes on disk.", func(sum Summary) int64 { return sum.Behind.Bytes })
	m.gauge("backlog.files", "{file}", "Logs with content that the broker has not acknowledged.", func(sum Summary) int64 { return int64(sum.Behind.Files) })
	m.gauge("pending", "{record}", "Records read that the broker has not acknowledged.", func(Summary) int64 { return s.publisher.pending.Load() })
	m.refused()
	m.redactions()
	m.oldest()
	if err := errors.Join(m.errs...); err != nil {
		return nil, err
	}
	r, err := meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		sum := s.Summary()
		for _, read := range m.reads {
			read(o, sum)
		}
		return nil
	}, m.list...)
	if err != nil {
		return nil, err
	}
	return func() { _ = r.Unregister() }, nil
}

const metricPrefix = "tributary.ship."

func (m *instruments) counter(name, unit, text string, value func(Summary) int64) {
	c, err := m.meter.Int64ObservableCounter(metricPrefix+name, metric.WithUnit(unit), metric.WithDescription(text))
	m.add(c, err, func(o metric.Observer, sum Summary) { o.ObserveInt64(c, value(sum)) })
}

func (m *instruments) gauge(name, unit, text string, value func(Summary) int64) {
	g, err := m.meter.Int64ObservableGauge(metricPrefix+name, metric.WithUnit(unit), metric.WithDescription(text))
	m.add(g, err, func(o metric.Observer, sum Summary) { o.ObserveInt64(g, value(sum)) })
}

func (m *instruments) refused() {
	c, err := m.meter.Int64ObservableCounter(metricPrefix+"refused", metric.WithUnit("{item}"), metric.WithDescription("Logs and records that are not shipped, by reason."))
	m.add(c, err, func(o metric.Observer, sum Summary) {
		for _, r := range reasons {
			o.ObserveInt64(c, int64(sum.Refused[r]), metric.WithAttributes(attribute.String("reason", string(r))))
		}
	})
}

// redactions counts by rule; the redactor bounds the number of rules. The series that belong to no rule exist from
// the start.
func (m *instruments) redactions() {
	c, err := m.meter.Int64ObservableCounter(metricPrefix+"redactions", metric.WithUnit("{item}"),
		metric.WithDescription("Secrets, or texts, that were replaced in the records that the broker has acknowledged, by rule."))
	m.add(c, err, func(o metric.Observer, sum Summary) {
		for _, rule := range []string{redact.RuleContent, redact.RuleUnsearched} {
			if _, ok := sum.Redacted[rule]; !ok {
				o.ObserveInt64(c, 0, metric.WithAttributes(attribute.String("rule", rule)))
			}
		}
		for rule, n := range sum.Redacted {
			o.ObserveInt64(c, int64(n), metric.WithAttributes(attribute.String("rule", rule)))
		}
	})
}

func (m *instruments) oldest() {
	g, err := m.meter.Float64ObservableGauge(metricPrefix+"oldest", metric.WithUnit("s"), metric.WithDescription("Age of the oldest content that the broker has not acknowledged, 0 when there is none."))
	m.add(g, err, func(o metric.Observer, sum Summary) {
		age := 0.0
		if at := sum.Behind.Oldest; !at.IsZero() {
			age = max(0, time.Since(at).Seconds())
		}
		o.ObserveFloat64(g, age)
	})
}

func (m *instruments) add(o metric.Observable, err error, read func(metric.Observer, Summary)) {
	m.errs, m.list, m.reads = append(m.errs, err), append(m.list, o), append(m.reads, read)
}
