package copilot

import (
	"embed"
	"slices"
	"strings"
	"time"

	"tributary/envelopes"
	"tributary/normalizers/core"
)

//go:embed all:samples ignored.txt
var embedded embed.FS

// Vendor is Copilot CLI's row of the table of vendors.
var Vendor = core.Vendor{
	Source: envelopes.Copilot,
	Name:   "Copilot CLI",
	Reads: "what `copilot -p --output-format json` prints, and what it prints as plain text: " +
		"`copilot -p \"...\" --log-dir logs | tributary ship --source copilot --copilot-logs logs -`; what it exports by OpenTelemetry",

	Recognize: marker,
	Session:   sessionOf,
	Time:      func(s *core.Shape) time.Time { return s.Time([]string{"timestamp"}, []string{"startTime"}) },

	Framing: core.Framing{
		IsDocument: isDocument,
		IsWhole:    func(s *core.Shape) bool { return marker(s) != "" },
		PrintedText: &core.PrintedText{
			Session:      sessionOfLine,
			Line:         lineOfSession,
			SessionOfLog: sessionOfLog,
			Flag:         "copilot-logs",
		},
		FolderNamed: []string{"events"},
	},

	Normalize: normalize,
	NewState:  func() core.State { return &state{} },

	Checked: "1.0.95",
	Evidence: core.Evidence{
		Versions: "0.0.34 to 1.0.102",
		Read:     []core.Basis{core.RealLogs, core.Code},
		Limits:   "encrypted reasoning",
	},
	Version: func(s *core.Session) string { return stateOf(s).Version },

	Logs: core.Logs{
		Env:   "COPILOT_HOME",
		Home:  ".copilot",
		About: "folder of Copilot CLI; default ~/.copilot",
		Folders: []core.LogFolder{
			{Dir: "session-state", Suffixes: []string{".jsonl"}},
			{Dir: "history-session-state", Suffixes: []string{".json"}}, // of old versions
		},
	},
	Telemetry: &core.Telemetry{
		Services: []string{"github-copilot"},
		Scopes:   []string{"github.copilot"},
		Sessions: []string{"gen_ai.conversation.id"},
	},
	Files: embedded,
}

// state is what a session of Copilot CLI remembers beyond what all sessions do.
type state struct {
	Text      core.Fingerprint              `json:"text,omitzero"`    // file whose lines are plain text
	Open      openText                      `json:"open,omitzero"`    // text being joined
	Prompts   core.Window[core.Fingerprint] `json:"prompts,omitzero"` // emitted system prompts
	Started   core.Window[core.Fingerprint] `json:"started,omitzero"` // calls emitted by their start that no message has requested yet
	Reasoning lastReasoning                 `json:"thought,omitzero"`
	Document  core.DocumentHead             `json:"doc,omitzero"` // leading entries of the document
	accounts
	Asked       core.Window[asked] `json:"asked,omitzero"` // requested but undecided permissions
	Permissions permissions        `json:"perm,omitzero"`  // of the telemetry
	Version     string             `json:"cli,omitzero"`   // of Copilot CLI
}

// stateOf returns the state of Copilot CLI in a session.
func stateOf(s *core.Session) *state { return s.State.(*state) }

// Clone implements [core.State].
func (s *state) Clone() core.State { c := *s; return &c }

// Size implements [core.State].
func (s *state) Size() int {
	n := 256 + 12*(len(s.Prompts)+len(s.Started)) + s.Open.size() + s.Permissions.size() + len(s.Version)
	for _, a := range s.Asked {
		n += 48 + len(a.Call)
	}
	for _, b := range slices.Concat(s.All.Models, s.Run.Models) {
		n += 96 + len(b.Model)
	}
	return n
}

// Shrink implements [core.State]. It drops everything at once.
func (s *state) Shrink() bool {
	if s.Size() == (&state{}).Size() {
		return false
	}
	*s = state{}
	return true
}

// marker recognizes a line of events.jsonl, or the document of older versions. All types of events but one have a
// dot, which distinguishes them from other logs that form a tree by parentId.
func marker(s *core.Shape) string {
	kind := s.Text("type")
	switch {
	case isDocument(s):
		return "sessionId, timeline or chatMessages"
	case s.Kind("data") != '{' || s.Text("timestamp") == "":
		return ""
	case s.Kind("parentId") != 0:
		if s.Text("id") != "" && (strings.Contains(kind, ".") || kind == "abort") {
			return "type with a dot, data, id, parentId"
		}
	case kind == "session.start", kind == "user.message", kind == "assistant.message": // some tools that keep logs omit the ids
		return "type " + kind + ", data"
	}
	return ""
}

// isDocument recognizes the document of older versions.
func isDocument(s *core.Shape) bool {
	return s.Text("type") == "" && s.Text("sessionId") != "" && (s.Kind("timeline") == '[' || s.Kind("chatMessages") == '[')
}

// sessionOf returns the session stated in a record; empty for none.
func sessionOf(s *core.Shape) string {
	kind := s.Text("type")
	if s.Text("sessionId") == "" && s.Kind("data") == '{' && (kind == "session.start" || kind == "") {
		if id := s.Text("data", "sessionId"); id != "" {
			return id
		}
		return s.Text("data", "session_id")
	}
	return s.Session()
}
