package broker_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/broker"
	"tributary/pipeline/pipelinetest"
)

// An answer without the checkpoint that the caller knows of is not used.
func TestMessagesAreAsOfTheCheckpoint(t *testing.T) {
	t.Parallel()
	js := pipelinetest.NewServer(t).JetStream()
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, AllowDirect: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, subject := range []string{"s.state", "s.checkpoint"} {
		if _, err := js.Publish(t.Context(), subject, []byte(subject)); err != nil {
			t.Fatal(err)
		}
	}
	for sequence, stored := range []bool{true, true, true, false} {
		checkpoint := broker.Place{Subject: "s.checkpoint", Sequence: uint64(sequence)}
		got, err := broker.MessagesAsOf(t.Context(), js, "S", checkpoint, []string{"s.state", "s.missing"})
		switch {
		case !stored:
			if err == nil || !strings.Contains(err.Error(), "replica has not got the checkpoint yet") {
				t.Errorf("checkpoint at %d: %v, %v", sequence, got, err)
			}
		case err != nil || len(got) != 2 || string(got["s.state"].Data) != "s.state" || got["s.checkpoint"].Sequence != 2:
			t.Errorf("checkpoint at %d: %v, %v", sequence, got, err)
		}
	}
}
