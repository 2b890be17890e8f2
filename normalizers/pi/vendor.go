package pi

import (
	"embed"

	"tributary/envelopes"
	"tributary/normalizers/chat"
	"tributary/normalizers/core"
)

//go:embed all:samples ignored.txt
var embedded embed.FS

// Vendor is Pi's row of the table of vendors.
var Vendor = core.Vendor{
	Source: envelopes.Pi,
	Name:   "Pi",
	Reads:  "what `pi --mode json` prints",

	Recognize: marker,
	Session:   SessionOf,
	Time:      core.TimeAt("timestamp"),

	Framing: core.Framing{OneSession: true, IsShared: isShared},

	Normalize: Normalizer(tools, &dialect),
	NewState:  chat.NewState,

	Checked: "1.6",
	Evidence: core.Evidence{
		Read:   []core.Basis{core.RealLogs, core.Code},
		Lacks:  []core.Fact{core.Subagents},
		Limits: "sessions of subagents, which extensions run",
	},

	Logs: core.Logs{
		Env:     "PI_CODING_AGENT_DIR",
		Home:    ".pi/agent",
		About:   "folder of Pi; default ~/.pi/agent",
		Folders: []core.LogFolder{{Dir: "sessions", Suffixes: []string{".jsonl"}}},
	},
	Files: embedded,
}

// marker recognizes the first line of a session and any entry of its tree, except a message that may be Droid's.
func marker(s *core.Shape) string {
	switch kind := s.Text("type"); kind {
	case "session":
		if s.Text("id") != "" && s.Text("timestamp") != "" && s.Kind("cwd") == '"' && !s.Has("data") {
			return "type session, id, cwd"
		}
	case "message":
		if !isEntry(s) {
			return ""
		}
		for _, name := range []string{"timestamp", "provider", "stopReason", "toolCallId"} {
			if s.Has("message", name) {
				return "type message, parentId, message." + name
			}
		}
	case "message_start", "message_update", "message_end":
		if s.Text("message", "role") != "" && s.Kind("message", "timestamp") == '0' {
			return "type " + kind + ", message.role"
		}
	case "model_change", "thinking_level_change", "compaction", "branch_summary", "custom", "custom_message", "label",
		"session_info", "usage", "context_edit":
		if isEntry(s) {
			return "type " + kind + ", parentId"
		}
	}
	return ""
}

// isShared reports whether a record stands before the first answer: until then the file may be one of OpenClaw.
func isShared(s *core.Shape) bool {
	switch s.Text("type") {
	case "message":
		role := s.Text("message", "role")
		return role == "user" || role == "system"
	case "session", "model_change", "thinking_level_change", "custom", "custom_message", "label", "session_info":
		return true
	default:
		return false
	}
}

// isEntry reports whether a record is an entry of a tree of messages.
func isEntry(s *core.Shape) bool {
	return s.Text("id") != "" && s.Text("timestamp") != "" && s.Kind("parentId") != 0
}

// SessionOf returns the session, which only the first line of a file states.
func SessionOf(s *core.Shape) string {
	if s.Text("type") == "session" {
		return s.Text("id")
	}
	return ""
}
