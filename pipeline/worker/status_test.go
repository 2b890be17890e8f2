package worker_test

import (
	"errors"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// The status shows the progress of a generation before, while and after a worker runs.
func TestStatusShowsTheProgress(t *testing.T) {
	t.Parallel()
	top := topology(4)
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	read := func() replay.Status {
		t.Helper()
		s, err := replay.ReadStatus(t.Context(), js, top)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	lag := func(s replay.Status) (records uint64, behind int) {
		for _, p := range s.Partitions {
			records += p.Lag
			if (p.Lag > 0) != (p.Oldest != nil) {
				t.Errorf("partition %d: lag %d, oldest %v", p.Partition, p.Lag, p.Oldest)
			}
			if p.Oldest != nil {
				behind++
			}
		}
		return records, behind
	}
	if s := read(); len(s.Workers) != 0 || len(s.Partitions) != 4 || s.DeadLetters != 0 {
		t.Errorf("before anything: %+v", s)
	}
	records := pipelinetest.Workload(31, 20, 500)
	pipelinetest.Publish(t, js, records...)
	if n, behind := lag(read()); n != uint64(len(records)) || behind != 4 {
		t.Errorf("%d records in %d partitions are not done, want %d", n, behind, len(records))
	}
	w := start(t, js, member(top, "w"))
	found := pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	settled(t, js, top, map[string]int{"w": 4})
	s := read()
	if n, _ := lag(s); n != 0 || s.DeadLetters != uint64(found.DeadLetters) || len(s.Workers) != 1 {
		t.Errorf("after: lag %d, %d dead letters of %d, workers %v", n, s.DeadLetters, found.DeadLetters, s.Workers)
	}
	for _, p := range s.Partitions {
		if p.Worker != "w" || p.Epoch != 1 || p.Raw == 0 || p.CommitAt.IsZero() || p.Fault != "" {
			t.Errorf("partition %d: %+v", p.Partition, p)
		}
	}
	w.stop(t)

	raw, err := js.Stream(t.Context(), streams.RawStream)
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), streams.RawStream); err != nil {
		t.Fatal(err)
	}
	if err := streams.Provision(t.Context(), js, top); err != nil {
		t.Fatal(err)
	}
	for _, p := range read().Partitions {
		if !strings.HasPrefix(p.Fault, streams.ErrRawLost.Error()) {
			t.Errorf("partition %d: its records are gone, and its fault is %q", p.Partition, p.Fault)
		}
	}
}

// Workers that are killed while they have nothing to do count against no record.
func TestKillsOfIdleWorkersCountAgainstNoRecord(t *testing.T) {
	t.Parallel()
	top := topology(1)
	js := pipelinetest.NewServer(t).Provision(top)
	tries := func() int {
		t.Helper()
		s, err := replay.ReadStatus(t.Context(), js, top)
		if err != nil {
			t.Fatal(err)
		}
		return s.Partitions[0].Tries
	}
	for range streams.MaxTogether + 2 {
		s := start(t, js, worker.Config{Topology: top})
		ready(t, s)
		s.kill()
	}
	if n := tries(); n != 0 {
		t.Errorf("%d attempts on a record that is not there", n)
	}
	pipelinetest.Publish(t, js, user("s", "one"))
	if n := tries(); n != streams.MaxTogether+1 {
		t.Errorf("%d attempts", n)
	}
}

// The heartbeat of a killed worker lists its partitions for some seconds still: the status
// names the worker that owns them.
func TestStatusAfterATakeoverNamesTheOwner(t *testing.T) {
	t.Parallel()
	top := topology(4)
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	z := start(t, server.JetStream(), member(top, "z")) // after the other in the order of ids
	settled(t, js, top, map[string]int{"z": 4})
	a := start(t, js, member(top, "a"))
	settled(t, js, top, map[string]int{"a": 2, "z": 2})
	z.kill()
	settled(t, js, top, map[string]int{"a": 4})
	s, err := replay.ReadStatus(t.Context(), js, top)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Workers) != 2 {
		t.Errorf("workers %+v, want both: the key of one that was killed lives on", s.Workers)
	}
	for _, p := range s.Partitions {
		if p.Worker != "a" {
			t.Errorf("partition %d is attributed to worker %q", p.Partition, p.Worker)
		}
	}
	for _, w := range s.Workers {
		if w.Silent(w.Seen.Add(time.Second)) || !w.Silent(w.Seen.Add(5*time.Second)) || s.At.Before(w.Seen) {
			t.Errorf("worker %+v at %v", w, s.At)
		}
	}
	a.stop(t)
}

// A replica that does not lead, and knows less, may answer first: its answer is neither taken
// for the loss of records nor for a final answer while that of the leader may arrive.
func TestAnswerOfAReplicaIsNotTrusted(t *testing.T) {
	t.Parallel()
	const (
		prefix = "REPLICA.API"
		info   = "STREAM.INFO." + streams.RawStream
		away   = `{"error":{"code":503,"err_code":10008,"description":"JetStream system temporarily unavailable"}}`
	)
	top := topology(4)
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	pipelinetest.Publish(t, js, pipelinetest.Workload(32, 20, 200)...)
	w := start(t, js, member(top, "w"))
	pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	w.stop(t)
	now, err := js.Conn().RequestWithContext(t.Context(), jetstream.DefaultAPIPrefix+info, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, cluster := range map[string]string{
		"knows no leader": `{"replicas":[{"name":"n0"},{"name":"n1","current":true},{"name":"n2"}]}`,
		"led before":      `{"leader":"n1","replicas":[{"name":"n0","active":9000000000},{"name":"n2","active":9000000000}]}`,
	} {
		before := regexp.MustCompile(`"last_seq":\d+`).ReplaceAll(now.Data, []byte(`"last_seq":1`))
		before = regexp.MustCompile(`"cluster":{[^{}]*}`).ReplaceAll(before, []byte(`"cluster":`+cluster))
		for _, led := range []bool{true, false} {
			nc := server.JetStream().Conn()
			replica, err := nc.Subscribe(prefix+".>", func(m *nats.Msg) {
				verb := strings.TrimPrefix(m.Subject, prefix+".")
				switch {
				case verb == info:
					_ = m.Respond(before)
				case strings.HasPrefix(verb, "STREAM.MSG.GET."):
					_ = m.Respond([]byte(away))
				}
				if led || verb != info {
					_ = nc.PublishRequest(jetstream.DefaultAPIPrefix+verb, m.Reply, m.Data)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			near, err := jetstream.NewWithAPIPrefix(nc, prefix)
			if err != nil {
				t.Fatal(err)
			}
			s, err := replay.ReadStatus(t.Context(), near, top)
			switch api, ok := errors.AsType[*jetstream.APIError](err); {
			case led && err != nil:
				t.Errorf("%s, the leader answers: %v", name, err)
			case !led && (!ok || api.Code != http.StatusServiceUnavailable):
				t.Errorf("%s, no leader answers: error %v", name, err)
			}
			for _, p := range s.Partitions {
				if p.Fault != "" {
					t.Errorf("%s: partition %d: %s", name, p.Partition, p.Fault)
				}
			}
			if err := replica.Unsubscribe(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
