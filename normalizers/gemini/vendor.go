package gemini

import (
	"embed"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

//go:embed all:samples ignored.txt
var embedded embed.FS

// Vendor is Gemini CLI's row of the table of vendors.
var Vendor = core.Vendor{
	Source: envelopes.Gemini,
	Name:   "Gemini CLI",
	Reads:  "`gemini --output-format stream-json` and `json`",

	Recognize: marker,
	Session:   sessionOf,
	Time:      timeOf,

	Framing: core.Framing{
		IsDocument: isDocument,
		IsList:     func(s *core.Shape) bool { return s.First != nil && isPrompt(s.First) },
		IsWhole:    func(s *core.Shape) bool { return marker(s) != "" },
	},

	Normalize: normalize,
	NewState:  func() core.State { return &state{} },

	Checked: "0.56.0",
	Evidence: core.Evidence{
		Read:   []core.Basis{core.RealLogs, core.Code},
		Limits: "images and files",
	},

	Logs: core.Logs{
		Env:     "GEMINI_CLI_HOME",
		About:   "folder that holds the .gemini of Gemini CLI; default ~",
		Folders: []core.LogFolder{{Dir: ".gemini/tmp", Suffixes: []string{".json", ".jsonl"}}},
	},
	Telemetry: &core.Telemetry{
		Services:  []string{"gemini-cli"},
		Scopes:    []string{"gemini-cli"},
		Sessions:  []string{"session.id", "gen_ai.conversation.id"},
		SessionOf: sessionOfExport,
	},
	Files: embedded,
}

// state is what a session of Gemini CLI remembers beyond what all sessions do.
type state struct {
	Agent    string            `json:"agent,omitzero"` // for the file of a subagent
	Stated   core.Stated       `json:"stated,omitzero"`
	Document core.DocumentHead `json:"doc,omitzero"`
	Deltas   deltas            `json:"delta,omitzero"`

	HasContext bool `json:"context,omitzero"`   // a message began with the context of the session
	Rewriting  bool `json:"rewriting,omitzero"` // lines write the history again

	Balance core.Balance   `json:"sent,omitzero"`  // of the telemetry
	Asked   core.OpenCalls `json:"asked,omitzero"` // calls in exported answers, whose ends have no id
}

// stateOf returns the state of Gemini CLI in a session.
func stateOf(s *core.Session) *state { return s.State.(*state) }

// Clone implements [core.State].
func (s *state) Clone() core.State { c := *s; return &c }

// Size implements [core.State].
func (s *state) Size() int {
	return len(s.Agent) + 48*len(s.Stated) + len(s.Deltas.Text) + s.Deltas.From.Size() + s.Asked.Size()
}

// Shrink implements [core.State]. It drops stated values, pending deltas and asked calls at once.
func (s *state) Shrink() bool {
	if len(s.Stated)+len(s.Asked) == 0 && s.Deltas.Text == "" {
		return false
	}
	s.Stated, s.Deltas, s.Asked = nil, deltas{}, nil
	return true
}

// marker recognizes a line of a session's file, the document of older versions, a list of typed prompts, a saved
// conversation, and the output of a run.
func marker(s *core.Shape) string {
	kind := s.Text("type")
	switch {
	case s.First != nil && isPrompt(s.First), isPrompt(s):
		return "sessionId, messageId, message"
	case s.First != nil:
		if isContent(s.First) {
			return "role, parts"
		}
	case kind == "" && (s.Kind("$set") == '{' || s.Text("$rewindTo") != ""):
		return "$set or $rewindTo"
	case s.Has("projectHash"), s.Kind("messages") == '[':
		if kind == "" && s.Text("sessionId") != "" && (s.Has("projectHash") || firstHas(s.Value("messages"), "type")) {
			return "sessionId, projectHash or messages with a type"
		}
	case s.Kind("history") == '[':
		if kind == "" && s.Session() == "" && firstHas(s.Value("history"), "parts") {
			return "history of contents"
		}
	case kind == "" && s.Kind("stats") == '{' && (s.Kind("response") == '"' || s.Text("session_id") != ""):
		return "stats, response or session_id"
	case kind == "init" && s.Text("session_id") != "" && s.Text("model") != "" && s.Text("timestamp") != "":
		return "type init, session_id, model"
	case (kind == "tool_use" || kind == "tool_result") && s.Text("tool_id") != "":
		return "type " + kind + ", tool_id"
	case kind == "gemini" && s.Text("id") != "":
		return "type gemini, id"
	case isNotice(kind) && s.Text("id") != "" && s.Text("timestamp") != "" && s.Kind("content") != 0 && s.Text("sessionId") == "" && s.Text("uuid") == "":
		return "type " + kind + ", id, timestamp, content"
	}
	return ""
}

// isNotice reports whether lines of other programs have this type, too.
func isNotice(kind string) bool {
	switch kind {
	case "user", "info", "warning", "error":
		return true
	default:
		return false
	}
}

// isPrompt recognizes an entry of logs.json; its messageId is a number.
func isPrompt(s *core.Shape) bool {
	return s.Text("sessionId") != "" && s.Kind("message") == '"' && s.Text("type") == "user" && s.Text("messageId") == "" && s.Text("uuid") == ""
}

// isContent recognizes a message of a saved conversation.
func isContent(s *core.Shape) bool {
	role := s.Text("role")
	return s.Text("type") == "" && (role == "user" || role == "model") && s.Kind("parts") == '[' && !isForeign(s.Value("parts"))
}

// isForeign reports whether the parts of a message belong to another protocol with similar messages, whose parts name
// their content or their type.
func isForeign(parts jsontext.Value) bool {
	for _, part := range lenient.Elements(parts) {
		for _, m := range lenient.ObjectMembers(part) {
			if slices.Contains([]string{"content_type", "content", "content_url", "metadata", "type", "kind"}, m.Name) {
				return true
			}
		}
	}
	return false
}

// firstHas reports whether an array is empty, or its first element has a member with this name.
func firstHas(array jsontext.Value, name string) bool {
	elements := lenient.Elements(array)
	return len(elements) == 0 || slices.ContainsFunc(lenient.ObjectMembers(elements[0]), func(m lenient.Member) bool { return m.Name == name })
}

// isDocument recognizes a whole file that Gemini CLI rewrites in place.
func isDocument(s *core.Shape) bool {
	return marker(s) != "" && (s.First != nil || s.Kind("messages") == '[' || s.Kind("history") == '[')
}

// sessionOf returns the session stated in a record.
func sessionOf(s *core.Shape) string {
	if s.Text("sessionId") == "" {
		if id := s.Text("$set", "sessionId"); id != "" {
			return id
		}
	}
	return s.Session()
}

// timeOf returns the time stated in a record.
func timeOf(s *core.Shape) time.Time {
	return s.Time([]string{"timestamp"}, []string{"startTime"}, []string{"$set", "lastUpdated"})
}
