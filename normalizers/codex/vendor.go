package codex

import (
	"embed"

	"tributary/envelopes"
	"tributary/normalizers/core"
)

//go:embed all:samples ignored.txt
var embedded embed.FS

// Vendor is Codex's row of the table of vendors.
var Vendor = core.Vendor{
	Source: envelopes.Codex,
	Name:   "Codex",
	Reads:  "`codex exec --json`",

	Recognize: marker,
	Session:   sessionOf,
	Time:      core.TimeAt("timestamp"),

	// Later session_meta records of a rollout belong to a resumption or to a parent.
	Framing: core.Framing{OneSession: true, IsWhole: isRollout, IsPrinted: isExecShape},

	Normalize: normalize,
	NewState:  func() core.State { return &state{} },

	Checked: "0.159.0",
	Evidence: core.Evidence{
		Versions: "0.39 to 0.147",
		Read:     []core.Basis{core.RealLogs, core.Code},
		Limits:   "the database of sessions",
	},
	Version: func(s *core.Session) string { return s.TextExtension("version") },

	Logs: core.Logs{
		Env:   "CODEX_HOME",
		Home:  ".codex",
		About: "folder of Codex; default ~/.codex",
		Folders: []core.LogFolder{
			{Dir: "sessions", Suffixes: []string{".jsonl"}, Moved: true},
			{Dir: "archived_sessions", Suffixes: []string{".jsonl"}, Moved: true},
		},
	},
	Telemetry: &core.Telemetry{
		Services: []string{"codex_cli_rs", "codex_exec", "codex_vscode", "codex_sdk_ts", "codex-app-server", "codex_mcp_server"},
		Scopes:   []string{"codex_otel"},
		Sessions: []string{"conversation.id"},
	},
	Files: embedded,
}

// state is what a session of Codex remembers beyond what all sessions do.
type state struct {
	MetaID string `json:"meta,omitzero"` // id of the last session_meta
	fork
	Agent  string `json:"agent,omitzero"` // id of the subagent that wrote the rollout
	TurnID string `json:"turn,omitzero"`  // id of the turn
	InTurn bool   `json:"in,omitzero"`    // the turn has begun and not ended
	// NextModel is pending until the next turn, because the settings of a turn that runs do not change.
	NextModel string `json:"next,omitzero"`
	totals
	texts
	Letters   core.Window[seenLetter] `json:"letters,omitzero"` // between agents
	Search    *search                 `json:"search,omitzero"`  // web_search_end that waits one record for its call
	Outputs   core.Window[output]     `json:"outs,omitzero"`    // results that an end may supersede
	Exec      bool                    `json:"exec,omitzero"`    // the session is an exec stream
	ExecTurns int                     `json:"runs,omitzero"`    // number of turns of the exec stream
}

// stateOf returns the state of Codex in a session.
func stateOf(s *core.Session) *state { return s.State.(*state) }

// Clone implements [core.State].
func (s *state) Clone() core.State { c := *s; return &c }

// Size implements [core.State].
func (s *state) Size() int {
	n := s.texts.size() + len(s.MetaID) + len(s.Counted) + len(s.Copied) + len(s.Fork) + len(s.Agent) + len(s.TurnID)
	n += len(s.NextModel) + 24*len(s.Letters)
	for _, o := range s.Outputs {
		n += 64 + len(o.Text)
	}
	if s.Search != nil {
		n += 512 + s.Search.From.Size() + len(s.Search.Action) + len(s.Search.CallID)
	}
	return n
}

// Shrink implements [core.State]. It drops the oldest remembered output, else the oldest pending event_msg.
func (s *state) Shrink() bool {
	switch {
	case len(s.Outputs) > 0:
		s.Outputs = s.Outputs[1:]
	case len(s.Pending) > 0:
		s.Pending = s.Pending[1:]
	default:
		return false
	}
	return true
}

// marker recognizes a line of a rollout, enveloped or bare, and a line of the exec stream.
func marker(s *core.Shape) string {
	kind := s.Text("type")
	switch {
	case s.Has("projectHash"), s.Text("sessionId") != "":
		return ""
	case s.Kind("payload") == '{':
		if isRolloutType(kind) || kind != "" && s.Text("timestamp") != "" {
			return "type, timestamp, payload"
		}
	case s.Text("record_type") == "state":
		return "record_type state"
	case kind == "" && isBareHeader(s):
		return "id, timestamp, instructions or git"
	case (kind == "function_call" || kind == "function_call_output") && s.Text("call_id") != "":
		return "type function_call, call_id"
	case kind == "reasoning" && s.Has("summary") && !s.Has("status"): // other programs keep the status of the API
		return "type reasoning, summary"
	case kind == "thread.started" && s.Text("thread_id") != "":
		return "type thread.started, thread_id"
	case isExecType(kind) && s.Kind("item") == '{':
		return "type item.*, item"
	}
	return ""
}

// isBareHeader recognizes the first line of a bare rollout.
func isBareHeader(s *core.Shape) bool {
	return s.Text("id") != "" && s.Text("timestamp") != "" && (s.Has("instructions") || s.Has("git")) && s.Text("sessionId") == ""
}

// isRollout recognizes an enveloped line of a rollout, of a known type.
func isRollout(s *core.Shape) bool {
	return isRolloutType(s.Text("type")) && s.Kind("payload") == '{' && s.Text("timestamp") != "" && s.Text("sessionId") == ""
}

// isRolloutType reports whether a type is one that enveloped lines of a rollout have.
func isRolloutType(kind string) bool {
	switch kind {
	case "session_meta", "turn_context", "response_item", "event_msg", "compacted", "world_state":
		return true
	default:
		return false
	}
}

// sessionOf returns the session stated in a record; empty for none.
func sessionOf(s *core.Shape) string {
	kind := s.Text("type")
	switch {
	case s.Text("sessionId") != "":
	case kind == "session_meta" && s.Kind("payload") == '{':
		return s.Text("payload", "id")
	case kind == "" && marker(s) != "":
		return s.Text("id")
	case kind == "thread.started":
		return s.Text("thread_id")
	}
	return s.Session()
}
