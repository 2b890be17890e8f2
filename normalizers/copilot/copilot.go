// Package copilot normalizes what Copilot CLI writes: the log of a session (events.jsonl), the
// one document of a session that older versions kept, and the plain text of `copilot -p`.
// README.md of this folder describes the formats and the rules.
//
// Start with [Vendor] and normalize. A record of a log goes through record (record.go), which
// has one function per type of record; the document goes through document (document.go), a
// line of plain text through line (text.go).
//
// The invariant: the log states many things more than once, and each yields one event. A call
// stands in the message that requests it and in its start, a reasoning in its message and in a
// record of its own, tokens in a message, in a record of their own and in the total of
// session.shutdown.
package copilot

import (
	"bytes"
	"cmp"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// mapper maps one record to its events.
type mapper struct {
	*core.Builder
	st *state
	wireRecord

	data      data
	agent     string          // id of the subagent that the record is of
	sidechain bool            // the record is of a subagent that it does not name
	entries   bool            // the entries of a document had events: the document itself has none
	skip      core.SkipReason // why the record has no event; empty where its events are duplicates
}

// normalize maps one record: a record of a log, a document, a line of plain text, or the end of
// input.
func normalize(s *core.Session, r core.Record) (core.Result, error) {
	m := &mapper{st: stateOf(s)}
	if r.Origin.End {
		m.Builder = s.Begin(r, "")
		m.flush()
		return m.Finish("")
	}
	if !m.isText(r) {
		err := r.Read(&m.wireRecord)
		if err == nil {
			lenient.ReadObject(m.Data, &m.data)
			m.Builder = s.Begin(r, m.time())
			m.record()
			return m.finish()
		}
		if !bytes.HasSuffix(r.Data, []byte("\n")) { // only lines of plain text have their line end
			return core.Result{}, err
		}
	}
	m.Builder = s.Begin(r, "")
	m.line()
	return m.finish()
}

// finish returns the events of the record. A record without any is skipped for the reason in
// m.skip, else as a duplicate: then the session has emitted all of its events before.
func (m *mapper) finish() (core.Result, error) {
	if m.entries {
		return m.Finish("")
	}
	return m.Finish(cmp.Or(m.skip, core.SkipDuplicate))
}

// put emits an event under the vendor's id, empty where there is none. It reports false when
// the session has emitted the event before.
func (m *mapper) put(id lenient.Text, d core.Draft) bool {
	d.EventID = string(id)
	switch {
	case m.agent != "":
		d.Thread = core.FingerprintOf("agent", m.agent)
		d.AgentID, d.IsInternal = new(m.agent), true
	case m.sidechain:
		d.Thread = core.FingerprintOf("sidechain")
		d.IsInternal = true
	}
	return m.Emit(d)
}

// putSystem emits an event in which the runtime speaks. It reports false when the session has
// emitted the event before.
func (m *mapper) putSystem(t envelopes.EventType, text lenient.Text) bool {
	d := core.SystemDraft(t, text)
	d.Identity = string(m.Data)
	return m.put(m.ID, d)
}

// putError emits an error that the vendor reports.
func (m *mapper) putError(code, message lenient.Text) {
	m.put(m.ID, m.Session.ErrorDraft(string(code), string(message)))
}

// chatDraft returns an event of the conversation.
func chatDraft(t envelopes.EventType, text lenient.Text, model *string) core.Draft {
	d := core.Draft{OnChannel: envelopes.ChannelChat}
	d.EventType, d.Text, d.Model = t, text.Ptr(), model
	return d
}

// partID returns the id of a further event of a record; empty where the record has none.
func partID(id lenient.Text, part string) lenient.Text {
	if id == "" {
		return ""
	}
	return id + "#" + lenient.Text(part)
}
