package worker_test

import (
	"bytes"
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/claims"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/records"
	"tributary/pipeline/worker"
)

// awaitBucket waits until an object can be stored and read through a node, which may not know yet where to send what is for
// streams that were just made.
func awaitBucket(cluster *pipelinetest.Cluster, node string, js jetstream.JetStream) {
	cluster.Try("store an object through "+node, func(ctx context.Context) error {
		store := claims.NewStore(js)
		claim, err := store.Put(ctx, []byte("first"))
		if err == nil {
			_, err = store.Get(ctx, claim)
		}
		return err
	})
}

// An object that one node has stored can be fetched at once through any other, although its
// replica may be behind. An orphan is removed from all nodes, once.
func TestObjectIsReadableThroughEveryNode(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts three servers")
	}
	top := topology(2)
	top.Replicas = 3
	cluster := pipelinetest.StartCluster(t, 3, 0)
	cluster.Settle(cluster.Provision(top))
	var nodes []jetstream.JetStream // a connection to each
	for _, n := range cluster.Nodes {
		js := pipelinetest.Connect(t, n.URL())
		awaitBucket(cluster, n.Name(), js)
		nodes = append(nodes, js)
	}
	s := start(t, nodes[1], worker.Config{Topology: top})
	const count = 24
	for i := range count {
		js := nodes[i%3]
		r := prompt("s"+strconv.Itoa(i%4), i, 520<<10+i)
		claim, err := claims.NewStore(js).Put(t.Context(), r.Data)
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			pipelinetest.PublishMessages(t.Context(), t, js, records.ClaimMessage(r))
		}
		for n, js := range nodes {
			if got, err := claims.NewStore(js).Get(t.Context(), claim); err != nil || !bytes.Equal(got, r.Data) {
				t.Errorf("object %d through node %d: %d bytes, %v", i, n, len(got), err)
			}
		}
	}
	report := pipelinetest.Expectation{Topology: top}.RequireExact(t, nodes[2])
	if report.Records != count/2 || report.DeadLetters != 0 {
		t.Errorf("%+v", report)
	}
	s.stop(t)
	orphans, err := claims.NewStore(nodes[0]).Orphans(t.Context(), 0)
	if err != nil || len(orphans) != 1+count/2 {
		t.Fatalf("%d orphans, %v", len(orphans), err)
	}
	for i, o := range orphans {
		for turn, js := range []int{i % 3, (i + 1) % 3} {
			if ok, err := claims.NewStore(nodes[js]).Remove(t.Context(), o); ok != (turn == 0) || err != nil {
				t.Errorf("removed %v, %v in turn %d", ok, err, turn)
			}
		}
	}
	// A list may be that of a replica which is behind.
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for ctx := deadline(t); ; {
		left, err := claims.NewStore(nodes[1]).Objects(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(left) == count/2 {
			return
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			t.Fatalf("%d objects are left", len(left))
		}
	}
}
