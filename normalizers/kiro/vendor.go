package kiro

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

// Vendor is Kiro CLI's row of the table of vendors.
var Vendor = core.Vendor{
	Source: envelopes.Kiro,
	Name:   "Kiro CLI",
	Reads:  "a conversation from the database of Amazon Q or Kiro CLI, as JSON",

	Recognize: marker,
	Session:   sessionOf,
	Time:      timeOf,

	Framing: core.Framing{
		OneSession:  true,
		IsDocument:  func(s *core.Shape) bool { return isState(s) || isConversation(s) || isSummary(s) },
		FolderNamed: []string{"messages"},
	},

	Normalize: chat.Normalizer(tools, read),
	NewState:  chat.NewState,

	Checked: "2.16",
	Evidence: core.Evidence{
		Versions: "2.5 to 2.16",
		Read:     []core.Basis{core.RealLogs, core.Fixtures, core.Code},
		Lacks:    []core.Fact{core.Subagents},
		Limits:   "`sub-executions/` of Kiro IDE, its sessions before `messages.jsonl` (`globalStorage/kiro.kiroagent`); which sessions are of subagents",
	},

	Logs: core.Logs{
		Env:   "KIRO_HOME",
		Home:  ".kiro",
		About: "folder of Kiro; default ~/.kiro",
		Folders: []core.LogFolder{
			{Dir: "sessions/cli", Suffixes: []string{".jsonl", ".json"}},
			{Dir: "sessions", Suffixes: []string{"messages.jsonl", "session.json"}}, // of Kiro IDE and the third engine
		},
	},
	Files: embedded,
}

// marker recognizes a line of a session, the state beside it, and a conversation of older versions.
func marker(s *core.Shape) string {
	switch {
	case s.Text("version") == "v1" && s.Text("kind") != "" && s.Kind("data") != 0:
		return "version v1, kind, data"
	case isState(s):
		return "session_id, cwd, session_state"
	case isConversation(s):
		return "conversation_id, history"
	case isEvent(s):
		return "id, timestamp, payload " + s.Text("payload", "type")
	case isSummary(s):
		return "schemaVersion, workspacePaths, lastModifiedAt"
	default:
		return ""
	}
}

// isState recognizes the state of a session, which is rewritten after each turn.
func isState(s *core.Shape) bool {
	return s.Kind("session_state") == '{' && s.Text("session_id") != "" && s.Kind("cwd") != 0
}

// isConversation recognizes a conversation of Amazon Q, which its database replaces after each turn.
func isConversation(s *core.Shape) bool {
	return s.Text("conversation_id") != "" && s.Kind("history") == '['
}

// sessionOf returns the session, which no line and no event of a session states, but a document does.
func sessionOf(s *core.Shape) string {
	switch {
	case isState(s):
		return s.Text("session_id")
	case isConversation(s):
		return s.Text("conversation_id")
	case isSummary(s):
		return s.Text("id")
	default:
		return ""
	}
}

// timeOf returns the time stated in a record: of a line only that of a prompt, in seconds.
func timeOf(s *core.Shape) time.Time {
	if v := s.Value("data", "meta", "timestamp"); s.Has("kind") && len(v) > 0 {
		t, _ := core.MomentOfMillis(lenient.NumberOf(v).Times(1000))
		return t
	}
	return s.Time([]string{"updated_at"}, []string{"timestamp"}, []string{"lastModifiedAt"})
}
