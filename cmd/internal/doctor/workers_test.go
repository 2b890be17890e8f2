package doctor

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/cmd/internal/rights"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/streams"
)

// TestDoctorLooksAgainForSlowWorkers has a worker whose heartbeat is so late that doctor's first look finds it silent.
func TestDoctorLooksAgainForSlowWorkers(t *testing.T) {
	t.Parallel()
	w := newHandmadeWorker(t)
	w.beat("[0]")
	look := time.NewTicker(streams.DefaultHeartbeat / 7)
	defer look.Stop()
	for silent := false; !silent; <-look.C {
		at, err := streams.BrokerTime(t.Context(), w.js)
		if err != nil {
			t.Fatal(err)
		}
		seen, err := streams.Workers(t.Context(), w.js, w.top.Generation)
		if err != nil || len(seen) != 1 {
			t.Fatalf("%+v, %v", seen, err)
		}
		silent = seen[0].Silent(at)
	}
	w.onLook(1, func() { w.beat("[0]") })
	w.requireNoProblem()
}

// TestDoctorLooksAgainForStartingWorkers has a worker that answers, but has no heartbeat yet at doctor's first look,
// and no partition at the second one, as workers between two generations.
func TestDoctorLooksAgainForStartingWorkers(t *testing.T) {
	t.Parallel()
	w := newHandmadeWorker(t)
	_, err := w.js.Conn().Subscribe("tributary.workers", func(m *nats.Msg) {
		if err := m.Respond([]byte(`{"name":"a"}`)); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	w.onLook(1, func() { w.beat("[]") })
	w.onLook(2, func() { w.beat("[0]") })
	w.requireNoProblem()
}

// handmadeWorker writes the heartbeats of a worker when a test wants it to.
type handmadeWorker struct {
	t      *testing.T
	top    streams.Topology
	js     jetstream.JetStream
	bucket jetstream.KeyValue
}

func newHandmadeWorker(t *testing.T) handmadeWorker {
	t.Helper()
	w := handmadeWorker{t: t, top: streams.Topology{Generation: "v1", Partitions: 1}}
	w.js = pipelinetest.NewServer(t).Provision(w.top)
	var err error
	if w.bucket, err = w.js.KeyValue(t.Context(), streams.WorkersBucket); err != nil {
		t.Fatal(err)
	}
	return w
}

// beat writes a heartbeat with the partitions.
func (w handmadeWorker) beat(partitions string) {
	if _, err := w.bucket.Put(w.t.Context(), streams.WorkerKey(w.top.Generation, "a"), []byte(`{"name":"a","partitions":`+partitions+`}`)); err != nil {
		w.t.Error(err)
	}
}

// onLook calls do when the heartbeats are read for the nth time.
func (w handmadeWorker) onLook(n int, do func()) {
	w.t.Helper()
	_, err := w.js.Conn().Subscribe("$JS.API.DIRECT.GET.KV_"+streams.WorkersBucket, func(*nats.Msg) {
		if n--; n == 0 {
			do()
		}
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// requireNoProblem fails the test if doctor finds a problem.
func (w handmadeWorker) requireNoProblem() {
	w.t.Helper()
	d, err := Examine(w.t.Context(), w.js, Options{Topology: w.top, Denials: new(rights.Denials)})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, problem := range d.Problems {
		w.t.Errorf("problem: %s", problem)
	}
}
