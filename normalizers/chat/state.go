package chat

import (
	"maps"

	"tributary/normalizers/core"
)

// maxRemembered is how many values a session remembers, each of at most core.MaxName bytes.
const maxRemembered = 32

// State is what a session of a plain log remembers: a few short values, and its documents, each by name, calls whose
// results do not state them, and what its log and its telemetry have stated. Nothing is changed in place.
type State struct {
	Values    map[string]string            `json:"v,omitzero"`
	Documents map[string]core.DocumentHead `json:"d,omitzero"`
	Waiting   core.Window[waiting]         `json:"w,omitzero"`
	Joined
}

// Joined is what a session remembers of a log and its telemetry. A vendor with a state of its own embeds it there.
type Joined struct {
	Balance  core.Balance   `json:"b,omitzero"` // of the telemetry
	Logged   core.OpenCalls `json:"l,omitzero"` // calls of the log whose ends the telemetry has not stated
	Exported core.OpenCalls `json:"x,omitzero"` // calls of the telemetry without an id that the log has not stated
}

func (j *Joined) joined() *Joined { return j }

// NewState returns the empty state of a session, for the row of a vendor that uses [Writer.Remember],
// [Writer.Elements] or [Writer.Await].
func NewState() core.State { return &State{} }

// Clone implements [core.State].
func (s *State) Clone() core.State { c := *s; return &c }

// Size implements [core.State].
func (s *State) Size() (n int) {
	for name, v := range s.Values {
		n += 16 + len(name) + len(v)
	}
	for name := range s.Documents {
		n += 48 + len(name)
	}
	for _, c := range s.Waiting {
		n += 16 + len(c.ID) + len(c.Kind)
	}
	return n + s.Logged.Size() + s.Exported.Size()
}

// Shrink implements [core.State]. It drops everything at once but the balance, which has a fixed size.
func (s *State) Shrink() bool {
	if len(s.Values)+len(s.Documents)+len(s.Waiting)+len(s.Logged)+len(s.Exported) == 0 {
		return false
	}
	s.Values, s.Documents, s.Waiting, s.Logged, s.Exported = nil, nil, nil, nil, nil
	return true
}

// memory is what the session of a Writer remembers.
type memory struct{ session *core.Session }

// Remember keeps a short value for later records; an empty one is forgotten. The vendor needs [NewState] in its row.
func (m memory) Remember(name, value string) {
	s := m.session.State.(*State)
	if len(value) > core.MaxName || value == s.Values[name] || len(s.Values) >= maxRemembered && s.Values[name] == "" {
		return
	}
	values := maps.Clone(s.Values)
	if values == nil {
		values = make(map[string]string, 1)
	}
	if values[name] = value; value == "" {
		delete(values, name)
	}
	if s.Values = values; len(values) == 0 {
		s.Values = nil // as in a session that never had one
	}
}

// Remembered returns what [Writer.Remember] kept last; empty for nothing.
func (m memory) Remembered(name string) string {
	return m.session.State.(*State).Values[name]
}
