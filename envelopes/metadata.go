package envelopes

import "github.com/go-json-experiment/json/jsontext"

// Metadata is the standardized metadata of a session as far as it is known when the
// event happens (seed standardized-metadata). Both ids are always written, null when
// unknown; an event has no Metadata at all while both are unknown.
type Metadata struct {
	// SessionID is the id that resumes the session: not the key of the stream, which
	// is AgentEventV1.SessionID.
	SessionID *string `json:"sessionId"`
	Model     *string `json:"model"`
	// Extensions are further keys in camelCase, such as permissionMode, mcpServers
	// and error. Written in the order of their names.
	Extensions map[string]jsontext.Value `json:",embed"`
}
