package worker_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

const expiredLine = "records left the raw stream before they were read"

// retention is a store from which records leave.
type retention struct {
	*testing.T
	js     jetstream.JetStream
	top    streams.Topology
	server *pipelinetest.Server
	sent   int    // records
	done   int64  // records that workers have counted as done
	log    logged // of all workers
}

func newRetention(t *testing.T, top streams.Topology) *retention {
	t.Helper()
	server := pipelinetest.NewServer(t)
	return &retention{T: t, js: server.Provision(top), top: top, server: server}
}

// publish sends records of many sessions.
func (r *retention) publish(seed uint64, n int) {
	r.Helper()
	pipelinetest.Publish(r, r.js, pipelinetest.Workload(seed, 20, n)[:n]...)
	r.sent += n
}

// retained is a worker whose metrics are read.
type retained struct {
	*running
	reader sdkmetric.Reader
}

func (r *retention) start(cfg worker.Config) *retained {
	r.Helper()
	reader := sdkmetric.NewManualReader()
	cfg.Meter = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("test")
	cfg.Topology, cfg.Logger = r.top, slog.New(slog.NewTextHandler(&r.log, nil))
	return &retained{start(r, r.js, worker.Looking(cfg, 20*time.Millisecond)), reader}
}

// drain waits until everything that is there is done, and until the worker that is alone has looked at that.
func (r *retention) drain(w *retained) {
	r.Helper()
	if err := replay.CatchUp(deadline(r), r.js, r.top); err != nil {
		r.Fatal(err)
	}
}

// stop drains a worker and counts what it has done.
func (r *retention) stop(w *retained) {
	r.Helper()
	r.drain(w)
	w.stop(r)
	r.done += sum(r, w.reader, "tributary.records")
}

// remove removes the records before a sequence from the raw stream of a cell, as their age does.
func (r *retention) remove(cell int, first uint64) {
	r.Helper()
	s, err := r.js.Stream(r.Context(), streams.RawStreamOf(cell))
	if err != nil {
		r.Fatal(err)
	}
	if err := s.Purge(r.Context(), jetstream.WithPurgeSequence(first)); err != nil {
		r.Fatal(err)
	}
}

// lost returns what is counted for a generation, without those that are acknowledged.
func (r *retention) lost(generation string) (open int, list []replay.Expired) {
	r.Helper()
	all, err := replay.ReadExpired(r.Context(), r.js)
	if err != nil {
		r.Fatal(err)
	}
	for _, e := range all {
		if e.Generation == generation {
			open, list = open+int(e.Open()), append(list, e)
		}
	}
	return open, list
}

// requireLost fails the test unless so many records are counted as lost.
func (r *retention) requireLost(want int) {
	r.Helper()
	if n, list := r.lost(r.top.Generation); n != want {
		r.Errorf("%d records are lost, want %d: %+v", n, want, list)
	}
}

// open returns the gauge of a worker.
func (w *retained) open(tb testing.TB) (n int64) {
	tb.Helper()
	var got metricdata.ResourceMetrics
	if err := w.reader.Collect(tb.Context(), &got); err != nil {
		tb.Fatal(err)
	}
	for _, s := range got.ScopeMetrics {
		for _, m := range s.Metrics {
			if data, ok := m.Data.(metricdata.Gauge[int64]); ok && m.Name == "tributary.expired.open" {
				for _, p := range data.DataPoints {
					n += p.Value
				}
			}
		}
	}
	return n
}

// await waits until a condition is true.
func (r *retention) await(what string, is func() bool) {
	r.Helper()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for ctx := deadline(r); !is(); {
		select {
		case <-look.C:
		case <-ctx.Done():
			r.Fatalf("%s: not seen\n%s", what, r.log.String())
		}
	}
}

// What expires while no worker is there is a number of records, before a worker starts and after, in the log, in the
// metrics and across restarts, until it is acknowledged; and so is what expires later. Sent is what was done and what is reported.
func TestRecordsThatExpireWhileWorkersAreAwayAreCounted(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*retention, *retained){
		"drained": func(r *retention, w *retained) { r.stop(w) },
		"killed": func(r *retention, w *retained) {
			r.drain(w)
			r.await("the records are counted", func() bool { return sum(r, w.reader, "tributary.records") == int64(r.sent) })
			r.done += int64(r.sent)
			w.kill()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRetention(t, topology(4))
			r.publish(1, 300)
			end(r, r.start(worker.Config{}))
			r.remove(0, 200) // of records that are done
			r.requireLost(0)
			r.publish(2, 500)
			r.remove(0, 601)
			r.requireLost(300)
			r.server.Restart()
			r.js = r.server.JetStream()
			w := r.start(worker.Config{})
			r.log.await(t, expiredLine, 1)
			r.drain(w)
			r.requireLost(300)
			r.await("the gauge", func() bool { return w.open(t) == 300 })
			r.stop(w)
			if n := sum(t, w.reader, "tributary.expired"); n != 300 || r.done+n != int64(r.sent) {
				t.Errorf("%d expired and %d done of %d sent", n, r.done, r.sent)
			}
			pipelinetest.RequireInOrder(t, r.log.String(), "level=ERROR", expiredLine, "TRIBUTARY_RAW_MAX_AGE", "tributary ship --again", "tributary doctor acknowledge",
				"generation=v1", "stream=RAW", "records=300")

			w = r.start(worker.Config{}) // says so again, and counts nothing again
			r.log.await(t, expiredLine, 2)
			r.await("the gauge", func() bool { return w.open(t) == 300 })
			r.requireLost(300)
			found, err := replay.AcknowledgeExpired(t.Context(), r.js)
			if err != nil || len(found) != 1 || found[0].Open() != 300 || found[0].Least || found[0].From.IsZero() || found[0].From.After(found[0].To) {
				t.Errorf("acknowledged %+v, %v", found, err)
			}
			r.await("the gauge", func() bool { return w.open(t) == 0 })
			r.requireLost(0)
			if n := sum(t, w.reader, "tributary.expired"); n != 0 {
				t.Errorf("%d records are counted twice", n)
			}
			r.stop(w)

			r.publish(3, 100)
			r.remove(0, 851)
			r.requireLost(50)
			w = r.start(worker.Config{})
			r.log.await(t, expiredLine, 3)
			r.stop(w)
			if n := sum(t, w.reader, "tributary.expired"); n != 50 || r.done+350 != int64(r.sent) {
				t.Errorf("%d expired and %d done of %d sent", n, r.done, r.sent)
			}
			pipelinetest.RequireInOrder(t, r.log.String(), "records=300", "records=0 unacknowledged=300", "records=50 unacknowledged=50")
		})
	}
}

// An owner that stores its checkpoint again, as one does that acquires the partition or moves states, has done nothing meanwhile:
// what expired is counted in full.
func TestExpiredRecordsAreCountedWhileCheckpointsAreStoredAgain(t *testing.T) {
	t.Parallel()
	r := newRetention(t, topology(1))
	r.publish(1, 100)
	r.stop(r.start(worker.Config{}))
	r.publish(2, 50)
	r.remove(0, 141)
	done, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		js := r.server.JetStream()
		for {
			select {
			case <-done:
				stopped <- nil
				return
			default:
			}
			c, sequence, err := streams.ReadCheckpoint(t.Context(), js, "v1", 0)
			if err == nil {
				_, err = c.Store(t.Context(), js, "v1", 0, sequence)
			}
			if err != nil {
				stopped <- err
				return
			}
		}
	}()
	for range 100 {
		r.requireLost(40)
	}
	close(done)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// A partition that does not go on loses records while the other one is ahead of what expires: that is reported while it stands.
func TestRecordsThatExpireBeforeASlowPartitionAreCounted(t *testing.T) {
	t.Parallel()
	r := newRetention(t, topology(2))
	var slow, fast []core.Record // of one partition each
	for _, record := range pipelinetest.Workload(11, 20, 1200)[:1200] {
		if envelopes.Partition(record.Source, record.Session, 2) == 0 {
			slow = append(slow, record)
		} else {
			fast = append(fast, record)
		}
	}
	slow, fast = slow[:100], fast[:400]
	h := newHang(t, 3)
	w := r.start(worker.Config{Normalize: h.normalize, RecordTimeout: time.Hour})
	for _, some := range [][]core.Record{slow[:10], fast[:300], slow[10:], fast[300:]} {
		pipelinetest.Publish(t, r.js, some...)
		r.sent += len(some)
	}
	<-h.entered
	r.await("the other partition is done", func() bool { return sum(t, w.reader, "tributary.records") >= int64(len(fast)) })
	w.kill()
	r.done = sum(t, w.reader, "tributary.records")
	h.end()
	r.requireLost(0)
	r.remove(0, 361)

	h = newHang(t, 361)
	w = r.start(worker.Config{Normalize: h.normalize, RecordTimeout: time.Hour})
	<-h.entered
	want := 60 - int(r.done) + len(fast) // of those of the slow partition up to 360
	r.await("the gauge", func() bool { return w.open(t) == int64(want) })
	r.requireLost(want)
	h.end()
	r.stop(w)
	r.requireLost(want)
	if n := sum(t, w.reader, "tributary.expired"); r.done+n != int64(r.sent) {
		t.Errorf("%d done and %d lost of %d", r.done, n, r.sent)
	}
}

// A worker is so far behind that records expire that it has not read: they are counted while it runs. Those that it had in
// memory are done, and count no longer then.
func TestRecordsThatExpireBeforeAWorkerThatIsBehindAreCounted(t *testing.T) {
	pipelinetest.SkipShort(t)
	t.Parallel()
	r := newRetention(t, topology(1))
	h := newHang(t, 3)
	w := r.start(worker.Config{Normalize: h.normalize, RecordTimeout: time.Hour})
	const n = 300
	for i := range n {
		pipelinetest.Publish(t, r.js, prompt(fmt.Sprint("s", i%7), i, 100<<10))
	}
	r.sent = n
	<-h.entered
	r.remove(0, n-9)
	r.log.await(t, expiredLine, 1)
	h.end()
	r.stop(w)
	lost := r.sent - int(r.done)
	if r.done < 10 || lost < 20 {
		t.Fatalf("%d records are done: the worker had all in memory", r.done)
	}
	r.requireLost(lost)
}

// Records that are done may expire, be purged by their session, or be removed one by one: nothing is reported. Those that
// are not done count, wherever they are.
func TestRecordsThatAreDoneMayLeave(t *testing.T) {
	t.Parallel()
	r := newRetention(t, topology(3))
	raw, err := r.js.Stream(t.Context(), streams.RawStream)
	if err != nil {
		t.Fatal(err)
	}
	r.publish(21, 200)
	w := r.start(worker.Config{})
	r.drain(w)
	first, err := raw.GetMsg(t.Context(), 50)
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.DeleteMsg(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	if err := raw.Purge(t.Context(), jetstream.WithPurgeSubject(first.Subject)); err != nil {
		t.Fatal(err)
	}
	r.requireLost(0)
	r.stop(w)
	r.publish(22, 50)
	for _, sequence := range []uint64{220, 221, 240} {
		if err := raw.DeleteMsg(t.Context(), sequence); err != nil {
			t.Fatal(err)
		}
	}
	w = r.start(worker.Config{})
	r.stop(w)
	r.requireLost(3)
	if r.done != int64(r.sent-3) {
		t.Errorf("%d done of %d", r.done, r.sent)
	}
	r.remove(0, 251) // the whole stream
	r.requireLost(3)
}

// A store that an older version worked on has checkpoints that count nothing. What expired before the first worker of this
// version is counted from what all partitions had done, and later losses as ever; nothing that was done is.
func TestStoreOfAnOlderVersionIsCounted(t *testing.T) {
	t.Parallel()
	r := newRetention(t, topology(4))
	older := func() { // forgets the counts
		for p := range r.top.Partitions {
			c, sequence, err := streams.ReadCheckpoint(t.Context(), r.js, "v1", p)
			if err != nil {
				t.Fatal(err)
			}
			c.Records, c.Counted = 0, 0
			if _, err := c.Store(t.Context(), r.js, "v1", p, sequence); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.publish(31, 300)
	r.stop(r.start(worker.Config{}))
	older()
	r.publish(32, 200)
	r.requireLost(0)
	r.remove(0, 401)
	r.requireLost(100)
	if _, err := replay.AcknowledgeExpired(t.Context(), r.js); err != nil {
		t.Fatal(err)
	}
	w := r.start(worker.Config{})
	r.stop(w)
	r.requireLost(0)
	r.publish(33, 100)
	r.stop(r.start(worker.Config{}))
	older()
	r.requireLost(0)
	r.remove(0, 601)
	r.publish(34, 100)
	r.stop(r.start(worker.Config{}))
	r.requireLost(0)
	r.publish(35, 100)
	r.remove(0, 771)
	r.requireLost(70)
}

// Of several cells each has a raw stream that loses its own records, and a replay that is slower than they expire loses
// records that the live generation has.
func TestEachCellAndEachGenerationCountsItsOwn(t *testing.T) {
	t.Parallel()
	top := topology(4)
	top.Cells = 2
	r := newRetention(t, top)
	r.publish(41, 400)
	r.stop(r.start(worker.Config{}))
	if _, err := replay.Start(t.Context(), r.js, replay.Request{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	r.remove(1, 101)
	r.requireLost(0)
	if n, list := r.lost("b"); n != 100 || len(list) != 1 || list[0].Stream != "RAW_1" {
		t.Errorf("%d records are lost: %+v", n, list)
	}
	build(t, r.js, top, replay.Request{Name: "b"}, nil)
	if n, list := r.lost("b"); n != 100 {
		t.Errorf("%d records are lost: %+v", n, list)
	}
	if err := replay.Drop(t.Context(), r.js, "b"); err != nil {
		t.Fatal(err)
	}
	// What had expired before a replay was started is no loss of it.
	build(t, r.js, top, replay.Request{Name: "b", Expired: true}, nil)
	if n, list := r.lost("b"); n != 0 {
		t.Errorf("%d records are lost: %+v", n, list)
	}
}

// Records expire by their age, and by the bytes of a stream that an operator changed while no worker was there.
func TestLimitsThatDiscardUnreadRecordsAreNoticed(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]func(*jetstream.StreamConfig){
		"age":   func(c *jetstream.StreamConfig) { c.MaxAge, c.Duplicates = time.Second, time.Second },
		"bytes": func(c *jetstream.StreamConfig) { c.MaxBytes, c.Discard = 64<<10, jetstream.DiscardOld },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRetention(t, topology(3))
			r.publish(51, 100)
			r.stop(r.start(worker.Config{}))
			r.publish(52, 400)
			raw, err := r.js.Stream(t.Context(), streams.RawStream)
			if err != nil {
				t.Fatal(err)
			}
			kept := raw.CachedInfo().Config
			short := kept
			limit(&short)
			if _, err := r.js.UpdateStream(t.Context(), short); err != nil {
				t.Fatal(err)
			}
			r.await("the stream discards", func() bool {
				info, err := raw.Info(t.Context())
				return err == nil && info.State.FirstSeq > 200
			})
			if _, err := r.js.UpdateStream(t.Context(), kept); err != nil {
				t.Fatal(err)
			}
			w := r.start(worker.Config{})
			r.log.await(t, expiredLine, 1)
			r.stop(w)
			r.requireLost(r.sent - int(r.done))
		})
	}
}
