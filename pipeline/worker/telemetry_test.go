package worker_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// The trace of a record leads from its creation to the work on it, to the publication of its
// events, and on in their headers.
func TestTraceLeadsFromRecordToEvents(t *testing.T) {
	t.Parallel()
	top := topology(2)
	js := pipelinetest.NewServer(t).Provision(top)
	records := pipelinetest.Workload(50, 5, 60)
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	pipelinetest.Publish(t, js, records[:50]...)
	s := start(t, js, worker.Config{Topology: top, Tracer: provider.Tracer("test")})
	x := pipelinetest.Expectation{Topology: top}
	x.RequireExact(t, js)
	for _, r := range records[50:] { // these are batches of one
		pipelinetest.Publish(t, js, r)
		x.RequireExact(t, js)
	}
	s.stop(t)

	seen := make(map[string]int) // how often the work on a batch links to the trace of each record
	own := make(map[string]int)  // spans of the work on a record in its trace
	published := make(map[string]bool)
	processed := make(map[trace.SpanID]bool)
	alone := 0
	for _, span := range recorder.Ended() {
		attrs := attribute.NewSet(span.Attributes()...)
		count, isBatch := attrs.Value("messaging.batch.message_count")
		switch span.Name() {
		case "process raw":
			if span.SpanKind() != trace.SpanKindConsumer {
				t.Errorf("%s is of kind %s", span.Name(), span.SpanKind())
			}
			if span.Parent().IsValid() {
				own[span.SpanContext().TraceID().String()]++
				published[span.SpanContext().SpanID().String()] = true
			}
			if !isBatch {
				if !span.Parent().IsRemote() || len(span.Links()) != 1 || span.Links()[0].SpanContext.TraceID() == span.SpanContext().TraceID() {
					t.Errorf("the work on a record of a batch has the parent %v and the links %v", span.Parent(), span.Links())
				}
				continue
			}
			processed[span.SpanContext().SpanID()] = true
			for _, l := range span.Links() {
				seen[l.SpanContext.TraceID().String()]++
			}
			if count.AsInt64() == 1 && len(span.Links()) == 1 {
				alone++
				if span.Parent().TraceID() != span.Links()[0].SpanContext.TraceID() || !span.Parent().IsRemote() {
					t.Error("the work on one record is not in its trace")
				}
			} else if span.Parent().IsValid() {
				t.Errorf("the work on %d records is in the trace of one", count.AsInt64())
			}
		case "publish events":
			if span.SpanKind() != trace.SpanKindProducer {
				t.Errorf("%s is of kind %s", span.Name(), span.SpanKind())
			}
			published[span.SpanContext().SpanID().String()] = true
		default:
			t.Errorf("span %s", span.Name())
		}
	}
	for _, span := range recorder.Ended() {
		if span.Name() == "publish events" && !processed[span.Parent().SpanID()] {
			t.Error("a publication without the work before it")
		}
	}
	for i, r := range records {
		parts := strings.Split(r.Origin.Traceparent, "-")
		if len(parts) == 4 && seen[parts[1]] != 1 {
			t.Errorf("the work refers %d times to record %d", seen[parts[1]], i+1)
		}
		if len(parts) == 4 && own[parts[1]] != 1 {
			t.Errorf("the trace of record %d has %d spans of the work on it", i+1, own[parts[1]])
		}
	}
	if alone < 5 {
		t.Errorf("%d batches of one record", alone)
	}
	n := 0
	for _, m := range stored(t, js, "events.v1.>") {
		hop := strings.Split(m.Header.Get("traceparent"), "-")
		if len(hop) != 4 || !published[hop[2]] {
			t.Errorf("event %d has the hop %v", m.Sequence, hop)
		}
		if origin := strings.Split(m.Header.Get("ce-traceparent"), "-"); len(origin) != 4 || seen[origin[1]] != 1 {
			t.Errorf("event %d has the origin %v", m.Sequence, origin)
		} else if hop[1] != origin[1] {
			t.Errorf("event %d leaves the trace of its record", m.Sequence)
		}
		n++
	}
	if n == 0 {
		t.Error("no events")
	}
}

// After deaths without progress, records are committed one at a time, so that a poison record
// is reached in few lives.
func TestRecordsAreCommittedOneAtATimeAfterDeaths(t *testing.T) {
	t.Parallel()
	top := topology(1)
	js := pipelinetest.NewServer(t).Provision(top)
	for range streams.MaxTogether + 1 {
		s := start(t, js, worker.Config{Topology: top})
		ready(t, s)
		s.kill()
	}
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	pipelinetest.Publish(t, js, pipelinetest.Workload(52, 5, 100)...)
	s := start(t, js, worker.Config{Topology: top, Tracer: provider.Tracer("test")})
	r := pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	s.stop(t)
	commits := 0
	for _, span := range recorder.Ended() {
		if span.Name() == "process raw" {
			commits++
		}
	}
	if commits != r.Records {
		t.Errorf("%d commits of %d records", commits, r.Records)
	}
}

// The metrics count what is stored, once.
func TestMetricsCountWhatIsStored(t *testing.T) {
	t.Parallel()
	top := topology(2)
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	proxy := pipelinetest.NewProxy(t, server)
	proxy.Arm(pipelinetest.BeforeCommit, pipelinetest.BeforeCommit)
	reader := sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	pipelinetest.Publish(t, js, pipelinetest.Workload(51, 10, 500)...)
	pipelinetest.PublishMessages(t.Context(), t, js, rawMessage("raw.made-up-1.s", "x"), rawMessage("raw.made-up-2.s", "x"))
	s := start(t, pipelinetest.Connect(t, proxy.URL()), worker.Config{Topology: top, Meter: provider.Meter("test")})
	r := pipelinetest.Expectation{Topology: top}.RequireExact(t, js)

	var lag metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &lag); err != nil {
		t.Fatal(err)
	}
	s.stop(t)
	var got metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &got); err != nil {
		t.Fatal(err)
	}
	sums := make(map[string]int64)
	series := make(map[string]bool)
	for _, m := range got.ScopeMetrics[0].Metrics {
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				sums[m.Name] += p.Value
				series[m.Name+"{"+p.Attributes.Encoded(attribute.DefaultEncoder())+"}"] = p.Value > 0
			}
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				sums[m.Name] += int64(p.Count)
			}
		case metricdata.Histogram[int64]:
			for _, p := range data.DataPoints {
				sums[m.Name] += p.Sum
			}
		}
	}
	for name, want := range map[string]int{
		"tributary.records": r.Records, "tributary.events": r.Events, "tributary.dead_letters": r.DeadLetters,
	} {
		if sums[name] != int64(want) {
			t.Errorf("%s is %d, want %d", name, sums[name], want)
		}
	}
	// A batch whose acknowledgement is lost with the connection may be stored, and is not measured.
	if n := sums["tributary.commit.records"]; n == 0 || n > int64(r.Records) {
		t.Errorf("batches of %d records, %d are stored", n, r.Records)
	}
	if sums["tributary.commits"] < 3 || sums["tributary.commits"] != sums["tributary.commit.duration"] {
		t.Errorf("%d commits, %d durations", sums["tributary.commits"], sums["tributary.commit.duration"])
	}
	for _, want := range []string{
		"tributary.commits{generation=v1,live=true,outcome=stored}", "tributary.commits{generation=v1,live=true,outcome=unknown}",
		"tributary.dead_letters{generation=v1,live=true,reason=malformed,source=claude_code}",
		"tributary.dead_letters{generation=v1,live=true,reason=unknown_source,source=unknown}",
		"tributary.events{event_type=tool_call,generation=v1,live=true,source=claude_code}",
	} {
		if !series[want] {
			t.Errorf("no %s", want)
		}
	}
	for name := range series {
		if strings.Contains(name, "made-up") {
			t.Errorf("a producer made the series %s", name)
		}
	}
	partitions := make(map[int64]bool)
	for _, m := range lag.ScopeMetrics[0].Metrics {
		switch m.Name {
		case "tributary.lag":
			if points := m.Data.(metricdata.Gauge[int64]).DataPoints; len(points) != 1 || points[0].Value != 0 {
				t.Errorf("lag %v, want 0", points)
			}
		case "tributary.partition.owned":
			for _, p := range m.Data.(metricdata.Gauge[int64]).DataPoints {
				n, _ := p.Attributes.Value("partition")
				partitions[n.AsInt64()] = p.Value == 1
			}
		}
	}
	if len(partitions) != top.Partitions {
		t.Errorf("owned partitions %v", fmt.Sprint(partitions))
	}
}

// counterNames is a meter that notes the names of its counters.
type counterNames struct {
	metric.Meter

	names []string
}

func (m *counterNames) Int64Counter(name string, options ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	m.names = append(m.names, name)
	return m.Meter.Int64Counter(name, options...)
}

func (m *counterNames) Float64Counter(name string, options ...metric.Float64CounterOption) (metric.Float64Counter, error) {
	m.names = append(m.names, name)
	return m.Meter.Float64Counter(name, options...)
}

// Each counter of a worker has a series before anything happens, so that an alert sees the first increase.
func TestEachCounterBeginsAtZero(t *testing.T) {
	t.Parallel()
	js := pipelinetest.NewServer(t).Provision(topology(1))
	reader := sdkmetric.NewManualReader()
	meter := &counterNames{Meter: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("test")}
	s := start(t, js, worker.Config{Topology: topology(1), Meter: meter})
	ready(t, s)
	var got metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &got); err != nil {
		t.Fatal(err)
	}
	s.stop(t)
	have := make(map[string]bool)
	for _, scope := range got.ScopeMetrics {
		for _, m := range scope.Metrics {
			have[m.Name] = true
		}
	}
	if len(meter.names) < 20 {
		t.Errorf("the worker has the counters %q", meter.names)
	}
	for _, name := range meter.names {
		if !have[name] {
			t.Errorf("counter %s has no series: begin it in zero (telemetry.go)", name)
		}
	}
}

// The metrics of a replay are those of the live generation with other labels, so that neither
// counts in the other.
func TestMetricsOfAReplayNameItsGeneration(t *testing.T) {
	t.Parallel()
	top := topology(2)
	js := pipelinetest.NewServer(t).Provision(top)
	pipelinetest.Publish(t, js, pipelinetest.Workload(53, 5, 100)...)
	pipelinetest.PublishMessages(t.Context(), t, js, rawMessage("raw.made-up.s", "x"))
	startReplay(t, js, replay.Request{Name: "b"})
	reader := sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	cfg := member(top, "w")
	cfg.Meter = provider.Meter("test")
	w := work(t, js, cfg)
	caughtUp(t, js, top)
	caughtUp(t, js, of(top, "b"))
	w.stop(t) // what is stored is counted then
	var got metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &got); err != nil {
		t.Fatal(err)
	}
	sums := make(map[string]int64)
	for _, m := range got.ScopeMetrics[0].Metrics {
		if data, ok := m.Data.(metricdata.Sum[int64]); ok {
			for _, p := range data.DataPoints {
				generation, _ := p.Attributes.Value("generation")
				live, _ := p.Attributes.Value("live")
				sums[fmt.Sprintf("%s %s %v", m.Name, generation.AsString(), live.AsBool())] += p.Value
			}
		}
	}
	for _, name := range []string{"tributary.records", "tributary.events", "tributary.dead_letters"} {
		if live, replayed := sums[name+" v1 true"], sums[name+" b false"]; live == 0 || live != replayed {
			t.Errorf("%s: %d live, %d replayed", name, live, replayed)
		}
	}
	for name := range sums {
		if strings.HasSuffix(name, " v1 false") || strings.HasSuffix(name, " b true") {
			t.Errorf("series %s", name)
		}
	}
}

// A million sessions, models and tools of any name add no series beyond the bounds: 3,000 of
// each are tried, of which every one would be a series of its own.
func TestHostileNamesAddNoSeries(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("many records: the race detector sees nothing new in them")
	}
	const hostile = 3_000
	top := topology(2)
	js := pipelinetest.NewServer(t).Provision(top)
	reader := sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithCardinalityLimit(-1))
	s := start(t, js, worker.Config{Topology: top, Meter: provider.Meter("test")})
	ready(t, s)
	before := series(t, reader)
	var all []*nats.Msg
	for i := range hostile {
		all = append(all, rawMessage(fmt.Sprintf("raw.claude_code.s%d", i), fmt.Sprintf(
			`{"sessionId":"s%d","uuid":"u%d","version":"1.0.0","timestamp":"2026-03-09T09:00:00Z","type":"assistant","message":{"id":"m%d","role":"assistant","model":"model-%d",`+
				`"content":[{"type":"tool_use","id":"t%d","name":"tool-%d","input":{}}],"usage":{"input_tokens":1,"output_tokens":2}}}`, i, i, i, i, i, i)))
	}
	pipelinetest.PublishMessages(t.Context(), t, js, all...)
	caughtUp(t, js, top)
	s.stop(t)
	after := series(t, reader)
	if n := total(after, "tributary.tokens"); n != 3*hostile {
		t.Errorf("%d tokens, want %d", n, 3*hostile)
	}
	// 33 models with 5 kinds of tokens, and the histograms of a first commit.
	if more := len(after) - len(before); more < 2 || more > 33*5+10 {
		t.Errorf("%d series more than the %d of the start", more, len(before))
	}
}

// series returns the values of all counters, and the counts of all histograms, by name and labels.
func series(tb testing.TB, reader sdkmetric.Reader) map[string]int64 {
	tb.Helper()
	var got metricdata.ResourceMetrics
	if err := reader.Collect(tb.Context(), &got); err != nil {
		tb.Fatal(err)
	}
	all := make(map[string]int64)
	add := func(name string, attributes attribute.Set, value int64) {
		all[name+"{"+attributes.Encoded(attribute.DefaultEncoder())+"}"] = value
	}
	for _, m := range got.ScopeMetrics[0].Metrics {
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				add(m.Name, p.Attributes, p.Value)
			}
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				add(m.Name, p.Attributes, int64(p.Count))
			}
		case metricdata.Histogram[int64]:
			for _, p := range data.DataPoints {
				add(m.Name, p.Attributes, int64(p.Count))
			}
		}
	}
	return all
}

// total sums the series of a name.
func total(all map[string]int64, name string) (n int64) {
	for key, value := range all {
		if strings.HasPrefix(key, name+"{") {
			n += value
		}
	}
	return n
}
