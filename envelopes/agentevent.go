// Package envelopes holds what Tributary publishes and how it travels: the event
// (AgentEventV1, schema agtrace.event.v1), its CloudEvents form, the NATS protocol
// binding, the subjects, and the JSON Schema.
//
// Start with [AgentEventV1]. The one invariant: an event that [AgentEventV1.Validate]
// and [AgentEventV1.AppendJSON] accept survives every conversion of this package
// unchanged (but for white space between the tokens of native JSON, and a raw of null,
// which is no raw), and what any writer here writes, its reader reads.
//
// The stage writes with [EncodeEvent] and [EventSubject]; a consumer reads with
// [DecodeEvent]. Both are built of the same parts, which are there for other programs:
// [AgentEventV1.CloudEvent] and [FromCloudEvent], [Encode] and [Decode].
//
// Events can be told in other forms: an [EntryProjection] makes the lines of a
// conversation of them, an [ACPProjection] messages of ACP.
//
// Ids of vendors can hold any byte, so each place has its codec: [Token] for subjects,
// [EncodeHeaderValue] for headers. No id goes into either as it is. No error of this
// package repeats a value of an event, a header or a document: those may be secrets.
package envelopes

import (
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// SchemaVersion is the value of schema_version in every event (spec section 1.2).
const SchemaVersion = "agtrace.event.v1"

// Source names the tool that wrote a raw record (spec section 2.1, with the additions
// that spec section 6 allows). Its value is used unchanged in subjects, headers,
// attributes of metrics and names of test folders.
type Source string

// The sources.
const (
	ClaudeCode Source = "claude_code"
	Codex      Source = "codex"
	Gemini     Source = "gemini"
	Cursor     Source = "cursor"
	Copilot    Source = "copilot"
	ACP        Source = "acp"
	OpenCode   Source = "opencode"
)

// Sources lists every source, in the order of the documentation.
var Sources = []Source{ClaudeCode, Codex, Gemini, Cursor, Copilot, ACP, OpenCode}

// EventType tells what happened (spec section 2.1).
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

// EventTypes lists every event type, in the order of the spec.
var EventTypes = []EventType{
	UserMessage, AssistantMessage, SystemMessage, Reasoning, ToolCall,
	ToolResult, FileSnapshot, SessionSummary, Meta, Log,
}

// Role tells who or what is responsible for an event (spec section 2.1).
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

// Roles lists every role, in the order of the spec.
var Roles = []Role{RoleUser, RoleAssistant, RoleSystem, RoleTool, RoleCLI, RoleOther}

// Channel tells where an event took place (spec section 2.1, and cli of section 5.3.2).
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

// Channels lists every channel, in the order of the spec.
var Channels = []Channel{
	ChannelChat, ChannelEditor, ChannelTerminal, ChannelFilesystem, ChannelSystem,
	ChannelCLI, ChannelOther,
}

// ToolStatus is the outcome of a tool call (spec section 2.1).
type ToolStatus string

// The tool statuses.
const (
	StatusSuccess    ToolStatus = "success"
	StatusError      ToolStatus = "error"
	StatusInProgress ToolStatus = "in_progress"
	StatusUnknown    ToolStatus = "unknown"
)

// ToolStatuses lists every tool status, in the order of the spec.
var ToolStatuses = []ToolStatus{StatusSuccess, StatusError, StatusInProgress, StatusUnknown}

// FileOp is what a tool does to a file (spec section 2.1).
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

// FileOps lists every file operation, in the order of the spec.
var FileOps = []FileOp{OpRead, OpWrite, OpModify, OpDelete, OpCreate, OpMove}

// Origin tells where the words of an event come from; empty means a human typed them,
// or that the question does not arise.
type Origin string

// The origins.
const (
	OriginAgent    Origin = "agent"    // the prompt that an agent gave to its subagent
	OriginInjected Origin = "injected" // text that a machine put into the conversation
	OriginCopied   Origin = "copied"   // history of another session
)

// Origins lists every origin that is written.
var Origins = []Origin{OriginAgent, OriginInjected, OriginCopied}

// AgentEventV1 is one event of the schema agtrace.event.v1: the 29 fields of the spec,
// always present in JSON with null for what is not known, then the additive fields,
// left out when empty. All token counts are increments: adding them over the events of
// a session gives what the vendor billed for it.
//
// Pointers, and Raw, are nil for null. An event that has been handed over is not changed
// again, and its Raw shares no memory with the record that it was made from.
type AgentEventV1 struct {
	SchemaVersion string    `json:"schema_version"`
	Source        Source    `json:"source"`
	ProjectHash   string    `json:"project_hash"` // lower-case hex sha256 of the project root, or what the vendor states
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
	ToolLatencyMS *int64      `json:"tool_latency_ms"` // as the vendor states it, never a difference of timestamps
	ToolExitCode  *int64      `json:"tool_exit_code"`  // as the vendor states it, never guessed

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
	Raw     jsontext.Value `json:"raw"` // the record, on the first event made of it; else null

	// The additive fields of Tributary.

	Sequence        uint64         `json:"sequence,omitzero"` // position in the session, from 1, without gaps
	Metadata        *Metadata      `json:"metadata,omitzero"`
	ToolMetadata    jsontext.Value `json:"tool_metadata,omitzero"`
	MessageMetadata jsontext.Value `json:"message_metadata,omitzero"`
	Usage           *Usage         `json:"usage,omitzero"`
	Files           []File         `json:"files,omitempty"`
	Origin          Origin         `json:"origin,omitzero"`
	IsInternal      bool           `json:"is_internal,omitzero"` // work of a sidechain or a subagent
	Supersedes      string         `json:"supersedes,omitzero"`  // event_id of the event that this one replaces
	TextTruncated   bool           `json:"text_truncated,omitzero"`
}

// File is one file that a tool call touches.
type File struct {
	Path string `json:"path"`
	Op   FileOp `json:"op"`
}

// rolesOf is the table of spec section 4.1: the roles that an event type allows, the
// usual one first.
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

// RolesOf returns the roles that the table of spec section 4.1 allows for t, the usual
// one first; nil for an unknown type. The caller must not change it.
func RolesOf(t EventType) []Role { return rolesOf[t] }

// Timestamp returns the time of the event.
func (e *AgentEventV1) Timestamp() (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, e.TS)
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: ts is not RFC 3339", ErrInvalidEvent)
	}
	return t, nil
}
