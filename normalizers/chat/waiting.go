package chat

import "tributary/normalizers/core"

// maxWaiting is how many calls of a session wait for their results.
const maxWaiting = 64

// waiting is a call whose result will not state it.
type waiting struct {
	ID   string `json:"i"`
	Kind string `json:"k,omitzero"`
}

// Await notes that the result of a call will not state the call, only its kind: empty for a call that any result may
// belong to. The vendor needs [NewState] in its row.
func (m memory) Await(kind, id string) {
	s := m.session.State.(*State)
	if len(kind)+len(id) <= core.MaxName {
		others := s.Waiting.Without(func(o waiting) bool { return o.ID == id })
		s.Waiting = others.Push(waiting{id, kind}, maxWaiting, &m.session.Lost)
	}
}

// Awaited returns the call that a result of a kind belongs to: the oldest one that waits for this kind, else for any,
// else the oldest at all. That call waits no longer. Awaited returns an empty id if no call waits.
func (m memory) Awaited(kind string) (id string) {
	for _, fits := range []func(waiting) bool{
		func(c waiting) bool { return c.Kind == kind },
		func(c waiting) bool { return c.Kind == "" },
		func(waiting) bool { return true },
	} {
		if id = m.take(fits); id != "" {
			return id
		}
	}
	return ""
}

// AwaitedOnly is [memory.Awaited] for a kind that shows the call by itself: a call of another kind is not taken.
func (m memory) AwaitedOnly(kind string) (id string) {
	return m.take(func(c waiting) bool { return c.Kind == kind })
}

// take returns the oldest call that fits, which waits no longer; empty for none.
func (m memory) take(fits func(waiting) bool) (id string) {
	s := m.session.State.(*State)
	for _, c := range s.Waiting {
		if fits(c) {
			s.Waiting = s.Waiting.Without(func(o waiting) bool { return o.ID == c.ID })
			return c.ID
		}
	}
	return ""
}
