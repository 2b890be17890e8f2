package grok

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

// Vendor is Grok Build's row of the table of vendors.
var Vendor = core.Vendor{
	Source: envelopes.Grok,
	Name:   "Grok Build",

	Recognize: marker,
	Session:   sessionOf,
	Time:      timeOf,

	Framing: core.Framing{OneSession: true, IsDocument: isSummary, SessionOfPath: sessionOfPath},

	Normalize: chat.Normalizer(tools, read),
	NewState:  chat.NewState,

	Checked: "1.0.0",
	Evidence: core.Evidence{
		Read:   []core.Basis{core.Fixtures, core.Code},
		Lacks:  []core.Fact{core.Subagents},
		Limits: "messages that only `updates.jsonl` has; the parent of a session of a subagent",
	},

	Logs: core.Logs{
		Env:     "GROK_HOME",
		Home:    ".grok",
		About:   "folder of Grok Build; default ~/.grok",
		Folders: []core.LogFolder{{Dir: "sessions", Suffixes: []string{"chat_history.jsonl", "updates.jsonl", "summary.json"}}},
	},
	Files: embedded,
}

// marker recognizes a line of a chat history, an update, and the summary beside them.
func marker(s *core.Shape) string {
	if isSummary(s) {
		return "info.id, chat_format_version or grok_home"
	}
	if method := s.Text("method"); method != "" {
		if s.Text("params", "sessionId") != "" && (method == "_x.ai/session/update" || method == "session/update" && s.Kind("timestamp") == '0') {
			return "method " + method + ", params.sessionId"
		}
		return ""
	}
	if s.Has("uuid") || s.Has("sessionId") || s.Has("session_id") || s.Has("message") {
		return ""
	}
	var names []string
	switch kind := s.Text("type"); kind {
	case "system":
		if s.Kind("content") == '"' && !s.Has("id") {
			return "type system, content"
		}
	case "user":
		names = []string{"synthetic_reason", "prompt_index", "prior_turn_interrupt"}
	case "assistant":
		names = []string{"model_fingerprint", "model_id"}
	case "tool_result":
		if s.Kind("content") != 0 {
			names = []string{"tool_call_id"}
		}
	case "reasoning":
		if s.Has("encrypted_content") && s.Has("status") {
			return "type reasoning, encrypted_content, status"
		}
	case "backend_tool_call":
		return "type backend_tool_call"
	}
	for _, name := range names {
		if s.Has(name) {
			return "type " + s.Text("type") + ", " + name
		}
	}
	return ""
}

// isSummary recognizes the summary of a session, which is rewritten.
func isSummary(s *core.Shape) bool {
	return s.Text("info", "id") != "" && (s.Has("chat_format_version") || s.Has("grok_home"))
}

// sessionOf returns the session, which no line of a chat history states.
func sessionOf(s *core.Shape) string {
	for _, path := range [][]string{{"info", "id"}, {"params", "sessionId"}, {"sessionId"}} {
		if id := s.Text(path...); id != "" {
			return id
		}
	}
	return ""
}

// sessionOfPath returns the session in whose folder a chat history lies.
func sessionOfPath(file string) string {
	if folder, ok := strings.CutSuffix(file, "/chat_history.jsonl"); ok && path.Base(folder) != "." {
		return path.Base(folder)
	}
	return ""
}

// timeOf returns the time stated in a record: text, or seconds in an update.
func timeOf(s *core.Shape) time.Time {
	if t, ok := core.MomentOfMillis(s.Number("timestamp").Times(1000)); ok {
		return t
	}
	return s.Time([]string{"updated_at"}, []string{"created_at"})
}
