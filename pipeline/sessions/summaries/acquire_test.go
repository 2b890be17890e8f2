package summaries

import (
	"log/slog"
	"testing"

	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/streams"
)

// TestOfTwoKeepersThatBeginTheSlowerOneWaits lets two keepers take over the records of a generation that have no keeper, as those
// of two workers do when a replay starts. That one of them was faster is no error.
func TestOfTwoKeepersThatBeginTheSlowerOneWaits(t *testing.T) {
	t.Parallel()
	js := pipelinetest.NewServer(t).Provision(streams.Topology{Generation: "v1", Partitions: 1})
	var leaders []*leader
	for _, worker := range []string{"one", "two"} {
		k, err := New(js, Config{Worker: worker})
		if err != nil {
			t.Fatal(err)
		}
		c := &candidate{store: store{js, "v1"}, keeper: k, log: slog.New(slog.DiscardHandler)}
		if err := c.provision(t.Context()); err != nil {
			t.Fatal(err)
		}
		l, err := c.take(t.Context(), checkpoint{Owner: k.owner, Epoch: 1}, 0)
		if err != nil {
			t.Errorf("keeper %s: %v", worker, err)
		}
		leaders = append(leaders, l)
	}
	if leaders[0] == nil || leaders[1] != nil {
		t.Errorf("leaders %v, want the first keeper alone", leaders)
	}
}
