package subscribe_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/streams"
)

// consumeWithNATS passes the events of the live generation to handle until ctx ends or handle
// fails. Call it again to go on: an event is delivered again unless handle succeeded for it.
func consumeWithNATS(ctx context.Context, js jetstream.JetStream, handle func(envelopes.AgentEventV1) error) error {
	generation, err := streams.LiveGeneration(ctx, js)
	if err != nil {
		return err
	}
	consumer, err := js.CreateOrUpdateConsumer(ctx, streams.EventsStream(generation), jetstream.ConsumerConfig{
		Durable:       "mine",
		FilterSubject: "events." + generation + ".>",
		MaxAckPending: 1, // keeps the order of redelivered events; without it sort by Sequence
	})
	if err != nil {
		return err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return err
	}
	defer messages.Stop()
	for {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return err
		}
		event, _, err := envelopes.DecodeEvent(m.Headers(), m.Data())
		if err == nil {
			err = handle(event)
		}
		if err == nil {
			err = m.Ack()
		}
		if err != nil {
			return err
		}
	}
}

// The consumer of README.md that uses nats.go alone.
func Example_natsAlone() {
	ctx := context.Background()
	js, end, err := broker(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()
	errEnough := errors.New("two events are enough")
	err = consumeWithNATS(ctx, js, func(e envelopes.AgentEventV1) error {
		fmt.Println(e.SessionID, e.Sequence, e.EventType, *e.Text)
		if e.Sequence == 2 {
			return errEnough
		}
		return nil
	})
	if !errors.Is(err, errEnough) {
		fmt.Println(err)
	}
	// Output:
	// s1 1 user_message why is the sky blue?
	// s1 2 assistant_message because of Rayleigh scattering
}
