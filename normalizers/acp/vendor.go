package acp

import (
	"cmp"
	"embed"
	"strings"
	"time"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

//go:embed all:samples ignored.txt
var embedded embed.FS

// Vendor is the row for agents that speak ACP.
var Vendor = core.Vendor{
	Source: envelopes.ACP,
	Name:   "ACP",
	Reads:  "runs of the Agent Communication Protocol as server-sent events, as JSON lines or as one answer; requests; messages",

	Recognize: marker,
	Session:   sessionOf,
	Time:      timeOf,

	Framing: core.Framing{
		ServerEvents: true,
		IsReadable:   isReadable,
	},

	Normalize: normalize,
	NewState:  func() core.State { return &state{} },

	Checked: "1.0.3",
	Evidence: core.Evidence{
		Read:   []core.Basis{core.Code},
		Lacks:  []core.Fact{core.TokenSums, core.Models, core.Subagents},
		Limits: "citations, `content_url`",
	},

	Files: embedded,
}

// state is what a session of ACP remembers beyond what all sessions do.
type state struct {
	runs
	Open openMessage `json:"open,omitzero"`
	history
}

// stateOf returns the state of ACP in a session.
func stateOf(s *core.Session) *state { return s.State.(*state) }

// Clone implements [core.State].
func (s *state) Clone() core.State { c := *s; return &c }

// Size implements [core.State].
func (s *state) Size() int {
	n := s.runs.size() + 32*len(s.Emitted)
	if o := &s.Open; o.Active {
		n += 128 + len(o.Role) + len(o.CreatedAt) + o.From.Size() + o.size()
	}
	return n
}

// Shrink implements [core.State]. It drops everything at once.
func (s *state) Shrink() bool {
	if s.Size() == 0 {
		return false
	}
	*s = state{}
	return true
}

// isReadable reports whether the messages and parts of a JSON record match the protocol's model.
func isReadable(data []byte) bool {
	_, err := read(data)
	return err == nil
}

// isACP recognizes a record of the protocol.
func isACP(s *core.Shape) bool { return marker(s) != "" }

// marker recognizes an event of a run, a run, a message, a request to an agent, or an array
// that begins with one of these.
func marker(s *core.Shape) string {
	if s.First != nil {
		return marker(s.First)
	}
	switch kind := s.Text("type"); {
	case s.Has("projectHash"):
		return ""
	case strings.HasPrefix(kind, "run.") && s.Kind("run") == '{':
		return "type run.*, run"
	case kind == "message.part" && s.Kind("part") == '{':
		return "type message.part, part"
	case (kind == "message.created" || kind == "message.completed") && s.Kind("message") == '{':
		return "type message.*, message"
	case kind == "generic" && s.Kind("generic") != 0:
		return "type generic, generic"
	case kind == "error" && s.Text("error", "code") != "" && s.Session() == "":
		return "type error, error.code"
	case kind != "":
		return ""
	case isMessage(s):
		return "role, parts"
	case s.Text("agent_name") != "" && (s.Text("status") != "" || s.Kind("output") == '[' || s.Kind("input") == '['):
		return "agent_name"
	case s.Kind("await_resume") == '{':
		return "await_resume"
	case s.Text("run_id") != "" && s.Kind("output") == '[':
		return "run_id, output"
	default:
		return ""
	}
}

// isMessage recognizes a message. Other protocols also have messages with typed parts, but with other names for their
// content.
func isMessage(s *core.Shape) bool {
	role := s.Text("role")
	if s.Kind("parts") != '[' || role != "user" && role != "agent" && !strings.HasPrefix(role, "agent/") {
		return false
	}
	for _, part := range lenient.Elements(s.Value("parts")) {
		for _, m := range lenient.ObjectMembers(part) {
			if m.Name == "type" || m.Name == "kind" {
				return false
			}
		}
	}
	return true
}

// sessionOf returns the session stated in a record. A run that states none is a session of its own; the answer to a
// question belongs to the session of its file.
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

// timeOf returns the time stated in a record.
func timeOf(s *core.Shape) time.Time {
	return s.Time([]string{"timestamp"}, []string{"created_at"}, []string{"run", "created_at"})
}
