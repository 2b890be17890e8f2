package pipeline

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
)

// Event is an event of a generation as its stream holds it.
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
	Follow  bool      // go on with what comes, instead of ending with what is there
}

// Events iterates over the events of a generation in the order of their stream, so in
// order within each session. It ends with what was there at the beginning, or, when it
// follows, with ctx. A message that cannot be read comes as an error with its Position,
// and the iteration goes on; any other error ends it.
func Events(ctx context.Context, js jetstream.JetStream, generation string, q EventsQuery) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		cfg := jetstream.OrderedConsumerConfig{
			FilterSubjects: []string{envelopes.EventFilter(generation, q.Source, q.Session, q.Type)},
			DeliverPolicy:  jetstream.DeliverAllPolicy,
		}
		if !q.Since.IsZero() {
			cfg.DeliverPolicy, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, &q.Since
		}
		fail := func(err error) { yield(Event{}, fmt.Errorf("read events of %s: %w", generation, err)) }
		stream, err := js.Stream(ctx, EventsStream(generation))
		if err != nil {
			fail(err)
			return
		}
		end := stream.CachedInfo().State.LastSeq
		consumer, err := stream.OrderedConsumer(ctx, cfg)
		if err != nil {
			fail(err)
			return
		}
		if consumer.CachedInfo().NumPending == 0 && !q.Follow {
			return
		}
		messages, err := consumer.Messages()
		if err != nil {
			fail(err)
			return
		}
		defer messages.Stop()
		for {
			m, err := messages.Next(jetstream.NextContext(ctx))
			if err != nil {
				if ctx.Err() == nil {
					fail(err)
				}
				return
			}
			meta, err := m.Metadata()
			if err != nil {
				fail(err)
				return
			}
			if !q.Follow && meta.Sequence.Stream > end {
				return
			}
			e := Event{Position: meta.Sequence.Stream, Stored: meta.Timestamp.UTC()}
			if e.AgentEventV1, e.Provenance, err = envelopes.DecodeEvent(m.Headers(), m.Data()); err != nil {
				err = fmt.Errorf("event %d of %s: %w", e.Position, EventsStream(generation), err)
			}
			if !yield(e, err) || meta.NumPending == 0 && !q.Follow {
				return
			}
		}
	}
}
