package pipeline

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
)

// Event is an event of a generation, as the events stream holds it.
type Event struct {
	envelopes.AgentEventV1
	Provenance envelopes.Provenance
	Position   uint64    // sequence in the events stream
	Stored     time.Time // when the broker stored it
}

// EventsQuery selects events of a generation. The zero value of a field selects all.
type EventsQuery struct {
	Source  envelopes.Source
	Session string
	Type    envelopes.EventType
	Since   time.Time // stored at this time or later
	Follow  bool      // go on with events that arrive, instead of ending with those that are there
}

// Events iterates over the events of a generation in the order of their stream, and so in
// order within each session. It ends with the last event that is there at the beginning or,
// when q follows, with ctx. A message that cannot be read is yielded as an error with its
// Position, and the iteration goes on; any other error ends it.
func Events(ctx context.Context, js jetstream.JetStream, generation string, q EventsQuery) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		err := eachEvent(ctx, js, generation, q, func(m jetstream.Msg, meta *jetstream.MsgMetadata) bool { return yield(readEvent(m, meta)) })
		if err != nil {
			yield(Event{}, fmt.Errorf("read events of %s: %w", generation, err))
		}
	}
}

// eachEvent yields the messages of events, until yield returns false.
func eachEvent(ctx context.Context, js jetstream.JetStream, generation string, q EventsQuery, yield func(jetstream.Msg, *jetstream.MsgMetadata) bool) error {
	stream, err := js.Stream(ctx, EventsStream(generation))
	if err != nil {
		return err
	}
	end := stream.CachedInfo().State.LastSeq
	consumer, err := stream.OrderedConsumer(ctx, q.consumer(generation))
	if err != nil {
		return err
	}
	if consumer.CachedInfo().NumPending == 0 && !q.Follow {
		return nil
	}
	messages, err := consumer.Messages()
	if err != nil {
		return err
	}
	defer messages.Stop()
	for {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if ctx.Err() != nil && err != nil {
			return nil // ctx ends the iteration
		}
		if err != nil {
			return err
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		if !q.Follow && meta.Sequence.Stream > end {
			return nil
		}
		if !yield(m, meta) || meta.NumPending == 0 && !q.Follow {
			return nil
		}
	}
}

// consumer returns the configuration of a consumer of the selected events.
func (q EventsQuery) consumer(generation string) jetstream.OrderedConsumerConfig {
	cfg := jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{envelopes.EventFilter(generation, q.Source, q.Session, q.Type)},
		DeliverPolicy:  jetstream.DeliverAllPolicy,
	}
	if !q.Since.IsZero() {
		cfg.DeliverPolicy, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, &q.Since
	}
	return cfg
}

// readEvent reads an event. The result has its Position even when it cannot be read.
func readEvent(m jetstream.Msg, meta *jetstream.MsgMetadata) (Event, error) {
	e := Event{Position: meta.Sequence.Stream, Stored: meta.Timestamp.UTC()}
	var err error
	if e.AgentEventV1, e.Provenance, err = envelopes.DecodeEvent(m.Headers(), m.Data()); err != nil {
		return e, fmt.Errorf("event %d of %s: %w", e.Position, meta.Stream, err)
	}
	return e, nil
}
