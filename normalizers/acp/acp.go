// Package acp normalizes records of the Agent Communication Protocol: the events of a run's
// stream, runs and messages on their own, arrays of them, and requests to an agent.
//
// Start with [Vendor]. A record is decoded by read (record.go) and dispatched to one
// function per kind by dispatch (acp.go). README.md has the rules.
//
// The invariant: the protocol states a message up to three times, in the parts of a stream, in
// the message that completes them, and in the output of the run, and each message is emitted
// once, from the first of these places. Neither messages nor the events of a stream have an id
// or name their run, so a session remembers the current run, the open message of its stream,
// and content hashes of what it has emitted.
package acp

import (
	"cmp"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// mapper is the work on one record.
type mapper struct {
	*core.Builder
	st       *state
	repeated bool // the record repeats a message that was emitted before
}

// normalize maps one record.
func normalize(s *core.Session, r core.Record) (core.Result, error) {
	m := &mapper{Builder: s.Begin(r, ""), st: stateOf(s)}
	if r.Origin.End {
		m.st.Open.flush(m)
		return m.Finish("")
	}
	if err := r.Check(); err != nil {
		return core.Result{}, err
	}
	rec, err := read(r.Data)
	if err != nil {
		return core.Result{}, err
	}
	m.dispatch(&rec)
	return m.Finish(m.skipReason(&rec))
}

// dispatch emits the events of a record.
func (m *mapper) dispatch(r *record) {
	switch r.kind {
	case kindRun:
		emitRun(m, r)
	case kindMessageCreated:
		m.st.Open.begin(m, r.message())
	case kindMessagePart:
		m.st.Open.add(m, &r.part)
	case kindMessageCompleted:
		m.st.Open.complete(m, r.message())
	case kindError:
		m.st.Open.flush(m)
		m.emitError(r.value)
	case kindMessage:
		emitHistoryMessage(m, r.message())
	case kindRequest:
		emitRequest(m, r)
	case kindResume:
		emitResume(m, r)
	case kindArray:
		emitArray(m, r.elements)
	case kindUnknown:
		if r.stated != "generic" {
			m.Unknown(core.UnknownRecord, r.stated)
		}
		m.Emit(core.UnknownDraft())
	}
}

// skipReason returns why a record without an event of its own has none.
func (m *mapper) skipReason(r *record) core.SkipReason {
	if m.repeated {
		return core.SkipMirror
	}
	switch r.kind {
	case kindMessageCreated, kindMessagePart:
		return core.SkipProgress
	case kindMessageCompleted, kindMessage, kindRequest, kindResume:
		return core.SkipEmpty
	case kindArray:
		if last := len(r.elements) - 1; last >= 0 {
			return m.skipReason(&r.elements[last])
		}
		return core.SkipDuplicate
	default:
		return core.SkipDuplicate // any other record has an event unless it repeats one
	}
}

// emitMeta emits the event of a record without content of the conversation, which keeps the raw record.
func (m *mapper) emitMeta() { m.Emit(core.SystemDraft(envelopes.Meta, "")) }

// emitError emits the error in the member error of a record.
func (m *mapper) emitError(record jsontext.Value) {
	var in struct {
		Error jsontext.Value `json:"error"`
	}
	lenient.ReadObject(record, &in)
	code, message := core.VendorError(in.Error)
	d := m.Session.ErrorDraft(code, message)
	d.Text = lenient.Text(cmp.Or(message, code)).Ptr()
	m.Emit(d)
}

// setTime sets the time of the record to the first of times that is valid.
func (m *mapper) setTime(times ...*string) {
	if ts, ok := parseTime(times...); ok {
		m.TS = ts
	}
}

// parseTime returns the first valid one of times in the form of an event. A time without a zone is UTC, as in the
// protocol's SDK.
func parseTime(times ...*string) (string, bool) {
	for _, t := range times {
		if t == nil {
			continue
		}
		if ts, ok := core.ParseTime(*t); ok {
			return ts, true
		}
		if ts, ok := core.ParseTime(*t + "Z"); ok {
			return ts, true
		}
	}
	return "", false
}
