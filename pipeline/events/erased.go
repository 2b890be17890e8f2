package events

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/broker"
	"tributary/pipeline/streams"
)

// Events leave a stream by age, from the first one on, or because an operator erased them. The stream lists the positions
// of erased events, so that a reader whose last event was erased does not take the stream for one that went back in time.

// erasedVersion is the first byte of a message at [envelopes.ErasedSubject]. After it come the positions, see
// [streams.Sequences].
const erasedVersion = 1

// maxErased bounds the positions of one message.
const maxErased = 100_000

// ErasedMessages returns the messages that list erased events of a cell of a generation by their positions, which are in
// order. Store them before the events are removed.
func ErasedMessages(cellName string, positions streams.Sequences) ([]*nats.Msg, error) {
	var messages []*nats.Msg
	for some := range slices.Chunk(positions, maxErased) {
		data, err := some.AppendBinary([]byte{erasedVersion})
		if err != nil {
			return nil, err
		}
		messages = append(messages, &nats.Msg{Subject: envelopes.ErasedSubject(cellName), Data: data, Header: nats.Header{}})
	}
	return messages, nil
}

// isErased reports whether the leader of the stream lists the event at a position as erased.
func isErased(ctx context.Context, js jetstream.JetStream, cellName string, position uint64) (bool, error) {
	stream := streams.EventsStream(cellName)
	for from := position; ; {
		m, err := broker.ReadStored(ctx, js, stream, broker.GetRequest{Sequence: from, NextBySubject: envelopes.ErasedSubject(cellName)})
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		var positions streams.Sequences
		if len(m.Data) == 0 || m.Data[0] != erasedVersion || positions.UnmarshalBinary(m.Data[1:]) != nil {
			return false, fmt.Errorf("%w: message %d of stream %s", streams.ErrState, m.Sequence, stream)
		}
		if positions.Has(position) {
			return true, nil
		}
		from = m.Sequence + 1
	}
}
