package worker_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// Another worker replaces one whose packets are dropped, and which nothing resets, and the log of
// both and the metrics state it. When packets arrive again, its silent connection is given up and
// it works on.
func TestWorkerWhosePacketsAreDroppedIsReplaced(t *testing.T) {
	t.Parallel()
	top := topology(4)
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	proxy := pipelinetest.NewProxy(t, server)
	own := pipelinetest.Connect(t, proxy.URL(), nats.PingInterval(100*time.Millisecond), nats.MaxPingsOutstanding(2), nats.ReconnectBufSize(-1))
	var log, otherLog logged
	reader := sdkmetric.NewManualReader()
	cut, other := member(top, "cut"), member(top, "other")
	cut.Logger, other.Logger = slog.New(slog.NewTextHandler(&log, nil)), slog.New(slog.NewTextHandler(&otherLog, nil))
	other.Meter = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("test")
	workers := []*running{start(t, own, cut)}
	settled(t, js, top, map[string]int{"cut": 4}) // two that start at once can acquire the same partitions
	ready(t, workers[0])
	workers = append(workers, start(t, server.JetStream(), other))
	settled(t, js, top, map[string]int{"cut": 2, "other": 2})
	records := pipelinetest.Workload(71, 30, 450)
	pipelinetest.Publish(t, js, records[:150]...)
	x := pipelinetest.Expectation{Topology: top}
	x.RequireExact(t, js) // so each is the last owner of its partitions
	proxy.Swallow()
	pipelinetest.Publish(t, js, records[150:300]...)
	settled(t, js, top, map[string]int{"other": 4})
	x.RequireExact(t, js)
	log.await(t, "heartbeats of the workers cannot be exchanged", 1)
	otherLog.await(t, "cause=takeover from=cut", 1)
	// On a slow machine the other may have replaced it before the packets were dropped: all of its acquisitions count.
	if all, takeovers := sum(t, reader, "tributary.acquisitions"), sum(t, reader, "tributary.acquisitions", attribute.String("cause", "takeover")); all < 4 || takeovers < 1 {
		t.Errorf("%d acquisitions are counted, %d of them takeovers, want at least one of each of 4 partitions and a takeover", all, takeovers)
	}
	proxy.Mend()
	settled(t, js, top, map[string]int{"cut": 2, "other": 2})
	pipelinetest.Publish(t, js, records[300:]...)
	x.RequireExact(t, js)
	for _, w := range workers {
		w.stop(t)
	}
}

// blindfold makes connections that lose the requests for heartbeats of the workers, and no
// others, while it is on.
type blindfold struct{ on atomic.Bool }

// Dial is that of [net.Dialer].
func (b *blindfold) Dial(network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(context.Background(), network, address)
	return blindConn{c, b}, err
}

type blindConn struct {
	net.Conn
	*blindfold
}

// Write never gets a part of a subject: the client writes them as a whole.
func (c blindConn) Write(p []byte) (int, error) {
	if c.on.Load() {
		bucket := "KV_" + streams.WorkersBucket
		for _, subject := range []string{"$JS.API.STREAM.INFO." + bucket, "$JS.API.DIRECT.GET." + bucket, "PUB $KV." + streams.WorkersBucket} {
			p = bytes.ReplaceAll(p, []byte(subject), []byte(strings.ReplaceAll(subject, "$", "X")))
		}
	}
	return c.Conn.Write(p)
}

// logged is what a worker logs.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns everything that was logged.
func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// count returns how often a text was logged.
func (l *logged) count(text string) int { return strings.Count(l.String(), text) }

// await waits until a text was logged so many times.
func (l *logged) await(tb testing.TB, text string, times int) {
	tb.Helper()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	ctx := deadline(tb)
	for {
		if l.count(text) >= times {
			return
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			tb.Fatalf("not logged %d times: %s\n%s", times, text, l.String())
		}
	}
}

// A worker that cannot read the heartbeats of the others, and was overtaken, leaves the
// partitions to the other worker until it can. One that starts then joins as soon as it can.
func TestBlindWorkersDoNotDuel(t *testing.T) {
	t.Parallel()
	top := topology(6)
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	var blinded, late blindfold
	var log logged
	cfg := member(top, "blind")
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	blind := start(t, server.JetStream(nats.SetCustomDialer(&blinded)), cfg)
	settled(t, js, top, map[string]int{"blind": 6})
	blinded.on.Store(true)
	records := pipelinetest.Workload(72, 40, 800)
	seeing := start(t, server.JetStream(), member(top, "seeing"))
	settled(t, js, top, map[string]int{"seeing": 6})
	late.on.Store(true)
	starting := start(t, server.JetStream(nats.SetCustomDialer(&late)), member(top, "late"))

	pipelinetest.Publish(t, js, records[:200]...)
	log.await(t, "cause=overtaken", 1)
	epochs := func() (list []uint64) {
		for p := range top.Partitions {
			c, _, err := streams.ReadCheckpoint(t.Context(), js, top.Generation, p)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, c.Epoch)
		}
		return list
	}
	x := pipelinetest.Expectation{Topology: top}
	before := epochs()
	rest, together := records[200:], 60
	if testing.Short() {
		rest, together = rest[:200], 100
	}
	for some := range slices.Chunk(rest, together) {
		pipelinetest.Publish(t, js, some...)
		if err := replay.CatchUp(deadline(t), js, top); err != nil {
			t.Fatal(err)
		}
		awaitHeartbeats(t, js, 8)
	}
	x.RequireExact(t, js)
	if after := epochs(); !slices.Equal(before, after) {
		t.Errorf("the workers acquire the partitions from each other: epochs %v, then %v", before, after)
	}
	blinded.on.Store(false)
	late.on.Store(false)
	settled(t, js, top, map[string]int{"blind": 2, "seeing": 2, "late": 2})
	x.RequireExact(t, js)
	for _, w := range []*running{blind, seeing, starting} {
		w.stop(t)
	}
}

// A worker that has not joined the others ends when it is drained.
func TestWorkerIsDrainedBeforeItHasJoined(t *testing.T) {
	t.Parallel()
	top := topology(2)
	server := pipelinetest.NewServer(t)
	server.Provision(top)
	var blinded blindfold
	blinded.on.Store(true)
	var log logged
	cfg := member(top, "w")
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	s := start(t, server.JetStream(nats.SetCustomDialer(&blinded)), cfg)
	log.await(t, "heartbeats of the workers cannot be exchanged", 1)
	if err := s.Ready(); err == nil {
		t.Error("a worker that has not joined is ready")
	}
	s.stop(t)
}

// A commit for several partitions, of which another worker has acquired one, is stored for the
// others without acquiring them again.
func TestFenceCostsOnlyThePartitionThatWasOvertaken(t *testing.T) {
	t.Parallel()
	top := topology(8)
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	records := make([]core.Record, 40)
	for i := range records {
		records[i] = user("s"+string(rune('a'+i%26))+string(rune('a'+i/26)), "water")
	}
	pipelinetest.Publish(t, js, records...)
	raw, err := js.Stream(t.Context(), streams.RawStream)
	if err != nil {
		t.Fatal(err)
	}
	partitions := make(map[uint64]int) // by sequence
	overtaken := partitionOf(t, raw, 1)
	for sequence := uint64(1); sequence <= uint64(len(records)); sequence++ {
		if partitions[sequence] = partitionOf(t, raw, sequence); overtaken == partitions[1] {
			overtaken = partitions[sequence]
		}
	}
	proxy := pipelinetest.NewProxy(t, server)
	proxy.Arm(pipelinetest.DelayAck)
	var acquired sync.WaitGroup // the partitions but for that of the first record
	going, arrived := make(chan struct{}), make(map[int]func())
	for _, p := range partitions {
		if p != partitions[1] && arrived[p] == nil {
			acquired.Add(1)
			arrived[p] = sync.OnceFunc(acquired.Done)
		}
	}
	s := start(t, pipelinetest.Connect(t, proxy.URL()), worker.Config{Topology: top, Normalize: func(s *core.Session, r core.Record) (core.Result, error) {
		if p := partitions[r.Sequence]; p != partitions[1] {
			arrived[p]()
			<-going
		} else {
			acquired.Wait() // behind its delayed acknowledgement, nothing would reach the others
		}
		return normalizers.Normalize(s, r)
	}})
	select {
	case <-proxy.Done:
	case <-deadline(t).Done():
		t.Fatal("the first record is not stored")
	}
	c, sequence, err := streams.ReadCheckpoint(t.Context(), js, top.Generation, overtaken)
	if err != nil {
		t.Fatal(err)
	}
	c.Owner, c.Epoch = "another", c.Epoch+1
	if _, err := c.Store(t.Context(), js, top.Generation, overtaken, sequence); err != nil {
		t.Fatal(err)
	}
	close(going)
	proxy.Release()
	pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	for p := range top.Partitions {
		want := uint64(1)
		if p == overtaken {
			want = 3
		}
		if c, _, err := streams.ReadCheckpoint(t.Context(), js, top.Generation, p); err != nil || c.Epoch != want {
			t.Errorf("partition %d was acquired %d times, want %d, %v", p, c.Epoch, want, err)
		}
	}
	s.stop(t)
}

// A worker that is drained goes on with its heartbeats, so that no other takes over a partition
// while it stores the last record.
func TestDrainingWorkerKeepsWhatItStillStores(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the worker gives the record up after two seconds, which are few heartbeats for the race detector")
	}
	top := topology(2)
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	h := newHang(t, 1)
	cfg := member(top, "leaving")
	cfg.Normalize = h.normalize
	leaving := start(t, server.JetStream(), cfg)
	settled(t, js, top, map[string]int{"leaving": 2})
	pipelinetest.Publish(t, js, user("s", "water"))
	raw, err := js.Stream(t.Context(), streams.RawStream)
	if err != nil {
		t.Fatal(err)
	}
	kept := partitionOf(t, raw, 1)
	select {
	case <-h.entered:
	case <-deadline(t).Done():
		t.Fatal("the record is not tried")
	}
	heir := start(t, server.JetStream(), member(top, "heir"))
	leaving.Drain()
	awaitLeaving(t, js, top, 8)
	if c, _, err := streams.ReadCheckpoint(t.Context(), js, top.Generation, kept); err != nil || !strings.HasPrefix(c.Owner, "leaving-") {
		t.Errorf("the partition of the record was taken over by %s, %v", c.Owner, err)
	}
	h.end()
	if err := leaving.wait(t); err != nil {
		t.Error(err)
	}
	settled(t, js, top, map[string]int{"heir": 2})
	if c, _, err := streams.ReadCheckpoint(t.Context(), js, top.Generation, kept); err != nil || c.Raw != 1 {
		t.Errorf("the record is not stored: %+v, %v", c, err)
	}
	pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	heir.stop(t)
}

// awaitLeaving waits for so many heartbeats of a worker that is drained.
func awaitLeaving(t *testing.T, js jetstream.JetStream, top streams.Topology, beats int) {
	t.Helper()
	ctx := deadline(t)
	kv, err := js.KeyValue(ctx, streams.WorkersBucket)
	if err != nil {
		t.Fatal(err)
	}
	watcher, err := kv.Watch(ctx, top.Generation+".leaving")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = watcher.Stop() }()
	for seen := 0; seen < beats; {
		select {
		case e := <-watcher.Updates():
			if e != nil && bytes.Contains(e.Value(), []byte(`"leaving":true`)) {
				seen++
			}
		case <-ctx.Done():
			t.Fatalf("%d heartbeats of a worker that is drained", seen)
		}
	}
}
