package copilot

import (
	"cmp"
	"strings"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// record maps a record of a log by its type. A record of a known type ends the open message,
// unless it goes on with it. A record of an unknown type is one meta event, and ends nothing.
func (m *mapper) record() {
	m.agent = m.agentOf()
	handle := m.handler()
	if handle == nil {
		m.Unknown(core.UnknownRecord, m.Type)
		d := core.UnknownDraft()
		d.Identity = string(m.Data)
		m.put(m.ID, d)
		return
	}
	if m.st.Open.isMessage() && !m.continuesOpen() {
		m.flush()
	}
	handle(m)
}

func (m *mapper) meta()     { m.putSystem(envelopes.Meta, "") }
func (m *mapper) notice()   { m.putSystem(envelopes.Meta, m.data.Message) }
func (m *mapper) progress() { m.skip = core.SkipProgress }

// failure emits an error of the session or of a call of the model.
func (m *mapper) failure(message lenient.Text) {
	m.putError(cmp.Or(m.data.ErrorType, m.data.ErrorCode), message)
}

// subagentFailed emits the error that a subagent ended with.
func (m *mapper) subagentFailed() {
	_, message := m.data.problem()
	m.putError("", lenient.Text(message))
}

// runEnd emits the last line of --output-format json.
func (m *mapper) runEnd() {
	m.Session.SetResumeID(string(m.SessionID))
	m.putSystem(envelopes.SessionSummary, "")
}

// messageUsage bills a call of the API whose figures are the data itself.
func (m *mapper) messageUsage() {
	var f figures
	lenient.ReadObject(m.Data, &f)
	m.usage(&f)
}

// agentOf returns the id of the subagent that the record is of; empty for the main
// conversation. It is the id of the call that started the subagent.
func (m *mapper) agentOf() string {
	agent := cmp.Or(m.AgentID, m.data.ParentToolCallID)
	if agent == "" && strings.HasPrefix(string(m.Type), "subagent.") {
		agent = m.data.ToolCallID
	}
	return string(agent)
}

// sessionStart notes what the session starts with, and emits the start.
func (m *mapper) sessionStart() {
	m.noteVersion()
	m.Session.SetResumeID(string(m.data.SessionID))
	m.Session.SetRoot(string(m.data.Context.Value.CWD))
	m.noteCheckout()
	m.setModel(m.data.SelectedModel)
	if m.putSystem(envelopes.SystemMessage, "") {
		m.st.Run = account{}
	}
}

// noteCheckout notes the working tree that the start, a resumption or a change of the session states.
func (m *mapper) noteCheckout() {
	switch d := &m.data; {
	case m.Type == "session.context_changed":
		m.Session.SetCheckout(d.checkout())
	case d.Context.OK:
		m.Session.SetCheckout(d.Context.Value.checkout())
	}
}

// sessionChange emits a change of the session, and then notes it: it holds for what follows. The working
// tree is that of the event, too.
func (m *mapper) sessionChange() {
	m.noteCheckout()
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

// setModel notes the model of the main conversation.
func (m *mapper) setModel(model lenient.Text) {
	if m.agent == "" && !m.sidechain && isModel(model) {
		m.Session.SetModel(string(model))
	}
}

// isModel reports whether a name is that of a model; "auto" states that one will be chosen.
func isModel(name lenient.Text) bool {
	return name != "" && !strings.EqualFold(string(name), "auto")
}

// model returns the model of an event: the one that the record names, else in the main
// conversation that of the session.
func (m *mapper) model() *string {
	switch {
	case isModel(m.data.Model):
		return m.data.Model.Ptr()
	case m.agent == "" && !m.sidechain:
		return lenient.Text(m.Session.Model).Ptr()
	default:
		return nil
	}
}

// compacted emits the summary that a compacted conversation goes on with, or the error for
// which there is none.
func (m *mapper) compacted() {
	code, message := m.data.problem()
	if message != "" && isBlank(m.data.Compacted) {
		m.putError(lenient.Text(code), lenient.Text(message))
		return
	}
	m.summary(m.data.Compacted)
}

// summary emits a summary of the session; without a text the event is meta.
func (m *mapper) summary(text lenient.Text) {
	if isBlank(text) {
		m.putSystem(envelopes.Meta, "")
		return
	}
	d := chatDraft(envelopes.SessionSummary, text, nil)
	d.Identity = string(m.Data)
	m.put(m.ID, d)
}

func isBlank(text lenient.Text) bool { return strings.TrimSpace(string(text)) == "" }
