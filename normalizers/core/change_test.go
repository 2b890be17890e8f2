package core

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	"tributary/envelopes"
)

func noState(envelopes.Source) State { return nil }

// A session and its change give the session, whatever was remembered, replaced or forgotten since
// the mark, also where its tables are full; and the decoded session goes on in the same way.
func TestChangeGivesTheSession(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 0))
			s := NewSession(envelopes.Codex, "s", nil)
			for i := range int(seed) * 1000 {
				s.IDs.Put(FingerprintOf("old", strconv.Itoa(i)), Fingerprint{1})
				s.APICalls.Put(FingerprintOf("old", strconv.Itoa(i)), Consumption{Input: int64(i)})
				s.commit()
			}
			changes := 0
			whole := s.Encode()
			for step := range 150 {
				if step == 0 || random.IntN(60) == 0 {
					s.Mark()
					whole = s.Encode()
				}
				touch(s, random)
				change := s.EncodeChange()
				if change == nil {
					continue
				}
				changes++
				decoded, err := DecodeChanged(whole, change, noState)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(s.Encode(), decoded.Encode()) {
					t.Fatalf("step %d: the session differs", step)
				}
				if !bytes.Equal(change, decoded.EncodeChange()) {
					t.Fatalf("step %d: the decoded session gives another change", step)
				}
				if random.IntN(10) == 0 {
					s = decoded
				}
			}
			if changes < 100 {
				t.Errorf("%d changes", changes)
			}
		})
	}
}

// A record can use an old entry of a full table again, and then drop it.
func TestChangeHasAnEntryThatOneRecordPutsAndDrops(t *testing.T) {
	t.Parallel()
	s := NewSession(envelopes.Codex, "s", nil)
	for i := range maxIDs {
		s.IDs.Put(FingerprintOf("old", strconv.Itoa(i)), Fingerprint{1})
		s.commit()
	}
	whole := s.Encode()
	s.Mark()
	s.IDs.Put(FingerprintOf("old", "1"), Fingerprint{2})
	s.IDs.Put(FingerprintOf("new", "0"), Fingerprint{3})
	s.IDs.Put(FingerprintOf("new", "1"), Fingerprint{4})
	s.commit()
	decoded, err := DecodeChanged(whole, s.EncodeChange(), noState)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(s.Encode(), decoded.Encode()) {
		t.Error("the session differs")
	}
}

// touch does to a session what records do.
func touch(s *Session, random *rand.Rand) {
	name := func() string { return strconv.Itoa(random.IntN(200)) }
	s.Records++
	for range random.IntN(4) {
		switch random.IntN(8) {
		case 0, 1:
			s.RememberCall(name(), Call{Tool: "Bash", About: name()})
		case 2:
			s.SetOutcome(name(), Outcome{Failed: true})
		case 3:
			s.ReleaseCall(name())
		case 4, 5:
			s.IDs.Put(FingerprintOf(name()), FingerprintOf(name()))
		case 6:
			s.APICalls.Put(FingerprintOf(name()), Consumption{Output: random.Int64N(1000)})
		case 7:
			s.IDs.Put(FingerprintOf(name()), Fingerprint{})
			s.IDs.rollback()
			s.Threads = s.Threads.withParent(FingerprintOf(name()), name(), &s.Lost)
		}
	}
	s.commit()
}

// There is no change without a mark, none of a session that dropped what the mark has, and none
// that is too long.
func TestSessionWithoutAChange(t *testing.T) {
	t.Parallel()
	s := NewSession(envelopes.Codex, "s", nil)
	if s.EncodeChange() != nil {
		t.Error("a change without a mark")
	}
	s.IDs.Put(Fingerprint{1}, Fingerprint{})
	s.commit()
	s.Mark()
	s.IDs.drop(1)
	s.commit()
	if s.EncodeChange() != nil {
		t.Error("a change after ids were dropped")
	}
	s.Mark()
	for i := range maxRecorded {
		s.IDs.Put(FingerprintOf(strconv.Itoa(i)), Fingerprint{})
		s.commit()
	}
	if s.EncodeChange() == nil {
		t.Errorf("no change of %d ids", maxRecorded)
	}
	s.IDs.Put(Fingerprint{1}, Fingerprint{})
	s.commit()
	if s.EncodeChange() != nil {
		t.Errorf("a change of %d ids", maxRecorded+1)
	}
	if s.Mark(); s.EncodeChange() == nil {
		t.Error("no change after the next mark")
	}
}

// A damaged change is an error of its own kind, wherever it is cut off.
func TestDamagedChangeIsAnError(t *testing.T) {
	t.Parallel()
	s := NewSession(envelopes.Codex, "s", nil)
	s.RememberCall("a", Call{Tool: "Bash"})
	s.Mark()
	whole := s.Encode()
	s.RememberCall("b", Call{Tool: "Read"})
	s.IDs.Put(Fingerprint{1}, Fingerprint{})
	s.APICalls.Put(Fingerprint{1}, Consumption{Input: 300})
	s.commit()
	change := s.EncodeChange()
	for n := range change {
		if _, err := DecodeChanged(whole, change[:n], noState); !errors.Is(err, ErrSession) {
			t.Errorf("the first %d of %d bytes: %v", n, len(change), err)
		}
	}
	other := NewSession(envelopes.Codex, "s", nil).Encode()
	if _, err := DecodeChanged(other, change, noState); !errors.Is(err, ErrSession) {
		t.Errorf("the change of another: %v", err)
	}
}

// Sessions of other versions are refused: their generation is of another revision.
func TestSessionOfAnotherVersionIsRefused(t *testing.T) {
	t.Parallel()
	whole := NewSession(envelopes.Codex, "s", nil).Encode()
	for _, version := range []byte{sessionVersion - 1, sessionVersion + 1} {
		if _, err := DecodeSession(append([]byte{version}, whole[1:]...), noState); !errors.Is(err, ErrSession) {
			t.Errorf("version %d: %v", version, err)
		}
	}
}
