package doctor

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"tributary/cmd/internal/rights"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/streams"
)

// TestDoctorLooksAgainForSlowWorkers has a worker whose heartbeat is so late that doctor's first look finds it silent.
func TestDoctorLooksAgainForSlowWorkers(t *testing.T) {
	t.Parallel()
	top := streams.Topology{Generation: "v1", Partitions: 1}
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	workers, err := js.KeyValue(t.Context(), streams.WorkersBucket)
	if err != nil {
		t.Fatal(err)
	}
	beat := func() {
		if _, err := workers.Put(t.Context(), streams.WorkerKey(top.Generation, "a"), []byte(`{"name":"a","partitions":[0]}`)); err != nil {
			t.Error(err)
		}
	}
	beat()
	look := time.NewTicker(streams.DefaultHeartbeat / 7)
	defer look.Stop()
	for silent := false; !silent; <-look.C {
		at, err := streams.BrokerTime(t.Context(), js)
		if err != nil {
			t.Fatal(err)
		}
		seen, err := streams.Workers(t.Context(), js, top.Generation)
		if err != nil || len(seen) != 1 {
			t.Fatalf("%+v, %v", seen, err)
		}
		silent = seen[0].Silent(at)
	}
	looks := 0
	_, err = server.JetStream().Conn().Subscribe("$JS.API.DIRECT.GET.KV_"+streams.WorkersBucket, func(*nats.Msg) {
		if looks++; looks == 1 {
			beat()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	d, err := Examine(t.Context(), js, Options{Topology: top, Denials: new(rights.Denials)})
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range d.Problems {
		t.Errorf("problem: %s", problem)
	}
}
