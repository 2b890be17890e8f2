package copilot

import (
	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
	"tributary/normalizers/otlp"
)

// wireRecord is a record of a log, or the one document of a session.
type wireRecord struct {
	Type      lenient.Text   `json:"type"`
	Data      jsontext.Value `json:"data"`
	ID        lenient.Text   `json:"id"`
	Timestamp lenient.Text   `json:"timestamp"`
	AgentID   lenient.Text   `json:"agentId"`

	SessionID    lenient.Text   `json:"sessionId"`
	StartTime    lenient.Text   `json:"startTime"`
	Timeline     jsontext.Value `json:"timeline"`
	ChatMessages jsontext.Value `json:"chatMessages"`

	otlp.Export `json:",embed"`
}

// record is the content of the current record.
type record struct {
	wireRecord
	data data
}

// time returns the record's own time in the form of an event; empty for none.
func (r *wireRecord) time() string {
	for _, v := range []lenient.Text{r.Timestamp, r.StartTime} {
		if ts, ok := core.ParseTime(string(v)); ok {
			return ts
		}
	}
	return ""
}

// data has the data of a record of any type.
type data struct {
	// Session.
	SessionID     lenient.Text            `json:"sessionId"`
	Version       lenient.Text            `json:"copilotVersion"`
	SelectedModel lenient.Text            `json:"selectedModel"`
	NewModel      lenient.Text            `json:"newModel"`
	ChosenModel   lenient.Text            `json:"chosenModel"`
	Model         lenient.Text            `json:"model"`
	Context       lenient.Object[context] `json:"context"`

	context // of session.context_changed

	// Conversation.
	Content      lenient.Text                             `json:"content"`
	MessageID    lenient.Text                             `json:"messageId"`
	Interaction  lenient.Text                             `json:"interactionId"`
	APICallID    lenient.Text                             `json:"apiCallId"`
	Reasoning    lenient.Text                             `json:"reasoningText"`
	Requests     lenient.List[request]                    `json:"toolRequests"`
	OutputTokens lenient.Number                           `json:"outputTokens"`
	ChunkIndex   lenient.Number                           `json:"chunkIndex"`
	ChunkCount   lenient.Number                           `json:"chunkCount"`
	Source       lenient.Text                             `json:"source"`
	Attachments  lenient.List[lenient.Object[attachment]] `json:"attachments"`
	Autopilot    lenient.Flag                             `json:"isAutopilotContinuation"`

	// Tools.
	ParentToolCallID lenient.Text              `json:"parentToolCallId"`
	ToolCallID       lenient.Text              `json:"toolCallId"`
	ToolName         lenient.Text              `json:"toolName"`
	Arguments        jsontext.Value            `json:"arguments"`
	Success          jsontext.Value            `json:"success"`
	Result           jsontext.Value            `json:"result"`
	Error            jsontext.Value            `json:"error"`
	Telemetry        lenient.Object[telemetry] `json:"toolTelemetry"`
	Shell            lenient.Object[block]     `json:"shellExecution"`

	// Hooks and permissions.
	HookType   lenient.Text                      `json:"hookType"`
	RequestID  lenient.Text                      `json:"requestId"`
	Permission lenient.Object[permissionRequest] `json:"permissionRequest"`
	Prompt     lenient.Object[permissionRequest] `json:"promptRequest"`

	// Notices.
	Message      lenient.Text `json:"message"`
	ErrorType    lenient.Text `json:"errorType"`
	ErrorCode    lenient.Text `json:"errorCode"`
	ErrorMessage lenient.Text `json:"errorMessage"`
	Reason       lenient.Text `json:"reason"`
	Summary      lenient.Text `json:"summary"`
	Compacted    lenient.Text `json:"summaryContent"`
	Title        lenient.Text `json:"title"`
	ShutdownType lenient.Text `json:"shutdownType"`
	ErrorReason  lenient.Text `json:"errorReason"`

	// Tokens, requests and changes.
	Usage   lenient.Object[figures]                            `json:"usage"`
	Spent   lenient.Object[figures]                            `json:"compactionTokensUsed"`
	Metrics lenient.Object[map[string]lenient.Object[metrics]] `json:"modelMetrics"`

	PremiumRequests lenient.Number              `json:"totalPremiumRequests"`
	CodeChanges     lenient.Object[codeChanges] `json:"codeChanges"`
}

// context is the agent's working folder.
type context struct {
	CWD        lenient.Text `json:"cwd"`
	Host       lenient.Text `json:"repositoryHost"`
	Repository lenient.Text `json:"repository"` // name on the host
	Branch     lenient.Text `json:"branch"`
	Commit     lenient.Text `json:"headCommit"`
}

// checkout returns the working tree.
func (c *context) checkout() core.Checkout {
	repository := c.Repository
	if c.Host != "" && repository != "" {
		repository = c.Host + "/" + repository
	}
	return core.Checkout{Repository: repository, Branch: c.Branch, Commit: c.Commit}
}

// request is a call in a message.
type request struct {
	ToolCallID lenient.Text   `json:"toolCallId"`
	Name       lenient.Text   `json:"name"`
	Arguments  jsontext.Value `json:"arguments"`
}

// telemetry has the measurements beside a result.
type telemetry struct {
	Metrics lenient.Object[measured] `json:"metrics"`
}

type measured struct {
	lenient.Data

	DurationMS lenient.Number `json:"durationMs"`
	ExitCode   lenient.Number `json:"exit_code"`
}

// toolResult is the output of a tool: content for the model, and in full for the human.
type toolResult struct {
	Content  lenient.Text        `json:"content"`
	Detailed lenient.Text        `json:"detailedContent"`
	Blocks   lenient.List[block] `json:"contents"`
}

// block is a block of a result, or beside it. That of a shell states how its command ended.
type block struct {
	Type     lenient.Text   `json:"type"`
	ExitCode lenient.Number `json:"exitCode"`
}

// problem returns the code and message of the error, which is a string or an object.
func (d *data) problem() (code, message string) {
	code, message = core.VendorError(d.Error)
	if message == "" {
		code, message = "", code
	}
	return code, message
}
