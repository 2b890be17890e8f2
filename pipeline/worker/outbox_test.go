package worker

import (
	"testing"
	"testing/synctest"

	"tributary/pipeline/broker"
)

// TestBatchLeavesOutAnEndingOwnership collects the rest of a chunk while its ownership ends and lets no other batch be
// sent. The committer must not wait for it, because it stores the chunks of all partitions.
func TestBatchLeavesOutAnEndingOwnership(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rest := newChunk(1)
		rest.records = 1
		b := &outbox{ctx: t.Context(), sealed: rest, building: newChunk(2), sending: broker.NewExclusive()}
		if err := b.sending.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		to := &batch{limits: batchLimits}
		b.addTo(t.Context(), to)
		if !to.empty() || b.sealed != rest {
			t.Errorf("the batch has %d entries", len(to.entries))
		}
	})
}
