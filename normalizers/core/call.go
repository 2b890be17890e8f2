package core

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"tributary/envelopes"
)

// Outcome is what an end record stated about a call before its result came, or what its result stated already.
type Outcome struct {
	Exit    *int64           `json:"x,omitzero"`
	Latency *int64           `json:"l,omitzero"`
	Failed  bool             `json:"f,omitzero"`
	Files   []envelopes.File `json:"files,omitzero"`
	Emitted bool             `json:"t,omitzero"` // the result was emitted
	Alone   bool             `json:"a,omitzero"` // no result follows the end record
}

// Call is a tool call that may still get a result.
type Call struct {
	ID      Fingerprint       `json:"i"`
	Tool    string            `json:"n,omitzero"`
	Channel envelopes.Channel `json:"c,omitzero"`
	Op      envelopes.FileOp  `json:"o,omitzero"`
	Path    string            `json:"p,omitzero"`
	Outcome Outcome           `json:"r,omitzero"`

	// Needed by the result of a shell until it is emitted: the description of the command, or else the command, and
	// whether the description was the empty string.
	About       string `json:"a,omitzero"`
	Undescribed bool   `json:"u,omitzero"`
}

// calls are the calls in the memory of a session.
type calls struct {
	Calls Window[*Call] `json:"calls,omitzero"` // none is changed in place
}

func (s *calls) size() (n int) {
	for _, c := range s.Calls {
		n += 64 + len(c.Tool) + len(c.Path) + len(c.About)
		for _, f := range c.Outcome.Files {
			n += 32 + len(f.Path)
		}
	}
	return n
}

// RememberCall keeps a tool call for its result.
func (s *calls) RememberCall(id string, c Call) {
	c.ID = FingerprintOf(id)
	if len(c.Path) > MaxIdentity {
		c.Path = ""
	}
	if len(c.Tool) > MaxName {
		c.Tool = ""
	}
	c.About = Cut(c.About, maxAbout)
	calls := s.Calls.Without(func(o *Call) bool { return o.ID == c.ID })
	// A session always has more calls than it can keep, so losing the oldest is expected.
	s.Calls = calls.Push(&c, maxCalls, nil)
	room := maxAbouts
	for i, o := range slices.Backward(s.Calls) {
		if room -= len(o.About); room < 0 && o.About != "" {
			short := *o
			short.About = ""
			s.Calls[i] = &short // the window is a new one
		}
	}
}

// RecallCall returns the call of a result.
func (s *calls) RecallCall(id string) (Call, bool) {
	key := FingerprintOf(id)
	for _, c := range s.Calls {
		if c.ID == key {
			return *c, true
		}
	}
	return Call{}, false
}

// SetOutcome records the known outcome of a kept call.
func (s *calls) SetOutcome(id string, o Outcome) {
	key := FingerprintOf(id)
	for i, c := range s.Calls {
		if c.ID == key {
			settled := *c
			settled.Outcome = o
			s.Calls = s.Calls.With(i, &settled)
		}
	}
}

// ReleaseCall drops from a call what only its result needs, once that is emitted. For many calls this would exceed
// all the rest.
func (s *calls) ReleaseCall(id string) {
	key := FingerprintOf(id)
	for i, c := range s.Calls {
		if c.ID == key && (c.About != "" || c.Undescribed) {
			released := *c
			released.About, released.Undescribed = "", false
			s.Calls = s.Calls.With(i, &released)
		}
	}
}

// ExitCode returns the exit code that a text states: the number in the last match of a pattern, in that of its groups
// which took part; nil for none.
func ExitCode(pattern *regexp.Regexp, text string) *int64 {
	found := pattern.FindAllStringSubmatch(text, -1)
	if found == nil {
		return nil
	}
	code, err := strconv.ParseInt(strings.Join(found[len(found)-1][1:], ""), 10, 64)
	if err != nil {
		return nil
	}
	return &code
}

// FirstExitCode is [ExitCode] for the first match of a pattern.
func FirstExitCode(pattern *regexp.Regexp, text string) *int64 {
	return ExitCode(pattern, pattern.FindString(text))
}
