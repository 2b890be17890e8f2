// Package normalizers turns the raw records of coding agents into events.
//
// Start with [Normalizer] and [Normalize]. The one invariant: events are a pure
// function of the records of a session in their order. No clock, no random number, no
// order of a map enters; time and the end of input enter only as data. What must be
// remembered between two records is in the [Session], which can be encoded, compared
// and carried on after any record.
//
// A file of a vendor is cut into records by a [Framer]; [Normalize] folds them, one
// session at a time. Each vendor is one file with one [Normalizer].
package normalizers

import (
	"bytes"
	"fmt"
	"runtime/debug"
	"time"
	"unicode/utf8"

	"tributary/envelopes"
)

// Revision is the number of this mapping from records to events. It is raised by hand
// whenever the events of some record change.
const Revision = 1

// Limits that no record gets around.
const (
	MaxRecordBytes = 64 << 20  // a longer record is a dead letter
	MaxEventBytes  = 512 << 10 // an event in JSON stays at or under it
	MaxDepth       = 128       // levels of JSON in a record
	MaxEvents      = 100_000   // events from one record
)

// Record is one raw record and where it was found.
type Record struct {
	Source   envelopes.Source
	Session  string    // the key: session_id of every event made of it
	Sequence uint64    // sequence in the raw stream, or line number for a file
	Stored   time.Time // when the broker stored it: the time of a record that has no other
	Origin   Origin
	Data     []byte // not retained by a Normalizer; empty when Origin.End
}

// Origin is what the producer states about a record. The zero value states nothing.
type Origin struct {
	File     string // identity of the file; empty when there is none
	Position int64  // offset of the record in File
	// Digest is the hex sha256 of Data where File is one document that is rewritten in
	// place, and the record the whole of it or one of its elements. Empty otherwise.
	Digest   string
	Previous int64     // offset of the previous record of the same session in File; -1 when it is the first
	Time     time.Time // the time of the record if neither it nor its session has one
	End      bool      // the input ends here: no record, but what is held is let go
	// Requeued is the sequence in the raw stream of the record that this one repeats,
	// because it could not be read; 0 when it repeats none. It is taken only while that
	// one is open ([Session.Standing]), wherever it stood in its file.
	Requeued uint64

	Traceparent, Tracestate string // W3C trace context of the creation of the record
}

// Result is what a record yields.
type Result struct {
	// Events are in the order of the session. Not all need come from this record: an
	// event that was held comes with the record that lets it go.
	Events []Emitted
	// Skip is why the record has no event of its own (yet: see [SkipHeld]). Empty when it
	// has one, and for the end of input.
	Skip SkipReason
	// Gap is set when the record does not follow the last one of its file that the
	// session has seen: records between the two were never stored.
	Gap bool
}

// Emitted is one event together with the record that it comes from: not always the
// record that was given, for an event may have been held.
type Emitted struct {
	Event                   envelopes.AgentEventV1
	Sequence                uint64
	Traceparent, Tracestate string
}

// SkipReason names why a record yields no event. The set is bounded: it is a label of
// metrics.
type SkipReason string

// The reasons for which a record yields no event.
const (
	SkipMirror    SkipReason = "mirror"    // tells again what another record tells
	SkipProgress  SkipReason = "progress"  // a partial state, told whole by a later record
	SkipHeartbeat SkipReason = "heartbeat" // says only that something is alive
	SkipDuplicate SkipReason = "duplicate" // the same record or the same event again
	SkipQueued    SkipReason = "queued"    // changes a queue, told when the item is taken
	SkipEmpty     SkipReason = "empty"     // has no content
	SkipHeld      SkipReason = "held"      // its events come with a later record, or it turns out a mirror
	SkipControl   SkipReason = "control"   // a message of the control protocol
)

// A Normalizer maps the records of one vendor to events. It holds no state: what it
// must remember lives in the Session. It does not retain r.Data, and it is called
// through [Normalize], which keeps the common rules.
//
// An error is permanent (see [Reason]): the record can never be read, and s is put
// back to what it was. What is well formed but unknown is no error: it yields a meta
// event that keeps the record.
type Normalizer interface {
	Normalize(s *Session, r Record) (Result, error)
}

// normalizerOf returns the normalizer of a source. A vendor is one file, one line here,
// one line in [tell] and one folder of testdata.
func normalizerOf(source envelopes.Source) (Normalizer, bool) {
	switch source {
	case envelopes.ClaudeCode:
		return claude{}, true
	case envelopes.Codex:
		return codex{}, true
	case envelopes.Gemini:
		return gemini{}, true
	case envelopes.Cursor:
		return cursor{}, true
	case envelopes.Copilot:
		return copilot{}, true
	case envelopes.ACP:
		return acp{}, true
	default:
		return nil, false
	}
}

// Normalize folds one record into the events of its session. It keeps the rules that
// all vendors share: a record that the session has seen by its position in its file is
// skipped, and so is one that repeats a record which is not open; a record that fails
// leaves s as it was (also when the normalizer panics; see [Session.Reject] for what the
// session shall know of it); and no event leaves that is not valid.
//
// Every error is permanent ([Reason] has its name) but one: a record that belongs to
// another session than s is a mistake of the caller.
func Normalize(s *Session, r Record) (Result, error) {
	if r.Source != s.source || r.Session != s.id {
		return Result{}, fmt.Errorf("record of another session than %s of %s", s.id, s.source)
	}
	if s.id == "" || len(s.id) > envelopes.MaxIDBytes || !utf8.ValidString(s.id) {
		return Result{}, fmt.Errorf("%w: session_id is empty, not UTF-8, or longer than %d bytes", envelopes.ErrInvalidEvent, envelopes.MaxIDBytes)
	}
	n, ok := normalizerOf(r.Source)
	if !ok {
		return Result{}, fmt.Errorf("%w: %s has no normalizer", ErrUnknownSource, r.Source)
	}
	return normalize(n, s, r)
}

// normalize is [Normalize] with a given normalizer.
func normalize(n Normalizer, s *Session, r Record) (res Result, err error) {
	before := s.state
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
		return n.Normalize(s, r)
	}
	fresh, gap := true, false
	if requeued == 0 {
		fresh, gap = s.advance(r.Origin)
	}
	if !fresh {
		return Result{Skip: SkipDuplicate}, nil
	}
	if err := checkRecord(r.Data); err != nil {
		return Result{}, err
	}
	s.Records++
	res, err = n.Normalize(s, r)
	res.Gap = gap
	return res, err
}

// checkRecord refuses what no normalizer shall be given.
func checkRecord(data []byte) error {
	if len(data) > MaxRecordBytes {
		return fmt.Errorf("%w: %d bytes, the limit is %d", ErrTooLarge, len(data), MaxRecordBytes)
	}
	if depth(data) > MaxDepth {
		return fmt.Errorf("%w: the limit is %d levels", ErrTooDeep, MaxDepth)
	}
	return nil
}

// depth is the number of levels of a JSON value, or a number up to [MaxDepth] when it
// has no more than that.
func depth(data []byte) int {
	if n := bytes.Count(data, []byte{'{'}) + bytes.Count(data, []byte{'['}); n <= MaxDepth {
		return n
	}
	deepest, level, quoted := 0, 0, false
	for i := 0; i < len(data); i++ {
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
