package hermes

import (
	"embed"
	"time"

	"tributary/envelopes"
	"tributary/normalizers/chat"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

//go:embed all:samples ignored.txt
var embedded embed.FS

// Vendor is Hermes's row of the table of vendors.
var Vendor = core.Vendor{
	Source: envelopes.Hermes,
	Name:   "Hermes",
	Reads:  "messages of its database as JSON lines, and the JSON lines of its gateway",

	Recognize: marker,
	Session:   sessionOf,
	Time:      timeOf,

	Framing: core.Framing{OneSession: true, IsDocument: isDocument},

	Normalize: chat.Normalizer(tools, read),
	NewState:  chat.NewState,

	Checked: "0.19.0",
	Evidence: core.Evidence{
		Read:   []core.Basis{core.RealLogs, core.Fixtures, core.Code},
		Limits: "no `state.db` of a user was seen, and those of profiles are read where they are named",
	},

	Logs: core.Logs{
		Env:   "HERMES_HOME",
		Home:  ".hermes",
		About: "folder of Hermes; default ~/.hermes",
		Folders: []core.LogFolder{
			{Dir: "sessions", Prefix: "session_", Suffixes: []string{".json"}},
			{Dir: "profiles", Prefix: "session_", Suffixes: []string{".json"}, Within: "sessions"},
		},
	},
	Database: &database,
	Files:    embedded,
}

// marker recognizes a row, a message, the first line of the gateway, and a saved session.
func marker(s *core.Shape) string {
	switch {
	case isRow(s, "sessions"):
		return "table sessions, source, started_at"
	case isRow(s, "messages"):
		return "table messages, finish_reason, timestamp"
	case isDocument(s):
		return "session_start, messages"
	case s.Text("role") == "session_meta":
		return "role session_meta"
	case s.Text("role") == "" || s.Text("type") != "":
		return ""
	case s.Kind("tool_call_id") == '"' && s.Kind("finish_reason") == '"' && s.Kind("tool_name") == '"':
		return "role, tool_name, finish_reason"
	}
	for _, name := range []string{"_ts", "_model", "_cwd"} {
		if s.Has(name) {
			return "role, " + name
		}
	}
	return ""
}

// isDocument recognizes a saved session, which is rewritten after each turn.
func isDocument(s *core.Shape) bool {
	return s.Text("session_start") != "" && s.Kind("messages") == '['
}

// sessionOf returns the session, which no line states.
func sessionOf(s *core.Shape) string {
	switch {
	case isRow(s, "sessions"):
		return s.Text("row", "id")
	case isRow(s, "messages"):
		return s.Text("row", "session_id")
	}
	if isDocument(s) {
		return s.Text("session_id")
	}
	return ""
}

// timeOf returns the time stated in a record: of a message also in seconds.
func timeOf(s *core.Shape) time.Time {
	for _, column := range []string{"timestamp", "started_at"} {
		if v := s.Value("row", column); len(v) > 0 && v.Kind() == '0' {
			t, _ := core.MomentOfMillis(lenient.NumberOf(v).Times(1000))
			return t
		}
	}
	if v := s.Value("timestamp"); len(v) > 0 && v.Kind() == '0' {
		t, _ := core.MomentOfMillis(lenient.NumberOf(v).Times(1000))
		return t
	}
	return s.Time([]string{"timestamp"}, []string{"session_start"})
}
