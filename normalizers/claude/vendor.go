package claude

import (
	"cmp"
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

	Checked: "2.1.235",
	Version: func(s *core.Session) string {
		return cmp.Or(s.TextExtension("version"), s.TextExtension("claudeCodeVersion"))
	},

	Logs: core.Logs{
		Env:     "CLAUDE_CONFIG_DIR",
		Home:    ".claude",
		About:   "folders of Claude Code, separated by commas; default ~/.claude",
		Folders: []core.LogFolder{{Dir: "projects", Suffixes: []string{".jsonl"}}},
	},
	Samples: samples,
}

// state is what a session of Claude Code remembers beyond what all sessions do.
type state struct {
	Queue          core.Window[queuedPrompt]     `json:"queue,omitzero"`
	EmittedPrompts core.Window[emittedPrompt]    `json:"taken,omitzero"`
	Stated         core.Window[core.StatedValue] `json:"stated,omitzero"`
	Unknown        uint64                        `json:"unknown,omitzero"` // records of unknown types

	Runs     runs                        `json:"runs,omitzero"`
	Partials core.Window[partialMessage] `json:"partials,omitzero"`
}

// stateOf returns the state of a session of Claude Code.
func stateOf(s *core.Session) *state { return s.State.(*state) }

// Clone implements [core.State].
func (s *state) Clone() core.State { c := *s; return &c }

// Size implements [core.State].
func (s *state) Size() int {
	n := 24*len(s.EmittedPrompts) + 48*len(s.Stated)
	for _, q := range s.Queue {
		n += 48 + len(q.Text)
	}
	for i := range s.Partials {
		n += s.Partials[i].size()
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

// isTranscript reports whether a record is a line of a transcript.
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
	case "started", "result": // of the journal of a workflow
		return s.Text("key") != "" && s.Text("agentId") != ""
	default:
		return false
	}
}

// isStream reports whether a record is a message of the SDK: a line of its stream, an array
// of them, or a message dumped as an object, without a type. Cursor's agent writes some
// lines alike; those are not recognized, because other lines of their file are.
func isStream(s *core.Shape) bool {
	if s.First != nil {
		return isStream(s.First)
	}
	switch s.Text("type") {
	case "":
		return isDumped(s)
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

// isDumped reports whether a record without a type is a message of the SDK that was dumped
// as an object.
func isDumped(s *core.Shape) bool {
	switch {
	case s.Text("subtype") == "init" && s.Kind("data") == '{' && s.Text("id") == "":
		return true
	case s.Text("session_id") != "" && (s.Kind("num_turns") != 0 || s.Kind("event") == '{'):
		return true
	default:
		return s.Kind("content") == '[' && (s.Text("model") != "" || s.Kind("tool_use_result") != 0 || s.Kind("parent_tool_use_id") != 0)
	}
}

// isWhole reports whether a recognized record cannot be a part of another record.
func isWhole(s *core.Shape) bool {
	return s.Text("sessionId") != "" || s.Text("leafUuid") != "" || s.Text("messageId") != ""
}

// sessionOf returns the session that a record states. A message of the SDK that stands in a
// transcript has both names.
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

// timeOf returns the time that a record states.
func timeOf(s *core.Shape) time.Time {
	return s.Time([]string{"timestamp"}, []string{"_audit_timestamp"}, []string{"snapshot", "timestamp"})
}
