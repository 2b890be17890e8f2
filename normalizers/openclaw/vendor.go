// Package openclaw is the row of OpenClaw, which is built on Pi and writes its log: package pi normalizes it.
package openclaw

import (
	"embed"
	"strings"

	"tributary/envelopes"
	"tributary/normalizers/chat"
	"tributary/normalizers/core"
	"tributary/normalizers/pi"
)

//go:embed all:samples
var samples embed.FS

//go:embed ignored.txt
var ignored string

// Vendor is OpenClaw's row of the table of vendors.
var Vendor = core.Vendor{
	Source: envelopes.OpenClaw,
	Name:   "OpenClaw",

	Recognize: marker,
	Session:   pi.SessionOf,
	Time:      pi.TimeOf,

	Framing: core.Framing{OneSession: true},
	LogOf:   envelopes.Pi,

	Normalize: pi.Normalize,
	NewState:  chat.NewState,

	Checked: "2026.3",
	Ignored: ignored,
	Evidence: core.Evidence{
		Read:   []core.Basis{core.Fixtures, core.Code},
		Lacks:  []core.Fact{core.Subagents},
		Limits: "its databases",
	},

	Logs: core.Logs{
		Env:     "OPENCLAW_STATE_DIR",
		Home:    ".openclaw",
		About:   "folder of OpenClaw; default ~/.openclaw",
		Folders: []core.LogFolder{{Dir: "agents", Suffixes: []string{".jsonl"}, Within: "sessions"}},
	},
	Samples: samples,
}

// marker recognizes an entry that only OpenClaw adds to the log of Pi, and a session in its folder.
func marker(s *core.Shape) string {
	switch {
	case strings.HasPrefix(s.Text("customType"), "openclaw"):
		return "customType openclaw"
	case s.Text("type") == "session" && strings.Contains(s.Text("cwd"), "/.openclaw/"):
		return "cwd in .openclaw"
	default:
		return ""
	}
}
