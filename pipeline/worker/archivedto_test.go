package worker_test

import (
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// A checkpoint of a version that knew archives and not up to where they reach hides none of them: sessions
// in archives go on, and their records are known.
func TestArchivesOfAnOlderVersionAreNotHidden(t *testing.T) {
	t.Parallel()
	top := topology(2)
	js := pipelinetest.NewServer(t).Provision(top)
	records := readable(pipelinetest.Workload(76, 20, 400)[:400])
	runArchiving(t, js, archiving(top), 0, records[:200]...)
	for p := range top.Partitions {
		setCheckpoint(t, js, p, func(c *streams.Checkpoint) {
			if c.Archived == 0 || c.ArchivedTo == 0 {
				t.Errorf("partition %d has archived nothing: %+v", p, c)
			}
			c.ArchivedTo = 0
		})
	}
	pipelinetest.Publish(t, js, records...) // those of before come again
	s := start(t, js, worker.Config{Topology: top})
	caughtUp(t, js, top)
	s.stop(t)
	if diff := cmp.Diff(idsOf(t, records), ids(t, js, "v1")); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// setCheckpoint stores the checkpoint of a partition with a change.
func setCheckpoint(tb testing.TB, js jetstream.JetStream, partition int, change func(*streams.Checkpoint)) {
	tb.Helper()
	c, _, err := streams.ReadCheckpoint(tb.Context(), js, "v1", partition)
	if err != nil {
		tb.Fatal(err)
	}
	change(&c)
	data, err := json.Marshal(c)
	if err != nil {
		tb.Fatal(err)
	}
	header := nats.Header{jetstream.MsgRollup: {jetstream.MsgRollupSubject}}
	if _, err := js.PublishMsg(tb.Context(), &nats.Msg{Subject: envelopes.CheckpointSubject("v1", partition), Header: header, Data: data}); err != nil {
		tb.Fatal(err)
	}
}
