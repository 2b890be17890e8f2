package pipeline

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers"
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

// minChanged is the size of the smallest whole beside which a change is stored.
const minChanged = 1 << 10

// storedState is the newest state of a session that a stream has.
type storedState struct {
	sequence uint64         // of the message that was stored last, in the events stream
	whole    []byte         // as [normalizers.Session.Encode] writes it; nil when it is missing
	change   []byte         // nil when the whole is the state
	base     uint64         // sequence of the whole under its own subject; 0 for a state from an archive
	messages []broker.Place // under its own subjects
	damaged  error          // why its archive cannot be read; nil when it can
	older    uint64         // sequence of an older state that is under its own subject beside the archive; 0 for none
}

// stateSubjects returns the subjects under which the states at subjects, and their changes, are.
func stateSubjects(subjects []string) []string {
	all := slices.Clone(subjects)
	for _, s := range subjects {
		all = append(all, envelopes.ChangeSubject(s))
	}
	return all
}

// stateIn returns the state at a subject of the messages that were read from its [stateSubjects].
func stateIn(found map[string]broker.Stored, subject string) (s storedState, ok bool) {
	whole, ok := found[subject]
	if ok {
		s = storedState{sequence: whole.Sequence, base: whole.Sequence, whole: whole.Data, messages: []broker.Place{{Subject: subject, Sequence: whole.Sequence}}}
	}
	beside := envelopes.ChangeSubject(subject)
	m, changed := found[beside]
	if !changed {
		return s, ok
	}
	s.messages = append(s.messages, broker.Place{Subject: beside, Sequence: m.Sequence})
	base, n := binary.Uvarint(m.Data)
	switch {
	case m.Sequence < s.sequence: // of an older whole
	case n > 0 && base == s.base:
		s.sequence, s.change = m.Sequence, m.Data[n:]
	default:
		s.sequence, s.whole = m.Sequence, nil
	}
	return s, true
}

// decode returns the session. One that may get a change is marked.
func (s storedState) decode() (*normalizers.Session, error) {
	switch {
	case s.damaged != nil:
		return nil, fmt.Errorf("%w: %w", normalizers.ErrSession, s.damaged)
	case s.whole == nil:
		return nil, fmt.Errorf("%w: what it is a change of is missing", normalizers.ErrSession)
	case s.change != nil:
		return normalizers.DecodeChanged(s.whole, s.change)
	}
	session, err := normalizers.DecodeSession(s.whole)
	if err == nil && s.base > 0 {
		session.Mark()
	}
	return session, err
}

// encode returns the whole state.
func (s storedState) encode(session *normalizers.Session) []byte {
	if s.change == nil {
		return s.whole
	}
	return session.Encode()
}

// statesTogether is how many states one request reads: their subjects, and those of their changes,
// are fewer than the 1,024 that the server accepts.
const statesTogether = 500

// readStates reads the newest messages of subjects.
type readStates func(subjects []string) (map[string]broker.Stored, error)

// states reads the newest states at subjects. Of a state up to the sequence archivedTo a copy in an archive may be
// newer; archivedTo is 0 when there are no archives.
func (read readStates) states(subjects []string, archivedTo uint64) (map[string]storedState, error) {
	states := make(map[string]storedState, len(subjects))
	var old []string
	for some := range slices.Chunk(subjects, statesTogether) {
		found, err := read(stateSubjects(some))
		if err != nil {
			return nil, err
		}
		for _, subject := range some {
			s, ok := stateIn(found, subject)
			if ok {
				states[subject] = s
			}
			if archivedTo > 0 && s.sequence <= archivedTo {
				old = append(old, subject)
			}
		}
	}
	return states, read.addArchived(states, old)
}

// storedWhole is the whole state of a live session as the stream has it.
type storedWhole struct {
	sequence uint64 // 0 when there is none that a change may name
	size     int
	first    int // size of the first change since
	paid     int // how many bytes more than that the changes since have cost
}

// message returns the message of the session's state as it is now: the whole, or its change. The
// whole is stored again once its changes have cost as much as that costs.
func (s *liveSession) message(generation string, partition int) *nats.Msg {
	m := &nats.Msg{
		Subject: envelopes.StateSubject(generation, partition, s.key.Source, s.key.ID),
		Header:  nats.Header{jetstream.MsgRollup: {jetstream.MsgRollupSubject}},
	}
	if change := s.change(); change != nil {
		m.Subject, m.Data = envelopes.ChangeSubject(m.Subject), change
		return m
	}
	m.Data = s.state.Encode()
	s.state.Mark()
	s.whole = storedWhole{size: len(m.Data)}
	return m
}

// change returns the message of a change, nil when the whole is to be stored.
func (s *liveSession) change() []byte {
	w := &s.whole
	if w.sequence == 0 || w.size < minChanged || w.paid >= w.size {
		return nil
	}
	change := s.state.EncodeChange()
	if change == nil || len(change) > w.size/2 {
		return nil
	}
	if w.first == 0 {
		w.first = len(change)
	}
	w.paid += len(change) - w.first
	return append(binary.AppendUvarint(nil, w.sequence), change...)
}

// isStored notes that the message of the state is stored at a sequence.
func (s *liveSession) isStored(sequence uint64) {
	if s.whole.sequence == 0 {
		s.whole.sequence = sequence
	}
}

// areRemoved notes that messages of states are about to be removed from the stream: no change may
// name one of them.
func (o *ownership) areRemoved(messages []broker.Place) {
	removed := make(map[uint64]bool, len(messages))
	for _, m := range messages {
		removed[m.Sequence] = true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range o.sessions.live {
		if removed[l.whole.sequence] {
			l.whole = storedWhole{}
		}
	}
}
