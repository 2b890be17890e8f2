package summaries_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"tributary/pipeline"
	"tributary/pipeline/pipelinetest"
)

// TestKeepersKilledAnywhereKeepEveryEventOnce kills keepers of several processes at random moments while events arrive.
// Their memory holds a part of the sessions, so most folds are loaded again and again.
func TestKeepersKilledAnywhereKeepEveryEventOnce(t *testing.T) {
	t.Parallel()
	const keepers, rounds = 3, 12
	server := pipelinetest.NewServer(t)
	top := pipeline.Topology{Generation: "v1", Partitions: 4}
	js := server.Provision(top)
	arguments := keeperArguments{URL: server.URL(), Bytes: 64 << 10, Every: 5}
	var processes [keepers]*pipelinetest.Process
	for i := range processes {
		processes[i] = pipelinetest.StartProcess(t, "keeper", arguments)
	}
	random := rand.New(rand.NewPCG(1, 2))
	records := pipelinetest.Workload(7, 60, 2400)
	for round := range rounds {
		n := len(records) / (rounds - round)
		pipelinetest.Publish(t, js, records[:n]...)
		records = records[n:]
		victim := random.IntN(keepers)
		kill := time.AfterFunc(time.Duration(random.IntN(60))*time.Millisecond, processes[victim].Kill)
		runStage(t, js, top)
		if kill.Stop() {
			processes[victim].Kill()
		}
		processes[victim] = pipelinetest.StartProcess(t, "keeper", arguments)
	}
	requireExact(t, js, "v1")
	for _, p := range processes {
		if code := p.Stop(); code != 0 {
			t.Errorf("keeper: exit code %d\n%s", code, p.Output())
		}
	}
}
