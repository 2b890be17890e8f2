package export_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline"
	"tributary/pipeline/pipelinetest"
)

func TestMain(m *testing.M) {
	if code, is := pipelinetest.RunProgram(map[string]pipelinetest.Program{workerProgram: runWorker}); is {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// workerProgram is the program of a worker.
const workerProgram = "worker"

// workerArguments configure a worker.
type workerArguments struct {
	URL        string `json:"url"`
	Generation string `json:"generation"`
	Partitions int    `json:"partitions"`
	Name       string `json:"name"`
}

// runWorker runs a worker beside others until it is drained.
func runWorker(ctx context.Context, arguments []byte, ready func()) error {
	var a workerArguments
	if err := json.Unmarshal(arguments, &a); err != nil {
		return err
	}
	nc, err := nats.Connect(a.URL)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	stage, err := pipeline.New(js, pipeline.Config{
		Topology: pipeline.Topology{Generation: a.Generation, Partitions: a.Partitions}, Worker: a.Name, Member: a.Name, Heartbeat: 400 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, stage.Drain)
	ready()
	return stage.Run(context.WithoutCancel(ctx))
}

// drainWithKills lets workers normalize the raw stream into so many events, and kills them by SIGKILL at random
// moments on the way.
func drainWithKills(t *testing.T, js jetstream.JetStream, url string, top pipeline.Topology, events int64, kills int) {
	t.Helper()
	begin := func(n int) *pipelinetest.Process {
		return pipelinetest.StartProcess(t, workerProgram, workerArguments{url, top.Generation, top.Partitions, fmt.Sprint("worker-", n)})
	}
	pool := []*pipelinetest.Process{begin(0), begin(1)}
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for n := range kills {
		goal := rand.Int64N(events/int64(kills)) + int64(n)*events/int64(kills)
		for stored := int64(-1); stored < goal; <-look.C {
			s, err := js.Stream(t.Context(), pipeline.EventsStream(top.Generation))
			if err != nil {
				t.Fatal(err)
			}
			stored = int64(s.CachedInfo().State.Msgs)
		}
		victim := rand.IntN(len(pool))
		pool[victim].Kill()
		pool[victim] = begin(len(pool) + n)
	}
	if err := pipeline.CatchUp(t.Context(), js, top); err != nil {
		t.Fatal(err)
	}
	for _, p := range pool {
		if code := p.Stop(); code != 0 {
			t.Errorf("worker: exit code %d\n%s", code, p.Output())
		}
	}
}
