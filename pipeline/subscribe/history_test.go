package subscribe_test

import (
	"context"
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/normalizers"
	"tributary/pipeline"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/subscribe"
)

var historySeed = flag.Uint64("history.seed", 0, "seed of the tests of streams that go back; 0 draws one")

// sent returns the keys of the events that records yield.
func sent(tb testing.TB, records []normalizers.Record) map[string]bool {
	tb.Helper()
	folds := make(map[string]*normalizers.Session)
	keys := make(map[string]bool)
	for i, r := range records {
		r.Sequence = uint64(i + 1)
		s := folds[r.Session]
		if s == nil {
			s = normalizers.NewSession(r.Source, r.Session)
			folds[r.Session] = s
		}
		result, err := normalizers.Normalize(s, r)
		if _, permanent := pipeline.Reason(err); err != nil && !permanent {
			tb.Fatal(err)
		}
		for _, e := range result.Events {
			keys[(&subscribe.Event{Event: pipeline.Event{AgentEventV1: e.Event}}).Key()] = true
		}
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
}

func (r *subscriber) start() {
	r.tb.Helper()
	r.s, r.ended = newSubscription(r.tb, r.js, subscribe.Config{WentBack: r.l.note}), make(chan error, 1)
	go func() {
		err := r.s.Run(context.WithoutCancel(r.tb.Context()), r.l.handle)
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
		saved.PutBack(pipeline.EventsStream("v1"))
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
		t.Errorf("told of %d times that the stream went back, %d events were repeated: the test proves nothing", len(l.wentBack), l.repeated)
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
	kv, err := js.KeyValue(t.Context(), pipeline.SubscribersBucket)
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
