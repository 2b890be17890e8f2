package broker_test

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/broker"
	"tributary/pipeline/pipelinetest"
)

// filled returns a server whose stream S has a number of messages.
func filled(t *testing.T, messages int) jetstream.JetStream {
	t.Helper()
	js := pipelinetest.NewServer(t).JetStream()
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}}); err != nil {
		t.Fatal(err)
	}
	for range messages {
		if _, err := js.Publish(t.Context(), "s.message", nil); err != nil {
			t.Fatal(err)
		}
	}
	return js
}

// TestAReaderThatIsCutOffLeavesNoConsumer ends the context when the request for a consumer arrives. If the answer
// arrives before that, the reader is closed.
func TestAReaderThatIsCutOffLeavesNoConsumer(t *testing.T) {
	t.Parallel()
	js := filled(t, 1)
	asked := make(chan *nats.Msg, 16)
	sub, err := js.Conn().ChanSubscribe("$JS.API.CONSUMER.CREATE.S.>", asked)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	cut := 0
	for range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-asked
			cancel()
		}()
		r, err := broker.OpenReader(ctx, js, "S", jetstream.ConsumerConfig{})
		if err != nil {
			cut++
		} else {
			r.Close()
		}
		cancel()
	}
	if cut == 0 {
		t.Log("no reader was cut off")
	}
	pipelinetest.AwaitNoConsumers(t, js, "S")
}

// TestAReaderAsksForNoMoreThanItWants reads up to a message: the server sends at most one message behind it.
func TestAReaderAsksForNoMoreThanItWants(t *testing.T) {
	t.Parallel()
	const messages = 2000
	js := filled(t, messages)
	for _, until := range []uint64{1, 2, 255, 256, 257, 511, 512, 513, 1000, messages} {
		r, err := broker.OpenReader(t.Context(), js, "S", jetstream.ConsumerConfig{})
		if err != nil {
			t.Fatal(err)
		}
		r.End, r.Until = until, until
		for r.From <= until {
			if _, err := r.Next(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		}
		if r.From > until+2 {
			t.Errorf("up to message %d: %d were read", until, r.From-1)
		}
		r.Close()
	}
}
