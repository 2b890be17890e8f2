package subscribe_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"tributary/envelopes"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
)

// TestConsumerWithNATSAlone runs consumeWithNATS. The consumer ends without acknowledging its last event, and gets that
// event again when it restarts, before the wait for the acknowledgement is over. It begins again with each generation
// that becomes live, also if the change happened while it did not run, and if the previous generation was dropped.
func TestConsumerWithNATSAlone(t *testing.T) {
	t.Parallel()
	js := pipelinetest.NewServer(t).Provision(topology())
	work(t, js)
	feed := func(texts ...string) { pipelinetest.Publish(t, js, prompts("s", texts...)...) }
	have, got := "", []string(nil)
	errEnough := errors.New("the consumer ends")
	// consume runs the consumer until it has so many events, and ends it in the last one.
	consume := func(most int, meanwhile func()) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), ackWait/2)
		defer cancel()
		err := consumeWithNATS(ctx, js, have, func(generation string) error {
			have, got = generation, nil
			return nil
		}, func(e envelopes.AgentEventV1) error {
			if got = append(got, *e.Text); len(got) == most {
				return errEnough
			}
			if meanwhile != nil {
				meanwhile()
				meanwhile = nil
			}
			return nil
		})
		if !errors.Is(err, errEnough) {
			t.Fatalf("got %v, want %v, with the events %v", err, errEnough, got)
		}
	}
	requires := func(generation string, want ...string) {
		t.Helper()
		if have != generation || !slices.Equal(got, want) {
			t.Fatalf("events %v of %s, want %v of %s", got, have, want, generation)
		}
	}
	feed("1", "2", "3")
	consume(2, nil)
	requires("v1", "1", "2")
	got = got[:1] // the last one was not acknowledged
	consume(3, nil)
	requires("v1", "1", "2", "3")
	got = nil

	finished := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	finished(promote(deadline(t), js, "b"))
	consume(3, nil)
	requires("b", "1", "2", "3")
	got = got[:2]
	_, _, err := replay.RollBack(t.Context(), js)
	finished(err)
	consume(3, nil)
	requires("v1", "1", "2", "3")
	got = got[:2]
	consume(4, func() { // while it runs
		finished(promote(deadline(t), js, "c"))
		finished(replay.Drop(t.Context(), js, "v1"))
		feed("4")
	})
	requires("c", "1", "2", "3", "4")
}

// ackWait is how long a consumer waits for an acknowledgement by default.
const ackWait = 30 * time.Second
