package worker_test

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// rawLostMessage is what is logged of a partition that has read further than the raw stream goes.
const rawLostMessage = `"partition stopped" partition=`

// rolledBack is a store that was saved after a part of the records and has another part since,
// with a worker that was there all the time.
type rolledBack struct {
	server  *pipelinetest.Server
	saved   *pipelinetest.StoreCopy
	js      jetstream.JetStream
	top     streams.Topology
	x       pipelinetest.Expectation
	worker  *running
	log     *lines       // of the worker
	calls   atomic.Int64 // of its normalizer
	records []core.Record
	late    []core.Record // those that the copy lacks
	next    []core.Record // those that no part has
}

func rollBack(t *testing.T, seed uint64, streams ...string) *rolledBack {
	t.Helper()
	r := &rolledBack{top: topology(2), log: newLines()}
	server := pipelinetest.NewServer(t)
	r.server = server
	r.x = pipelinetest.Expectation{Topology: r.top}
	r.js = server.Provision(r.top)
	r.records = readable(pipelinetest.Workload(seed, 10, 450)[:450])
	n := len(r.records) / 3
	r.late, r.next = r.records[n:2*n], r.records[2*n:]
	r.worker = start(t, r.js, worker.Config{
		Topology: r.top, Logger: r.log.logger(),
		Normalize: func(s *core.Session, record core.Record) (core.Result, error) {
			r.calls.Add(1)
			return normalizers.Normalize(s, record)
		},
	})
	pipelinetest.Publish(t, r.js, r.records[:n]...)
	r.x.RequireExact(t, r.js)
	r.saved = server.CopyStore()
	pipelinetest.Publish(t, r.js, r.late...)
	r.x.RequireExact(t, r.js)
	r.saved.PutBack(streams...)
	return r
}

// requireAll fails the test unless a generation has every event of the logs exactly once.
func (r *rolledBack) requireAll(tb testing.TB, generation string) {
	tb.Helper()
	if diff := cmp.Diff(idsOf(tb, r.records), ids(tb, r.js, generation)); diff != "" {
		tb.Errorf("events of %s (-want +got):\n%s", generation, diff)
	}
}

// Events that a store has lost, with their checkpoints, are made again from the raw stream.
func TestEventsThatRolledBackAreMadeAgain(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("one worker after the other: the race detector sees nothing new in that")
	}
	r := rollBack(t, 71, streams.EventsStream("v1"))
	r.x.RequireExact(t, r.js)
	pipelinetest.Publish(t, r.js, r.next...)
	r.x.RequireExact(t, r.js)
	r.requireAll(t, "v1")
	r.worker.stop(t)
	if n := int(r.calls.Load()); n < len(r.records)+len(r.late) {
		t.Errorf("%d records were normalized: the store did not roll back", n)
	}
}

// When both streams rolled back to one moment and the producer goes on with what follows, the
// session has a gap, which the status shows; the records between are shipped again and every
// event is there once.
func TestGapOfAStoreThatRolledBackIsFilled(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("one worker after the other: the race detector sees nothing new in that")
	}
	r := rollBack(t, 72, streams.RawStream, streams.EventsStream("v1"))
	pipelinetest.Publish(t, r.js, r.next...)
	r.x.RequireExact(t, r.js)
	if shown, n := gaps(t, r.js, r.top); n == 0 || len(shown) != n {
		t.Errorf("%d sessions have gaps, shown are %+v", n, shown)
	}
	pipelinetest.Publish(t, r.js, r.records...)
	r.x.RequireExact(t, r.js)
	if shown, n := gaps(t, r.js, r.top); n != 0 {
		t.Errorf("%d sessions have gaps: %+v", n, shown)
	}
	r.requireAll(t, "v1")
	r.worker.stop(t)
	replayAll(t, r.js, r.top, "v2")
	r.requireAll(t, "v2")
}

// When the raw stream alone rolled back, the partitions stop and state the whole cure, in the
// log and in the status. A producer that goes on changes nothing about it. The cure brings
// every event back: the logs are shipped again, then a new generation is made.
func TestRawStreamThatRolledBackStopsAndIsCured(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("one worker after the other: the race detector sees nothing new in that")
	}
	r := rollBack(t, 73, streams.RawStream)
	stopped := func() {
		t.Helper()
		status, err := replay.ReadStatus(t.Context(), r.js, r.top)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range status.Partitions {
			if !strings.HasPrefix(p.Fault, streams.ErrRawLost.Error()) {
				t.Errorf("partition %d: %q", p.Partition, p.Fault)
			}
			pipelinetest.RequireInOrder(t, p.Cure, "tributary ship --again", "new generation", "tributary replay start NAME")
		}
	}
	r.log.await(t, rawLostMessage, r.top.Partitions-1)
	pipelinetest.RequireInOrder(t, r.log.String(), "partition stopped", "raw stream has lost its tail", "tributary ship --again", "new generation", "tributary replay start NAME")
	stopped()
	pipelinetest.Publish(t, r.js, r.next...) // before anybody has looked
	stopped()
	r.worker.stop(t)

	pipelinetest.Publish(t, r.js, r.records...)
	replayAll(t, r.js, r.top, "v2")
	r.requireAll(t, "v2")
	next := r.top
	next.Generation = "v2"
	if shown, n := gaps(t, r.js, next); n != 0 {
		t.Errorf("%d sessions have gaps: %+v", n, shown)
	}
}

// A raw stream that rolled back and is restored while the worker runs needs nothing else: the partitions go on, and the
// log says once that they stopped and once that they go on.
func TestRawStreamThatIsRestoredGoesOn(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*rolledBack) error{
		"rolled back": func(r *rolledBack) error {
			r.saved.PutBack(streams.RawStream)
			return nil
		},
		"removed": func(r *rolledBack) error {
			return errors.Join(r.js.DeleteStream(t.Context(), streams.RawStream), streams.Provision(t.Context(), r.js, r.top))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rollBack(t, 75)
			whole := r.server.CopyStore()
			if err := lose(r); err != nil {
				t.Fatal(err)
			}
			r.log.await(t, rawLostMessage, r.top.Partitions-1)
			if err := r.worker.Ready(); err == nil || !strings.Contains(err.Error(), "restore the raw stream") {
				t.Errorf("readiness says %v", err)
			}
			whole.PutBack(streams.RawStream)
			pipelinetest.Publish(t, r.js, r.next...)
			r.x.RequireExact(t, r.js)
			r.requireAll(t, "v1")
			r.worker.stop(t)
			for _, text := range []string{rawLostMessage, "partition goes on"} {
				if n := r.log.count(text); n != r.top.Partitions {
					t.Errorf("%q is logged %d times, want once for each of %d partitions", text, n, r.top.Partitions)
				}
			}
		})
	}
}

// When two of three servers lose what they have stored since some moment, for which no majority is
// left, both streams go back: it shows as gaps, and the logs are shipped again. The third server starts
// without its own copies and gets those of the majority.
func TestTwoOfThreeServersThatRolledBackShowAsGaps(t *testing.T) {
	t.Parallel()
	if !*faultsLong {
		t.Skip("starts three servers many times; runs with -faults.long")
	}
	r := startFaultRun(t, faultPlan{nodes: 3, seed: 74, records: 900}, newTally())
	require := func() {
		t.Helper()
		if err := r.compare().Err(); err != nil {
			t.Fatal(err)
		}
	}
	gapSessions := func() (n int) {
		t.Helper()
		for _, p := range readStatus(t, r.js, r.top).Partitions {
			if n += p.GapSessions; p.Fault != "" {
				t.Errorf("partition %d: %s", p.Partition, p.Fault)
			}
		}
		return n
	}
	r.producer.grant(300)
	require()
	infos := r.infos(slices.Concat(r.rawStreams(), r.eventsStreams()))
	var saved []*pipelinetest.NodeCopy
	for _, n := range r.cluster.Nodes[:2] {
		n.Stop()
		saved = append(saved, n.CopyStreams(infos...))
		r.cluster.Start(n)
		r.cluster.Settle(r.js)
	}
	r.producer.grant(300)
	require()
	r.cluster.Stop()
	for _, c := range saved {
		c.PutBack()
	}
	r.cluster.Start(r.cluster.Nodes[:2]...)
	third := r.cluster.Nodes[2] // has messages that the majority has not
	third.RemoveStreams(infos...)
	r.cluster.Start(third)
	r.cluster.Settle(r.js)
	r.producer.grant(300)
	require()
	if gapSessions() == 0 {
		t.Error("the status shows no gap")
	}
	r.awaitLog("a gap", func(w *workerProcess) bool { return strings.Contains(w.Output(), "records are missing") })
	r.producer.grant(900)
	r.producer.die() // ships everything again
	require()
	if n := gapSessions(); n != 0 {
		t.Errorf("%d sessions have gaps, although everything was shipped again", n)
	}
}
