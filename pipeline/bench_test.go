package pipeline_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/pipeline"
	"tributary/pipeline/pipelinetest"
)

// BenchmarkStage measures how fast a stage works off a raw stream, against a floor: the
// same records carried from stream to stream on the same server, with no work on them.
// Every commit is synced to disk, in both.
//
//	go test ./pipeline -run '^$' -bench Stage -count 6
func BenchmarkStage(b *testing.B) {
	const records, sessions = 10_000, 100
	for _, partitions := range []int{1, 4, 16} {
		for _, size := range []int{500, 2000, 20_000} {
			b.Run(fmt.Sprintf("partitions=%d/size=%d", partitions, size), func(b *testing.B) {
				var floor, stage time.Duration
				for range b.N {
					b.StopTimer()
					top := topology(partitions)
					js := pipelinetest.NewServer(b).Provision(top)
					n := records * 2000 / max(size, 2000)
					pipelinetest.Publish(b, js, sized(n, sessions, size)...)
					floor += carry(b, js, n)
					b.StartTimer()
					began := time.Now()
					s := start(b, js, pipeline.Config{Topology: top})
					if err := pipeline.CatchUp(b.Context(), js, top); err != nil {
						b.Fatal(err)
					}
					stage += time.Since(began)
					b.StopTimer()
					s.stop(b)
				}
				n := float64(b.N * records * 2000 / max(size, 2000))
				b.ReportMetric(n/stage.Seconds(), "records/s")
				b.ReportMetric(n/floor.Seconds(), "floor-records/s")
				b.ReportMetric(stage.Seconds()/floor.Seconds(), "times-floor")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// sized makes answers of about size bytes, one event each.
func sized(n, sessions, size int) []normalizers.Record {
	out := make([]normalizers.Record, n)
	for i := range out {
		session := fmt.Sprintf("bench-%d", i%sessions)
		head := fmt.Sprintf(`{"type":"assistant","uuid":"u-%d","sessionId":%q,"timestamp":"2026-03-01T09:00:00Z","cwd":"/home/dev/project","message":{"id":"msg-%d","role":"assistant","model":"claude-test-1","usage":{"input_tokens":10,"output_tokens":20},"content":[{"type":"text","text":"`, i, session, i)
		const tail = `"}]}}`
		out[i] = normalizers.Record{
			Source: envelopes.ClaudeCode, Session: session,
			Data: []byte(head + strings.Repeat("word ", max(1, (size-len(head)-len(tail))/5)) + tail),
		}
	}
	return out
}

// carry copies the raw stream to another one and returns how long that took.
func carry(b *testing.B, js jetstream.JetStream, n int) time.Duration {
	b.Helper()
	if _, err := js.CreateStream(b.Context(), jetstream.StreamConfig{
		Name: "FLOOR", Subjects: []string{"floor.>"}, AllowAtomicPublish: true,
	}); err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	consumer, err := js.OrderedConsumer(b.Context(), pipeline.RawStream, jetstream.OrderedConsumerConfig{})
	if err != nil {
		b.Fatal(err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		b.Fatal(err)
	}
	defer messages.Stop()
	for n > 0 {
		batch := make([]*nats.Msg, 0, 256)
		size := 0
		for len(batch) < min(n, 256) && size < 4<<20 {
			m, err := messages.Next(jetstream.NextContext(b.Context()))
			if err != nil {
				b.Fatal(err)
			}
			batch = append(batch, &nats.Msg{Subject: "floor." + m.Subject(), Header: nats.Header{}, Data: m.Data()})
			size += len(m.Data())
		}
		if _, err := pipeline.PublishBatch(context.WithoutCancel(b.Context()), js.Conn(), batch); err != nil {
			b.Fatal(err)
		}
		n -= len(batch)
	}
	return time.Since(began)
}
