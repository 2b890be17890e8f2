package worker_test

import (
	"fmt"
	"testing"

	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/worker"
)

// A worker whose connection is lost at any of its first requests, because the server restarts, begins again and does
// its work.
func TestConnectionIsLostWhileAWorkerStarts(t *testing.T) {
	t.Parallel()
	const requests = 12 // a worker that owns its partitions has made more
	for at := 1; at <= requests; at++ {
		t.Run(fmt.Sprintf("request %d", at), func(t *testing.T) {
			t.Parallel()
			top := topology(1)
			server := pipelinetest.NewServer(t)
			js := server.Provision(top)
			pipelinetest.Publish(t, js, pipelinetest.Workload(uint64(at), 2, 20)...)
			proxy := pipelinetest.NewRequestCut(t, server, at, false)
			t.Cleanup(func() { proxy.Close() })
			proxy.Before(server.Restart)
			w := work(t, pipelinetest.Connect(t, proxy.URL()), worker.Config{Topology: top})
			pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
			w.stop(t)
			if !proxy.Close() {
				t.Errorf("the worker has fewer than %d requests", at)
			}
		})
	}
}
