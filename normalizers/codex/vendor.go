package codex

import (
	"embed"
	"time"

	"tributary/envelopes"
	"tributary/normalizers/core"
)

//go:embed all:samples
var samples embed.FS

// Vendor is Codex's row of the table of vendors.
var Vendor = core.Vendor{
	Source: envelopes.Codex,
	Name:   "Codex",
	Reads:  "`codex exec --json`",

	Recognize: isCodex,
	Session:   sessionOf,
	Time:      func(s *core.Shape) time.Time { return s.Time([]string{"timestamp"}) },

	// What follows the first session of a rollout are its resumptions and its parents.
	Framing: core.Framing{OneSession: true, IsWhole: isRollout},

	Normalize: normalize,
	NewState:  func() core.State { return &state{} },

	Logs: core.Logs{
		Env:   "CODEX_HOME",
		Home:  ".codex",
		About: "folder of Codex; default ~/.codex",
		Folders: []core.LogFolder{
			{Dir: "sessions", Suffixes: []string{".jsonl"}, Moved: true},
			{Dir: "archived_sessions", Suffixes: []string{".jsonl"}, Moved: true},
		},
	},
	Samples: samples,
}

// stateOf returns what the session remembers of Codex.
func stateOf(s *core.Session) *state { return s.State.(*state) }

// Clone implements [core.State].
func (s *state) Clone() core.State { c := *s; return &c }

// Shrink implements [core.State]: the oldest of the pending records goes.
func (s *state) Shrink() bool {
	if len(s.Twins) == 0 {
		return false
	}
	s.Twins = s.Twins[1:]
	return true
}

// isCodex recognizes a line of a rollout, in an envelope or bare, and of the exec stream.
func isCodex(s *core.Shape) bool {
	if s.Has("projectHash") {
		return false
	}
	kind := s.Text("type")
	switch {
	case s.Kind("payload") == '{':
		return kind != "" && s.Text("sessionId") == ""
	case s.Text("record_type") != "":
		return true
	}
	switch kind {
	case "": // the header of a bare rollout
		return isBareHeader(s)
	case "function_call", "function_call_output":
		return s.Text("call_id") != ""
	case "reasoning":
		return s.Has("summary")
	case "thread.started":
		return s.Text("thread_id") != ""
	default:
		return isExecType(kind) && s.Kind("item") == '{'
	}
}

// isBareHeader recognizes the first line of a rollout without envelopes.
func isBareHeader(s *core.Shape) bool {
	return s.Text("id") != "" && s.Text("timestamp") != "" && (s.Has("instructions") || s.Has("git")) && s.Text("sessionId") == ""
}

// isRollout recognizes a line of a rollout in an envelope, of the types that are known.
func isRollout(s *core.Shape) bool {
	switch s.Text("type") {
	case "session_meta", "turn_context", "response_item", "event_msg", "compacted", "world_state":
		return s.Kind("payload") == '{' && s.Text("timestamp") != "" && s.Text("sessionId") == ""
	default:
		return false
	}
}

// sessionOf is the session that a record states itself.
func sessionOf(s *core.Shape) string {
	kind := s.Text("type")
	switch {
	case s.Text("sessionId") != "":
	case kind == "session_meta" && s.Kind("payload") == '{':
		return s.Text("payload", "id")
	case kind == "" && isCodex(s):
		return s.Text("id")
	case kind == "thread.started":
		return s.Text("thread_id")
	}
	return s.Session()
}
