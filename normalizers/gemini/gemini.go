// Package gemini normalizes what Gemini CLI writes: the files of its sessions, its list of
// typed prompts (logs.json), saved conversations (/chat save), and the output of a run that
// a program started (--output-format stream-json and json).
//
// Start with [Vendor]. A record is dispatched to one function per kind by dispatch
// (gemini.go), a message by emitMessage (message.go), a line of the stream by emitStream
// (stream.go). README.md has the rules.
//
// The invariant: Gemini CLI writes a message again whenever it grows, and repeats the whole history when that
// changes. Events have the ids of the vendor, and only what is new is emitted.
package gemini

import (
	"cmp"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
	"tributary/normalizers/otlp"
)

// mapper is the work on one record.
type mapper struct {
	emitter
	wireRecord
}

// mappers are pooled, because one takes more than most records. No event refers to its mapper.
var mappers = sync.Pool{New: func() any { return new(mapper) }}

// normalize maps one record. The end of input emits the pending deltas of the stream.
func normalize(s *core.Session, r core.Record) (core.Result, error) {
	m := mappers.Get().(*mapper)
	defer func() {
		*m = mapper{}
		mappers.Put(m)
	}()
	m.st, m.known = stateOf(s), known{&s.IDs}
	if r.Origin.End {
		m.Builder = s.Begin(r, "")
		m.st.Deltas.flush(&m.emitter)
		return m.Finish("")
	}
	if err := r.Read(&m.wireRecord); err != nil {
		return core.Result{}, err
	}
	if m.IsExport() {
		if is, ok := otlp.Read(r.Data); ok {
			m.Builder = s.Begin(r, is.EventTime())
			telemetry(m, &is)
			return m.Finish(m.skipReason())
		}
	}
	lenient.ReadObject(m.Set, &m.set)
	m.Builder = s.Begin(r, m.time())
	noteSession(m)
	m.dispatch()
	skip := m.skipReason()
	if m.elementEmitted {
		m.First = -1 // each element has put its own raw on its first event
	}
	return m.Finish(skip)
}

// dispatch emits the events of the record by kind.
func (m *mapper) dispatch() {
	switch {
	case jsontext.Value(m.Record.Data).Kind() == '[':
		emitList(m, lenient.Elements(m.Record.Data))
	case m.Messages.Kind() == '[':
		emitDocument(m, lenient.Elements(m.Messages))
	case m.History.Kind() == '[':
		emitList(m, lenient.Elements(m.History))
	case m.Set.Kind() == '{':
		emitPatch(m)
	case m.RewindTo != "", m.isHeader():
		m.st.Rewriting = false
		m.putSystem("", envelopes.Meta, "")
		m.emitSummary(m.Summary)
	case m.isStream():
		emitStream(m)
	case m.isMessage():
		m.history = m.isRewritten(&m.wireMessage)
		emitMessage(m, &m.wireMessage)
	default:
		m.Unknown(core.UnknownRecord, m.Type)
		d := core.UnknownDraft()
		d.Identity = string(m.Record.Data) // an element of a history may have the id of this record
		m.put(m.ID, d)
	}
}

// noteSession notes what the record states about its session for later records: the header of a file or a patch.
func noteSession(m *mapper) {
	is := sessionValues{SessionID: m.SessionID, ProjectHash: m.ProjectHash, Kind: m.Kind, Directories: m.Directories}
	if m.Set != nil {
		is = m.set
	}
	m.Session.SetResumeID(string(cmp.Or(is.SessionID, m.SessionIDSnake)))
	if is.ProjectHash != "" && len(is.ProjectHash) <= core.MaxPath {
		m.Session.ProjectHash = string(is.ProjectHash)
	}
	switch {
	case is.Kind == "subagent" && len(is.SessionID) <= core.MaxPath:
		m.st.Agent = string(cmp.Or(is.SessionID, lenient.Text(m.Session.ID())))
	case is.Kind != "":
		m.st.Agent = ""
	}
	for _, dir := range is.Directories {
		// The project is the directory with the stated hash.
		if core.HexHash(string(dir)) == m.Session.ProjectHash {
			m.Session.SetRoot(string(dir))
		}
	}
}
