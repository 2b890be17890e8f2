package subscribe_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/events"
	"tributary/pipeline/load"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/runner"
	"tributary/pipeline/streams"
	"tributary/pipeline/subscribe"
	"tributary/pipeline/worker"
)

func TestMain(m *testing.M) {
	pipelinetest.Configure()
	os.Exit(m.Run())
}

func topology() streams.Topology { return streams.Topology{Generation: "v1", Partitions: 4} }

// deadline returns a context for what must happen soon.
func deadline(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeoutCause(tb.Context(), 3*time.Minute, errors.New("the test waits in vain"))
	tb.Cleanup(cancel)
	return ctx
}

// work runs a worker until the test ends.
func work(tb testing.TB, js jetstream.JetStream) {
	tb.Helper()
	cfg := worker.Config{Topology: topology(), Heartbeat: 100 * time.Millisecond, Worker: "w", Member: "w"}
	cfg.Topology.Generation = ""
	if cfg.Logger == nil && testing.Verbose() {
		cfg.Logger = slog.New(slog.NewTextHandler(tb.Output(), nil))
	}
	r := runner.New(js, cfg)
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		<-ended //nolint:errcheck // the context has ended
	})
}

// caughtUp waits until a generation has every record.
func caughtUp(tb testing.TB, js jetstream.JetStream, generation string) {
	tb.Helper()
	top := topology()
	top.Generation = generation
	if err := replay.CatchUp(deadline(tb), js, top); err != nil {
		tb.Fatal(err)
	}
}

// prompts returns records of Claude Code with these texts.
func prompts(session string, texts ...string) (list []core.Record) {
	for _, text := range texts {
		list = append(list, core.Record{Source: envelopes.ClaudeCode, Session: session, Data: fmt.Appendf(nil,
			`{"type":"user","uuid":%q,"timestamp":"2026-03-01T09:00:00Z","message":{"role":"user","content":%q}}`, session+" "+text, text)})
	}
	return list
}

// store stores the events of records, and ends the worker.
func store(tb testing.TB, js jetstream.JetStream, records ...core.Record) {
	tb.Helper()
	storeIn(tb, js, topology(), records...)
}

// storeIn is store of a topology.
func storeIn(tb testing.TB, js jetstream.JetStream, top streams.Topology, records ...core.Record) {
	tb.Helper()
	pipelinetest.Publish(tb, js, records...)
	stage, err := worker.New(js, worker.Config{Topology: top, Heartbeat: 50 * time.Millisecond})
	if err != nil {
		tb.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- stage.Run(context.WithoutCancel(tb.Context())) }()
	if err := replay.CatchUp(deadline(tb), js, top); err != nil {
		tb.Fatal(err)
	}
	stage.Drain()
	if err := <-ended; err != nil {
		tb.Fatal(err)
	}
}

// configure completes a configuration for a test.
func configure(tb testing.TB, cfg subscribe.Config) subscribe.Config {
	tb.Helper()
	if cfg.Name == "" {
		cfg.Name = "test"
	}
	if cfg.Generation == "" && cfg.GenerationChanged == nil {
		cfg.Generation = "v1"
	}
	cfg.Backoff = time.Millisecond
	if cfg.Poll == 0 {
		cfg.Poll = 20 * time.Millisecond
	}
	if cfg.Logger == nil && testing.Verbose() {
		cfg.Logger = slog.New(slog.NewTextHandler(tb.Output(), nil))
	}
	return cfg
}

// newSubscription returns a subscription.
func newSubscription(tb testing.TB, js jetstream.JetStream, cfg subscribe.Config) *subscribe.Subscription {
	tb.Helper()
	s, err := subscribe.New(js, configure(tb, cfg))
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// take passes so many events to a list of texts, then drains.
func take(tb testing.TB, js jetstream.JetStream, cfg subscribe.Config, most int) (list []string) {
	tb.Helper()
	s := newSubscription(tb, js, cfg)
	err := s.Run(deadline(tb), func(_ context.Context, e subscribe.Event) error {
		if list = append(list, *e.Text); len(list) == most {
			s.Drain()
		}
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return list
}

// numbers returns the texts from..to.
func numbers(from, to int) (list []string) {
	for i := from; i <= to; i++ {
		list = append(list, strconv.Itoa(i))
	}
	return list
}

// A subscription that ends and begins again, under its name, passes each event once; a start, and
// filters, select.
func TestSubscriptionGoesOnWhereItStopped(t *testing.T) {
	t.Parallel()
	js := pipelinetest.NewServer(t).Provision(topology())
	store(t, js, prompts("s", numbers(1, 300)...)...)
	store(t, js, prompts("other", "x", "y")...)
	var got []string
	for _, n := range []int{1, 2, 260, 37} {
		got = append(got, take(t, js, subscribe.Config{Session: "s"}, n)...)
	}
	if diff := cmp.Diff(numbers(1, 300), got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	all, err := js.Stream(t.Context(), streams.EventsStream("v1"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := all.GetLastMsgForSubject(t.Context(), "events.v1.claude_code.s.*")
	if err != nil {
		t.Fatal(err)
	}
	var partitions []int
	for e, err := range events.Read(t.Context(), js, "v1", events.Query{Session: "other", Last: 1}) {
		if err != nil {
			t.Fatal(err)
		}
		partitions = append(partitions, e.Provenance.Partition)
	}
	for name, cfg := range map[string]subscribe.Config{
		"position": {Start: subscribe.Start{Position: m.Sequence}},
		"time":     {Start: subscribe.Start{Since: m.Time}},
		"source":   {Source: envelopes.ClaudeCode, Start: subscribe.Start{Position: m.Sequence}},
		"type":     {Type: envelopes.UserMessage, Start: subscribe.Start{Position: m.Sequence}},
	} {
		cfg.Name = name
		if diff := cmp.Diff([]string{"300", "x", "y"}, take(t, js, cfg, 3)); diff != "" {
			t.Errorf("%s: events (-want +got):\n%s", name, diff)
		}
	}
	if got := take(t, js, subscribe.Config{Name: "partition", Partitions: partitions, Session: "other"}, 2); !slices.Equal(got, []string{"x", "y"}) {
		t.Errorf("partitions %v: %v", partitions, got)
	}
	s := newSubscription(t, js, subscribe.Config{Name: "new", Start: subscribe.Start{New: true}})
	key := awaitKey(t, js, "new")
	go func() {
		<-key
		pipelinetest.Publish(t, js, prompts("s", "301")...)
	}()
	work(t, js)
	err = s.Run(deadline(t), func(_ context.Context, e subscribe.Event) error {
		if *e.Text != "301" || e.Key() != "claude_code/s/s 301" || e.Delivery != 1 {
			t.Errorf("event %s: %s, delivery %d", e.Key(), *e.Text, e.Delivery)
		}
		s.Drain()
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// awaitKey waits until a subscription has stored its first progress.
func awaitKey(tb testing.TB, js jetstream.JetStream, name string) <-chan jetstream.KeyValueEntry {
	tb.Helper()
	kv, err := js.KeyValue(tb.Context(), streams.SubscribersBucket)
	if err != nil {
		tb.Fatal(err)
	}
	watcher, err := kv.Watch(tb.Context(), name, jetstream.UpdatesOnly())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = watcher.Stop() })
	return watcher.Updates()
}

// An event whose handler fails is passed again, before any later one. After so many times it is
// poison: it is left out when the program says so, and else ends the subscription.
func TestFailedEventIsPassedAgainInItsPlace(t *testing.T) {
	t.Parallel()
	js := pipelinetest.NewServer(t).Provision(topology())
	store(t, js, prompts("s", "one", "fails once", "two", "poison", "three")...)
	wrong := fmt.Errorf("the handler waits in vain: %w", context.DeadlineExceeded) // not for the broker
	var got, poison []string
	fail := func(e *subscribe.Event) error {
		got = append(got, fmt.Sprint(*e.Text, " ", e.Delivery))
		if *e.Text == "poison" || *e.Text == "fails once" && e.Delivery == 1 {
			return wrong
		}
		return nil
	}
	cfg := subscribe.Config{Deliveries: 3}
	s := newSubscription(t, js, cfg)
	err := s.Run(deadline(t), func(_ context.Context, e subscribe.Event) error { return fail(&e) })
	if !errors.Is(err, wrong) || !strings.Contains(err.Error(), "EVENTS_v1") {
		t.Errorf("without a policy: %v", err)
	}
	want := []string{"one 1", "fails once 1", "fails once 2", "two 1", "poison 1", "poison 2", "poison 3"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("deliveries (-want +got):\n%s", diff)
	}

	got = nil
	pipelinetest.PublishMessages(t.Context(), t, js, &nats.Msg{Subject: "events.v1.claude_code.s.user_message", Data: []byte("no event")})
	store(t, js, prompts("s", "four")...)
	cfg.Poison = func(_ context.Context, e subscribe.Event, err error) error {
		if e.EventID == "" {
			poison = append(poison, "unreadable")
			return nil
		}
		poison = append(poison, *e.Text)
		if !errors.Is(err, wrong) {
			t.Errorf("poison: %v", err)
		}
		return nil
	}
	s = newSubscription(t, js, cfg)
	err = s.RunBatches(deadline(t), func(_ context.Context, events []subscribe.Event) error {
		if *events[len(events)-1].Text == "four" {
			defer s.Drain()
		}
		var errs []error
		for i := range events {
			errs = append(errs, fail(&events[i]))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(poison, []string{"poison", "unreadable"}) {
		t.Errorf("left out: %q", poison)
	}
	for _, text := range []string{"three 1", "four 1"} {
		if !slices.Contains(got, text) {
			t.Errorf("deliveries %q are without %q", got, text)
		}
	}
}

// A batch that fails is passed again one event at a time, so that poison is the event that fails.
func TestFailedBatchIsDivided(t *testing.T) {
	t.Parallel()
	js := pipelinetest.NewServer(t).Provision(topology())
	store(t, js, prompts("s", "first", "a", "b", "poison", "c", "d")...)
	var done, poison []string
	largest := 0
	cfg := subscribe.Config{Deliveries: 2, Batch: 100, Poison: func(_ context.Context, e subscribe.Event, _ error) error {
		poison = append(poison, *e.Text)
		return nil
	}}
	s := newSubscription(t, js, cfg)
	err := s.RunBatches(deadline(t), func(_ context.Context, events []subscribe.Event) error {
		largest = max(largest, len(events))
		for _, e := range events {
			if *e.Text == "poison" {
				return errors.New("no")
			}
		}
		for _, e := range events {
			if done = append(done, *e.Text); *e.Text == "d" {
				s.Drain()
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(done, []string{"first", "a", "b", "c", "d"}) || !slices.Equal(poison, []string{"poison"}) || largest < 2 {
		t.Errorf("done %q, poison %q, largest batch %d", done, poison, largest)
	}
}

// An event that ends the process each time it is passed is poison after so many times, although no
// handler returns an error; the events before it are not.
func TestEventThatEndsTheProcessIsPoison(t *testing.T) {
	t.Parallel()
	js := pipelinetest.NewServer(t).Provision(topology())
	store(t, js, prompts("s", "one", "two", "ends", "three")...)
	var calls, poison []string
	cfg := subscribe.Config{Deliveries: 3, Poison: func(_ context.Context, e subscribe.Event, _ error) error {
		poison = append(poison, *e.Text)
		return nil
	}}
	process := func() (ended bool) {
		defer func() { ended = recover() != nil }() // unwinds as abruptly as the end of a process
		s := newSubscription(t, js, cfg)
		err := s.Run(deadline(t), func(_ context.Context, e subscribe.Event) error {
			calls = append(calls, *e.Text)
			if *e.Text == "ends" {
				panic("the process ends")
			}
			if *e.Text == "three" {
				s.Drain()
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		return false
	}
	for n := 0; process(); n++ {
		if n > 10 {
			t.Fatalf("the process ends again and again: %q", calls)
		}
	}
	if n := len(slices.DeleteFunc(slices.Clone(calls), func(s string) bool { return s != "ends" })); n < 3 || n > 5 || !slices.Equal(poison, []string{"ends"}) {
		t.Errorf("calls %q, poison %q", calls, poison)
	}
}

// Of two processes with one name the later one works; a name whose progress was removed, a
// generation that was dropped and a stream that went back in time are errors with a cure.
func TestSubscriptionThatCannotGoOnSaysWhy(t *testing.T) {
	t.Parallel()
	js := pipelinetest.NewServer(t).Provision(topology())
	store(t, js, prompts("s", "one", "two")...)
	ended := make(chan error, 1)
	first := newSubscription(t, js, subscribe.Config{})
	passed := make(chan struct{}, 2)
	go func() {
		ended <- first.Run(deadline(t), func(context.Context, subscribe.Event) error { passed <- struct{}{}; return nil })
	}()
	<-passed
	<-passed
	second := newSubscription(t, js, subscribe.Config{})
	drained := make(chan error, 1)
	go func() {
		drained <- second.Run(deadline(t), func(context.Context, subscribe.Event) error { return nil })
	}()
	if err := <-ended; !errors.Is(err, subscribe.ErrTakenOver) {
		t.Errorf("the first of two: %v", err)
	}
	second.Drain()
	if err := <-drained; err != nil {
		t.Error(err)
	}

	if _, err := replay.Start(t.Context(), js, replay.Request{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	cfg := subscribe.Config{Name: "b", Generation: "b"}
	third := newSubscription(t, js, cfg)
	key := awaitKey(t, js, "b")
	go func() { ended <- third.Run(deadline(t), nil) }()
	<-key
	if err := replay.Drop(t.Context(), js, "b"); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, subscribe.ErrDropped) || !strings.Contains(err.Error(), "replay ls") {
		t.Errorf("a generation that was dropped: %v", err)
	}
	if err := newSubscription(t, js, cfg).Run(deadline(t), nil); !errors.Is(err, subscribe.ErrDropped) {
		t.Errorf("a generation that is not there: %v", err)
	}
	if err := newSubscription(t, js, subscribe.Config{Generation: "c"}).Run(deadline(t), nil); err == nil || !strings.Contains(err.Error(), "another name") {
		t.Errorf("a name of another generation: %v", err)
	}
	kv, err := js.KeyValue(t.Context(), streams.SubscribersBucket)
	if err != nil {
		t.Fatal(err)
	}
	entry, err := kv.Get(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	old, _, _ := strings.Cut(string(entry.Value()), `,"marks"`) // what an older version stores
	if _, err := kv.PutString(t.Context(), "test", strings.Replace(old+"}", `"position":`, `"position":9`, 1)); err != nil {
		t.Fatal(err)
	}
	if err := newSubscription(t, js, subscribe.Config{}).Run(deadline(t), nil); !errors.Is(err, subscribe.ErrWentBack) || !strings.Contains(err.Error(), "remove the key test") {
		t.Errorf("progress behind the end of the stream: %v", err)
	}
	for want, cfg := range map[string]subscribe.Config{
		"A-Z, a-z, 0-9":       {Name: "a.b.c", Generation: "v1"},
		"GenerationChanged":   {Name: "a"},
		"rebuild or continue": {Name: "a", Generation: "v1", Change: "sometimes"},
		"not below 0":         {Name: "a", Generation: "v1", Batch: -1},
	} {
		if _, err := subscribe.New(js, cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	bare := pipelinetest.NewServer(t).JetStream()
	if err := newSubscription(t, bare, subscribe.Config{}).Run(deadline(t), nil); err == nil || !strings.Contains(err.Error(), "tributary run") {
		t.Errorf("a broker without a worker: %v", err)
	}
}

// A subscription goes on through a restart of the server.
func TestSubscriptionWaitsForTheBroker(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	js := server.Provision(topology())
	store(t, js, prompts("s", "one", "two", "three")...)
	s := newSubscription(t, js, subscribe.Config{})
	var got []string
	err := s.Run(deadline(t), func(_ context.Context, e subscribe.Event) error {
		switch got = append(got, *e.Text); *e.Text {
		case "one":
			server.Restart()
		case "three":
			s.Drain()
		}
		return nil
	})
	if err != nil || !slices.Equal(got, []string{"one", "two", "three"}) {
		t.Errorf("events %q, %v", got, err)
	}
}

// A lost answer to any request with which a subscription begins is asked for again.
func TestLostAnswersAtTheBeginning(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	store(t, server.Provision(topology()), prompts("s", "one", "two")...)
	for part, requests := range map[string]int{
		"STREAM.MSG.GET.KV_" + streams.SubscribersBucket: 1, // the progress
		"STREAM.MSG.GET.KV_TRIBUTARY ":                   1, // the live generation
		"STREAM.INFO.EVENTS_v1":                          3, // whether it is there, its end, and its cells
		"STREAM.MSG.GET.EVENTS_v1":                       2, // the events that were passed
		"CONSUMER.CREATE.EVENTS_v1":                      1,
		"CONSUMER.MSG.NEXT.EVENTS_v1":                    1,
	} {
		for n := range requests {
			name := strings.Map(func(r rune) rune {
				if r == '.' || r == ' ' {
					return '-'
				}
				return r
			}, fmt.Sprint(part, n))
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				var d pipelinetest.Deaf
				js := pipelinetest.AsPrograms(t, server.JetStream(d.Option()))
				cfg := subscribe.Config{Name: name, Poll: 200 * time.Millisecond, GenerationChanged: func(context.Context, subscribe.GenerationChanged) error { return nil }}
				if got := take(t, js, cfg, 1); !slices.Equal(got, []string{"one"}) {
					t.Errorf("events %q", got)
				}
				d.Lose(part, n+1)
				if got := take(t, js, cfg, 1); !slices.Equal(got, []string{"two"}) || !d.Lost() {
					t.Errorf("events %q, an answer was lost: %v", got, d.Lost())
				}
			})
		}
	}
}

// A lost answer to a request costs the time of a request, also where the caller has much more.
func TestLostAnswerIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	server.Provision(topology())
	var d pipelinetest.Deaf
	js, err := jetstream.New(server.JetStream(d.Option()).Conn(), jetstream.WithDefaultTimeout(500*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	store(t, js, prompts("s", "one", "two")...)
	s := newSubscription(t, js, subscribe.Config{})
	var got []string
	err = s.Run(deadline(t), func(_ context.Context, e subscribe.Event) error {
		if got = append(got, *e.Text); *e.Text == "one" {
			d.Lose("$KV."+streams.SubscribersBucket+".test", 1)
		} else {
			s.Drain()
		}
		return nil
	})
	if err != nil || !slices.Equal(got, []string{"one", "two"}) || !d.Lost() {
		t.Errorf("events %q, %v", got, err)
	}
}

// A program that imports the package does not contain a server.
func TestImportDoesNotBringAServer(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "tributary/pipeline/subscribe").Output()
	if err != nil {
		t.Fatal(err)
	}
	if deps := string(out); strings.Contains(deps, "nats-server") || !strings.Contains(deps, "nats.go/jetstream") {
		t.Errorf("the package imports\n%s", deps)
	}
}

// table is what a program makes of the events: those of each session, by their keys.
type table struct {
	mu      sync.Mutex
	events  map[string][]string // of a session, in their order
	seen    map[string]bool
	changes []subscribe.GenerationChanged
}

// changed discards the events.
func (t *table) changed(_ context.Context, c subscribe.GenerationChanged) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.events, t.seen, t.changes = map[string][]string{}, map[string]bool{}, append(t.changes, c)
	return nil
}

// add adds an event, unless it is there.
func (t *table) add(e *subscribe.Event) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	line, err := digest(e.Event)
	if !t.seen[line] {
		t.seen[line] = true
		t.events[e.SessionID] = append(t.events[e.SessionID], line)
	}
	return err
}

// digest is the place of an event, and the hash of its JSON.
func digest(e events.Event) (string, error) {
	data, err := e.AppendJSON(nil)
	return fmt.Sprintf("%s %d %s %x", e.SessionID, e.Sequence, e.EventID, sha256.Sum256(data)), err
}

// has waits until the table has exactly the events of a generation.
func (t *table) has(tb testing.TB, js jetstream.JetStream, generation string) {
	tb.Helper()
	want := map[string][]string{}
	for e, err := range events.Read(tb.Context(), js, generation, events.Query{}) {
		if err != nil {
			tb.Fatal(err)
		}
		line, err := digest(e)
		if err != nil {
			tb.Fatal(err)
		}
		want[e.SessionID] = append(want[e.SessionID], line)
	}
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for ctx := deadline(tb); ; {
		t.mu.Lock()
		equal := maps.EqualFunc(want, t.events, slices.Equal)
		t.mu.Unlock()
		if equal {
			return
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			t.mu.Lock()
			defer t.mu.Unlock()
			tb.Fatalf("the events of %s (-want +got):\n%.3000s", generation, cmp.Diff(want, t.events))
		}
	}
}

func TestCutOverLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	cutOver(t, pipelinetest.Workload(97, 12, 900))
}

// TestCorpusCutOver does the same with the logs of TRIBUTARY_CORPUS.
func TestCorpusCutOver(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("TRIBUTARY_CORPUS")
	if dir == "" {
		t.Skip("TRIBUTARY_CORPUS is not set")
	}
	records, err := load.Folder(dir)
	if err != nil {
		t.Fatal(err)
	}
	cutOver(t, records)
}

// cutOver lets two subscribers run, which are killed now and then, while records arrive, a
// generation is promoted, and the promotion is rolled back: after each change both have exactly
// the events of the live generation.
func cutOver(t *testing.T, records []core.Record) {
	t.Helper()
	server := pipelinetest.NewServer(t)
	js := server.Provision(topology())
	part := len(records) / 9
	feed := func(n int) {
		t.Helper()
		if err := load.Publish(t.Context(), js, records[:n]); err != nil {
			t.Fatal(err)
		}
		records = records[n:]
	}
	feed(3 * part)
	work(t, server.JetStream())
	var tables [2]table
	for i := range tables {
		tables[i].events, tables[i].seen = map[string][]string{}, map[string]bool{}
	}
	stopped := make(chan struct{})
	var subscribers sync.WaitGroup
	for i := range tables {
		subscribers.Go(func() {
			for n := 1; !closed(stopped); n++ { // it is killed after a while, again and again, later and later
				ctx, kill := context.WithCancel(deadline(t))
				context.AfterFunc(ctx, kill)
				left := n * n * part / 2
				s := newSubscription(t, js, subscribe.Config{
					Name: fmt.Sprint("subscriber-", i), Batch: 16, GenerationChanged: tables[i].changed,
				})
				go func() { <-stopped; s.Drain() }()
				err := s.RunBatches(ctx, func(_ context.Context, events []subscribe.Event) error {
					for j := range events {
						if left--; left == 0 {
							kill()
							return context.Canceled
						}
						if err := tables[i].add(&events[j]); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				kill()
			}
		})
	}
	if _, err := replay.Start(t.Context(), js, replay.Request{Name: "b", Settings: streams.Settings{ToolMetadata: core.ProfileCurrent}}); err != nil {
		t.Fatal(err)
	}
	feed(part)
	promoted := make(chan error, 1)
	go func() {
		_, err := replay.Promote(deadline(t), js, "b", true)
		promoted <- err
	}()
	feed(2 * part) // while it is promoted
	if err := <-promoted; err != nil {
		t.Fatal(err)
	}
	feed(part)
	caughtUp(t, js, "b")
	for i := range tables {
		tables[i].has(t, js, "b")
	}
	if _, _, err := replay.RollBack(t.Context(), js); err != nil {
		t.Fatal(err)
	}
	feed(len(records))
	caughtUp(t, js, "v1")
	for i := range tables {
		tables[i].has(t, js, "v1")
	}
	close(stopped)
	subscribers.Wait()
	for i := range tables {
		list := slices.Compact(tables[i].changes)
		if want := []subscribe.GenerationChanged{{From: "v1", To: "b"}, {From: "b", To: "v1"}}; !slices.Equal(list, want) {
			t.Errorf("changes %v, want %v", tables[i].changes, want)
		}
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// With Continue a subscriber gets each record's events once over a promotion and a rollback: those
// of the old generation up to its cuts, then those of the new one.
func TestContinueGoesOnBehindTheCuts(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	js := server.Provision(topology())
	work(t, server.JetStream())
	var mu sync.Mutex
	keys := map[string]int{}
	s := newSubscription(t, js, subscribe.Config{
		Change:            subscribe.Continue,
		GenerationChanged: func(context.Context, subscribe.GenerationChanged) error { return nil },
	})
	ended := make(chan error, 1)
	all := make(chan struct{})
	go func() {
		ended <- s.Run(deadline(t), func(_ context.Context, e subscribe.Event) error {
			mu.Lock()
			defer mu.Unlock()
			keys[e.Key()]++
			if len(keys) == 400 {
				close(all)
			}
			return nil
		})
	}()
	feed := func(from, to int) {
		for i := range 4 {
			pipelinetest.Publish(t, js, prompts(fmt.Sprint("s", i), numbers(from, to)...)...)
		}
	}
	feed(1, 30)
	if _, err := replay.Start(t.Context(), js, replay.Request{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	if _, err := replay.Promote(deadline(t), js, "b", true); err != nil {
		t.Fatal(err)
	}
	feed(31, 60)
	caughtUp(t, js, "b")
	if _, _, err := replay.RollBack(t.Context(), js); err != nil {
		t.Fatal(err)
	}
	feed(61, 100)
	<-all
	s.Drain()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for key, n := range keys {
		if n != 1 {
			t.Errorf("%s: %d times", key, n)
		}
	}
}
