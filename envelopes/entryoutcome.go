package envelopes

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
)

// outcome returns the tool and the content of the entry with the result e.
func (u *toolUse) outcome(e *AgentEventV1) (tool EntryTool, content string) {
	tool = EntryTool{ToolName: u.name, Action: u.action, Status: statusOf(e)}
	text := textOf(e.Text)
	switch tool.Status {
	case EntrySuccess:
		tool.Result = &EntryOutcome{Success: true}
		if e.Text != nil {
			tool.Result.Data = jsonText(text)
		}
	case EntryFailed:
		tool.Result = &EntryOutcome{Error: failureOf(e, text)}
	default: // the tool has not ended
	}
	content = u.heading
	switch u.action.Kind {
	case ActionCommandRun:
		if tool.Result != nil {
			result := commandResult(e, tool.Result.Success, text)
			tool.Action.Result, _ = json.Marshal(result) // strings and a number
			content += result.markdown()
		}
	case ActionFileWrite:
		switch tool.Status {
		case EntrySuccess:
			content += " ✓"
		case EntryFailed:
			content += " ✗"
		default: // the tool has not ended
		}
	case ActionFileEdit:
		tool.Action.Changes = u.changed(e)
		content = editContent(*u.action.Path, tool.Action.Changes)
	case ActionTool:
		if tool.Result == nil {
			break
		}
		tool.Action.Result = tool.Result.Data
		if strings.HasPrefix(*u.action.ToolName, "mcp:") && text != "" {
			content += "\n\n" + text
		}
	case ActionFileRead, ActionSearch:
	}
	return tool, content
}

// call returns the tool and the content of the entry without a result.
func (u *toolUse) call(e *AgentEventV1) (tool EntryTool, content string) {
	content = u.heading
	if u.action.Kind == ActionFileEdit {
		content = editContent(*u.action.Path, u.action.Changes)
	}
	return EntryTool{ToolName: u.name, Action: u.action, Status: statusOf(e)}, content
}

// changed returns the changes of an edit with the result e: the diff of its tool_metadata, else
// the changes that the call requested, else the diff of its tool_output.
func (u *toolUse) changed(e *AgentEventV1) []EntryChange {
	if diff, ok := membersOf(e.ToolMetadata).text("diff"); ok && diff != "" {
		return []EntryChange{{Type: ChangeEdit, UnifiedDiff: diff}}
	}
	if len(u.action.Changes) != 1 || u.action.Changes[0] != (EntryChange{Type: ChangeEdit}) {
		return u.action.Changes
	}
	if o := e.ToolOutput; o != nil && !isEmpty(o.Diff) {
		return []EntryChange{{Type: ChangeEdit, UnifiedDiff: patchDiff(*u.action.Path, *o.Diff)}}
	}
	return u.action.Changes
}

// statusOf returns the progress of a tool as of e, its call or its result.
func statusOf(e *AgentEventV1) EntryStatus {
	status := StatusUnknown
	if e.ToolStatus != nil {
		status = *e.ToolStatus
	}
	switch {
	case status == StatusError:
		return EntryFailed
	case status == StatusSuccess:
		return EntrySuccess
	case status == StatusInProgress:
		return EntryRunning
	case e.EventType == ToolResult:
		return EntrySuccess
	default:
		return EntryCreated
	}
}

// failureOf returns the message of a tool that failed: the message in its JSON, else its text,
// else its exit code.
func failureOf(e *AgentEventV1, text string) string {
	m := membersOf(jsonOf(text))
	if s, ok := m.text("error"); ok {
		return s
	}
	if s, ok := m.object("error").text("message"); ok {
		return s
	}
	if s, ok := m.text("message"); ok {
		return s
	}
	if text == "" && e.ToolExitCode != nil {
		return fmt.Sprintf("Command exited with code %d", *e.ToolExitCode)
	}
	return text
}

// commandResult returns the result of a command. It separates stdout and stderr if tool_output
// does, or if the text is JSON that does.
func commandResult(e *AgentEventV1, success bool, text string) CommandResult {
	r := CommandResult{Stdout: text}
	switch {
	case e.ToolExitCode != nil:
		r.ExitCode = *e.ToolExitCode
	case !success:
		r.ExitCode = 1
	}
	if o := e.ToolOutput; o != nil && (o.Stdout != nil || o.Stderr != nil) {
		r.Stdout, r.Stderr = textOf(o.Stdout), textOf(o.Stderr)
		return r
	}
	output := membersOf(jsonOf(text))
	stdout, known := output.text("stdout")
	stderr, ok := output.text("stderr")
	if known || ok {
		r.Stdout, r.Stderr = stdout, stderr
	}
	return r
}

// markdown returns the end of the content of a command.
func (r CommandResult) markdown() string {
	s := fmt.Sprintf("\n\n**Exit Code:** %d", r.ExitCode)
	if r.Stdout != "" {
		s += "\n\n**Output:**\n" + CodeBlock("", r.Stdout)
	}
	if r.Stderr != "" {
		s += "\n\n**Error:**\n" + CodeBlock("", r.Stderr)
	}
	return s
}

// editContent returns the content of an edit: its file and its diffs.
func editContent(path string, changes []EntryChange) string {
	content := "Delete file: " + CodeSpan(path)
	var diffs []string
	for _, c := range changes {
		if c.Type == ChangeEdit {
			content = "Edit file: " + CodeSpan(path)
		}
		if c.UnifiedDiff != "" {
			diffs = append(diffs, c.UnifiedDiff)
		}
	}
	if len(diffs) > 0 {
		content += "\n\n" + CodeBlock("diff", strings.Join(diffs, "\n"))
	}
	return content
}
