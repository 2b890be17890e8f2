package pi

import (
	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// Record has the members of a line: the first line of a session, or an entry of its tree.
type Record struct {
	Type       lenient.Text            `json:"type"`
	ID         lenient.Text            `json:"id"`
	Timestamp  lenient.Text            `json:"timestamp"`
	Cwd        lenient.Text            `json:"cwd"`
	Parent     lenient.Text            `json:"parentSession"` // file from which the session was forked
	Branched   lenient.Text            `json:"branchedFrom"`  // Parent in format version 1
	Provider   lenient.Text            `json:"provider"`
	ModelID    lenient.Text            `json:"modelId"`
	Thinking   lenient.Text            `json:"thinkingLevel"`
	Name       lenient.Text            `json:"name"`
	CustomType lenient.Text            `json:"customType"`
	Content    jsontext.Value          `json:"content"` // of a custom_message
	Model      lenient.Text            `json:"model"`   // of a usage
	Message    lenient.Object[Message] `json:"message"`
	Data       lenient.Object[Data]    `json:"data"` // of a custom entry of OpenClaw
	summary    `json:",embed"`

	// Of what a run prints.
	Result lenient.Object[summary] `json:"result"`
	Entry  jsontext.Value          `json:"entry"` // a record of the log
	Level  lenient.Text            `json:"level"`
	Error  lenient.Text            `json:"errorMessage"`
}

// summary is what a compaction or a branch that was left was reduced to.
type summary struct {
	Summary lenient.Text          `json:"summary"`
	Before  lenient.Number        `json:"tokensBefore"`
	Usage   lenient.Object[usage] `json:"usage"`
}

// Data is what a custom entry of OpenClaw states: a model, or an error.
type Data struct {
	ModelID lenient.Text `json:"modelId"`
	Error   lenient.Text `json:"error"`
}

// Message is a message of any role.
type Message struct {
	Role         lenient.Text          `json:"role"`
	Timestamp    lenient.Number        `json:"timestamp"` // when its request began, in milliseconds
	Content      jsontext.Value        `json:"content"`
	Provider     lenient.Text          `json:"provider"`
	Model        lenient.Text          `json:"model"`
	Usage        lenient.Object[usage] `json:"usage"`
	Sections     jsontext.Value        `json:"sections"` // of a system message, by name
	StopReason   lenient.Text          `json:"stopReason"`
	ErrorMessage lenient.Text          `json:"errorMessage"`

	// Of a toolResult.
	ToolCallID lenient.Text `json:"toolCallId"`
	ToolName   lenient.Text `json:"toolName"`
	IsError    lenient.Flag `json:"isError"`

	// Of a bashExecution.
	Command lenient.Text `json:"command"`
	Output  lenient.Text `json:"output"`

	// Of a summary.
	Summary lenient.Text `json:"summary"`

	// Of OpenClaw alone: who wrote a text under the user's name, and the outcome of a tool.
	Provenance lenient.Object[Provenance] `json:"provenance"`
	Details    lenient.Object[Details]    `json:"details"`
}

// Provenance is the origin of a text under the user's name.
type Provenance struct {
	Kind lenient.Text `json:"kind"`
}

// Details is the outcome of a command.
type Details struct {
	Status   lenient.Text   `json:"status"`
	ExitCode lenient.Number `json:"exitCode"`
	Duration lenient.Number `json:"durationMs"`
}

// usage has the tokens of an API call. The input is without the cache, the output with the reasoning.
type usage struct {
	Input      lenient.Number       `json:"input"`
	Output     lenient.Number       `json:"output"`
	CacheRead  lenient.Number       `json:"cacheRead"`
	CacheWrite lenient.Number       `json:"cacheWrite"`
	Reasoning  lenient.Number       `json:"reasoning"`
	Write1h    lenient.Number       `json:"cacheWrite1h"`
	Cost       lenient.Object[cost] `json:"cost"`
	CostUSD    lenient.Number       `json:"costUSD"` // of old versions of OpenClaw
}

type cost struct {
	Total lenient.Number `json:"total"`
}

// Block is an element of the content of a message.
type Block struct {
	Type      lenient.Text   `json:"type"`
	Text      lenient.Text   `json:"text"`
	Thinking  lenient.Text   `json:"thinking"`
	ID        lenient.Text   `json:"id"`
	Name      lenient.Text   `json:"name"`
	Arguments jsontext.Value `json:"arguments"`
	Input     jsontext.Value `json:"input"` // the arguments under another name
}

// tools are the tools of Pi that other agents lack.
var tools = map[string]core.Tool{"find": core.ToolSearch}
