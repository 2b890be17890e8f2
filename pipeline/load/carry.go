package load

import (
	"context"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/broker"
	"tributary/pipeline/streams"
)

// FloorStream is the stream that [Carry] copies to.
const FloorStream = "BENCH_FLOOR"

// CreateFloor creates the stream of [Carry].
func CreateFloor(ctx context.Context, js jetstream.JetStream) error {
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: FloorStream, Subjects: []string{"bench.floor.>"}, AllowAtomicPublish: true})
	return err
}

// Carry is the floor that a stage is measured against: it copies messages of the raw stream unchanged, in batches, to
// another stream, until it has copied n or ctx ends. It begins with the first message, or with onlyNew with the next
// one.
func Carry(ctx context.Context, js jetstream.JetStream, n int, onlyNew bool) error {
	cfg := jetstream.OrderedConsumerConfig{}
	if onlyNew {
		cfg.DeliverPolicy = jetstream.DeliverNewPolicy
	}
	consumer, err := js.OrderedConsumer(ctx, streams.RawStream, cfg)
	if err != nil {
		return err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return err
	}
	defer messages.Stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	arrived := make(chan *nats.Msg, batchRecords)
	go func() {
		for {
			m, err := messages.Next(jetstream.NextContext(ctx))
			if err != nil {
				cancel(err)
				return
			}
			// The subject of the raw stream may have no partition in front.
			copied := &nats.Msg{Subject: "bench.floor." + strings.TrimPrefix(m.Subject(), "raw."), Header: nats.Header{}, Data: m.Data()}
			select {
			case arrived <- copied:
			case <-ctx.Done():
				return
			}
		}
	}()
	for n > 0 {
		batch, err := nextBatch(ctx, arrived, n)
		if err != nil {
			return err
		}
		if _, err := broker.PublishBatch(ctx, js.Conn(), batch); err != nil {
			return err
		}
		n -= len(batch)
	}
	return nil
}

// nextBatch waits for a message, and returns it with those that are already there.
func nextBatch(ctx context.Context, arrived <-chan *nats.Msg, most int) (batch []*nats.Msg, err error) {
	select {
	case m := <-arrived:
		batch = append(batch, m)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	for size := len(batch[0].Data); len(batch) < min(most, batchRecords) && size < batchBytes; {
		select {
		case m := <-arrived:
			batch = append(batch, m)
			size += len(m.Data)
		default:
			return batch, nil
		}
	}
	return batch, nil
}
