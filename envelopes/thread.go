package envelopes

// thread is a line of conversation in a session: the main thread, which is the zero value, or
// the thread of a subagent. All internal events without an agent are one thread (event.md,
// Order, parents and threads).
type thread struct {
	internal bool
	agent    string
}

// threadOf returns the thread of an event. The agent_id of an event of the main thread names
// the agent that acts, not a thread.
func threadOf(e *AgentEventV1) thread {
	if !e.IsInternal {
		return thread{}
	}
	return thread{internal: true, agent: textOf(e.AgentID)}
}
