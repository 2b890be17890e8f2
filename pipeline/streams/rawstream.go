package streams

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/broker"
)

// LastRecords returns the raw sequence of the last record of each partition of a generation; 0 for a partition
// without records.
func LastRecords(ctx context.Context, js jetstream.JetStream, g Generation, partitions int) ([]uint64, error) {
	last := make([]uint64, partitions)
	for p := range last {
		for _, filter := range g.Part.Filters(p) {
			m, err := broker.LeaderGet(ctx, js, g.Layout.RawStream(p), broker.GetRequest{LastBySubject: filter})
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				continue
			}
			if err != nil {
				return nil, err
			}
			if m.Sequence >= g.Part.Sequence {
				last[p] = max(last[p], m.Sequence)
			}
		}
	}
	return last, nil
}

// RawState is the state of the raw stream of a cell according to its leader.
type RawState struct {
	// Created identifies the stream. It survives restarts and configuration changes; a stream that is created again,
	// or restored from a backup by the nats command, has another one.
	Created time.Time

	First, Last uint64 // First is Last+1 if the stream has no messages
	Limited     bool   // the stream removes old messages by itself: by age, count or size

	// Discards is set if a limit removes messages that may be unread; workers refuse such a stream.
	Discards bool

	Layout Layout // of the deployment; without Partitions if there is one cell
}

// ReadRawState asks the leader of the raw stream of a cell for its state. It returns [jetstream.ErrStreamNotFound] if
// there is no such stream.
func ReadRawState(ctx context.Context, js jetstream.JetStream, cell int) (RawState, error) {
	info, err := broker.LeaderInfo(ctx, js, RawStreamOf(cell))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return RawState{}, jetstream.ErrStreamNotFound
	}
	if err != nil {
		return RawState{}, fmt.Errorf("read state of stream %s: %w", RawStreamOf(cell), err)
	}
	c := info.Config
	full := c.Discard == "old" && (c.MaxMsgs > 0 || c.MaxBytes > 0) || c.MaxMsgsPerSubject > 0
	return RawState{
		Created:  info.Created,
		First:    info.State.FirstSeq,
		Last:     info.State.LastSeq,
		Limited:  c.MaxAge > 0 || full,
		Discards: full,
		Layout:   layoutOf(c.Metadata),
	}, nil
}

// DiscardError returns why no record may be sent to a raw stream that [RawState.Discards], with the cure.
func DiscardError(cell int) error {
	stream := RawStreamOf(cell)
	return fmt.Errorf("stream %s discards unread records: %s", stream, cureDiscard(stream))
}

// RawMark identifies a message of the raw stream at its sequence.
type RawMark struct {
	ID   string    // Nats-Msg-Id; empty if it has none
	Time time.Time // when the broker stored it
}

// ReadRawMark asks the leader of the raw stream of a cell for the message at a sequence. It returns
// [jetstream.ErrMsgNotFound] if there is none.
func ReadRawMark(ctx context.Context, js jetstream.JetStream, cell int, sequence uint64) (RawMark, error) {
	stored, err := broker.LeaderGet(ctx, js, RawStreamOf(cell), broker.GetRequest{Sequence: sequence})
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return RawMark{}, err
	}
	if err != nil {
		return RawMark{}, fmt.Errorf("read message %d of stream %s: %w", sequence, RawStreamOf(cell), err)
	}
	mark := RawMark{Time: stored.Time}
	if len(stored.Header) > 0 {
		header, err := nats.DecodeHeadersMsg(stored.Header)
		if err != nil {
			return RawMark{}, fmt.Errorf("headers of message %d of stream %s: %w", sequence, RawStreamOf(cell), err)
		}
		mark.ID = header.Get(nats.MsgIdHdr)
	}
	return mark, nil
}

// OpenRaw begins to read partitions of a part of a raw stream at a sequence; all partitions if none is named. It
// requests ahead messages at a time.
func OpenRaw(ctx context.Context, js jetstream.JetStream, stream string, part Part, partitions []int, from uint64, ahead int) (*broker.Reader, error) {
	cfg := jetstream.ConsumerConfig{
		Description:   fmt.Sprintf("A worker: partitions %v.", partitions),
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:   max(from, part.Sequence),
	}
	for _, n := range partitions {
		cfg.FilterSubjects = append(cfg.FilterSubjects, part.Filters(n)...)
	}
	r, err := broker.OpenReader(ctx, js, stream, cfg)
	if err == nil {
		r.Ahead = ahead
	}
	return r, err
}

// BrokerTime returns the present time by the broker's clock.
func BrokerTime(ctx context.Context, js jetstream.JetStream) (time.Time, error) {
	s, err := js.Stream(ctx, RawStream)
	if err != nil {
		return time.Time{}, fmt.Errorf("stream %s: %w", RawStream, err)
	}
	return s.CachedInfo().TimeStamp, nil
}
