package cline

import (
	"embed"
	"io/fs"
	"strings"
	"time"

	"tributary/envelopes"
	"tributary/normalizers/chat"
	"tributary/normalizers/core"
)

//go:embed all:samples ignored.txt
var embedded embed.FS

// Vendor is Cline's row of the table of vendors.
var Vendor = core.Vendor{
	Source: envelopes.Cline,
	Name:   "Cline",

	Recognize: marker,
	Session:   sessionOf,
	Time:      timeOf,

	Framing: framing,

	Normalize: normalize,
	NewState:  chat.NewState,

	Checked: "4.1",

	Evidence: core.Evidence{
		Read:   []core.Basis{core.RealLogs, core.Fixtures, core.Code},
		Limits: "the folder and start of a session that only its manifest states",
	},

	Logs: core.Logs{
		Env:   "CLINE_HOME",
		About: "folder that holds the .cline of Cline and the settings of its editor; default ~",
		Folders: []core.LogFolder{
			tasksOf("saoudrizwan.claude-dev"),
			{Dir: ".cline/data/tasks", Suffixes: files},
			{Dir: ".cline/data/sessions", Suffixes: []string{".messages.json"}},
		},
	},
	Files: embedded,
}

// Extension is an extension of an editor that is built on Cline and writes its files.
type Extension struct {
	Source  envelopes.Source
	Name    string
	ID      string // in the editor
	Checked string
	Limits  string
	Files   fs.FS
}

// Vendor returns the extension's row of the table of vendors.
func (x Extension) Vendor() core.Vendor {
	return core.Vendor{
		Source: x.Source,
		Name:   x.Name,

		Recognize: func(*core.Shape) string { return "" }, // only the folder of a file distinguishes it from one of Cline
		Session:   sessionOf,
		Time:      timeOf,

		Framing: framing,
		LogOf:   []envelopes.Source{envelopes.Cline},

		Normalize: normalize,
		NewState:  chat.NewState,

		Checked: x.Checked,

		Evidence: core.Evidence{
			Read:   []core.Basis{core.Code},
			Lacks:  []core.Fact{core.Subagents},
			Limits: x.Limits,
		},

		Logs: core.Logs{
			Env:     strings.ToUpper(strings.ReplaceAll(x.Name, " ", "_")) + "_HOME",
			About:   "folder that holds the settings of the editor with " + x.Name + "; default ~",
			Folders: []core.LogFolder{tasksOf(x.ID)},
		},
		Files: x.Files,
	}
}

// framing is that of the files of a task.
var framing = core.Framing{
	IsDocument:  func(s *core.Shape) bool { return s.Array || s.Kind("messages") == '[' },
	OneSession:  true,
	FolderNamed: []string{"ui_messages", "api_conversation_history"},
}

// files are the two files of a task.
var files = []string{"ui_messages.json", "api_conversation_history.json"}

// tasksOf returns the folder of the tasks of an extension.
func tasksOf(extension string) core.LogFolder {
	return core.LogFolder{Dir: "globalStorage/" + extension + "/tasks", Suffixes: files, Editor: true}
}

// marker recognizes the messages of a task, shown to the human or sent to the model, and the document of a session.
func marker(s *core.Shape) string {
	if s.Kind("messages") == '[' && s.Text("sessionId") != "" && s.Text("updated_at") != "" && s.Text("agent") != "" {
		return "sessionId, agent, updated_at, messages"
	}
	if s = s.First; s == nil {
		return ""
	}
	kind, role := s.Text("type"), s.Text("role")
	isTimed := s.Kind("ts") == '0' || s.Kind("timestamp") == '0'
	isSpeaker := func(name string) bool { return name == "user" || name == "assistant" }
	switch {
	case (kind == "say" || kind == "ask") && s.Kind("ts") == '0':
		return "type say or ask, ts"
	case isTimed && kind == "" && isSpeaker(role) && s.Has("content"):
		return "role, content, ts or timestamp"
	case isTimed && isSpeaker(kind) && s.Text("text") != "":
		return "type, text, timestamp"
	case role == "user" && kind == "":
		for _, b := range chat.Blocks[block](s.Value("content")) {
			if text := string(b.Text); strings.HasPrefix(text, "<task>\n") || strings.HasPrefix(text, "<user_message>\n") {
				return "role, content of a task"
			}
		}
	}
	return ""
}

// sessionOf returns the session, which only the document of a session states.
func sessionOf(s *core.Shape) string { return s.Text("sessionId") }

// timeOf returns the time stated in a record: that of its first message.
func timeOf(s *core.Shape) time.Time {
	if s.First == nil {
		return s.Time([]string{"updated_at"})
	}
	for _, name := range []string{"ts", "timestamp"} {
		if t, ok := core.MomentOfMillis(s.First.Number(name)); ok {
			return t
		}
	}
	return time.Time{}
}
