package pipeline_test

import (
	"context"
	"fmt"
	"slices"
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

// BenchmarkStage measures how fast a stage works through a raw stream, against a floor: the
// same records copied from stream to stream on the same server, in batches of the same size.
// Every commit is synced to disk, in both. The stage stores more than the floor: events that
// hold their record, and session states.
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

// sized returns answers of about size bytes, one event each.
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

// carry copies the raw stream to another stream and returns how long that took.
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

// BenchmarkLatency measures how long an event takes from the publication of its raw record to
// a consumer that follows the events, while records of many sessions arrive at a steady rate.
// Every commit is synced to disk: that of the record, and that of its events. Other users of
// the disk distort the result: TMPDIR selects another disk.
//
//	go test ./pipeline -run '^$' -bench Latency -count 6
func BenchmarkLatency(b *testing.B) {
	const rate, records, sessions = 200, 2000, 50
	for _, partitions := range []int{1, 4, 16} {
		b.Run(fmt.Sprintf("partitions=%d/rate=%d", partitions, rate), func(b *testing.B) {
			var all []time.Duration
			for turn := range b.N {
				top := topology(partitions)
				server := pipelinetest.NewServer(b)
				s := start(b, server.Provision(top), pipeline.Config{Topology: top})
				ready(b, s)
				all = append(all, latencies(b, server, pipelinetest.Workload(uint64(turn), sessions, records), rate, 0)...)
				s.stop(b)
			}
			b.ReportMetric(quantile(all, 0.50), "p50-ms")
			b.ReportMetric(quantile(all, 0.99), "p99-ms")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// quantile returns a quantile of durations in milliseconds. It sorts them.
func quantile(all []time.Duration, q float64) float64 {
	slices.Sort(all)
	return all[int(q*float64(len(all)-1))].Seconds() * 1000
}

// latencies publishes records into a raw stream that has before records, rate per second, and
// returns the latency of each event. Producer and consumer have connections of their own, as processes of
// their own would.
func latencies(b *testing.B, server *pipelinetest.Server, records []normalizers.Record, rate int, before uint64) []time.Duration {
	b.Helper()
	want := foldedEvents(b, records)
	ctx := deadline(b)
	published := make(chan []time.Time, 1) // by raw sequence, less one
	publish := func(js jetstream.JetStream) {
		times := make([]time.Time, 0, len(records))
		tick := time.NewTicker(time.Second / time.Duration(rate))
		defer tick.Stop()
		for began := time.Now(); len(times) < len(records); <-tick.C {
			// A ticker drops ticks that are not received: publishes everything that is due.
			for due := 1 + int(time.Since(began).Seconds()*float64(rate)); len(times) < min(due, len(records)); {
				times = append(times, time.Now())
				if _, err := js.PublishMsgAsync(pipeline.RawMessage(records[len(times)-1])); err != nil {
					b.Errorf("publish: %v", err)
				}
			}
		}
		published <- times
	}
	q := pipeline.EventsQuery{Follow: true, Since: time.Now()}
	go publish(server.JetStream())

	type arrival struct {
		raw  uint64
		time time.Time
	}
	arrivals := make([]arrival, 0, want)
	for e, err := range pipeline.Events(ctx, server.JetStream(), "v1", q) {
		if err != nil {
			b.Fatal(err)
		}
		if arrivals = append(arrivals, arrival{e.Provenance.RawSequence, time.Now()}); len(arrivals) == want {
			break
		}
	}
	if len(arrivals) < want {
		b.Fatalf("%d of %d events have arrived: %v", len(arrivals), want, context.Cause(ctx))
	}
	times := <-published
	out := make([]time.Duration, len(arrivals))
	for i, a := range arrivals {
		out[i] = a.time.Sub(times[a.raw-1-before])
	}
	return out
}

// BenchmarkReplay measures a replay beside a live generation: its speed against the floor of
// [BenchmarkStage] while no record arrives, and what it adds to the latency of the live events
// while records arrive at a steady rate.
//
//	go test ./pipeline -run '^$' -bench Replay -benchtime 1x -count 6
func BenchmarkReplay(b *testing.B) {
	const records, sessions, rate, live = 20_000, 100, 200, 1000
	var floor, replay time.Duration
	var alone, beside []time.Duration
	rest := 0.0 // of the replays, when the measurement of the latency ended
	for turn := range b.N {
		top := topology(16)
		server := pipelinetest.NewServer(b)
		js := server.Provision(top)
		pipelinetest.Publish(b, js, sized(records, sessions, 2000)...)
		floor += carry(b, js, records)
		w := work(b, js, pipeline.Config{Topology: top})
		caughtUp(b, js, top)
		began := time.Now()
		startReplay(b, js, pipeline.Replay{Name: "idle"})
		caughtUp(b, js, of(top, "idle"))
		replay += time.Since(began)

		measure := func(seed, before int) []time.Duration {
			feed := pipelinetest.Workload(uint64(seed), 50, live)
			return latencies(b, server, feed, rate, uint64(before))
		}
		alone = append(alone, measure(2*turn, records)...)
		startReplay(b, js, pipeline.Replay{Name: "busy"})
		beside = append(beside, measure(2*turn+1, records+live+50)...)
		p, err := pipeline.ReadProgress(b.Context(), js, generation(b, js, "busy"))
		if err != nil {
			b.Fatal(err)
		}
		rest += float64(p.Total-p.Done) / float64(p.Total)
		w.stop(b)
	}
	b.ReportMetric(replay.Seconds()/floor.Seconds(), "times-floor")
	b.ReportMetric(quantile(alone, 0.99), "alone-p99-ms")
	b.ReportMetric(quantile(beside, 0.99), "beside-p99-ms")
	b.ReportMetric(rest/float64(b.N), "rest")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkTakeover measures what it costs to take over a partition with many sessions of
// which one is active: the time from acquiring it to the first commit, and the bytes that the
// worker reads. Neither may depend on the idle sessions.
//
//	go test ./pipeline -run '^$' -bench Takeover -benchtime 50x -count 6
func BenchmarkTakeover(b *testing.B) {
	for _, sessions := range []int{1000, 100_000} {
		b.Run(fmt.Sprintf("sessions=%d", sessions), func(b *testing.B) {
			top := topology(1)
			server := pipelinetest.NewServer(b)
			js := server.Provision(top)
			records := sized(sessions, sessions, 500) // one of each session
			idle(b, js, top, records)
			var took time.Duration
			var read uint64
			turn := 0
			for b.Loop() {
				b.StopTimer()
				pipelinetest.Publish(b, js, records[turn*7919%sessions]) // 7919 is prime: each another session
				turn++
				own := server.JetStream()
				checkpoints := checkpoints(b, js, top)
				before := own.Conn().Stats().InBytes
				b.StartTimer()
				s := start(b, own, pipeline.Config{Topology: top})
				checkpoints() // the fence
				acquired := time.Now()
				checkpoints() // the commit
				took += time.Since(acquired)
				b.StopTimer()
				read += own.Conn().Stats().InBytes - before
				s.stop(b)
				own.Conn().Close()
				b.StartTimer()
			}
			c, _, err := pipeline.ReadCheckpoint(b.Context(), js, top.Generation, 0)
			if err != nil || c.Raw != uint64(turn) || c.Epoch != uint64(turn) {
				b.Errorf("after %d takeovers the checkpoint is %+v, %v", turn, c, err)
			}
			b.ReportMetric(float64(took.Microseconds())/1000/float64(turn), "acquire-to-commit-ms")
			b.ReportMetric(float64(read)/float64(turn), "bytes-read")
		})
	}
}

// idle stores the states of sessions after one record each.
func idle(b *testing.B, js jetstream.JetStream, top pipeline.Topology, records []normalizers.Record) {
	b.Helper()
	for some := range slices.Chunk(records, 500) {
		batch := make([]*nats.Msg, len(some))
		for i, r := range some {
			s := normalizers.NewSession(r.Source, r.Session)
			if _, err := normalizers.Normalize(s, r); err != nil {
				b.Fatal(err)
			}
			batch[i] = &nats.Msg{
				Subject: envelopes.StateSubject(top.Generation, 0, r.Source, r.Session),
				Header:  nats.Header{jetstream.MsgRollup: {jetstream.MsgRollupSubject}},
				Data:    s.Encode(),
			}
		}
		pipelinetest.PublishMessages(b.Context(), b, js, batch...)
	}
}

// checkpoints returns a function that waits for the next checkpoint of partition 0 to be
// stored.
func checkpoints(b *testing.B, js jetstream.JetStream, top pipeline.Topology) func() {
	b.Helper()
	consumer, err := js.CreateConsumer(b.Context(), pipeline.EventsStream(top.Generation), jetstream.ConsumerConfig{
		FilterSubject: envelopes.CheckpointSubject(top.Generation, 0),
		DeliverPolicy: jetstream.DeliverNewPolicy,
		AckPolicy:     jetstream.AckNonePolicy,
		MemoryStorage: true,
	})
	if err != nil {
		b.Fatal(err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(messages.Stop)
	return func() {
		b.Helper()
		if _, err := messages.Next(jetstream.NextContext(deadline(b))); err != nil {
			b.Fatal(err)
		}
	}
}
