// Package gemini normalizes what Gemini CLI writes: the files of its sessions, its list of
// typed prompts (logs.json), saved conversations (/chat save), and the output of a run that
// a program started (--output-format stream-json and json).
//
// Start with [Vendor]. A record is dispatched to one function per kind by dispatch
// (gemini.go), a message by emitMessage (message.go), a line of the stream by emitStream
// (stream.go). README.md has the rules.
//
// The invariant: Gemini CLI writes a message again whenever it has grown, and repeats the whole
// history when it changes. Events have the ids of the vendor, and only what is new is emitted.
package gemini

import (
	"cmp"
	"slices"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// mapper is the work on one record.
type mapper struct {
	*core.Builder
	st *state
	wireRecord

	// The current element of a document.
	number  int  // from 1; 0 where the number of the record is that of its events
	unnamed int  // its events without an id so far
	history bool // it is of a history that the vendor has written again
	copied  bool // and the session has never seen it

	elementEmitted bool            // an element that is finished has an event
	repeated       bool            // another record has stated some of it before
	skip           core.SkipReason // where it is another one than [mapper.skipReason] finds
}

// mappers are pooled, because one takes more than most records. No event refers to its mapper.
var mappers = sync.Pool{New: func() any { return new(mapper) }}

// normalize maps one record. The end of input emits the deltas of the stream that are
// pending.
func normalize(s *core.Session, r core.Record) (core.Result, error) {
	m := mappers.Get().(*mapper)
	defer func() {
		*m = mapper{}
		mappers.Put(m)
	}()
	m.st = stateOf(s)
	if r.Origin.End {
		m.Builder = s.Begin(r, "")
		m.flush()
		return m.Finish("")
	}
	if err := r.Read(&m.wireRecord); err != nil {
		return core.Result{}, err
	}
	lenient.ReadObject(m.Set, &m.set)
	m.Builder = s.Begin(r, m.time())
	m.noteSession()
	m.dispatch()
	skip := m.skipReason()
	if m.elementEmitted {
		m.First = -1 // each element has put its own raw record on its first event
	}
	return m.Finish(skip)
}

// dispatch emits the events of the record by its kind.
func (m *mapper) dispatch() {
	switch {
	case jsontext.Value(m.Record.Data).Kind() == '[':
		m.emitList(lenient.Elements(m.Record.Data))
	case m.Messages.Kind() == '[':
		m.emitDocument(lenient.Elements(m.Messages))
	case m.History.Kind() == '[':
		m.emitList(lenient.Elements(m.History))
	case m.Set.Kind() == '{':
		m.emitPatch()
	case m.RewindTo != "":
		m.emitSystem("", envelopes.Meta, "")
	case m.isHeader():
		m.emitSystem("", envelopes.Meta, "")
		m.emitSummary(m.Summary)
	case m.isStream():
		m.emitStream()
	case m.isMessage():
		m.emitMessage(&m.wireMessage)
	default:
		m.Unknown(core.UnknownRecord, m.Type)
		d := core.UnknownDraft()
		d.Identity = string(m.Record.Data) // an element of a history may have the id of this record
		m.emit(m.ID, d)
	}
}

// skipReason returns why the record has no event of its own, for the case that it has none;
// empty where an element of it has one.
func (m *mapper) skipReason() core.SkipReason {
	switch {
	case m.elementEmitted:
		return ""
	case m.skip != "":
		return m.skip
	case m.repeated:
		return core.SkipMirror
	case m.Duplicate:
		return core.SkipDuplicate
	default:
		return core.SkipEmpty
	}
}

// emit emits an event of the record, or of the current element; id is empty where the
// vendor states none.
func (m *mapper) emit(id lenient.Text, d core.Draft) bool {
	if id == "" && m.number > 0 {
		id = lenient.Text("@" + strconv.Itoa(m.number))
		if m.unnamed > 0 {
			id += lenient.Text("." + strconv.Itoa(m.unnamed))
		}
		m.unnamed++
	}
	d.EventID = string(id)
	if agent := m.st.Agent; agent != "" {
		d.Thread = core.FingerprintOf("agent", agent)
		d.AgentID, d.IsInternal = &agent, true
	}
	if m.copied && d.Origin == "" && d.EventType != envelopes.SessionSummary {
		d.Origin = envelopes.OriginCopied
	}
	return m.Emit(d)
}

// emitSystem emits an event in which the program speaks, not the conversation.
func (m *mapper) emitSystem(id lenient.Text, t envelopes.EventType, text lenient.Text) {
	m.emit(id, core.SystemDraft(t, text))
}

// emitSummary emits the summary of the session, unless it is the last one stated.
func (m *mapper) emitSummary(text lenient.Text) {
	if text == "" || !m.isNewValue("summary", text) {
		return
	}
	d := core.Draft{OnChannel: envelopes.ChannelChat}
	d.EventType, d.Text = envelopes.SessionSummary, text.Ptr()
	m.emit("", d)
}

// isNewValue reports whether a value differs from the last one of its name in the session,
// and remembers it.
func (m *mapper) isNewValue(name string, value lenient.Text) bool {
	is := core.StatedValue{Type: core.Cut(name, core.MaxName), Value: core.FingerprintOf(string(value))}
	last := &m.st.Stated
	if slices.Contains(*last, is) {
		m.Duplicate = true
		return false
	}
	others := last.Without(func(v core.StatedValue) bool { return v.Type == is.Type })
	*last = others.Push(is, core.MaxStated, &m.Session.Lost)
	return true
}

// noteSession notes what the record states of its session, from now on: the header of a
// file or a patch.
func (m *mapper) noteSession() {
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
		// The project is the directory that its hash is of.
		if core.HexHash(string(dir)) == m.Session.ProjectHash {
			m.Session.SetRoot(string(dir))
		}
	}
}
