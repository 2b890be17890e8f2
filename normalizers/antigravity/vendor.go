package antigravity

import (
	"embed"
	"path"
	"strings"
	"time"

	"tributary/envelopes"
	"tributary/normalizers/chat"
	"tributary/normalizers/core"
)

//go:embed all:samples ignored.txt
var embedded embed.FS

// Vendor is Antigravity's row of the table of vendors.
var Vendor = core.Vendor{
	Source: envelopes.Antigravity,
	Name:   "Antigravity",

	Recognize: marker,
	Session:   func(*core.Shape) string { return "" },
	Time: func(s *core.Shape) time.Time {
		return s.Time([]string{"created_at"}, []string{"row", "data", "started_at"})
	},

	Framing: core.Framing{SessionOfPath: sessionOfPath},

	Normalize: chat.Normalizer(tools, read),
	NewState:  chat.NewState,

	Checked: "1.1.16",
	Evidence: core.Evidence{
		Read:   []core.Basis{core.RealLogs, core.Fixtures},
		Lacks:  []core.Fact{core.Subagents},
		Limits: "of the databases of conversations all but tokens; tokens of titles; the output of a task in the background",
	},

	Logs: core.Logs{
		Home: ".gemini",
		Folders: []core.LogFolder{
			transcripts("antigravity-cli/brain"), transcripts("antigravity/brain"), transcripts("antigravity-ide/brain"),
		},
	},
	Database: &database,
	Files:    embedded,
}

// The transcripts of a conversation. Older versions have the shortened one alone.
const (
	shortened = "transcript.jsonl"
	full      = "transcript_full.jsonl"
)

// transcripts returns the transcripts below a folder.
func transcripts(dir string) core.LogFolder {
	return core.LogFolder{Dir: dir, Suffixes: []string{shortened, full}, Full: full, Within: ".system_generated"}
}

// sessionOfPath returns the conversation in whose folder a transcript, or a part of one, lies.
func sessionOfPath(file string) string {
	if folder, _, ok := strings.Cut(file, "/.system_generated/logs/"); ok {
		return path.Base(folder)
	}
	return ""
}

// marker recognizes a step of a conversation, and a row of its database.
func marker(s *core.Shape) string {
	if isRow(s) {
		return "table gen_metadata, data"
	}
	if s.Kind("step_index") == '0' && s.Text("source") != "" && s.Text("type") != "" {
		return "step_index, source, type"
	}
	return ""
}
