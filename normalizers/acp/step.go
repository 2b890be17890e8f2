package acp

import (
	"cmp"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// emitStep emits a step of an agent: a thought, or a tool call with its result.
func emitStep(m *mapper, e *emission, part int, s *envelopes.ACPTrajectory) {
	if s.ToolName == nil && s.ToolInput == nil && s.ToolOutput == nil {
		if s.Message != nil && strings.TrimSpace(*s.Message) != "" {
			m.emit(e, part, "", thoughtDraft(*s.Message))
		}
		return
	}
	var name string
	if s.ToolName != nil {
		name = *s.ToolName
	}
	tool := core.ToolOf(name)
	var input toolInput
	lenient.ReadObject(s.ToolInput, &input)
	call := m.emit(e, part, "", callDraft(s, tool, input.file()))
	if s.ToolOutput != nil {
		m.emit(e, part, "#result", resultDraft(s, tool, input.file(), call))
	}
}

// thoughtDraft returns the event of a thought.
func thoughtDraft(text string) core.Draft {
	return core.ChatDraft(envelopes.Reasoning, &text, nil)
}

// callDraft returns the event of the call of a tool.
func callDraft(s *envelopes.ACPTrajectory, tool core.Tool, file string) core.Draft {
	d := core.Draft{OnChannel: tool.Channel}
	d.EventType, d.ToolName = envelopes.ToolCall, s.ToolName
	d.ToolStatus = new(envelopes.StatusInProgress)
	if s.ToolInput != nil {
		d.Text = new(lenient.CompactText(s.ToolInput))
	}
	d.Touch(file, tool.Op)
	return d
}

// resultDraft returns the event of the result of a call.
func resultDraft(s *envelopes.ACPTrajectory, tool core.Tool, file, call string) core.Draft {
	var output toolOutput
	lenient.ReadObject(s.ToolOutput, &output)
	d := core.Draft{OnChannel: tool.Channel}
	d.EventType, d.ToolName, d.ToolCallID = envelopes.ToolResult, s.ToolName, &call
	d.Text = new(lenient.CompactText(s.ToolOutput))
	d.ToolExitCode = output.exitCode()
	d.ToolStatus = new(output.status())
	d.Touch(file, tool.Op)
	return d
}

// toolInput has the members of a tool's input that name a file.
type toolInput struct {
	lenient.Data

	Path     lenient.Text `json:"path"`
	FilePath lenient.Text `json:"file_path"`
}

// file returns the file that a tool works on; empty if the input names none.
func (i *toolInput) file() string { return string(cmp.Or(i.FilePath, i.Path)) }

// toolOutput has the members of a tool's output that state an exit code or a failure. Agents define the output, so
// any agent may use other names.
type toolOutput struct {
	lenient.Data

	ExitCode      lenient.Number `json:"exit_code"`
	ExitCodeCamel lenient.Number `json:"exitCode"`
	IsError       lenient.Flag   `json:"is_error"`
	Success       jsontext.Value `json:"success"`
	Error         jsontext.Value `json:"error"`
}

// exitCode returns the exit code stated in the output; nil for none.
func (o *toolOutput) exitCode() *int64 {
	if code := o.ExitCode.Integer(); code != nil {
		return code
	}
	return o.ExitCodeCamel.Integer()
}

// status returns error for an output with a sign of failure, otherwise success.
func (o *toolOutput) status() envelopes.ToolStatus {
	if code := o.exitCode(); code != nil && *code != 0 {
		return envelopes.StatusError
	}
	if bool(o.IsError) || o.Success.Kind() == 'f' || isFailure(o.Error) {
		return envelopes.StatusError
	}
	return envelopes.StatusSuccess
}

// isFailure reports whether a member error states one.
func isFailure(v jsontext.Value) bool {
	switch string(v) {
	case "", "null", "false", `""`, "0", "{}", "[]":
		return false
	default:
		return true
	}
}
