package states

import (
	"encoding/binary"
	"fmt"
	"slices"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/broker"
)

// The state of a session is stored under its own subject, as a whole. A record changes little of the
// state of a long session, so most commits store only what has changed since, under the subject beside
// it ([envelopes.ChangeSubject]). Of each subject the stream keeps the newest message.
//
// The contract:
//   - A change names the stream sequence of the whole that it belongs to, and says everything that
//     has changed since that was stored. So a state is two messages at most, and a change of an
//     older whole says nothing.
//   - Both are part of the batch that each commit is.
//   - A state under its own subject and a copy in an archive (archive.go) count by the sequence of
//     what was stored last of them.
//   - A whole that is removed, because an archive has the state, gets no change any more.

// MinChanged is the size of the smallest whole beside which a change is stored.
const MinChanged = 1 << 10

// Stored is the newest state of a session that a stream has.
type Stored struct {
	Sequence uint64         // of the message that was stored last, in the events stream
	Whole    []byte         // as [core.Session.Encode] writes it; nil when it is missing
	change   []byte         // nil when the whole is the state
	Base     uint64         // sequence of the whole under its own subject; 0 for a state from an archive
	Messages []broker.Place // under its own subjects
	damaged  error          // why its archive cannot be read; nil when it can
	Older    uint64         // sequence of an older state that is under its own subject beside the archive; 0 for none
}

// Subjects returns the subjects under which the states at subjects, and their changes, are.
func Subjects(subjects []string) []string {
	all := slices.Clone(subjects)
	for _, s := range subjects {
		all = append(all, envelopes.ChangeSubject(s))
	}
	return all
}

// In returns the state at a subject of the messages that were read from its [Subjects].
func In(found map[string]broker.Stored, subject string) (s Stored, ok bool) {
	whole, ok := found[subject]
	if ok {
		s = Stored{Sequence: whole.Sequence, Base: whole.Sequence, Whole: whole.Data, Messages: []broker.Place{{Subject: subject, Sequence: whole.Sequence}}}
	}
	beside := envelopes.ChangeSubject(subject)
	m, changed := found[beside]
	if !changed {
		return s, ok
	}
	s.Messages = append(s.Messages, broker.Place{Subject: beside, Sequence: m.Sequence})
	base, n := binary.Uvarint(m.Data)
	switch {
	case m.Sequence < s.Sequence: // of an older whole
	case n > 0 && base == s.Base:
		s.Sequence, s.change = m.Sequence, m.Data[n:]
	default:
		s.Sequence, s.Whole = m.Sequence, nil
	}
	return s, true
}

// Decode returns the session. One that may get a change is marked.
func (s Stored) Decode() (*core.Session, error) {
	switch {
	case s.damaged != nil:
		return nil, fmt.Errorf("%w: %w", core.ErrSession, s.damaged)
	case s.Whole == nil:
		return nil, fmt.Errorf("%w: what it is a change of is missing", core.ErrSession)
	case s.change != nil:
		return normalizers.DecodeChanged(s.Whole, s.change)
	}
	session, err := normalizers.DecodeSession(s.Whole)
	if err == nil && s.Base > 0 {
		session.Mark()
	}
	return session, err
}

// Encode returns the whole state.
func (s Stored) Encode(session *core.Session) []byte {
	if s.change == nil {
		return s.Whole
	}
	return session.Encode()
}

// statesTogether is how many states one request reads: their subjects, and those of their changes,
// are fewer than the 1,024 that the server accepts.
const statesTogether = 500

// Reader reads the newest messages of subjects.
type Reader func(subjects []string) (map[string]broker.Stored, error)

// States reads the newest states at subjects. Of a state up to the sequence archivedTo a copy in an archive may be
// newer; archivedTo is 0 when there are no archives.
func (read Reader) States(subjects []string, archivedTo uint64) (map[string]Stored, error) {
	states := make(map[string]Stored, len(subjects))
	var old []string
	for some := range slices.Chunk(subjects, statesTogether) {
		found, err := read(Subjects(some))
		if err != nil {
			return nil, err
		}
		for _, subject := range some {
			s, ok := In(found, subject)
			if ok {
				states[subject] = s
			}
			if archivedTo > 0 && s.Sequence <= archivedTo {
				old = append(old, subject)
			}
		}
	}
	return states, read.addArchived(states, old)
}

// Whole is the whole state of a live session as the stream has it.
type Whole struct {
	Sequence uint64 // 0 when there is none that a change may name
	Size     int
	First    int // size of the first change since
	Paid     int // how many bytes more than that the changes since have cost
}
