package titles

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/broker"
)

// Query selects records. The zero value of a field selects all.
type Query struct {
	Source envelopes.Source
	Pinned *bool
	After  uint64 // only records with a higher Revision
}

// List iterates over the stored records, those of titled or pinned sessions, in the order of their last change. A
// session that changes meanwhile may come twice, the newer record last; none is missed. For an unreadable record it
// yields an error and continues; any other error ends it.
func (s *Service) List(ctx context.Context, q Query) iter.Seq2[Session, error] {
	return func(yield func(Session, error) bool) {
		filter := allMetadata
		if q.Source != "" {
			filter = "sessions." + envelopes.Token(string(q.Source)) + ".*.metadata"
		}
		_, err := eachRecord(ctx, s.js, filter, q.After, func(r Session, err error) bool {
			if err == nil && q.Pinned != nil && r.Pinned != *q.Pinned {
				return true
			}
			return yield(r, err)
		})
		if err != nil {
			yield(Session{}, storage("load_session", err))
		}
	}
}

// eachRecord yields the records of a filter behind a revision, in stream order, until yield returns false. It returns
// the sequence at which they are complete, 0 if there are none: the last record yielded of each session is the one
// that the stream had at this sequence.
//
// This holds because a record that is stored again moves to the end of the stream, and the iteration ends at a record
// that is the last in the stream. It holds for the replica that is read, which may be behind others. If the consumer
// was recreated meanwhile, perhaps on another replica, the leader must have no later record either.
func eachRecord(ctx context.Context, js jetstream.JetStream, filter string, after uint64, yield func(Session, error) bool) (complete uint64, err error) {
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return 0, err
	}
	messages, pending, err := read(ctx, s, filter, after+1)
	if err != nil {
		return 0, err
	}
	defer messages.Stop()
	for moved, count := false, uint64(1); pending > 0; count++ {
		m, meta, err := nextMessage(ctx, messages)
		if err != nil {
			return 0, err
		}
		moved = moved || meta.Sequence.Consumer != count
		complete = m.Sequence + 1 // the change of the record
		r, err := decodeSession(m)
		if !yield(r, err) {
			break
		}
		if pending = meta.NumPending; pending > 0 || !moved {
			continue
		}
		switch _, err := broker.NextStored(ctx, js, stream, filter, complete); {
		case err == nil:
			pending = 1
		case !errors.Is(err, jetstream.ErrMsgNotFound):
			return 0, err
		}
	}
	return complete, nil
}

// read begins to read the messages of a filter from a sequence on, with an ordered consumer. pending is their number.
func read(ctx context.Context, s jetstream.Stream, filter string, from uint64) (messages jetstream.MessagesContext, pending uint64, err error) {
	consumer, err := s.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{filter},
		DeliverPolicy:  jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:    from,
	})
	if err != nil {
		return nil, 0, err
	}
	messages, err = consumer.Messages()
	if err != nil {
		return nil, 0, err
	}
	return messages, consumer.CachedInfo().NumPending, nil
}

// nextMessage waits for the next message of an ordered consumer.
func nextMessage(ctx context.Context, messages jetstream.MessagesContext) (*jetstream.RawStreamMsg, *jetstream.MsgMetadata, error) {
	m, err := messages.Next(jetstream.NextContext(ctx))
	if err != nil {
		return nil, nil, err
	}
	meta, err := m.Metadata()
	if err != nil {
		return nil, nil, fmt.Errorf("read stream %s: %w", stream, err)
	}
	return &jetstream.RawStreamMsg{
		Subject: m.Subject(), Sequence: meta.Sequence.Stream, Header: m.Headers(), Data: m.Data(), Time: meta.Timestamp,
	}, meta, nil
}
