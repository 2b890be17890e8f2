package worker_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/claims"
	"tributary/pipeline/events"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/records"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// A worker whose consumers are deleted opens others at once, which its log and metrics state.
func TestConsumersThatAreDeletedAreReplaced(t *testing.T) {
	t.Parallel()
	top := topology(4)
	js := pipelinetest.NewServer(t).Provision(top)
	reader := sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	var log logged
	s := start(t, js, worker.Config{Topology: top, Meter: provider.Meter("test"), Logger: slog.New(slog.NewTextHandler(&log, nil))})
	records := pipelinetest.Workload(81, 20, 400)
	pipelinetest.Publish(t, js, records[:200]...)
	x := pipelinetest.Expectation{Topology: top}
	x.RequireExact(t, js)
	if n, err := deleteConsumers(t.Context(), js, streams.RawStream); err != nil || n == 0 {
		t.Fatalf("%d consumers deleted, %v", n, err)
	}
	pipelinetest.Publish(t, js, records[200:]...)
	x.RequireExact(t, js)
	log.await(t, "Consumer Deleted", 1)
	if n := sum(t, reader, "tributary.reader.restarts"); n == 0 {
		t.Error("no reading that began again is counted")
	}
	s.stop(t)
}

// The lag of a worker is never less than the records of a partition that it does not get done, also
// while it acquires the partition again.
func TestLagOfAPartitionThatIsAcquiredAgainStays(t *testing.T) {
	t.Parallel()
	top := topology(2)
	js := pipelinetest.NewServer(t).Provision(top)
	reader := sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	h := newHang(t, 1)
	s := start(t, js, worker.Config{Topology: top, Normalize: h.normalize, RecordTimeout: 300 * time.Millisecond, Meter: provider.Meter("test")})
	records := make([]core.Record, 100)
	for i := range records {
		records[i] = user("s", "water") // all in one partition
	}
	pipelinetest.Publish(t, js, records...)
	<-h.entered
	left := int64(len(records))
	ctx := deadline(t)
	for lag(t, reader) < left && ctx.Err() == nil { // until all are read
	}
	for again := 0; again < 2 && ctx.Err() == nil; {
		select {
		case <-h.entered:
			again++
		default:
			if n := lag(t, reader); n < left {
				t.Fatalf("lag %d of %d records, none of which is done", n, left)
			}
		}
	}
	h.end()
	if err := replay.CatchUp(ctx, js, top); err != nil {
		t.Fatal(err)
	}
	s.stop(t)
	if n := lag(t, reader); n != 0 {
		t.Errorf("lag %d in the end", n)
	}
}

// lag returns the lag that a worker reports.
func lag(tb testing.TB, reader sdkmetric.Reader) (n int64) {
	tb.Helper()
	var got metricdata.ResourceMetrics
	if err := reader.Collect(tb.Context(), &got); err != nil {
		tb.Fatal(err)
	}
	for _, s := range got.ScopeMetrics {
		for _, m := range s.Metrics {
			if data, ok := m.Data.(metricdata.Gauge[int64]); ok && m.Name == "tributary.lag" {
				for _, p := range data.DataPoints {
					n += p.Value
				}
			}
		}
	}
	return n
}

// readStatus reads the status of a generation.
func readStatus(tb testing.TB, js jetstream.JetStream, top streams.Topology) replay.Status {
	tb.Helper()
	s, err := replay.ReadStatus(tb.Context(), js, top)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// A reader of events, such as a subscription and the keeper of the records of sessions, goes on
// when its consumer is deleted, and reports the interruption.
func TestReaderOfEventsSurvivesTheDeletionOfItsConsumer(t *testing.T) {
	t.Parallel()
	top := topology(2)
	js := pipelinetest.NewServer(t).Provision(top)
	records := pipelinetest.Workload(82, 10, 200)
	pipelinetest.Publish(t, js, records[:100]...)
	s := start(t, js, worker.Config{Topology: top})
	want := pipelinetest.Expectation{Topology: top}.RequireExact(t, js).Events
	interrupted, seen := 0, 0
	ctx, cancel := context.WithCancel(deadline(t))
	defer cancel()
	q := events.Query{Follow: true, Interrupted: func(error) { interrupted++ }}
	for _, err := range events.Read(ctx, js, "v1", q) {
		if err != nil {
			t.Fatal(err)
		}
		if seen++; seen == want && interrupted == 0 {
			if n, err := deleteConsumers(ctx, js, streams.EventsStream("v1")); err != nil || n == 0 {
				t.Fatalf("%d consumers deleted, %v", n, err)
			}
			pipelinetest.Publish(t, js, records[100:]...)
			want = pipelinetest.Expectation{Topology: top}.RequireExact(t, js).Events
		}
		if seen == want && interrupted > 0 {
			cancel()
		}
	}
	if seen != want || interrupted == 0 {
		t.Errorf("%d events of %d, interrupted %d times", seen, want, interrupted)
	}
	s.stop(t)
}

// Workers whose heartbeats are purged each seem to be alone for a moment: they settle by
// themselves, and nothing is stored twice.
func TestWorkersSettleWhenTheirHeartbeatsArePurged(t *testing.T) {
	t.Parallel()
	top := topology(6)
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	a, b := start(t, js, member(top, "a")), start(t, server.JetStream(), member(top, "b"))
	both := map[string]int{"a": 3, "b": 3}
	settled(t, js, top, both)
	for some := range slices.Chunk(pipelinetest.Workload(83, 30, 300), 50) {
		pipelinetest.Publish(t, js, some...)
		if err := empty(deadline(t), js, "KV_"+streams.WorkersBucket); err != nil {
			t.Fatal(err)
		}
	}
	pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	settled(t, js, top, both)
	nobodys := func(p replay.PartitionStatus) bool { return p.Worker == "" }
	status := readStatus(t, js, top)
	for ctx := deadline(t); slices.ContainsFunc(status.Partitions, nobodys) && ctx.Err() == nil; { // a worker may be slow
		status = readStatus(t, js, top)
	}
	for _, p := range status.Partitions {
		if nobodys(p) || p.Fault != "" {
			t.Errorf("%+v", p)
		}
	}
	a.stop(t)
	b.stop(t)
}

// Large records whose objects were purged become dead letters, which the log and the metrics
// state, and the others go on. When the objects are there again, their records are requeued.
func TestRecordsWhoseObjectsWerePurgedAreBroughtBack(t *testing.T) {
	t.Parallel()
	top := topology(2)
	js := pipelinetest.NewServer(t, smallMessages).Provision(top)
	claims := claims.NewStore(js)
	large := []core.Record{prompt("large", 1, 700<<10), prompt("large", 2, 700<<10)}
	put := func() {
		t.Helper()
		for _, r := range large {
			if _, err := claims.Put(t.Context(), r.Data); err != nil {
				t.Fatal(err)
			}
		}
	}
	put()
	pipelinetest.PublishMessages(t.Context(), t, js, records.ClaimMessage(large[0]), records.ClaimMessage(large[1]))
	pipelinetest.Publish(t, js, user("small", "water"))
	if err := empty(t.Context(), js, "OBJ_"+streams.ClaimsBucket); err != nil {
		t.Fatal(err)
	}
	reader := sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	var log bytes.Buffer
	s := start(t, js, worker.Config{Topology: top, Meter: provider.Meter("test"), Logger: slog.New(slog.NewTextHandler(&log, nil))})
	x := pipelinetest.Expectation{Topology: top}
	if r := x.RequireExact(t, js); r.DeadLetters != 2 || r.Events != 1 {
		t.Errorf("%+v", r)
	}
	if n := readStatus(t, js, top).DeadLetters; n != 2 {
		t.Errorf("the status has %d dead letters", n)
	}
	for _, l := range letters(t, js, events.DeadLettersQuery{}) {
		if l.Reason != "claim_missing" || l.Standing != core.StandingOpen {
			t.Errorf("dead letter %+v", l)
		}
	}
	put()
	if n := requeue(t, js, events.DeadLettersQuery{}); n[events.RequeuedNow] != 2 {
		t.Errorf("requeued: %v", n)
	}
	if err := replay.CatchUp(deadline(t), js, top); err != nil {
		t.Fatal(err)
	}
	if n := len(texts(t, js, "v1", "large")); n != 2 {
		t.Errorf("%d events of the records that are back", n)
	}
	s.stop(t)
	if n := sum(t, reader, "tributary.dead_letters"); n != 2 {
		t.Errorf("%d dead letters are counted", n)
	}
	if n := strings.Count(log.String(), "objects of large records are missing"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, log.String())
	}
}

// Workers go on when the bucket with the name of the live generation is purged, and say so. One that starts changes
// nothing, and names the keys that have to be put back.
func TestControlBucketThatIsPurgedStopsNoWorkerAndIsRestored(t *testing.T) {
	pipelinetest.SkipShort(t)
	t.Parallel()
	top := topology(4)
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	var log logged
	cfg := member(top, "w")
	cfg.Heartbeat = 50 * time.Millisecond
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	w := work(t, js, cfg)
	records := pipelinetest.Workload(84, 20, 600)
	pipelinetest.Publish(t, js, records[:200]...)
	x := pipelinetest.Expectation{Topology: top}
	x.RequireExact(t, js)
	const bucket = "KV_TRIBUTARY"
	if err := empty(t.Context(), js, bucket); err != nil {
		t.Fatal(err)
	}
	log.await(t, "generations cannot be read: going on with the known ones", 3)
	log.await(t, "bucket TRIBUTARY has lost the key current: restore the bucket, or put the key back", 1)
	before := readEvents(t, js)
	pipelinetest.Publish(t, js, records[200:400]...)
	for look := time.NewTicker(5 * time.Millisecond); readEvents(t, js) == before; <-look.C {
	}

	live := top
	live.Generation = ""
	refused := func(want string) {
		t.Helper()
		if err := streams.Provision(t.Context(), js, live); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a worker that starts: %v, want %q", err, want)
		}
	}
	refused("nats kv put TRIBUTARY current NAME")
	if name, err := streams.LiveGeneration(t.Context(), js); err == nil {
		t.Errorf("a consumer reads %s, although nobody knows which generation is live", name)
	}
	kv, err := js.KeyValue(t.Context(), "TRIBUTARY")
	if err != nil {
		t.Fatal(err)
	}
	set := func(key, value string) {
		t.Helper()
		if _, err := kv.PutString(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
	}
	set("current", "v1")
	if _, err := replay.ReadStatus(t.Context(), js, top); err == nil || !strings.Contains(err.Error(), "tributary run") {
		t.Errorf("the status: %v", err)
	}
	revision := `{"revision":` + strconv.Itoa(normalizers.Revision) + `}`
	refused("nats kv put TRIBUTARY generation.v1 '" + revision + "'")
	set("generation.v1", revision)
	if err := streams.Provision(t.Context(), js, live); err != nil {
		t.Fatal(err)
	}
	other := work(t, server.JetStream(), member(top, "other"))
	settled(t, js, top, map[string]int{"w": 2, "other": 2})
	pipelinetest.Publish(t, js, records[400:]...)
	x.RequireExact(t, js)
	w.stop(t)
	other.stop(t)
}

// readEvents returns how many messages the first generation has.
func readEvents(tb testing.TB, js jetstream.JetStream) uint64 {
	tb.Helper()
	s, err := js.Stream(tb.Context(), streams.EventsStream("v1"))
	if err != nil {
		tb.Fatal(err)
	}
	return s.CachedInfo().State.LastSeq
}
