package envelopes

import "github.com/go-json-experiment/json/jsontext"

// Metadata is the standardized metadata of a session, as known at the event. JSON always has both ids, null if
// unknown. An event has no Metadata while both are unknown.
type Metadata struct {
	// SessionID resumes the session. It is not the key of the session, which is
	// AgentEventV1.SessionID.
	SessionID *string `json:"sessionId"`
	Model     *string `json:"model"`
	// Extensions are further keys in camelCase, such as permissionMode, mcpServers and error. JSON orders them by
	// name.
	Extensions map[string]jsontext.Value `json:",embed"`
}

// ResumeID returns the id to resume the session of e with; every event of a session has it. resumable is false if
// there is none: the agent has no such ids, or its vendor has not stated the id yet.
func (e *AgentEventV1) ResumeID() (id string, resumable bool) {
	if e.Metadata == nil || e.Metadata.SessionID == nil {
		return "", false
	}
	return *e.Metadata.SessionID, true
}
