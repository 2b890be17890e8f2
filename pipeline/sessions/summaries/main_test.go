package summaries_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/broker"
	"tributary/pipeline/events"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/sessions"
	"tributary/pipeline/sessions/summaries"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

func TestMain(m *testing.M) {
	if code, is := pipelinetest.RunProgram(map[string]pipelinetest.Program{"keeper": runKeeper, "stage and keeper": runWorker}); is {
		os.Exit(code)
	}
	pipelinetest.Configure()
	os.Exit(m.Run())
}

// patience bounds the wait for what must happen.
const patience = time.Minute

// keeperArguments are the arguments of a keeper in a process of its own.
type keeperArguments struct {
	URL   string
	Bytes int
	Every int // milliseconds
}

// runKeeper runs a keeper until ctx ends.
func runKeeper(ctx context.Context, arguments []byte, ready func()) error {
	var a keeperArguments
	if err := json.Unmarshal(arguments, &a); err != nil {
		return err
	}
	return pipelinetest.RunDrained(ctx, a.URL, ready, func(js jetstream.JetStream) (pipelinetest.Drainable, error) {
		return summaries.New(js, config(a.Bytes, time.Duration(a.Every)*time.Millisecond))
	})
}

// workerArguments are the arguments of a worker in a process of its own.
type workerArguments struct {
	URL        string
	Name       string
	Partitions int
}

// runWorker runs a stage, and a keeper to which it hands its events, until ctx ends.
func runWorker(ctx context.Context, arguments []byte, ready func()) error {
	var a workerArguments
	if err := json.Unmarshal(arguments, &a); err != nil {
		return err
	}
	return pipelinetest.RunDrained(ctx, a.URL, ready, func(js jetstream.JetStream) (pipelinetest.Drainable, error) {
		return newWorker(js, worker.Config{
			Topology: streams.Topology{Generation: "v1", Partitions: a.Partitions},
			Worker:   a.Name, Member: a.Name, Heartbeat: 100 * time.Millisecond, Handover: events.NewHandover(),
		}, config(64<<10, 5*time.Millisecond))
	})
}

// worker is a stage with a keeper, which gets what the stage hands over.
type handingWorker struct {
	stage  *worker.Stage
	keeper *summaries.Keeper
}

func newWorker(js jetstream.JetStream, stage worker.Config, keeper summaries.Config) (*handingWorker, error) {
	keeper.Handover = stage.Handover
	s, err := worker.New(js, stage)
	if err != nil {
		return nil, err
	}
	k, err := summaries.New(js, keeper)
	return &handingWorker{s, k}, err
}

// Run runs both until they are drained.
func (w *handingWorker) Run(ctx context.Context) error {
	kept := make(chan error, 1)
	go func() { kept <- w.keeper.Run(ctx) }()
	err := w.stage.Run(ctx)
	w.keeper.Drain()
	return errors.Join(err, <-kept)
}

// Drain drains the stage, and then the keeper.
func (w *handingWorker) Drain() { w.stage.Drain() }

func config(bytes int, every time.Duration) summaries.Config {
	return summaries.Config{Bytes: bytes, Idle: 200, Every: every, Beat: 50 * time.Millisecond, FilterBytes: filterBytes} // folds often leave the memory and come back
}

// startKeeper runs a keeper in this process until stop, which drains it.
func startKeeper(t *testing.T, js jetstream.JetStream, cfg summaries.Config) (stop func()) {
	t.Helper()
	k, err := summaries.New(js, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return startDrained(t, k)
}

// runStage normalizes everything that the raw stream has.
func runStage(t *testing.T, js jetstream.JetStream, top streams.Topology) {
	t.Helper()
	stop := startStage(t, js, top)
	if err := replay.CatchUp(t.Context(), js, top); err != nil {
		t.Fatal(err)
	}
	stop()
}

// startStage runs a stage in this process until stop, which drains it.
func startStage(t *testing.T, js jetstream.JetStream, top streams.Topology) (stop func()) {
	t.Helper()
	stage, err := worker.New(js, worker.Config{Topology: top})
	if err != nil {
		t.Fatal(err)
	}
	return startDrained(t, stage)
}

// startDrained runs something until stop, which drains it.
func startDrained(t *testing.T, d pipelinetest.Drainable) (stop func()) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- d.Run(context.WithoutCancel(t.Context())) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			d.Drain()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(stop)
	return stop
}

// unexpected fails the test for an event that cannot be read.
func unexpected(tb testing.TB) func(error) {
	tb.Helper()
	return func(err error) { tb.Error(err) }
}

// open opens a view.
func open(tb testing.TB, js jetstream.JetStream, generation string) *summaries.View {
	tb.Helper()
	v, err := summaries.Open(tb.Context(), js, generation, unexpected(tb))
	if err != nil {
		tb.Fatal(err)
	}
	return v
}

// awaitKept waits until the records of a generation have every event.
func awaitKept(tb testing.TB, js jetstream.JetStream, generation string) *summaries.View {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 160*time.Millisecond) { // a look costs the server much
		v := open(tb, js, generation)
		status, err := v.Status(ctx)
		if err != nil {
			tb.Fatal(err)
		}
		if status.Kept && status.Behind == 0 {
			return v
		}
		if broker.Pause(ctx, pause) != nil {
			tb.Fatalf("records are not kept: %+v", status)
		}
	}
}

// recordsOf returns the records of a view as JSON, by session.
func recordsOf(t *testing.T, v *summaries.View) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := v.Each(t.Context(), "", func(r *summaries.Record) error {
		all[string(r.Source)+" "+r.Session] = encoded(t, r)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func encoded(t *testing.T, r *summaries.Record) string {
	t.Helper()
	data, err := json.Marshal(r, json.Deterministic(true))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// folded folds all events of a generation from scratch.
func folded(t *testing.T, js jetstream.JetStream, generation string) map[string]string {
	t.Helper()
	all := map[string]string{}
	steps := summaries.Steps(t.Context(), js, generation, events.Query{}, unexpected(t))
	err := sessions.Each(steps, sessions.WholeSession, sessions.Memory{}, nil, func(f *sessions.Fold) error {
		r := summaries.Record{Summary: f.Summary(time.Time{})}
		r.First, r.Position = f.Positions()
		all[string(r.Source)+" "+r.Session] = encoded(t, &r)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// requireExact compares the records and the filters that are stored with the events.
func requireExact(t *testing.T, js jetstream.JetStream, generation string) {
	t.Helper()
	v := awaitKept(t, js, generation)
	want := folded(t, js, generation)
	if len(want) == 0 {
		t.Fatal("there is no session to compare")
	}
	if diff := cmp.Diff(want, recordsOf(t, v)); diff != "" {
		t.Errorf("records of generation %s (-fold of all events +stored):\n%s", generation, diff)
	}
	requireFilters(t, js, generation)
}
