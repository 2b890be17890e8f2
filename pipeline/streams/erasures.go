package streams

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"tributary/envelopes"
	"tributary/pipeline/broker"
)

// An erasure removes everything that the broker has of a session (package erasure). The log of erasures is a stream from
// which nothing is removed. By it, workers leave out records of erased sessions, whenever they arrive, and erased records
// do not count as expired. The contract:
//   - An erasure is in the log before the first message is removed.
//   - It counts in a partition of a generation once [Checkpoint.Erased] has reached it: from then on no owner of the
//     partition stores anything of the session. That checkpoint counts the unread records of the session as done.
//   - A generation that is made later begins with the erasures of the log.

// ErasuresStream is the name of the stream of the log of erasures. The first erasure creates it.
const ErasuresStream = "ERASURES"

const (
	erasuresPrefix = "erasures.log."
	erasedPrefix   = "erasures.done."
)

// Erasure is an entry of the log of erasures: a session, and its raw records in a partition. A session whose records
// arrive again may have several entries.
type Erasure struct {
	Source    envelopes.Source `json:"source"`
	Session   string           `json:"session"`
	Partition int              `json:"partition"`
	Records   Sequences        `json:"records,omitzero"` // raw sequences of records that no earlier entry has
	Objects   []string         `json:"objects,omitzero"` // digests of the objects that these records name
	Chunks    []string         `json:"chunks,omitzero"`  // names of their chunks
	Found     ErasureCounts    `json:"found"`            // its records and objects; in the first entry also everything else of the session
	By        string           `json:"by"`

	Sequence uint64    `json:"-"` // in the log
	At       time.Time `json:"-"` // when the broker stored it
}

// Name returns the name of the session in subjects, see [envelopes.SessionPart].
func (e *Erasure) Name() string { return envelopes.SessionPart(e.Source, e.Session) }

// ErasureCounts are numbers of messages of a session.
type ErasureCounts struct {
	Records     int64 `json:"records"`
	Events      int64 `json:"events"`
	DeadLetters int64 `json:"dead_letters"`
	States      int64 `json:"states"` // also in archives
	Summaries   int64 `json:"summaries"`
	Titles      int64 `json:"titles"`  // titles, pins and their changes
	Objects     int64 `json:"objects"` // data of large records
}

// Sum returns the number of all messages and objects.
func (c ErasureCounts) Sum() int64 {
	return c.Records + c.Events + c.DeadLetters + c.States + c.Summaries + c.Titles + c.Objects
}

// ErasureEnd is the end of the erasure of a session: everything is removed.
type ErasureEnd struct {
	Through uint64        `json:"through"` // sequence of the last entry of the session
	Removed ErasureCounts `json:"removed"` // by the last command; an interrupted one before may have removed more
	By      string        `json:"by"`

	At time.Time `json:"-"` // when the broker stored it
}

// Message returns the subject and the data of the entry. No other entry has the subject.
func (e *Erasure) Message() (subject string, data []byte, err error) {
	data, err = json.Marshal(e)
	subject = erasuresPrefix + strconv.Itoa(e.Partition) + "." + e.Name() + "." + nuid.Next()
	return subject, data, broker.Wrap(err, "encode erasure")
}

// Message returns the subject and the data of the end of the erasure of a session.
func (e *ErasureEnd) Message(source envelopes.Source, session string) (subject string, data []byte, err error) {
	data, err = json.Marshal(e)
	return erasedPrefix + envelopes.SessionPart(source, session), data, broker.Wrap(err, "encode end of erasure")
}

// ProvisionErasures creates the log of erasures unless it exists, with as many replicas as the raw stream. The first
// entry gets the sequence first: a log that is created again must not use sequences that checkpoints name.
func ProvisionErasures(ctx context.Context, js jetstream.JetStream, first uint64) error {
	_, err := js.Stream(ctx, ErasuresStream)
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return broker.Wrap(err, "stream "+ErasuresStream)
	}
	raw, err := streamConfig(ctx, js, RawStream)
	if err != nil {
		return fmt.Errorf("stream %s: %w", RawStream, err)
	}
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{
		Name:        ErasuresStream,
		Description: "Log of erased sessions: workers leave out their records.",
		Subjects:    []string{"erasures.>"},
		Retention:   jetstream.LimitsPolicy,
		Storage:     jetstream.FileStorage,
		Replicas:    raw.Replicas,
		FirstSeq:    first,
		DenyDelete:  true,
		DenyPurge:   true,
		AllowDirect: true,
	})
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return nil
	}
	return broker.Wrap(err, "create stream "+ErasuresStream)
}

// AllPartitions stands for the number of a partition.
const AllPartitions = -1

// ReadErasures reads the erasures of a partition, or of [AllPartitions], in their order. There are none on a broker
// without the stream.
func ReadErasures(ctx context.Context, js jetstream.JetStream, partition int) ([]Erasure, error) {
	filter := erasuresPrefix + ">"
	if partition != AllPartitions {
		filter = erasuresPrefix + strconv.Itoa(partition) + ".>"
	}
	var list []Erasure
	err := eachErasure(ctx, js, filter, func(m broker.Stored) error {
		e := Erasure{Sequence: m.Sequence, At: m.Time}
		if err := json.Unmarshal(m.Data, &e); err != nil {
			return fmt.Errorf("%w: message %d of stream %s", ErrState, m.Sequence, ErasuresStream)
		}
		list = append(list, e)
		return nil
	})
	return list, err
}

// ReadErasureEnds reads the last end of each session by its [Erasure.Name].
func ReadErasureEnds(ctx context.Context, js jetstream.JetStream) (map[string]ErasureEnd, error) {
	ends := make(map[string]ErasureEnd)
	err := eachErasure(ctx, js, erasedPrefix+">", func(m broker.Stored) error {
		e := ErasureEnd{At: m.Time}
		if err := json.Unmarshal(m.Data, &e); err != nil {
			return fmt.Errorf("%w: message %d of stream %s", ErrState, m.Sequence, ErasuresStream)
		}
		ends[m.Subject[len(erasedPrefix):]] = e
		return nil
	})
	return ends, err
}

// The log is read in pages, from any replica.
const (
	erasuresPage      = 256
	erasuresPageBytes = 4 << 20
	erasuresTries     = 50 // while replicas are behind
	erasuresPause     = 20 * time.Millisecond
)

var errErasuresBehind = errors.New("a replica of stream " + ErasuresStream + " is behind")

// eachErasure passes on the messages of the log that the leader has now, in their order.
func eachErasure(ctx context.Context, js jetstream.JetStream, filter string, pass func(broker.Stored) error) error {
	last, err := broker.LeaderGet(ctx, js, ErasuresStream, broker.GetRequest{LastBySubject: filter})
	if errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read stream %s: %w", ErasuresStream, err)
	}
	for from, tries := uint64(1), 0; from <= last.Sequence; {
		page, err := broker.NextMessages(ctx, js, ErasuresStream, filter, from, erasuresPage, erasuresPageBytes)
		if err != nil {
			return fmt.Errorf("read the log of erasures: %w", err)
		}
		for _, m := range page {
			if m.Sequence > last.Sequence {
				return nil
			}
			if err := pass(m); err != nil {
				return err
			}
			from = m.Sequence + 1
		}
		if len(page) > 0 {
			continue
		}
		if tries++; tries == erasuresTries {
			return errErasuresBehind
		}
		if err := broker.Pause(ctx, erasuresPause); err != nil {
			return err
		}
	}
	return nil
}

// Erased maps erased sessions, by [Erasure.Name], to their raw records in the log.
type Erased map[string]Sequences

// ErasedThrough returns what the erasures of a list up to a sequence erase.
func ErasedThrough(list []Erasure, through uint64) Erased {
	erased := make(Erased)
	for i := range list {
		if e := &list[i]; e.Sequence <= through {
			all := append(slices.Clone(erased[e.Name()]), e.Records...)
			slices.Sort(all)
			erased[e.Name()] = slices.Compact(all)
		}
	}
	return erased
}

// ErasedRecords returns the raw sequences of all erased records in a cell, in their order.
func ErasedRecords(list []Erasure, l Layout, cell int) Sequences {
	var all Sequences
	for i := range list {
		if l.Cell(list[i].Partition) == cell {
			all = append(all, list[i].Records...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// WithErased returns c with a list of erasures, those of the partition in their order. It counts erased records behind
// c as done. origin is [Generation.Origin].
func (c Checkpoint) WithErased(list []Erasure, origin uint64) Checkpoint {
	c = c.WithCounted()
	for i := range list {
		if e := &list[i]; e.Sequence > c.Erased {
			c.Records += uint64(e.Records.Behind(max(c.Raw, origin)))
			c.Erased = e.Sequence
			delete(c.Ahead, e.Name()) // the caller has read c, and shares it with nobody
		}
	}
	return c
}

// Origin returns the raw sequence before the first one that the generation reads in a cell.
func (g *Generation) Origin(cell int) uint64 { return max(g.From.In(cell), g.Part.Sequence, 1) - 1 }

// Sequences are sequences of a stream in their order. In JSON they are text: their differences as varints, in base64.
type Sequences []uint64

// Behind returns how many are behind a sequence.
func (s Sequences) Behind(sequence uint64) int {
	n, found := slices.BinarySearch(s, sequence)
	if found {
		n++
	}
	return len(s) - n
}

// Has reports whether a sequence is one of them.
func (s Sequences) Has(sequence uint64) bool {
	_, found := slices.BinarySearch(s, sequence)
	return found
}

// AppendBinary appends s as differences.
func (s Sequences) AppendBinary(b []byte) ([]byte, error) {
	last := uint64(0)
	for _, sequence := range s {
		b = binary.AppendUvarint(b, sequence-last)
		last = sequence
	}
	return b, nil
}

var errSequences = errors.New("not a list of sequences")

// UnmarshalBinary is the inverse of [Sequences.AppendBinary].
func (s *Sequences) UnmarshalBinary(data []byte) error {
	*s = nil
	for last := uint64(0); len(data) > 0; {
		step, n := binary.Uvarint(data)
		if n <= 0 {
			return errSequences
		}
		last += step
		*s, data = append(*s, last), data[n:]
	}
	return nil
}

// MarshalText returns s as text.
func (s Sequences) MarshalText() ([]byte, error) {
	data, err := s.AppendBinary(nil)
	return base64.RawStdEncoding.AppendEncode(nil, data), err
}

// UnmarshalText is the inverse of [Sequences.MarshalText].
func (s *Sequences) UnmarshalText(text []byte) error {
	data, err := base64.RawStdEncoding.AppendDecode(nil, text)
	if err != nil {
		return errSequences
	}
	return s.UnmarshalBinary(data)
}
