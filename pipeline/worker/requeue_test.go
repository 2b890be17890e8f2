package worker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/claims"
	"tributary/pipeline/events"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/records"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// requeue requeues dead letters of the first generation and counts the outcomes.
func requeue(tb testing.TB, js jetstream.JetStream, q events.DeadLettersQuery) map[events.Requeued]int {
	tb.Helper()
	counts := make(map[events.Requeued]int)
	err := events.Requeue(tb.Context(), js, events.DeadLetters(tb.Context(), js, "v1", q),
		func(_ events.DeadLetter, is events.Requeued) { counts[is]++ })
	if err != nil {
		tb.Fatal(err)
	}
	return counts
}

// user returns a record of Claude Code without an id: only the session can detect a copy.
func user(session, text string) core.Record {
	return core.Record{Source: envelopes.ClaudeCode, Session: session, Data: fmt.Appendf(nil,
		`{"type":"user","sessionId":%q,"timestamp":"2026-03-01T09:00:00Z","message":{"role":"user","content":%q}}`, session, text)}
}

// breaksUntil returns a normalizer with a defect: it panics on records that contain word. The
// defect is fixed for records after a sequence.
func breaksUntil(word string, sequence uint64) func(*core.Session, core.Record) (core.Result, error) {
	return func(s *core.Session, r core.Record) (core.Result, error) {
		if r.Sequence <= sequence && bytes.Contains(r.Data, []byte(word)) {
			panic("a defect at " + word)
		}
		return normalizers.Normalize(s, r)
	}
}

// texts returns the texts of the events of a session of a generation, in their order.
func texts(tb testing.TB, js jetstream.JetStream, generation, session string) []string {
	tb.Helper()
	var out []string
	for e, err := range events.Read(tb.Context(), js, generation, events.Query{Session: session}) {
		if err != nil {
			tb.Fatal(err)
		}
		if e.Sequence != uint64(len(out)+1) {
			tb.Errorf("event %d of %s has the sequence %d", len(out)+1, session, e.Sequence)
		}
		out = append(out, *e.Text)
	}
	return out
}

// A requeued copy is the record that could not be read: a claim check that came with a body
// is no less wrong than before.
func TestRequeuedBadClaimCheckIsStillBad(t *testing.T) {
	t.Parallel()
	top := topology(1)
	js := pipelinetest.NewServer(t).Provision(top)
	there := user("s", "in the bucket")
	if _, err := claims.NewStore(js).Put(t.Context(), there.Data); err != nil {
		t.Fatal(err)
	}
	m := records.ClaimMessage(there)
	m.Data = user("s", "in the message").Data
	pipelinetest.PublishMessages(t.Context(), t, js, m)
	x := pipelinetest.Expectation{Topology: top}
	s := start(t, js, worker.Config{Topology: top})
	x.RequireExact(t, js)
	if got := requeue(t, js, events.DeadLettersQuery{}); got[events.RequeuedNow] != 1 {
		t.Errorf("requeued: %v", got)
	}
	x.RequireExact(t, js)
	s.stop(t)
	open := letters(t, js, events.DeadLettersQuery{Standing: core.StandingOpen})
	if len(open) != 1 || open[0].Reason != "bad_claim" || open[0].Requeued != 1 || open[0].Size != len(m.Data) {
		t.Errorf("open are %+v", open)
	}
}

// A record that a defect made a dead letter is read once the defect is fixed and it is
// requeued: its events are appended to its session once, however often it is requeued. Another
// generation, made without the defect, has each event once, too.
func TestRequeuedRecordYieldsItsEventsOnce(t *testing.T) {
	t.Parallel()
	top := topology(2)
	js := pipelinetest.NewServer(t).Provision(top)
	pipelinetest.Publish(t, js, user("s", "one"), user("s", "boom two"), user("s", "three"), user("s", "boom four"))
	const broken = 4
	x := pipelinetest.Expectation{Topology: top, Normalize: breaksUntil("boom", broken)}
	s := start(t, js, worker.Config{Topology: top, Normalize: x.Normalize})
	x.RequireExact(t, js)
	s.stop(t)
	found := letters(t, js, events.DeadLettersQuery{})
	if len(found) != 2 || found[0].Reason != "panic" || found[0].Sequence != 2 || found[1].Sequence != 4 {
		t.Fatalf("dead letters %+v", found)
	}
	for _, l := range found {
		if strings.Contains(l.Error, "defect") || l.Standing != core.StandingOpen {
			t.Errorf("dead letter %d is %s: %s", l.Sequence, l.Standing, l.Error)
		}
	}

	if got := requeue(t, js, events.DeadLettersQuery{}); got[events.RequeuedNow] != 2 {
		t.Errorf("requeued: %v", got)
	}
	if got := requeue(t, js, events.DeadLettersQuery{}); got[events.RequeuedBefore] != 2 {
		t.Errorf("requeued again at once: %v", got)
	}
	afterTheWindow(t, js, "requeue-2", "requeue-4")
	s = start(t, js, worker.Config{Topology: top}) // without the defect
	x.RequireExact(t, js)
	if got := requeue(t, js, events.DeadLettersQuery{}); got[events.RequeuedSettled] != 2 {
		t.Errorf("requeued when they were read: %v", got)
	}
	afterTheWindow(t, js, "requeue-2", "requeue-4")
	x.RequireExact(t, js)
	s.stop(t)
	want := []string{"one", "three", "boom two", "boom four"}
	if diff := cmp.Diff(want, texts(t, js, "v1", "s")); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if open := letters(t, js, events.DeadLettersQuery{Standing: core.StandingOpen}); len(open) != 0 {
		t.Errorf("open are %+v", open)
	}
	if settled := letters(t, js, events.DeadLettersQuery{Standing: core.StandingSettled}); len(settled) != 2 {
		t.Errorf("settled are %+v", settled)
	}

	next := top
	next.Generation = "v2"
	if err := streams.Provision(t.Context(), js, next); err != nil {
		t.Fatal(err)
	}
	s = start(t, js, worker.Config{Topology: next})
	pipelinetest.Expectation{Topology: next}.RequireExact(t, js)
	s.stop(t)
	want = []string{"one", "boom two", "three", "boom four"}
	if diff := cmp.Diff(want, texts(t, js, "v2", "s")); diff != "" {
		t.Errorf("events of the generation without the defect (-want +got):\n%s", diff)
	}
}

// afterTheWindow publishes requeued records once more, as if the broker had forgotten
// their message ids.
func afterTheWindow(tb testing.TB, js jetstream.JetStream, ids ...string) {
	tb.Helper()
	(&repeater{js: js}).publish(tb, ids...)
}

// repeater publishes requeued records as [afterTheWindow] does. It reads each record of the raw stream once.
type repeater struct {
	js   jetstream.JetStream
	last uint64 // sequence of the last record read
	byID map[string]*jetstream.RawStreamMsg
}

func (r *repeater) publish(tb testing.TB, ids ...string) {
	tb.Helper()
	r.read(tb)
	for _, id := range ids {
		m := r.byID[id]
		if m == nil {
			tb.Fatalf("the raw stream has no record %s", id)
		}
		tokens := strings.Split(m.Subject, ".")
		again := &nats.Msg{Subject: "raw." + tokens[2] + "." + tokens[3], Header: maps.Clone(m.Header), Data: m.Data}
		maps.DeleteFunc(again.Header, func(name string, _ []string) bool { return strings.HasPrefix(name, "Nats-") })
		if _, err := r.js.PublishMsg(tb.Context(), again); err != nil {
			tb.Fatal(err)
		}
	}
}

// read reads the records that arrived since the last call.
func (r *repeater) read(tb testing.TB) {
	tb.Helper()
	raw, err := r.js.Stream(tb.Context(), streams.RawStream)
	if err != nil {
		tb.Fatal(err)
	}
	if r.byID == nil {
		r.byID = make(map[string]*jetstream.RawStreamMsg)
	}
	for r.last < raw.CachedInfo().State.LastSeq {
		m, err := raw.GetMsg(tb.Context(), r.last+1, jetstream.WithGetMsgSubject(">"))
		if err != nil {
			tb.Fatal(err)
		}
		r.last = m.Sequence
		if id := m.Header.Get(nats.MsgIdHdr); id != "" && r.byID[id] == nil {
			r.byID[id] = m
		}
	}
}

// A copy that fails again is a new dead letter, which names the one before it and replaces
// it: only the last of them is open.
func TestRequeuedRecordThatFailsAgainIsANewDeadLetter(t *testing.T) {
	t.Parallel()
	top := topology(1)
	js := pipelinetest.NewServer(t).Provision(top)
	pipelinetest.Publish(t, js, user("s", "one"), user("s", "boom"), user("s", "two"))
	x := pipelinetest.Expectation{Topology: top, Normalize: breaksUntil("boom", 5)}
	s := start(t, js, worker.Config{Topology: top, Normalize: x.Normalize})
	x.RequireExact(t, js)
	for i := range uint64(2) { // becomes record 4, then record 5
		if got := requeue(t, js, events.DeadLettersQuery{Standing: core.StandingOpen}); got[events.RequeuedNow] != 1 || len(got) != 1 {
			t.Errorf("requeued for the %d. time: %v", i+1, got)
		}
		x.RequireExact(t, js)
	}
	all := letters(t, js, events.DeadLettersQuery{})
	type line struct {
		sequence, before uint64
		is               core.Standing
	}
	var got []line
	for _, l := range all {
		got = append(got, line{l.Sequence, l.Requeued, l.Standing})
		if data, err := l.Load(t.Context(), js); err != nil || string(data) != string(user("s", "boom").Data) {
			t.Errorf("dead letter %d holds %q, %v", l.Sequence, data, err)
		}
	}
	want := []line{{2, 0, core.StandingSettled}, {4, 2, core.StandingSettled}, {5, 4, core.StandingOpen}}
	if !slices.Equal(got, want) {
		t.Errorf("dead letters %v, want %v", got, want)
	}
	afterTheWindow(t, js, "requeue-2", "requeue-4") // older copies, and the defect is fixed
	x.RequireExact(t, js)
	if got := requeue(t, js, events.DeadLettersQuery{}); got[events.RequeuedNow] != 1 || got[events.RequeuedSettled] != 2 {
		t.Errorf("requeued when it can be read: %v", got)
	}
	afterTheWindow(t, js, "requeue-2", "requeue-4", "requeue-5")
	x.RequireExact(t, js)
	s.stop(t)
	if diff := cmp.Diff([]string{"one", "two", "boom"}, texts(t, js, "v1", "s")); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// A requeue that is killed between any two steps can be repeated: nothing is lost or doubled.
func TestKilledRequeueIsRepeatedWithoutLoss(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("one worker after the other: the race detector sees nothing new in that")
	}
	top := topology(2)
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	const all = 450 // three batches
	records := make([]core.Record, all)
	for i := range records {
		records[i] = user(fmt.Sprintf("s%d", i%7), fmt.Sprintf("boom %d", i))
	}
	pipelinetest.Publish(t, js, records...)
	x := pipelinetest.Expectation{Topology: top, Normalize: breaksUntil("boom", all)}
	s := start(t, js, worker.Config{Topology: top, Normalize: x.Normalize})
	x.RequireExact(t, js)
	s.stop(t)

	open := func() iter.Seq2[events.DeadLetter, error] {
		return events.DeadLetters(t.Context(), js, "v1", events.DeadLettersQuery{})
	}
	killed := errors.New("killed")
	for name, kill := range map[string]func() error{
		"before a batch": func() error {
			n := 0
			return events.Requeue(t.Context(), js, func(yield func(events.DeadLetter, error) bool) {
				for l, err := range open() {
					if n++; n == 250 {
						err = killed
					}
					if !yield(l, err) || err != nil {
						return
					}
				}
			}, func(events.DeadLetter, events.Requeued) {})
		},
		"before its end": func() error {
			return cutRequeue(t, server, pipelinetest.BeforeCommit, open())
		},
		"before its acknowledgement": func() error {
			return cutRequeue(t, server, pipelinetest.BeforeAck, open())
		},
	} {
		if err := kill(); err == nil {
			t.Errorf("%s: the requeue was not killed", name)
		}
	}
	got := requeue(t, js, events.DeadLettersQuery{})
	if got[events.RequeuedNow]+got[events.RequeuedBefore] != all || got[events.RequeuedBefore] < 200 {
		t.Errorf("requeued in the end: %v", got)
	}
	// Now the worker dies, again and again, between the record and its events.
	random := rand.New(rand.NewPCG(1, 2))
	for range 8 {
		var calls atomic.Int64
		last := 1 + random.Int64N(40)
		s := startCrashing(t, js, worker.Config{Topology: top, Normalize: x.Normalize},
			func(core.Record) bool { return calls.Add(1) == last })
		if err := s.wait(t); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	s = start(t, js, worker.Config{Topology: top, Normalize: x.Normalize})
	r := x.RequireExact(t, js)
	s.stop(t)
	if r.Events != all || r.DeadLetters != all {
		t.Errorf("%d events of %d dead letters, want one of each of %d", r.Events, r.DeadLetters, all)
	}
	for i := range 7 {
		seen := make(map[string]bool)
		for _, text := range texts(t, js, "v1", fmt.Sprintf("s%d", i)) {
			if seen[text] {
				t.Errorf("%s is emitted twice", text)
			}
			seen[text] = true
		}
		if len(seen) < all/7 {
			t.Errorf("session %d has %d events", i, len(seen))
		}
	}
}

// cutRequeue requeues over a connection that is cut in the middle of a batch.
func cutRequeue(tb testing.TB, server *pipelinetest.Server, cut pipelinetest.Cut, letters iter.Seq2[events.DeadLetter, error]) error {
	tb.Helper()
	proxy := pipelinetest.NewProxy(tb, server)
	proxy.Arm(cut)
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	js := pipelinetest.Connect(tb, proxy.URL())
	ended := make(chan error, 1)
	go func() {
		ended <- events.Requeue(ctx, js, letters, func(events.DeadLetter, events.Requeued) {})
	}()
	select {
	case <-proxy.Done:
	case <-ctx.Done():
		tb.Fatal("nothing was cut")
	}
	cancel()
	return <-ended
}

// Whatever is requeued, in whatever order and how often, by message or by copy, while workers
// die: the generation is the fold of the raw stream, and no event is stored twice.
func TestRequeueOfAnythingStoresNoEventTwice(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("many records: the race detector sees nothing new in them")
	}
	top := topology(3)
	js := pipelinetest.NewServer(t).Provision(top)
	records := pipelinetest.Workload(60, 12, 480)
	for i := range records { // ids would hide events that are emitted twice
		records[i].Data = bytes.ReplaceAll(records[i].Data, []byte(`"uuid":`), []byte(`"other":`))
	}
	pipelinetest.Publish(t, js, records...)
	bad := func(r core.Record) bool {
		return bytes.Contains(r.Data, []byte("said Zo")) && r.Sequence%3 > 0 || bytes.Contains(r.Data, []byte("consumer")) && r.Sequence%5 == 0
	}
	x := pipelinetest.Expectation{Topology: top, Normalize: func(s *core.Session, r core.Record) (core.Result, error) {
		if bad(r) {
			return core.Result{}, fmt.Errorf("%w: bad", core.ErrMalformed)
		}
		return normalizers.Normalize(s, r)
	}}
	random, copies := rand.New(rand.NewPCG(60, 0)), repeater{js: js}
	for round := range 5 {
		for range 2 {
			var calls atomic.Int64
			last := 1 + random.Int64N(6) // fewer than are left
			s := startCrashing(t, js, worker.Config{Topology: top, Normalize: x.Normalize, SessionBytes: 1},
				func(core.Record) bool { return calls.Add(1) == last })
			if err := s.wait(t); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		s := start(t, js, worker.Config{Topology: top, Normalize: x.Normalize})
		x.RequireExact(t, js)
		s.stop(t)
		all := letters(t, js, events.DeadLettersQuery{})
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		counts := make(map[events.Requeued]int)
		err := events.Requeue(t.Context(), js, func(yield func(events.DeadLetter, error) bool) {
			for _, l := range all {
				if !yield(l, nil) {
					return
				}
			}
		}, func(l events.DeadLetter, is events.Requeued) {
			counts[is]++
			if is == events.RequeuedNow && random.IntN(2) == 0 {
				copies.publish(t, fmt.Sprintf("requeue-%d", l.Sequence))
			}
		})
		if err != nil || counts[events.RequeuedNow] < 10 {
			t.Errorf("round %d: %v, %v", round, counts, err)
		}
	}
	s := start(t, js, worker.Config{Topology: top, Normalize: x.Normalize})
	x.RequireExact(t, js)
	s.stop(t)
	// The oracle uses the same session states, so count by other means: a record and its
	// copies have the same bytes.
	seen := make(map[string]int)
	for e, err := range events.Read(t.Context(), js, "v1", events.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Raw != nil {
			seen[string(e.Raw)]++
		}
	}
	if len(seen) < 300 {
		t.Errorf("%d records have events", len(seen))
	}
	for raw, n := range seen {
		if n > 1 {
			t.Errorf("%d times the events of %.200s", n, raw)
		}
	}
}
