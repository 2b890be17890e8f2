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

// Limits that no record gets around.
const (
	MaxRecordBytes = 64 << 20  // a longer record is a dead letter
	MaxEventBytes  = 512 << 10 // an event in JSON stays at or under it
	MaxDepth       = 128       // levels of JSON in a record
	MaxEvents      = 100_000   // events from one record
	MaxValues      = 1_000_000 // strings, objects, arrays and commas in the JSON of a record
)

// Record is one raw record and where it was found.
type Record struct {
	Source   envelopes.Source
	Session  string    // the key: session_id of every event made of it
	Sequence uint64    // sequence in the raw stream, or line number for a file
	Stored   time.Time // when the broker stored it: the time of a record that has no other
	Origin   Origin
	Data     []byte // events may share its memory, a Session does not; empty when Origin.End
	Earlier  Earlier

	form    jsonscan.Form // of checked
	checked []byte        // Data, once its form is known
}

// Origin is what the producer states about a record. The zero value states nothing.
type Origin struct {
	File     string // identity of the file; empty when there is none
	Position int64  // offset of the record in File
	// Digest is the hex sha256 of Data where File is one document that is rewritten in
	// place, and the record the whole of it or one of its elements, and of a line of plain text
	// without its end that is the whole of File. Empty otherwise.
	Digest   string
	Previous int64     // offset of the previous record of the same session in File; -1 when it is the first
	Time     time.Time // the time of the record if neither it nor its session has one
	End      bool      // the input ends here: no record, but pending events are emitted
	// Requeued is the sequence in the raw stream of the record that this one repeats,
	// because it could not be read; 0 when it repeats none. It is taken only while that
	// one is open ([Session.Standing]), wherever it stood in its file.
	Requeued uint64
	// Edge is who sent the record; nil when nobody states that. It is that of the events of the record alone.
	Edge *envelopes.Edge

	Traceparent, Tracestate string // W3C trace context of the creation of the record
}

// Earlier is what the raw stream says about the earlier records of the session at the place of a
// record. It is asked where [Session.Passed]; the zero value says nothing, and then a record at a
// passed place is a duplicate.
type Earlier struct {
	Known bool // the raw stream was asked
	Same  bool // an earlier record of the session has the same file, position and bytes
	// From is the position in the file from which on the raw stream has every record of the
	// session: those before it have expired. 0 when none has, [math.MaxInt64] when all have.
	From int64
}

// Result is what a record yields.
type Result struct {
	// Events are in the order of the session. Not all need come from this record: a pending
	// event comes with the record that releases it.
	Events []Emitted
	// Skip is why the record has no event of its own (yet: see [SkipHeld]). Empty when it
	// has one, and for the end of input.
	Skip SkipReason
	// Gap is set when the record does not follow the last one of its file that the
	// session has seen: records between the two were never stored. The session remembers
	// where ([Session.Gaps]).
	Gap bool
	// Late is set when the record lay in a gap, and is there now.
	Late bool
	// Rewritten is set when the session has passed the place of the record with another one: the file
	// was rewritten, or goes on differently on two machines.
	Rewritten bool
	// Undecided is set when the session has passed the place of the record, and what it read there
	// has expired: the record is taken for a duplicate.
	Undecided bool
	// Unknown is what the normalizer does not know of the record; it depends on the record and
	// the session alone, as the events do. Nil for nothing.
	Unknown []Unknown
}

// Emitted is one event together with the record that it comes from, which is not the given
// record where the event was pending.
type Emitted struct {
	Event                   envelopes.AgentEventV1
	Sequence                uint64
	Traceparent, Tracestate string
	Referenced              bool              // the event refers to the record instead of carrying it in raw
	Checked                 envelopes.Checked // what is known of the native JSON of the event
}

// SkipReason names why a record yields no event. The set is bounded: it is a label of
// metrics.
type SkipReason string

// The reasons for which a record yields no event.
const (
	SkipMirror    SkipReason = "mirror"    // repeats what another record states
	SkipProgress  SkipReason = "progress"  // a partial state; a later record states the whole
	SkipHeartbeat SkipReason = "heartbeat" // says only that something is alive
	SkipDuplicate SkipReason = "duplicate" // the same record or the same event again
	SkipQueued    SkipReason = "queued"    // changes a queue; the item is emitted when it is taken
	SkipEmpty     SkipReason = "empty"     // has no content
	SkipHeld      SkipReason = "held"      // pending: a later record releases its events, or repeats it
	SkipControl   SkipReason = "control"   // a message of the control protocol
)

// SkipReasons lists every reason for which a record yields no event.
var SkipReasons = []SkipReason{
	SkipMirror, SkipProgress, SkipHeartbeat, SkipDuplicate, SkipQueued, SkipEmpty, SkipHeld, SkipControl,
}

// Read reads the record into a wire struct of the vendor. Any JSON is a record: one that is no
// object leaves the struct empty, and is kept as unknown. What is not JSON is [ErrMalformed].
func (r *Record) Read(into any) error {
	if err := r.Check(); err != nil {
		return err
	}
	lenient.ReadObject(r.Data, into)
	return nil
}

// Check returns [ErrMalformed] for a record that is not JSON; the error names the place, never
// the content. It is quick where [Apply] has found strict JSON.
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

// IsPlainText reports whether a line is text that was never meant to be JSON. Such text may begin with a word in brackets.
func IsPlainText(line []byte) bool {
	line = bytes.TrimSpace(line)
	return len(line) > 0 && line[0] != '{' && (line[0] != '[' || bytes.IndexByte(line, ']') > 0) && bytes.IndexByte(line, 0) < 0 &&
		!jsontext.Value(line).IsValid(lenient.Options)
}

// IsFrontText is [IsPlainText] of a line before the first record of a file: one that ends as a record does may be a record
// of which the beginning is cut off.
func IsFrontText(line []byte) bool {
	return IsPlainText(line) && !bytes.HasSuffix(bytes.TrimSpace(line), []byte("}"))
}

// PlainText is a line of text as an event can carry it.
func PlainText(line []byte) string { return strings.ToValidUTF8(string(line), "\ufffd") }
