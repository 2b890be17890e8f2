package kimi

import (
	"embed"
	"math"
	"path"
	"regexp"
	"strings"
	"time"

	"tributary/envelopes"
	"tributary/normalizers/chat"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

//go:embed all:samples ignored.txt
var embedded embed.FS

// Vendor is Kimi's row of the table of vendors.
var Vendor = core.Vendor{
	Source: envelopes.Kimi,
	Name:   "Kimi",

	Recognize: marker,
	Session:   func(*core.Shape) string { return "" },
	Time:      timeOf,

	Framing: core.Framing{SessionOfPath: sessionOfPath},

	Normalize: chat.Normalizer(tools, read),
	NewState:  chat.NewState,

	Checked: "2.1",

	Evidence: core.Evidence{
		Versions: "protocol 1.4",
		Read:     []core.Basis{core.RealLogs, core.Code},
		Limits:   "titles, which a file beside the log states; kimi-cli and protocol 1.5 were read in the source alone",
	},

	Logs: core.Logs{
		Env:   "KIMI_CODE_HOME",
		Home:  ".kimi-code",
		About: "folder of Kimi Code; default ~/.kimi-code",
		Folders: []core.LogFolder{
			{Dir: "sessions", Suffixes: []string{journal}},
			{Dir: "../.kimi/sessions", Suffixes: []string{journal}}, // of kimi-cli
		},
	},
	Files: embedded,
}

// journal is the name of all logs.
const journal = "wire.jsonl"

// tools are the tools of both programs that other agents lack or use with another meaning.
var tools = map[string]core.Tool{
	"ReadMediaFile":  core.ToolRead,
	"StrReplaceFile": core.ToolModify,
	"WriteFile":      core.ToolWrite,
}

// marker recognizes a line of either program, and of the context that kimi-cli keeps beside its journal.
func marker(s *core.Shape) string {
	kind := s.Text("type")
	switch {
	case kind == "metadata" && s.Has("protocol_version"):
		return "type metadata, protocol_version"
	case strings.Contains(kind, ".") && s.Kind("time") == '0' && !s.Has("properties"):
		return "type with a dot, time"
	case kind == "" && s.Kind("timestamp") == '0' && s.Text("message", "type") != "" && s.Kind("message", "payload") == '{':
		return "message.type, message.payload"
	}
	switch role := s.Text("role"); role {
	case "_system_prompt", "_checkpoint", "_usage":
		return "role " + role
	default:
		return ""
	}
}

// timeOf returns the time stated in a record.
func timeOf(s *core.Shape) time.Time {
	for _, n := range []lenient.Number{s.Number("time"), s.Number("created_at"), millis(s.Number("timestamp"))} {
		if t, ok := core.MomentOfMillis(n); ok {
			return t
		}
	}
	return time.Time{}
}

// millis converts the seconds of kimi-cli.
func millis(seconds lenient.Number) lenient.Number {
	seconds.Value = math.Round(seconds.Value * 1000)
	return seconds
}

// sessionOfPath returns the session of a journal: the name of its folder, and behind a dot that of the subagent.
//
//	<session>/agents/main/wire.jsonl  <session>/agents/<agent>/wire.jsonl       of Kimi Code
//	<session>/wire.jsonl              <session>/subagents/<agent>/wire.jsonl    of kimi-cli
func sessionOfPath(file string) string {
	folder, name := path.Split(file)
	if name != journal {
		return ""
	}
	above, last := path.Split(path.Clean(folder))
	switch above, kind := path.Split(path.Clean(above)); {
	case kind != "agents" && kind != "subagents":
		return strings.Trim(last, "./")
	case last == mainAgent:
		return path.Base(above)
	default:
		return path.Base(above) + "." + last
	}
}

// mainAgent is the name of the agent that the human talks to.
const mainAgent = "main"

// named matches a session that a path shows, with its subagent.
var named = regexp.MustCompile(`^((?:session_)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:\.(.+))?$`)

// placeOf returns the id that resumes a session and its subagent, as far as its path showed them.
func placeOf(session string) (resume string, agent lenient.Text) {
	if found := named.FindStringSubmatch(session); found != nil {
		return found[1], lenient.Text(found[2])
	}
	return "", ""
}
