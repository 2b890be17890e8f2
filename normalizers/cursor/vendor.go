package cursor

import (
	"embed"
	"path"
	"time"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

//go:embed all:samples ignored.txt
var embedded embed.FS

// Vendor is Cursor's row of the table of vendors.
var Vendor = core.Vendor{
	Source: envelopes.Cursor,
	Name:   "Cursor",
	Reads:  "`cursor-agent -p --output-format stream-json`, with partial output too",

	Recognize: marker,
	Session:   sessionOf,
	Time:      timeOf,

	Framing: core.Framing{PlainLines: true, ParentOfPath: parentOfPath},

	Normalize: normalize,
	NewState:  func() core.State { return &state{} },

	Checked: "2026.01.28",
	Evidence: core.Evidence{
		Read:   []core.Basis{core.RealLogs, core.Code},
		Limits: "no database of a user was seen: its rules come from other readers; calls before `_v` 3; `store.db` of the command line",
	},

	Logs: core.Logs{
		Env:     "CURSOR_DATA_DIR",
		Home:    ".cursor",
		About:   "folder of Cursor; default ~/.cursor",
		Folders: []core.LogFolder{{Dir: "projects", Suffixes: []string{".jsonl"}, Within: "agent-transcripts"}},
	},
	Database: &database,
	Files:    embedded,
}

// stateOf returns the state of Cursor in a session.
func stateOf(s *core.Session) *state { return s.State.(*state) }

// Clone implements [core.State].
func (s *state) Clone() core.State { c := *s; return &c }

// Size implements [core.State].
func (s *state) Size() int {
	n := len(s.Text) + s.From.Size()
	for _, c := range s.Open {
		n += 32 + len(c.ID)
	}
	if n > 0 || s.Answer.Length > 0 {
		n += 64
	}
	return n
}

// Shrink implements [core.State]. It drops all chunks at once.
func (s *state) Shrink() bool {
	if s.Size() == 0 {
		return false
	}
	*s = s.source()
	s.Open = nil
	return true
}

// marker recognizes a line of Cursor's stream or of its transcripts.
func marker(s *core.Shape) string {
	subtype, inSession := s.Text("subtype"), s.Text("session_id") != ""
	switch kind := s.Text("type"); kind {
	case "":
		if isRow(s) {
			return "table cursorDiskKV, key"
		}
		role := s.Text("role")
		if (role == "user" || role == "assistant") && s.Kind("message", "content") == '[' && s.Text("uuid") == "" && s.Text("sessionId") == "" {
			return "role, message.content"
		}
	case "system":
		if subtype == "init" && inSession && s.Text("model") != "" && s.Kind("tools") == 0 {
			return "type system, subtype init, session_id, model without tools"
		}
	case "thinking":
		if subtype == "delta" || subtype == "completed" {
			return "type thinking, subtype"
		}
	case "user", "assistant":
		if inSession && s.Kind("message") == '{' && s.Text("sessionId") == "" && s.Text("uuid") == "" &&
			(s.Number("timestamp_ms").OK || s.Text("model_call_id") != "") {
			return "session_id, timestamp_ms or model_call_id"
		}
	case "tool_call":
		if subtype != "" && s.Kind("tool_call") == '{' {
			return "type tool_call, tool_call"
		}
	case "connection", "retry":
		if subtype != "" && inSession && s.Number("timestamp_ms").OK {
			return "type " + kind + ", session_id, timestamp_ms"
		}
	case "turn_ended":
		if s.Text("status") != "" {
			return "type turn_ended, status"
		}
	case "result":
		if subtype != "" && inSession && s.Kind("duration_api_ms") != 0 && s.Kind("num_turns") == 0 {
			return "type result, duration_api_ms without num_turns"
		}
	}
	return ""
}

// parentOfPath returns the session in whose folder the transcript of a subagent is:
// agent-transcripts/<parent>/subagents/<session>.jsonl.
func parentOfPath(file string) string {
	above, last := path.Split(path.Dir(file))
	all, parent := path.Split(path.Clean(above))
	if last != "subagents" || path.Base(all) != "agent-transcripts" {
		return ""
	}
	return parent
}

// sessionOf returns the session stated in a record.
func sessionOf(s *core.Shape) string {
	if isRow(s) {
		session, _ := cutKey(s.Text("row", "key"))
		return session
	}
	return s.Session()
}

// timeOf returns the time stated in a record.
func timeOf(s *core.Shape) time.Time {
	if t := s.Time([]string{"timestamp"}, []string{"row", "value", "createdAt"}); !t.IsZero() {
		return t
	}
	if v := s.Value("row", "value", "createdAt"); isRow(s) && v != nil {
		t, _ := core.MomentOfMillis(lenient.NumberOf(v))
		return t
	}
	t, _ := core.MomentOfMillis(s.Number("timestamp_ms"))
	return t
}
