package envelopes

// thread is a line of conversation in a session: the main one, which is the zero value, or
// that of a subagent. Sidechain events without an agent are one thread together, and a run
// of ACP is one thread, whoever speaks (semantics.md section 2, law 5).
type thread struct {
	agent    string
	internal bool
}

// threadOf is the thread of an event.
func threadOf(e *AgentEventV1) thread {
	if e.Source == ACP {
		return thread{}
	}
	if e.AgentID != nil {
		return thread{agent: *e.AgentID}
	}
	return thread{internal: e.IsInternal}
}
