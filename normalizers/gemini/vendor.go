package gemini

import (
	"embed"
	"slices"
	"time"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

//go:embed all:samples
var samples embed.FS

// Vendor is Gemini CLI's row of the table of vendors.
var Vendor = core.Vendor{
	Source: envelopes.Gemini,
	Name:   "Gemini CLI",
	Reads:  "`gemini --output-format stream-json` and `json`",

	Recognize: isGemini,
	Session:   sessionOf,
	Time:      timeOf,

	Framing: core.Framing{
		IsDocument: isDocument,
		IsList:     func(s *core.Shape) bool { return s.First != nil && isPrompt(s.First) },
		IsWhole:    isGemini,
	},

	Normalize: normalize,
	NewState:  func() core.State { return &state{} },

	Checked: "0.56.0",

	Logs: core.Logs{
		Env:     "GEMINI_CLI_HOME",
		About:   "folder that holds the .gemini of Gemini CLI; default ~",
		Folders: []core.LogFolder{{Dir: ".gemini/tmp", Suffixes: []string{".json", ".jsonl"}}},
	},
	Samples: samples,
}

// state is what a session of Gemini CLI remembers beyond what all vendors do.
type state struct {
	Agent    string                        `json:"agent,omitzero"` // of the file of a subagent
	Stated   core.Window[core.StatedValue] `json:"stated,omitzero"`
	Document core.DocumentHead             `json:"doc,omitzero"`
	Deltas   deltas                        `json:"delta,omitzero"`
}

// stateOf returns what the session remembers of Gemini CLI.
func stateOf(s *core.Session) *state { return s.State.(*state) }

// Clone implements [core.State].
func (s *state) Clone() core.State { c := *s; return &c }

// Size implements [core.State].
func (s *state) Size() int {
	return len(s.Agent) + 48*len(s.Stated) + len(s.Deltas.Text) + len(s.Deltas.From.Raw)
}

// Shrink implements [core.State]: stated values and pending deltas go at once.
func (s *state) Shrink() bool {
	if len(s.Stated) == 0 && s.Deltas.Text == "" {
		return false
	}
	s.Stated, s.Deltas = nil, deltas{}
	return true
}

// isGemini recognizes a line of a session's file, the document that older versions kept, a
// list of typed prompts, a saved conversation, and the output of a run.
func isGemini(s *core.Shape) bool {
	if s.First != nil {
		return isPrompt(s.First) || isContent(s.First)
	}
	kind := s.Text("type")
	switch {
	case isPrompt(s), kind == "" && (s.Kind("$set") == '{' || s.Text("$rewindTo") != ""):
		return true
	case s.Has("projectHash"), s.Kind("messages") == '[':
		return s.Text("sessionId") != "" && kind == ""
	case s.Kind("history") == '[':
		return kind == "" && s.Session() == ""
	}
	switch kind {
	case "":
		return s.Kind("stats") == '{' && (s.Kind("response") == '"' || s.Text("session_id") != "")
	case "init":
		return s.Text("session_id") != "" && s.Text("model") != "" && s.Text("timestamp") != ""
	case "tool_use", "tool_result":
		return s.Text("tool_id") != ""
	case "gemini":
		return s.Text("id") != ""
	case "user", "info", "warning", "error":
		return s.Text("id") != "" && s.Text("timestamp") != "" && s.Kind("content") != 0 && s.Text("sessionId") == "" && s.Text("uuid") == ""
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
	return s.Text("type") == "" && (role == "user" || role == "model") && s.Kind("parts") == '[' && !isForeign(s)
}

// isForeign reports whether the parts of a message are of another protocol whose messages
// look alike: its parts name their content.
func isForeign(s *core.Shape) bool {
	for _, part := range lenient.Elements(s.Value("parts")) {
		for _, m := range lenient.ObjectMembers(part) {
			if slices.Contains([]string{"content_type", "content", "content_url", "metadata"}, m.Name) {
				return true
			}
		}
	}
	return false
}

// isDocument recognizes a whole file that Gemini CLI rewrites in place.
func isDocument(s *core.Shape) bool {
	return isGemini(s) && (s.First != nil || s.Kind("messages") == '[' || s.Kind("history") == '[')
}

// sessionOf returns the session that a record states.
func sessionOf(s *core.Shape) string {
	if s.Text("sessionId") == "" {
		if id := s.Text("$set", "sessionId"); id != "" {
			return id
		}
	}
	return s.Session()
}

// timeOf returns the time that a record states.
func timeOf(s *core.Shape) time.Time {
	return s.Time([]string{"timestamp"}, []string{"startTime"}, []string{"$set", "lastUpdated"})
}
