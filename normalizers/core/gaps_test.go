package core

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"tributary/envelopes"
)

// line is a record of a file, with its place.
type line struct {
	file               string
	position, previous int64
	bad                bool // it cannot be read, so no record names it as the one before it
}

// lines returns the records of a file.
func lines(t *rapid.T, file string) []line {
	out := make([]line, rapid.IntRange(1, 40).Draw(t, "lines of "+file))
	position, previous := int64(0), int64(-1)
	for i := range out {
		out[i] = line{file, position, previous, rapid.IntRange(0, 9).Draw(t, "bad") == 0}
		if !out[i].bad {
			previous = position
		}
		position += rapid.Int64Range(1, 500).Draw(t, "length")
	}
	return out
}

// folded is a session that is given records one after the other.
type folded struct {
	s        *Session
	sequence uint64
	accepted map[line]int // how often a record was no duplicate
}

// give gives the session a record.
func (f *folded) give(l line) (Result, error) {
	f.sequence++
	r := Record{
		Source: envelopes.ClaudeCode, Session: "s", Sequence: f.sequence, Data: []byte("good"),
		Origin: Origin{File: l.file, Position: l.position, Previous: l.previous},
	}
	if l.bad {
		r.Data = []byte("bad")
	}
	res, err := Apply(brittle, f.s, r)
	switch {
	case err != nil:
		var ok bool
		if res, ok = f.s.Reject(r); ok {
			f.accepted[l]++
		}
	case res.Skip != SkipDuplicate:
		f.accepted[l]++
	}
	return res, err
}

// cut encodes and decodes the session.
func (f *folded) cut(t *rapid.T) {
	before := f.s.Encode()
	decoded, err := DecodeSession(before, func(envelopes.Source) State { return nil })
	if err != nil || !bytes.Equal(before, decoded.Encode()) {
		t.Fatalf("the session is cut: %v", err)
	}
	f.s = decoded
}

// Records that are missing and come later, in any order, again and again, beside those that
// follow, are accepted once each; no record is accepted twice. The gaps of the session are those of
// the definition: a record that can be read is missing exactly when a gap contains it.
func TestLateRecordIsAcceptedOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := &folded{s: NewSession(envelopes.ClaudeCode, "s", nil), accepted: make(map[line]int)}
		var all, first, late []line
		for i := range rapid.IntRange(1, 3).Draw(t, "files") {
			all = append(all, lines(t, fmt.Sprint("file", i))...)
		}
		lost := rapid.IntRange(0, 9).Draw(t, "lost of ten")
		for _, l := range all {
			if rapid.IntRange(1, 10).Draw(t, "lost") <= lost {
				late = append(late, l)
			} else {
				first = append(first, l)
			}
		}
		give := func(l line) {
			if rapid.IntRange(0, 4).Draw(t, "cut") == 0 {
				f.cut(t)
			}
			inGap := inGaps(f.s, l)
			had := f.accepted[l]
			res, _ := f.give(l)
			switch {
			case res.Late != (f.accepted[l] > had && inGap):
				t.Fatalf("%+v in a gap: %t, late: %t", l, inGap, res.Late)
			case f.accepted[l] > 1:
				t.Fatalf("%+v is accepted %d times", l, f.accepted[l])
			case f.accepted[l] == 0 && !l.bad:
				t.Fatalf("%+v is not accepted", l)
			}
			f.check(t, all)
		}
		for _, l := range first {
			give(l)
			if len(late) > 0 && rapid.IntRange(0, 3).Draw(t, "beside") == 0 {
				again := rapid.SampledFrom(late).Draw(t, "late")
				if inGaps(f.s, again) {
					give(again)
				}
			}
		}
		for _, l := range rapid.Permutation(all).Draw(t, "again") {
			if f.accepted[l] > 0 || inGaps(f.s, l) {
				give(l)
			}
		}
		if gaps := f.s.Gaps(); len(gaps) != 0 {
			t.Fatalf("gaps are left: %+v", gaps)
		}
		for _, l := range all { // those behind the last that came, and bad ones nobody names
			give(l)
		}
		if f.s.Forgotten() != 0 {
			t.Fatalf("forgotten are %d", f.s.Forgotten())
		}
	})
}

// inGaps reports whether a record lies in a gap of the session.
func inGaps(s *Session, l line) bool {
	return slices.ContainsFunc(s.Gaps(), func(g Gap) bool {
		return g.File == FingerprintOf(l.file) && g.After < l.position && l.position <= g.Last
	})
}

// check compares the gaps with the records that are missing.
func (f *folded) check(t *rapid.T, all []line) {
	behind := make(map[string]int64)
	for l := range f.accepted {
		if f.accepted[l] > 0 {
			behind[l.file] = max(behind[l.file], l.position)
		}
	}
	for _, l := range all {
		missing := f.accepted[l] == 0 && l.position < behind[l.file]
		switch in := inGaps(f.s, l); {
		case in && !missing:
			t.Fatalf("%+v is in a gap, and is not missing: %+v", l, f.s.Gaps())
		case missing && !in && !l.bad && f.stated(all, l):
			t.Fatalf("%+v is missing, and in no gap: %+v", l, f.s.Gaps())
		}
	}
}

// stated reports whether a record that is there is behind l: one that names l, or a later
// record, as the one before it.
func (f *folded) stated(all []line, l line) bool {
	return slices.ContainsFunc(all, func(of line) bool { return of.file == l.file && f.accepted[of] > 0 && of.previous >= l.position })
}

// A session remembers 64 gaps. The records of older ones are duplicates, and are counted as
// forgotten; those of the others are accepted.
func TestGapsAreBounded(t *testing.T) {
	t.Parallel()
	const n = 5000
	f := &folded{s: NewSession(envelopes.ClaudeCode, "s", nil), accepted: make(map[line]int)}
	at := func(i int) line { return line{"f", int64(10 * i), int64(10*i - 10), false} }
	for i := 1; i < 2*n; i += 2 {
		if res, err := f.give(at(i)); err != nil || !res.Gap {
			t.Fatalf("record %d: %+v, %v", i, res, err)
		}
		if size := len(f.s.Encode()); size > 8<<10 {
			t.Fatalf("record %d: a state of %d bytes", i, size)
		}
	}
	if gaps := f.s.Gaps(); len(gaps) != maxGaps || f.s.Forgotten() != n-maxGaps {
		t.Fatalf("%d gaps, %d forgotten", len(gaps), f.s.Forgotten())
	}
	for i := 0; i < 2*n; i += 2 {
		_, _ = f.give(at(i))
		if accepted := f.accepted[at(i)] == 1; accepted != (i >= 2*(n-maxGaps)) {
			t.Fatalf("record %d is accepted: %t", i, accepted)
		}
	}
	if gaps := f.s.Gaps(); len(gaps) != 0 {
		t.Errorf("gaps are left: %+v", gaps)
	}
}

// A large gap whose records come in the worst order is bounded, too: what is no longer known
// to be missing is forgotten, and no record is accepted twice.
func TestGapThatIsSplitIsBounded(t *testing.T) {
	t.Parallel()
	const n = 1000
	f := &folded{s: NewSession(envelopes.ClaudeCode, "s", nil), accepted: make(map[line]int)}
	at := func(i int) line { return line{"f", int64(10 * i), int64(10*i - 10), false} }
	if res, err := f.give(at(n)); err != nil || !res.Gap {
		t.Fatalf("%+v, %v", res, err)
	}
	for range 2 {
		for _, step := range []int{2, 1} {
			for i := 1; i < n; i += step {
				_, _ = f.give(at(i))
				if len(f.s.Gaps()) > maxGaps || f.accepted[at(i)] > 1 {
					t.Fatalf("record %d: %d gaps, accepted %d times", i, len(f.s.Gaps()), f.accepted[at(i)])
				}
			}
		}
	}
	if f.s.Forgotten() == 0 {
		t.Error("the test demands too little")
	}
}

// A session that forgets a file forgets its gaps, and a file that it may have forgotten opens
// none.
func TestForgottenFileHasNoGaps(t *testing.T) {
	t.Parallel()
	f := &folded{s: NewSession(envelopes.ClaudeCode, "s", nil), accepted: make(map[line]int)}
	behindGap := line{"first", 20, 10, false}
	if res, err := f.give(behindGap); err != nil || !res.Gap {
		t.Fatalf("%+v, %v", res, err)
	}
	for i := range maxFiles {
		if res, err := f.give(line{strconv.Itoa(i), 0, -1, false}); err != nil || res.Gap {
			t.Fatalf("file %d: %+v, %v", i, res, err)
		}
	}
	if gaps := f.s.Gaps(); len(gaps) != 0 {
		t.Errorf("gaps of a file that is forgotten: %+v", gaps)
	}
	if res, err := f.give(line{"first", 30, 20, false}); err != nil || res.Gap || res.Skip == SkipDuplicate {
		t.Errorf("the next record of the file: %+v, %v", res, err)
	}
	if len(f.s.Gaps()) != 0 {
		t.Errorf("gaps %+v", f.s.Gaps())
	}
}

// A document that is rewritten in place has one position: its versions differ by
// their digests, and a version that comes late is no gap.
func TestVersionsOfADocumentHaveNoGaps(t *testing.T) {
	t.Parallel()
	s := NewSession(envelopes.ClaudeCode, "s", nil)
	give := func(digest string) Result {
		res, err := Apply(brittle, s, Record{
			Source: envelopes.ClaudeCode, Session: "s", Data: []byte("good"),
			Origin: Origin{File: "f", Previous: -1, Digest: digest},
		})
		if err != nil || res.Gap || res.Late || len(s.Gaps()) > 0 {
			t.Fatalf("%s: %+v, %v", digest, res, err)
		}
		return res
	}
	for _, digest := range []string{"a", "c", "b"} {
		if give(digest).Skip == SkipDuplicate {
			t.Errorf("version %s is a duplicate", digest)
		}
		if give(digest).Skip != SkipDuplicate {
			t.Errorf("version %s again is no duplicate", digest)
		}
	}
}
