package claude

import (
	"embed"
	"time"

	"tributary/envelopes"
	"tributary/normalizers/core"
)

//go:embed all:samples
var samples embed.FS

// Vendor is Claude Code's row of the table of vendors.
var Vendor = core.Vendor{
	Source: envelopes.ClaudeCode,
	Name:   "Claude Code",
	Reads:  "`claude -p --output-format stream-json`, with partial messages too; `json`, one object or an array; the messages of its SDK as objects",

	Recognize: func(s *core.Shape) bool { return isStream(s) || isTranscript(s) },
	Session:   sessionOf,
	Time:      timeOf,

	Framing: core.Framing{
		IsList:  func(s *core.Shape) bool { return s.First != nil && isStream(s.First) },
		IsWhole: isWhole,
	},

	Normalize: normalize,
	NewState:  func() core.State { return &state{} },

	Logs: core.Logs{
		Env:     "CLAUDE_CONFIG_DIR",
		Home:    ".claude",
		About:   "folders of Claude Code, separated by commas; default ~/.claude",
		Folders: []core.LogFolder{{Dir: "projects", Suffixes: []string{".jsonl"}}},
	},
	Samples: samples,
}

// stateOf returns what the session remembers of Claude Code.
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

// isTranscript recognizes a line of a transcript.
func isTranscript(s *core.Shape) bool {
	kind := s.Text("type")
	switch {
	case kind == "" || s.Has("projectHash"):
		return false
	case s.Text("sessionId") != "" && (s.Text("uuid") != "" || s.Text("messageId") == ""):
		return true
	}
	switch kind {
	case "summary":
		return s.Text("leafUuid") != ""
	case "file-history-snapshot":
		return s.Kind("snapshot") == '{'
	case "file-history-delta":
		return s.Text("messageId") != ""
	case "started", "result":
		return s.Text("key") != "" && s.Text("agentId") != ""
	default:
		return false
	}
}

// isStream recognizes a message of Claude's SDK: a line of its stream, or a message as the
// SDK has it, without a type. Lines that Cursor's agent writes alike are not recognized:
// another line of their file is.
func isStream(s *core.Shape) bool {
	if s.First != nil {
		return isStream(s.First)
	}
	switch s.Text("type") {
	case "":
		return s.Text("subtype") == "init" && s.Kind("data") == '{' && s.Text("id") == "" ||
			s.Kind("num_turns") != 0 && s.Text("session_id") != "" ||
			s.Kind("event") == '{' && s.Text("session_id") != "" ||
			s.Kind("content") == '[' && (s.Text("model") != "" || s.Kind("tool_use_result") != 0 || s.Kind("parent_tool_use_id") != 0)
	case "system":
		return s.Text("session_id") != "" &&
			(s.Kind("tools") == '[' || s.Kind("mcp_servers") == '[' || s.Text("claude_code_version") != "" || s.Text("uuid") != "")
	case "assistant", "user":
		return s.Text("sessionId") == "" && s.Kind("message") == '{' &&
			(s.Kind("parent_tool_use_id") != 0 || s.Text("uuid") != "" && s.Text("session_id") != "")
	case "stream_event":
		return s.Kind("event") == '{'
	case "result":
		return s.Kind("num_turns") != 0 || s.Kind("total_cost_usd") != 0 || s.Kind("usage", "input_tokens") != 0
	case "control_request", "control_response", "rate_limit_event", "tool_progress", "auth_status", "prompt_suggestion":
		return s.Text("sessionId") == ""
	default:
		return false
	}
}

// isWhole reports whether a record states what only whole records do.
func isWhole(s *core.Shape) bool {
	return s.Text("sessionId") != "" || s.Text("leafUuid") != "" || s.Text("messageId") != ""
}

// sessionOf is the session that a record states itself. A message of the SDK that was
// recorded in a transcript has both names, and the SDK's counts.
func sessionOf(s *core.Shape) string {
	if id := s.Text("session_id"); id != "" && isStream(s) {
		return id
	}
	if id := s.Session(); id != "" {
		return id
	}
	if s.Text("type") != "" {
		return ""
	}
	if id := s.Text("data", "sessionId"); id != "" {
		return id
	}
	return s.Text("data", "session_id")
}

// timeOf is the time that a record states itself.
func timeOf(s *core.Shape) time.Time {
	return s.Time([]string{"timestamp"}, []string{"_audit_timestamp"}, []string{"snapshot", "timestamp"})
}
