package worker_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/events"
	"tributary/pipeline/load"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/records"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// realRecords returns n records of the folder TRIBUTARY_CORPUS, repeated as other sessions; without
// that, of a generated mix of the same sizes and kinds ([load.Mix]).
func realRecords(b *testing.B, n int) []core.Record {
	b.Helper()
	var records []core.Record
	var err error
	if corpus := os.Getenv("TRIBUTARY_CORPUS"); corpus != "" {
		records, err = load.Folder(corpus)
	} else {
		records, err = load.Mix(min(n, 50_000), 0)
	}
	if err != nil {
		b.Fatal(err)
	}
	return load.Repeat(records, n)
}

// publish stores records in the raw stream.
func publish(b *testing.B, js jetstream.JetStream, records []core.Record) {
	b.Helper()
	if err := load.Publish(b.Context(), js, records); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkStage measures how fast a stage works through a raw stream of real logs, against a
// floor: the same records copied from stream to stream on the same server, in batches. Every
// commit is synced to disk, in both. The stage stores more than the floor: events, which hold
// their record unless they refer to it, and session states. tributary bench measures the same
// with processes of their own.
//
//	TRIBUTARY_CORPUS=... go test ./pipeline/worker -run '^$' -bench Stage -count 6
func BenchmarkStage(b *testing.B) {
	const n = 10_000
	records := realRecords(b, n)
	for _, partitions := range []int{1, 4, 16} {
		for _, raw := range []streams.RawMode{streams.RawCarried, streams.RawReferenced} {
			b.Run(fmt.Sprintf("partitions=%d/raw=%s", partitions, raw), func(b *testing.B) {
				var floor, stage time.Duration
				for range b.N {
					top := topology(partitions)
					top.Settings.Raw = raw
					js := pipelinetest.NewServer(b).Provision(top)
					publish(b, js, records)
					floor += carry(b, js, n)
					stage += drain(b, js, top)
				}
				b.ReportMetric(float64(b.N*n)/stage.Seconds(), "records/s")
				b.ReportMetric(float64(b.N*n)/floor.Seconds(), "floor-records/s")
				b.ReportMetric(stage.Seconds()/floor.Seconds(), "times-floor")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// drain lets a stage work through the raw stream, and returns how long that took.
func drain(b *testing.B, js jetstream.JetStream, top streams.Topology) time.Duration {
	b.Helper()
	return drainWith(b, js, worker.Config{Topology: top})
}

// drainWith is drain with a configuration.
func drainWith(b *testing.B, js jetstream.JetStream, cfg worker.Config) time.Duration {
	b.Helper()
	began := time.Now()
	s := start(b, js, cfg)
	if err := replay.CatchUp(b.Context(), js, cfg.Topology); err != nil {
		b.Fatal(err)
	}
	took := time.Since(began)
	s.stop(b)
	return took
}

// BenchmarkScale measures the time of one record in streams of more and more records, and with
// more and more sessions at a time. It should depend on neither. A million records take 3 GB of
// disk, twice that with their events, and minutes: -bench 'Scale/records=10{4,5}$' leaves them out.
//
//	go test ./pipeline/worker -run '^$' -bench Scale -benchtime 1x -timeout 2h
func BenchmarkScale(b *testing.B) {
	measure := func(name string, records func(b *testing.B) []core.Record) {
		b.Run(name, func(b *testing.B) {
			all := records(b)
			var took time.Duration
			for range b.N {
				top := topology(16)
				js := pipelinetest.NewServer(b).Provision(top)
				publish(b, js, all)
				took += drain(b, js, top)
			}
			b.ReportMetric(float64(took.Microseconds())/float64(b.N*len(all)), "us/record")
			b.ReportMetric(0, "ns/op")
		})
	}
	for _, n := range []int{10_000, 100_000, 1_000_000} {
		measure(fmt.Sprintf("records=%d", n), func(b *testing.B) []core.Record {
			b.Helper()
			return realRecords(b, n)
		})
	}
	for _, sessions := range []int{10, 1000, 100_000} {
		measure(fmt.Sprintf("sessions=%d", sessions), func(b *testing.B) []core.Record {
			b.Helper()
			records, err := load.Mix(100_000, sessions)
			if err != nil {
				b.Fatal(err)
			}
			return records
		})
	}
}

// BenchmarkMemory measures the peak of the resident memory of a worker, a process of its own,
// that drains real logs; on Linux.
//
//	TRIBUTARY_CORPUS=... go test ./pipeline/worker -run '^$' -bench Memory -benchtime 1x
func BenchmarkMemory(b *testing.B) {
	records := realRecords(b, 50_000)
	var peak int64
	for range b.N {
		top := topology(16)
		server := pipelinetest.NewServer(b)
		js := server.Provision(top)
		publish(b, js, records)
		w := pipelinetest.StartWorker(b, pipelinetest.Worker{URL: server.URL(), Generation: top.Generation, Partitions: top.Partitions, Name: "w"})
		if err := replay.CatchUp(b.Context(), js, top); err != nil {
			b.Fatal(err)
		}
		peak = max(peak, pipelinetest.PeakMemory(w.PID()))
		w.Stop()
	}
	b.ReportMetric(float64(peak)/(1<<20), "peak-MiB")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkHotPartition measures how much slower a partition with much to do becomes when
// records trickle into 15 others, which are committed with it. One session is in one partition.
//
//	go test ./pipeline/worker -run '^$' -bench HotPartition -benchtime 3x
func BenchmarkHotPartition(b *testing.B) {
	const hot, trickle, rate = 20_000, 2_000, 200
	var alone, beside time.Duration
	for turn := range b.N {
		for _, others := range []bool{false, true} {
			top := topology(16)
			server := pipelinetest.NewServer(b)
			js := server.Provision(top)
			publish(b, js, sized(hot, 1, 2000))
			s := start(b, js, worker.Config{Topology: top})
			began := time.Now()
			ctx, cancel := context.WithCancel(b.Context())
			var producer sync.WaitGroup
			if others {
				records := pipelinetest.Workload(uint64(turn), 150, trickle)
				own := server.JetStream()
				producer.Go(func() { publishSteadily(ctx, b, own, records, rate) })
			}
			if err := replay.CatchUp(b.Context(), js, top); err != nil {
				b.Fatal(err)
			}
			if took := time.Since(began); others {
				beside += took
			} else {
				alone += took
			}
			cancel()
			producer.Wait()
			s.stop(b)
		}
	}
	b.ReportMetric(float64(b.N*hot)/alone.Seconds(), "alone-records/s")
	b.ReportMetric(float64(b.N*hot)/beside.Seconds(), "beside-records/s")
	b.ReportMetric(beside.Seconds()/alone.Seconds(), "times-alone")
	b.ReportMetric(0, "ns/op")
}

// publishSteadily publishes records, rate per second, until ctx ends, and returns when each was
// published.
func publishSteadily(ctx context.Context, b *testing.B, js jetstream.JetStream, sent []core.Record, rate int) []time.Time {
	b.Helper()
	times := make([]time.Time, 0, len(sent))
	tick := time.NewTicker(max(time.Millisecond, time.Second/time.Duration(rate)))
	defer tick.Stop()
	for began := time.Now(); len(times) < len(sent) && ctx.Err() == nil; <-tick.C {
		// A ticker drops ticks that are not received: publishes everything that is due.
		for due := 1 + int(time.Since(began).Seconds()*float64(rate)); len(times) < min(due, len(sent)); {
			times = append(times, time.Now())
			if _, err := js.PublishMsgAsync(records.Message(sent[len(times)-1])); err != nil {
				b.Errorf("publish: %v", err)
			}
		}
	}
	return times
}

// sized returns answers of about size bytes, one event each.
func sized(n, sessions, size int) []core.Record {
	out := make([]core.Record, n)
	for i := range out {
		session := fmt.Sprintf("bench-%d", i%sessions)
		head := fmt.Sprintf(`{"type":"assistant","uuid":"u-%d","sessionId":%q,"timestamp":"2026-03-01T09:00:00Z","cwd":"/home/dev/project","message":{"id":"msg-%d","role":"assistant","model":"claude-test-1","usage":{"input_tokens":10,"output_tokens":20},"content":[{"type":"text","text":"`, i, session, i)
		const tail = `"}]}}`
		out[i] = core.Record{
			Source: envelopes.ClaudeCode, Session: session,
			Data: []byte(head + strings.Repeat("word ", max(1, (size-len(head)-len(tail))/5)) + tail),
		}
	}
	return out
}

// carry copies the raw stream to another stream and returns how long that took.
func carry(b *testing.B, js jetstream.JetStream, n int) time.Duration {
	b.Helper()
	if err := load.CreateFloor(b.Context(), js); err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	if err := load.Carry(b.Context(), js, n, false); err != nil {
		b.Fatal(err)
	}
	return time.Since(began)
}

// BenchmarkLatency measures how long an event takes from the publication of its raw record to
// a consumer that follows the events, while records of many sessions arrive at a steady rate.
// Every commit is synced to disk: that of the record, and that of its events. Other users of
// the disk distort the result: TMPDIR selects another disk.
//
//	go test ./pipeline/worker -run '^$' -bench Latency -count 6
func BenchmarkLatency(b *testing.B) {
	for _, rate := range []int{200, 2000} {
		b.Run(fmt.Sprintf("rate=%d", rate), func(b *testing.B) {
			records, err := load.Immediate(10 * rate)
			if err != nil {
				b.Fatal(err)
			}
			var all []time.Duration
			for range b.N {
				top := topology(16)
				server := pipelinetest.NewServer(b)
				s := start(b, server.Provision(top), worker.Config{Topology: top})
				ready(b, s)
				all = append(all, latencies(b, server, records, rate, 0)...)
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
func latencies(b *testing.B, server *pipelinetest.Server, records []core.Record, rate int, before uint64) []time.Duration {
	b.Helper()
	want := countEvents(b, records)
	ctx := deadline(b)
	published := make(chan []time.Time, 1) // by raw sequence, less one
	q := events.Query{Follow: true, Since: time.Now()}
	own := server.JetStream()
	go func() { published <- publishSteadily(ctx, b, own, records, rate) }()

	type arrival struct {
		raw  uint64
		time time.Time
	}
	arrivals := make([]arrival, 0, want)
	for e, err := range events.Read(ctx, server.JetStream(), "v1", q) {
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
//	go test ./pipeline/worker -run '^$' -bench Replay -benchtime 1x -count 6
func BenchmarkReplay(b *testing.B) {
	const records, sessions, rate, live = 20_000, 100, 200, 1000
	var floor, took time.Duration
	var alone, beside []time.Duration
	rest := 0.0 // of the replays, when the measurement of the latency ended
	for turn := range b.N {
		top := topology(16)
		server := pipelinetest.NewServer(b)
		js := server.Provision(top)
		pipelinetest.Publish(b, js, sized(records, sessions, 2000)...)
		floor += carry(b, js, records)
		w := work(b, js, worker.Config{Topology: top})
		caughtUp(b, js, top)
		began := time.Now()
		startReplay(b, js, replay.Request{Name: "idle"})
		caughtUp(b, js, of(top, "idle"))
		took += time.Since(began)

		measure := func(seed, before int) []time.Duration {
			feed := pipelinetest.Workload(uint64(seed), 50, live)
			return latencies(b, server, feed, rate, uint64(before))
		}
		alone = append(alone, measure(2*turn, records)...)
		startReplay(b, js, replay.Request{Name: "busy"})
		beside = append(beside, measure(2*turn+1, records+live+50)...)
		p, err := replay.ReadProgress(b.Context(), js, generation(b, js, "busy"))
		if err != nil {
			b.Fatal(err)
		}
		rest += float64(p.Total-p.Done) / float64(p.Total)
		w.stop(b)
	}
	b.ReportMetric(took.Seconds()/floor.Seconds(), "times-floor")
	b.ReportMetric(quantile(alone, 0.99), "alone-p99-ms")
	b.ReportMetric(quantile(beside, 0.99), "beside-p99-ms")
	b.ReportMetric(rest/float64(b.N), "rest")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkTakeover measures what it costs to take over a partition with many sessions of
// which one is active: the time from acquiring it to the first commit, and the bytes that the
// worker reads. Neither may depend on the idle sessions.
//
//	go test ./pipeline/worker -run '^$' -bench Takeover -benchtime 50x -count 6
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
				s := start(b, own, worker.Config{Topology: top})
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
			c, _, err := streams.ReadCheckpoint(b.Context(), js, top.Generation, 0)
			if err != nil || c.Raw != uint64(turn) || c.Epoch != uint64(turn) {
				b.Errorf("after %d takeovers the checkpoint is %+v, %v", turn, c, err)
			}
			b.ReportMetric(float64(took.Microseconds())/1000/float64(turn), "acquire-to-commit-ms")
			b.ReportMetric(float64(read)/float64(turn), "bytes-read")
		})
	}
}

// idle stores the states of sessions after one record each.
func idle(b *testing.B, js jetstream.JetStream, top streams.Topology, records []core.Record) {
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
func checkpoints(b *testing.B, js jetstream.JetStream, top streams.Topology) func() {
	b.Helper()
	consumer, err := js.CreateConsumer(b.Context(), streams.EventsStream(top.Generation), jetstream.ConsumerConfig{
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

// countEvents returns how many events records yield that arrive once and in order.
func countEvents(tb testing.TB, sent []core.Record) (events int) {
	tb.Helper()
	sessions := make(map[string]*core.Session)
	for i, r := range sent {
		if sessions[r.Session] == nil {
			sessions[r.Session] = normalizers.NewSession(r.Source, r.Session)
		}
		r.Sequence = uint64(i + 1)
		result, err := normalizers.Normalize(sessions[r.Session], r)
		if _, permanent := records.Reason(err); err != nil && !permanent {
			tb.Errorf("record %d: %v", i+1, err)
		}
		events += len(result.Events)
	}
	return events
}
