package worker_test

import (
	"context"
	"errors"
	"fmt"
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
	"tributary/pipeline/broker"
	"tributary/pipeline/embedded"
	"tributary/pipeline/events"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// events returns the data of all events of v1 by session.
func liveEvents(tb testing.TB, js jetstream.JetStream) map[string][]string {
	tb.Helper()
	return eventsOf(tb, js, "v1")
}

// eventsOf is [events] of any generation.
func eventsOf(tb testing.TB, js jetstream.JetStream, generation string) map[string][]string {
	tb.Helper()
	out := make(map[string][]string)
	for e, err := range events.Read(tb.Context(), js, generation, events.Query{}) {
		if err != nil {
			tb.Fatal(err)
		}
		data, err := e.AppendJSON(nil)
		if err != nil {
			tb.Fatal(err)
		}
		out[e.SessionID] = append(out[e.SessionID], string(data))
	}
	return out
}

// tool_metadata has the shape that the settings of the generation name.
func TestToolMetadataFollowsTheProfile(t *testing.T) {
	t.Parallel()
	top := topology(1)
	js := pipelinetest.NewServer(t).Provision(top)
	pipelinetest.Publish(t, js, toolCalls()...)
	var got []string
	for _, profile := range []core.Profile{"", core.ProfileCurrent} {
		top := topology(1)
		top.Settings.ToolMetadata = profile
		if profile != "" {
			top.Generation = "v2"
		}
		if err := streams.Provision(t.Context(), js, top); err != nil {
			t.Fatal(err)
		}
		s := start(t, js, worker.Config{Topology: top})
		if err := replay.CatchUp(t.Context(), js, top); err != nil {
			t.Fatal(err)
		}
		s.stop(t)
		for _, e := range eventsOf(t, js, top.Generation)["s"] {
			if _, metadata, ok := strings.Cut(e, `"tool_metadata":`); ok {
				got = append(got, strings.TrimSuffix(metadata, "}"))
			}
		}
	}
	want := []string{`{"filePath":"/home/dev/a.go","content":"package a"}`, `{"filepath":"/home/dev/a.go","exists":true,"diagnostics":{}}`}
	if !slices.Equal(got, want) {
		t.Errorf("tool_metadata %q, want %q", got, want)
	}
	top.Settings.ToolMetadata = "cursor"
	if _, err := worker.New(js, worker.Config{Topology: top}); err == nil {
		t.Error("a stage with an unknown profile")
	}
}

// toolCalls are the records of a session with a tool call and its result.
func toolCalls() []core.Record {
	return []core.Record{
		{Source: envelopes.ClaudeCode, Session: "s", Data: []byte(`{"type":"assistant","uuid":"a1","sessionId":"s","message":{"role":"assistant","content":[` +
			`{"type":"tool_use","id":"t1","name":"Write","input":{}}]}}`)},
		{Source: envelopes.ClaudeCode, Session: "s", Data: []byte(`{"type":"user","uuid":"u1","sessionId":"s","message":{"role":"user","content":[` +
			`{"type":"tool_result","tool_use_id":"t1","content":"ok"}]},"toolUseResult":{"type":"create","filePath":"/home/dev/a.go","content":"package a"}}`)},
	}
}

// The events of a session do not depend on the number of partitions, on how often the worker
// dies, on its memory, or on the other sessions in the stream.
func TestEventsDependOnTheRecordsAlone(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("many records: the race detector sees nothing new in them")
	}
	workload := func() []core.Record { return pipelinetest.Workload(40, 25, 400) }
	var want map[string][]string
	for i, c := range []struct {
		partitions, crashes, memory int
		others                      bool
	}{
		{partitions: 1},
		{partitions: 5, crashes: 6},
		{partitions: 16, crashes: 3, memory: 1},
		{partitions: 3, crashes: 3, others: true},
	} {
		top := topology(c.partitions)
		js := pipelinetest.NewServer(t).Provision(top)
		records := workload()
		if c.others { // in another order, but the same within each session
			records = interleave(records, pipelinetest.Workload(41, 10, 150))
		}
		pipelinetest.Publish(t, js, records...)
		random := rand.New(rand.NewPCG(40, uint64(i)))
		for range c.crashes {
			var calls atomic.Int64
			last := 1 + random.Int64N(60)
			s := startCrashing(t, js, worker.Config{Topology: top, SessionBytes: c.memory},
				func(core.Record) bool { return calls.Add(1) == last })
			if err := s.wait(t); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		s := start(t, js, worker.Config{Topology: top, SessionBytes: c.memory})
		pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
		s.stop(t)
		got := liveEvents(t, js)
		maps.DeleteFunc(got, func(id string, _ []string) bool { return want != nil && want[id] == nil && c.others })
		if want == nil {
			want = got
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%+v: events (-want +got):\n%s", c, diff)
		}
	}
}

// interleave merges two lists, each in its order.
func interleave(a, b []core.Record) []core.Record {
	random := rand.New(rand.NewPCG(1, 1))
	out := make([]core.Record, 0, len(a)+len(b))
	for len(a)+len(b) > 0 {
		if random.IntN(len(a)+len(b)) < len(a) {
			out, a = append(out, a[0]), a[1:]
		} else {
			out, b = append(out, b[0]), b[1:]
		}
	}
	return out
}

// Events may expire; dead letters, states and checkpoints do not.
func TestOnlyEventsExpire(t *testing.T) {
	t.Parallel()
	top := topology(2)
	top.EventsMaxAge = time.Second
	js := pipelinetest.NewServer(t).Provision(top)
	pipelinetest.Publish(t, js, pipelinetest.Workload(42, 5, 200)...)
	s := start(t, js, worker.Config{Topology: top})
	if err := replay.CatchUp(deadline(t), js, top); err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), streams.EventsStream("v1"))
	if err != nil {
		t.Fatal(err)
	}
	count := func(filter string) int {
		info, err := stream.Info(t.Context(), jetstream.WithSubjectFilter(filter))
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, c := range info.State.Subjects {
			n += int(c)
		}
		return n
	}
	letters, states := count("deadletters.>"), count("states.>")
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for ctx := deadline(t); count("events.>") > 0; {
		select {
		case <-poll.C:
		case <-ctx.Done():
			t.Fatal("events do not expire")
		}
	}
	if n := count("deadletters.>"); n != letters || n == 0 {
		t.Errorf("%d dead letters of %d are left", n, letters)
	}
	if n := count("states.>"); n != states || n < 5 { // those that have a change are two messages
		t.Errorf("%d messages of states of %d are left", n, states)
	}
	s.stop(t)
	again := start(t, js, worker.Config{Topology: top})
	pipelinetest.Publish(t, js, pipelinetest.Workload(43, 5, 50)...)
	if err := replay.CatchUp(deadline(t), js, top); err != nil {
		t.Fatal(err)
	}
	again.stop(t)
}

// A session whose stored state is damaged costs its own records alone: they are dead letters.
func TestDamagedSessionStateCostsOnlyItsSession(t *testing.T) {
	t.Parallel()
	top := topology(2)
	js := pipelinetest.NewServer(t).Provision(top)
	records := pipelinetest.Workload(44, 20, 400)
	run := func(js jetstream.JetStream, records []core.Record) {
		t.Helper()
		pipelinetest.Publish(t, js, records...)
		s := start(t, js, worker.Config{Topology: top})
		if err := replay.CatchUp(deadline(t), js, top); err != nil {
			t.Fatal(err)
		}
		if err := s.Ready(); err != nil {
			t.Error(err)
		}
		s.stop(t)
	}
	run(js, records[:200])
	before := liveEvents(t, js)
	states := stored(t, js, "states.v1.>") // a change may be the first: of a whole that was stored again
	victim := states[slices.IndexFunc(states, func(m *jetstream.RawStreamMsg) bool { return envelopes.StateOf(m.Subject) == m.Subject })]
	state, err := normalizers.DecodeSession(victim.Data)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: victim.Subject, Data: []byte("damaged"), Header: nats.Header{"Nats-Rollup": {"sub"}}}); err != nil {
		t.Fatal(err)
	}
	run(js, records[200:])

	whole := pipelinetest.NewServer(t).Provision(top)
	run(whole, records)
	want := liveEvents(t, whole)
	want[state.ID()] = before[state.ID()]
	if diff := cmp.Diff(want, liveEvents(t, js)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	lost := 0
	for _, r := range records[200:] {
		if r.Session == state.ID() {
			lost++
		}
	}
	found := letters(t, js, events.DeadLettersQuery{Reason: "state"})
	for _, l := range found {
		if l.Session != state.ID() || !strings.Contains(l.Error, "replay into a new generation") || l.Requeueable() != events.RequeuedForgotten {
			t.Errorf("dead letter of session %s: %s, %s", l.Session, l.Error, l.Requeueable())
		}
	}
	if len(found) != lost || lost == 0 {
		t.Errorf("%d dead letters, %d records of the damaged session", len(found), lost)
	}
	status, err := replay.ReadStatus(t.Context(), js, top)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range status.Partitions {
		if p.Fault != "" || p.Lag != 0 {
			t.Errorf("partition %d: %s, %d records wait", p.Partition, p.Fault, p.Lag)
		}
	}
	if m := stored(t, js, victim.Subject); len(m) != 1 || string(m[0].Data) != "damaged" {
		t.Error("the damaged state was replaced")
	}
}

func TestRunEndsWhenTheConnectionIsClosed(t *testing.T) {
	t.Parallel()
	top := topology(2)
	server := pipelinetest.NewServer(t)
	server.Provision(top)
	js := server.JetStream()
	s := start(t, js, worker.Config{Topology: top})
	ready(t, s)
	js.Conn().Close()
	if err := s.wait(t); !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("stage: %v, want %v", err, nats.ErrConnectionClosed)
	}
}

func TestServerWithASmallPayloadIsRefused(t *testing.T) {
	t.Parallel()
	top := topology(1)
	js := pipelinetest.NewServer(t, func(c *embedded.Config) { c.MaxPayload = 256 << 10 }).Provision(top)
	err := start(t, js, worker.Config{Topology: top}).wait(t)
	if err == nil || !strings.Contains(err.Error(), "max_payload") {
		t.Errorf("stage: %v, want an error about max_payload", err)
	}
}

// Events ends with those that are there, or follows.
func TestEventsEndOrFollow(t *testing.T) {
	t.Parallel()
	top := topology(2)
	js := pipelinetest.NewServer(t).Provision(top)
	for _, err := range events.Read(t.Context(), js, "v1", events.Query{}) {
		t.Errorf("an event of an empty stream: %v", err)
	}
	records := pipelinetest.Workload(45, 4, 200)
	s := start(t, js, worker.Config{Topology: top})
	pipelinetest.Publish(t, js, records[:100]...)
	x := pipelinetest.Expectation{Topology: top}
	x.RequireExact(t, js)

	followed := make(chan int, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		n := 0
		for e, err := range events.Read(ctx, js, "v1", events.Query{Follow: true}) {
			if err != nil {
				t.Errorf("event %d: %v", e.Position, err)
				return
			}
			n++
			followed <- n
		}
	}()
	pipelinetest.Publish(t, js, records[100:]...)
	r := x.RequireExact(t, js)
	for n := 0; n < r.Events; {
		select {
		case n = <-followed:
		case <-deadline(t).Done():
			t.Fatalf("%d of %d events came", n, r.Events)
		}
	}
	cancel()
	<-ended
	s.stop(t)

	byType := make(map[envelopes.EventType]int)
	all := 0
	for e, err := range events.Read(t.Context(), js, "v1", events.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Provenance.Generation != "v1" || e.Position == 0 || e.Stored.IsZero() {
			t.Fatalf("event without its place: %+v", e.Provenance)
		}
		byType[e.EventType]++
		all++
	}
	n := 0
	for e, err := range events.Read(t.Context(), js, "v1", events.Query{Types: []envelopes.EventType{envelopes.ToolCall}}) {
		if err != nil || e.EventType != envelopes.ToolCall {
			t.Fatalf("%s, %v", e.EventType, err)
		}
		n++
	}
	if all != r.Events || n == 0 || n != byType[envelopes.ToolCall] {
		t.Errorf("%d events, %d tool calls by filter, %v", all, n, byType)
	}
	for _, err := range events.Read(t.Context(), js, "v1", events.Query{}) {
		if err != nil {
			t.Error(err)
		}
		break // ends the iteration
	}
}

// Without Follow, Events ends with those that were there, however many arrive meanwhile.
func TestEventsEndsWithThoseThatWereThere(t *testing.T) {
	t.Parallel()
	top := topology(1)
	js := pipelinetest.NewServer(t).Provision(top)
	const there = 1000 // more than is read ahead
	var records []core.Record
	for range there {
		records = append(records, user("s", "water"))
	}
	pipelinetest.Publish(t, js, records...)
	s := start(t, js, worker.Config{Topology: top})
	if err := replay.CatchUp(deadline(t), js, top); err != nil {
		t.Fatal(err)
	}
	s.stop(t)
	n := 0
	for e, err := range events.Read(deadline(t), js, "v1", events.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n > there {
			t.Fatalf("event %d came later", e.Position)
		}
		if _, err := js.Publish(t.Context(), envelopes.EventSubject("v1", &e.AgentEventV1), nil); err != nil {
			t.Fatal(err)
		}
	}
	if n != there {
		t.Errorf("%d events, want %d", n, there)
	}
}

// The newest message of many subjects is read whole, in as many pages as it takes.
func TestLastMessagesAreReadInPages(t *testing.T) {
	t.Parallel()
	js := pipelinetest.NewServer(t).Provision(topology(1))
	subjects := make([]string, 300)
	for i := range subjects {
		subjects[i] = envelopes.StateSubject("v1", 0, envelopes.Codex, fmt.Sprintf("s%d", i))
		for n := range 2 {
			if i%3 == 0 {
				continue // without a message
			}
			if _, err := js.Publish(t.Context(), subjects[i], fmt.Appendf(nil, "%d of %s %s", n, subjects[i], strings.Repeat("x", 1000))); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, page := range []int{1, 5000, 16 << 20} {
		found, err := broker.LastMessagesPaged(t.Context(), js, streams.EventsStream("v1"), subjects, page)
		if err != nil {
			t.Fatal(err)
		}
		if len(found) != 200 {
			t.Errorf("pages of %d bytes: %d messages, want 200", page, len(found))
		}
		for s, m := range found {
			if !strings.HasPrefix(string(m.Data), "1 of "+s+" ") {
				t.Errorf("message of %s is %.40q", s, m.Data)
			}
		}
	}
	if found, err := broker.LastMessagesPaged(t.Context(), js, streams.EventsStream("v1"), subjects[:1], 1000); err != nil || len(found) != 0 {
		t.Errorf("found %v, %v, want nothing", found, err)
	}
}

func TestEmbeddedServerStartsOrSaysWhyNot(t *testing.T) {
	t.Parallel()
	first := pipelinetest.NewServer(t)
	address := strings.TrimPrefix(first.URL(), "nats://")
	if _, err := embedded.Start(embedded.Config{StoreDir: t.TempDir(), Listen: address}); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("a second server on %s: %v", address, err)
	}
	for _, listen := range []string{"nonsense", "127.0.0.1:http"} {
		if _, err := embedded.Start(embedded.Config{StoreDir: t.TempDir(), Listen: listen}); err == nil {
			t.Errorf("a server listens on %q", listen)
		}
	}
	srv, err := embedded.Start(embedded.Config{StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.WaitForShutdown()
	defer srv.Shutdown()
	if a := srv.Addr(); a != nil {
		t.Errorf("a server without an address listens on %v", a)
	}
	nc, err := nats.Connect("", nats.InProcessServer(srv))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if nc.MaxPayload() != embedded.MaxPayload {
		t.Errorf("max_payload is %d", nc.MaxPayload())
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if err := streams.Provision(t.Context(), js, streams.DefaultTopology()); err != nil {
		t.Error(err)
	}
}
