package copilot

import (
	"cmp"
	"strings"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// logRecord maps a record of a log by type. A record of a known type ends the open message, unless it continues it. A
// record of an unknown type is one meta event, and ends nothing.
func logRecord(m *mapper) {
	m.agent = m.agentOf()
	handle := m.handler()
	if handle == nil {
		m.Unknown(core.UnknownRecord, m.Type)
		d := core.UnknownDraft()
		d.Identity = string(m.Data)
		m.put(m.ID, d)
		return
	}
	if m.st.Open.isMessage() && !m.st.Open.continuedBy(&m.record, m.agent) {
		m.st.Open.flush(&m.emitter)
	}
	handle(m)
}

func meta(m *mapper)     { m.putSystem(envelopes.Meta, "") }
func notice(m *mapper)   { m.putSystem(envelopes.Meta, m.data.Message) }
func progress(m *mapper) { m.skip = core.SkipProgress }

// failure emits an error of the session or of a model call.
func failure(m *mapper, message lenient.Text) {
	m.putError(cmp.Or(m.data.ErrorType, m.data.ErrorCode), message)
}

// subagentFailed emits the error that a subagent ended with.
func subagentFailed(m *mapper) {
	_, message := m.data.problem()
	m.putError("", lenient.Text(message))
}

// runEnd emits the last line of --output-format json.
func runEnd(m *mapper) {
	m.Session.SetResumeID(string(m.SessionID))
	m.putSystem(envelopes.SessionSummary, "")
}

// messageUsage bills an API call whose token counts are the data itself.
func messageUsage(m *mapper) {
	var f figures
	lenient.ReadObject(m.Data, &f)
	usageRecord(m, &f)
}

// agentOf returns the id of the record's subagent, which is the id of the call that started it; empty for the main
// conversation.
func (r *record) agentOf() string {
	agent := cmp.Or(r.AgentID, r.data.ParentToolCallID)
	if agent == "" && strings.HasPrefix(string(r.Type), "subagent.") {
		agent = r.data.ToolCallID
	}
	return string(agent)
}

// sessionStart notes the initial state of the session, and emits the start.
func sessionStart(m *mapper) {
	noteVersion(m)
	m.Session.SetResumeID(string(m.data.SessionID))
	m.Session.SetRoot(string(m.data.Context.Value.CWD))
	noteCheckout(m)
	m.setModel(m.data.SelectedModel)
	if m.putSystem(envelopes.SystemMessage, "") {
		m.st.Run = account{}
	}
}

// noteCheckout sets the working tree stated at the start, a resumption or a change of the session.
func noteCheckout(m *mapper) {
	switch d := &m.data; {
	case m.Type == "session.context_changed":
		m.Session.SetCheckout(d.checkout())
	case d.Context.OK:
		m.Session.SetCheckout(d.Context.Value.checkout())
	}
}

// sessionChange emits a change of the session, and then applies it, because it affects later records. The working
// tree already applies to the event.
func sessionChange(m *mapper) {
	noteCheckout(m)
	first := m.putSystem(envelopes.Meta, "")
	d := &m.data
	switch m.Type {
	case "session.resume":
		if first {
			m.st.Run = account{}
		}
		m.Session.SetRoot(string(d.Context.Value.CWD))
		m.setModel(d.SelectedModel)
	case "session.context_changed":
		m.Session.SetRoot(string(d.CWD))
	case "session.model_change":
		m.setModel(d.NewModel)
	case "session.tools_updated": // the output of `copilot -p` has no session.start
		m.setModel(d.Model)
	case "session.auto_mode_resolved":
		m.setModel(d.ChosenModel)
	}
}

// isModel reports whether a name is a model; "auto" means that one will be chosen.
func isModel(name lenient.Text) bool {
	return name != "" && !strings.EqualFold(string(name), "auto")
}

// compacted emits the summary with which a compacted conversation continues, or the error because of which there is
// none.
func compacted(m *mapper) {
	code, message := m.data.problem()
	if message != "" && isBlank(m.data.Compacted) {
		m.putError(lenient.Text(code), lenient.Text(message))
	} else {
		m.summary(m.data.Compacted)
	}
	billCompaction(m, &m.data.Spent.Value)
}

func isBlank(text lenient.Text) bool { return strings.TrimSpace(string(text)) == "" }
