package droid

import (
	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/lenient"
)

// record has the members of a line of a session, of a line that a run prints, and of the settings of a session.
type record struct {
	Type      lenient.Text   `json:"type"`
	ID        lenient.Text   `json:"id"`
	Timestamp jsontext.Value `json:"timestamp"`
	Cwd       lenient.Text   `json:"cwd"`
	Model     lenient.Text   `json:"model"`
	ModelID   lenient.Text   `json:"modelId"`
	Body      jsontext.Value `json:"message"` // a message, or the text of an error
	message                  // of some subagents, and of a run, whose text is Text

	// Of a session_start.
	Title   lenient.Text         `json:"sessionTitle"`
	Old     lenient.Text         `json:"title"`
	Version lenient.Text         `json:"version"`
	Calling lenient.Text         `json:"callingSessionId"`
	Session lenient.Object[head] `json:"session"`

	Summary lenient.Text           `json:"summaryText"` // of a compaction_state
	Titled  lenient.Object[titled] `json:"summary"`     // the same in another form
	Reason  lenient.Text           `json:"reason"`      // of an agent_turn_outcome
	Kind    lenient.Text           `json:"resultKind"`
	Final   lenient.Text           `json:"finalText"` // of a session_end or a completion
	Result  lenient.Text           `json:"result"`    // the same in the only line that a run prints

	// Of a run.
	Text       lenient.Text             `json:"text"`
	CallID     lenient.Text             `json:"toolCallId"`
	Tool       lenient.Text             `json:"toolName"`
	ToolID     lenient.Text             `json:"toolId"`
	Parameters jsontext.Value           `json:"parameters"`
	IsError    lenient.Flag             `json:"isError"`
	Value      jsontext.Value           `json:"value"`
	Usage      lenient.Object[runUsage] `json:"usage"`

	// Of settings.
	Tokens lenient.Object[usage] `json:"tokenUsage"`
	Active lenient.Number        `json:"assistantActiveTimeMs"`
	Lock   lenient.Present       `json:"providerLock"`
}

// head is the session in the first line of old sessions.
type head struct {
	ID    lenient.Text `json:"id"`
	Cwd   lenient.Text `json:"cwd"`
	Title lenient.Text `json:"title"`
}

// titled is a summary with a title.
type titled struct {
	Title lenient.Text `json:"title"`
	Body  lenient.Text `json:"body"`
}

// message is a message of a session.
type message struct {
	Role       lenient.Text   `json:"role"`
	Content    jsontext.Value `json:"content"`
	Model      lenient.Text   `json:"model"`
	Visibility lenient.Text   `json:"visibility"`
}

// part is a part of the content of a message.
type part struct {
	Type     lenient.Text   `json:"type"`
	Text     lenient.Text   `json:"text"`
	Thinking lenient.Text   `json:"thinking"`
	ID       lenient.Text   `json:"id"`
	Name     lenient.Text   `json:"name"`
	Input    jsontext.Value `json:"input"`
	CallID   lenient.Text   `json:"tool_use_id"`
	IsError  lenient.Flag   `json:"is_error"`
	Content  jsontext.Value `json:"content"`
}

// value is what a tool returned in a run, if that is an object.
type value struct {
	lenient.Data

	Stdout lenient.NullText `json:"stdout"`
	Stderr lenient.NullText `json:"stderr"`
	Exit   lenient.Number   `json:"exitCode"`
	Code   lenient.Number   `json:"exit_code"`
}

// usage has the tokens of a session so far. The input is without the cache, the output without the thoughts.
type usage struct {
	Input      lenient.Number `json:"inputTokens"`
	CacheRead  lenient.Number `json:"cacheReadTokens"`
	CacheWrite lenient.Number `json:"cacheCreationTokens"`
	Output     lenient.Number `json:"outputTokens"`
	Thinking   lenient.Number `json:"thinkingTokens"`
}

// runUsage has the tokens of a run.
type runUsage struct {
	Input      lenient.Number `json:"input_tokens"`
	CacheRead  lenient.Number `json:"cache_read_input_tokens"`
	CacheWrite lenient.Number `json:"cache_creation_input_tokens"`
	Output     lenient.Number `json:"output_tokens"`
}
