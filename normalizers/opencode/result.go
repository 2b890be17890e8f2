package opencode

import (
	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// toolMetadata is the part of a state's metadata that is read.
type toolMetadata struct {
	lenient.Data

	Exit     jsontext.Value `json:"exit"`
	ExitCode jsontext.Value `json:"exitCode"` // see [Dialect]
}

// result returns the event of a result. A failed command is completed: only its exit code shows the failure; the code
// is null if the command was stopped or timed out.
func result(c *mapper, p *part, id string) core.Draft {
	s := &p.State.Value
	d := p.draft(c, envelopes.ToolResult, id)
	d.TS, _ = core.TimeOfMillis(s.Time.Value.End)
	var of toolMetadata
	lenient.ReadObject(s.Metadata, &of)
	if of.Exit == nil && c.dialect.ExitCode {
		of.Exit = of.ExitCode
	}
	d.ToolExitCode = lenient.NumberOf(of.Exit).Integer()
	status := envelopes.StatusUnknown
	switch {
	case s.Status == "error", of.Exit != nil && (d.ToolExitCode == nil || *d.ToolExitCode != 0), p.Tool == "invalid":
		status = envelopes.StatusError
	case s.Status == "completed":
		status = envelopes.StatusSuccess
	}
	d.ToolStatus = &status
	d.Text = s.Output.Ptr()
	if d.Text == nil || s.Status == "error" && s.Error.OK {
		d.Text = s.Error.Ptr()
	}
	if c.dialect.hasMetadata(string(p.Tool)) && s.Metadata.Kind() == '{' && len(lenient.Members(s.Metadata)) > 0 {
		d.ToolMetadata = core.EventRaw(s.Metadata)
	}
	return d
}

// hasMetadata reports whether the results of a tool carry its metadata: for files and shells, the task list, and the
// session of a subagent.
func (d *Dialect) hasMetadata(tool string) bool {
	switch d.toolOf(tool).Channel {
	case envelopes.ChannelTerminal, envelopes.ChannelEditor:
		return true
	default:
		return tool == "todowrite" || tool == "task"
	}
}
