// Package openclaw has what OpenClaw, which is built on Pi, adds to the log of Pi: package pi normalizes the rest.
//
// Start with [Vendor], and with dialect, which package pi asks. README.md has the rules.
//
// The invariant: a record that Pi writes, too, gives the same events.
package openclaw

import (
	"embed"
	"slices"
	"strings"

	"tributary/envelopes"
	"tributary/normalizers/chat"
	"tributary/normalizers/core"
)

//go:embed all:samples ignored.txt
var embedded embed.FS

// Vendor is OpenClaw's row of the table of vendors.
var Vendor = core.Vendor{
	Source: envelopes.OpenClaw,
	Name:   "OpenClaw",

	Recognize: marker,
	Session:   sessionOf,
	Time:      timeOf,

	Framing: core.Framing{OneSession: true},
	LogOf:   []envelopes.Source{envelopes.Pi},

	Normalize: chat.Normalizer(tools, read),
	NewState:  chat.NewState,

	Checked: "2026.3",
	Evidence: core.Evidence{
		Read:   []core.Basis{core.Fixtures, core.Code},
		Lacks:  []core.Fact{core.Subagents},
		Limits: "no database of a user was seen; sessions that OpenClaw has moved to `sessions/cold`",
	},

	Logs: core.Logs{
		Env:   "OPENCLAW_STATE_DIR",
		Home:  ".openclaw",
		About: "folder of OpenClaw; default ~/.openclaw",
		Folders: []core.LogFolder{{
			Dir: "agents", Suffixes: []string{".jsonl"}, Within: "sessions",
			Archived: []string{".reset.", ".deleted."}, Beside: []string{".trajectory.jsonl"},
		}, {
			Dir: "agents", Prefix: "openclaw-agent", Suffixes: []string{".sqlite"}, Within: "agent",
		}},
	},
	Database: &database,
	Files:    embedded,
}

// roots are the folders of OpenClaw, also under its former names.
var roots = []string{".openclaw", ".clawdbot", ".moltbot", ".moldbot"}

// marker recognizes a row of the database, an entry that only OpenClaw adds to the log of Pi, what it adds to a message,
// and a session in its folder.
func marker(s *core.Shape) string {
	if isRow(s) {
		return "table transcript_events, event_json"
	}
	custom, role := s.Text("customType"), s.Text("message", "role")
	switch s.Text("type") {
	case "session":
		for part := range strings.FieldsFuncSeq(s.Text("cwd"), func(c rune) bool { return c == '/' || c == '\\' }) {
			if slices.Contains(roots, part) {
				return "cwd in " + part
			}
		}
	case "custom", "custom_message":
		if strings.HasPrefix(custom, "openclaw") || custom == "model-snapshot" {
			return "customType openclaw or model-snapshot"
		}
	case "model_change":
		if strings.HasPrefix(s.Text("provider"), "openclaw") {
			return "type model_change, provider openclaw"
		}
	case "message":
		switch {
		case role == "user" && s.Text("message", "provenance", "kind") != "":
			return "message.provenance.kind"
		case role == "assistant" && strings.HasPrefix(s.Text("message", "provider"), "openclaw"):
			return "message.provider openclaw"
		}
	}
	return ""
}
