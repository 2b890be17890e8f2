package worker

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/events"
	"tributary/pipeline/records"
	"tributary/pipeline/streams"
)

// The counters that count when a chunk is stored.
const (
	countRecords = iota
	countEvents
	countSkipped
	countDeadLetters
	countGaps
	countLate
	countRewritten
	countUndecided
	countForgotten
	countUnknown
	countTokens
	countToolResults
	countNormalizing
	countRedactions
	counters
)

// counted identifies one series of a counter: its source and the values of its other labels.
type counted struct {
	counter int
	source  envelopes.Source
	labels  [maxLabels]string
}

// maxLabels is the maximum number of labels of a counter beside its source.
const maxLabels = 3

// tally is what a chunk adds to the counters once it is stored.
type tally map[counted]int64

func (t tally) add(counter int, source envelopes.Source, n int64, labels ...string) {
	if n == 0 {
		return
	}
	c := counted{counter: counter, source: source}
	copy(c.labels[:], labels)
	t[c] += n
}

// addEvent counts an event with its tokens, and the outcome if it is a tool result.
func (t tally) addEvent(source envelopes.Source, e *envelopes.AgentEventV1) {
	t.add(countEvents, source, 1, string(e.EventType))
	if u := e.Usage; u != nil {
		model := valueOf(e.Model)
		for i, n := range []int64{u.Input, u.CacheRead, u.CacheWrite, u.Output, u.Reasoning} {
			t.add(countTokens, source, n, model, tokenKinds[i])
		}
	}
	if e.EventType == envelopes.ToolResult {
		t.add(countToolResults, source, 1, valueOf(e.ToolName), cmp.Or(string(valueOf(e.ToolStatus)), string(envelopes.StatusUnknown)))
	}
}

// tokenKinds are the parts of [envelopes.Usage].
var tokenKinds = []string{"input", "cache_read", "cache_write", "output", "reasoning"}

func valueOf[T ~string](p *T) T {
	if p == nil {
		return ""
	}
	return *p
}

// counterTable describes the counters: their labels beside generation, live and source, with all values; nil for
// labels whose values come from logs.
var counterTable = [counters]struct {
	name, unit, text string
	labels           []label
}{
	countRecords:     {"records", "{record}", "Raw records that are done", nil},
	countEvents:      {"events", "{event}", "Events stored", []label{{"event_type", texts(envelopes.EventTypes)}}},
	countSkipped:     {"skipped", "{record}", "Records without an event", []label{{"reason", append(texts(core.SkipReasons), skipErased)}}},
	countDeadLetters: {"dead_letters", "{record}", "Records that could not be read", []label{{"reason", records.Reasons()}}},
	countGaps:        {"gaps", "{record}", "Records behind a gap in their file | records of the session before them are not in the raw stream", nil},
	countLate:        {"late", "{record}", "Records that lay in a gap and came late | their events are appended to their sessions", nil},
	countRewritten:   {"rewritten", "{record}", "Records at a place in their file that the session had passed with another record | the file was rewritten, or goes on differently on two machines; their events are appended to their sessions", nil},
	countUndecided:   {"undecided", "{record}", "Records at a place that the session had passed, and whose earlier records have expired from the raw stream | taken for duplicates", nil},
	countForgotten:   {"forgotten", "{item}", "Items that session states forgot because of a limit", nil},
	countUnknown: {
		"unknown", "{item}", "What the normalizers do not know in records that are done | a newer version of an agent may write something new",
		[]label{{"version", nil}, {"kind", texts(core.UnknownKinds)}, {"name", nil}},
	},
	countTokens:      {"tokens", "{token}", "Tokens of the events stored | a call that several sessions repeat counts in each", []label{{"model", nil}, {"kind", tokenKinds}}},
	countToolResults: {"tool.results", "{event}", "Results of tools in the events stored", []label{{"tool", nil}, {"status", texts([]envelopes.ToolStatus{envelopes.StatusSuccess, envelopes.StatusError, envelopes.StatusInProgress, envelopes.StatusUnknown})}}},
	countRedactions:  {"redactions", "{item}", "Secrets, or texts, that were replaced in records before they were normalized", []label{{"rule", nil}}},
	countNormalizing: {"normalizing", "s", "Time of normalizing the records that are done", nil},
}

// label is a label of a metric with its values; nil if these come from logs.
type label struct {
	key    string
	values []string
}

func texts[T ~string](list []T) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = string(v)
	}
	return out
}

// The labels of the other counters, with their values.
var (
	outcomes = label{"outcome", []string{events.OutcomeStored, "fenced", "refused", "unknown"}}
	causes   = label{"cause", []string{causeStart, causeHandover, causeTakeover, causeRecovery}}
	restarts = label{"cause", []string{"silent", "gap", "late", "disconnected", "other"}}
	lookups  = label{"result", []string{"hit", "miss"}}
)

// telemetry holds the metrics and traces of a stage. It uses only the API of OpenTelemetry, not the SDK.
type telemetry struct {
	traces
	meter       metric.Meter
	counters    [counters]metric.Int64Counter
	normalizing metric.Float64Counter

	acquisitions, heartbeatFailures, readerRestarts, lookups, commits, archived, archiveFull, expired, torn metric.Int64Counter

	duration, latency metric.Float64Histogram // of a commit; from a record to its events
	records, bytes    metric.Int64Histogram   // of a commit

	lag, owned, cache, expiredOpen metric.Int64ObservableGauge
	oldest, limitUsed              metric.Float64ObservableGauge

	drift  normalizers.DriftLabels // bounds the labels of what is unknown
	drifts drifts
	names  normalizers.DriftLabels // bounds the labels of models and tools

	base []attribute.KeyValue // labels of every measurement
}

// newTelemetry makes the instruments.
func newTelemetry(cfg Config) (*telemetry, error) {
	t := &telemetry{
		traces: newTraces(cfg), meter: cfg.Meter,
		base: []attribute.KeyValue{attribute.String("generation", cfg.Topology.Generation), attribute.Bool("live", cfg.Pacer == nil)},
	}
	if t.meter == nil {
		t.meter = metricnoop.NewMeterProvider().Meter("")
	}
	m := &instruments{meter: t.meter}
	for i, c := range counterTable {
		if i != countNormalizing {
			t.counters[i] = m.counter(c.name, c.unit, c.text, append([]label{{key: "source"}}, c.labels...)...)
		}
	}
	t.normalizing = m.seconds("normalizing", counterTable[countNormalizing].text, label{key: "source"})
	t.commits = m.counter("commits", "{commit}", "Atomic batches | stored, fenced (another worker owns the partition), refused, unknown (the answer is lost: acquiring the partition again finds out)", outcomes)
	t.duration = m.histogram("commit.duration", "Time from sending a batch to its outcome", outcomes)
	t.records = m.sizes("commit.records", "{record}", "Records of a batch that is stored", 1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
	t.bytes = m.sizes("commit.size", "By", "Bytes of the events, dead letters and states of a batch that is stored", 1<<10, 4<<10, 16<<10, 64<<10, 256<<10, 1<<20, 4<<20, 16<<20)
	t.latency = m.histogram("latency", "Time from when the broker stored a raw record until its events are stored | of the oldest record of each partition in a batch")
	t.acquisitions = m.counter("acquisitions", "{partition}", "Partitions acquired | start (no worker is known to have worked on it), handover, takeover (its worker is dead or slow), recovery (this worker had lost it)", causes)
	t.heartbeatFailures = m.counter("heartbeat.failures", "{failure}", "Exchanges of heartbeats with the other workers that failed")
	t.readerRestarts = m.counter("reader.restarts", "{restart}", "Readings of the raw stream that ended and began again", restarts)
	t.lookups = m.counter("session.lookups", "{lookup}", "Session states that records needed | hit (in the cache), miss (read from the events stream)", lookups)
	t.archived = m.counter("archived", "{state}", "Session states moved to archives | of sessions that ended long ago; a session that went on is moved again")
	t.archiveFull = m.counter("archive.full", "{state}", "Session states that were left under their own subjects because their archive is full | a state counts each time that a worker tries to move it")
	t.expired = m.counter("expired", "{record}", "Records that left the raw stream before they were read | counted by the worker that finds them")
	t.torn = m.counter("torn", "{batch}", "Batches of which the server had stored a part and not the rest | each was mended when its partition was acquired")
	t.cache = m.gauge("session.cache", "By", "Memory of the session states in the cache")
	t.lag = m.gauge("lag", "{record}", "Raw records of the partitions that this worker owns that are not done yet")
	t.expiredOpen = m.gauge("expired.open", "{record}", "Records that left the raw stream before they were read and are not acknowledged | by tributary doctor acknowledge; the worker with partition 0 reports them, the others 0")
	t.owned = m.gauge("partition.owned", "{partition}", "1 while this worker owns the partition | 0 until it has acquired it", label{key: "partition"})
	t.limitUsed = m.share("limit.used", "Used part of a limit of the account or of a stream | 1 when it is reached and nothing more is stored, 0 where there is none; the worker with partition 0 reports them, the others 0", label{key: "limit"})
	t.oldest = m.age("oldest", "Age of the oldest raw record that is not done yet | 0 when there is none", label{key: "partition"})
	return t, errors.Join(m.errs...)
}

// zero starts the series with known labels at 0, so that their first increase shows.
func (t *telemetry) zero(ctx context.Context) {
	known := make(tally)
	for i, c := range counterTable {
		for _, source := range append(slices.Clone(envelopes.Sources), envelopes.UnknownSource) {
			series := []counted{{counter: i, source: source}}
			for n, l := range c.labels {
				values := l.values
				if values == nil {
					values = []string{otherName}
				}
				var next []counted
				for _, s := range series {
					for _, v := range values {
						s.labels[n] = v
						next = append(next, s)
					}
				}
				series = next
			}
			for _, s := range series {
				known[s] = 0
			}
		}
	}
	t.add(ctx, known)
	for counter, l := range map[metric.Int64Counter]label{t.commits: outcomes, t.acquisitions: causes, t.readerRestarts: restarts, t.lookups: lookups} {
		for _, v := range l.values {
			t.count(ctx, counter, 0, attribute.String(l.key, v))
		}
	}
	for _, counter := range []metric.Int64Counter{t.heartbeatFailures, t.archived, t.archiveFull, t.expired, t.torn} {
		t.count(ctx, counter, 0)
	}
}

// count adds to a counter that does not wait for a chunk to be stored.
func (t *telemetry) count(ctx context.Context, c metric.Int64Counter, n int, attrs ...attribute.KeyValue) {
	c.Add(ctx, int64(n), metric.WithAttributes(append(slices.Clip(t.base), attrs...)...))
}

// instruments makes instruments, whose descriptions end with their labels.
type instruments struct {
	meter metric.Meter
	errs  []error
}

const metricPrefix = "tributary."

// describe returns the description of an instrument: what it measures, its labels, then the text after " | ".
func describe(text string, labels []label) metric.InstrumentOption {
	keys := []string{"generation", "live"}
	for _, l := range labels {
		keys = append(keys, l.key)
	}
	last := len(keys) - 1
	text, detail, found := strings.Cut(text, " | ")
	text += ", by " + strings.Join(keys[:last], ", ") + " and " + keys[last]
	if found {
		text += ": " + detail
	}
	return metric.WithDescription(text + ".")
}

func (m *instruments) counter(name, unit, text string, labels ...label) metric.Int64Counter {
	c, err := m.meter.Int64Counter(metricPrefix+name, metric.WithUnit(unit), describe(text, labels))
	m.errs = append(m.errs, err)
	return c
}

func (m *instruments) seconds(name, text string, labels ...label) metric.Float64Counter {
	c, err := m.meter.Float64Counter(metricPrefix+name, metric.WithUnit("s"), describe(text, labels))
	m.errs = append(m.errs, err)
	return c
}

func (m *instruments) gauge(name, unit, text string, labels ...label) metric.Int64ObservableGauge {
	g, err := m.meter.Int64ObservableGauge(metricPrefix+name, metric.WithUnit(unit), describe(text, labels))
	m.errs = append(m.errs, err)
	return g
}

func (m *instruments) age(name, text string, labels ...label) metric.Float64ObservableGauge {
	g, err := m.meter.Float64ObservableGauge(metricPrefix+name, metric.WithUnit("s"), describe(text, labels))
	m.errs = append(m.errs, err)
	return g
}

func (m *instruments) share(name, text string, labels ...label) metric.Float64ObservableGauge {
	g, err := m.meter.Float64ObservableGauge(metricPrefix+name, metric.WithUnit("1"), describe(text, labels))
	m.errs = append(m.errs, err)
	return g
}

func (m *instruments) histogram(name, text string, labels ...label) metric.Float64Histogram {
	h, err := m.meter.Float64Histogram(metricPrefix+name, metric.WithUnit("s"), describe(text, labels),
		metric.WithExplicitBucketBoundaries(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 600))
	m.errs = append(m.errs, err)
	return h
}

func (m *instruments) sizes(name, unit, text string, bounds ...float64) metric.Int64Histogram {
	h, err := m.meter.Int64Histogram(metricPrefix+name, metric.WithUnit(unit), describe(text, nil), metric.WithExplicitBucketBoundaries(bounds...))
	m.errs = append(m.errs, err)
	return h
}

// observe reports the lag and the state of each partition until the registration ends. The age of a record compares
// the clock of this machine with the broker's.
func (t *telemetry) observe(partitions func() []*partition, lag, expired func() int64, limits func() *[]streams.Limit) (metric.Registration, error) {
	return t.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		cached := int64(0)
		for _, p := range partitions() {
			cached += p.cached.Load()
			attrs := metric.WithAttributes(append(slices.Clip(t.base), attribute.Int("partition", p.number))...)
			owned, since, age := int64(0), p.waiting.Load(), 0.0
			if is := p.ownership(); is != nil {
				owned = 1
				if stored, ok := is.outbox.oldest(); ok { // a record in a chunk is older
					since = stored.UnixNano()
				}
			}
			if since != 0 {
				age = max(0, time.Since(time.Unix(0, since)).Seconds())
			}
			o.ObserveInt64(t.owned, owned, attrs)
			o.ObserveFloat64(t.oldest, age, attrs)
		}
		o.ObserveInt64(t.lag, lag(), metric.WithAttributes(t.base...))
		o.ObserveInt64(t.expiredOpen, expired(), metric.WithAttributes(t.base...))
		used := map[string]float64{streams.LimitStorage: 0} // present from the start
		if list := limits(); list != nil {
			for _, l := range *list {
				used[l.Name] = l.Share()
			}
		}
		for name, share := range used {
			o.ObserveFloat64(t.limitUsed, share, metric.WithAttributes(append(slices.Clip(t.base), attribute.String("limit", name))...))
		}
		o.ObserveInt64(t.cache, cached, metric.WithAttributes(t.base...))
		return nil
	}, t.lag, t.cache, t.expiredOpen, t.owned, t.oldest, t.limitUsed)
}

// add adds what was stored to the counters.
func (t *telemetry) add(ctx context.Context, counts tally) {
	for c, n := range counts {
		if !slices.Contains(envelopes.Sources, c.source) {
			c.source = envelopes.UnknownSource // bounds the series: a producer could name any number of sources
		}
		t.bound(&c)
		if c.counter == countUnknown && n > 0 {
			kind := core.UnknownKind(c.labels[1])
			t.drifts.add(normalizers.Drift{Source: c.source, Version: c.labels[0], Kind: kind}, n)
			if kind == newerVersion {
				continue // no metric: those of the records state the version of what is unknown
			}
		}
		attrs := append(slices.Clip(t.base), attribute.String("source", string(c.source)))
		for i, l := range counterTable[c.counter].labels {
			attrs = append(attrs, attribute.String(l.key, c.labels[i]))
		}
		if c.counter == countNormalizing {
			t.normalizing.Add(ctx, time.Duration(n).Seconds(), metric.WithAttributes(attrs...))
			continue
		}
		t.counters[c.counter].Add(ctx, n, metric.WithAttributes(attrs...))
	}
}

// otherName is the label value for all names beyond the bound.
const otherName = "other"

// bound limits the values of the labels that come from logs.
func (t *telemetry) bound(c *counted) {
	switch c.counter {
	case countUnknown:
		version, kind, name := c.labels[0], c.labels[1], c.labels[2]
		if version == otherName && name == otherName {
			return
		}
		is := t.drift.Of(c.source, version, core.UnknownKind(kind), name)
		c.labels = [maxLabels]string{is.Version, string(is.Kind), is.Name}
	case countTokens, countToolResults:
		const maxName = 64
		name := c.labels[0]
		switch {
		case name == "":
			name = "unknown"
		case len(name) > maxName || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
			name = otherName
		}
		c.labels[0] = t.names.Of(c.source, "", core.UnknownKind(counterTable[c.counter].labels[0].key), name).Name
	}
}

// commit sends a batch, and observes it in spans and metrics.
func (t *telemetry) commit(ctx context.Context, b *batch, messages []*nats.Msg, send func() (uint64, error)) (uint64, error) {
	ctx, end := t.traceCommit(ctx, b, messages)
	began := time.Now()
	last, err := send()
	outcome := events.OutcomeOf(err)
	end(err, outcome)
	t.observeCommit(ctx, b, outcome, time.Since(began))
	return last, err
}

// observeCommit counts and measures a batch.
func (t *telemetry) observeCommit(ctx context.Context, b *batch, outcome string, took time.Duration) {
	labeled := attribute.String("outcome", outcome)
	t.count(ctx, t.commits, 1, labeled)
	t.duration.Record(ctx, took.Seconds(), metric.WithAttributes(append(slices.Clip(t.base), labeled)...))
	if outcome != events.OutcomeStored {
		return
	}
	attrs := metric.WithAttributes(t.base...)
	t.records.Record(ctx, int64(b.size.records), attrs)
	t.bytes.Record(ctx, int64(b.size.bytes), attrs)
	for _, e := range b.entries {
		if e.last && e.chunk.records > 0 {
			t.latency.Record(ctx, max(0, time.Since(e.chunk.oldest).Seconds()), attrs)
		}
	}
}
