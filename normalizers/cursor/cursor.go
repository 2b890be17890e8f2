// Package cursor normalizes what Cursor's agent writes: the stream of `cursor-agent -p
// --output-format stream-json`, also with --stream-partial-output, the transcripts
// below ~/.cursor/projects, and the rows of the editor's database.
//
// Start with [Vendor]. A record is dispatched to one function per type by dispatch
// (cursor.go), a row by readRow (rows.go). README.md has the rules.
//
// The invariant: answers and thoughts come in deltas, and all deltas of one answer or thought are one event. The
// stream also has lines of plain text from the program, so a line that is not JSON is a record.
package cursor

import (
	"cmp"
	"strings"
	"sync"
	"time"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// mapper is the work on one record.
type mapper struct {
	*core.Builder
	st *state
	wireRecord

	skip core.SkipReason // overrides [mapper.skipReason]
}

// mappers are pooled, because one takes more than most records. No event refers to its mapper.
var mappers = sync.Pool{New: func() any { return new(mapper) }}

// normalize maps one record. The end of input emits the deltas that are pending.
func normalize(s *core.Session, r core.Record) (core.Result, error) {
	m := mappers.Get().(*mapper)
	defer func() {
		*m = mapper{}
		mappers.Put(m)
	}()
	m.st = stateOf(s)
	m.st.startedBy(s, lenient.Text(r.Origin.Parent))
	if r.Origin.End {
		m.Builder = s.Begin(r, "")
		m.st.flush(m)
		return m.Finish("")
	}
	switch err := r.Read(&m.wireRecord); {
	case err != nil:
		m.wireRecord = wireRecord{}
		m.Builder = s.Begin(r, "")
		emitPlainLine(m)
	case m.Table != "" && m.Row.Kind() == '{':
		return normalizeRow(s, r)
	default:
		m.Builder = s.Begin(r, m.time())
		m.dispatch()
	}
	return m.Finish(m.skipReason())
}

// form is where the records of a session come from. A session may have several, with the same messages: the form of
// its first record counts, and rows or lines beside it are a mirror, but for what rows add to a transcript.
type form string

const (
	formLog        form = "log" // the stream, which states all that rows do
	formTranscript form = "transcript"
	formRows       form = "rows"
)

// reads reports whether a record of this form is read. The first known record decides, and the stream is more than a
// transcript.
func (s *state) reads(f form) bool {
	if s.Form == "" || s.Form == formTranscript && f == formLog {
		s.Form = f
	}
	switch f {
	case formRows:
		return s.Form == formRows || s.hasTranscript()
	default:
		return s.Form != formRows
	}
}

// form returns the form of a known line.
func (r *wireRecord) form() form {
	if r.Type == "" || r.Type == "turn_ended" || r.Type == "error" {
		return formTranscript
	}
	return formLog
}

// startedBy notes that another session started this one as a subagent; an empty one did not.
func (s *state) startedBy(session *core.Session, parent lenient.Text) {
	if parent != "" {
		s.IsChild = true
		session.SetResumeID(session.ID()) // which the file is named after, and its parent resumes
		session.SetTextExtension("parentSessionId", parent)
	}
}

// Emit emits an event of the session, or of the subagent that it is.
func (m *mapper) Emit(d core.Draft) bool {
	if m.st.IsChild {
		agent := m.Session.ID()
		d.Thread = core.FingerprintOf("agent", agent)
		d.AgentID, d.IsInternal = &agent, true
	}
	return m.Builder.Emit(d)
}

// dispatch emits the events of the record by type. Every record of a known type except thoughts and answers ends the
// deltas before it.
func (m *mapper) dispatch() {
	if m.isKnown() && !m.st.reads(m.form()) {
		m.skip = core.SkipMirror
		return
	}
	m.st.noteDate(&m.wireRecord)
	m.Session.SetRoot(string(m.Cwd))
	switch {
	case m.Type == "thinking" && m.Subtype != "completed":
		emitThoughtDelta(m)
		return
	case m.Type == "thinking":
		emitThoughtEnd(m)
		return
	case m.Type == "assistant" && m.isTextOnly():
		emitAnswer(m)
		return
	case !m.isKnown():
		m.Unknown(core.UnknownRecord, cmp.Or(m.Type, m.Role))
		m.Emit(core.UnknownDraft())
		return
	}
	m.st.flush(m)
	switch {
	case m.isMessage():
		emitMessage(m)
	case m.beginsRun():
		emitInit(m)
	case m.Type == "system":
		m.Unknown(core.UnknownRecord, m.Type, m.Subtype)
		noteSession(m)
		m.putSystem(envelopes.Meta, "")
	case m.Type == "tool_call":
		emitToolCall(m)
	case m.Type == "result":
		emitRunEnd(m)
	case m.Type == "turn_ended" || m.Type == "error":
		emitTurnEnd(m)
	case m.Type == "interaction_query":
		m.putSystem(envelopes.Meta, m.plan())
	default: // a connection that is lost or restored
		m.putSystem(envelopes.Meta, "")
	}
}

// noteDate notes whether the run is of before April 2026, by its last record with a date. A run begins without one.
func (s *state) noteDate(r *wireRecord) {
	t, isDated := core.MomentOfMillis(r.TimestampMS)
	switch {
	case !r.isKnown():
	case isDated:
		s.IsOld = t.Before(time.Date(2026, time.April, 1, 0, 0, 0, 0, time.UTC))
	case r.beginsRun():
		s.IsOld = false
	}
}

// beginsRun reports whether the record is the first one of a run.
func (r *wireRecord) beginsRun() bool {
	return r.Type == "system" && (r.Subtype == "init" || r.Subtype == "")
}

// isKnown reports whether the type of the record has been seen before. No other type ends the deltas before it,
// because its meaning for them is unknown.
func (r *wireRecord) isKnown() bool {
	switch r.Type {
	case "thinking", "system", "tool_call", "result", "turn_ended", "error", "interaction_query", "connection", "retry":
		return true
	default:
		return r.isMessage()
	}
}

// skipReason returns why a record without an event of its own has none.
func (m *mapper) skipReason() core.SkipReason {
	switch {
	case m.skip != "":
		return m.skip
	case m.Duplicate:
		return core.SkipDuplicate
	default:
		return core.SkipEmpty
	}
}

// putSystem emits an event by the program, not by the conversation.
func (m *mapper) putSystem(t envelopes.EventType, text lenient.Text) {
	m.Emit(core.SystemDraft(t, text))
}

// emitPlainLine emits a line that is not JSON, from the program. In raw it is a JSON string.
func emitPlainLine(m *mapper) {
	line := strings.ToValidUTF8(strings.Trim(string(m.Record.Data), " \t\r\n"), "\ufffd")
	if line == "" {
		return
	}
	if m.st.Form = cmp.Or(m.st.Form, formLog); m.st.Form == formRows {
		m.skip = core.SkipMirror
		return
	}
	m.Raw = lenient.AppendQuote(nil, line)
	if !m.st.IsThought { // a thought continues after the line
		m.st.flush(m)
	}
	if needsSetup(line) {
		m.Emit(m.Session.ErrorDraft("SETUP_REQUIRED", line))
	} else {
		m.putSystem(envelopes.SystemMessage, lenient.Text(line))
	}
}

// needsSetup reports whether the program says that nobody is logged in. Truncated JSON does not say that.
func needsSetup(line string) bool {
	if strings.HasPrefix(line, "{") {
		return false
	}
	for _, sign := range []string{"authentication", "Authentication", "login", "CURSOR_API_KEY", "not authenticated"} {
		if strings.Contains(line, sign) {
			return true
		}
	}
	return false
}

// noteSession notes what a system record states about the session, and begins a new answer.
func noteSession(m *mapper) {
	m.st.Answer = answer{}
	m.Session.SetResumeID(string(cmp.Or(m.SessionID, m.SessionIDCamel)))
	m.Session.SetModel(string(m.Model))
	m.Session.SetTextExtension("permissionMode", m.mode())
	m.Session.SetTextExtension("apiKeySource", cmp.Or(m.KeySource, m.KeySourceSnake))
}

// emitInit emits what the beginning of a run states about the session for the first time.
func emitInit(m *mapper) {
	s := m.Session
	session, model, mode := s.ResumeID, s.Model, s.Extensions["permissionMode"]
	noteSession(m)
	var parts []string
	if s.ResumeID != session {
		parts = append(parts, "Session: "+s.ResumeID)
	}
	if s.Model != model {
		parts = append(parts, "Model: "+s.Model)
	}
	if string(s.Extensions["permissionMode"]) != string(mode) {
		parts = append(parts, "Mode: "+string(m.mode()))
	}
	if len(parts) == 0 {
		m.skip = core.SkipDuplicate
		return
	}
	m.putSystem(envelopes.SystemMessage, lenient.Text(strings.Join(parts, ", ")))
}

// plan returns the plan that the program asks the human to accept; empty for any other question.
func (r *wireRecord) plan() lenient.Text {
	for _, question := range lenient.ObjectMembers(r.Query) {
		var in struct {
			Args lenient.Object[struct {
				Plan lenient.Text `json:"plan"`
			}] `json:"args"`
		}
		if lenient.ReadObject(question.Value, &in); in.Args.Value.Plan != "" {
			return in.Args.Value.Plan
		}
	}
	return ""
}

// emitRunEnd emits the end of a run with its tokens, and its failure. The text of the result repeats the answers.
func emitRunEnd(m *mapper) {
	m.st.Answer = answer{}
	m.putSystem(envelopes.SessionSummary, "")
	m.addUsage()
	if !m.IsError {
		return
	}
	code := string(m.Subtype)
	if code == "" || code == "success" {
		code = "TASK_ERROR"
	}
	m.Emit(m.Session.ErrorDraft(code, cmp.Or(errorText(m.Result), errorText(m.Error))))
}

// emitTurnEnd emits the end of a turn of a transcript, or an error line, which a transcript may have without an end.
func emitTurnEnd(m *mapper) {
	if !lenient.IsValue(m.Error) && m.Status != "error" && m.Type != "error" {
		m.putSystem(envelopes.Meta, m.Status)
		return
	}
	code := ""
	if m.Error.Kind() == '{' {
		code, _ = core.VendorError(m.Error)
	}
	m.Emit(m.Session.ErrorDraft(cmp.Or(code, string(m.Status), "error"), errorText(m.Error)))
}

// addUsage adds the tokens of a run to the first event of the record. The counts belong to the run, which its request
// id identifies, so a repeated result adds nothing.
func (m *mapper) addUsage() {
	if !m.Usage.OK {
		return
	}
	v := &m.Usage.Value
	m.UnknownMembers(core.UnknownUsage, v.Others)
	now := v.consumption(m.st.IsOld)
	var before core.Consumption
	if m.RequestID != "" {
		apiCall := core.FingerprintOf("request", string(m.RequestID))
		before, _ = m.Session.APICalls.Get(apiCall)
		now = before.Raise(now)
		m.Session.APICalls.Put(apiCall, now)
	}
	u := now.UsageSince(before, string(m.RequestID))
	if u == nil {
		return
	}
	m.AddUsage(u, func(e *envelopes.AgentEventV1) {
		e.TokensInput = new(u.Input)
		e.TokensOutput = new(u.Output)
		e.TokensCached = new(u.CacheRead)
	})
}
