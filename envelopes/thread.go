package envelopes

// thread is a line of conversation in a session: the main thread, which is the zero value, or
// the thread of a subagent. All sidechain events without an agent are one thread. A run of ACP
// is one thread, whichever agent acts (README.md, Parents and threads).
type thread struct {
	agent    string
	internal bool
}

// threadOf returns the thread of an event.
func threadOf(e *AgentEventV1) thread {
	if e.Source == ACP {
		return thread{}
	}
	if e.AgentID != nil {
		return thread{agent: *e.AgentID}
	}
	return thread{internal: e.IsInternal}
}
