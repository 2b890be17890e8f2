package envelopes

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// NormalizedEntry is one line of a conversation as a user interface shows it (seed
// standardized-metadata): a message, a thought, a tool with its outcome, an error. An
// [EntryProjection] makes them of events.
//
// An entry can be told several times, each time complete: a tool when it is called and
// again with its result, an assistant message each time it grows. A consumer keeps the
// last one of each Index, for instance
//
//	entries[entry.Index] = entry
//
// with a slice that is one longer whenever Index equals its length: indexes begin at 0 and
// have no gaps.
type NormalizedEntry struct {
	Index     int       `json:"index"`
	Timestamp string    `json:"timestamp,omitzero"` // when the entry began, RFC 3339
	Type      EntryType `json:"type"`
	Content   string    `json:"content"`           // markdown
	Metadata  *Metadata `json:"metadata,omitzero"` // of the event that told the entry last, as it is
}

// EntryKind tells what an entry is.
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

// EntryKinds lists every kind of entry.
var EntryKinds = []EntryKind{
	EntrySystemMessage, EntryUserMessage, EntryAssistantMessage, EntryThinking, EntryToolUse, EntryError,
}

// EntryType is the kind of an entry together with what only that kind has.
type EntryType struct {
	Kind      EntryKind    `json:"kind"`
	Reasoning string       `json:"reasoning,omitzero"` // of a thinking
	Tool      *EntryTool   `json:"tool,omitzero"`      // of a tool_use
	Error     *EntryReport `json:"error,omitzero"`     // of an error
}

// EntryStatus is how far a tool has come.
type EntryStatus string

// The statuses of a tool. A tool_call in progress is running, one of unknown status
// created; a result of unknown status shows no sign of failure and is a success.
const (
	EntryCreated EntryStatus = "created"
	EntryRunning EntryStatus = "running"
	EntrySuccess EntryStatus = "success"
	EntryFailed  EntryStatus = "failed"
)

// EntryTool is a tool that the agent used.
type EntryTool struct {
	ToolName string        `json:"toolName"` // as the vendor names it; unknown for a result alone that names none
	Action   EntryAction   `json:"action"`
	Status   EntryStatus   `json:"status"`
	Result   *EntryOutcome `json:"result,omitzero"` // nil before the tool has ended
}

// EntryOutcome is what a tool returned: data when it succeeded, the error when it failed.
type EntryOutcome struct {
	Success bool           `json:"success"`
	Data    jsontext.Value `json:"data,omitzero"` // the result where it is JSON, else its text as a JSON string
	Error   string         `json:"error,omitzero"`
}

// ActionKind tells what a tool does, whoever's tool it is.
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

// ActionKinds lists every kind of action.
var ActionKinds = []ActionKind{
	ActionFileRead, ActionFileWrite, ActionFileEdit, ActionCommandRun, ActionSearch, ActionTool,
}

// EntryAction is what a tool does. Which fields are set depends on the kind.
type EntryAction struct {
	Kind     ActionKind     `json:"kind"`
	Path     *string        `json:"path,omitzero"`     // of a file, below the root of the project where that is shorter
	Changes  []EntryChange  `json:"changes,omitzero"`  // of a file_edit, never nil there
	Command  *string        `json:"command,omitzero"`  // of a command_run
	Query    *string        `json:"query,omitzero"`    // of a search
	ToolName *string        `json:"toolName,omitzero"` // of a tool: mcp:<provider>:<tool> for one of an MCP server
	Args     jsontext.Value `json:"args,omitzero"`     // of a tool
	// Result is, in JSON, the [CommandResult] of a command_run that has ended, or what an
	// action of kind tool returned when it succeeded.
	Result jsontext.Value `json:"result,omitzero"`
}

// ChangeType tells what a change does to a file.
type ChangeType string

// The types of changes.
const (
	ChangeEdit   ChangeType = "edit"
	ChangeDelete ChangeType = "delete"
)

// EntryChange is one change of a file.
type EntryChange struct {
	Type ChangeType `json:"type"`
	// UnifiedDiff is empty where the vendor tells nothing of the change. Where only the
	// texts are known and not their place, every hunk is at line 1.
	UnifiedDiff string `json:"unifiedDiff,omitzero"`
}

// CommandResult is how a command ended.
type CommandResult struct {
	// ExitCode is what the vendor states; where it states none 0 for a success and 1 for a
	// failure, as the seed has it. The event itself never guesses: see
	// AgentEventV1.ToolExitCode.
	ExitCode int64 `json:"exitCode"`
	// Stdout is all of the output where the vendor does not keep the two apart.
	Stdout string `json:"stdout,omitzero"`
	Stderr string `json:"stderr,omitzero"`
}

// EntryReport is an error that the vendor reports.
type EntryReport struct {
	Message string `json:"message"`
	Code    string `json:"code,omitzero"`
}

// AppendJSON appends n in JSON to dst, on one line. The same entry gives the same bytes
// everywhere.
func (n *NormalizedEntry) AppendJSON(dst []byte) ([]byte, error) {
	b, err := json.Marshal(n, json.Deterministic(true))
	if err != nil {
		return dst, fmt.Errorf("%w: entry is not strict JSON: %s", ErrInvalidEvent, jsonProblem(err))
	}
	return append(dst, b...), nil
}
