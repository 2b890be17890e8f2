package codex

import (
	"cmp"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// learn notes what the record states about the session for later records: root, model, settings, turn, and where
// copied history begins and ends.
func (m *mapper) learn() {
	m.followCopy(m.st.fork.follow(&m.record, m.st.MetaID))
	if m.startsTurn() {
		m.st.TurnID = core.Cut(string(m.TurnID), core.MaxName)
		m.st.Ahead = tokens{}
	}
	m.st.InTurn = m.beginsTurn() || m.st.InTurn && !m.endsTurn()
	m.Session.SetRoot(string(cmp.Or(m.CWD, m.ThreadSettings.Value.CWD)))
	switch {
	case m.kind == "session_meta", m.isBareHeader():
		m.sessionMeta()
	case m.kind == "turn_context":
		m.Session.SetModel(string(m.Model))
		m.Session.SetTextExtension("approvalPolicy", m.ApprovalPolicy)
		m.Session.SetTextExtension("effort", m.Effort)
	case m.kind == "response_item":
		m.Session.SetModel(string(m.Model))
	case m.ThreadSettings.OK && len(m.ThreadSettings.Value.Model) <= core.MaxName:
		m.st.NextModel = cmp.Or(string(m.ThreadSettings.Value.Model), m.st.NextModel)
	}
	if m.beginsTurn() || m.ThreadSettings.OK && !m.st.InTurn {
		m.Session.SetModel(m.st.NextModel)
		m.st.NextModel = ""
	}
}

// startsTurn reports whether the record states the turn of the records after it. A long turn has several turn_context.
func (r *record) startsTurn() bool { return r.kind == "turn_context" || r.beginsTurn() }

func (r *record) beginsTurn() bool { return r.Type == "task_started" || r.Type == "turn_started" }

func (r *record) endsTurn() bool {
	return r.Type == "task_complete" || r.Type == "turn_complete" || r.Type == "turn_aborted"
}

// isBareHeader reports whether the record is the first line of a bare rollout.
func (r *record) isBareHeader() bool {
	return r.kind == "" && r.Type == "" && r.Role == "" && r.ID != ""
}

// sessionMeta notes the start of a session: of this one, of a resumption, or of the fork in this file (README.md,
// Forks and subagents).
func (m *mapper) sessionMeta() {
	st := m.st
	if m.copied {
		return // the parent's session_meta
	}
	m.Session.SetTextExtension("version", m.CLIVersion)
	m.Session.SetTextExtension("gitBranch", m.Git.Value.Branch)
	if git := m.Git; git.OK {
		m.Session.SetCheckout(core.Checkout{Repository: git.Value.Repository, Branch: git.Value.Branch, Commit: git.Value.Commit})
	}
	if m.Session.Extensions["threadId"] == nil {
		m.Session.SetTextExtension("threadId", m.ID)
	}
	subagent, spawned := m.subagentSource()
	if subagent && st.MetaID == "" {
		st.Agent = core.Cut(string(m.ID), core.MaxName)
	}
	id := core.Cut(string(m.ID), core.MaxName)
	if !st.fork.start(&m.record, spawned, st.MetaID) && id != st.MetaID {
		st.Total = tokens{} // another session: its total begins at zero
		st.Counted = id
	}
	st.MetaID = id
}

// subagentSource reports whether the session is a subagent's, and whether that was spawned from a thread, with whose
// history its rollout begins.
func (p *payload) subagentSource() (subagent, spawned bool) {
	var source struct {
		Subagent jsontext.Value `json:"subagent"`
	}
	lenient.ReadObject(p.Source, &source)
	var spawn struct {
		ThreadSpawn lenient.Present `json:"thread_spawn"`
	}
	lenient.ReadObject(source.Subagent, &spawn)
	return lenient.IsValue(source.Subagent), bool(spawn.ThreadSpawn)
}
