// Package copilot normalizes what Copilot CLI writes: the log of a session (events.jsonl), the
// one document of a session that older versions kept, and the plain text of `copilot -p`.
// README.md of this folder describes the formats and the rules.
//
// Start with [Vendor] and normalize. A record of a log goes through logRecord (session.go)
// to the function of its type (handlers.go); the document goes through document (document.go),
// a line of plain text through textLine (text.go), an exported span through exportedRecord (telemetry.go).
//
// The invariant: the log states many things more than once, and each yields one event. A call is in the message that
// requests it and in its start, a reasoning in its message and in a record of its own, tokens in a message, in a
// record of their own and in the total of session.shutdown.
package copilot

import (
	"bytes"
	"cmp"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// mapper maps one record to its events.
type mapper struct {
	emitter

	entries bool // entries of a document had events; the document itself has none
}

// normalize maps one record: a record of a log, a document, a line of plain text, or the end of
// input.
func normalize(s *core.Session, r core.Record) (core.Result, error) {
	m := &mapper{emitter: emitter{st: stateOf(s)}}
	if r.Origin.End {
		m.Builder = s.Begin(r, "")
		m.st.Open.flush(&m.emitter)
		m.st.Permissions.flush(&m.emitter)
		return m.Finish("")
	}
	if !m.isText(r) {
		err := r.Read(&m.wireRecord)
		if is, ok := m.export(r); ok && err == nil {
			m.Builder = s.Begin(r, "")
			exportedRecord(m, is)
			return m.finish()
		}
		if err == nil {
			lenient.ReadObject(m.Data, &m.data)
			m.Builder = s.Begin(r, m.time())
			logRecord(m)
			return m.finish()
		}
		if !bytes.HasSuffix(r.Data, []byte("\n")) { // only lines of plain text include their line end
			return core.Result{}, err
		}
	}
	m.Builder = s.Begin(r, "")
	textLine(m)
	return m.finish()
}

// finish returns the events of the record. A record without events is skipped for the reason in m.skip, or else as a
// duplicate, because the session has emitted all of its events before.
func (m *mapper) finish() (core.Result, error) {
	if m.entries {
		return m.Finish("")
	}
	return m.Finish(cmp.Or(m.skip, core.SkipDuplicate))
}
