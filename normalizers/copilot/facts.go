package copilot

import (
	"cmp"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// Facts that records state go into the metadata of their events. The types here follow the schema of the event.

// hookFact is a hook that ran. Its error is not metadata.error, because the turn has not failed.
type hookFact struct {
	Type    *string `json:"type,omitzero"`
	Success bool    `json:"success"`
	Error   *string `json:"error,omitzero"`
}

// hookEnd emits the end of a hook, with its error if it failed.
func hookEnd(m *mapper) {
	if string(m.data.Success) != "false" {
		meta(m)
		return
	}
	_, message := m.data.problem()
	failure := lenient.Text(core.Cut(message, core.MaxFieldText)).Ptr()
	m.putFacts(envelopes.Meta, map[string]any{"hook": hookFact{core.NameOf(m.data.HookType), false, failure}})
}

// permissionFact is a requested permission, or the decision about it.
type permissionFact struct {
	RequestID  *string `json:"requestId,omitzero"`
	ToolCallID *string `json:"toolCallId,omitzero"`
	Kind       *string `json:"kind,omitzero"`
	Decision   *string `json:"decision,omitzero"`
}

// maxAsked is how many requested but undecided permissions are remembered.
const maxAsked = 16

// asked is a requested permission; only the request names the call.
type asked struct {
	Request core.Fingerprint `json:"r"`
	Call    string           `json:"c"`
}

// permissionRequest is what a permission is requested for.
type permissionRequest struct {
	Kind       lenient.Text `json:"kind"`
	ToolCallID lenient.Text `json:"toolCallId"`
}

// permissionRequested emits the request for a permission.
func permissionRequested(m *mapper) {
	asks := &m.data.Permission.Value
	call := cmp.Or(asks.ToolCallID, m.data.Prompt.Value.ToolCallID, m.data.ToolCallID)
	if id := core.BoundID(string(call)); id != "" && m.data.RequestID != "" {
		m.st.Asked = m.st.Asked.Push(asked{core.FingerprintOf(string(m.data.RequestID)), id}, maxAsked, nil)
	}
	m.putFacts(envelopes.Meta, map[string]any{
		"permission": permissionFact{RequestID: core.NameOf(m.data.RequestID), ToolCallID: core.NameOf(call), Kind: core.NameOf(asks.Kind)},
	})
}

// permissionCompleted emits the decision about a permission.
func permissionCompleted(m *mapper) {
	call := m.data.ToolCallID
	request := core.FingerprintOf(string(m.data.RequestID))
	m.st.Asked = m.st.Asked.Without(func(a asked) bool {
		if a.Request != request {
			return false
		}
		call = cmp.Or(call, lenient.Text(a.Call))
		return true
	})
	stated := permissionsOf(m.Session, call)
	d := core.SystemDraft(envelopes.Meta, "")
	d.Identity, d.Supersedes = string(m.Data), stated.Replaced()
	d.Metadata = m.Session.MetadataWithFacts(map[string]any{
		"permission": permissionFact{RequestID: core.NameOf(m.data.RequestID), ToolCallID: core.NameOf(call), Decision: core.NameOf(decisionOf(m.data.Result))},
	})
	if m.put(m.ID, d) && call != "" {
		stated.InLog()
	}
}

// permissionsOf counts the decisions about a call, which the telemetry states, too.
func permissionsOf(s *core.Session, call lenient.Text) core.Statements {
	return core.StatementsNamed(s, envelopes.Meta, string(call))
}

// decisionOf returns the decision in a result: a word, or an object with a word.
func decisionOf(v jsontext.Value) lenient.Text {
	if v.Kind() == '"' {
		return lenient.Text(lenient.Unquote(v))
	}
	var r struct {
		Kind lenient.Text `json:"kind"`
		Type lenient.Text `json:"type"`
	}
	lenient.ReadObject(v, &r)
	return cmp.Or(r.Kind, r.Type)
}

// maxFilesModified is the maximum number of changed files named in an event.
const maxFilesModified = 64

// codeChangesFact is what the session changed.
type codeChangesFact struct {
	LinesAdded    int64    `json:"linesAdded"`
	LinesRemoved  int64    `json:"linesRemoved"`
	FilesModified []string `json:"filesModified"`
}

// codeChanges is what the session changed in Copilot's form.
type codeChanges struct {
	LinesAdded    lenient.Number             `json:"linesAdded"`
	LinesRemoved  lenient.Number             `json:"linesRemoved"`
	FilesModified lenient.List[lenient.Text] `json:"filesModified"`
}

// accounts returns what a record states about premium requests and changed code.
func (d *data) accounts() map[string]any {
	facts := make(map[string]any)
	if n := d.PremiumRequests; n.OK {
		facts["premiumRequests"] = n.Value
	}
	if c := d.CodeChanges; c.OK {
		files := make([]string, 0, min(len(c.Value.FilesModified), maxFilesModified))
		for _, f := range c.Value.FilesModified[:cap(files)] {
			files = append(files, core.Cut(string(f), core.MaxPath))
		}
		facts["codeChanges"] = codeChangesFact{c.Value.LinesAdded.Count(), c.Value.LinesRemoved.Count(), files}
	}
	return facts
}
