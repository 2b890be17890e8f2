package worker_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/events"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/records"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// ids returns the ids of the events of a generation, sorted. It fails the test for an id that
// is there twice.
func ids(tb testing.TB, js jetstream.JetStream, generation string) []string {
	tb.Helper()
	var out []string
	for e, err := range events.Read(tb.Context(), js, generation, events.Query{}) {
		if err != nil {
			tb.Fatal(err)
		}
		out = append(out, e.SessionID+" "+e.EventID)
	}
	slices.Sort(out)
	if n := len(slices.Compact(slices.Clone(out))); n != len(out) {
		tb.Errorf("%d of %d events are there twice", len(out)-n, len(out))
	}
	return out
}

// idsOf returns what [ids] finds when a generation has all events of records in their order.
func idsOf(tb testing.TB, sent []core.Record) []string {
	tb.Helper()
	sessions := make(map[string]*core.Session)
	var out []string
	for i, r := range sent {
		r.Sequence = uint64(i + 1)
		s := sessions[r.Session]
		if s == nil {
			s = normalizers.NewSession(r.Source, r.Session)
			sessions[r.Session] = s
		}
		result, err := normalizers.Normalize(s, r)
		if _, permanent := records.Reason(err); err != nil && !permanent {
			tb.Fatal(err)
		}
		for _, e := range result.Events {
			out = append(out, e.Event.SessionID+" "+e.Event.EventID)
		}
	}
	slices.Sort(out)
	return out
}

// gaps returns the gaps that the status of a generation shows, and how many sessions have any.
func gaps(tb testing.TB, js jetstream.JetStream, top streams.Topology) (shown []events.SessionGaps, sessions int) {
	tb.Helper()
	status, err := replay.ReadStatus(tb.Context(), js, top)
	if err != nil {
		tb.Fatal(err)
	}
	for _, p := range status.Partitions {
		shown, sessions = append(shown, p.Gaps...), sessions+p.GapSessions
	}
	return shown, sessions
}

// sum returns the value of a counter, over all its series with some attributes.
func sum(tb testing.TB, reader sdkmetric.Reader, name string, with ...attribute.KeyValue) (n int64) {
	tb.Helper()
	var got metricdata.ResourceMetrics
	if err := reader.Collect(tb.Context(), &got); err != nil {
		tb.Fatal(err)
	}
	for _, m := range got.ScopeMetrics[0].Metrics {
		if data, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == name {
			for _, p := range data.DataPoints {
				lacks := func(a attribute.KeyValue) bool { v, _ := p.Attributes.Value(a.Key); return v != a.Value }
				if !slices.ContainsFunc(with, lacks) {
					n += p.Value
				}
			}
		}
	}
	return n
}

// replay makes a new generation of all records, and compares it with the fold.
func replayAll(tb testing.TB, js jetstream.JetStream, top streams.Topology, generation string) *pipelinetest.Report {
	tb.Helper()
	top.Generation = generation
	if err := streams.Provision(tb.Context(), js, top); err != nil {
		tb.Fatal(err)
	}
	s := start(tb, js, worker.Config{Topology: top})
	report := pipelinetest.Expectation{Topology: top}.RequireExact(tb, js)
	s.stop(tb)
	return report
}

// The raw stream has the lines 1 to 120 and 242 to 361 of a log; then the lines between come,
// and all lines again. Every line yields its events once, in this generation and in a new one.
// The status shows the gap while it is open, and the log states once that it opened and that
// it is filled.
func TestLateRecordsYieldTheirEventsOnce(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("one worker after the other: the race detector sees nothing new in that")
	}
	top := topology(1)
	js := pipelinetest.NewServer(t).Provision(top)
	records := pipelinetest.Workload(61, 1, 361)[:361]
	const before, behind = 120, 241
	var log bytes.Buffer
	reader := sdkmetric.NewManualReader()
	meter := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("test")
	s := start(t, js, worker.Config{Topology: top, Logger: slog.New(slog.NewTextHandler(&log, nil)), Meter: meter})
	x := pipelinetest.Expectation{Topology: top}
	publish := func(records ...core.Record) int {
		t.Helper()
		pipelinetest.Publish(t, js, records...)
		return x.RequireExact(t, js).Events
	}
	publish(records[:before]...)
	publish(records[behind:]...)
	origin := records[behind].Origin
	want := []events.SessionGaps{{Source: records[0].Source, Session: records[0].Session, Gaps: []events.FileGap{
		{File: origin.File, After: records[before-1].Origin.Position, Last: origin.Previous, Sequence: before + 1},
	}}}
	shown, sessions := gaps(t, js, top)
	if len(shown) == 1 && shown[0].Gaps[0].Found.IsZero() {
		t.Error("nothing says when the gap was found")
	}
	if diff := cmp.Diff(want, shown, cmpopts.IgnoreFields(events.FileGap{}, "Found")); diff != "" || sessions != 1 {
		t.Errorf("gaps of %d sessions (-want +got):\n%s", sessions, diff)
	}
	half := before + (behind-before)/2
	publish(records[half:behind]...) // the second half first
	publish(records[before:half]...)
	if shown, sessions := gaps(t, js, top); len(shown) > 0 || sessions > 0 {
		t.Errorf("when all records are there, %d sessions have gaps: %+v", sessions, shown)
	}
	all := idsOf(t, records)
	if diff := cmp.Diff(all, ids(t, js, "v1")); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if n := publish(records...); n != len(all) {
		t.Errorf("%d events after all lines came again, want %d", n, len(all))
	}
	s.stop(t)
	for _, text := range []string{"records are missing in the raw stream", "file=" + origin.File, "gaps=0"} {
		if n := strings.Count(log.String(), text); n != 1 {
			t.Errorf("the log states %q %d times:\n%s", text, n, log.String())
		}
	}
	if opened, late := sum(t, reader, "tributary.gaps"), sum(t, reader, "tributary.late"); opened != 1 || late != behind-before {
		t.Errorf("counted are %d gaps and %d late records", opened, late)
	}
	replayAll(t, js, top, "v2")
	if diff := cmp.Diff(all, ids(t, js, "v2")); diff != "" {
		t.Errorf("events of a new generation (-want +got):\n%s", diff)
	}
}

// Records of many sessions are missing and come later in any order, beside those that follow
// and again, while workers die at any record. The events are those of the fold, and those of
// a log without gaps.
func TestLateRecordsSurviveWorkerCrashes(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("one worker after the other: the race detector sees nothing new in that")
	}
	top := topology(4)
	js := pipelinetest.NewServer(t).Provision(top)
	random := rand.New(rand.NewPCG(62, 0))
	records := readable(pipelinetest.Workload(62, 20, 300)[:300])
	var first, late []core.Record
	for _, r := range records {
		if random.IntN(12) == 0 {
			late = append(late, r)
		} else {
			first = append(first, r)
		}
	}
	again := slices.Concat(late, late, records)
	random.Shuffle(len(again), func(i, j int) { again[i], again[j] = again[j], again[i] })
	pipelinetest.Publish(t, js, first...)
	pipelinetest.Publish(t, js, again...)
	pipelinetest.Publish(t, js, records...) // those at the end of a file, which no later record named as missing
	for range 12 {
		var calls atomic.Int64
		last := 1 + random.Int64N(60)
		s := startCrashing(t, js, worker.Config{Topology: top}, func(core.Record) bool { return calls.Add(1) == last })
		if err := s.wait(t); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	s := start(t, js, worker.Config{Topology: top, SessionBytes: 1}) // each state is read again
	pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	s.stop(t)
	if diff := cmp.Diff(idsOf(t, records), ids(t, js, "v1")); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if shown, sessions := gaps(t, js, top); len(shown) > 0 || sessions > 0 {
		t.Errorf("%d sessions have gaps: %+v", sessions, shown)
	}
}

// isReadable reports whether a record of a workload can be read.
func isReadable(r core.Record) bool { return bytes.HasPrefix(r.Data, []byte(`{"`)) }

// readable returns the records that can be read, as if their logs had no others.
func readable(records []core.Record) []core.Record {
	return linked(slices.DeleteFunc(records, func(r core.Record) bool { return !isReadable(r) }))
}

// linked makes each record state the place of the last readable one before it in its file.
func linked(records []core.Record) []core.Record {
	previous := make(map[string]int64)
	for i := range records {
		o := &records[i].Origin
		o.Previous = -1
		if p, ok := previous[o.File]; ok {
			o.Previous = p
		}
		if isReadable(records[i]) {
			previous[o.File] = o.Position
		}
	}
	return records
}

// The checkpoint of a partition counts the sessions with gaps and names the newest, so the
// status is bounded, however many there are. It names none when all are filled.
func TestStatusNamesTheNewestSessionsWithGaps(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("one worker after the other: the race detector sees nothing new in that")
	}
	const sessions, named = 50, 16
	top := topology(1)
	js := pipelinetest.NewServer(t).Provision(top)
	records := readable(pipelinetest.Workload(63, sessions, 1000)[:1000])
	places := make(map[string]int) // records of a session so far
	var first, late []core.Record
	for _, r := range records {
		if places[r.Session]++; places[r.Session] == 2 {
			late = append(late, r)
		} else {
			first = append(first, r)
		}
	}
	s := start(t, js, worker.Config{Topology: top})
	x := pipelinetest.Expectation{Topology: top}
	pipelinetest.Publish(t, js, first...)
	x.RequireExact(t, js)
	if shown, n := gaps(t, js, top); len(shown) != named || n != sessions {
		t.Errorf("%d sessions with gaps are shown, of %d; want %d of %d", len(shown), n, named, sessions)
	}
	pipelinetest.Publish(t, js, late...)
	x.RequireExact(t, js)
	s.stop(t)
	if shown, n := gaps(t, js, top); len(shown) != 0 || n != 0 {
		t.Errorf("%d sessions have gaps: %+v", n, shown)
	}
}

// A record that cannot be read is counted and noted as missing like any other: it opens a gap,
// or comes late and becomes a dead letter, once.
func TestLateRecordThatCannotBeReadIsADeadLetter(t *testing.T) {
	t.Parallel()
	top := topology(1)
	js := pipelinetest.NewServer(t).Provision(top)
	records := readable(pipelinetest.Workload(64, 1, 40)[:40])[:12]
	for _, i := range []int{3, 6} {
		records[i].Data = []byte("torn")
	}
	linked(records)
	s := start(t, js, worker.Config{Topology: top})
	x := pipelinetest.Expectation{Topology: top}
	pipelinetest.Publish(t, js, slices.Concat(records[:2], records[6:])...) // a torn line shows the gap
	x.RequireExact(t, js)
	if shown, n := gaps(t, js, top); n != 1 || len(shown) != 1 || shown[0].Gaps[0].Last != records[5].Origin.Position {
		t.Errorf("gaps of %d sessions: %+v", n, shown)
	}
	pipelinetest.Publish(t, js, records...)
	pipelinetest.Publish(t, js, records...)
	if r := x.RequireExact(t, js); r.DeadLetters != 2 {
		t.Errorf("%d dead letters, want 2", r.DeadLetters)
	}
	s.stop(t)
	if diff := cmp.Diff(idsOf(t, records), ids(t, js, "v1")); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if shown, n := gaps(t, js, top); n != 0 {
		t.Errorf("%d sessions have gaps: %+v", n, shown)
	}
}

// Where the raw stream drops old records, a generation that begins later misses the beginnings
// of files. The status marks their sessions, and no others, as expired.
func TestExpiredRecordsAreMarked(t *testing.T) {
	t.Parallel()
	top := topology(1)
	top.RawMaxAge = time.Hour
	js := pipelinetest.NewServer(t).Provision(top)
	records := readable(pipelinetest.Workload(65, 5, 200)[:200])
	last := len(records) - 1 // of a session that has more gaps than its beginning
	lost := slices.IndexFunc(records[100:], func(r core.Record) bool { return r.Session == records[last].Session }) + 100
	pipelinetest.Publish(t, js, slices.Delete(slices.Clone(records), lost, lost+1)...)
	raw, err := js.Stream(t.Context(), streams.RawStream)
	if err != nil {
		t.Fatal(err)
	}
	const expired = 60
	if err := raw.Purge(t.Context(), jetstream.WithPurgeSequence(expired+1)); err != nil { // as their age does
		t.Fatal(err)
	}
	replayAll(t, js, top, "v2")
	top.Generation = "v2"
	shown, n := gaps(t, js, top)
	if len(shown) != 5 || n != 5 {
		t.Errorf("%d sessions have gaps: %+v", n, shown)
	}
	for _, s := range shown {
		if s.Expired != (s.Session != records[last].Session) {
			t.Errorf("%s is expired: %t, %+v", s.Session, s.Expired, s.Gaps)
		}
	}
}
