// Package summaries stores one record for each session at the broker: what its events add up to ([Record]).
//
// Start with [Keeper], which keeps the records of the live generation and of each replay, and [View], which reads
// them. README.md beside this file explains the room.
//
// The invariant: the record of a session and its fold are stored in one atomic batch with the checkpoint, by the
// keeper that stored the previous checkpoint. A fold has the position of its last event, so an event that is read
// again adds nothing.
package summaries

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/broker"
	"tributary/pipeline/events"
	"tributary/pipeline/sessions"
	"tributary/pipeline/streams"
)

// Record is the stored record of a session: the summary of its events up to a position. Its state is the one right
// after its last event; [sessions.Summary.At] returns the present state.
type Record struct {
	sessions.Summary

	First    uint64 `json:"first_position"` // of its first event in the events stream
	Position uint64 `json:"position"`       // of its last event
}

// recordOf returns the record of a fold.
func recordOf(f *sessions.Fold) Record {
	r := Record{Summary: f.Summary(time.Time{})}
	r.First, r.Position = f.Positions()
	return r
}

// checkpoint is the progress of the records of a generation.
type checkpoint struct {
	Position streams.Positions `json:"position"`          // of the last event in the records, by cell
	Cell     int               `json:"cell,omitzero"`     // of the last event added
	Stored   time.Time         `json:"stored,omitzero"`   // when the broker stored the message at its Position
	Stream   time.Time         `json:"stream"`            // creation of the events stream
	Revision int               `json:"revision"`          // of the folds, see [sessions.Revision]
	Owner    string            `json:"owner"`             // keeper that stored it; empty after it stopped
	Epoch    uint64            `json:"epoch"`             // how often the records were taken over
	Begun    time.Time         `json:"begun,omitzero"`    // when a keeper began to make the records; zero for those of earlier programs
	Erasures uint64            `json:"erasures,omitzero"` // how often records were erased
}

// store is the stream with the records of a generation.
type store struct {
	js         jetstream.JetStream
	generation string
}

// stream is the name of the stream.
func (s *store) stream() string { return streams.SummariesStream(s.generation) }

func (s *store) checkpointSubject() string { return "summaries." + s.generation + ".checkpoint" }

// recordFilter returns the subject of the record of a session. Empty arguments match any.
func (s *store) recordFilter(source envelopes.Source, session string) string {
	return "summaries." + s.generation + ".records." + tokenOrAny(string(source)) + "." + tokenOrAny(session)
}

// foldSubject returns the subject of the fold of a session.
func (s *store) foldSubject(id events.SessionID) string {
	return "summaries." + s.generation + ".folds." + envelopes.Token(string(id.Source)) + "." + envelopes.Token(id.Session)
}

func tokenOrAny(id string) string {
	if id == "" {
		return "*"
	}
	return envelopes.Token(id)
}

// provision creates the stream if needed, with as many replicas as the events stream, which must exist.
func (s *store) provision(ctx context.Context) error {
	_, err := s.js.Stream(ctx, s.stream())
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	events, err := s.events(ctx)
	if err != nil {
		return err
	}
	_, err = s.js.CreateStream(ctx, jetstream.StreamConfig{
		Name:               s.stream(),
		Description:        "Records of the sessions of generation " + s.generation + ": made again from the events when it is removed.",
		Subjects:           []string{"summaries." + s.generation + ".>"},
		Retention:          jetstream.LimitsPolicy,
		Storage:            jetstream.FileStorage,
		Compression:        jetstream.S2Compression,
		Replicas:           events.Config.Replicas,
		MaxMsgsPerSubject:  1,
		AllowAtomicPublish: true,
		AllowMsgTTL:        true,
		AllowDirect:        true,
	})
	if err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return fmt.Errorf("provision stream %s: %w", s.stream(), err)
	}
	// Leave no stream behind if the generation was dropped meanwhile.
	if _, err := s.events(ctx); errors.Is(err, jetstream.ErrStreamNotFound) {
		return errors.Join(err, s.js.DeleteStream(ctx, s.stream()))
	}
	return nil
}

// events returns the state of the generation's events stream according to its leader.
func (s *store) events(ctx context.Context) (*jetstream.StreamInfo, error) {
	stream, err := s.js.Stream(ctx, streams.EventsStream(s.generation))
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", streams.EventsStream(s.generation), err)
	}
	return stream.CachedInfo(), nil
}

// readCheckpoint reads the checkpoint and its message from the leader of the stream. It returns
// [jetstream.ErrMsgNotFound] or [jetstream.ErrStreamNotFound] if there is none.
func (s *store) readCheckpoint(ctx context.Context) (c checkpoint, stored *jetstream.RawStreamMsg, err error) {
	stored, err = broker.LastStored(ctx, s.js, s.stream(), s.checkpointSubject())
	if api, ok := errors.AsType[*jetstream.APIError](err); ok && api.ErrorCode == jetstream.JSErrCodeStreamNotFound {
		err = jetstream.ErrStreamNotFound
	}
	if err != nil {
		return c, nil, fmt.Errorf("read the checkpoint of %s: %w", s.stream(), err)
	}
	if json.Unmarshal(stored.Data, &c) != nil {
		return c, stored, fmt.Errorf("%w: checkpoint of stream %s", errDamaged, s.stream())
	}
	return c, stored, nil
}

// fits reports whether the records of a checkpoint match the events stream and the revision of this program.
func (s *store) fits(ctx context.Context, c *checkpoint, events *jetstream.StreamInfo) (bool, error) {
	if c.Revision != sessions.Revision || !c.Stream.Equal(events.Created) {
		return false, nil
	}
	last, err := streams.LastPositions(ctx, s.js, s.generation)
	if err != nil {
		return false, fmt.Errorf("stream %s: %w", streams.EventsStream(s.generation), err)
	}
	if !last.Reach(c.Position) {
		return false, nil
	}
	position := c.Position.In(c.Cell)
	if position == 0 {
		return true, nil
	}
	stored, err := s.storedAt(ctx, c.Cell, position)
	if err != nil || c.Stored.IsZero() {
		return err == nil, err
	}
	if !stored.IsZero() {
		return stored.Equal(c.Stored), nil
	}
	// The message has expired, or the stream has grown to its old length after it went back in time.
	cell := envelopes.CellName(s.generation, c.Cell)
	stored, err = s.lastStored(ctx, streams.EventsStream(cell), envelopes.EventFilter(cell, "", "", ""), position)
	return !stored.After(c.Stored), err
}

// lastStored returns when the broker stored the last message of a stream up to a sequence that matches a filter; zero
// if there is none.
func (s *store) lastStored(ctx context.Context, stream, filter string, sequence uint64) (stored time.Time, err error) {
	found := uint64(0) // sequence of the last known match
	for end, step := sequence+1, uint64(1); found+1 < end; {
		from := max(found+1, end-min(step, end))
		switch m, err := broker.NextStored(ctx, s.js, stream, filter, from); {
		case errors.Is(err, jetstream.ErrMsgNotFound), err == nil && m.Sequence > sequence:
			end, step = from, 2*step
		case err != nil:
			return time.Time{}, fmt.Errorf("read stream %s: %w", stream, err)
		default:
			found, stored, step = m.Sequence, m.Time, max(1, (end-m.Sequence)/2)
		}
	}
	return stored, nil
}

// storedAt returns when the broker stored the message at a position of a cell; zero if it is missing.
func (s *store) storedAt(ctx context.Context, cell int, position uint64) (time.Time, error) {
	stream := streams.EventsStream(envelopes.CellName(s.generation, cell))
	m, err := broker.NextStored(ctx, s.js, stream, ">", position)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return time.Time{}, nil
	case err != nil:
		return time.Time{}, fmt.Errorf("read stream %s: %w", stream, err)
	case m.Sequence != position:
		return time.Time{}, nil
	}
	return m.Time, nil
}

// checkpointMessage returns the message of a checkpoint that replaces the one at a sequence; 0 for none.
func (s *store) checkpointMessage(c *checkpoint, replaces uint64) (*nats.Msg, error) {
	data, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode checkpoint: %w", err)
	}
	return &nats.Msg{Subject: s.checkpointSubject(), Data: data, Header: nats.Header{
		jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(replaces, 10)},
	}}, nil
}
