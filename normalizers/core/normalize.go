package core

import (
	"bytes"
	"fmt"
	"runtime/debug"

	"tributary/envelopes/jsonscan"
)

// A Normalizer maps a record of one vendor to events. It has no state of its own: what it must remember until the
// next record is in the Session. Its events may share the memory of r.Data; the Session must not. It is called
// through [Apply], which keeps the rules common to all vendors.
//
// An error is permanent (see [Reason]): the record can never be read, and s is restored. A well-formed record of an
// unknown type is no error: it yields a meta event that keeps the record.
type Normalizer func(s *Session, r Record) (Result, error)

// Apply normalizes one record with the normalizer of its vendor. It keeps the rules common to all vendors: a record
// that repeats an earlier one at its place in its file is a duplicate, and so is a requeued record whose original is
// not open. A record that fails leaves s unchanged, even if the normalizer panics.
func Apply(normalize Normalizer, s *Session, r Record) (res Result, err error) {
	before := s.state
	if s.State != nil {
		before.State = s.State.Clone()
	}
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
		if err != nil {
			s.rollback(before)
			res = Result{}
			return
		}
		s.Failed = s.Failed.read(r.Origin.Requeued)
		s.commit()
		s.trim()
	}()
	requeued := r.Origin.Requeued
	if requeued != 0 && s.Failed.standing(requeued) != StandingOpen {
		return Result{Skip: SkipDuplicate}, nil
	}
	if r.Origin.End {
		return normalize(s, r)
	}
	at := placeNext
	if requeued == 0 {
		at = s.advance(r, &s.Lost)
	}
	if at == placeRepeated || at == placeUndecided {
		return Result{Skip: SkipDuplicate, Undecided: at == placeUndecided}, nil
	}
	if err := r.scan(); err != nil {
		return Result{}, err
	}
	s.Records++
	res, err = normalize(s, r)
	at.describe(&res)
	return res, err
}

// scan finds the form of a record, and refuses a record that no normalizer may get.
func (r *Record) scan() error {
	if len(r.Data) > MaxRecordBytes {
		return fmt.Errorf("%w: %d bytes, the limit is %d", ErrTooLarge, len(r.Data), MaxRecordBytes)
	}
	if !r.form.Strict || !isSame(r.checked, r.Data) {
		r.form, r.checked = jsonscan.Check(r.Data, MaxDepth), r.Data
	}
	if !r.form.Strict && Depth(r.Data) > MaxDepth {
		return fmt.Errorf("%w: the limit is %d levels", errTooDeep, MaxDepth)
	}
	return checkValues(r.Data)
}

// isSame reports whether two slices share the same memory.
func isSame(a, b []byte) bool { return len(a) == len(b) && len(a) > 0 && &a[0] == &b[0] }

// Depth returns a number that is above [MaxDepth] exactly if a JSON value has more levels than that.
func Depth(data []byte) int {
	if n := bytes.Count(data, []byte{'{'}) + bytes.Count(data, []byte{'['}); n <= MaxDepth {
		return n
	}
	deepest, level, quoted := 0, 0, false
	for i := 0; i < len(data) && deepest <= MaxDepth; i++ {
		switch c := data[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			level++
			deepest = max(deepest, level)
		case c == '}' || c == ']':
			level--
		}
	}
	return deepest
}
