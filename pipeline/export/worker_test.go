package export_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
)

func TestMain(m *testing.M) {
	if code, is := pipelinetest.RunProgram(nil); is {
		os.Exit(code)
	}
	pipelinetest.Configure()
	os.Exit(m.Run())
}

// drainWithKills lets workers normalize the raw stream into so many events, and kills them by SIGKILL at random
// moments on the way.
func drainWithKills(t *testing.T, js jetstream.JetStream, url string, top streams.Topology, events int64, kills int) {
	t.Helper()
	begin := func(n int) *pipelinetest.Process {
		return pipelinetest.StartWorker(t, pipelinetest.Worker{URL: url, Generation: top.Generation, Partitions: top.Partitions, Name: fmt.Sprint("worker-", n)})
	}
	pool := []*pipelinetest.Process{begin(0), begin(1)}
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for n := range kills {
		goal := rand.Int64N(events/int64(kills)) + int64(n)*events/int64(kills)
		for stored := int64(-1); stored < goal; <-look.C {
			s, err := js.Stream(t.Context(), streams.EventsStream(top.Generation))
			if err != nil {
				t.Fatal(err)
			}
			stored = int64(s.CachedInfo().State.Msgs)
		}
		victim := rand.IntN(len(pool))
		pool[victim].Kill()
		pool[victim] = begin(len(pool) + n)
	}
	if err := replay.CatchUp(t.Context(), js, top); err != nil {
		t.Fatal(err)
	}
	for _, p := range pool {
		if code := p.Stop(); code != 0 {
			t.Errorf("worker: exit code %d\n%s", code, p.Output())
		}
	}
}
