package envelopes

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// NormalizedEntry is one entry of a conversation as a user interface shows it: a message, a thought, a tool with its
// outcome, an error. An [EntryProjection] makes entries from events.
//
// An entry can be emitted several times, each time complete: a tool when it is called and again
// with its result, an assistant message each time it grows. A consumer keeps the last entry of
// each Index. Indexes begin at 0 and have no gaps, so a slice can hold the entries:
//
//	if entry.Index == len(entries) {
//		entries = append(entries, entry)
//	} else {
//		entries[entry.Index] = entry
//	}
type NormalizedEntry struct {
	Index     int       `json:"index"`
	Timestamp string    `json:"timestamp,omitzero"` // of the first event of the entry, RFC 3339
	Type      EntryType `json:"type"`
	Content   string    `json:"content"`           // markdown
	Metadata  *Metadata `json:"metadata,omitzero"` // of the last event of the entry
}

// EntryKind is the kind of an entry.
type EntryKind string

// The kinds of entries.
const (
	EntrySystemMessage    EntryKind = "system_message"
	EntryUserMessage      EntryKind = "user_message"
	EntryAssistantMessage EntryKind = "assistant_message"
	EntryThinking         EntryKind = "thinking"
	EntryToolUse          EntryKind = "tool_use"
	EntryError            EntryKind = "error"
)

// EntryType is the kind of an entry with the fields of that kind.
type EntryType struct {
	Kind      EntryKind    `json:"kind"`
	Reasoning string       `json:"reasoning,omitzero"` // of a thinking
	Tool      *EntryTool   `json:"tool,omitzero"`      // of a tool_use
	Error     *EntryReport `json:"error,omitzero"`     // of an error
}

// EntryStatus is the progress of a tool.
type EntryStatus string

// The statuses of a tool. A tool_call in progress is running, a tool_call of unknown status
// created. A tool_result of unknown status shows no sign of failure and is a success.
const (
	EntryCreated EntryStatus = "created"
	EntryRunning EntryStatus = "running"
	EntrySuccess EntryStatus = "success"
	EntryFailed  EntryStatus = "failed"
)

// EntryTool is a tool that the agent used.
type EntryTool struct {
	ToolName string        `json:"toolName"` // the vendor's name; "unknown" for a result without a call and a name
	Action   EntryAction   `json:"action"`
	Status   EntryStatus   `json:"status"`
	Result   *EntryOutcome `json:"result,omitzero"` // nil until the tool has ended
}

// EntryOutcome is the result of a tool: its data on success, its error on failure.
type EntryOutcome struct {
	Success bool           `json:"success"`
	Data    jsontext.Value `json:"data,omitzero"` // the result if it is JSON, else its text as a JSON string
	Error   string         `json:"error,omitzero"`
}

// ActionKind is the kind of a tool, in one vocabulary for the tools of all vendors.
type ActionKind string

// The kinds of actions.
const (
	ActionFileRead   ActionKind = "file_read"
	ActionFileWrite  ActionKind = "file_write"
	ActionFileEdit   ActionKind = "file_edit"
	ActionCommandRun ActionKind = "command_run"
	ActionSearch     ActionKind = "search"
	ActionTool       ActionKind = "tool"
)

// EntryAction is the action of a tool. The kind decides which fields are set.
type EntryAction struct {
	Kind     ActionKind     `json:"kind"`
	Path     *string        `json:"path,omitzero"`     // of a file, relative to the project root if that is shorter
	Changes  []EntryChange  `json:"changes,omitzero"`  // of a file_edit, then never nil
	Command  *string        `json:"command,omitzero"`  // of a command_run
	Query    *string        `json:"query,omitzero"`    // of a search
	ToolName *string        `json:"toolName,omitzero"` // of a tool: mcp:<provider>:<tool> for one of an MCP server
	Args     jsontext.Value `json:"args,omitzero"`     // of a tool
	// Result is, in JSON, the [CommandResult] of a command_run that has ended, or the data of
	// a tool that succeeded.
	Result jsontext.Value `json:"result,omitzero"`
}

// ChangeType is the kind of a change of a file.
type ChangeType string

// The types of changes.
const (
	ChangeEdit   ChangeType = "edit"
	ChangeDelete ChangeType = "delete"
)

// EntryChange is one change of a file.
type EntryChange struct {
	Type ChangeType `json:"type"`
	// UnifiedDiff is empty if the vendor does not state the change. If the vendor states the
	// texts and not their place, every hunk is at line 1.
	UnifiedDiff string `json:"unifiedDiff,omitzero"`
}

// CommandResult is the result of a command.
type CommandResult struct {
	// ExitCode is the vendor's exit code; without one, 0 for a success and 1 for a failure.
	// The event itself never guesses: see AgentEventV1.ToolExitCode.
	ExitCode int64 `json:"exitCode"`
	// Stdout is the whole output if the vendor does not separate stdout and stderr.
	Stdout string `json:"stdout,omitzero"`
	Stderr string `json:"stderr,omitzero"`
}

// EntryReport is an error that the vendor reports.
type EntryReport struct {
	Message string `json:"message"`
	Code    string `json:"code,omitzero"`
}

// AppendJSON appends n in JSON to dst, on one line. The same entry gives the same bytes on
// every machine. The error wraps [ErrInvalidEvent].
func (n *NormalizedEntry) AppendJSON(dst []byte) ([]byte, error) {
	b, err := json.Marshal(n, json.Deterministic(true))
	if err != nil {
		return dst, fmt.Errorf("%w: entry is not strict JSON: %s", ErrInvalidEvent, jsonProblem(err))
	}
	return append(dst, b...), nil
}
