package core

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
)

// maxFailures is how many spans of unreadable records a session remembers.
const maxFailures = 4096

// Standing is the state of a record that was unreadable when it came.
type Standing string

// The standings of an unreadable record.
const (
	StandingOpen      Standing = "open"      // not read yet: the record may be given again
	StandingSettled   Standing = "settled"   // given again, and replaced by that record
	StandingForgotten Standing = "forgotten" // the session no longer knows, so it is not accepted again
)

// failures are the spans of unreadable records of a session, by raw sequence. They make a record that is given again
// ([Origin.Requeued]) yield its events once: it is accepted only while the record that it repeats is open, and
// replaces that from then on. Nothing else depends on failures.
//
// A span has all records of the session between its ends. It does not concern records of other sessions, which no
// record of this session repeats. So a single span suffices for a session that is unreadable throughout, and for the
// rest of it while it is given again.
type failures struct {
	Spans  spans  `json:"s,omitzero"`
	Closed bool   `json:"c,omitzero"` // the last span cannot grow: a later record is not in it
	Before uint64 `json:"b,omitzero"` // spans up to here may have been forgotten
}

// spans is a list of spans, oldest first.
type spans Window[span]

type span struct{ First, Last uint64 }

// standing returns the standing of a record.
func (f failures) standing(sequence uint64) Standing {
	for _, s := range f.Spans {
		if s.First <= sequence && sequence <= s.Last {
			return StandingOpen
		}
	}
	if sequence <= f.Before {
		return StandingForgotten
	}
	return StandingSettled
}

// add returns f with the newest record of the session, which was unreadable.
func (f failures) add(sequence uint64) failures {
	list := Window[span](f.Spans)
	if last := len(list) - 1; last >= 0 && !f.Closed {
		list = list.With(last, span{list[last].First, sequence})
	} else {
		if len(list) == maxFailures {
			f.Before = list[0].Last
		}
		list = list.Push(span{sequence, sequence}, maxFailures, nil)
	}
	return failures{Spans: spans(list), Before: f.Before}
}

// settle returns f without a record.
func (f failures) settle(sequence uint64) failures {
	for i, s := range f.Spans {
		if sequence < s.First || s.Last < sequence {
			continue
		}
		list := slices.Clone(f.Spans[:i])
		if s.First < sequence {
			list = append(list, span{s.First, sequence - 1})
		}
		if sequence < s.Last {
			list = append(list, span{sequence + 1, s.Last})
		} else if i == len(f.Spans)-1 {
			f.Closed = true // growing would include the record again
		}
		f.Spans = append(list, f.Spans[i+1:]...)
		return f.normal()
	}
	return f
}

// read returns f after a record was read; requeued is the record that it repeats, 0 for none.
func (f failures) read(requeued uint64) failures {
	if len(f.Spans) == 0 {
		return f
	}
	f.Closed = true
	return f.settle(requeued)
}

// forget returns f without its n oldest spans.
func (f failures) forget(n int) failures {
	f.Before = f.Spans[n-1].Last
	f.Spans = f.Spans[n:]
	return f.normal()
}

// normal returns f in its decoded form.
func (f failures) normal() failures {
	if len(f.Spans) == 0 {
		f.Spans, f.Closed = nil, false
	}
	return f
}

// MarshalText encodes the spans as differences in base64; most take 3 characters.
func (s spans) MarshalText() ([]byte, error) {
	var b []byte
	at := uint64(0)
	for _, v := range s {
		b = binary.AppendUvarint(b, v.First-at)
		b = binary.AppendUvarint(b, v.Last-v.First)
		at = v.Last
	}
	return base64.RawURLEncoding.AppendEncode(nil, b), nil
}

// UnmarshalText is the inverse of MarshalText.
func (s *spans) UnmarshalText(text []byte) error {
	b, err := base64.RawURLEncoding.AppendDecode(nil, text)
	if err != nil {
		return fmt.Errorf("%w: its failures are damaged", ErrSession)
	}
	*s = nil
	for at := uint64(0); len(b) > 0; {
		gap, n := binary.Uvarint(b)
		length, m := binary.Uvarint(b[max(n, 0):])
		if n <= 0 || m <= 0 {
			return fmt.Errorf("%w: its failures are damaged", ErrSession)
		}
		b = b[n+m:]
		at += gap
		*s = append(*s, span{at, at + length})
		at += length
	}
	return nil
}

// Reject notes that r, a record of the session, is unreadable: [Normalize] failed, or the reader of the raw stream
// could not pass it to Normalize. The result has no events. Reject returns false for a duplicate, of which nothing is
// kept: a record that repeats a settled one, or an earlier one at its place in its file.
//
// The session notes that the record is open, so that it is accepted when it is given again, and that its place in its
// file was passed, so that it is not accepted twice when the file is read again.
func (s *Session) Reject(r Record) (res Result, ok bool) {
	switch requeued := r.Origin.Requeued; {
	case requeued != 0:
		if s.Failed.standing(requeued) != StandingOpen {
			return Result{}, false
		}
	case !r.Origin.End:
		at := s.advance(r, &s.Lost)
		at.describe(&res)
		if at == placeRepeated || at == placeUndecided {
			return res, false
		}
	}
	s.Failed = s.Failed.settle(r.Origin.Requeued).add(r.Sequence)
	s.trim()
	return res, true
}

// Standing returns the standing of an unreadable record of the session, by its raw sequence.
func (s *Session) Standing(sequence uint64) Standing { return s.Failed.standing(sequence) }
