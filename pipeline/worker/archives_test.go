package worker_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/events"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// archiving returns the configuration of a stage that moves every state at once.
func archiving(top streams.Topology) worker.Config {
	return worker.Archiving(worker.Config{Topology: top, ArchiveAfter: 1}, 5*time.Millisecond, nil, 0)
}

// countSubjects returns how many subjects of the events stream match a filter; a state and its change are one.
func countSubjects(tb testing.TB, js jetstream.JetStream, filter string) int {
	tb.Helper()
	stream, err := js.Stream(tb.Context(), streams.EventsStream("v1"))
	if err != nil {
		tb.Fatal(err)
	}
	info, err := stream.Info(tb.Context(), jetstream.WithSubjectFilter(filter))
	if err != nil {
		tb.Fatal(err)
	}
	subjects := make(map[string]bool)
	for subject := range info.State.Subjects {
		subjects[envelopes.StateOf(subject)] = true
	}
	return len(subjects)
}

// awaitStates waits until so many states are under their own subjects.
func awaitStates(tb testing.TB, js jetstream.JetStream, want int) {
	tb.Helper()
	ctx := deadline(tb)
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for {
		have := countSubjects(tb, js, "states.>")
		if have == want {
			return
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			tb.Fatalf("%d states are under their own subjects, want %d", have, want)
		}
	}
}

// runArchiving runs a stage until the generation has what is expected, and so many states are left.
func runArchiving(tb testing.TB, js jetstream.JetStream, cfg worker.Config, left int, records ...core.Record) {
	tb.Helper()
	pipelinetest.Publish(tb, js, records...)
	s := start(tb, js, cfg)
	x := pipelinetest.Expectation{Topology: cfg.Topology}
	x.RequireExact(tb, js)
	awaitStates(tb, js, left)
	x.RequireExact(tb, js)
	s.stop(tb)
}

// Sessions that are in archives go on as if they had stayed: records that come late, the same
// records again, records behind a gap and those that fill it give the same events, in the same
// order. A session with a gap stays under its own subject until the gap is filled.
func TestArchivedSessionsGoOn(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("one worker after the other: the race detector sees nothing new in that")
	}
	top := topology(2)
	cfg := archiving(top)
	records := pipelinetest.Workload(71, 20, 500)
	first, second := records[:250], records[250:]
	of := func(list []core.Record, session string) (out []int) {
		for i, r := range list {
			if r.Session == session && len(r.Data) > 0 {
				out = append(out, i)
			}
		}
		return out
	}
	// A gap of a session before it is archived, and one of another behind what is archived.
	gapBefore, gapBehind := of(first, first[0].Session)[3], of(second, second[1].Session)[0]
	missing := []core.Record{first[gapBefore], second[gapBehind]}
	first, second = slices.Delete(slices.Clone(first), gapBefore, gapBefore+1), slices.Delete(slices.Clone(second), gapBehind, gapBehind+1)

	js := pipelinetest.NewServer(t).Provision(top)
	runArchiving(t, js, cfg, 1, first...)
	runArchiving(t, js, cfg, 2, slices.Concat(first[:100], second)...)
	runArchiving(t, js, cfg, 0, slices.Concat(missing, second[:100])...)

	whole := pipelinetest.NewServer(t).Provision(top)
	pipelinetest.Publish(t, whole, slices.Concat(first, first[:100], second, missing, second[:100])...)
	s := start(t, whole, worker.Config{Topology: top})
	pipelinetest.Expectation{Topology: top}.RequireExact(t, whole)
	s.stop(t)
	if diff := cmp.Diff(liveEvents(t, whole), liveEvents(t, js)); diff != "" {
		t.Errorf("events (-without archives +with):\n%s", diff)
	}
	if n := countSubjects(t, whole, "archives.>"); n != 0 {
		t.Errorf("%d archives of a stage that moves nothing", n)
	}
}

// withoutRemoval makes connections on which nothing is removed from a stream: it renames the request,
// as if the worker had died in front of it.
type withoutRemoval struct{}

// Dial is that of [net.Dialer].
func (withoutRemoval) Dial(network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(context.Background(), network, address)
	return keepingConn{c}, err
}

type keepingConn struct{ net.Conn }

// Write never gets a part of the name: the client writes subjects as a whole.
func (c keepingConn) Write(p []byte) (int, error) {
	return c.Conn.Write(bytes.ReplaceAll(p, []byte("$JS.API.STREAM.PURGE"), []byte("$NO.API.STREAM.PURGE")))
}

// Where a worker dies between a move and the removal of the states, both have them, and they are equal: the next
// one removes the states and writes no archive. So it is where a torn batch has the archives and not the checkpoint
// that says how far they reach.
func TestMoveThatWasInterruptedIsFinished(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("one worker after the other: the race detector sees nothing new in that")
	}
	for name, torn := range map[string]bool{"before the removal": false, "before the checkpoint": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			finishMove(t, torn)
		})
	}
}

func finishMove(t *testing.T, torn bool) {
	t.Helper()
	top := topology(2)
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	records := pipelinetest.Workload(72, 20, 400)
	pipelinetest.Publish(t, js, records[:300]...)
	reader := sdkmetric.NewManualReader()
	cfg := archiving(top)
	cfg.Meter = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("test")
	var log bytes.Buffer
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	s := start(t, server.JetStream(nats.SetCustomDialer(withoutRemoval{})), cfg)
	x := pipelinetest.Expectation{Topology: top}
	sessions := x.RequireExact(t, js).Sessions
	eventually(t, "all states are moved", func() bool { return sum(t, reader, "tributary.archived") >= int64(sessions) })
	s.stop(t)
	if n := countSubjects(t, js, "states.>"); n != sessions {
		t.Errorf("%d states of %d sessions", n, sessions)
	}
	if n := strings.Count(log.String(), "were not moved to archives"); n < 1 || n > top.Partitions {
		t.Errorf("%d warnings of %d partitions:\n%s", n, top.Partitions, log.String())
	}
	x.RequireExact(t, js)
	before := archivesAt(t, js)
	if torn {
		for p := range top.Partitions {
			setCheckpoint(t, js, p, func(c *streams.Checkpoint) { c.Archived, c.ArchivedTo = 0, 0 })
		}
	}

	runArchiving(t, js, archiving(top), 0)
	if diff := cmp.Diff(before, archivesAt(t, js)); diff != "" {
		t.Errorf("archives were written again (-before +after):\n%s", diff)
	}
	runArchiving(t, js, worker.Config{Topology: top}, len(lateSessions(records[300:])), records[300:]...)
}

// archivesAt returns the sequences of the archives.
func archivesAt(tb testing.TB, js jetstream.JetStream) map[string]uint64 {
	tb.Helper()
	at := make(map[string]uint64)
	for _, m := range stored(tb, js, "archives.>") {
		at[m.Subject] = m.Sequence
	}
	if len(at) == 0 {
		tb.Fatal("there are no archives")
	}
	return at
}

// lateSessions returns the sessions of records.
func lateSessions(records []core.Record) map[string]bool {
	sessions := make(map[string]bool)
	for _, r := range records {
		sessions[r.Session] = true
	}
	return sessions
}

// The requests with which a worker removes what it has moved arrive when another worker has acquired its partitions
// and stored newer states: they remove nothing but the states that were moved.
func TestLateRemovalRemovesNoNewerState(t *testing.T) {
	t.Parallel()
	top := topology(2)
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	var records, late []core.Record
	for i := range 20 {
		session := fmt.Sprintf("s%d", i)
		records = append(records, user(session, "one"), user(session, "two"))
		if i%2 == 0 {
			late = append(late, user(session, "three"))
		}
	}
	pipelinetest.Publish(t, js, records...)
	overtaken := start(t, server.JetStream(nats.SetCustomDialer(withoutRemoval{})), archiving(top))
	x := pipelinetest.Expectation{Topology: top}
	x.RequireExact(t, js)
	eventually(t, "all states are moved", func() bool { return countSubjects(t, js, "archives.>") >= 20 })
	moved := stored(t, js, "states.>")
	overtaken.kill()

	s := start(t, js, worker.Config{Topology: top})
	pipelinetest.Publish(t, js, late...)
	x.RequireExact(t, js)
	if err := worker.RemoveMessages(t.Context(), js, streams.EventsStream("v1"), moved); err != nil {
		t.Fatal(err)
	}
	x.RequireExact(t, js)
	if n := countSubjects(t, js, "states.>"); n != len(late) {
		t.Errorf("%d states are left, want the %d newer ones", n, len(late))
	}
	s.stop(t)
	runArchiving(t, js, archiving(top), 0, records...) // each again, which no session has an id for
}

// sameArchive returns ids of sessions of Claude Code that are in one archive of a single partition.
func sameArchive(n int) []string {
	in := make(map[string][]string)
	for i := 0; ; i++ {
		id := fmt.Sprintf("session-%d", i)
		archive, _ := envelopes.ArchiveOf(envelopes.StateSubject("v1", 0, envelopes.ClaudeCode, id))
		if in[archive] = append(in[archive], id); len(in[archive]) == n {
			return in[archive]
		}
	}
}

// Sessions for which an archive has no room stay under their own subjects. That is counted, and logged once.
func TestFullArchiveKeepsTheRest(t *testing.T) {
	t.Parallel()
	top := topology(1)
	js := pipelinetest.NewServer(t).Provision(top)
	var records []core.Record
	for _, id := range sameArchive(12) {
		records = append(records, user(id, "one"), user(id, "two of "+id))
	}
	reader := sdkmetric.NewManualReader()
	var log bytes.Buffer
	cfg := worker.Archiving(archiving(top), 5*time.Millisecond, nil, 300)
	cfg.Meter = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("test")
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	pipelinetest.Publish(t, js, records...)
	s := start(t, js, cfg)
	x := pipelinetest.Expectation{Topology: top}
	x.RequireExact(t, js)
	eventually(t, "a state is moved, and another is kept", func() bool {
		return sum(t, reader, "tributary.archived") > 0 && sum(t, reader, "tributary.archive.full") > 0
	})
	pipelinetest.Publish(t, js, records...)
	x.RequireExact(t, js)
	s.stop(t)
	status, err := replay.ReadStatus(t.Context(), js, top)
	if err != nil {
		t.Fatal(err)
	}
	if status.Partitions[0].Unarchived == 0 {
		t.Error("the status has no state without room")
	}
	if n := strings.Count(log.String(), "archive of session states is full"); n != 1 {
		t.Errorf("%d warnings:\n%s", n, log.String())
	}
	archives := stored(t, js, "archives.>")
	if len(archives) != 1 || len(archives[0].Data) > 300 {
		t.Errorf("%d archives", len(archives))
	}
	runArchiving(t, js, archiving(top), 0, records...) // which has room for all
}

// An archive that cannot be read costs the sessions that may be in it, and no other: their records
// become dead letters, also those of a session that is new there, and the archive stays as it is.
func TestDamagedArchiveCostsOnlyItsSessions(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("one worker after the other: the race detector sees nothing new in that")
	}
	top := topology(1)
	js := pipelinetest.NewServer(t).Provision(top)
	same := sameArchive(3)
	victims, fresh := same[:2], same[2]
	others := []string{"other-1", "other-2", "other-3"}
	var first, second []core.Record
	for _, id := range slices.Concat(victims, others) {
		first, second = append(first, user(id, "one")), append(second, user(id, "two"))
	}
	runArchiving(t, js, archiving(top), 0, first...)
	damaged, _ := envelopes.ArchiveOf(envelopes.StateSubject("v1", 0, envelopes.ClaudeCode, fresh))
	data := slices.Clone(stored(t, js, damaged)[0].Data)
	data[len(data)/2] ^= 1
	if _, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: damaged, Data: data, Header: nats.Header{"Nats-Rollup": {"sub"}}}); err != nil {
		t.Fatal(err)
	}
	pipelinetest.Publish(t, js, append(second, user(fresh, "one"))...)
	s := start(t, js, archiving(top))
	if err := replay.CatchUp(deadline(t), js, top); err != nil {
		t.Fatal(err)
	}
	awaitStates(t, js, 0)
	s.stop(t)
	for _, id := range others {
		if diff := cmp.Diff([]string{"one", "two"}, texts(t, js, "v1", id)); diff != "" {
			t.Errorf("events of %s (-want +got):\n%s", id, diff)
		}
	}
	dead := make(map[string]int)
	for _, l := range letters(t, js, events.DeadLettersQuery{Reason: "state"}) {
		if !strings.Contains(l.Error, "replay into a new generation") || l.Requeueable() != events.RequeuedForgotten {
			t.Errorf("dead letter of session %s: %s, %s", l.Session, l.Error, l.Requeueable())
		}
		dead[l.Session]++
	}
	if want := []string{victims[0], victims[1], fresh}; !slices.Equal(slices.Sorted(maps.Keys(dead)), slices.Sorted(slices.Values(want))) || len(dead) != 3 {
		t.Errorf("dead letters of %v, want one of each of %v", dead, want)
	}
	if m := stored(t, js, damaged); len(m) != 1 || !bytes.Equal(m[0].Data, data) {
		t.Error("the damaged archive was replaced")
	}
}

// A stream that was made before there were archives gets their subject from Provision. Until then it
// contradicts nothing, and a worker moves nothing.
func TestStreamOfBeforeGetsTheSubjectOfArchives(t *testing.T) {
	t.Parallel()
	top := topology(2)
	top.Cells = 2
	js := pipelinetest.NewServer(t).Provision(top)
	for _, name := range []string{"EVENTS_v1", "EVENTS_v1_1"} {
		cfg := config(t, js, name)
		cfg.Subjects = slices.DeleteFunc(cfg.Subjects, envelopes.IsArchiveFilter)
		if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	x := pipelinetest.Expectation{Topology: top}
	var log bytes.Buffer
	cfg := archiving(top)
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	pipelinetest.Publish(t, js, pipelinetest.Workload(73, 20, 200)...)
	s := start(t, js, cfg)
	x.RequireExact(t, js)
	if _, err := replay.ReadStatus(t.Context(), js, top); err != nil {
		t.Error(err)
	}
	list, err := streams.ReadStreams(t.Context(), js, top)
	if err != nil {
		t.Fatal(err)
	}
	for _, stream := range list {
		if len(stream.Drift) > 0 {
			t.Errorf("stream %s: %v", stream.Name, stream.Drift)
		}
	}
	if err := streams.Provision(t.Context(), js, top); err != nil {
		t.Fatal(err)
	}
	for c, name := range []string{"v1", "v1_1"} {
		if diff := cmp.Diff(envelopes.GenerationSubjects(name), config(t, js, streams.EventsStream(name)).Subjects); diff != "" {
			t.Errorf("cell %d (-want +got):\n%s", c, diff)
		}
	}
	awaitStates(t, js, 0)
	x.RequireExact(t, js)
	s.stop(t)
}

// What is known of the record of a dead letter is found in the archive of its session.
func TestStandingOfADeadLetterIsFoundInAnArchive(t *testing.T) {
	t.Parallel()
	top := topology(1)
	js := pipelinetest.NewServer(t).Provision(top)
	pipelinetest.Publish(t, js, user("s", "one"), user("s", "boom"), user("t", "boom"))
	x := pipelinetest.Expectation{Topology: top, Normalize: breaksUntil("boom", 3)}
	cfg := archiving(top)
	cfg.Normalize = x.Normalize
	s := start(t, js, cfg)
	x.RequireExact(t, js)
	awaitStates(t, js, 0)
	if got := requeue(t, js, events.DeadLettersQuery{Session: "s"}); got[events.RequeuedNow] != 1 {
		t.Errorf("requeued: %v", got)
	}
	x.RequireExact(t, js)
	awaitStates(t, js, 0)
	s.stop(t)
	standings := make(map[string]core.Standing)
	for _, l := range letters(t, js, events.DeadLettersQuery{}) {
		standings[l.Session] = l.Standing
	}
	if diff := cmp.Diff(map[string]core.Standing{"s": core.StandingSettled, "t": core.StandingOpen}, standings); diff != "" {
		t.Errorf("standings (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"one", "boom"}, texts(t, js, "v1", "s")); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}
