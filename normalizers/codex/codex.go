// Package codex normalizes what the Codex CLI writes: its rollouts, of all generations, and
// the stream of `codex exec --json`. README.md of this folder describes the formats and the
// rules.
//
// Start with [Vendor] and normalize. A record of a rollout goes through rollout
// (rollout.go), which has one function per type of record; a record of the exec stream goes
// through exec (exec.go).
//
// The invariant: Codex writes each message twice, as a response_item and as an event_msg,
// and exactly one event comes of the two. The response_item is canonical; an event_msg is
// pending until a response_item repeats it, or until none can any more (pending.go).
package codex

import (
	"cmp"
	"strings"
	"sync"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// mapper maps one record to its events.
type mapper struct {
	*core.Builder
	*payload
	st      *state
	kind    lenient.Text   // type of the envelope: response_item, event_msg, ...; empty for a bare item
	ordinal lenient.Number // position of the record in its rollout
	stamp   string         // time that the record states; empty where it states none
	copied  bool           // the record is a copy of the history of another session

	lastNotice core.Fingerprint // state.Notice in front of the record
	skip       core.SkipReason  // why the record has no event; empty where its events are duplicates
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
	m := &mapper{st: stateOf(s), payload: &rec.Payload.Value}
	switch {
	case r.Origin.End:
		m.Builder = s.Begin(r, "")
		m.releaseSearch()
		m.releasePending()
		return m.Finish("")
	case m.isText(r.Data):
		m.Builder = s.Begin(r, "")
		m.plainText()
		return m.finish()
	}
	if err := r.Read(rec); err != nil {
		return core.Result{}, err
	}
	ts, _ := core.ParseTime(string(rec.Timestamp))
	m.Builder = s.Begin(r, ts)
	m.ordinal, m.stamp = rec.Ordinal, ts
	switch {
	case rec.RecordType != "" && rec.Type == "":
		m.skip = core.SkipHeartbeat // {"record_type":"state"} between the items of a bare rollout
	case rec.Payload.OK:
		m.kind = rec.Type
		m.rollout()
	case isExecType(string(rec.Type)):
		m.exec(rec)
	default:
		lenient.ReadObject(r.Data, m.payload)
		m.rollout()
	}
	return m.finish()
}

// isText reports whether a record is a line of text in an exec stream, which one without a record may still be.
func (m *mapper) isText(line []byte) bool {
	if m.st.Exec {
		return core.IsPlainText(line)
	}
	isFront := m.st.MetaID == "" && m.st.TurnID == "" && len(m.st.Canonical)+len(m.st.Pending) == 0
	return isFront && core.IsFrontText(line)
}

// finish returns the events of the record. A record without any is skipped for the reason in
// m.skip, else as a duplicate: then the session has emitted all of its events before.
func (m *mapper) finish() (core.Result, error) {
	return m.Finish(cmp.Or(m.skip, core.SkipDuplicate))
}

// put emits an event of the current record, or of the pending record d.From. It reports
// false when the session has emitted the event before.
func (m *mapper) put(id lenient.Text, d core.Draft) bool {
	if strings.HasPrefix(string(id), "review_rollout_") {
		id = "" // every review has the same ids
	}
	d.EventID = string(id)
	if m.st.Agent != "" {
		d.Thread = core.FingerprintOf(m.st.Agent)
		d.AgentID, d.IsInternal = &m.st.Agent, true
		if d.EventType == envelopes.UserMessage && d.Origin == "" {
			d.Origin = envelopes.OriginAgent
		}
	}
	if m.copied && d.From == nil {
		d.Origin = envelopes.OriginCopied
	}
	return m.Emit(d)
}

// putSystem emits an event in which the runtime speaks.
func (m *mapper) putSystem(t envelopes.EventType, text lenient.Text) {
	m.put("", core.SystemDraft(t, text))
}

// model returns the model of the session for an event; nil while it is not known.
func (m *mapper) model() *string { return lenient.Text(m.Session.Model).Ptr() }
