package checks

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/otlptranslator"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	stale "github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/util/teststorage"
	"github.com/stretchr/testify/require"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// patience limits the wait for an event that must happen.
const patience = 2 * time.Minute

// scrapeInterval is the time between two scrapes on the clock of a [watch]. The clock advances only with scrapes, so that
// the minutes of an alert take moments.
const scrapeInterval = 30 * time.Second

// watch is a Prometheus with the alerts of deployment. It scrapes processes when the test calls step.
type watch struct {
	t       *testing.T
	storage *teststorage.TestStorage
	query   rules.QueryFunc
	alerts  []*rules.AlertingRule
	now     time.Time
	ages    float64                             // factor of ages in seconds, as if the test had taken so much longer
	targets map[string]string                   // addresses of the processes by instance
	there   map[string]map[string]labels.Labels // series of the last scrape by instance
	fired   map[string]bool                     // alerts that have fired, by name
}

func newWatch(t *testing.T) *watch {
	t.Helper()
	w := &watch{
		t: t, storage: teststorage.New(t), now: time.Unix(1_700_000_000, 0), ages: 1,
		targets: map[string]string{}, there: map[string]map[string]labels.Labels{}, fired: map[string]bool{},
	}
	t.Cleanup(func() { _ = w.storage.Close() })
	w.query = rules.EngineQueryFunc(promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery), w.storage)
	for _, r := range alertRules(t) {
		expression, err := parser.ParseExpr(r.Expr)
		require.NoError(t, err)
		w.alerts = append(w.alerts, rules.NewAlertingRule(r.Alert, expression, time.Duration(r.For), time.Duration(r.KeepFiringFor),
			labels.FromMap(r.Labels), labels.FromMap(r.Annotations), labels.EmptyLabels(), "", true, slog.New(slog.DiscardHandler)))
	}
	return w
}

// step scrapes every process and evaluates every rule.
func (w *watch) step() {
	w.t.Helper()
	w.now = w.now.Add(scrapeInterval)
	at := w.now.UnixMilli()
	app := w.storage.Appender(w.t.Context())
	for instance, address := range w.targets {
		before, is := w.there[instance], map[string]labels.Labels{}
		for _, s := range scrape(w.t, address) {
			b := labels.NewBuilder(s.labels)
			b.Set("job", "tributary").Set("instance", instance)
			l := b.Labels()
			is[l.String()] = l
			if name := l.Get(labels.MetricName); strings.HasSuffix(name, "_oldest_seconds") {
				s.value *= w.ages
			}
			_, err := app.Append(0, l, at, s.value)
			require.NoError(w.t, err)
		}
		for name, l := range before {
			if _, ok := is[name]; !ok {
				_, err := app.Append(0, l, at, math.Float64frombits(stale.StaleNaN))
				require.NoError(w.t, err)
			}
		}
		w.there[instance] = is
	}
	require.NoError(w.t, app.Commit())
	for _, r := range w.alerts {
		_, err := r.Eval(w.t.Context(), 0, w.now, w.query, nil, 0)
		require.NoError(w.t, err, r.Name())
		if r.State() == rules.StateFiring {
			w.fired[r.Name()] = true
		}
	}
}

// minutes steps for so long.
func (w *watch) minutes(n int) {
	w.t.Helper()
	for range n * int(time.Minute/scrapeInterval) {
		w.step()
	}
}

// requireAlert steps until an alert fires.
func (w *watch) requireAlert(names ...string) {
	w.t.Helper()
	end := time.Now().Add(patience)
	for _, name := range names {
		for !w.fired[name] {
			w.step()
			require.True(w.t, time.Now().Before(end), "%s does not fire, but %v", name, w.firing())
		}
	}
}

// firing returns the alerts that have fired, without their prefix.
func (w *watch) firing() (names []string) {
	for name := range w.fired {
		names = append(names, strings.TrimPrefix(name, "Tributary"))
	}
	slices.Sort(names)
	return names
}

// sample is a value of a scrape.
type sample struct {
	labels labels.Labels
	value  float64
}

// scrape returns the metrics of a process; none if it does not answer.
func scrape(t *testing.T, address string) (list []sample) {
	t.Helper()
	response, err := http.Get(address) //nolint:noctx // of a test
	if err != nil {
		return nil
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil
	}
	p := textparse.NewPromParser(text, labels.NewSymbolTable(), false)
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return list
		}
		require.NoError(t, err)
		if entry == textparse.EntrySeries {
			_, _, v := p.Series()
			var l labels.Labels
			p.Labels(&l)
			list = append(list, sample{l, v})
		}
	}
}

// await asks a process until wanted accepts the sum of a metric's values with some labels. The clock stands still.
func (w *watch) await(instance, metric string, wanted func(sum float64) bool, with ...string) {
	w.t.Helper()
	end, sum := time.Now().Add(patience), 0.0
	for {
		found := false
		sum = 0
		for _, s := range scrape(w.t, w.targets[instance]) {
			matches := s.labels.Get(labels.MetricName) == metric
			for i := 0; i < len(with); i += 2 {
				matches = matches && s.labels.Get(with[i]) == with[i+1]
			}
			if matches {
				found = true
				sum += s.value
			}
		}
		if found && wanted(sum) {
			return
		}
		require.True(w.t, time.Now().Before(end), "%s of %s is %v", metric, instance, sum)
		pause(w.t)
	}
}

// pause is the time between two looks.
func pause(t *testing.T) {
	t.Helper()
	select {
	case <-time.After(50 * time.Millisecond):
	case <-t.Context().Done():
	}
}

func least(n float64) func(float64) bool { return func(sum float64) bool { return sum >= n } }

// programs is the folder of the program, which [TestMain] removes.
var programs string

// program builds tributary once, and returns its path.
var program = sync.OnceValues(func() (string, error) {
	path := filepath.Join(programs, "tributary")
	cmd := exec.Command("go", "build", "-o", path, "./cmd/tributary")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0") // as the image has it
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the program: %w\n%s", err, out)
	}
	return path, nil
})

// TestMain runs the tests with a folder for the program.
func TestMain(m *testing.M) {
	flag.Parse()
	dir, err := os.MkdirTemp("", "tributary-checks-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	programs = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

var long = flag.Bool("long", false, "run the tests that take minutes, too")

// running is a process of the program.
type running struct {
	*exec.Cmd

	log *pipelinetest.LogText
}

// start starts a command, whose name is its instance.
func (w *watch) start(url, command string, args ...string) *running {
	w.t.Helper()
	path, err := program()
	require.NoError(w.t, err)
	p := &running{exec.CommandContext(context.WithoutCancel(w.t.Context()), path, append([]string{command}, args...)...), &pipelinetest.LogText{}}
	p.Env = []string{"HOME=" + w.t.TempDir(), "NATS_URL=" + url, "TRIBUTARY_HTTP=127.0.0.1:0", "TRIBUTARY_PARTITIONS=4", "TRIBUTARY_WORKER=" + command}
	p.Stderr = p.log
	require.NoError(w.t, p.Start())
	w.t.Cleanup(func() { p.end(syscall.SIGKILL) })
	address := regexp.MustCompile(`address=(\S+)`)
	end := time.Now().Add(patience)
	for address.FindStringSubmatch(p.log.String()) == nil {
		require.True(w.t, time.Now().Before(end), p.log.String())
		pause(w.t)
	}
	w.targets[command] = "http://" + address.FindStringSubmatch(p.log.String())[1] + "/metrics"
	return p
}

// end ends the process with a signal.
func (p *running) end(signal syscall.Signal) {
	if p.Process.Signal(signal) == nil {
		_ = p.Wait()
	}
}

// awaitLogged waits until the log has a text a number of times.
func (p *running) awaitLogged(t *testing.T, text string, times int) {
	t.Helper()
	end := time.Now().Add(patience)
	for strings.Count(p.log.String(), text) < times {
		require.True(t, time.Now().Before(end), "not logged %d times: %s\n%s", times, text, p.log.String())
		pause(t)
	}
}

// owned waits until the worker owns every partition.
func (w *watch) owned() {
	w.t.Helper()
	w.await("run", "tributary_partition_owned", func(n float64) bool { return n == float64(topology.Partitions) })
}

// topology is the topology of these tests.
var topology = func() streams.Topology {
	top := streams.DefaultTopology()
	top.Partitions = 4
	return top
}()

// system is a broker behind a proxy, with a worker and an edge.
type system struct {
	*watch

	server *pipelinetest.Server
	proxy  *pipelinetest.Proxy
	js     jetstream.JetStream
	logs   string
}

// newSystem starts a broker, and a worker unless the test starts it later.
func newSystem(t *testing.T, works bool) *system {
	t.Helper()
	s := &system{watch: newWatch(t), server: pipelinetest.NewServer(t), logs: t.TempDir()}
	s.js = s.server.Provision(topology)
	s.proxy = pipelinetest.NewProxy(t, s.server)
	if works {
		s.start(s.proxy.URL(), "run")
		s.owned()
		s.minutes(2)
	}
	return s
}

// edge starts ship on the logs.
func (s *system) edge() *running {
	s.t.Helper()
	p := s.start(s.proxy.URL(), "ship", s.logs)
	s.await("ship", "tributary_connected", least(1))
	return p
}

// reconnect breaks every connection of the processes, which then connect again.
func (s *system) reconnect() {
	s.proxy.Break()
	s.proxy.Mend()
}

// write writes a log of Claude Code with prompts.
func (s *system) write(name string, prompts ...string) string {
	s.t.Helper()
	var text strings.Builder
	for i, p := range prompts {
		fmt.Fprintf(&text, `{"type":"user","uuid":"u%d","timestamp":"2026-03-09T09:00:00Z","sessionId":%q,"version":"2.1.1","message":{"role":"user","content":%q}}`+"\n", i, name, p)
	}
	path := filepath.Join(s.logs, name+".jsonl")
	require.NoError(s.t, os.WriteFile(path, []byte(text.String()), 0o600))
	return path
}

// limit changes a stream.
func (s *system) limit(stream string, change func(*jetstream.StreamConfig, jetstream.StreamState)) {
	s.t.Helper()
	is, err := s.js.Stream(s.t.Context(), stream)
	require.NoError(s.t, err)
	cfg := is.CachedInfo().Config
	change(&cfg, is.CachedInfo().State)
	_, err = s.js.UpdateStream(s.t.Context(), cfg)
	require.NoError(s.t, err)
}

// prompt returns a record of Claude Code.
func prompt(session string, n int) string {
	return fmt.Sprintf(`{"type":"user","uuid":"u%d","timestamp":"2026-03-09T09:00:00Z","sessionId":%q,"version":"2.1.1","message":{"role":"user","content":"text"}}`, n, session)
}

// publish publishes a message to the raw stream.
func (s *system) publish(session, text string) {
	s.t.Helper()
	_, err := s.js.Publish(s.t.Context(), envelopes.RawSubject(envelopes.ClaudeCode, session), []byte(text))
	require.NoError(s.t, err)
}

// TestEachAlertFiresByItsFault makes the fault of each alert with real processes, and scrapes them.
func TestEachAlertFiresByItsFault(t *testing.T) {
	if !*long {
		t.Skip("takes minutes: run it with -long")
	}
	t.Parallel()
	tests := map[string]func(t *testing.T) *watch{
		"BrokerAway": func(t *testing.T) *watch {
			t.Helper()
			s := newSystem(t, true)
			s.edge()
			s.minutes(2)
			s.server.Stop()
			s.await("run", "tributary_connected", func(n float64) bool { return n == 0 })
			s.await("ship", "tributary_connected", func(n float64) bool { return n == 0 })
			old := time.Now().Add(-time.Hour)
			require.NoError(t, os.Chtimes(s.write("old", "waits"), old, old))
			s.requireAlert("TributaryBrokerAway")
			s.minutes(60)
			require.Equal(t, []string{"BrokerAway"}, s.firing(), "one page for a dead broker")
			s.server.Start()
			s.owned()
			s.await("ship", "tributary_ship_records_total", least(1))
			s.await("ship", "tributary_ship_oldest_seconds", func(age float64) bool { return age == 0 })
			s.minutes(60)
			require.Equal(t, []string{"BrokerAway"}, s.firing(), "none for a broker that is back")
			return s.watch
		},
		"NoWorker": func(t *testing.T) *watch {
			t.Helper()
			s := newSystem(t, false)
			p := s.start(s.proxy.URL(), "run")
			s.owned()
			s.edge()
			s.minutes(2)
			p.end(syscall.SIGTERM)
			return s.watch
		},
		"PartitionsWithoutWorker": func(t *testing.T) *watch {
			t.Helper()
			s := newSystem(t, false)
			p := s.start(s.proxy.URL(), "run")
			s.owned()
			s.publish("s", prompt("s", 1))
			s.await("run", "tributary_records_total", least(1))
			p.end(syscall.SIGTERM)
			require.NoError(t, s.js.DeleteStream(t.Context(), streams.RawStream)) // the partition of the session stops
			s.server.Provision(topology)
			s.start(s.proxy.URL(), "run")
			s.await("run", "tributary_partition_owned", func(n float64) bool { return n == float64(topology.Partitions-1) })
			return s.watch
		},
		"LimitNear LimitReached EventsAreLate": full,
		"CommitsFail": func(t *testing.T) *watch {
			t.Helper()
			s := newSystem(t, true)
			for n := 1; !s.fired["TributaryCommitsFail"]; n++ {
				s.proxy.Arm(pipelinetest.BeforeAck)
				s.publish("s", prompt("s", n))
				s.await("run", "tributary_records_total", least(float64(n)))
				s.minutes(1)
				require.Less(t, n, 60)
			}
			return s.watch
		},
		"DeadLetters": func(t *testing.T) *watch {
			t.Helper()
			s := newSystem(t, true)
			s.publish("s", "no JSON")
			return s.watch
		},
		"UnknownRecords": func(t *testing.T) *watch {
			t.Helper()
			s := newSystem(t, true)
			s.publish("s", `{"type":"invented","uuid":"u","sessionId":"s","version":"9.9.9"}`)
			s.await("run", "tributary_records_total", least(1)) // the series begins with 1
			return s.watch
		},
		"Gaps": func(t *testing.T) *watch {
			t.Helper()
			s := newSystem(t, false)
			s.write("one", "first", "second", "third")
			s.edge()
			s.await("ship", "tributary_ship_records_total", least(3))
			raw, err := s.js.Stream(t.Context(), streams.RawStream)
			require.NoError(t, err)
			require.NoError(t, raw.DeleteMsg(t.Context(), 2))
			s.start(s.proxy.URL(), "run")
			s.await("run", "tributary_records_total", least(2))
			return s.watch
		},
		"RecordsExpiredUnread": func(t *testing.T) *watch {
			t.Helper()
			s := newSystem(t, false)
			p := s.start(s.proxy.URL(), "run")
			s.owned()
			p.end(syscall.SIGTERM)
			pipelinetest.Publish(t, s.js, pipelinetest.Workload(1, 8, 80)...)
			raw, err := s.js.Stream(t.Context(), streams.RawStream)
			require.NoError(t, err)
			require.NoError(t, raw.Purge(t.Context(), jetstream.WithPurgeKeep(1)))
			s.start(s.proxy.URL(), "run")
			return s.watch
		},
		"TornBatches":  torn,
		"ArchivesFull": archivesFull,
		"PartitionsChangeHands": func(t *testing.T) *watch {
			t.Helper()
			s := newSystem(t, true)
			for n := range 12 {
				s.reconnect()
				s.await("run", "tributary_acquisitions_total", least(float64(n+1)), "cause", "recovery")
				s.owned()
				s.step()
			}
			return s.watch
		},
		"HeartbeatsFail": func(t *testing.T) *watch {
			t.Helper()
			s := newSystem(t, true)
			s.limit("KV_TRIBUTARY_WORKERS", func(c *jetstream.StreamConfig, _ jetstream.StreamState) { c.Sealed = true })
			for n := 2.0; !s.fired["TributaryHeartbeatsFail"]; n += 2 {
				s.await("run", "tributary_heartbeat_failures_total", least(n), "live", "true")
				s.step()
				require.Less(t, n, 60.0)
			}
			return s.watch
		},
		"ShipStalled ShipBehind": stalled,
		"ShipRefused": func(t *testing.T) *watch {
			t.Helper()
			s := newSystem(t, false)
			s.write("large", strings.Repeat("long ", 13<<20)) // more than 64 MiB
			s.edge()
			return s.watch
		},
		"RawStreamLostRecords": func(t *testing.T) *watch {
			t.Helper()
			s := newSystem(t, false)
			s.write("one", "first", "second")
			s.edge()
			s.await("ship", "tributary_ship_records_total", least(2))
			s.minutes(2)
			require.NoError(t, s.js.DeleteStream(t.Context(), streams.RawStream))
			s.server.Provision(topology)
			s.server.Restart() // after which ship compares the stream at once
			return s.watch
		},
	}
	var names []string
	for _, r := range newWatch(t).alerts {
		names = append(names, strings.TrimPrefix(r.Name(), "Tributary"))
	}
	var fired []string
	for alerts, fault := range tests {
		fired = append(fired, strings.Fields(alerts)...)
		t.Run(alerts, func(t *testing.T) {
			t.Parallel()
			w := fault(t)
			for _, name := range strings.Fields(alerts) {
				w.requireAlert("Tributary" + name)
			}
			t.Logf("fired: %v", w.firing())
		})
	}
	require.ElementsMatch(t, names, fired, "each alert has a fault")
}

// full fills a stream of events to its limit, while records wait.
func full(t *testing.T) *watch {
	t.Helper()
	s := newSystem(t, true)
	pipelinetest.Publish(t, s.js, pipelinetest.Workload(1, 8, 80)...)
	s.await("run", "tributary_records_total", least(80))
	limit := func(share float64) {
		s.limit(streams.EventsStream("v1"), func(c *jetstream.StreamConfig, is jetstream.StreamState) {
			c.MaxBytes, c.Discard = int64(float64(is.Bytes)/share), jetstream.DiscardNew
		})
	}
	limit(0.85)
	s.await("run", "tributary_limit_used_ratio", least(0.8), "limit", "stream EVENTS_v1")
	s.requireAlert("TributaryLimitNear")
	limit(1)
	s.await("run", "tributary_limit_used_ratio", least(0.95), "limit", "stream EVENTS_v1")
	pipelinetest.Publish(t, s.js, pipelinetest.Workload(2, 8, 80)...)
	s.await("run", "tributary_oldest_seconds", least(1))
	s.ages = 1000
	return s.watch
}

// stalled fills the raw stream, and writes a log of an hour ago.
func stalled(t *testing.T) *watch {
	t.Helper()
	s := newSystem(t, true)
	s.write("one", "first")
	s.edge()
	s.await("ship", "tributary_ship_records_total", least(1))
	s.minutes(2)
	s.limit(streams.RawStream, func(c *jetstream.StreamConfig, is jetstream.StreamState) {
		c.MaxMsgs, c.Discard = int64(is.Msgs), jetstream.DiscardNew //nolint:gosec // a few
	})
	old := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(s.write("old", "waits"), old, old))
	s.await("ship", "tributary_ship_stalled", least(1))
	return s.watch
}

// torn lets an account reach its limit while a batch is stored, by a user who may not read the limit.
func torn(t *testing.T) *watch {
	t.Helper()
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "nats.conf")
	write := func(limit int64) {
		require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `
listen: "127.0.0.1:-1"
max_payload: 8MB
jetstream: { store_dir: %q, max_file_store: 10GB }
no_auth_user: all
accounts: { A: { jetstream: { max_file: %d, max_mem: 0 }, users: [
  { user: all, password: all }
  { user: blind, password: blind, permissions: { publish: { deny: "$JS.API.INFO" } } }
] } }
`, dir, limit), 0o600))
	}
	write(-1)
	broker := pipelinetest.StartConfigured(t, file)
	js := pipelinetest.Connect(t, broker.ClientURL())
	require.NoError(t, streams.Provision(t.Context(), js, topology))
	pipelinetest.Publish(t, js, pipelinetest.Workload(7, 300, 1800)...)
	w := newWatch(t)
	room := func(bytes int64) {
		info, err := js.AccountInfo(t.Context())
		require.NoError(t, err)
		write(int64(info.Store) + bytes) //nolint:gosec // less than 10 GB
		require.NoError(t, broker.Reload())
	}
	room(40 << 10)
	p := w.start(strings.Replace(broker.ClientURL(), "nats://", "nats://blind:blind@", 1), "run")
	for i, bytes := range []int64{90 << 10, 250 << 10, 30 << 10, 140 << 10, 60 << 10} {
		p.awaitLogged(t, "no answer of the broker to a batch", i+1)
		room(bytes)
	}
	write(-1)
	require.NoError(t, broker.Reload())
	w.await("run", "tributary_torn_total", least(1))
	return w
}

// archivesFull fills one archive: the sessions of a worker that moves states at once are all of this archive.
func archivesFull(t *testing.T) *watch {
	t.Helper()
	js := pipelinetest.NewServer(t).Provision(topology)
	registry := prometheus.NewRegistry()
	reader, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo(),
		otelprometheus.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithSuffixes))
	require.NoError(t, err)
	stage, err := worker.New(js, worker.Config{
		Topology: topology, ArchiveAfter: time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		Meter: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("tributary"),
	})
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- stage.Run(context.WithoutCancel(t.Context())) }()
	t.Cleanup(func() { stage.Drain(); <-done })
	served := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	t.Cleanup(served.Close)
	w := newWatch(t)
	w.targets["run"] = served.URL
	w.owned()
	w.minutes(2)
	var records []core.Record
	for n, sessions := 0, 0; sessions < 350; n++ {
		session := fmt.Sprintf("session-%d", n)
		if archive, _ := envelopes.ArchiveOf(envelopes.StateSubject("v1", 0, envelopes.ClaudeCode, session)); !strings.HasSuffix(archive, ".7") ||
			envelopes.Partition(envelopes.ClaudeCode, session, topology.Partitions) != 0 {
			continue
		}
		sessions++
		for range 100 { // calls without results, which a state remembers
			id := fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64())
			records = append(records, core.Record{Source: envelopes.ClaudeCode, Session: session, Data: fmt.Appendf(nil,
				`{"type":"assistant","uuid":%q,"sessionId":%q,"version":"2.1.1","message":{"id":%[1]q,"role":"assistant","content":[{"type":"tool_use","id":%[1]q,"name":"Bash","input":{"command":%[1]q}}]}}`, id, session)})
		}
	}
	pipelinetest.Publish(t, js, records...)
	w.await("run", "tributary_archive_full_total", least(1))
	return w
}

// TestTwoReconnectsFireNoAlert breaks every connection twice while records flow.
func TestTwoReconnectsFireNoAlert(t *testing.T) {
	t.Parallel()
	s := newSystem(t, true)
	s.edge()
	s.minutes(5)
	for n := range 2 {
		for i := range 400 {
			s.publish(fmt.Sprintf("s%d", i%20), prompt(fmt.Sprintf("s%d", i%20), 400*n+i))
		}
		s.reconnect()
		s.step()
		s.await("run", "tributary_records_total", least(float64(400*(n+1))))
		s.owned()
		s.await("ship", "tributary_connected", least(1))
		s.minutes(2)
	}
	s.minutes(60)
	require.Empty(t, s.firing())
}
