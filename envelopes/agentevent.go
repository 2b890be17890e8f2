package envelopes

import (
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// SchemaVersion is the value of schema_version in every event.
const SchemaVersion = "agtrace.event.v1"

// Source names the agent that wrote a raw record. Its value appears unchanged in subjects,
// headers and attributes of metrics.
type Source string

// The sources.
const (
	ClaudeCode  Source = "claude_code"
	Codex       Source = "codex"
	Gemini      Source = "gemini"
	Cursor      Source = "cursor"
	Copilot     Source = "copilot"
	ACP         Source = "acp"
	OpenCode    Source = "opencode"
	Pi          Source = "pi"
	OpenClaw    Source = "openclaw"
	Kimi        Source = "kimi"
	Kiro        Source = "kiro"
	Antigravity Source = "antigravity"
	Qwen        Source = "qwen"
	Vibe        Source = "vibe"
	Hermes      Source = "hermes"
	Cline       Source = "cline"
	Roo         Source = "roo"
	Kilo        Source = "kilo"
	Grok        Source = "grok"
	Droid       Source = "droid"
	Goose       Source = "goose"

	VSCodeCopilot Source = "vscode_copilot"

	OTel Source = "otel" // by the conventions of OpenTelemetry, from any program
)

// Sources lists every source, in the order of the documentation.
var Sources = []Source{ClaudeCode, Codex, Gemini, Cursor, Copilot, ACP, OpenCode, Pi, OpenClaw, Kimi, Kiro, Antigravity, Qwen, Vibe, Hermes, Cline, Roo, Kilo, Grok, Droid, Goose, VSCodeCopilot, OTel}

// sendsChunks are the sources that may split an assistant message into several events without a separator between
// their texts. Events of other sources are complete messages or paragraphs. No field of an event states this.
var sendsChunks = map[Source]bool{ClaudeCode: true, Cursor: true}

// maxSessionKey is for sources that give some usage keys by number or name: the maximum length in bytes of such a
// key. A longer key is an id that is unique in the source. No field of an event states the scope of a key.
var maxSessionKey = map[Source]int{Codex: 19, Pi: 36, OpenClaw: 36, Kiro: 11, Vibe: 36, Cline: 19, Roo: 19, Kilo: 19, Goose: 39, VSCodeCopilot: 36}

// modelProviders are the providers of agents that only run models of one provider, by their names in the semantic
// conventions of OpenTelemetry.
var modelProviders = map[Source]string{ClaudeCode: "anthropic", Codex: "openai", Gemini: "gcp.gemini"}

// ModelProvider returns the provider of the models of an agent; empty for an agent with models of several.
func (s Source) ModelProvider() string { return modelProviders[s] }

// ContinuesAnswer reports whether an event after a tool result belongs to the same answer of the model as the call;
// counted says whether that answer already has its tokens. Gemini, OpenCode and Kilo write the result of each call
// between the calls of one answer. Gemini states the tokens with the first call, OpenCode and Kilo after the answer.
func (e *AgentEventV1) ContinuesAnswer(counted bool) bool {
	switch e.Source {
	case Gemini:
		return e.EventType == ToolCall && e.Usage == nil
	case OpenCode, Kilo: // an answer in a task of Kilo has its tokens before
		return !counted
	default:
		return false
	}
}

// Via is the way on which an agent stated an event. Empty means its log: a file, a database or its output.
type Via string

// The ways beside the log.
const (
	ViaTelemetry Via = "telemetry" // exported by OpenTelemetry
	ViaHooks     Via = "hooks"     // posted by a hook
)

// vias lists every way that is written.
var vias = []Via{ViaTelemetry, ViaHooks}

// EventType is the kind of occurrence.
type EventType string

// The event types.
const (
	UserMessage      EventType = "user_message"
	AssistantMessage EventType = "assistant_message"
	SystemMessage    EventType = "system_message"
	Reasoning        EventType = "reasoning"
	ToolCall         EventType = "tool_call"
	ToolResult       EventType = "tool_result"
	FileSnapshot     EventType = "file_snapshot"
	SessionSummary   EventType = "session_summary"
	Meta             EventType = "meta"
	Log              EventType = "log"
)

// EventTypes lists every event type, in the order of the schema.
var EventTypes = []EventType{
	UserMessage, AssistantMessage, SystemMessage, Reasoning, ToolCall,
	ToolResult, FileSnapshot, SessionSummary, Meta, Log,
}

// Role is the party that is responsible for an event. [RolesOf] binds it to the event type.
type Role string

// The roles.
const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleSystem    Role = "system"
	RoleTool      Role = "tool"
	RoleCLI       Role = "cli"
	RoleOther     Role = "other"
)

// roles lists every role, in the order of the schema.
var roles = []Role{RoleUser, RoleAssistant, RoleSystem, RoleTool, RoleCLI, RoleOther}

// Channel is the place in which an event occurs.
type Channel string

// The channels.
const (
	ChannelChat       Channel = "chat"
	ChannelEditor     Channel = "editor"
	ChannelTerminal   Channel = "terminal"
	ChannelFilesystem Channel = "filesystem"
	ChannelSystem     Channel = "system"
	ChannelCLI        Channel = "cli"
	ChannelOther      Channel = "other"
)

// channels lists every channel, in the order of the schema.
var channels = []Channel{
	ChannelChat, ChannelEditor, ChannelTerminal, ChannelFilesystem, ChannelSystem,
	ChannelCLI, ChannelOther,
}

// ToolStatus is the outcome of a tool call.
type ToolStatus string

// The tool statuses.
const (
	StatusSuccess    ToolStatus = "success"
	StatusError      ToolStatus = "error"
	StatusInProgress ToolStatus = "in_progress"
	StatusUnknown    ToolStatus = "unknown"
)

// toolStatuses lists every tool status, in the order of the schema.
var toolStatuses = []ToolStatus{StatusSuccess, StatusError, StatusInProgress, StatusUnknown}

// FileOp is the operation of a tool on a file.
type FileOp string

// The file operations.
const (
	OpRead   FileOp = "read"
	OpWrite  FileOp = "write"
	OpModify FileOp = "modify"
	OpDelete FileOp = "delete"
	OpCreate FileOp = "create"
	OpMove   FileOp = "move"
)

// fileOps lists every file operation, in the order of the schema.
var fileOps = []FileOp{OpRead, OpWrite, OpModify, OpDelete, OpCreate, OpMove}

// Origin is the author of the text of an event. Empty means a human, or that the question
// does not apply.
type Origin string

// The origins.
const (
	OriginAgent    Origin = "agent"    // the prompt of an agent to its subagent
	OriginInjected Origin = "injected" // text that a machine put into the conversation
	OriginCopied   Origin = "copied"   // history of another session
)

// origins lists every origin that is written.
var origins = []Origin{OriginAgent, OriginInjected, OriginCopied}

// AgentEventV1 is one event of the schema agtrace.event.v1: 29 fields that are always present
// in JSON, null where unknown, then additive fields that are absent when empty. event.md
// has the meaning of each.
//
// Pointers and Raw are nil for null. Token counts are increments: their sum over the events of
// a session is the vendor's bill for it. An event is immutable once it is handed over; its
// Raw may share the memory of the record.
type AgentEventV1 struct {
	SchemaVersion string    `json:"schema_version"`
	Source        Source    `json:"source"`
	ProjectHash   string    `json:"project_hash"` // lower-case hex SHA-256 of the project root, or the vendor's own
	ProjectRoot   *string   `json:"project_root"`
	SessionID     string    `json:"session_id"`
	EventID       string    `json:"event_id"` // unique within (source, session_id)
	ParentEventID *string   `json:"parent_event_id"`
	TS            string    `json:"ts"` // RFC 3339, UTC with Z, in the precision of the source
	EventType     EventType `json:"event_type"`
	Role          *Role     `json:"role"`
	Channel       *Channel  `json:"channel"`
	Text          *string   `json:"text"`

	ToolName      *string     `json:"tool_name"`
	ToolCallID    *string     `json:"tool_call_id"` // the same on a call and its result
	ToolStatus    *ToolStatus `json:"tool_status"`
	ToolLatencyMS *int64      `json:"tool_latency_ms"` // stated by the vendor, never a difference of timestamps
	ToolExitCode  *int64      `json:"tool_exit_code"`  // stated by the vendor, never a guess

	FilePath     *string `json:"file_path"`
	FileLanguage *string `json:"file_language"`
	FileOp       *FileOp `json:"file_op"`

	Model          *string `json:"model"`
	TokensInput    *int64  `json:"tokens_input"`
	TokensOutput   *int64  `json:"tokens_output"`
	TokensTotal    *int64  `json:"tokens_total"`
	TokensCached   *int64  `json:"tokens_cached"`
	TokensThinking *int64  `json:"tokens_thinking"`
	TokensTool     *int64  `json:"tokens_tool"`

	AgentID *string        `json:"agent_id"`
	Raw     jsontext.Value `json:"raw"` // the record, on its first event; else null

	// The additive fields of Tributary.

	Sequence        uint64         `json:"sequence,omitzero"` // position in the session, from 1, without gaps
	Metadata        *Metadata      `json:"metadata,omitzero"`
	ToolMetadata    jsontext.Value `json:"tool_metadata,omitzero"`
	ToolInput       jsontext.Value `json:"tool_input,omitzero"`  // arguments, on a tool_result without a tool_call
	ToolOutput      *ToolOutput    `json:"tool_output,omitzero"` // parts of the output of a tool_result
	Content         *FileContent   `json:"content,omitzero"`     // of a file_snapshot; nil for a plain text
	MessageMetadata jsontext.Value `json:"message_metadata,omitzero"`
	Usage           *Usage         `json:"usage,omitzero"`
	Files           []File         `json:"files,omitempty"`
	Origin          Origin         `json:"origin,omitzero"`
	IsInternal      bool           `json:"is_internal,omitzero"` // work of a sidechain or a subagent
	Supersedes      string         `json:"supersedes,omitzero"`  // event_id of the event that this one replaces
	TextTruncated   bool           `json:"text_truncated,omitzero"`
	Via             Via            `json:"via,omitzero"`
	Edge            *Edge          `json:"edge,omitzero"`
	VCS             *VCS           `json:"vcs,omitzero"`
}

// File is one file that a tool call touches.
type File struct {
	Path string `json:"path"`
	Op   FileOp `json:"op"`
}

// ToolOutput is the output of a tool in the parts in which the vendor states it. A part is nil
// if the vendor does not state it.
type ToolOutput struct {
	Stdout *string `json:"stdout,omitzero"`
	Stderr *string `json:"stderr,omitzero"`
	Diff   *string `json:"diff,omitzero"` // unified diff of an edit, with or without a header
}

// FileContent is the content of a file that is not a plain text. The content is the text of
// the event, or Data, or at URL, or in the raw record only.
type FileContent struct {
	Type string  `json:"type"`          // media type
	Data *string `json:"data,omitzero"` // base64, at most 4 KiB
	URL  *string `json:"url,omitzero"`
}

// rolesOf is the role table: the roles that an event type allows, the usual one first.
var rolesOf = map[EventType][]Role{
	UserMessage:      {RoleUser},
	AssistantMessage: {RoleAssistant},
	SystemMessage:    {RoleSystem},
	Reasoning:        {RoleAssistant},
	ToolCall:         {RoleAssistant},
	ToolResult:       {RoleTool},
	FileSnapshot:     {RoleSystem},
	SessionSummary:   {RoleAssistant, RoleSystem},
	Meta:             {RoleSystem},
	Log:              {RoleSystem, RoleCLI},
}

// RolesOf returns the roles that t allows, the usual one first; nil for an unknown type. The
// caller must not change the slice.
func RolesOf(t EventType) []Role { return rolesOf[t] }

// Timestamp returns the time of the event. The error wraps [ErrInvalidEvent].
func (e *AgentEventV1) Timestamp() (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, e.TS)
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: ts is not RFC 3339", ErrInvalidEvent)
	}
	return t, nil
}
