package acp

import (
	"cmp"
	"embed"
	"strings"
	"time"

	"tributary/envelopes"
	"tributary/normalizers/core"
)

//go:embed all:samples
var samples embed.FS

// Vendor is the row of agents that speak ACP in the table of vendors.
var Vendor = core.Vendor{
	Source: envelopes.ACP,
	Name:   "ACP",
	Reads:  "runs of the Agent Communication Protocol as server-sent events, as JSON lines or as one answer; requests; messages",

	Recognize: isACP,
	Session:   sessionOf,
	Time:      timeOf,

	Framing: core.Framing{
		ServerEvents: true,
		IsReadable:   isReadable,
	},

	Normalize: normalize,
	NewState:  func() core.State { return &state{} },
	Samples:   samples,
}

// stateOf returns what the session remembers of ACP.
func stateOf(s *core.Session) *state { return s.State.(*state) }

// Clone implements [core.State].
func (s *state) Clone() core.State { c := *s; return &c }

// Shrink implements [core.State]: all of it goes at once.
func (s *state) Shrink() bool {
	if s.Size() == 0 {
		return false
	}
	*s = state{}
	return true
}

// isReadable reports whether a record that is JSON is one of the protocol: no message or
// part in it breaks the protocol's model.
func isReadable(data []byte) bool {
	_, err := read(data)
	return err == nil
}

// isACP recognizes an event of a run, a run, a message, or a request to an agent.
func isACP(s *core.Shape) bool {
	if s.First != nil {
		return isACP(s.First)
	}
	kind := s.Text("type")
	switch {
	case s.Has("projectHash"):
		return false
	case strings.HasPrefix(kind, "run."):
		return s.Kind("run") == '{'
	case kind == "message.part":
		return s.Kind("part") == '{'
	case kind == "message.created", kind == "message.completed":
		return s.Kind("message") == '{'
	case kind == "generic":
		return s.Kind("generic") != 0
	case kind == "error":
		return s.Text("error", "code") != "" && s.Session() == ""
	case kind != "":
		return false
	case s.Kind("parts") == '[':
		role := s.Text("role")
		return role == "user" || role == "agent" || strings.HasPrefix(role, "agent/")
	case s.Text("agent_name") != "":
		return s.Text("status") != "" || s.Kind("output") == '[' || s.Kind("input") == '['
	default:
		return s.Kind("await_resume") == '{' || s.Text("run_id") != "" && s.Kind("output") == '['
	}
}

// sessionOf is the session that a record states itself. A run of no session is one of its
// own; the answer to a question belongs to the session of its file.
func sessionOf(s *core.Shape) string {
	switch {
	case s.Text("sessionId") != "":
		return s.Text("sessionId")
	case !isACP(s), s.Kind("await_resume") == '{':
		return s.Text("session_id")
	case s.First != nil:
		return sessionOf(s.First)
	default:
		return cmp.Or(s.Text("run", "session_id"), s.Text("session_id"), s.Text("run", "run_id"), s.Text("run_id"))
	}
}

// timeOf is the time that a record states itself.
func timeOf(s *core.Shape) time.Time {
	return s.Time([]string{"timestamp"}, []string{"created_at"}, []string{"run", "created_at"})
}
