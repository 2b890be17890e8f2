package worker_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/claims"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
	"tributary/pipeline/subscribe"
)

// command is a command, with a connection of its own.
type command func(context.Context, jetstream.JetStream) error

// sent publishes records whose events a subscriber counts.
type sent struct {
	js   jetstream.JetStream
	n    int
	mu   sync.Mutex
	seen map[string]int // how often the subscriber got each text
	more chan struct{}
}

// feed publishes a record of each of a few sessions.
func (s *sent) feed(t *testing.T) {
	t.Helper()
	var list []core.Record
	for i := range 4 {
		s.n++
		list = append(list, core.Record{Source: envelopes.ClaudeCode, Session: fmt.Sprint("s", i), Data: fmt.Appendf(nil,
			`{"type":"user","uuid":"u%d","timestamp":"2026-03-01T09:00:00Z","message":{"role":"user","content":"text %[1]d"}}`, s.n)})
	}
	pipelinetest.Publish(t, s.js, list...)
}

// subscribe counts events, over changes of the generation, until the test ends.
func (s *sent) subscribe(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	s.seen, s.more = make(map[string]int), make(chan struct{}, 1)
	sub, err := subscribe.New(js, subscribe.Config{
		Name: "counts", Change: subscribe.Continue, Poll: 20 * time.Millisecond, Backoff: time.Millisecond,
		GenerationChanged: func(context.Context, subscribe.GenerationChanged) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	ctx := context.WithoutCancel(t.Context())
	go func() {
		ended <- sub.Run(ctx, func(_ context.Context, e subscribe.Event) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.seen[*e.Text]++
			select {
			case s.more <- struct{}{}:
			default:
			}
			return nil
		})
	}()
	t.Cleanup(func() {
		sub.Drain()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// requireOnce waits until the subscriber has an event of each record that was sent, and fails the test
// unless it got each once.
func (s *sent) requireOnce(t *testing.T) {
	t.Helper()
	want := make(map[string]int)
	for i := range s.n {
		want[fmt.Sprint("text ", i+1)] = 1
	}
	for ctx := deadline(t); ; {
		s.mu.Lock()
		got := maps.Clone(s.seen)
		s.mu.Unlock()
		if len(got) >= s.n {
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("how often the subscriber got each event (-want +got):\n%s", diff)
			}
			return
		}
		select {
		case <-s.more:
		case <-ctx.Done():
			t.Fatalf("the subscriber has %d of %d events: it waits in vain", len(got), s.n)
		}
	}
}

// arrangement is what the commands of replay have made of the broker: which generation is live, what state each
// has, which one it replaced, and its cuts.
func arrangement(t *testing.T, js jetstream.JetStream, partitions int) (lines []string) {
	t.Helper()
	all, err := streams.ReadGenerations(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range all.List {
		cuts := make([]string, partitions)
		for p := range partitions {
			c, _, err := streams.ReadCheckpoint(t.Context(), js, g.Name, p)
			if err != nil {
				t.Fatal(err)
			}
			cuts[p] = c.Cut
		}
		lines = append(lines, fmt.Sprintf("%s %s replaces %q cuts %q", g.Name, g.State, g.Replaces, cuts))
	}
	kv, err := js.KeyValue(t.Context(), streams.ControlBucket)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := kv.Keys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if key == "cutover" || key == "current" {
			e, err := kv.Get(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, key+" "+string(e.Value()))
		}
	}
	for _, name := range pipelinetest.StreamNames(t, js) {
		if strings.HasPrefix(name, "EVENTS_") {
			lines = append(lines, name)
		}
	}
	return lines
}

var commandsAll = flag.Bool("commands.all", false, "kill the commands of replay at each request, both before it arrives and before its answer does")

// TestCommandsThatAreKilledAreFinished kills each command of replay at a request, either before the request arrives or
// before its answer does, and runs it again: the second run finishes the command and goes no further. By default it
// kills at every third request, with a random first one, and alternates between the two moments; with -commands.all it
// kills at both moments of each request. Workers and a subscriber run all the time, and records arrive while a command
// is half done; the subscriber gets the event of each record once.
func TestCommandsThatAreKilledAreFinished(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("one command after the other: the race detector sees nothing new in that")
	}
	if !*commandsAll {
		killCommands(t, 1+rand.IntN(3), 3, rand.IntN(2) == 0)
		return
	}
	for _, first := range []int{1, 2} {
		for _, answered := range []bool{false, true} {
			t.Run(fmt.Sprintf("first=%d,answered=%t", first, answered), func(t *testing.T) {
				t.Parallel()
				killCommands(t, first, 2, answered)
			})
		}
	}
}

// killCommands kills each command at its request with number first, and in later rounds at every step-th request after
// it. The rounds alternate: a command is killed before its request arrives, or before its answer does. answered chooses
// the moment of the first round.
func killCommands(t *testing.T, first, step int, answered bool) {
	t.Helper()
	top := topology(2)
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	cfg := member(top, "w0")
	cfg.Heartbeat = 50 * time.Millisecond
	work(t, server.JetStream(), cfg)
	s := &sent{js: js}
	s.subscribe(t, server.JetStream())
	s.feed(t)
	promote := func(name string) command {
		return func(ctx context.Context, js jetstream.JetStream) error {
			_, err := replay.Promote(ctx, js, name, true)
			return err
		}
	}
	// A rollback that goes too far ends at v1.
	startReplay(t, js, replay.Request{Name: "a"})
	if err := promote("a")(deadline(t), js); err != nil {
		t.Fatal(err)
	}
	commands := []struct {
		name string
		run  command
		then func() // what is to have happened before the next
	}{
		{"start", func(ctx context.Context, js jetstream.JetStream) error {
			_, err := replay.Start(ctx, js, replay.Request{Name: "b"})
			return err
		}, func() { caughtUp(t, js, of(top, "b")) }},
		{"promote", promote("b"), func() { caughtUp(t, js, of(top, "b")) }},
		{"rollback", func(ctx context.Context, js jetstream.JetStream) error {
			_, _, err := replay.RollBack(ctx, js)
			return err
		}, func() { caughtUp(t, js, of(top, "a")) }},
		{"start the retired one", func(ctx context.Context, js jetstream.JetStream) error {
			_, err := replay.Start(ctx, js, replay.Request{Name: "b"})
			return err
		}, func() { caughtUp(t, js, of(top, "b")) }},
		{"drop", func(ctx context.Context, js jetstream.JetStream) error {
			return replay.Drop(ctx, js, "b")
		}, func() {}},
	}
	want := make(map[string][]string) // what one run makes, which nothing interrupts
	round := func(at int, answered bool) (more bool) {
		for _, c := range commands {
			place := fmt.Sprintf("%s, killed at request %d, answered %v", c.name, at, answered)
			if at == 0 {
				if err := c.run(deadline(t), js); err != nil {
					t.Fatalf("%s: %v", c.name, err)
				}
			} else if pipelinetest.RunKilled(t, server, at, answered, c.run) {
				more = true
				s.feed(t)
				if err := c.run(deadline(t), js); err != nil {
					t.Fatalf("%s, and run again: %v", place, err)
				}
			}
			s.feed(t)
			got := arrangement(t, js, top.Partitions)
			if want[c.name] == nil {
				want[c.name] = got
			} else if diff := cmp.Diff(want[c.name], got); diff != "" {
				t.Fatalf("%s, and run again (-want +got):\n%s", place, diff)
			}
			c.then()
			s.requireOnce(t)
		}
		return more
	}
	round(0, false)
	clear(want) // the first round began without an earlier rollback, unlike all others
	round(0, false)
	at, now := first, answered
	for ; round(at, now); at += step {
		now = !now
	}
	t.Logf("killed at requests %d to %d in steps of %d, the first one answered %v", first, at-step, step, answered)
	if at < 20 {
		t.Errorf("the commands have only %d requests", at-1)
	}
}

// claims gc that is killed at any request, and run again, removes what no record names and nothing else.
func TestKilledCollectionOfClaimsIsFinished(t *testing.T) {
	pipelinetest.SkipShort(t)
	t.Parallel()
	server := pipelinetest.NewServer(t)
	js := server.Provision(topology(1))
	claimStore := claims.NewStore(js)
	data := func(name string) []byte { return []byte(strings.Repeat(name, 700<<10/len(name))) } // two chunks
	named, err := claimStore.Put(t.Context(), data("named"))
	if err != nil {
		t.Fatal(err)
	}
	m := nats.NewMsg("raw.claude_code.s")
	m.Header.Set(envelopes.HeaderClaim, named.String())
	if _, err := js.PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	collect := func(ctx context.Context, js jetstream.JetStream) error {
		claims := claims.NewStore(js)
		orphans, err := claims.Orphans(ctx, 0)
		for _, o := range orphans {
			if err == nil {
				_, err = claims.Remove(ctx, o)
			}
		}
		return err
	}
	for _, answered := range []bool{false, true} {
		if testing.Short() && answered {
			break // the same requests
		}
		at, more := 1, true
		for ; more; at++ {
			for _, name := range []string{"first", "second"} {
				if _, err := claimStore.Put(t.Context(), data(name)); err != nil {
					t.Fatal(err)
				}
			}
			if more = pipelinetest.RunKilled(t, server, at, answered, collect); more {
				if err := collect(deadline(t), js); err != nil {
					t.Fatalf("killed at request %d, and run again: %v", at, err)
				}
			}
			info, err := js.Stream(t.Context(), "OBJ_"+streams.ClaimsBucket)
			if err != nil {
				t.Fatal(err)
			}
			if n := info.CachedInfo().State.Msgs; n != 3 { // a description and two chunks
				t.Fatalf("killed at request %d, answered %v, and run again: %d messages are left, want 3", at, answered, n)
			}
			if _, err := claimStore.Get(t.Context(), named); err != nil {
				t.Fatalf("killed at request %d: the object of a record: %v", at, err)
			}
		}
		if at < 5 {
			t.Errorf("the command has only %d requests", at)
		}
	}
}

// While a change is not finished, other commands refuse and name the one that finishes it.
func TestOtherCommandsRefuseWhileAChangeIsOpen(t *testing.T) {
	t.Parallel()
	top := topology(2)
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	pipelinetest.Publish(t, js, pipelinetest.Workload(98, 4, 60)...)
	build(t, js, top, replay.Request{Name: "b"}, nil)
	promote := func(ctx context.Context, js jetstream.JetStream) error {
		_, err := replay.Promote(ctx, js, "b", true)
		return err
	}
	open := func() streams.Cutover {
		t.Helper()
		all, err := streams.ReadGenerations(t.Context(), js)
		if err != nil {
			t.Fatal(err)
		}
		return all.Cutover
	}
	for at := 1; !open().Open(); at++ {
		if !pipelinetest.RunKilled(t, server, at, false, promote) {
			t.Fatal("the promotion is never open")
		}
	}
	refused := func(cure string, err error) {
		t.Helper()
		if !errors.Is(err, streams.ErrInterrupted) || !strings.Contains(err.Error(), cure) {
			t.Errorf("error %v, want %v with %q", err, streams.ErrInterrupted, cure)
		}
	}
	cure := "finish it with tributary replay promote b"
	_, _, err := replay.RollBack(t.Context(), js)
	refused(cure, err)
	_, err = replay.Start(t.Context(), js, replay.Request{Name: "b"})
	refused(cure, err)
	refused(cure, replay.Drop(t.Context(), js, "b"))
	_, err = replay.Promote(t.Context(), js, "v1", false)
	refused(cure, err)
	if err := promote(deadline(t), js); err != nil {
		t.Fatal(err)
	}
	if got := states(t, js); got != "b live, v1 retired" {
		t.Errorf("states: %s", got)
	}
}
