package worker_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/broker"
	"tributary/pipeline/events"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/records"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
)

// fourCells returns a topology of four cells, with eleven partitions.
func fourCells() streams.Topology {
	return streams.Topology{Generation: "v1", Partitions: 11, Cells: 4}
}

// The same records yield the same events of each session with one cell and with four, and each
// cell stores some; also while workers are killed and come back.
func TestFourCellsHoldTheEventsOfOne(t *testing.T) {
	pipelinetest.SkipShort(t)
	t.Parallel()
	records := pipelinetest.Workload(81, 40, 600)
	var want map[string][]string
	for _, top := range []streams.Topology{topology(11), fourCells()} {
		js := pipelinetest.NewServer(t).Provision(top)
		x := pipelinetest.Expectation{Topology: top}
		a := start(t, js, member(top, "a"))
		for some := range slices.Chunk(records, 200) {
			pipelinetest.Publish(t, js, some...)
			b := start(t, js, member(top, "b"))
			a.kill()
			a = b
		}
		x.RequireExact(t, js)
		a.stop(t)
		status, err := replay.ReadStatus(t.Context(), js, top)
		if err != nil || len(status.Partitions) != 11 || status.DeadLetters == 0 {
			t.Errorf("%d partitions, %d dead letters, %v", len(status.Partitions), status.DeadLetters, err)
		}
		got := liveEvents(t, js)
		if want == nil {
			want = got
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("events of four cells (-one +four):\n%s", diff)
		}
		last, err := streams.LastPositions(t.Context(), js, "v1")
		if err != nil || len(last) != 4 || slices.Contains(last, 0) {
			t.Errorf("positions %v, %v", last, err)
		}
	}
}

// A single cell has the streams, subjects and keys that it had before there were several.
func TestOneCellIsTheLayoutOfBefore(t *testing.T) {
	t.Parallel()
	top := topology(16)
	js := pipelinetest.NewServer(t).Provision(top)
	top.Cells = 1
	if err := streams.Provision(t.Context(), js, top); err != nil {
		t.Fatal(err)
	}
	raw, events := config(t, js, "RAW"), config(t, js, "EVENTS_v1")
	if diff := cmp.Diff([]string{"raw.*.*"}, raw.Subjects); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(&jetstream.SubjectTransformConfig{Source: "raw.*.*", Destination: "raw.{{partition(16,1,2)}}.{{wildcard(1)}}.{{wildcard(2)}}"}, raw.SubjectTransform); diff != "" {
		t.Error(diff)
	}
	for _, c := range []jetstream.StreamConfig{raw, events} {
		for key := range c.Metadata {
			if !strings.HasPrefix(key, "_nats.") { // of the server
				t.Errorf("stream %s has metadata %s", c.Name, key)
			}
		}
	}
	if diff := cmp.Diff(envelopes.GenerationSubjects("v1"), events.Subjects); diff != "" {
		t.Error(diff)
	}
	kv, err := js.KeyValue(t.Context(), streams.ControlBucket)
	if err != nil {
		t.Fatal(err)
	}
	key, err := kv.Get(t.Context(), "partitions")
	if err != nil || string(key.Value()) != "16" {
		t.Errorf("key partitions: %v, %v", key, err)
	}
	names := pipelinetest.StreamNames(t, js)
	want := []string{
		"EVENTS_v1", "KV_TRIBUTARY", "KV_TRIBUTARY_EDGES", "KV_TRIBUTARY_SUBSCRIBERS", "KV_TRIBUTARY_WORKERS", "OBJ_CLAIMS", "RAW", "SESSIONS",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
}

func config(tb testing.TB, js jetstream.JetStream, name string) jetstream.StreamConfig {
	tb.Helper()
	s, err := js.Stream(tb.Context(), name)
	if err != nil {
		tb.Fatal(err)
	}
	return s.CachedInfo().Config
}

// The number of cells is fixed. A worker of another number is refused with the one to use, and
// changes nothing.
func TestNumberOfCellsIsFixed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ have, want int }{{1, 4}, {4, 1}, {4, 2}} {
		top := streams.Topology{Generation: "v1", Partitions: 8, Cells: test.have}
		js := pipelinetest.NewServer(t).Provision(top)
		before := pipelinetest.StreamNames(t, js)
		top.Cells = test.want
		err := streams.Provision(t.Context(), js, top)
		cure := fmt.Sprintf("has cells %d, want %d: use %d cells and 8 partitions", test.have, test.want, test.have)
		if err == nil || !strings.Contains(err.Error(), cure) {
			t.Errorf("provision %d over %d cells: %v, want %s", test.want, test.have, err, cure)
		}
		if _, err := replay.ReadStatus(t.Context(), js, top); err == nil || !strings.Contains(err.Error(), cure) {
			t.Errorf("status of %d over %d cells: %v, want %s", test.want, test.have, err, cure)
		}
		if diff := cmp.Diff(before, pipelinetest.StreamNames(t, js)); diff != "" {
			t.Error(diff)
		}
	}
}

// The partition that a producer computes is the one that nats-server computes.
func TestPartitionIsThatOfTheServer(t *testing.T) {
	t.Parallel()
	const partitions = 16
	js := pipelinetest.NewServer(t).Provision(topology(partitions))
	var records []core.Record
	for i := range 300 {
		records = append(records, core.Record{Source: envelopes.Sources[i%len(envelopes.Sources)], Session: fmt.Sprintf("session %d/%s", i, strings.Repeat("x", i))})
	}
	pipelinetest.Publish(t, js, records...)
	for i, r := range records {
		m, err := broker.NextStored(t.Context(), js, streams.RawStream, ">", uint64(i)+1)
		if err != nil {
			t.Fatal(err)
		}
		if want := envelopes.PartitionSubject(envelopes.Partition(r.Source, r.Session, partitions), r.Source, r.Session); m.Subject != want {
			t.Fatalf("stored at %s, computed %s", m.Subject, want)
		}
	}
}

// A record that a producer publishes to another partition than that of its session is a dead letter: the
// session would be in two cells.
func TestRecordInTheWrongCellIsADeadLetter(t *testing.T) {
	t.Parallel()
	top := fourCells()
	js := pipelinetest.NewServer(t).Provision(top)
	r := pipelinetest.Workload(82, 1, 3)[0]
	right := envelopes.Partition(r.Source, r.Session, top.Partitions)
	for p := range top.Partitions {
		m := records.Message(r)
		m.Subject = envelopes.PartitionSubject(p, r.Source, r.Session)
		pipelinetest.PublishMessages(t.Context(), t, js, m)
	}
	s := start(t, js, member(top, "w"))
	caughtUp(t, js, top)
	s.stop(t)
	found := make(map[int]string)
	for l, err := range events.DeadLetters(t.Context(), js, "v1", events.DeadLettersQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		if l.Stream != streams.RawStreamOf(l.Partition%4) || l.Cell != l.Partition%4 {
			t.Errorf("partition %d: cell %d, stream %s", l.Partition, l.Cell, l.Stream)
		}
		found[l.Partition] = l.Reason
	}
	if len(found) != top.Partitions-1 || found[right] != "" || slices.ContainsFunc(slices.Collect(maps.Values(found)), func(r string) bool { return r != "bad_subject" }) {
		t.Errorf("dead letters %v, want bad_subject in all partitions but %d", found, right)
	}
}

// Events of several cells come in the order of their sessions, from any positions on, the last ones by
// their time, and go on as they arrive.
func TestEventsOfFourCells(t *testing.T) {
	t.Parallel()
	top := fourCells()
	js := pipelinetest.NewServer(t).Provision(top)
	s := start(t, js, member(top, "w"))
	pipelinetest.Publish(t, js, pipelinetest.Workload(83, 30, 400)...)
	caughtUp(t, js, top)
	read := func(ctx context.Context, q events.Query) (list []events.Event) {
		for e, err := range events.Read(ctx, js, "v1", q) {
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, e)
		}
		return list
	}
	key := func(e events.Event) string { return fmt.Sprint(e.Cell, "/", e.Position) }
	all := read(t.Context(), events.Query{})
	if !slices.IsSortedFunc(all, func(a, b events.Event) int { return a.Stored.Compare(b.Stored) }) {
		t.Error("events that are there do not come in the order of their storage")
	}
	last := read(t.Context(), events.Query{Last: 17})
	if len(last) != 17 || !slices.EqualFunc(last, all[len(all)-17:], func(a, b events.Event) bool { return a.Stored.Equal(b.Stored) }) {
		t.Errorf("the last 17 events are %d others", len(last))
	}
	var after streams.Positions
	seen := make(map[string]bool)
	for _, e := range all[:len(all)/3] {
		after, seen[key(e)] = after.With(e.Cell, e.Position), true
	}
	for _, e := range read(t.Context(), events.Query{After: after}) {
		if seen[key(e)] {
			t.Fatalf("event %s comes again", key(e))
		}
		seen[key(e)] = true
	}
	if n, err := events.Count(t.Context(), js, "v1", after); err != nil || int(n) != len(all)-len(all)/3 || len(seen) != len(all) {
		t.Errorf("%d events behind %v of %d, %d seen, %v", n, after, len(all), len(seen), err)
	}
	one := all[0]
	for _, q := range []events.Query{{Session: one.SessionID}, {SessionPrefix: one.SessionID}, {Sessions: []events.SessionID{{Source: one.Source, Session: one.SessionID}}}} {
		list := read(t.Context(), q)
		if len(list) == 0 || slices.ContainsFunc(list, func(e events.Event) bool { return e.SessionID != one.SessionID }) {
			t.Errorf("%d events of one session", len(list))
		}
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	pipelinetest.Publish(t, js, pipelinetest.Workload(84, 30, 400)...)
	more := 0
	for _, err := range events.Read(ctx, js, "v1", events.Query{After: after, Follow: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if more++; more > len(all) { // those that were there, and some of the new ones
			break
		}
	}
	s.stop(t)
	if found, err := events.FindSessions(t.Context(), js, "v1", events.Query{}, "", 0); err != nil || len(found) != 60 {
		t.Errorf("%d sessions, %v", len(found), err)
	}
}

// A generation of four cells is replayed, compared, promoted, dropped and made again.
func TestGenerationsOfFourCells(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("one worker after the other: the race detector sees nothing new in that")
	}
	top := fourCells()
	js := pipelinetest.NewServer(t).Provision(top)
	s := start(t, js, member(top, "w"))
	pipelinetest.Publish(t, js, pipelinetest.Workload(85, 30, 300)...)
	caughtUp(t, js, top)
	s.stop(t)
	if _, err := replay.Start(t.Context(), js, replay.Request{Name: "part", Part: streams.Part{Sequence: 7}}); err == nil {
		t.Error("a part by the sequence of one raw stream is accepted")
	}
	for range 2 {
		build(t, js, top, replay.Request{Name: "b"}, nil)
		pipelinetest.Expectation{Topology: of(top, "b")}.RequireExact(t, js)
		d, err := replay.Compare(t.Context(), js, "v1", "b", replay.DiffQuery{Limit: 3})
		if err != nil || !d.Equal() || d.Same == 0 || !d.A.CaughtUp || !d.B.CaughtUp {
			t.Fatalf("%+v, %v", d, err)
		}
		if _, err := replay.Promote(t.Context(), js, "b", true); err != nil {
			t.Fatal(err)
		}
		cuts, missing, err := streams.Cuts(t.Context(), js, "v1")
		if err != nil || missing != nil || len(cuts) != top.Partitions {
			t.Errorf("cuts %v, missing %v, %v", cuts, missing, err)
		}
		if _, _, err := replay.RollBack(t.Context(), js); err != nil {
			t.Fatal(err)
		}
		if err := replay.Drop(t.Context(), js, "b"); err != nil {
			t.Fatal(err)
		}
		for _, name := range pipelinetest.StreamNames(t, js) {
			if strings.HasPrefix(name, "EVENTS_b") {
				t.Errorf("stream %s is left", name)
			}
		}
	}
}

// Dead letters of all cells are given back, each to its own raw stream, and read once.
func TestDeadLettersOfFourCellsAreRequeued(t *testing.T) {
	t.Parallel()
	top := fourCells()
	js := pipelinetest.NewServer(t).Provision(top)
	pipelinetest.Publish(t, js, pipelinetest.Workload(86, 30, 300)...)
	refusing := member(top, "w")
	refusing.Normalize = func(s *core.Session, r core.Record) (core.Result, error) {
		if len(r.Data)%7 == 0 && r.Origin.Requeued == 0 && !r.Origin.End {
			return core.Result{}, core.ErrUnknownSource
		}
		return normalizers.Normalize(s, r)
	}
	s := start(t, js, refusing)
	caughtUp(t, js, top)
	letters := events.DeadLetters(t.Context(), js, "v1", events.DeadLettersQuery{Reason: "unknown_source"})
	cells, requeued := make(map[int]bool), 0
	err := events.Requeue(t.Context(), js, letters, func(l events.DeadLetter, is events.Requeued) {
		if is == events.RequeuedNow {
			requeued++
		}
		cells[l.Cell] = true
	})
	if err != nil || requeued == 0 || len(cells) != 4 {
		t.Fatalf("%d requeued in %d cells, %v", requeued, len(cells), err)
	}
	pipelinetest.Expectation{Topology: top, Normalize: refusing.Normalize}.RequireExact(t, js)
	s.stop(t)
	removed := 0
	letters = events.DeadLetters(t.Context(), js, "v1", events.DeadLettersQuery{Reason: "unknown_source", Standing: core.StandingSettled})
	if err := events.PurgeDeadLetters(t.Context(), js, letters, func(events.DeadLetter) { removed++ }); err != nil || removed != requeued {
		t.Errorf("%d removed of %d, %v", removed, requeued, err)
	}
}

// A producer that publishes as to a single cell, without a mapping of its account, gets an error.
func TestUnmappedRecordIsRefused(t *testing.T) {
	t.Parallel()
	js := pipelinetest.NewServer(t).Provision(fourCells())
	_, err := js.PublishMsg(t.Context(), records.Message(pipelinetest.Workload(87, 1, 1)[0]))
	if !errors.Is(err, nats.ErrNoResponders) && !errors.Is(err, jetstream.ErrNoStreamResponse) {
		t.Errorf("%v, want no responders", err)
	}
}

// A raw stream that has lost its tail stops the partitions of its own cell alone.
func TestCellThatRolledBackStopsAlone(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("one worker after the other: the race detector sees nothing new in that")
	}
	top := fourCells()
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	var saved *pipelinetest.StoreCopy
	for seed := range uint64(2) {
		s := start(t, js, member(top, "w"))
		pipelinetest.Publish(t, js, pipelinetest.Workload(88+seed, 60, 200)...)
		caughtUp(t, js, top)
		s.stop(t)
		if seed == 0 {
			saved = server.CopyStore()
			js = server.JetStream()
		}
	}
	saved.PutBack(streams.RawStreamOf(2))
	js = server.JetStream()
	status, err := replay.ReadStatus(t.Context(), js, top)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range status.Partitions {
		if lost := strings.HasPrefix(p.Fault, streams.ErrRawLost.Error()); lost != (p.Partition%4 == 2) {
			t.Errorf("partition %d: %q", p.Partition, p.Fault)
		}
	}
	last, err := streams.LastPositions(t.Context(), js, "v1")
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, js, member(top, "w"))
	pipelinetest.Publish(t, js, pipelinetest.Workload(90, 60, 200)...)
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for ctx := deadline(t); ; {
		now, err := streams.LastPositions(ctx, js, "v1")
		if err != nil {
			t.Fatal(err)
		}
		if now[0] > last[0]+20 && now[1] > last[1]+20 && now[3] > last[3]+20 {
			if now[2] != last[2] {
				t.Errorf("the cell that has stopped stores %d messages", now[2]-last[2])
			}
			break
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			t.Fatalf("positions %v, were %v", now, last)
		}
	}
	s.kill()
}
