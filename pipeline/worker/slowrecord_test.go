package worker_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/events"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/records"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// hang is a normalizer that does not return from the record of a raw sequence until the test
// ends, or release is closed.
type hang struct {
	sequence uint64
	entered  chan struct{} // receives each attempt
	release  chan struct{}
	attempts atomic.Int64
}

func newHang(tb testing.TB, sequence uint64) *hang {
	tb.Helper()
	h := &hang{sequence: sequence, entered: make(chan struct{}, 100), release: make(chan struct{})}
	tb.Cleanup(h.end)
	return h
}

// end makes the normalizer return. Only one goroutine may call it; it may do so more than once.
func (h *hang) end() {
	select {
	case <-h.release:
	default:
		close(h.release)
	}
}

func (h *hang) normalize(s *core.Session, r core.Record) (core.Result, error) {
	if r.Sequence == h.sequence {
		h.attempts.Add(1)
		h.entered <- struct{}{}
		<-h.release
	}
	return normalizers.Normalize(s, r)
}

// timedOut is the normalizer of the oracle: the record is a dead letter.
func (h *hang) timedOut(s *core.Session, r core.Record) (core.Result, error) {
	if r.Sequence == h.sequence {
		return core.Result{}, records.ErrTimeout
	}
	return normalizers.Normalize(s, r)
}

// awaitDone waits until the partitions but one are done.
func awaitDone(t *testing.T, js jetstream.JetStream, top streams.Topology, without int) {
	t.Helper()
	raw, err := js.Stream(t.Context(), streams.RawStream)
	if err != nil {
		t.Fatal(err)
	}
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	ctx := deadline(t)
	for p := range top.Partitions {
		if p == without {
			continue
		}
		last, err := raw.GetLastMsgForSubject(ctx, fmt.Sprintf("raw.%d.*.*", p))
		if err != nil {
			t.Fatal(err)
		}
		for done := uint64(0); done < last.Sequence; {
			select {
			case <-look.C:
			case <-ctx.Done():
				t.Fatalf("partition %d is at record %d of %d", p, done, last.Sequence)
			}
			c, _, err := streams.ReadCheckpoint(ctx, js, top.Generation, p)
			if err != nil {
				t.Fatal(err)
			}
			done = c.Raw
		}
	}
}

// While the normalizer hangs on one record, the other partitions go on; a drain does not wait
// for it, and the next worker begins with the record.
func TestHangingNormalizerStopsNeitherTheOthersNorTheDrain(t *testing.T) {
	t.Parallel()
	top := topology(4)
	js := pipelinetest.NewServer(t).Provision(top)
	records := pipelinetest.Workload(61, 30, 450)
	pipelinetest.Publish(t, js, records[:150]...)
	h := newHang(t, 100)
	cfg := member(top, "w")
	cfg.Normalize = h.normalize
	s := start(t, js, cfg)
	select {
	case <-h.entered:
	case <-deadline(t).Done():
		t.Fatal("the record is not tried")
	}
	raw, err := js.Stream(t.Context(), streams.RawStream)
	if err != nil {
		t.Fatal(err)
	}
	pipelinetest.Publish(t, js, records[150:]...)
	hanging := partitionOf(t, raw, h.sequence)
	awaitDone(t, js, top, hanging)
	s.stop(t)
	if n := h.attempts.Load(); n != 1 {
		t.Errorf("%d attempts", n)
	}
	if c, _, err := streams.ReadCheckpoint(t.Context(), js, top.Generation, hanging); err != nil || c.Raw >= h.sequence || c.Timeouts != 0 {
		t.Errorf("checkpoint of the partition of the record: %+v, %v", c, err)
	}
	again := start(t, js, member(top, "again"))
	pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	again.stop(t)
}

// A record at which the normalizer hangs is tried by workers until it is a dead letter. A worker
// whose normalizer hangs is not ready, and the others get its partitions.
func TestRecordAtWhichTheNormalizerHangsIsADeadLetter(t *testing.T) {
	t.Parallel()
	top := topology(4)
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	h := newHang(t, 150)
	var workers []*running
	for _, name := range []string{"w0", "w1"} {
		cfg := member(top, name)
		cfg.Normalize, cfg.RecordTimeout = h.normalize, 300*time.Millisecond
		workers = append(workers, start(t, server.JetStream(), cfg))
	}
	settled(t, js, top, map[string]int{"w0": 2, "w1": 2})
	pipelinetest.Publish(t, js, pipelinetest.Workload(62, 30, 600)...)
	x := pipelinetest.Expectation{Topology: top, Normalize: h.timedOut}
	x.RequireExact(t, js)
	found := letters(t, js, events.DeadLettersQuery{Reason: "timeout"})
	if len(found) != 1 || found[0].Sequence != h.sequence || h.attempts.Load() < worker.MaxTimeouts {
		t.Errorf("%d attempts, dead letters %+v", h.attempts.Load(), found)
	}
	hanging := 0
	for _, w := range workers {
		if err := w.Ready(); err != nil && strings.Contains(err.Error(), "record 150: the normalizer has not returned") {
			hanging++
		}
	}
	all, err := streams.Workers(t.Context(), js, top.Generation)
	if err != nil {
		t.Fatal(err)
	}
	if hanging == 0 {
		t.Errorf("no worker says that its normalizer hangs: %+v", all)
	}
	h.end()
	settled(t, js, top, map[string]int{"w0": 2, "w1": 2})
	pipelinetest.Publish(t, js, pipelinetest.Workload(63, 30, 300)...)
	x.RequireExact(t, js)
	for _, w := range workers {
		ready(t, w)
		w.stop(t)
	}
}

// Once, the normalizer takes too long, on a machine that is out of breath: the record is no dead
// letter.
func TestRecordThatIsSlowOnceIsNormalized(t *testing.T) {
	t.Parallel()
	top := topology(2)
	js := pipelinetest.NewServer(t).Provision(top)
	h := newHang(t, 40)
	cfg := worker.Config{Topology: top, RecordTimeout: 200 * time.Millisecond}
	cfg.Normalize = func(s *core.Session, r core.Record) (core.Result, error) {
		if r.Sequence == h.sequence && h.attempts.Load() > 0 {
			return normalizers.Normalize(s, r)
		}
		return h.normalize(s, r)
	}
	pipelinetest.Publish(t, js, pipelinetest.Workload(64, 10, 200)...)
	s := start(t, js, cfg)
	pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	for p := range top.Partitions {
		if c, _, err := streams.ReadCheckpoint(t.Context(), js, top.Generation, p); err != nil || c.Slow != 0 || c.Timeouts != 0 {
			t.Errorf("checkpoint %+v, %v", c, err)
		}
	}
	h.end()
	ready(t, s)
	s.stop(t)
}

// The last record of a partition is slow, so that a batch leaves its chunk out. The chunk is stored once the record is
// done, although no other record comes that would make the committer look again.
func TestChunkThatABatchLeftOutIsStored(t *testing.T) {
	t.Parallel()
	top := topology(2)
	js := pipelinetest.NewServer(t).Provision(top)
	entered, leave := make(chan struct{}), make(chan struct{})
	var slow atomic.Uint64
	s := start(t, js, worker.Config{Topology: top, Normalize: func(s *core.Session, r core.Record) (core.Result, error) {
		if r.Sequence == slow.Load() {
			entered <- struct{}{}
			<-leave
		}
		return normalizers.Normalize(s, r)
	}})
	records := make([][]core.Record, top.Partitions)
	for _, r := range pipelinetest.Workload(65, 10, 900) {
		p := envelopes.Partition(r.Source, r.Session, top.Partitions)
		records[p] = append(records[p], r)
	}
	sequence := uint64(0)
	for range 30 {
		slow.Store(sequence + 2)
		pipelinetest.Publish(t, js, records[0][:2]...)
		<-entered
		pipelinetest.Publish(t, js, records[1][0])
		awaitDone(t, js, top, 0)
		leave <- struct{}{}
		if err := replay.CatchUp(deadline(t), js, top); err != nil {
			t.Fatal(err)
		}
		records[0], records[1] = records[0][2:], records[1][1:]
		sequence += 3
	}
	s.stop(t)
}
