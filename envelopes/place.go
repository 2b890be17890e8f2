package envelopes

// Edge is the sender of an event's record, as far as the record states it. An empty member is unknown; JSON omits an
// Edge without members.
type Edge struct {
	Host   string            `json:"host,omitzero"` // name of the machine, or its pseudonym
	User   string            `json:"user,omitzero"` // sending account, or its pseudonym
	Labels map[string]string `json:"labels,omitempty"`

	// Verified states that the receiver of the record has verified the user. Without a user it means nothing, and is
	// false.
	Verified bool `json:"verified,omitzero"`
}

// IsZero reports whether nothing is known.
func (e *Edge) IsZero() bool { return e == nil || e.Host == "" && e.User == "" && len(e.Labels) == 0 }

// VCS is the last state of version control that a session stated up to the event. An empty member is unknown; JSON
// omits a VCS without members. Events of a session may share one VCS.
type VCS struct {
	Repository  string `json:"repository,omitzero"`   // host and path, such as github.com/acme/shop, without credentials
	Branch      string `json:"branch,omitzero"`       // empty for a detached head
	Commit      string `json:"commit,omitzero"`       // in hex, checked out when the vendor stated it
	PullRequest string `json:"pull_request,omitzero"` // URL
}

// IsZero reports whether nothing is known.
func (v *VCS) IsZero() bool { return v == nil || *v == VCS{} }
