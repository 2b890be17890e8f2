package events

import (
	"strconv"
	"testing"

	"tributary/envelopes"
)

// TestSequencesAreBounded reads more sessions than are remembered: the last ones are known, and one that is read again and again.
func TestSequencesAreBounded(t *testing.T) {
	t.Parallel()
	const sessions = 3*maxSequences + 7
	var s sequences
	id := func(n int) SessionID { return SessionID{envelopes.Codex, strconv.Itoa(n)} }
	for n := range sessions {
		s.note(id(n), uint64(n))
		if n%1000 == 0 {
			s.note(id(0), uint64(n))
		}
		if len(s.last)+len(s.before) > 2*maxSequences {
			t.Fatalf("%d sequences are remembered", len(s.last)+len(s.before))
		}
	}
	for n := sessions - maxSequences + sessions/1000; n < sessions; n++ {
		if got, known := s.of(id(n)); !known || got != uint64(n) {
			t.Fatalf("the sequence of session %d is %d, known %v", n, got, known)
		}
	}
	if got, known := s.of(id(0)); !known || got < sessions-1000 {
		t.Errorf("the sequence of the session that is read often is %d, known %v", got, known)
	}
	if _, known := s.of(id(1)); known {
		t.Error("the sequence of the second session is still known")
	}
}
