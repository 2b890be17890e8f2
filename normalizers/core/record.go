package core

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/envelopes/jsonscan"
	"tributary/normalizers/lenient"
)

// Limits that hold for every record.
const (
	MaxRecordBytes = 64 << 20  // longer records become dead letters
	MaxEventBytes  = 512 << 10 // maximum size of an event in JSON
	MaxDepth       = 128       // levels of JSON in a record
	MaxEvents      = 100_000   // events from one record
	MaxValues      = 1_000_000 // strings, objects, arrays and commas in the JSON of a record
)

// Record is one raw record and its origin.
type Record struct {
	Source   envelopes.Source
	Session  string    // the key: session_id of every event made of it
	Sequence uint64    // sequence in the raw stream, or line number in a file
	Stored   time.Time // when the broker stored it: the time of a record without any other
	Origin   Origin
	Data     []byte // events may share its memory, a Session must not; empty if Origin.End
	Earlier  Earlier

	form    jsonscan.Form // of checked
	checked []byte        // Data, once its form is known
}

// Origin is what the producer states about a record. The zero value states nothing.
type Origin struct {
	File     string // identity of the file; empty for none
	Position int64  // offset of the record in File
	// Digest is the hex sha256 of Data if File is one document that is rewritten in place and the record is the whole
	// of it or an element; also for a line of plain text without a line end that is the whole File. Otherwise it is
	// empty.
	Digest   string
	Previous int64     // offset of the previous record of the same session in File; -1 for the first
	Time     time.Time // the time of the record if neither it nor its session states one
	Parent   string    // session that started this one as a subagent, if the path of File alone shows it; else empty
	End      bool      // end of input: not a record, but pending events are emitted
	// Requeued is the raw sequence of the unreadable record that this one repeats; 0 for none. The record is accepted
	// only while that one is open ([Session.Standing]), wherever it was in its file.
	Requeued uint64
	// Edge is the sender of the record; nil if unknown. It applies only to events of the record.
	Edge *envelopes.Edge

	Traceparent, Tracestate string // W3C trace context in which the record was created
}

// Earlier is what the raw stream says about the session's earlier records at the place of a record. It is needed if
// [Session.Passed]. The zero value says nothing; a record at a passed place is then a duplicate.
type Earlier struct {
	Known bool // the raw stream was asked
	Same  bool // an earlier record of the session has the same file, position and bytes
	// From is the position in the file from which on the raw stream has every record of the session, because earlier
	// ones have expired. 0 means that none has, [math.MaxInt64] that all have.
	From int64
}

// Result is the result of a record.
type Result struct {
	// Events are in session order. Some may come from earlier records: a pending event comes with the record that
	// releases it.
	Events []Emitted
	// Skip is why the record has no event of its own (yet: see [SkipHeld]). It is empty if the record has one, and
	// for the end of input.
	Skip SkipReason
	// Gap is set if the record does not follow the last record of its file in the session, because the records
	// between the two were never stored. The session remembers the gap ([Session.Gaps]).
	Gap bool
	// Late is set if the record filled a gap.
	Late bool
	// Rewritten is set if the session had passed the place of the record with another record: the file was rewritten,
	// or continued differently on two machines.
	Rewritten bool
	// Undecided is set if the session had passed the place of the record, but the record there has expired: this one
	// is taken for a duplicate.
	Undecided bool
	// Unknown is what the normalizer does not know in the record. Like the events, it depends only on the record and
	// the session. Nil for nothing.
	Unknown []Unknown
}

// Emitted is one event and its record, which is an earlier one if the event was pending.
type Emitted struct {
	Event                   envelopes.AgentEventV1
	Sequence                uint64
	Traceparent, Tracestate string
	Referenced              bool              // the event refers to the record instead of carrying it in raw
	Checked                 envelopes.Checked // what is known about the native JSON of the event
}

// SkipReason is why a record yields no event. The set is bounded, because it is a label of metrics.
type SkipReason string

// The reasons why a record yields no event.
const (
	SkipMirror    SkipReason = "mirror"    // repeats what another record states
	SkipProgress  SkipReason = "progress"  // a partial state; a later record states the whole
	SkipHeartbeat SkipReason = "heartbeat" // only shows that something is alive
	SkipDuplicate SkipReason = "duplicate" // repeats an earlier record or event
	SkipQueued    SkipReason = "queued"    // changes a queue; the item is emitted when it is taken
	SkipEmpty     SkipReason = "empty"     // has no content
	SkipHeld      SkipReason = "held"      // pending: a later record releases or repeats its events
	SkipControl   SkipReason = "control"   // a message of the control protocol
)

// SkipReasons lists all reasons why a record yields no event.
var SkipReasons = []SkipReason{
	SkipMirror, SkipProgress, SkipHeartbeat, SkipDuplicate, SkipQueued, SkipEmpty, SkipHeld, SkipControl,
}

// Read decodes the record into a wire struct of the vendor. Any JSON is a record: if it is not an object, the struct
// stays empty, and the record is kept as unknown. It returns [ErrMalformed] if the record is not JSON.
func (r *Record) Read(into any) error {
	if err := r.Check(); err != nil {
		return err
	}
	lenient.ReadObject(r.Data, into)
	return nil
}

// Check returns [ErrMalformed] if the record is not JSON; the error names the place, never the content. It is fast if
// [Apply] has found strict JSON.
func (r *Record) Check() error {
	if r.form.Strict {
		return nil
	}
	var err error
	if v := jsontext.Value(r.Data); v.Kind() == '{' {
		err = json.Unmarshal(r.Data, new(jsontext.Value), lenient.Options)
	} else {
		err = lenient.ReadValue(v)
	}
	if err == nil {
		return nil
	}
	at := int64(-1)
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		at = syntax.ByteOffset
	}
	if at < 0 {
		return fmt.Errorf("%w: not JSON", ErrMalformed)
	}
	return fmt.Errorf("%w: not JSON at byte %d of %d", ErrMalformed, at, len(r.Data))
}

// IsPlainText reports whether a line is text that was never meant to be JSON. Such text may begin with a word in
// brackets.
func IsPlainText(line []byte) bool {
	line = bytes.TrimSpace(line)
	return len(line) > 0 && line[0] != '{' && (line[0] != '[' || bytes.IndexByte(line, ']') > 0) && bytes.IndexByte(line, 0) < 0 &&
		!jsontext.Value(line).IsValid(lenient.Options)
}

// IsFrontText is [IsPlainText] for a line before the first record of a file: if it ends like a record, its beginning
// may have been cut off. Closing brackets alone end a printed object.
func IsFrontText(line []byte) bool {
	line = bytes.TrimSpace(line)
	return IsPlainText(line) && (!bytes.HasSuffix(line, []byte("}")) || len(bytes.Trim(line, "}], \t")) == 0)
}

// PlainText returns a line of text in the form of an event.
func PlainText(line []byte) string { return strings.ToValidUTF8(string(line), "\ufffd") }
