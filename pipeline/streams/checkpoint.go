package streams

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/broker"
)

// Checkpoint is the progress of a partition in a generation. Only the newest checkpoint in the events stream counts;
// everything else, in memory or on the server, is a hint. To store the next one, a worker must name the stream
// sequence of the newest, so of two workers that both believe they own a partition only one can store anything.
type Checkpoint struct {
	Raw     uint64    `json:"raw"`               // last raw sequence that is done; 0 at the beginning
	RawTime time.Time `json:"raw_time,omitzero"` // when the broker stored that record

	// Records is how many records of the partition behind raw sequence Counted are done. A worker of a version
	// without these fields drops them; the next worker then counts from its Raw ([Checkpoint.WithCounted]).
	Records uint64 `json:"records,omitzero"`
	Counted uint64 `json:"counted,omitzero"`

	// Out is set while the records after Raw are stored only in part, because their messages exceed one batch: the
	// stream has every message of the records before Out, and the first Part messages of record Out.
	Out  uint64 `json:"out,omitzero"`
	Part int    `json:"part,omitzero"`

	Owner    string `json:"owner,omitzero"`    // worker that wrote it
	Epoch    uint64 `json:"epoch,omitzero"`    // how often the partition was acquired
	Tries    int    `json:"tries,omitzero"`    // attempts on record Raw+1 without progress
	Revision int    `json:"revision,omitzero"` // of the normalizers

	// Slow is the raw sequence of a record behind Raw that took too long, and Timeouts is how often.
	Slow     uint64 `json:"slow,omitzero"`
	Timeouts int    `json:"timeouts,omitzero"`

	// Started is when the replay of the generation was started. It shows a worker that the generation was dropped and
	// made again under the same name.
	Started time.Time `json:"started,omitzero"`

	// Cut is set when the generation is retired: the name of the generation that replaced it. Raw is then the last
	// record of the retired generation, and no worker owns the partition any more.
	Cut string `json:"cut,omitzero"`

	// Since is set by a fence until the search for a torn batch is done: the stream sequence of the first fenced
	// checkpoint.
	Since uint64 `json:"since,omitzero"`
	// Ahead maps sessions whose records behind Raw were stored by a torn batch to the raw sequence up to which they
	// were. A session is named as in its state subject, <source>.<token>.
	Ahead map[string]uint64 `json:"ahead,omitempty"`

	Gaps      SessionList `json:"gaps,omitzero"`      // sessions with gaps in their files
	Rewritten SessionList `json:"rewritten,omitzero"` // sessions with records at places that they had passed ([events.SessionRewrites])

	// Erased is the sequence in [ErasuresStream] of the last erasure that counts in the partition. A worker of a version
	// without the field drops it, and makes events of records that arrive later for erased sessions.
	Erased uint64 `json:"erased,omitzero"`

	// Archived is how many states were moved to archives, counting repeated moves.
	Archived uint64 `json:"archived,omitzero"`
	// ArchivedTo is the highest stream sequence of a moved state: no archive has a newer copy of a state behind it.
	// It is 0 while the partition has no archive, and in checkpoints of versions without the field, see
	// GetCheckpoint.
	ArchivedTo uint64 `json:"archived_to,omitzero"`
	// Unarchived is how many old states found no room in their archives when an owner last checked all of them.
	Unarchived int `json:"unarchived,omitzero"`
}

// Done returns the checkpoint after c once records more records are stored, the last of them at raw.
func (c Checkpoint) Done(raw uint64, rawTime time.Time, records int) Checkpoint {
	c.Tries = 0
	c.Records += uint64(records)
	c.Raw, c.RawTime = raw, rawTime
	if raw >= c.Out {
		c.Out, c.Part = 0, 0
	}
	if raw >= c.Slow {
		c.Slow, c.Timeouts = 0, 0
	}
	c.Ahead = aheadOf(c.Ahead, raw)
	return c
}

// WithCounted returns c with the start of its count, if it has none.
func (c Checkpoint) WithCounted() Checkpoint {
	if c.Records == 0 && c.Counted == 0 {
		c.Counted = c.Raw
	}
	return c
}

// Partly returns the checkpoint after c once the messages of record raw are stored up to part, but no state.
func (c Checkpoint) Partly(raw uint64, part int) Checkpoint {
	c.Tries = 0
	c.Out, c.Part = raw, part
	return c
}

// Message returns the message of c, which expects the previous checkpoint at stream sequence last. Here and below,
// generation is the name of the generation in the cell of the partition.
func (c Checkpoint) Message(generation string, partition int, last uint64) (*nats.Msg, error) {
	data, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode checkpoint: %w", err)
	}
	return &nats.Msg{
		Subject: envelopes.CheckpointSubject(generation, partition),
		Header: nats.Header{
			jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(last, 10)},
			jetstream.MsgRollup:                 {jetstream.MsgRollupSubject},
		},
		Data: data,
	}, nil
}

// firstCheckpoint stores the first checkpoint of a partition, unless it has one.
func firstCheckpoint(ctx context.Context, js jetstream.JetStream, generation string, partition int, c Checkpoint) error {
	m, err := c.Message(generation, partition, 0)
	if err != nil {
		return err
	}
	if _, err := js.PublishMsg(ctx, m); err != nil && !broker.Fenced(err) {
		return fmt.Errorf("write first checkpoint of partition %d: %w", partition, err)
	}
	return nil
}

// ReadCheckpoint reads the newest checkpoint of a partition and its stream sequence from the leader of the stream,
// because a replica may be behind.
func ReadCheckpoint(ctx context.Context, js jetstream.JetStream, generation string, partition int) (Checkpoint, uint64, error) {
	c, stored, err := GetCheckpoint(ctx, js, generation, partition)
	return c, stored.Sequence, err
}

// GetCheckpoint is [ReadCheckpoint], and returns the message of the checkpoint.
func GetCheckpoint(ctx context.Context, js jetstream.JetStream, generation string, partition int) (Checkpoint, broker.Stored, error) {
	stored, err := broker.LeaderGet(ctx, js, EventsStream(generation), broker.GetRequest{
		LastBySubject: envelopes.CheckpointSubject(generation, partition),
	})
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return Checkpoint{}, broker.Stored{}, &Fault{fmt.Errorf("%w: partition %d of generation %s", ErrNoCheckpoint, partition, generation), CureReplay}
	}
	if err != nil {
		return Checkpoint{}, broker.Stored{}, fmt.Errorf("read checkpoint of partition %d: %w", partition, err)
	}
	c, err := decodeCheckpoint(stored.Data, stored.Subject)
	if c.Archived > 0 && c.ArchivedTo == 0 {
		c.ArchivedTo = stored.Sequence // a version without the field moved states, all of them stored before this checkpoint
	}
	return c, stored, err
}

func decodeCheckpoint(data []byte, subject string) (Checkpoint, error) {
	var c Checkpoint
	if err := json.Unmarshal(data, &c); err != nil {
		return Checkpoint{}, &Fault{fmt.Errorf("%w: checkpoint at %s", ErrState, subject), CureReplay}
	}
	return c, nil
}

// BelongsTo returns an error if c does not belong to g, so that no worker may continue from c.
func (c Checkpoint) BelongsTo(g *Generation) error {
	switch {
	case c.Cut != "":
		return fmt.Errorf("%w: %s is live", ErrRetired, c.Cut)
	case !c.Started.Equal(g.Started):
		return fmt.Errorf("%w: %s was dropped and made again", ErrRetired, g.Name)
	default:
		return nil
	}
}

// Store publishes c alone and returns its sequence. It fails if last is not the sequence of the newest checkpoint,
// see [broker.Fenced].
func (c Checkpoint) Store(ctx context.Context, js jetstream.JetStream, generation string, partition int, last uint64) (uint64, error) {
	m, err := c.Message(generation, partition, last)
	if err != nil {
		return 0, err
	}
	ack, err := js.PublishMsg(ctx, m)
	if err != nil {
		return 0, fmt.Errorf("write checkpoint of partition %d: %w", partition, err)
	}
	return ack.Sequence, nil
}

// CheckRaw returns an error if the raw stream has lost its tail, as happens when the power fails on a broker that
// does not sync. The stream would reuse the lost sequences, and the partition would skip their new records. A record
// that was deleted or has expired cannot be compared and passes. end is the last sequence of the stream, read from
// its leader after the checkpoint.
func (c Checkpoint) CheckRaw(ctx context.Context, js jetstream.JetStream, stream string, partition int, end uint64) error {
	if c.Raw == 0 {
		return nil
	}
	lost := func(format string, args ...any) error {
		return &Fault{fmt.Errorf("%w: "+format, append([]any{ErrRawLost}, args...)...), cureRawLost}
	}
	if end < c.Raw {
		return lost("partition %d was read up to %d, the stream ends at %d", partition, c.Raw, end)
	}
	stored, err := broker.LeaderGet(ctx, js, stream, broker.GetRequest{Sequence: c.Raw})
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("check raw stream: %w", err)
	}
	if !stored.Time.Equal(c.RawTime) {
		return lost("record %d, the last that partition %d read, is now another one", c.Raw, partition)
	}
	return nil
}

// A gap is a part of a file whose records are not in the raw stream although a later record is. The session remembers
// it, so that a late record is no duplicate. This file makes gaps known: the checkpoint names the sessions, and the
// log and the status show them.

// maxNamed is how many sessions a [SessionList] names.
const maxNamed = 16

// SessionList counts and names the sessions of a partition with some property, such as gaps in their files.
type SessionList struct {
	Sessions int      `json:"sessions"`        // number of sessions
	Subjects []string `json:"states,omitzero"` // state subjects of the newest of them
}

// With returns the list after changes. l does not change.
func (l SessionList) With(changes []ListChange) SessionList {
	if len(changes) == 0 {
		return l
	}
	l.Subjects = slices.Clone(l.Subjects)
	for _, c := range changes {
		l.Subjects = slices.DeleteFunc(l.Subjects, func(subject string) bool { return subject == c.Subject })
		if c.Added {
			l.Sessions++
			l.Subjects = append(l.Subjects, c.Subject)
		} else {
			l.Sessions--
		}
	}
	if over := len(l.Subjects) - maxNamed; over > 0 {
		l.Subjects = l.Subjects[over:]
	}
	if l.Sessions <= 0 {
		return SessionList{}
	}
	return l
}

// ListChange is a session that joins or leaves a list.
type ListChange struct {
	Subject string // of its state
	Added   bool
}

// ReadCheckpoints reads the checkpoints of all partitions, from any replica.
func ReadCheckpoints(ctx context.Context, js jetstream.JetStream, generation string, l Layout) ([]Checkpoint, error) {
	list := make([]Checkpoint, l.Partitions)
	for c, name := range CellNames(generation, max(l.Cells, 1)) {
		stored, err := broker.MessagesOf(ctx, js, EventsStream(name), []string{envelopes.CheckpointFilter(name)})
		if err != nil {
			return nil, err
		}
		for _, n := range l.PartitionsOf(c) {
			subject := envelopes.CheckpointSubject(name, n)
			m, ok := stored[subject]
			if !ok {
				return nil, fmt.Errorf("%w at %s", ErrNoCheckpoint, subject)
			}
			if list[n], err = decodeCheckpoint(m.Data, subject); err != nil {
				return nil, err
			}
		}
	}
	return list, nil
}

// aheadOf returns the entries of [Checkpoint.Ahead] that remain when every record up to raw is done.
func aheadOf(ahead map[string]uint64, raw uint64) map[string]uint64 {
	if len(ahead) == 0 {
		return nil
	}
	left := maps.Clone(ahead)
	maps.DeleteFunc(left, func(_ string, to uint64) bool { return to <= raw })
	return left
}
