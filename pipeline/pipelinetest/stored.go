package pipelinetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/broker"
	"tributary/pipeline/embedded"
)

// storedMessages iterates over a stream, up to the last message that its leader has. The pending count of a consumer
// does not suffice: it lacks a message that has just replaced another, includes messages removed meanwhile, and may
// come from a late replica.
func storedMessages(ctx context.Context, js jetstream.JetStream, stream string) iter.Seq2[broker.Message, error] {
	return func(yield func(broker.Message, error) bool) {
		for next := uint64(1); ; {
			for m, err := range pendingMessages(ctx, js, stream, next) {
				if !yield(m, err) || err != nil {
					return
				}
				next = m.Sequence + 1
			}
			if _, err := broker.NextStored(ctx, js, stream, ">", next); errors.Is(err, jetstream.ErrMsgNotFound) {
				return
			} else if err != nil {
				yield(broker.Message{}, err)
				return
			}
		}
	}
}

// pendingMessages iterates over the messages that one consumer sends from a sequence on. It requests the messages
// itself, because the library takes a record whose producer set the header Status for a status of the server.
func pendingMessages(ctx context.Context, js jetstream.JetStream, stream string, from uint64) iter.Seq2[broker.Message, error] {
	return func(yield func(broker.Message, error) bool) {
		err := func() error {
			creating, cancel := context.WithTimeout(ctx, patience) // the library gives up after seconds by itself
			defer cancel()
			consumer, err := js.CreateConsumer(creating, stream, jetstream.ConsumerConfig{
				DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from, AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true,
			})
			if err != nil {
				return err
			}
			name := consumer.CachedInfo().Name
			defer func() { _ = js.DeleteConsumer(ctx, stream, name) }() // the server removes it later by itself
			if consumer.CachedInfo().NumPending == 0 {
				return nil
			}
			inbox, err := js.Conn().SubscribeSync(js.Conn().NewInbox())
			if err != nil {
				return err
			}
			defer func() { _ = inbox.Unsubscribe() }() // fails when the connection is closed
			for {
				request := fmt.Appendf(nil, `{"batch":500,"max_bytes":%d,"no_wait":true}`, 2*embedded.MaxPayload)
				if err := js.Conn().PublishRequest(jetstream.DefaultAPIPrefix+"CONSUMER.MSG.NEXT."+stream+"."+name, inbox.Subject, request); err != nil {
					return err
				}
				for range 500 {
					m, err := inbox.NextMsg(time.Second)
					if errors.Is(err, nats.ErrTimeout) || errors.Is(err, nats.ErrNoResponders) {
						return ctx.Err() // the consumer is gone
					}
					if err != nil {
						return err
					}
					meta, err := m.Metadata()
					if err != nil { // a status of the server: it sends no more
						return ctx.Err()
					}
					if !yield(broker.Message{Msg: m, Sequence: meta.Sequence.Stream, Stored: meta.Timestamp.UTC(), Pending: meta.NumPending}, nil) || meta.NumPending == 0 {
						return nil
					}
				}
			}
		}()
		if err != nil {
			yield(broker.Message{}, err)
		}
	}
}
