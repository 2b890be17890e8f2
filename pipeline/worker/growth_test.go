package worker_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// What the workers read of each other grows with their number, not with its square.
func TestHeartbeatsGrowWithTheWorkers(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("one heartbeat after the other: the race detector sees nothing new in that")
	}
	const beats = 20
	read := func(workers int) float64 {
		server := pipelinetest.NewServer(t)
		top := topology(workers)
		js := server.Provision(top)
		m, err := worker.Join(t.Context(), js, top, workers)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Exchange(t.Context(), 2); err != nil { // all have seen each other then
			t.Fatal(err)
		}
		before := js.Conn().Stats().InMsgs
		if err := m.Exchange(t.Context(), beats); err != nil {
			t.Fatal(err)
		}
		if alive := m.Alive(); alive != workers {
			t.Fatalf("a worker sees %d of %d", alive, workers)
		}
		return float64(js.Conn().Stats().InMsgs - before)
	}
	few, many := read(16), read(64)
	t.Logf("messages in %d heartbeats: %.0f to 16 workers, %.0f to 64", beats, few, many)
	if many > 5*few {
		t.Errorf("64 workers read %.1f times as much as 16", many/few)
	}
}

// requests are the requests to the JetStream API of a server.
type requests struct {
	tb  testing.TB
	nc  *nats.Conn
	sub *nats.Subscription
}

// countRequests counts from now on.
func countRequests(tb testing.TB, server *pipelinetest.Server) *requests {
	tb.Helper()
	nc := server.JetStream().Conn()
	sub, err := nc.SubscribeSync("$JS.API.>")
	if err == nil {
		err = errors.Join(sub.SetPendingLimits(-1, -1), nc.Flush())
	}
	if err != nil {
		tb.Fatal(err)
	}
	return &requests{tb, nc, sub}
}

// take returns the requests since the last call by their verbs, and all of them.
func (r *requests) take() map[string]int {
	r.tb.Helper()
	if err := r.nc.Flush(); err != nil {
		r.tb.Fatal(err)
	}
	verbs := map[string]int{}
	for n, _, _ := r.sub.Pending(); n > 0; n-- {
		m, err := r.sub.NextMsgWithContext(r.tb.Context())
		if err != nil {
			r.tb.Fatal(err)
		}
		tokens := strings.Split(strings.TrimPrefix(m.Subject, jetstream.DefaultAPIPrefix), ".")
		verbs[strings.Join(tokens[:min(3, len(tokens))], ".")]++
		verbs["all"]++
	}
	return verbs
}

// Acquiring partitions, and reading their status, takes a few requests for each, and asks for
// the end of the raw stream for many at once.
func TestRequestsGrowWithThePartitions(t *testing.T) {
	pipelinetest.SkipShort(t)
	t.Parallel()
	type cost struct{ acquire, status map[string]int }
	measure := func(partitions int) cost {
		server := pipelinetest.NewServer(t)
		top := topology(partitions)
		js := server.Provision(top)
		records := pipelinetest.Workload(31, 4*partitions, 8*partitions)
		w := start(t, js, member(top, "first"))
		pipelinetest.Publish(t, js, records...)
		pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
		w.stop(t)

		counted := countRequests(t, server)
		w = start(t, js, member(top, "second"))
		settled(t, js, top, map[string]int{"second": partitions})
		ready(t, w)
		c := cost{acquire: counted.take()}
		w.stop(t)
		counted.take()
		if _, err := replay.ReadStatus(t.Context(), js, top); err != nil {
			t.Fatal(err)
		}
		c.status = counted.take()
		return c
	}
	few, many := measure(8), measure(64)
	t.Logf("to acquire 8 partitions: %v", few.acquire)
	t.Logf("to acquire 64 partitions: %v", many.acquire)
	t.Logf("status of 8: %v, of 64: %v", few.status, many.status)
	const end = "STREAM.INFO." + streams.RawStream
	if n := many.acquire["STREAM.MSG.GET"]; n > 5*64+16 {
		t.Errorf("acquiring 64 partitions reads %d messages", n)
	}
	if n := many.acquire[end]; n > 96 {
		t.Errorf("the end of the raw stream is asked for %d times to acquire 64 partitions", n)
	}
	if n := many.status[end]; n > 96 {
		t.Errorf("the end of the raw stream is asked for %d times for the status of 64 partitions", n)
	}
	if n := many.status["all"]; n > 4*64+32 {
		t.Errorf("the status of 64 partitions takes %d requests", n)
	}
}
