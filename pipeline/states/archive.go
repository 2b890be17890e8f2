package states

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/broker"
	"tributary/pipeline/streams"
)

// An archive is one message that holds the states of sessions that ended long ago, compressed
// together. Each partition has a fixed number of archives, and the name of a session decides in which of
// them it is, so the index of the server does not grow with the sessions. archiver.go moves
// states there; a record that comes late loads the state from there.
//
// The contract between the two:
//   - A move is an entry of an atomic batch: the archives, each with a rollup, and the checkpoint of
//     the partition with its fence. A worker that was overtaken moves nothing.
//   - Only after the acknowledgement are the states removed from their own subjects, each by its
//     sequence. In the log of the stream, and so on each replica, a state is removed behind the
//     archive that has it. A request that arrives late, of a worker that was overtaken, names
//     sequences that no newer state has: a state up to [streams.Checkpoint.ArchivedTo] that is in an archive
//     gets no change any more (states.go).
//   - The state that was stored last counts. After a late record that is the one under its own
//     subject, and the next move replaces the copy. But a server that was killed can bring back
//     an older state: what a newer message of the subject had replaced, before that was removed.
//   - Load reads the states first and then their archives, each time from a
//     replica that has the newest checkpoint that the owner knows. Every move of this owner, and of
//     those before it, is stored with that checkpoint or an older one. So where a state is missing
//     because it was removed, whoever removed it and however late, the archive that is read next
//     has it. Without archives, and where the archive does not have it either, the session is new.
//   - Where an archive cannot be read, none of its sessions is new: their records become dead letters.

const (
	// MaxArchive limits the message of an archive, where the server accepts so much.
	MaxArchive = 1<<20 - ArchiveRoom
	// ArchiveRoom is what the server counts of a message beside the archive, with room to spare.
	ArchiveRoom = 64 << 10
	// MaxArchived limits what an archive holds, before it is compressed.
	MaxArchived = 16 << 20
	// archivesTogether is how many archives one request loads, which are 8 MB at most.
	archivesTogether = 8
)

// Archive holds states by the names of their sessions, see [envelopes.ArchiveOf].
type Archive map[string]Archived

// Archived is the encoded state of a session as it was stored under its own subject.
type Archived struct {
	Sequence uint64 // in the events stream
	State    []byte
}

// archiveVersion is the first byte of the message of an archive. Behind it are, compressed by
// zstd with its checksum, the sessions in the order of their names: name, sequence and state.
const archiveVersion = 1

var errArchive = errors.New("archive of session states cannot be read")

// DecodeArchive is the inverse of encode.
func DecodeArchive(data []byte) (Archive, error) {
	if len(data) == 0 || data[0] != archiveVersion {
		return nil, fmt.Errorf("%w: not version %d", errArchive, archiveVersion)
	}
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(2*MaxArchived))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	rest, err := d.DecodeAll(data[1:], nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errArchive, err)
	}
	a := make(Archive)
	part := func() (b []byte) {
		n, w := binary.Uvarint(rest)
		if w <= 0 || n > uint64(len(rest)-w) {
			rest, err = nil, fmt.Errorf("%w: it is cut off", errArchive)
			return nil
		}
		b, rest = rest[w:w+int(n)], rest[w+int(n):]
		return b
	}
	for len(rest) > 0 {
		name := part()
		sequence, w := binary.Uvarint(rest)
		if w <= 0 {
			return nil, fmt.Errorf("%w: it is cut off", errArchive)
		}
		rest = rest[w:]
		a[string(name)] = Archived{sequence, part()}
	}
	return a, err
}

// outsideVersion is the first byte of the message of an archive that an older version has put outside the broker.
const outsideVersion = 2

// CheckArchives reports that the archives of cells are outside the broker, where this version does not read them.
func CheckArchives(ctx context.Context, js jetstream.JetStream, cells []string) error {
	for _, cell := range cells {
		newest, err := broker.LastStored(ctx, js, streams.EventsStream(cell), envelopes.ArchiveFilter(cell))
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrMsgNotFound):
		case err != nil:
			return err
		case len(newest.Data) > 0 && newest.Data[0] == outsideVersion:
			return &streams.Fault{Err: fmt.Errorf("%w: archives of %s are outside the broker (TRIBUTARY_ARCHIVES), where this version does not read them", streams.ErrState, cell), Cure: streams.CureReplay}
		}
	}
	return nil
}

// Encode returns the message of the archive. e compresses.
func (a Archive) Encode(e *zstd.Encoder) []byte {
	var plain []byte
	for _, name := range slices.Sorted(maps.Keys(a)) {
		plain = append(binary.AppendUvarint(plain, uint64(len(name))), name...)
		plain = binary.AppendUvarint(plain, a[name].Sequence)
		plain = append(binary.AppendUvarint(plain, uint64(len(a[name].State))), a[name].State...)
	}
	return e.EncodeAll(plain, []byte{archiveVersion})
}

// Size is how much the archive holds.
func (a Archive) Size() int {
	n := 0
	for name, s := range a {
		n += len(name) + len(s.State)
	}
	return n
}

// ArchiveMessage returns the message of an archive. The stream keeps only the newest one.
func ArchiveMessage(subject string, data []byte) *nats.Msg {
	return &nats.Msg{Subject: subject, Header: nats.Header{jetstream.MsgRollup: {jetstream.MsgRollupSubject}}, Data: data}
}

// addArchived adds to states those at subjects of which an archive has the newest one. Where an archive is damaged,
// a state that is not under its own subject cannot be decoded.
func (read Reader) addArchived(states map[string]Stored, subjects []string) error {
	wanted := make(map[string][]string) // states by their archive
	for _, state := range subjects {
		subject, _ := envelopes.ArchiveOf(state)
		wanted[subject] = append(wanted[subject], state)
	}
	for some := range slices.Chunk(slices.Sorted(maps.Keys(wanted)), archivesTogether) {
		found, err := read(some)
		if err != nil {
			return err
		}
		for subject, m := range found {
			content, damaged := DecodeArchive(m.Data)
			for _, state := range wanted[subject] {
				_, session := envelopes.ArchiveOf(state)
				own, there := states[state]
				if damaged != nil && !there {
					states[state] = Stored{Sequence: m.Sequence, damaged: damaged}
				} else if s, ok := content[session]; ok && s.Sequence >= own.Sequence {
					newest := Stored{Sequence: s.Sequence, Whole: s.State}
					if own.Sequence < s.Sequence {
						newest.Older = own.Sequence
					}
					states[state] = newest
				}
			}
		}
	}
	return nil
}
