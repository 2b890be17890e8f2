package main_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/pipeline"
	"tributary/pipeline/embedded"
)

// consume passes the events of the broker to handle until ctx ends or handle fails. Call it
// again to go on: an event is delivered again unless handle succeeded for it.
func consume(ctx context.Context, js jetstream.JetStream, handle func(envelopes.AgentEventV1) error) error {
	consumer, err := js.CreateOrUpdateConsumer(ctx, "EVENTS_v1", jetstream.ConsumerConfig{
		Durable:       "my-consumer",
		FilterSubject: "events.v1.>",
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

// The consumer of README.md prints the events of two records.
func Example() {
	if err := example(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// s1 1 user_message why is the sky blue?
	// s1 2 assistant_message because of Rayleigh scattering
}

func example(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "tributary")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary folder
	server, err := embedded.Start(embedded.Config{StoreDir: dir, Listen: "127.0.0.1:0"})
	if err != nil {
		return err
	}
	defer server.WaitForShutdown()
	defer server.Shutdown()
	nc, err := nats.Connect(server.ClientURL())
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	if err := storeEvents(ctx, js); err != nil {
		return err
	}
	errEnough := errors.New("two events are enough")
	err = consume(ctx, js, func(e envelopes.AgentEventV1) error {
		fmt.Println(e.SessionID, e.Sequence, e.EventType, *e.Text)
		if e.Sequence == 2 {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// storeEvents publishes two records and runs a stage until their events are stored.
func storeEvents(ctx context.Context, js jetstream.JetStream) error {
	topology := pipeline.DefaultTopology()
	if err := pipeline.Provision(ctx, js, topology); err != nil {
		return err
	}
	for _, line := range []string{
		`{"type":"user","uuid":"u1","timestamp":"2026-03-01T09:00:00Z","message":{"role":"user","content":"why is the sky blue?"}}`,
		`{"type":"assistant","uuid":"u2","timestamp":"2026-03-01T09:00:02Z","message":{"id":"m1","role":"assistant","content":[{"type":"text","text":"because of Rayleigh scattering"}]}}`,
	} {
		m := pipeline.RawMessage(normalizers.Record{Source: envelopes.ClaudeCode, Session: "s1", Data: []byte(line)})
		if _, err := js.PublishMsg(ctx, m); err != nil {
			return err
		}
	}
	stage, err := pipeline.New(js, pipeline.Config{Topology: topology})
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- stage.Run(ctx) }()
	err = pipeline.CatchUp(ctx, js, topology)
	stage.Drain()
	return errors.Join(err, <-done)
}
