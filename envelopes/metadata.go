package envelopes

import "github.com/go-json-experiment/json/jsontext"

// Metadata is the standardized metadata of a session, as known at the time of the event. JSON
// always holds both ids, null when unknown. An event has no Metadata while both are unknown.
type Metadata struct {
	// SessionID resumes the session. It is not the key of the session, which is
	// AgentEventV1.SessionID.
	SessionID *string `json:"sessionId"`
	Model     *string `json:"model"`
	// Extensions are further keys in camelCase, such as permissionMode, mcpServers and error.
	// JSON holds them in the order of their names.
	Extensions map[string]jsontext.Value `json:",embed"`
}

// ResumeID returns the id that resumes the session of e; any event of a session has it. It
// reports false for a session that no id resumes: a session of an agent without such ids, and one whose vendor
// has not stated the id yet.
func (e *AgentEventV1) ResumeID() (id string, resumable bool) {
	if e.Metadata == nil || e.Metadata.SessionID == nil {
		return "", false
	}
	return *e.Metadata.SessionID, true
}
