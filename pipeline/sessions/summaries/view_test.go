package summaries_test

import (
	"errors"
	"flag"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"tributary/envelopes"
	"tributary/pipeline/broker"
	"tributary/pipeline/events"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/sessions"
	"tributary/pipeline/sessions/summaries"
	"tributary/pipeline/streams"
)

var manySessions = flag.Int("sessions", 3000, "sessions of TestManySessionsInBoundedMemory; a million, with -timeout 1h, is its full size")

// TestStatisticsWithLimitsReadWholeSessionsAlone compares statistics from the events that a view selects with those
// from all events, with records that are up to date and with records that are behind.
func TestStatisticsWithLimitsReadWholeSessionsAlone(t *testing.T) {
	pipelinetest.SkipShort(t)
	t.Parallel()
	top := streams.Topology{Generation: "v1", Partitions: 2}
	js := pipelinetest.NewServer(t).Provision(top)
	// The sessions of one workload after those of another, by position; their times are the same.
	for _, seed := range []uint64{1, 2} {
		pipelinetest.Publish(t, js, pipelinetest.Workload(seed, 12, 300)...)
		runStage(t, js, top)
	}
	stop := startKeeper(t, js, config(1<<20, time.Millisecond))
	awaitKept(t, js, "v1")
	stop()
	var times []time.Time
	for e, err := range events.Outlines(t.Context(), js, "v1", events.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		if at, err := e.Timestamp(); err == nil {
			times = append(times, at)
		}
	}
	check := func(name string, q sessions.StatsQuery) {
		t.Helper()
		q.By = sessions.Dimensions
		all := summaries.Steps(t.Context(), js, "v1", events.Query{}, unexpected(t))
		v := open(t, js, "v1")
		some, err := v.Steps(t.Context(), events.Query{}, func(r *summaries.Record) bool {
			return (q.Since.IsZero() || !r.LastSeen.Before(q.Since)) && (q.Until.IsZero() || r.FirstSeen.Before(q.Until))
		})
		if err != nil {
			t.Fatal(err)
		}
		rows := func(steps func(func(sessions.Step, error) bool)) map[string]sessions.Row {
			out := map[string]sessions.Row{}
			_, err := sessions.Stats(steps, q, sessions.Memory{}, func(r *sessions.Row) error {
				out[fmt.Sprint(r.Values)] = *r
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		if diff := cmp.Diff(rows(all), rows(some)); diff != "" {
			t.Errorf("%s (-of all events +of those that are selected):\n%s", name, diff)
		}
	}
	last := times[len(times)-1]
	for name, q := range map[string]sessions.StatsQuery{
		"since the last minutes": {Since: last.Add(-3 * time.Minute)},
		"since the middle":       {Since: times[len(times)/2]},
		"until the first minute": {Until: times[0].Add(time.Minute)},
		"of no session":          {Since: last.Add(time.Hour)},
	} {
		check(name, q)
	}
	pipelinetest.Publish(t, js, pipelinetest.Workload(1, 12, 320)[300:]...)
	runStage(t, js, top)
	check("behind the records", sessions.StatsQuery{Since: last.Add(-time.Minute)})
}

// TestStatisticsSinceATimeSkipTheEventsBefore counts what is read for sessions that began late.
func TestStatisticsSinceATimeSkipTheEventsBefore(t *testing.T) {
	t.Parallel()
	js := pipelinetest.NewServer(t).Provision(streams.Topology{Generation: "v1", Partitions: 1})
	const old, young = 500, 20
	publishEvents(t, js.Conn(), old+young, func(i int) (string, time.Time) {
		if i < old {
			return fmt.Sprintf("old-%d", i%100), day(1)
		}
		return "young", day(2)
	})
	stop := startKeeper(t, js, config(1<<20, time.Millisecond))
	v := awaitKept(t, js, "v1")
	stop()
	steps, err := v.Steps(t.Context(), events.Query{}, func(r *summaries.Record) bool { return !r.LastSeen.Before(day(2)) })
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for s, err := range steps {
		if err != nil || s.Session != "young" {
			t.Fatalf("%+v, %v", s, err)
		}
		read++
	}
	if read != young {
		t.Errorf("%d events are read, want %d", read, young)
	}
}

func day(n int) time.Time { return time.Date(2026, 3, n, 9, 0, 0, 0, time.UTC) }

// publishEvents stores events as a stage does, without one.
func publishEvents(t *testing.T, nc *nats.Conn, n int, of func(i int) (session string, at time.Time)) {
	t.Helper()
	var batch []*nats.Msg
	for i := range n {
		session, at := of(i)
		e := envelopes.AgentEventV1{
			Source: envelopes.ClaudeCode, SessionID: session, Sequence: uint64(i), EventType: envelopes.UserMessage,
			Role: new(envelopes.RoleUser), TS: at.Format(time.RFC3339), Text: new("a prompt"), ProjectHash: "h",
		}
		header, data, err := envelopes.EncodeEvent(&e, envelopes.Provenance{Generation: "v1", RawStream: streams.RawStream, RawSequence: uint64(i)}, envelopes.Binary)
		if err != nil {
			t.Fatal(err)
		}
		batch = append(batch, &nats.Msg{Subject: envelopes.EventSubject("v1", &e), Header: nats.Header(header), Data: data})
		if len(batch) == 900 || i == n-1 {
			if _, err := broker.PublishBatch(t.Context(), nc, batch); err != nil {
				t.Fatal(err)
			}
			batch = nil
		}
	}
}

// TestViewContinues is that of views of records that were added to, made again, and removed.
func TestViewContinues(t *testing.T) {
	t.Parallel()
	top := streams.Topology{Generation: "v1", Partitions: 2}
	js := pipelinetest.NewServer(t).Provision(top)
	require := func(earlier *summaries.View, want bool) *summaries.View {
		t.Helper()
		v := awaitKept(t, js, "v1")
		if got, err := v.Continues(t.Context(), earlier); err != nil || got != want {
			t.Errorf("continues %t, want %t: %v", got, want, err)
		}
		return v
	}
	pipelinetest.Publish(t, js, pipelinetest.Workload(1, 10, 100)...)
	runStage(t, js, top)
	none := open(t, js, "v1")
	stop := startKeeper(t, js, config(1<<20, time.Millisecond))
	first := require(none, false)
	pipelinetest.Publish(t, js, pipelinetest.Workload(2, 10, 100)...) // of other sessions
	runStage(t, js, top)
	second := require(first, true)
	stop()
	stop = startKeeper(t, js, config(1<<20, time.Millisecond))
	third := require(second, true)
	stop()
	stream, err := js.Stream(t.Context(), streams.SummariesStream("v1"))
	if err == nil {
		err = stream.Purge(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	if got, err := open(t, js, "v1").Continues(t.Context(), third); got || err != nil {
		t.Errorf("records that were removed continue: %v", err)
	}
	startKeeper(t, js, config(1<<20, time.Millisecond))
	require(third, false)
}

// TestNewestRecordsAreThoseThatChangedLast compares the newest records with all records. The early records do not
// change later, so none of them is among the newest.
func TestNewestRecordsAreThoseThatChangedLast(t *testing.T) {
	t.Parallel()
	top := streams.Topology{Generation: "v1", Partitions: 2}
	js := pipelinetest.NewServer(t).Provision(top)
	startKeeper(t, js, config(1<<20, time.Millisecond))
	var early map[string]string
	for seed := range uint64(4) {
		pipelinetest.Publish(t, js, pipelinetest.Workload(seed, 20, 100)...)
		runStage(t, js, top)
		if v := awaitKept(t, js, "v1"); seed == 0 {
			early = recordsOf(t, v)
		}
	}
	v := awaitKept(t, js, "v1")
	all, newest := recordsOf(t, v), map[string]string{}
	err := v.Newest(t.Context(), 2, func(r *summaries.Record) error {
		newest[string(r.Source)+" "+r.Session] = encoded(t, r)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(newest) < 2 || len(newest) > len(all)-len(early) {
		t.Errorf("%d records are the newest of %d", len(newest), len(all))
	}
	for id, r := range newest {
		if all[id] != r || early[id] != "" {
			t.Errorf("%s: %s, want %s", id, r, all[id])
		}
	}
	if err := v.Newest(t.Context(), 1<<20, func(*summaries.Record) error { return errors.New("all are read") }); err != nil {
		t.Error(err)
	}
}

// TestFollowEndsWithItsRecords follows records that go back in time with the broker, and records that are made again.
// Both times Follow ends, and following another view yields the later records.
func TestFollowEndsWithItsRecords(t *testing.T) {
	t.Parallel()
	top := streams.Topology{Generation: "v1", Partitions: 2}
	server := pipelinetest.NewServer(t)
	js := pipelinetest.AsPrograms(t, server.Provision(top))
	seed := uint64(0)
	add := func() {
		t.Helper()
		seed++
		pipelinetest.Publish(t, js, pipelinetest.Workload(seed, 10, 100)...)
		runStage(t, js, top)
		awaitKept(t, js, "v1")
	}
	follow := func() (records chan string, ended chan error) {
		records, ended = make(chan string, 1000), make(chan error, 1)
		v := awaitKept(t, js, "v1")
		status, err := v.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for r, err := range v.Follow(t.Context(), "", status.StoredAt) {
				if err != nil {
					ended <- err
					return
				}
				records <- r.Session
			}
		}()
		return records, ended
	}
	await := func(what string, records chan string, ended chan error, wantRecord bool) {
		t.Helper()
		for end := time.After(patience); ; {
			select {
			case <-records:
				if wantRecord {
					return
				}
			case err := <-ended:
				if wantRecord || !errors.Is(err, summaries.ErrAnew) {
					t.Fatalf("%s: %v", what, err)
				}
				return
			case <-end:
				t.Fatalf("%s: nothing", what)
			}
		}
	}
	startKeeper(t, js, config(1<<20, time.Millisecond))
	add()
	saved := server.CopyStore()
	add()
	records, ended := follow()
	add()
	await("records that are added", records, ended, true)
	saved.PutBack(streams.EventsStream("v1"), streams.SummariesStream("v1"))
	await("records that went back", records, ended, false)
	records, ended = follow()
	add()
	await("records after that", records, ended, true)
	if err := js.DeleteStream(t.Context(), streams.SummariesStream("v1")); err != nil {
		t.Fatal(err)
	}
	await("records that are made again", records, ended, false)
}

// TestManySessionsInBoundedMemory keeps the records of sessions with one event each, and reads them. Its full size is
// -sessions 1000000.
func TestManySessionsInBoundedMemory(t *testing.T) { //nolint:paralleltest // it measures memory
	server := pipelinetest.StartCluster(t, 1, 0) // a process of its own, so that its memory does not count
	js := server.Provision(streams.Topology{Generation: "v1", Partitions: 1})
	began := time.Now()
	publishEvents(t, js.Conn(), *manySessions, func(i int) (string, time.Time) { return fmt.Sprintf("session-%d", i), day(1) })
	t.Logf("stored %d events in %v", *manySessions, time.Since(began).Round(time.Millisecond))
	began = time.Now()
	keeper := pipelinetest.StartProcess(t, "keeper", keeperArguments{URL: server.URL(), Every: 1000})
	v := awaitMany(t, js)
	t.Logf("kept %d records in %v; keeper at its most %d MiB", *manySessions, time.Since(began).Round(time.Millisecond), peakMiB(keeper.PID()))
	if code := keeper.Stop(); code != 0 {
		t.Fatalf("keeper: exit code %d\n%s", code, keeper.Output())
	}
	began = time.Now()
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	count, most := 0, uint64(0)
	err := v.Each(t.Context(), "", func(*summaries.Record) error {
		if count++; count%(*manySessions/20+1) == 0 {
			runtime.GC()
			runtime.ReadMemStats(&now)
			most = max(most, now.HeapAlloc)
		}
		return nil
	})
	if err != nil || count != *manySessions {
		t.Errorf("%d records are read, want %d: %v", count, *manySessions, err)
	}
	t.Logf("read %d records in %v; heap grew by %d KiB at most", count, time.Since(began).Round(time.Millisecond), (int64(most)-int64(before.HeapAlloc))>>10)
	if grown := int64(most) - int64(before.HeapAlloc); grown > 64<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
}
