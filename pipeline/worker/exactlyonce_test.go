package worker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"tributary/envelopes"
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

func TestCleanRunIsExact(t *testing.T) {
	t.Parallel()
	for _, mode := range []envelopes.Mode{envelopes.Binary, envelopes.Structured} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			top := topology(4)
			top.Settings.CloudEvents = mode
			js := pipelinetest.NewServer(t).Provision(top)
			records := pipelinetest.Workload(1, 20, 1000)
			pipelinetest.Publish(t, js, records[:500]...)
			s := start(t, js, worker.Config{Topology: top})
			for some := range slices.Chunk(records[500:], 12) { // several partitions in one commit
				pipelinetest.Publish(t, js, some...)
			}
			r := pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
			s.stop(t)
			for p := range top.Partitions {
				if c, _, err := streams.ReadCheckpoint(t.Context(), js, top.Generation, p); err != nil || c.Epoch != 1 {
					t.Errorf("partition %d was acquired %d times, %v", p, c.Epoch, err)
				}
			}
			if r.Events < 1000 || r.DeadLetters == 0 || r.Sessions != 20 {
				t.Errorf("the workload is too thin: %+v", r)
			}
		})
	}
}

// The next worker does again what a worker that dies has in memory or in flight.
func TestStageThatDiesAgainAndAgainLosesNothing(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("one worker after the other: the race detector sees nothing new in that")
	}
	top := topology(4)
	js := pipelinetest.NewServer(t).Provision(top)
	pipelinetest.Publish(t, js, pipelinetest.Workload(2, 30, 1500)...)
	random := rand.New(rand.NewPCG(2, 0))
	for range 20 {
		var calls atomic.Int64
		last := 1 + random.Int64N(70) // fewer than are left
		s := startCrashing(t, js, worker.Config{Topology: top}, func(core.Record) bool { return calls.Add(1) == last })
		if err := s.wait(t); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	s := start(t, js, worker.Config{Topology: top})
	pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	s.stop(t)
}

func TestServerRestartsLoseNothing(t *testing.T) {
	t.Parallel()
	top := topology(4)
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	pipelinetest.Publish(t, js, pipelinetest.Workload(3, 30, 1500)...)
	restart := make(chan struct{}, 1)
	var calls atomic.Int64
	s := startCrashing(t, js, worker.Config{Topology: top}, func(core.Record) bool {
		if calls.Add(1)%400 == 0 {
			select {
			case restart <- struct{}{}:
			default:
			}
		}
		return false
	})
	for range 3 {
		select {
		case <-restart:
			server.Restart()
		case <-deadline(t).Done():
			t.Fatal("the stage does not go on")
		}
	}
	pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	s.stop(t)
}

// A consumer that sends heartbeats but no records, as one on a replica that no longer follows
// its leader does, is replaced by another.
func TestConsumerThatSendsNothingIsReplaced(t *testing.T) {
	t.Parallel()
	top := topology(2)
	js := pipelinetest.NewServer(t).Provision(top)
	records := pipelinetest.Workload(19, 20, 400)
	pipelinetest.Publish(t, js, records[:200]...)
	s := start(t, js, worker.Config{Topology: top})
	x := pipelinetest.Expectation{Topology: top}
	x.RequireExact(t, js)
	raw, err := js.Stream(t.Context(), streams.RawStream)
	if err != nil {
		t.Fatal(err)
	}
	names := raw.ConsumerNames(t.Context())
	paused := 0
	for name := range names.Name() {
		if _, err := raw.PauseConsumer(t.Context(), name, time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		paused++
	}
	if err := names.Err(); err != nil || paused != 1 {
		t.Fatalf("%d consumers, want one for all partitions, %v", paused, err)
	}
	pipelinetest.Publish(t, js, records[200:]...)
	if err := replay.CatchUp(deadline(t), js, top); err != nil {
		t.Fatal(err)
	}
	x.RequireExact(t, js)
	s.stop(t)
}

// A second stage on the same partitions is a mistake that must not show in the streams.
func TestTwoStagesAtOnceStoreNothingTwice(t *testing.T) {
	t.Parallel()
	top := topology(4)
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	records := pipelinetest.Workload(4, 30, 3000)
	pipelinetest.Publish(t, js, records[:1000]...)
	a := start(t, js, worker.Config{Topology: top, Worker: "a"})
	b := start(t, server.JetStream(), worker.Config{Topology: top, Worker: "b"})
	for len(records) > 1000 {
		records = records[100:]
		pipelinetest.Publish(t, js, records[:min(100, len(records))]...)
	}
	pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	a.stop(t)
	b.stop(t)
}

// The last message of a commit, or its acknowledgement, gets lost.
func TestCutCommitsAreExact(t *testing.T) {
	t.Parallel()
	records := 2000
	if testing.Short() {
		records = 400 // the race detector sees nothing new in many
	}
	for name, cut := range map[string]pipelinetest.Cut{
		"before the commit": pipelinetest.BeforeCommit, "before the acknowledgement": pipelinetest.BeforeAck,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := topology(4)
			server := pipelinetest.NewServer(t)
			js := server.Provision(top)
			proxy := pipelinetest.NewProxy(t, server)
			proxy.Arm(cut, cut, cut, cut, cut)
			pipelinetest.Publish(t, js, pipelinetest.Workload(5, 30, records)...)
			s := start(t, pipelinetest.Connect(t, proxy.URL()), worker.Config{Topology: top})
			pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
			s.stop(t)
			if len(proxy.Done) == 0 {
				t.Error("nothing was cut")
			}
		})
	}
}

// A commit that is in flight while its partitions are acquired again loses to the fence,
// however late it arrives.
func TestLateCommitLosesToTheFence(t *testing.T) {
	t.Parallel()
	top := topology(2)
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	proxy := pipelinetest.NewProxy(t, server)
	proxy.Arm(pipelinetest.HoldCommit)
	pipelinetest.Publish(t, js, pipelinetest.Workload(6, 10, 300)...)
	s := start(t, pipelinetest.Connect(t, proxy.URL()), worker.Config{Topology: top})
	x := pipelinetest.Expectation{Topology: top}
	for _, what := range []string{"held", "released"} {
		select {
		case <-proxy.Done:
		case <-deadline(t).Done():
			t.Fatalf("the commit was not %s", what)
		}
		if what == "held" {
			x.RequireExact(t, js) // by later commits
			proxy.Release()
		}
	}
	x.RequireExact(t, js)
	s.stop(t)
}

// manyBlocks is a record that yields n events.
func manyBlocks(session string, n int) core.Record {
	blocks := make([]string, n)
	for i := range blocks {
		blocks[i] = fmt.Sprintf(`{"type":"tool_use","id":"call_%s_%d","name":"Bash","input":{"command":"true"}}`, session, i)
	}
	return core.Record{Source: envelopes.ClaudeCode, Session: session, Data: fmt.Appendf(nil,
		`{"type":"assistant","uuid":"many-%s","sessionId":%q,"timestamp":"2026-03-01T09:00:00Z","message":{"id":"m","role":"assistant","content":[%s]}}`,
		session, session, strings.Join(blocks, ","))}
}

// A record that exceeds one batch goes out in several, between which the connection is cut.
func TestRecordLargerThanABatchIsExact(t *testing.T) {
	t.Parallel()
	const events = 2500
	for _, cuts := range [][]pipelinetest.Cut{
		nil,
		{pipelinetest.BeforeAck},
		{pipelinetest.BeforeCommit, pipelinetest.BeforeAck, pipelinetest.BeforeCommit, pipelinetest.BeforeAck},
	} {
		t.Run(fmt.Sprintf("cuts=%d", len(cuts)), func(t *testing.T) {
			t.Parallel()
			if testing.Short() && len(cuts) == 1 {
				t.Skip("the race detector sees it with more cuts")
			}
			top := topology(1)
			server := pipelinetest.NewServer(t)
			js := server.Provision(top)
			proxy := pipelinetest.NewProxy(t, server)
			proxy.Arm(cuts...)
			records := pipelinetest.Workload(7, 5, 100)
			records = append(records[:50:50], append([]core.Record{manyBlocks("many", events), manyBlocks("more", events)}, records[50:]...)...)
			pipelinetest.Publish(t, js, records...)
			s := start(t, pipelinetest.Connect(t, proxy.URL()), worker.Config{Topology: top})
			r := pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
			s.stop(t)
			if r.Events < 2*events {
				t.Errorf("%d events, want more than %d", r.Events, 2*events)
			}
			if len(proxy.Done) != len(cuts) {
				t.Errorf("%d cuts were made, want %d", len(proxy.Done), len(cuts))
			}
		})
	}
}

// storeOneBatch has a worker store one batch, which is cut off before the acknowledgement of that
// one and before every further commit, and kills it.
func storeOneBatch(t *testing.T, proxy *pipelinetest.Proxy, top streams.Topology) {
	t.Helper()
	proxy.Arm(pipelinetest.BeforeAck)
	proxy.Arm(slices.Repeat([]pipelinetest.Cut{pipelinetest.BeforeCommit}, 1000)...)
	s := start(t, pipelinetest.Connect(t, proxy.URL()), worker.Config{Topology: top})
	select {
	case <-proxy.Done:
	case <-deadline(t).Done():
		t.Fatal("no commit was cut")
	}
	s.kill()
}

// The part of a record that is stored is not stored again by another process.
func TestRecordLargerThanABatchIsFinishedByAnotherWorker(t *testing.T) {
	t.Parallel()
	top := topology(1)
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	pipelinetest.Publish(t, js, manyBlocks("many", 2500))
	pipelinetest.Publish(t, js, pipelinetest.Workload(9, 5, 50)...)
	for range 2 {
		proxy := pipelinetest.NewProxy(t, server)
		storeOneBatch(t, proxy, top)
	}
	c, _, err := streams.ReadCheckpoint(t.Context(), js, top.Generation, 0)
	if err != nil {
		t.Fatal(err)
	}
	if c.Out == 0 || c.Part == 0 {
		t.Errorf("no record is stored in part: %+v", c)
	}
	s := start(t, js, worker.Config{Topology: top})
	pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	s.stop(t)
}

// A record whose bytes are gone when a part of it is stored is a dead letter all the same.
func TestRecordThatIsGoneInTheMiddleIsADeadLetter(t *testing.T) {
	t.Parallel()
	top := topology(1)
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	record := manyBlocks("many", 2500)
	claim, err := claims.NewStore(js).Put(t.Context(), record.Data)
	if err != nil {
		t.Fatal(err)
	}
	pipelinetest.PublishMessages(t.Context(), t, js, records.ClaimMessage(record))
	proxy := pipelinetest.NewProxy(t, server)
	storeOneBatch(t, proxy, top)
	inStore(t, js, func(store jetstream.ObjectStore) error { return store.Delete(t.Context(), claim.Digest) })
	s := start(t, js, worker.Config{Topology: top})
	if err := replay.CatchUp(deadline(t), js, top); err != nil {
		t.Fatal(err)
	}
	s.stop(t)
	if found := letters(t, js, events.DeadLettersQuery{}); len(found) != 1 || found[0].Reason != "claim_missing" {
		t.Errorf("dead letters: %+v", found)
	}
}

// A record that ends the process is given up in the end. All others are done, also those of
// other partitions, which end with it each time.
func TestPoisonRecordIsGivenUp(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("one worker after the other: the race detector sees nothing new in that")
	}
	for _, at := range []int{0, 200} {
		t.Run(fmt.Sprintf("at=%d", at), func(t *testing.T) {
			t.Parallel()
			top := topology(8)
			js := pipelinetest.NewServer(t).Provision(top)
			records := pipelinetest.Workload(10, 40, 400)
			records[at].Data = []byte(`{"type":"user","uuid":"poison","message":{"role":"user","content":"poison"}}`)
			pipelinetest.Publish(t, js, records...)
			lives := 0
			for !survived(t, js, top, func(r core.Record) bool { return bytes.Contains(r.Data, []byte("poison")) }) {
				if lives++; lives > 40 {
					t.Fatal("the record is tried again and again")
				}
			}
			if lives < worker.MaxAlone {
				t.Errorf("given up after %d lives, before it was tried alone", lives)
			}
			pipelinetest.Expectation{Topology: top, Crashed: []uint64{uint64(at) + 1}}.RequireExact(t, js)
		})
	}
}

// survived reports whether a stage does all records without meeting a deadly one.
func survived(t *testing.T, js jetstream.JetStream, top streams.Topology, deadly func(core.Record) bool) bool {
	t.Helper()
	ctx, cancel := context.WithCancel(deadline(t))
	defer cancel()
	s := startCrashing(t, js, worker.Config{Topology: top}, deadly)
	caughtUp := make(chan error, 1)
	go func() { caughtUp <- replay.CatchUp(ctx, js, top) }()
	select {
	case err := <-caughtUp:
		if err != nil {
			t.Fatal(err)
		}
		s.stop(t)
		return true
	case err := <-s.result:
		s.result <- err
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		cancel()
		if <-caughtUp == nil {
			t.Fatal("all is done, and yet the stage died")
		}
		return false
	}
}

// Restarts with nothing to do are no attempts on later records, and the end of a process does
// not count against the records of other partitions.
func TestRestartsOfIdleWorkersGiveNoRecordUp(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("one worker after the other: the race detector sees nothing new in that")
	}
	top := topology(4)
	js := pipelinetest.NewServer(t).Provision(top)
	for range worker.MaxAlone + 3 {
		s := start(t, js, worker.Config{Topology: top})
		ready(t, s)
		s.kill()
	}
	pipelinetest.Publish(t, js, pipelinetest.Workload(11, 40, 200)...)
	s := start(t, js, worker.Config{Topology: top})
	pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	s.kill()
	for p := range top.Partitions {
		c, _, err := streams.ReadCheckpoint(t.Context(), js, top.Generation, p)
		if err != nil || c.Raw == 0 || c.Tries != 0 {
			t.Errorf("after progress the checkpoint of partition %d is %+v, %v", p, c, err)
		}
	}
}

// Kills from outside, at any moment, count against no record.
func TestKillsFromOutsideGiveNoRecordUp(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("one worker after the other: the race detector sees nothing new in that")
	}
	top := topology(4)
	js := pipelinetest.NewServer(t).Provision(top)
	pipelinetest.Publish(t, js, pipelinetest.Workload(16, 30, 3000)...)
	random := rand.New(rand.NewPCG(16, 0))
	for range 30 {
		s := start(t, js, worker.Config{Topology: top})
		moment := time.NewTimer(time.Duration(random.Int64N(int64(200 * time.Millisecond))))
		<-moment.C
		s.kill()
	}
	s := start(t, js, worker.Config{Topology: top})
	pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	s.stop(t)
}

// ready waits until every partition of the stage is owned.
func ready(tb testing.TB, s *running) {
	tb.Helper()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	ctx := deadline(tb)
	for s.Ready() != nil {
		select {
		case <-poll.C:
		case <-ctx.Done():
			tb.Fatalf("not ready: %v", s.Ready())
		}
	}
}

// A record that cannot be done for the moment is not one that ends workers, however many of
// them are drained while they try it.
func TestDrainsGiveNoRecordUp(t *testing.T) {
	t.Parallel()
	top := topology(1)
	js := pipelinetest.NewServer(t).Provision(top)
	pipelinetest.Publish(t, js, user("s", "one"))
	for range worker.MaxAlone + 2 {
		tried, drained := make(chan struct{}, 1), make(chan struct{})
		s := start(t, js, worker.Config{Topology: top, Normalize: func(*core.Session, core.Record) (core.Result, error) {
			select {
			case tried <- struct{}{}:
			default:
			}
			<-drained
			<-time.After(20 * time.Millisecond) // by then the partition is draining, which this test is about
			return core.Result{}, errors.New("not now")
		}})
		select {
		case <-tried:
		case <-deadline(t).Done():
			t.Fatal("the record is not tried any more")
		}
		s.Drain()
		close(drained)
		s.stop(t)
	}
	s := start(t, js, worker.Config{Topology: top})
	if r := (pipelinetest.Expectation{Topology: top}).RequireExact(t, js); r.DeadLetters != 0 {
		t.Errorf("%d dead letters", r.DeadLetters)
	}
	s.stop(t)
}

// A panic costs the record, whether the normalizer catches it or not.
func TestPanicCostsOnlyItsRecord(t *testing.T) {
	t.Parallel()
	for _, caught := range []bool{true, false} {
		t.Run(fmt.Sprintf("caught=%t", caught), func(t *testing.T) {
			t.Parallel()
			top := topology(2)
			js := pipelinetest.NewServer(t).Provision(top)
			records := pipelinetest.Workload(12, 10, 400)
			pipelinetest.Publish(t, js, records...)
			normalize := func(s *core.Session, r core.Record) (core.Result, error) {
				if bytes.Contains(r.Data, []byte("lost or")) {
					if caught {
						return core.Result{}, &core.PanicError{Value: "boom"}
					}
					res, err := normalizers.Normalize(s, r) // and the session is no longer what it was
					if err == nil {
						panic("boom")
					}
					return res, err
				}
				return normalizers.Normalize(s, r)
			}
			var log logged
			s := start(t, js, worker.Config{Topology: top, Normalize: normalize, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			r := pipelinetest.Expectation{Topology: top, Normalize: normalize}.RequireExact(t, js)
			s.stop(t)
			if r.DeadLetters < 10 {
				t.Errorf("%d dead letters: the workload is too thin", r.DeadLetters)
			}
			if n := log.count("partitions lost"); n > 0 { // the batch before was in flight when the partition was acquired
				t.Errorf("partitions were lost %d times", n)
			}
		})
	}
}

// Records at which the normalizer panicked make room for the large ones behind them.
func TestPanicsMakeRoomForLargeRecords(t *testing.T) {
	t.Parallel()
	top := topology(1)
	js := pipelinetest.NewServer(t, smallMessages).Provision(top)
	claims := claims.NewStore(js)
	for i := range 4 {
		r := prompt("s1", i+1, 1200<<10)
		if _, err := claims.Put(t.Context(), r.Data); err != nil {
			t.Fatal(err)
		}
		pipelinetest.PublishMessages(t.Context(), t, js, records.ClaimMessage(r))
	}
	normalize := func(s *core.Session, r core.Record) (core.Result, error) {
		if r.Sequence < 3 {
			panic("boom")
		}
		return normalizers.Normalize(s, r)
	}
	s := start(t, js, worker.Config{Topology: top, Normalize: normalize, ClaimBytes: 2 << 20})
	if r := (pipelinetest.Expectation{Topology: top, Normalize: normalize}).RequireExact(t, js); r.DeadLetters != 2 {
		t.Errorf("%d dead letters", r.DeadLetters)
	}
	s.stop(t)
}

// Sessions that do not fit in memory are evicted and loaded again.
func TestTinySessionCacheChangesNothing(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("one worker after the other: the race detector sees nothing new in that")
	}
	top := topology(2)
	js := pipelinetest.NewServer(t).Provision(top)
	records := pipelinetest.Workload(13, 300, 3000)
	s := start(t, js, worker.Config{Topology: top, SessionBytes: 1})
	for len(records) > 0 { // in many commits, between which sessions are evicted
		n := min(300, len(records))
		pipelinetest.Publish(t, js, records[:n]...)
		records = records[n:]
		if err := replay.CatchUp(deadline(t), js, top); err != nil {
			t.Fatal(err)
		}
	}
	pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	s.stop(t)
}

// A session that is over leaves the memory of a long drain, also where there is room for it, and a late record finds
// its state in the stream.
func TestSessionThatIsOverLeavesTheMemory(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("many records: the race detector sees nothing new in them")
	}
	top := topology(1)
	js := pipelinetest.NewServer(t).Provision(top)
	records := []core.Record{user("over", "one")}
	for i := range worker.IdleRecords + 500 {
		records = append(records, user("busy"+strconv.Itoa(i%4), "more"))
	}
	pipelinetest.Publish(t, js, append(records, user("over", "two"))...)
	metrics := sdkmetric.NewManualReader()
	s := start(t, js, worker.Config{Topology: top, Meter: sdkmetric.NewMeterProvider(sdkmetric.WithReader(metrics)).Meter("test")})
	pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	if n := sum(t, metrics, "tributary.session.lookups", attribute.String("result", "miss")); n != 6 {
		t.Errorf("%d states were read, want those of 5 sessions and one again", n)
	}
	s.stop(t)
}

// A file that is shipped again, when the broker no longer knows its message ids, yields
// nothing: the session remembers the last position.
func TestFileShippedAgainYieldsNothing(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("one worker after the other: the race detector sees nothing new in that")
	}
	top := topology(2)
	js := pipelinetest.NewServer(t).Provision(top)
	records := pipelinetest.Workload(14, 10, 300)
	s := start(t, js, worker.Config{Topology: top})
	x := pipelinetest.Expectation{Topology: top}
	pipelinetest.Publish(t, js, records...)
	once := x.RequireExact(t, js)
	pipelinetest.Publish(t, js, records...)
	twice := x.RequireExact(t, js)
	s.stop(t)
	if twice.Records != 2*once.Records || twice.Events != once.Events {
		t.Errorf("events grew from %d to %d", once.Events, twice.Events)
	}
}

// A drained worker stores what it has normalized before it ends.
func TestDrainStoresWhatIsNormalized(t *testing.T) {
	t.Parallel()
	top := topology(4)
	js := pipelinetest.NewServer(t).Provision(top)
	pipelinetest.Publish(t, js, pipelinetest.Workload(15, 20, 2000)...)
	var mu sync.Mutex
	normalized := make(map[uint64]bool)
	stage := make(chan *running, 1)
	s := startCrashing(t, js, worker.Config{Topology: top}, func(r core.Record) bool {
		mu.Lock()
		defer mu.Unlock()
		if normalized[r.Sequence] = true; len(normalized) == 700 {
			(<-stage).Drain()
		}
		return false
	})
	stage <- s
	if err := s.wait(t); err != nil {
		t.Fatal(err)
	}
	done := uint64(0)
	for p := range top.Partitions {
		c, _, err := streams.ReadCheckpoint(t.Context(), js, top.Generation, p)
		if err != nil {
			t.Fatal(err)
		}
		if c.Raw > 0 && !normalized[c.Raw] {
			t.Errorf("checkpoint of partition %d is at %d, which was not normalized", p, c.Raw)
		}
		done = max(done, c.Raw)
	}
	last := uint64(0)
	for r := range normalized {
		last = max(last, r)
	}
	if done != last {
		t.Errorf("the last record normalized is %d, the last one stored %d", last, done)
	}
	again := start(t, js, worker.Config{Topology: top})
	pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	again.stop(t)
}
