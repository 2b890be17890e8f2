package qwen

import (
	"embed"
	"strings"

	"tributary/envelopes"
	"tributary/normalizers/chat"
	"tributary/normalizers/core"
)

//go:embed all:samples ignored.txt
var embedded embed.FS

// Vendor is Qwen Code's row of the table of vendors.
var Vendor = core.Vendor{
	Source: envelopes.Qwen,
	Name:   "Qwen Code",

	Recognize: marker,
	Session:   core.TextAt("sessionId"),
	Time:      core.TimeAt("timestamp"),

	Normalize: chat.Normalizer(tools, read),
	NewState:  chat.NewState,

	Checked: "0.21.13",
	Version: func(s *core.Session) string { return s.TextExtension("version") },

	Evidence: core.Evidence{
		Versions: "0.15.10 to 0.24.4",
		Read:     []core.Basis{core.RealLogs, core.Fixtures, core.Code},
		Limits:   "what a run prints; chats before 0.4; managed sessions; calls that only `ui_telemetry` states",
	},

	Telemetry: &core.Telemetry{
		Services: []string{service},
		Scopes:   []string{service},
		Sessions: []string{"session.id", "gen_ai.conversation.id"},
	},

	Logs: core.Logs{
		Env:     "QWEN_HOME",
		Home:    ".qwen",
		About:   "folder of Qwen Code; default ~/.qwen",
		Folders: []core.LogFolder{{Dir: "projects", Suffixes: []string{".jsonl"}}},
	},
	Files: embedded,
}

// service is the name under which Qwen Code exports, and the prefix of its events.
const service = "qwen-code"

// tools are the tools of Qwen Code that other agents lack.
var tools = map[string]core.Tool{"notebook_edit": core.ToolModify, "lsp": core.ToolSearch}

// marker recognizes a record by what Qwen Code puts into the envelope that Claude Code has, too.
func marker(s *core.Shape) string {
	if s.Text("uuid") == "" || s.Text("sessionId") == "" {
		return ""
	}
	for _, path := range []string{"message.parts", "systemPayload", "toolCallResult", "usageMetadata", "provenance"} {
		if s.Has(strings.Split(path, ".")...) {
			return "uuid, sessionId, " + path
		}
	}
	return ""
}
