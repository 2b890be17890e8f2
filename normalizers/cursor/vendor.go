package cursor

import (
	"embed"
	"time"

	"tributary/envelopes"
	"tributary/normalizers/core"
)

//go:embed all:samples
var samples embed.FS

// Vendor is Cursor's row of the table of vendors.
var Vendor = core.Vendor{
	Source: envelopes.Cursor,
	Name:   "Cursor",
	Reads:  "`cursor-agent -p --output-format stream-json`, with partial output too",

	Recognize: isCursor,
	Session:   (*core.Shape).Session,
	Time:      timeOf,

	Framing: core.Framing{PlainLines: true},

	Normalize: normalize,
	NewState:  func() core.State { return &state{} },

	Checked: "2026.01.28",

	Logs: core.Logs{
		Env:     "CURSOR_DATA_DIR",
		Home:    ".cursor",
		About:   "folder of Cursor; default ~/.cursor",
		Folders: []core.LogFolder{{Dir: "projects", Suffixes: []string{".jsonl"}, Within: "agent-transcripts"}},
	},
	Samples: samples,
}

// stateOf returns what the session remembers of Cursor.
func stateOf(s *core.Session) *state { return s.State.(*state) }

// Clone implements [core.State].
func (s *state) Clone() core.State { c := *s; return &c }

// Size implements [core.State].
func (s *state) Size() int {
	n := len(s.Text) + len(s.From.Raw) + len(s.From.TS) + len(s.From.Traceparent) + len(s.From.Tracestate)
	if n > 0 || s.Answer.Length > 0 {
		n += 64
	}
	return n
}

// Shrink implements [core.State]: all of it goes at once.
func (s *state) Shrink() bool {
	if s.Size() == 0 {
		return false
	}
	*s = state{}
	return true
}

// isCursor recognizes a line of Cursor's stream or of its transcripts.
func isCursor(s *core.Shape) bool {
	subtype, session := s.Text("subtype"), s.Text("session_id")
	switch s.Text("type") {
	case "":
		role := s.Text("role")
		return (role == "user" || role == "assistant") && s.Kind("message") == '{' && s.Text("uuid") == "" && s.Text("sessionId") == ""
	case "system":
		return subtype == "init" && session != "" && s.Text("model") != ""
	case "thinking":
		return subtype == "delta" || subtype == "completed"
	case "user", "assistant":
		return session != "" && s.Kind("message") == '{' && s.Text("sessionId") == "" && s.Text("uuid") == "" &&
			(s.Number("timestamp_ms").OK || s.Text("model_call_id") != "")
	case "tool_call":
		return subtype != "" && s.Kind("tool_call") == '{'
	case "connection", "retry":
		return subtype != "" && session != "" && s.Number("timestamp_ms").OK
	case "turn_ended":
		return s.Text("status") != ""
	case "result":
		return subtype != "" && session != ""
	default:
		return false
	}
}

// timeOf returns the time that a record states.
func timeOf(s *core.Shape) time.Time {
	if t := s.Time([]string{"timestamp"}); !t.IsZero() {
		return t
	}
	t, _ := core.MomentOfMillis(s.Number("timestamp_ms"))
	return t
}
