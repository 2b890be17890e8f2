package core

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"tributary/envelopes"
	"tributary/normalizers/lenient"
)

// brittle is a normalizer that fails at the records "bad" and panics at the records "panic".
func brittle(_ *Session, r Record) (Result, error) {
	switch string(r.Data) {
	case "bad":
		return Result{}, fmt.Errorf("%w: a bad record", ErrMalformed)
	case "panic":
		panic("a bad record")
	default:
		return Result{Skip: SkipEmpty}, nil
	}
}

// rejected reports whether a record becomes a dead letter.
func rejected(s *Session, r Record) bool {
	_, ok := s.Reject(r)
	return ok
}

// TestRequeuedRecordIsReadOnceWhileItIsOpen compares the session with a set of the sequences of
// open records: the first copy of an open record that can be read closes it.
func TestRequeuedRecordIsReadOnceWhileItIsOpen(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := NewSession(envelopes.ClaudeCode, "s", nil)
		open := make(map[uint64]bool)
		var records, failed []uint64
		sequence := uint64(0)
		for range rapid.IntRange(1, 120).Draw(t, "records") {
			sequence += rapid.Uint64Range(1, 3).Draw(t, "records of others")
			r := Record{Source: envelopes.ClaudeCode, Session: "s", Sequence: sequence}
			r.Data = []byte(rapid.SampledFrom([]string{"good", "bad", "bad", "panic"}).Draw(t, "record"))
			if len(records) > 0 && rapid.Bool().Draw(t, "requeued") {
				// Mostly dead letters; where a generation could read a record, others need not.
				r.Origin.Requeued = rapid.SampledFrom(records).Draw(t, "any")
				if len(failed) > 0 && rapid.IntRange(0, 9).Draw(t, "of a dead letter") > 0 {
					r.Origin.Requeued = rapid.SampledFrom(failed).Draw(t, "which")
				}
			}
			records = append(records, sequence)
			accepted := r.Origin.Requeued == 0 || open[r.Origin.Requeued]
			before := s.Encode()
			result, err := Apply(brittle, s, r)
			switch {
			case !accepted:
				if err != nil || result.Skip != SkipDuplicate || rejected(s, r) {
					t.Fatalf("record %d repeats %d, which is not open: %+v, %v", sequence, r.Origin.Requeued, result, err)
				}
			case err != nil:
				if !bytes.Equal(before, s.Encode()) {
					t.Fatal("a record that fails changes the session")
				}
				if !rejected(s, r) {
					t.Fatalf("record %d is no duplicate", sequence)
				}
				failed = append(failed, sequence)
				open[sequence] = true
				delete(open, r.Origin.Requeued)
			case result.Skip != SkipEmpty:
				t.Fatalf("record %d is skipped as %s", sequence, result.Skip)
			default:
				delete(open, r.Origin.Requeued)
			}
			if rapid.IntRange(0, 5).Draw(t, "encoded and decoded") == 0 {
				again, err := DecodeSession(s.Encode(), func(envelopes.Source) State { return nil })
				if err != nil || !bytes.Equal(again.Encode(), s.Encode()) {
					t.Fatalf("the decoded session differs: %v", err)
				}
				if have, want := s.encodedSize(), len(s.Encode()); have != want {
					t.Fatalf("the encoded size is computed as %d bytes, and is %d", have, want)
				}
				s = again
			}
			for _, n := range records {
				if is := s.Standing(n) == StandingOpen; is != open[n] {
					t.Fatalf("after record %d the standing of %d is %s, open is %v in %+v", sequence, n, s.Standing(n), open[n], s.Failed)
				}
			}
		}
	})
}

// TestPositionOfRejectedRecordIsKnown: a file that is shipped again does not bring a rejected
// record back, because it could then be read twice.
func TestPositionOfRejectedRecordIsKnown(t *testing.T) {
	t.Parallel()
	s := NewSession(envelopes.ClaudeCode, "s", nil)
	bad := Record{Source: envelopes.ClaudeCode, Session: "s", Sequence: 1, Data: []byte("bad"), Origin: Origin{File: "f", Position: 10, Previous: -1}}
	if _, err := Apply(brittle, s, bad); !errors.Is(err, ErrMalformed) || !rejected(s, bad) {
		t.Fatalf("%v, want a record that fails", err)
	}
	again := bad
	again.Sequence, again.Data = 2, []byte("good")
	if result, err := Apply(brittle, s, again); err != nil || result.Skip != SkipDuplicate {
		t.Errorf("the same position again: %+v, %v", result, err)
	}
	if rejected(s, again) {
		t.Error("the same position again is another dead letter")
	}
	next := again
	next.Sequence, next.Origin.Position, next.Origin.Previous = 3, 20, 10
	if result, err := Apply(brittle, s, next); err != nil || result.Skip != SkipEmpty || result.Gap {
		t.Errorf("the next position: %+v, %v", result, err)
	}
	requeued := Record{Source: envelopes.ClaudeCode, Session: "s", Sequence: 4, Data: []byte("good"), Origin: Origin{Requeued: 1}}
	for _, want := range []SkipReason{SkipEmpty, SkipDuplicate} {
		if result, err := Apply(brittle, s, requeued); err != nil || result.Skip != want {
			t.Errorf("requeued: %+v, %v, want %s", result, err, want)
		}
	}
	end := Record{Source: envelopes.ClaudeCode, Session: "s", Sequence: 5, Origin: Origin{File: "f", End: true}}
	if !rejected(s, end) || s.Standing(5) != StandingOpen {
		t.Error("an end that could not be read is not open")
	}
}

// TestRequeueOfAllRecordsLeavesNothingOpen: a session of which every record was rejected, is
// requeued in bounded memory.
func TestRequeueOfAllRecordsLeavesNothingOpen(t *testing.T) {
	t.Parallel()
	s := NewSession(envelopes.ClaudeCode, "s", nil)
	const all = 10_000
	for n := range uint64(all) {
		s.Reject(Record{Source: envelopes.ClaudeCode, Session: "s", Sequence: n + 1})
	}
	for n := range uint64(2 * all) { // all fail again, and then none
		r := Record{Source: envelopes.ClaudeCode, Session: "s", Sequence: all + n + 1, Origin: Origin{Requeued: n + 1}}
		if n < all {
			s.Reject(r)
		} else if result, err := Apply(brittle, s, r); err != nil || result.Skip != SkipEmpty {
			t.Fatalf("record %d: %+v, %v", r.Sequence, result, err)
		}
		if len(s.Failed.Spans) > 1 {
			t.Fatalf("record %d leaves %v", r.Sequence, s.Failed.Spans)
		}
	}
	if s.Failed.Spans != nil {
		t.Errorf("nothing is open in %v", s.Failed.Spans)
	}
}

// What a session remembers of failures is bounded, and it says what it does not know.
func TestFailuresAreBounded(t *testing.T) {
	t.Parallel()
	s := NewSession(envelopes.ClaudeCode, "s", nil)
	fail := func(sequence uint64) {
		if !rejected(s, Record{Source: envelopes.ClaudeCode, Session: "s", Sequence: sequence}) {
			t.Fatalf("record %d is a duplicate", sequence)
		}
	}
	const all = 1_000_000
	for n := range uint64(all) { // nothing can be read: one span
		fail(n + 1)
	}
	if size := len(s.Encode()); size > 200 || s.Standing(1) != StandingOpen || s.Standing(all) != StandingOpen {
		t.Errorf("%d bytes for one span, record 1 is %s, record %d is %s", size, s.Standing(1), all, s.Standing(all))
	}
	for n := range uint64(3 * maxFailures) { // every other one can be
		fail(all + 2*n + 1)
		if _, err := Apply(brittle, s, Record{Source: envelopes.ClaudeCode, Session: "s", Sequence: all + 2*n + 2}); err != nil {
			t.Fatal(err)
		}
	}
	last := uint64(all + 2*3*maxFailures - 1)
	if size := len(s.Encode()); size > 32<<10 {
		t.Errorf("%d bytes", size)
	}
	if s.Standing(1) != StandingForgotten || s.Standing(last) != StandingOpen || s.Standing(last+1) != StandingSettled {
		t.Errorf("the first is %s, the last %s, what can be read %s", s.Standing(1), s.Standing(last), s.Standing(last+1))
	}
	r := Record{Source: envelopes.ClaudeCode, Session: "s", Sequence: last + 2, Origin: Origin{Requeued: 1}}
	if result, err := Apply(brittle, s, r); err != nil || result.Skip != SkipDuplicate || rejected(s, r) {
		t.Errorf("what is forgotten is taken again: %+v, %v", result, err)
	}
	for n := range uint64(maxIDs) { // and all that is remembered together
		id := FingerprintOf(strconv.FormatUint(n, 10))
		s.IDs.Put(id, id)
		s.APICalls.Put(id, Consumption{Input: 1 << 40, Output: 1 << 41, CacheRead: 1 << 42})
	}
	for n := range 64 {
		s.Threads = s.Threads.withParent(FingerprintOf(strconv.Itoa(n)), string(bytes.Repeat([]byte{'x'}, MaxIdentity)), &s.Lost)
	}
	for n := range 14 {
		s.SetTextExtension(strconv.Itoa(n), lenient.Text(bytes.Repeat([]byte{'x'}, MaxExtension-2)))
	}
	fail(last + 10)
	if size := len(s.Encode()); size > maxEncoded || size != s.encodedSize() || s.Standing(last+10) != StandingOpen {
		t.Errorf("%d bytes, measured as %d, the limit is %d; the last is %s", size, s.encodedSize(), maxEncoded, s.Standing(last+10))
	}
	if len(s.IDs.ring) < maxIDs {
		t.Errorf("%d of %d ids are left, and %d spans", len(s.IDs.ring), maxIDs, len(s.Failed.Spans))
	}
}

func TestDamagedFailures(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"!", "gA", "AQ", "AQGA"} {
		var s spans
		if err := s.UnmarshalText([]byte(text)); !errors.Is(err, ErrSession) {
			t.Errorf("%q gives %v, %v", text, s, err)
		}
	}
}
