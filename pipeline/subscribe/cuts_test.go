package subscribe_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
	"tributary/pipeline/subscribe"
)

// heard is a log that passes on the lines with a text.
type heard struct {
	text  string
	lines chan string
}

// Write implements [io.Writer].
func (h *heard) Write(line []byte) (int, error) {
	if strings.Contains(string(line), h.text) {
		select {
		case h.lines <- string(line):
		default:
		}
	}
	return len(line), nil
}

// counted counts events of a subscription that continues, which ends with the test.
type counted struct {
	mu   sync.Mutex
	got  map[string]int
	more chan struct{}
}

func count(t *testing.T, js jetstream.JetStream, log slog.Handler) *counted {
	t.Helper()
	c := &counted{got: make(map[string]int), more: make(chan struct{}, 1)}
	cfg := configure(t, subscribe.Config{
		Change: subscribe.Continue, GenerationChanged: func(context.Context, subscribe.GenerationChanged) error { return nil },
	})
	cfg.Logger = slog.New(log)
	s, err := subscribe.New(js, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	ctx := context.WithoutCancel(t.Context())
	go func() {
		ended <- s.Run(ctx, func(_ context.Context, e subscribe.Event) error {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.got[e.SessionID+" "+*e.Text]++
			select {
			case c.more <- struct{}{}:
			default:
			}
			return nil
		})
	}()
	t.Cleanup(func() {
		s.Drain()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return c
}

// require waits until each of four sessions has the events of so many records, and fails the test unless each came
// once.
func (c *counted) require(t *testing.T, records int) {
	t.Helper()
	want := make(map[string]int)
	for i := range 4 {
		for _, text := range numbers(1, records) {
			want[fmt.Sprintf("s%d %s", i, text)] = 1
		}
	}
	for ctx := deadline(t); ; {
		c.mu.Lock()
		if len(c.got) >= len(want) {
			defer c.mu.Unlock()
			if diff := cmp.Diff(want, c.got); diff != "" {
				t.Fatalf("how often each event came (-want +got):\n%s", diff)
			}
			return
		}
		n := len(c.got)
		c.mu.Unlock()
		select {
		case <-c.more:
		case <-ctx.Done():
			t.Fatalf("%d of %d events: the subscription waits in vain", n, len(want))
		}
	}
}

func feed(t *testing.T, js jetstream.JetStream, from, to int) {
	t.Helper()
	for i := range 4 {
		pipelinetest.Publish(t, js, prompts(fmt.Sprint("s", i), numbers(from, to)...)...)
	}
}

// killAtCut kills a command before it writes a cut of a partition.
func killAtCut(t *testing.T, s *pipelinetest.Server, generation string, partition int, run func(context.Context, jetstream.JetStream) error) {
	t.Helper()
	cut := pipelinetest.NewRequestCut(t, s, 1, false)
	cut.Only(fmt.Sprintf("checkpoints.%s.%d", generation, partition))
	nc, err := nats.Connect(cut.URL(), nats.NoReconnect())
	if err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, kill := context.WithCancel(deadline(t))
	defer kill()
	go func() {
		select {
		case <-cut.Made():
			kill()
		case <-ctx.Done():
		}
	}()
	err = run(ctx, js)
	nc.Close()
	if !cut.Close() {
		t.Fatalf("the command does not write the cut: %v", err)
	}
}

// While a generation that is not live any more has partitions without a cut, because a command was killed, a subscription that
// continues waits, and says for which partitions and what to do. When that is done it goes on, and has each event once.
func TestSubscriptionSaysForWhichCutsItWaits(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	js := server.Provision(topology())
	work(t, server.JetStream())
	log := &heard{text: "waiting for its cuts", lines: make(chan string, 1)}
	c := count(t, js, slog.NewTextHandler(log, nil))
	feed(t, js, 1, 20)
	if _, err := replay.Start(t.Context(), js, replay.Request{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	says := func(texts ...string) {
		t.Helper()
		ctx := deadline(t)
		for last := ""; ; {
			select {
			case line := <-log.lines:
				last = line // the first lines may be from before the kill
				if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
					return
				}
			case <-ctx.Done():
				t.Fatalf("the subscription does not say %q: %s", texts, last)
			}
		}
	}
	promote := func(ctx context.Context, js jetstream.JetStream) error {
		_, err := replay.Promote(ctx, js, "b", true)
		return err
	}
	killAtCut(t, server, "v1", 1, promote)
	says("generation=v1", "live=b", "partitions_without_cut=1-3", "the promotion of b", "tributary replay promote b")
	feed(t, js, 21, 30)
	if err := promote(deadline(t), js); err != nil {
		t.Fatal(err)
	}
	c.require(t, 30)

	rollback := func(ctx context.Context, js jetstream.JetStream) error {
		_, _, err := replay.RollBack(ctx, js)
		return err
	}
	killAtCut(t, server, "b", 0, rollback)
	says("generation=b", "live=v1", "partitions_without_cut=0-3", "the rollback from b to v1", "tributary replay rollback")
	feed(t, js, 31, 40)
	if err := rollback(deadline(t), js); err != nil {
		t.Fatal(err)
	}
	c.require(t, 40)
}

// A generation that is promoted and rolled back before it has done what the one before it had: nothing is passed
// again.
func TestRollbackBehindTheCutsOfBeforeRepeatsNothing(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	js := server.Provision(topology())
	store(t, js, prompts("s0", numbers(1, 20)...)...)
	for i := 1; i < 4; i++ {
		store(t, js, prompts(fmt.Sprint("s", i), numbers(1, 20)...)...)
	}
	c := count(t, js, slog.DiscardHandler)
	c.require(t, 20)
	// A generation without its last records, as it is when they arrive while it is promoted.
	if _, err := replay.Start(t.Context(), js, replay.Request{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	current(t, js, "b", "v1")
	if _, err := replay.Promote(deadline(t), js, "b", false); err != nil { // which cuts v1
		t.Fatal(err)
	}
	cursorOf(t, js, "b")
	if _, _, err := replay.RollBack(t.Context(), js); err != nil {
		t.Fatal(err)
	}
	cursorOf(t, js, "v1")
	work(t, server.JetStream())
	feed(t, js, 21, 30)
	c.require(t, 30)
}

// current makes a generation live as a version does that stores no cut-over and is killed behind that.
func current(t *testing.T, js jetstream.JetStream, name, replaces string) {
	t.Helper()
	kv, err := js.KeyValue(t.Context(), "TRIBUTARY")
	if err != nil {
		t.Fatal(err)
	}
	e, err := kv.Get(t.Context(), "generation."+name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.PutString(t.Context(), "generation."+name, strings.TrimSuffix(string(e.Value()), "}")+fmt.Sprintf(`,"replaces":%q}`, replaces)); err != nil {
		t.Fatal(err)
	}
	if _, err := kv.PutString(t.Context(), "current", name); err != nil {
		t.Fatal(err)
	}
}

// cursorOf waits until the progress of the subscription is in a generation.
func cursorOf(t *testing.T, js jetstream.JetStream, generation string) {
	t.Helper()
	kv, err := js.KeyValue(t.Context(), streams.SubscribersBucket)
	if err != nil {
		t.Fatal(err)
	}
	w, err := kv.Watch(deadline(t), "test")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Stop() }()
	for e := range w.Updates() {
		if e != nil && strings.Contains(string(e.Value()), fmt.Sprintf(`"generation":%q`, generation)) {
			return
		}
	}
	t.Fatalf("the subscription is not in %s", generation)
}
