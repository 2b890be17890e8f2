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

// An archive is one message with the states of sessions that ended long ago, compressed together. Each partition has
// a fixed number of archives, and the name of a session decides which one has it, so the index of the server does not
// grow with the sessions. The archiver of pipeline/worker moves states there; a late record loads its state from
// there.
//
// The contract between moving and loading:
//   - A move is an entry of an atomic batch: the archives, each with a rollup, and the checkpoint of the partition
//     with its fence. So a worker that was overtaken moves nothing.
//   - The states are removed from their own subjects only after the acknowledgement, each by its sequence. So in the
//     log of the stream, and on each replica, a state is removed behind the archive that has it. A late request of a
//     worker that was overtaken names only sequences of old states: a state up to [streams.Checkpoint.ArchivedTo]
//     that is in an archive gets no further change (states.go).
//   - A torn batch may have archives without their checkpoint. The next move finds the states in them, and stores a
//     checkpoint that reaches so far before it removes any: archives that no checkpoint names are not read.
//   - The state that was stored last counts. After a late record that is the one under its own subject, and the next
//     move replaces the archived copy. But a server that was killed can restore an older state, which a newer message
//     of the subject, since removed, had replaced.
//   - Loading reads the states first and then their archives, each from a replica that has the newest checkpoint
//     known to the owner. Every move of this owner and of earlier ones was stored with that checkpoint or an older
//     one. So if a state is missing because some worker removed it, however late, the archive that is read next has
//     it. If the archive lacks it too, the session is new.
//   - If an archive cannot be read, none of its sessions counts as new: their records become dead letters.

const (
	// MaxArchive limits the bytes of the message of an archive; the server may accept less.
	MaxArchive = 1<<20 - ArchiveRoom
	// ArchiveRoom exceeds what the server counts for a message beside its data.
	ArchiveRoom = 64 << 10
	// MaxArchived limits the content of an archive before compression, in bytes.
	MaxArchived = 16 << 20
	// archivesTogether is how many archives one request loads, 8 MB at most.
	archivesTogether = 8
)

// Archive holds states by the names of their sessions, see [envelopes.ArchiveOf].
type Archive map[string]Archived

// Archived is the encoded state of a session as it was stored under its own subject.
type Archived struct {
	Sequence uint64 // in the events stream
	State    []byte
}

// archiveVersion is the first byte of the message of an archive. After it come the sessions in the order of their
// names (name, sequence, state), compressed by zstd with its checksum.
const archiveVersion = 1

var errArchive = errors.New("archive of session states cannot be read")

// DecodeArchive decodes the data of a message that [Archive.Encode] made.
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
			rest, err = nil, fmt.Errorf("%w: truncated", errArchive)
			return nil
		}
		b, rest = rest[w:w+int(n)], rest[w+int(n):]
		return b
	}
	for len(rest) > 0 {
		name := part()
		sequence, w := binary.Uvarint(rest)
		if w <= 0 {
			return nil, fmt.Errorf("%w: truncated", errArchive)
		}
		rest = rest[w:]
		a[string(name)] = Archived{sequence, part()}
	}
	return a, err
}

// outsideVersion is the first byte of the message of an archive that an older version stored outside the broker.
const outsideVersion = 2

// CheckArchives returns an error if the archives of cells are outside the broker, where this version does not read
// them.
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

// Encode returns the data of the message of the archive, compressed by e.
func (a Archive) Encode(e *zstd.Encoder) []byte {
	var plain []byte
	for _, name := range slices.Sorted(maps.Keys(a)) {
		plain = append(binary.AppendUvarint(plain, uint64(len(name))), name...)
		plain = binary.AppendUvarint(plain, a[name].Sequence)
		plain = append(binary.AppendUvarint(plain, uint64(len(a[name].State))), a[name].State...)
	}
	return e.EncodeAll(plain, []byte{archiveVersion})
}

// Size returns the bytes of the archive before compression.
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

// addArchived adds the states at subjects whose newest version is in an archive. If an archive is damaged, states
// missing under their own subjects are added as ones that cannot be decoded.
func (read Reader) addArchived(states map[string]Stored, subjects []string) error {
	wanted := make(map[string][]string) // subjects of states by archive
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
