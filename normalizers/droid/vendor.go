package droid

import (
	"embed"
	"path"
	"strings"
	"time"

	"tributary/envelopes"
	"tributary/normalizers/chat"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

//go:embed all:samples ignored.txt
var embedded embed.FS

// Vendor is Droid's row of the table of vendors.
var Vendor = core.Vendor{
	Source: envelopes.Droid,
	Name:   "Droid",
	Reads:  "what `droid exec --output-format stream-json` prints",

	Recognize: marker,
	Session:   sessionOf,
	Time:      timeOf,

	Framing: core.Framing{IsDocument: isSettings, OneSession: true, SessionOfPath: sessionOfPath},

	Normalize: chat.Normalizer(tools, read),
	NewState:  chat.NewState,

	Checked: "0.187",

	Evidence: core.Evidence{
		Read:   []core.Basis{core.Fixtures, core.Code},
		Lacks:  []core.Fact{core.Subagents},
		Limits: "no log of a user was seen, and Droid's source is closed: rules come from fixtures and from other readers",
	},

	Logs: core.Logs{
		Home:    ".factory",
		About:   "folder of Droid; default ~/.factory",
		Folders: []core.LogFolder{{Dir: "sessions", Suffixes: []string{".jsonl", settings}}},
	},
	Files: embedded,
}

// settings is the suffix of the file beside a session that has its tokens.
const settings = ".settings.json"

// tools are the tools of Droid that other agents lack or use with another meaning.
var tools = map[string]core.Tool{"Execute": core.ToolShell, "Create": core.ToolWrite}

// marker recognizes a line of a session, a line that a run prints, and the settings of a session. A message that may
// be one of another agent with a tree of messages is recognized by its parts, which the others name otherwise.
func marker(s *core.Shape) string {
	kind := s.Text("type")
	switch {
	case isSettings(s):
		return "tokenUsage or assistantActiveTimeMs"
	case kind == "session_start" && (s.Has("id") && s.Has("cwd") || s.Text("session", "id") != "") && !s.Has("payload"):
		return "type session_start, id"
	case kind == "message" && s.Kind("message") == '{':
		return markerOfMessage(s)
	case kind == "todo_state" && s.Has("todos"), kind == "compaction_state" && s.Has("summaryText"):
		return "type " + kind
	case kind == "agent_turn_outcome" && s.Has("turnId") && s.Has("reason"):
		return "type agent_turn_outcome"
	case s.Text("session_id") == "" && s.Text("sessionId") == "":
		return ""
	case kind == "system" && s.Has("reasoning_effort"):
		return "type system, reasoning_effort"
	case kind == "message" && s.Text("role") != "" && s.Kind("text") == '"':
		return "type message, role, text"
	case kind == "tool_call" && s.Has("toolName") && s.Has("parameters"), kind == "tool_result" && s.Has("toolId"):
		return "type " + kind + ", toolName or toolId"
	case kind == "completion" && s.Has("finalText"):
		return "type completion, finalText"
	case kind == "error" && s.Text("source") == "cli":
		return "type error, source cli"
	default:
		return ""
	}
}

// markerOfMessage recognizes a message of a session by a call or result in it.
func markerOfMessage(s *core.Shape) string {
	if s.Text("id") == "" || s.Text("timestamp") == "" || s.Text("message", "role") == "" {
		return ""
	}
	for _, v := range lenient.Elements(s.Value("message", "content")) {
		var p part
		if lenient.ReadObject(v, &p); p.Type == "tool_use" || p.Type == "tool_result" {
			return "type message, message.content of type " + string(p.Type)
		}
	}
	return ""
}

// isSettings reports whether a record is the settings of a session, which Droid rewrites.
func isSettings(s *core.Shape) bool {
	return !s.Has("type") && (s.Kind("assistantActiveTimeMs") == '0' || s.Kind("tokenUsage", "inputTokens") == '0' ||
		s.Has("providerLock") && s.Has("autonomyMode"))
}

// sessionOf returns the session stated in a record.
func sessionOf(s *core.Shape) string {
	if s.Text("type") != "session_start" {
		return s.Session()
	}
	if id := s.Text("session", "id"); id != "" { // of old versions
		return id
	}
	return s.Text("id")
}

// timeOf returns the time stated in a record: text in a session, text or milliseconds in a run.
func timeOf(s *core.Shape) time.Time {
	if t, ok := core.MomentOfMillis(s.Number("timestamp")); ok {
		return t
	}
	return s.Time([]string{"timestamp"})
}

// sessionOfPath returns the session of settings, which is the name of the file.
func sessionOfPath(file string) string {
	if name, ok := strings.CutSuffix(path.Base(file), settings); ok {
		return name
	}
	return ""
}
