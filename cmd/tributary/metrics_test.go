package main

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/otlptranslator"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"tributary/envelopes/pagetest"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/receive"
	"tributary/pipeline/sessions/summaries"
	"tributary/pipeline/sessions/titles"
	"tributary/pipeline/ship"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// metricsList lists the metrics of the processes, as Prometheus names them, a line for those of one kind with the same labels.
func metricsList(t *testing.T) string {
	t.Helper()
	var groups []string
	names := map[string][]string{}
	for _, i := range instrumentsOf(t) {
		group := i.kind + " of " + i.process
		if len(i.labels) > 0 {
			group += " by `" + strings.Join(i.labels, "` `") + "`"
		}
		if names[group] == nil {
			groups = append(groups, group)
		}
		names[group] = append(names[group], "`"+i.name+"`")
	}
	var b strings.Builder
	for _, g := range groups {
		b.WriteString(pagetest.Filled("- " + g + ": " + strings.Join(names[g], ", ")))
	}
	return b.String()
}

// instrument is a metric as Prometheus names it.
type instrument struct {
	process, name, kind string
	labels              []string
}

// instrumentsOf returns the metrics of run, ship and receive; up has all.
func instrumentsOf(t *testing.T) []instrument {
	t.Helper()
	server := pipelinetest.NewServer(t)
	js := server.JetStream()
	m := &instruments{process: "run"}
	_, err := worker.New(js, worker.Config{Topology: streams.Topology{Generation: "v1", Partitions: 1}, Meter: m})
	if err != nil {
		t.Fatal(err)
	}
	_, err = summaries.New(js, summaries.Config{Meter: m})
	if err != nil {
		t.Fatal(err)
	}
	_, err = titles.New(js, titles.Config{Meter: m})
	if err != nil {
		t.Fatal(err)
	}
	m.process = "ship"
	nc, err := nats.Connect(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	s, err := ship.New(nc, ship.Config{Input: strings.NewReader(""), Meter: m})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.process = "receive"
	if _, err := receive.New(js, receive.Config{Meter: m}); err != nil {
		t.Fatal(err)
	}
	m.process = "run ship receive"
	if err := observeConnection(m, nc.IsConnected); err != nil {
		t.Fatal(err)
	}
	return m.list
}

// labelsOf matches the labels that a description names.
var labelsOf = regexp.MustCompile(`, by ((?:[a-z_]+, )*[a-z_]+ and [a-z_]+|[a-z_]+)([.:;])`)

// instruments is a meter that records its instruments.
type instruments struct {
	noop.Meter

	process string
	list    []instrument
}

func (m *instruments) add(name string, kind otlptranslator.MetricType, unit, description string) {
	namer := otlptranslator.NewMetricNamer("", otlptranslator.UnderscoreEscapingWithSuffixes)
	translated, err := namer.Build(otlptranslator.Metric{Name: name, Unit: unit, Type: kind})
	if err != nil {
		panic(err)
	}
	i := instrument{process: m.process, name: translated}
	switch kind {
	case otlptranslator.MetricTypeMonotonicCounter:
		i.kind = "counter"
	case otlptranslator.MetricTypeHistogram:
		i.kind = "histogram"
	default:
		i.kind = "gauge"
	}
	if found := labelsOf.FindStringSubmatch(description); found != nil {
		i.labels = strings.Split(strings.ReplaceAll(found[1], " and ", ", "), ", ")
	}
	m.list = append(m.list, i)
}

func (m *instruments) Int64Counter(name string, options ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	c := metric.NewInt64CounterConfig(options...)
	m.add(name, otlptranslator.MetricTypeMonotonicCounter, c.Unit(), c.Description())
	return m.Meter.Int64Counter(name, options...)
}

func (m *instruments) Float64Counter(name string, options ...metric.Float64CounterOption) (metric.Float64Counter, error) {
	c := metric.NewFloat64CounterConfig(options...)
	m.add(name, otlptranslator.MetricTypeMonotonicCounter, c.Unit(), c.Description())
	return m.Meter.Float64Counter(name, options...)
}

func (m *instruments) Int64ObservableCounter(name string, options ...metric.Int64ObservableCounterOption) (metric.Int64ObservableCounter, error) {
	c := metric.NewInt64ObservableCounterConfig(options...)
	m.add(name, otlptranslator.MetricTypeMonotonicCounter, c.Unit(), c.Description())
	return m.Meter.Int64ObservableCounter(name, options...)
}

func (m *instruments) Int64Histogram(name string, options ...metric.Int64HistogramOption) (metric.Int64Histogram, error) {
	c := metric.NewInt64HistogramConfig(options...)
	m.add(name, otlptranslator.MetricTypeHistogram, c.Unit(), c.Description())
	return m.Meter.Int64Histogram(name, options...)
}

func (m *instruments) Float64Histogram(name string, options ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	c := metric.NewFloat64HistogramConfig(options...)
	m.add(name, otlptranslator.MetricTypeHistogram, c.Unit(), c.Description())
	return m.Meter.Float64Histogram(name, options...)
}

func (m *instruments) Int64ObservableGauge(name string, options ...metric.Int64ObservableGaugeOption) (metric.Int64ObservableGauge, error) {
	c := metric.NewInt64ObservableGaugeConfig(options...)
	m.add(name, otlptranslator.MetricTypeGauge, c.Unit(), c.Description())
	return m.Meter.Int64ObservableGauge(name, options...)
}

func (m *instruments) Float64ObservableGauge(name string, options ...metric.Float64ObservableGaugeOption) (metric.Float64ObservableGauge, error) {
	c := metric.NewFloat64ObservableGaugeConfig(options...)
	m.add(name, otlptranslator.MetricTypeGauge, c.Unit(), c.Description())
	return m.Meter.Float64ObservableGauge(name, options...)
}

// byName returns the metrics of a process by name.
func byName(list []instrument, process string) map[string]instrument {
	all := make(map[string]instrument)
	for _, i := range list {
		if slices.Contains(strings.Fields(i.process), process) {
			slices.SortFunc(i.labels, cmp.Compare[string])
			all[i.name] = i
		}
	}
	return all
}
