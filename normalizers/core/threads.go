package core

// thread is the main conversation or a subagent's, with the id of its last user message.
type thread struct {
	Thread Fingerprint `json:"t"`
	Parent string      `json:"p"`
}

// threads are the threads of a session, the one with the latest user message last.
type threads Window[thread]

// parent returns the id of the last user message of a thread; nil before the first.
func (ts threads) parent(in Fingerprint) *string {
	for _, t := range ts {
		if t.Thread == in {
			return new(t.Parent)
		}
	}
	return nil
}

// withParent returns the threads after a user message, which is the parent of what follows in its thread.
func (ts threads) withParent(in Fingerprint, id string, lost *uint64) threads {
	others := Window[thread](ts).Without(func(t thread) bool { return t.Thread == in })
	return threads(others.Push(thread{in, id}, maxThreads, lost))
}

func (ts threads) size() (n int) {
	for _, t := range ts {
		n += 32 + len(t.Parent)
	}
	return n
}
