package claude

import (
	"cmp"
	"embed"
	"strings"
	"time"

	"tributary/envelopes"
	"tributary/normalizers/core"
)

//go:embed all:samples ignored.txt
var embedded embed.FS

// Vendor is Claude Code's row of the table of vendors.
var Vendor = core.Vendor{
	Source: envelopes.ClaudeCode,
	Name:   "Claude Code",
	Reads:  "`claude -p --output-format stream-json`, with partial messages too; `json`, one object or an array; the messages of its SDK as objects; what it exports by OpenTelemetry, and what its hooks get",

	Recognize: marker,
	Session:   sessionOf,
	Time:      timeOf,

	Framing: core.Framing{
		IsList:  func(s *core.Shape) bool { return s.First != nil && isStream(s.First) },
		IsWhole: isWhole,
	},

	Normalize: normalize,
	NewState:  func() core.State { return &state{} },

	Checked: "2.1.235",
	Evidence: core.Evidence{
		Versions: "1.0.24 to 2.1.235",
		Read:     []core.Basis{core.RealLogs, core.Code},
		Limits:   "branches that a rewind leaves count; outputs in files of their own",
	},
	Version: func(s *core.Session) string {
		return cmp.Or(s.TextExtension("version"), s.TextExtension("claudeCodeVersion"))
	},

	Logs: core.Logs{ // .meta.json, beside the log of a subagent, is not read
		Env:     "CLAUDE_CONFIG_DIR",
		Home:    ".claude",
		About:   "folders of Claude Code, separated by commas; default ~/.claude",
		Folders: []core.LogFolder{{Dir: "projects", Suffixes: []string{".jsonl"}}},
	},
	Telemetry: &core.Telemetry{
		Services: []string{"claude-code"},
		Scopes:   []string{"com.anthropic.claude_code"},
		Sessions: []string{"session.id"},
		Sequence: "event.sequence",
		Hooks:    "claude",
	},
	Files: embedded,
}

// state is what a session of Claude Code remembers beyond what all sessions do.
type state struct {
	queue
	Stated  core.Stated `json:"stated,omitzero"`
	Unknown uint64      `json:"unknown,omitzero"` // records of unknown types, and of other channels than the log

	Runs runs `json:"runs,omitzero"`
	partials
	channels
}

// stateOf returns the state of a session of Claude Code.
func stateOf(s *core.Session) *state { return s.State.(*state) }

// Clone implements [core.State].
func (s *state) Clone() core.State { c := *s; return &c }

// Size implements [core.State].
func (s *state) Size() int {
	return s.queue.size() + s.partials.size() + s.channels.size() + 48*len(s.Stated) + s.Runs.Models.size()
}

// Shrink implements [core.State]. It drops everything at once.
func (s *state) Shrink() bool {
	if s.Size() == 0 {
		return false
	}
	*s = state{}
	return true
}

// marker recognizes a line of a transcript and a message of the SDK.
func marker(s *core.Shape) string { return cmp.Or(streamMarker(s), transcriptMarker(s), hookMarker(s)) }

// transcriptMarker recognizes a line of a transcript. A session alone does not suffice, because other agents state it
// under the same name.
func transcriptMarker(s *core.Shape) string {
	kind := s.Text("type")
	inSession, hasID := s.Text("sessionId") != "", s.Text("uuid") != ""
	switch {
	case kind == "" || s.Has("projectHash"):
		return ""
	case inSession && statesValue[kind]:
		return "type " + kind + ", sessionId"
	case inSession && (kind == "user" || kind == "assistant" || kind == "message" && hasID) && s.Kind("message", "content") != 0:
		return "type " + kind + ", sessionId, message.content"
	case inSession && hasID && s.Kind("toolUseResult") != 0:
		return "sessionId, uuid, toolUseResult"
	case inSession && hasID && (s.Kind("parentUuid") != 0 || s.Kind("isSidechain") != 0 || kind == "attachment" && s.Kind("attachment") == '{' || kind == "system"):
		return "sessionId, uuid, parentUuid or isSidechain"
	}
	switch kind {
	case "summary":
		if s.Text("leafUuid") != "" {
			return "type summary, leafUuid"
		}
	case "file-history-snapshot":
		if s.Kind("snapshot") == '{' {
			return "type file-history-snapshot, snapshot"
		}
	case "file-history-delta":
		if s.Text("messageId") != "" {
			return "type file-history-delta, messageId"
		}
	case "started", "result":
		if s.Text("key") != "" && s.Text("agentId") != "" {
			return "type " + kind + ", key, agentId" // of the journal of a workflow
		}
	}
	return ""
}

// hookMarker recognizes what a hook gets. Other agents call hooks in the same form, so the folder of the transcript
// decides.
func hookMarker(s *core.Shape) string {
	path := strings.ReplaceAll(s.Text("transcript_path"), `\`, "/")
	if s.Text("hook_event_name") == "" || s.Text("session_id") == "" || !strings.Contains(path, "/.claude/projects/") {
		return ""
	}
	return "hook_event_name, transcript_path"
}

// statesValue are the types of records that only state a value of their session.
var statesValue = map[string]bool{
	"queue-operation": true, "ai-title": true, "custom-title": true, "agent-name": true, "mode": true, "permission-mode": true,
	"pr-link": true, "worktree-state": true, "last-prompt": true, "bridge-session": true, "summary": true,
	"cost-state": true,
	"atis-latch": true, "frame-link": true, "relocated": true,
}

// isStream reports whether a record is a message of the SDK.
func isStream(s *core.Shape) bool { return streamMarker(s) != "" }

// streamMarker recognizes a message of the SDK: a line of its stream, an array of messages, or a message dumped as an
// object, without a type. Some lines look like those of other agents; they are not recognized, because other lines of
// their file are.
func streamMarker(s *core.Shape) string {
	if s.First != nil {
		return streamMarker(s.First)
	}
	inSession, hasID := s.Text("session_id") != "", s.Text("uuid") != ""
	switch kind := s.Text("type"); kind {
	case "":
		return dumpMarker(s)
	case "system":
		if inSession && (s.Kind("mcp_servers") == '[' || s.Text("claude_code_version") != "" || s.Text("apiKeySource") != "" && s.Kind("tools") == '[' || hasID) {
			return "type system, session_id, mcp_servers or claude_code_version or uuid"
		}
	case "assistant", "user":
		if s.Text("sessionId") == "" && s.Kind("message") == '{' && (s.Kind("parent_tool_use_id") != 0 || hasID && inSession) {
			return "type " + kind + ", message, parent_tool_use_id or uuid"
		}
	case "stream_event":
		if s.Kind("event") == '{' {
			return "type stream_event, event"
		}
	case "result":
		if s.Kind("total_cost_usd") != 0 || s.Kind("usage", "input_tokens") != 0 || s.Kind("num_turns") != 0 && (hasID || s.Kind("duration_api_ms") != 0) {
			return "type result, total_cost_usd or usage or num_turns"
		}
	case "control_request", "control_response", "rate_limit_event", "tool_progress", "auth_status", "prompt_suggestion":
		if s.Text("sessionId") == "" {
			return "type " + kind
		}
	}
	return ""
}

// dumpMarker recognizes a message of the SDK that was dumped as an object.
func dumpMarker(s *core.Shape) string {
	switch {
	case s.Text("subtype") == "init" && s.Kind("data") == '{' && s.Text("id") == "":
		return "subtype init, data"
	case s.Text("session_id") != "" && (s.Kind("num_turns") != 0 || s.Kind("event") == '{'):
		return "session_id, num_turns or event"
	case s.Kind("content") == '[' && s.Text("role") == "" && (s.Text("model") != "" || s.Kind("tool_use_result") != 0 || s.Kind("parent_tool_use_id") != 0):
		return "content, model or parent_tool_use_id"
	default:
		return ""
	}
}

// isWhole reports whether a record cannot be part of another one. After a torn line of a transcript, a record of an
// unknown type is whole, too.
func isWhole(s *core.Shape) bool {
	if s.Text("type") == "" || s.Has("projectHash") {
		return false
	}
	if s.Text("sessionId") != "" && (s.Text("uuid") != "" || s.Text("messageId") == "") {
		return true
	}
	return (s.Text("leafUuid") != "" || s.Text("messageId") != "") && transcriptMarker(s) != ""
}

// sessionOf returns the session stated in a record. Of both names, sessionId is the session: a branch rewrites it alone
// in what it copies. Only the first record of a run, which no branch has, names its session by session_id.
func sessionOf(s *core.Shape) string {
	if id := s.Text("session_id"); id != "" && s.Text("subtype") == "init" {
		return id
	}
	if id := s.Session(); id != "" {
		return id
	}
	if s.Text("type") != "" {
		return ""
	}
	if id := s.Text("data", "sessionId"); id != "" {
		return id
	}
	return s.Text("data", "session_id")
}

// timeOf returns the time stated in a record.
func timeOf(s *core.Shape) time.Time {
	return s.Time([]string{"timestamp"}, []string{"_audit_timestamp"}, []string{"snapshot", "timestamp"})
}
