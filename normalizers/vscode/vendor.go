package vscode

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

// Vendor is the row of the chat of VS Code in the table of vendors.
var Vendor = core.Vendor{
	Source: envelopes.VSCodeCopilot,
	Name:   "VS Code Copilot",
	Reads:  "a chat that VS Code has exported, and what its agent exports by OpenTelemetry",

	Recognize: marker,
	Session:   sessionOf,
	Time:      timeOf,

	Framing: core.Framing{IsDocument: isDocument, OneSession: true},

	Normalize: chat.Normalizer(tools, read),
	NewState:  func() core.State { return &state{} },

	Checked: "1.132",
	Evidence: core.Evidence{
		Read: []core.Basis{core.Fixtures, core.Code},
		Limits: "edits of the editor that no call made, attachments, the folder of a workspace that no answer states; " +
			"input tokens are those of the last API call of a request, unless `modelTotals` states all",
	},

	Logs: core.Logs{
		Env:   "VSCODE_COPILOT_HOME",
		About: "folder that holds the settings of VS Code; default ~",
		Folders: []core.LogFolder{
			{Dir: "workspaceStorage", Within: "chatSessions", Suffixes: suffixes, Editor: true},
			{Dir: "globalStorage/emptyWindowChatSessions", Suffixes: suffixes, Editor: true},
		},
	},
	Telemetry: &core.Telemetry{
		Services: []string{service},
		Sessions: []string{parentChat, ownChat, conversation},
	},
	Files: embedded,
}

// suffixes are those of the document of a session, and of its journal.
var suffixes = []string{".json", ".jsonl"}

// marker recognizes the document of a session, and an entry of its journal.
func marker(s *core.Shape) string {
	switch {
	case isDocument(s):
		return "requests, responderUsername"
	case s.Kind("kind") == '0' && s.Kind("v", "requests") == '[':
		return "kind, v.requests"
	case s.Kind("kind") == '0' && s.Kind("k") == '[' && (s.Has("v") || s.Has("i") || s.Number("kind").Value == kindDelete):
		return "kind, k, v"
	default:
		return ""
	}
}

// isDocument recognizes the document of a session, which is rewritten as it grows.
func isDocument(s *core.Shape) bool {
	return s.Kind("requests") == '[' && s.Kind("responderUsername") == '"'
}

// sessionOf returns the session that a document or the first entry of a journal states.
func sessionOf(s *core.Shape) string {
	if isDocument(s) {
		return s.Text("sessionId")
	}
	if s.Kind("v", "requests") == '[' {
		return s.Text("v", "sessionId")
	}
	return ""
}

// timeOf returns the time at which a session began, as stated.
func timeOf(s *core.Shape) time.Time {
	created := s.Value("creationDate")
	if created == nil {
		created = s.Value("v", "creationDate")
	}
	t, _ := core.MomentOfMillis(lenient.NumberOf(created))
	return t
}
