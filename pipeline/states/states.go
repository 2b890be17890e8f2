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

// The state of a session is stored under its own subject, as a whole. A record changes little of a long session, so
// most commits store only what has changed since then, under a subject beside it ([envelopes.ChangeSubject]). The
// stream keeps the newest message of each subject.
//
// The contract:
//   - A change names the stream sequence of its whole, and has everything that changed since that was stored. So a
//     state is two messages at most, and a change to an older whole means nothing.
//   - Both are in the batch of their commit.
//   - Between a state under its own subject and its copy in an archive (archive.go), the later stored one counts.
//   - A whole that is to be removed, because an archive has the state, gets no further change.

// MinChanged is the size of the smallest whole, in bytes, that gets changes.
const MinChanged = 1 << 10

// Stored is the newest state of a session that a stream has.
type Stored struct {
	Sequence uint64         // sequence, in the events stream, of the message stored last
	Whole    []byte         // written by [core.Session.Encode]; nil when missing
	change   []byte         // nil when there is no change
	Base     uint64         // sequence of the whole under its own subject; 0 for a state from an archive
	Messages []broker.Place // under its own subjects
	damaged  error          // why its archive cannot be read, else nil
	Older    uint64         // sequence of an older state under its own subject, beside the archived one; 0 for none
}

// Subjects returns the subjects of the states at subjects and of their changes.
func Subjects(subjects []string) []string {
	all := slices.Clone(subjects)
	for _, s := range subjects {
		all = append(all, envelopes.ChangeSubject(s))
	}
	return all
}

// In returns the state at a subject. found has the messages read from [Subjects].
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
	case m.Sequence < s.Sequence: // a change to an older whole
	case n > 0 && base == s.Base:
		s.Sequence, s.change = m.Sequence, m.Data[n:]
	default:
		s.Sequence, s.Whole = m.Sequence, nil
	}
	return s, true
}

// Decode returns the session. It marks the session if it may get a change.
func (s Stored) Decode() (*core.Session, error) {
	switch {
	case s.damaged != nil:
		return nil, fmt.Errorf("%w: %w", core.ErrSession, s.damaged)
	case s.Whole == nil:
		return nil, fmt.Errorf("%w: the whole that it changes is missing", core.ErrSession)
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

// statesTogether is how many states one request reads: their subjects and those of their changes stay below the 1,024
// that the server accepts.
const statesTogether = 500

// Reader reads the newest message of each subject.
type Reader func(subjects []string) (map[string]broker.Stored, error)

// States reads the newest states at subjects. A state up to the sequence archivedTo may have a newer copy in an
// archive; 0 means that there are no archives.
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

// Whole describes the stored whole state of a live session.
type Whole struct {
	Sequence uint64 // 0 when there is none that a change may name
	Size     int
	First    int // size of its first change
	Paid     int // bytes that later changes cost beyond the size of the first
}
