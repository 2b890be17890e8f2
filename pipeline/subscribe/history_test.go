package subscribe_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/events"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/streams"
	"tributary/pipeline/subscribe"
)

var historySeed = flag.Uint64("history.seed", 0, "seed of the tests of streams that go back; 0 draws one")

// sent returns the keys of the events that records yield.
func sent(tb testing.TB, records []core.Record) map[string]bool {
	tb.Helper()
	keys := make(map[string]bool)
	for _, e := range pipelinetest.EventsOf(tb, records) {
		keys[(&subscribe.Event{Event: events.Event{AgentEventV1: e}}).Key()] = true
	}
	return keys
}

// ledger is a program that keeps what it was passed, and notices what it must not be passed.
type ledger struct {
	tb testing.TB

	mu       sync.Mutex
	changed  chan struct{}
	keys     map[string]bool
	last     map[string]uint64 // sequence of the last event of each session that was new
	repeated int
	wentBack []subscribe.WentBack
	ended    error // of the subscription
}

func newLedger(tb testing.TB) *ledger {
	tb.Helper()
	return &ledger{tb: tb, changed: make(chan struct{}, 1), keys: make(map[string]bool), last: make(map[string]uint64)}
}

func (l *ledger) handle(_ context.Context, e subscribe.Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch key, last := e.Key(), l.last[e.SessionID]; {
	case l.keys[key] && !e.Repeated:
		l.tb.Errorf("%s is passed again without a word", key)
	case l.keys[key]:
		l.repeated++
	case e.Sequence != last+1:
		l.tb.Errorf("%s has sequence %d in its session, after %d", key, e.Sequence, last)
		l.last[e.SessionID] = max(last, e.Sequence)
	default:
		l.last[e.SessionID] = e.Sequence
	}
	l.keys[e.Key()] = true
	l.wake()
	return nil
}

func (l *ledger) note(_ context.Context, w subscribe.WentBack) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wentBack = append(l.wentBack, w)
	return nil
}

func (l *ledger) state() (passed int, ended error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.keys), l.ended
}

// end notes why the subscription has ended.
func (l *ledger) end(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = err
	l.wake()
}

// wake lets await look again.
func (l *ledger) wake() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// await waits until so many events were passed.
func (l *ledger) await(n int) {
	l.tb.Helper()
	ctx := deadline(l.tb)
	for {
		passed, ended := l.state()
		if ended != nil {
			l.tb.Fatal(ended)
		}
		if passed >= n {
			return
		}
		select {
		case <-l.changed:
		case <-ctx.Done():
			l.tb.Fatalf("%d of %d events were passed", passed, n)
		}
	}
}

// subscriber runs a subscription, again and again.
type subscriber struct {
	tb    testing.TB
	js    jetstream.JetStream
	l     *ledger
	s     *subscribe.Subscription
	ended chan error

	handle subscribe.Handler // nil for that of the ledger
}

func (r *subscriber) start() {
	r.tb.Helper()
	handle := r.handle
	if handle == nil {
		handle = r.l.handle
	}
	r.s, r.ended = newSubscription(r.tb, r.js, subscribe.Config{WentBack: r.l.note}), make(chan error, 1)
	go func() {
		err := r.s.Run(context.WithoutCancel(r.tb.Context()), handle)
		r.l.end(err)
		r.ended <- err
	}()
}

func (r *subscriber) stop() {
	r.tb.Helper()
	r.s.Drain()
	if err := <-r.ended; err != nil {
		r.tb.Error(err)
	}
}

// The events stream is put back to copies of random moments while a worker normalizes, and a subscription runs or is stopped:
// no event is lost, and none comes again without a word.
func TestSubscriptionSurvivesAStreamThatGoesBack(t *testing.T) {
	t.Parallel()
	seed := *historySeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("repeat it with -history.seed=%d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	server := pipelinetest.NewServer(t)
	js := server.Provision(topology())
	records := pipelinetest.Workload(seed, 9, 900)
	want := sent(t, records)
	work(t, js)
	l := newLedger(t)
	r := &subscriber{tb: t, js: js, l: l}
	r.start()
	const rounds = 4
	for n := range rounds {
		part := records[n*len(records)/rounds : (n+1)*len(records)/rounds]
		cut := random.IntN(len(part))
		pipelinetest.Publish(t, js, part[:cut]...)
		l.await(random.IntN(len(sent(t, records[:n*len(records)/rounds+cut])) + 1))
		saved := server.CopyStore()
		pipelinetest.Publish(t, js, part[cut:]...)
		all := len(sent(t, records[:(n+1)*len(records)/rounds]))
		if n%2 == 0 {
			l.await(all)
		} else {
			l.await(random.IntN(all + 1))
		}
		stopped := random.IntN(2) == 0
		if stopped {
			r.stop()
		}
		saved.PutBack(streams.EventsStream("v1"))
		if stopped {
			if random.IntN(2) == 0 {
				caughtUp(t, js, "v1") // the stream may be as long again as it was
			}
			r.start()
		}
	}
	l.await(len(want))
	caughtUp(t, js, "v1")
	pipelinetest.Publish(t, js, prompts("the last", "one")...)
	for key := range sent(t, prompts("the last", "one")) {
		want[key] = true
	}
	l.await(len(want))
	r.stop()
	if diff := cmp.Diff(want, l.keys); diff != "" {
		t.Errorf("events (-sent +passed):\n%s", diff)
	}
	if len(l.wentBack) == 0 || l.repeated == 0 {
		t.Errorf("WentBack was called %d times, %d events were repeated: the test proves nothing", len(l.wentBack), l.repeated)
	}
}

// A subscription whose handler is behind when its stream is put back, and grows beyond what it was, has every event.
func TestSubscriptionIsBehindWhenTheStreamGoesBack(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	js := server.Provision(topology())
	records := prompts("s", numbers(1, 60)...)
	store(t, js, records[:10]...)
	saved := server.CopyStore()
	store(t, js, records[10:40]...)
	l := newLedger(t)
	behind, goOn := make(chan struct{}), make(chan struct{})
	wait := sync.OnceFunc(func() {
		close(behind)
		<-goOn
	})
	s := newSubscription(t, server.JetStream(), subscribe.Config{WentBack: l.note})
	ended := make(chan error, 1)
	go func() {
		err := s.Run(context.WithoutCancel(t.Context()), func(ctx context.Context, e subscribe.Event) error {
			if *e.Text == "25" {
				wait()
			}
			return l.handle(ctx, e)
		})
		l.end(err)
		ended <- err
	}()
	<-behind
	saved.PutBack(streams.EventsStream("v1"))
	store(t, server.JetStream(), records[40:]...)
	close(goOn)
	l.await(len(records))
	s.Drain()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if len(l.wentBack) != 1 || l.wentBack[0].Since.IsZero() || l.repeated == 0 {
		t.Errorf("WentBack was called with %+v, %d events were repeated", l.wentBack, l.repeated)
	}
}

// TestOneCellGoesBack restores the stream of one cell of four: only its events come again, while the subscription runs
// and when it was stopped.
func TestOneCellGoesBack(t *testing.T) {
	t.Parallel()
	top := streams.Topology{Generation: "v1", Partitions: 8, Cells: 4}
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	var records []core.Record
	for i := range 200 {
		records = append(records, prompts(fmt.Sprint("session ", i%20), numbers(i, i)...)...)
	}
	cell := func(session string) int {
		return envelopes.Partition(envelopes.ClaudeCode, session, top.Partitions) % top.Cells
	}
	store := func(records ...core.Record) { storeIn(t, server.JetStream(), top, records...) }
	store(records[:50]...)
	l := newLedger(t)
	again := make(map[int]bool)
	r := &subscriber{tb: t, js: js, l: l, handle: func(ctx context.Context, e subscribe.Event) error {
		if e.Repeated {
			again[e.Cell] = true
		}
		if e.Cell != cell(e.SessionID) {
			t.Errorf("an event of session %s in cell %d", e.SessionID, e.Cell)
		}
		return l.handle(ctx, e)
	}}
	r.start()
	for n, back := range []int{2, 1} {
		from := 50 + 75*n
		l.await(from)
		saved := server.CopyStore()
		store(records[from : from+40]...)
		l.await(from + 40)
		if n == 1 {
			r.stop()
		}
		saved.PutBack(streams.EventsStream(envelopes.CellName("v1", back)))
		store(records[from+40 : from+75]...)
		if n == 1 {
			r.start()
		}
	}
	l.await(len(records))
	r.stop()
	if len(l.wentBack) != 2 || l.wentBack[0].Cell != 2 || l.wentBack[1].Cell != 1 || len(again) != 2 || !again[1] || !again[2] {
		t.Errorf("WentBack was called with %+v, cells %v came again", l.wentBack, again)
	}
}

// untilIdle runs a subscription until it has noted that it has had everything.
func untilIdle(tb testing.TB, js jetstream.JetStream, cfg subscribe.Config) {
	tb.Helper()
	kv, err := js.KeyValue(tb.Context(), streams.SubscribersBucket)
	if err != nil {
		tb.Fatal(err)
	}
	progress, err := kv.Watch(tb.Context(), cfg.Name)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = progress.Stop() }()
	s := newSubscription(tb, js, cfg)
	ended := make(chan error, 1)
	go func() {
		ended <- s.Run(deadline(tb), func(context.Context, subscribe.Event) error { return nil })
	}()
	for entry := range progress.Updates() {
		if entry != nil && strings.Contains(string(entry.Value()), `"ends"`) {
			break
		}
	}
	s.Drain()
	if err := <-ended; err != nil {
		tb.Fatal(err)
	}
}

// TestExpiredIsCalledOnce: a subscription that lacks expired events gets one call of Expired, one that has had all of
// them gets none.
func TestExpiredIsCalledOnce(t *testing.T) {
	t.Parallel()
	js := pipelinetest.NewServer(t).Provision(topology())
	store(t, js, prompts("s", "one", "two", "three", "four")...)
	var calls []string
	config := func(name string) subscribe.Config {
		return subscribe.Config{Name: name, Expired: func(_ context.Context, e subscribe.Expired) error {
			calls = append(calls, fmt.Sprintf("%s %s %d %v", name, e.Generation, e.Cell, e.Most >= 3 && e.Most < 20 && !e.Since.IsZero()))
			return nil
		}}
	}
	if got := take(t, js, config("behind"), 1); !slices.Equal(got, []string{"one"}) {
		t.Fatalf("events %q", got)
	}
	untilIdle(t, js, config("all"))
	stream, err := js.Stream(t.Context(), streams.EventsStream("v1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(t.Context(), jetstream.WithPurgeSubject("events.>")); err != nil { // as if they had expired
		t.Fatal(err)
	}
	addEvents(t, js, 5, "five", "six") // without a checkpoint before them
	for _, name := range []string{"behind", "all"} {
		for _, want := range []string{"five", "six"} {
			if got := take(t, js, config(name), 1); !slices.Equal(got, []string{want}) {
				t.Errorf("%s: events %q, want %q", name, got, want)
			}
		}
	}
	if diff := cmp.Diff([]string{"behind v1 0 true"}, calls); diff != "" {
		t.Errorf("calls of Expired (-want +got):\n%s", diff)
	}
}

// addEvents stores events alone, of the raw records from a sequence on.
func addEvents(tb testing.TB, js jetstream.JetStream, from uint64, texts ...string) {
	tb.Helper()
	messages := make([]*nats.Msg, len(texts))
	for i, text := range texts {
		raw := from + uint64(i) //nolint:gosec // small
		e := envelopes.AgentEventV1{
			SchemaVersion: envelopes.SchemaVersion, Source: envelopes.ClaudeCode, ProjectHash: strings.Repeat("a", 64), SessionID: "s", EventID: text,
			TS: "2026-03-01T09:00:00Z", EventType: envelopes.UserMessage, Role: new(envelopes.RoleUser), Text: &text, Raw: []byte(`{}`), Sequence: raw,
		}
		header, data, err := envelopes.EncodeEvent(&e, envelopes.Provenance{Generation: "v1", RawStream: "RAW", RawSequence: raw}, envelopes.Binary)
		if err != nil {
			tb.Fatal(err)
		}
		messages[i] = &nats.Msg{Subject: envelopes.EventSubject("v1", &e), Header: header, Data: data}
	}
	pipelinetest.PublishMessages(tb.Context(), tb, js, messages...)
}

// TestExpiredCountsEveryLostEvent has a handler so slow that events expire before they are read. The calls of Expired,
// the log and the metrics count at least the events that the subscription does not get.
func TestExpiredCountsEveryLostEvent(t *testing.T) {
	t.Parallel()
	top := topology()
	top.EventsMaxAge = 2 * time.Second
	js := pipelinetest.NewServer(t).Provision(top)
	storeIn(t, js, top, prompts("s", "first")...)
	stream, err := js.Stream(t.Context(), streams.EventsStream("v1"))
	if err != nil {
		t.Fatal(err)
	}
	var reported uint64
	var log bytes.Buffer
	metrics := sdkmetric.NewManualReader()
	s := newSubscription(t, js, subscribe.Config{
		Expired: func(_ context.Context, e subscribe.Expired) error {
			reported += e.Most
			return nil
		},
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Meter:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(metrics)).Meter("test"),
	})
	started, expired, passed := make(chan struct{}), make(chan struct{}), map[string]int{}
	ended := make(chan error, 1)
	go func() {
		ended <- s.Run(deadline(t), func(_ context.Context, e subscribe.Event) error {
			if passed[*e.Text]++; len(passed) == 1 {
				close(started)
				<-expired
			}
			if *e.Text == "last" {
				s.Drain()
			}
			return nil
		})
	}()
	<-started
	sent := append(numbers(1, 4000), "last") // more than are read ahead
	storeIn(t, js, top, prompts("t", sent[:4000]...)...)
	awaitNoEvents(t, stream)
	storeIn(t, js, top, prompts("u", "last")...)
	close(expired)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	lost := uint64(0)
	for _, text := range sent {
		if passed[text] == 0 {
			lost++
		}
	}
	if lost == 0 {
		t.Fatal("no event has expired before it was read")
	}
	if reported < lost {
		t.Errorf("%d events are lost, %d were reported", lost, reported)
	}
	if n := strings.Count(log.String(), `msg="events may have expired before they were passed"`); n == 0 || !strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("the log has %d errors", n)
	}
	if counted := counterValue(t, metrics, "tributary.subscription.expired"); counted != reported {
		t.Errorf("%d are counted, %d were reported", counted, reported)
	}
}

// counterValue returns the value of a counter.
func counterValue(tb testing.TB, reader *sdkmetric.ManualReader, name string) (n uint64) {
	tb.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(tb.Context(), &all); err != nil {
		tb.Fatal(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == name {
				for _, p := range sum.DataPoints {
					n += uint64(p.Value)
				}
			}
		}
	}
	return n
}

// awaitNoEvents waits until all events of a stream have expired.
func awaitNoEvents(t *testing.T, stream jetstream.Stream) {
	t.Helper()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for ctx := deadline(t); ; {
		info, err := stream.Info(ctx, jetstream.WithSubjectFilter("events.>"))
		if err != nil {
			t.Fatal(err)
		}
		if len(info.State.Subjects) == 0 {
			return
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			t.Fatalf("%d subjects have events", len(info.State.Subjects))
		}
	}
}

// TestExpiredIsNotCalledWithoutLoss: a subscription has had every event before the last ones expire. When more arrive,
// Expired is not called.
func TestExpiredIsNotCalledWithoutLoss(t *testing.T) {
	t.Parallel()
	top := topology()
	top.EventsMaxAge = 3 * time.Second
	js := pipelinetest.NewServer(t).Provision(top)
	storeIn(t, js, top, prompts("s", "one")...)
	passed := make(chan string, 10)
	s := newSubscription(t, js, subscribe.Config{
		Expired: func(_ context.Context, e subscribe.Expired) error {
			t.Errorf("%d events were reported", e.Most)
			return nil
		},
	})
	ended := make(chan error, 1)
	go func() {
		ended <- s.Run(deadline(t), func(_ context.Context, e subscribe.Event) error {
			passed <- *e.Text
			return nil
		})
	}()
	for _, next := range []string{"two", ""} {
		<-passed
		stream, err := js.Stream(t.Context(), streams.EventsStream("v1"))
		if err != nil {
			t.Fatal(err)
		}
		awaitNoEvents(t, stream)
		if next != "" {
			storeIn(t, js, top, prompts("s", next)...)
		}
	}
	s.Drain()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// Progress of an older version, which says nothing of the events that were read, is read, and has marks from then on.
func TestOldProgressIsRead(t *testing.T) {
	t.Parallel()
	js := pipelinetest.NewServer(t).Provision(topology())
	store(t, js, prompts("s", "one", "two", "three")...)
	if got := take(t, js, subscribe.Config{}, 1); !slices.Equal(got, []string{"one"}) {
		t.Fatalf("events %q", got)
	}
	kv, err := js.KeyValue(t.Context(), streams.SubscribersBucket)
	if err != nil {
		t.Fatal(err)
	}
	progress := func() string {
		entry, err := kv.Get(t.Context(), "test")
		if err != nil {
			t.Fatal(err)
		}
		return string(entry.Value())
	}
	before, _, ok := strings.Cut(progress(), `,"marks"`)
	if !ok {
		t.Fatalf("no marks in %s", progress())
	}
	if _, err := kv.PutString(t.Context(), "test", before+"}"); err != nil {
		t.Fatal(err)
	}
	if got := take(t, js, subscribe.Config{}, 2); !slices.Equal(got, []string{"two", "three"}) {
		t.Errorf("events %q", got)
	}
	if !strings.Contains(progress(), `"marks"`) {
		t.Errorf("no marks in %s", progress())
	}
}
