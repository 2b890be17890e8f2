package summaries_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/sessions/summaries"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// BenchmarkStage measures how fast a stage works through a raw stream, with and without a keeper beside it in the same
// process, and how long after the stage the records are complete. The server is in this process, too.
//
//	go test ./pipeline/sessions/summaries -run '^$' -bench Stage -benchtime 1x -count 6
func BenchmarkStage(b *testing.B) {
	const records = 20_000
	for _, beside := range []bool{false, true} {
		b.Run(fmt.Sprintf("keeper=%v", beside), func(b *testing.B) {
			var stage, behind time.Duration
			for range b.N {
				top := streams.Topology{Generation: "v1", Partitions: 4}
				js := pipelinetest.NewServer(b).Provision(top)
				pipelinetest.Publish(b, js, pipelinetest.Workload(1, 100, records)...)
				ctx, stop := context.WithCancel(b.Context())
				if beside {
					k, err := summaries.New(js, summaries.Config{})
					if err != nil {
						b.Fatal(err)
					}
					go func() { _ = k.Run(ctx) }()
				}
				s, err := worker.New(js, worker.Config{Topology: top})
				if err != nil {
					b.Fatal(err)
				}
				began := time.Now()
				go func() { _ = s.Run(ctx) }()
				if err := replay.CatchUp(ctx, js, top); err != nil {
					b.Fatal(err)
				}
				stage += time.Since(began)
				if beside {
					began = time.Now()
					awaitKept(b, js, "v1")
					behind += time.Since(began)
				}
				stop()
			}
			b.ReportMetric(float64(b.N*records)/stage.Seconds(), "records/s")
			b.ReportMetric(behind.Seconds()/float64(b.N), "s-behind")
			b.ReportMetric(0, "ns/op")
		})
	}
}
