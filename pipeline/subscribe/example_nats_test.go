package subscribe_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/streams"
)

// consumeWithNATS passes the events of the live generation to handle until ctx ends or handle
// fails. Call it again to go on: an event is delivered again unless handle succeeded for it.
// have is the generation whose events the program has, empty for none. When another one is live,
// discard removes them and remembers its name, and every event of that one follows.
func consumeWithNATS(
	ctx context.Context, js jetstream.JetStream, have string,
	discard func(generation string) error, handle func(envelopes.AgentEventV1) error,
) error {
	for {
		live, err := streams.LiveGeneration(ctx, js)
		if err != nil {
			return err
		}
		stream := streams.EventsStream(live)
		if live != have {
			if err := js.DeleteConsumer(ctx, stream, "mine"); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
				return err
			}
			if err := discard(live); err != nil {
				return err
			}
			have = live
		}
		consumer, err := js.CreateOrUpdateConsumer(ctx, stream, jetstream.ConsumerConfig{
			Durable:       "mine",
			FilterSubject: "events." + live + ".>",
			MaxAckPending: 1, // keeps the order of redelivered events; without it sort by Sequence
		})
		if err != nil {
			return err
		}
		// The event that a killed process had is delivered at once, not when AckWait is over.
		if _, err := js.ResetConsumer(ctx, stream, "mine"); err != nil {
			return err
		}
		for have == live {
			m, err := consumer.Next(jetstream.FetchMaxWait(time.Second))
			if err != nil { // no event has arrived, or the generation was dropped
				var failed error
				live, failed = streams.LiveGeneration(ctx, js)
				if failed != nil || live == have && !errors.Is(err, nats.ErrTimeout) {
					return errors.Join(err, failed)
				}
				continue
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
}

// A consumer that uses nats.go alone.
func Example_natsAlone() {
	ctx := context.Background()
	js, end, err := broker(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()
	errEnough := errors.New("two events are enough")
	err = consumeWithNATS(ctx, js, "", func(string) error { return nil }, func(e envelopes.AgentEventV1) error {
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
