package vibe

import (
	"embed"
	"time"

	"tributary/envelopes"
	"tributary/normalizers/chat"
	"tributary/normalizers/core"
)

//go:embed all:samples ignored.txt
var embedded embed.FS

// Vendor is Mistral Vibe's row of the table of vendors.
var Vendor = core.Vendor{
	Source: envelopes.Vibe,
	Name:   "Mistral Vibe",

	Recognize: marker,
	Session:   core.TextAt("metadata", "session_id"),
	Time:      timeOf,

	Framing: core.Framing{
		OneSession:  true,
		IsDocument:  func(s *core.Shape) bool { return isMeta(s) || isSaved(s) },
		FolderNamed: []string{"messages", "meta"},
	},

	Normalize: chat.Normalizer(nil, read),
	NewState:  chat.NewState,

	Checked: "2.19",
	Evidence: core.Evidence{
		Versions: "2.19",
		Read:     []core.Basis{core.RealLogs, core.Code},
	},

	Logs: core.Logs{
		Env:     "VIBE_HOME",
		Home:    ".vibe",
		About:   "folder of Mistral Vibe; default ~/.vibe",
		Folders: []core.LogFolder{{Dir: "logs/session", Suffixes: []string{".jsonl", ".json"}}},
	},
	Files: embedded,
}

// marker recognizes a message, the state of a session, and a session of older versions. Messages of other agents lack
// injected.
func marker(s *core.Shape) string {
	injected := s.Kind("injected")
	switch role := s.Text("role"); {
	case isMeta(s):
		return "session_id, environment, git_commit"
	case isSaved(s):
		return "metadata.session_id, messages"
	case role != "user" && role != "assistant" && role != "tool":
		return ""
	case s.Text("reasoning_message_id") != "":
		return "reasoning_message_id"
	case (injected == 't' || injected == 'f') && (s.Text("message_id") != "" || s.Text("tool_call_id") != ""):
		return "role, injected"
	default:
		return ""
	}
}

// isMeta recognizes the state of a session, which is rewritten after each turn.
func isMeta(s *core.Shape) bool {
	return s.Text("session_id") != "" && s.Kind("environment") == '{' && s.Kind("git_commit") != 0
}

// isSaved recognizes a session of versions before 2.0, which was one document.
func isSaved(s *core.Shape) bool {
	return s.Text("metadata", "session_id") != "" && s.Kind("messages") == '['
}

// timeOf returns the time stated in a record; messages state none.
func timeOf(s *core.Shape) time.Time {
	return s.Time([]string{"end_time"}, []string{"start_time"}, []string{"metadata", "end_time"}, []string{"metadata", "start_time"})
}
