// Package codex normalizes what the Codex CLI writes: its rollouts, of all generations, and
// the stream of `codex exec --json`. README.md of this folder describes the formats and the
// rules.
//
// Start with [Vendor] and normalize. A record of a rollout goes through rollout
// (rollout.go), which has one function per type of record; a record of the exec stream goes
// through exec (exec.go).
//
// The invariant: Codex writes each message twice, as a response_item and as an event_msg, and exactly one event
// results. The response_item is canonical. An event_msg is pending until a response_item repeats it, or until none
// can any more (pending.go).
package codex

import (
	"sync"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
	"tributary/normalizers/otlp"
)

// mapper maps one record to its events.
type mapper struct {
	emitter
	record

	lastNotice core.Fingerprint // value of texts.Notice before the record
}

// wireRecords are pooled, because one takes 2 KB. No event refers to its record.
var wireRecords = sync.Pool{New: func() any { return new(wireRecord) }}

// normalize maps one record: a line of a rollout, a line of the exec stream, a line of plain
// text in between, or the end of input.
func normalize(s *core.Session, r core.Record) (core.Result, error) {
	rec := wireRecords.Get().(*wireRecord)
	defer func() {
		*rec = wireRecord{}
		wireRecords.Put(rec)
	}()
	m := &mapper{emitter: emitter{st: stateOf(s)}, record: record{payload: &rec.Payload.Value}}
	switch {
	case r.Origin.End:
		m.Builder = s.Begin(r, "")
		m.st.releaseSearch(&m.emitter)
		m.st.releaseTexts(&m.emitter)
		return m.Finish("")
	case m.isText(r.Data):
		m.Builder = s.Begin(r, "")
		plainText(m)
		return m.finish()
	}
	if err := r.Read(rec); err != nil {
		return core.Result{}, err
	}
	if rec.IsExport() {
		if is, ok := otlp.Read(r.Data); ok {
			m.Builder = s.Begin(r, is.EventTime())
			telemetry(m, &is)
			return m.finish()
		}
	}
	ts, _ := core.ParseTime(string(rec.Timestamp))
	m.Builder = s.Begin(r, ts)
	m.ordinal, m.stamp, m.delivered = rec.Ordinal, ts, rec.Metadata.Value.Delivered
	switch {
	case rec.RecordType != "" && rec.Type == "":
		m.skip = core.SkipHeartbeat // {"record_type":"state"} between the items of a bare rollout
	case rec.Payload.OK:
		m.kind = rec.Type
		m.rollout()
	case isExecType(string(rec.Type)):
		exec(m, rec)
	default:
		lenient.ReadObject(r.Data, m.payload)
		m.rollout()
	}
	return m.finish()
}

// isText reports whether a record is a line of text in an exec stream, or in a session without records, which may
// still become one.
func (m *mapper) isText(line []byte) bool {
	if m.st.Exec {
		return core.IsPlainText(line)
	}
	isFront := m.st.MetaID == "" && m.st.TurnID == "" && len(m.st.Canonical)+len(m.st.Pending) == 0
	return isFront && core.IsFrontText(line)
}
