package cline

import (
	"embed"
	"strings"
	"time"

	"tributary/envelopes"
	"tributary/normalizers/chat"
	"tributary/normalizers/core"
)

//go:embed all:samples
var samples embed.FS

//go:embed ignored.txt
var ignored string

// Vendor is Cline's row of the table of vendors.
var Vendor = core.Vendor{
	Source: envelopes.Cline,
	Name:   "Cline",

	Recognize: marker,
	Session:   SessionOf,
	Time:      TimeOf,

	Framing: Framing,

	Normalize: Normalize,
	NewState:  chat.NewState,

	Checked: "4.1",
	Ignored: ignored,

	Evidence: core.Evidence{
		Read:   []core.Basis{core.Fixtures, core.Code},
		Limits: "the folder and start of a session that only its manifest states",
	},

	Logs: core.Logs{
		Env:   "CLINE_HOME",
		About: "folder that holds the .cline of Cline and the settings of its editor; default ~",
		Folders: []core.LogFolder{
			TasksOf("saoudrizwan.claude-dev"),
			{Dir: ".cline/data/tasks", Suffixes: files},
			{Dir: ".cline/data/sessions", Suffixes: []string{".messages.json"}},
		},
	},
	Samples: samples,
}

// Framing is that of the files of a task.
var Framing = core.Framing{
	IsDocument:  func(s *core.Shape) bool { return s.Array || s.Kind("messages") == '[' },
	OneSession:  true,
	FolderNamed: []string{"ui_messages", "api_conversation_history"},
}

// files are the two files of a task.
var files = []string{"ui_messages.json", "api_conversation_history.json"}

// TasksOf returns the folder of the tasks of an extension.
func TasksOf(extension string) core.LogFolder {
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

// SessionOf returns the session, which only the document of a session states.
func SessionOf(s *core.Shape) string { return s.Text("sessionId") }

// TimeOf returns the time stated in a record: that of its first message.
func TimeOf(s *core.Shape) time.Time {
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
