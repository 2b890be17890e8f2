package claude

import (
	"cmp"
	"strings"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// toolCall emits the call of a tool and remembers it for its result.
func (e *emitter) toolCall(b *block) {
	t := core.ToolOf(string(b.Name))
	d := core.Draft{OnChannel: t.Channel}
	d.EventType = envelopes.ToolCall
	d.ToolName, d.ToolCallID = b.Name.Ptr(), b.ID.Ptr()
	d.ToolStatus = new(envelopes.StatusInProgress)
	d.Model = e.model.Ptr()
	d.TextTruncated = b.truncated
	var input core.FileInput
	if lenient.IsValue(b.Input) {
		d.Text = new(lenient.CompactText(b.Input))
		lenient.ReadObject(b.Input, &input)
	}
	d.Touch(input.File(), t.Op)
	if !e.put(b.ID, d) || b.ID == "" {
		return
	}
	call := core.Call{Tool: string(b.Name), Channel: t.Channel, Op: t.Op, Path: input.File()}
	if isShell(call.Tool) {
		call.About = string(cmp.Or(lenient.Text(input.Description.Value), input.Command))
		call.Undescribed = input.Description.OK && input.Description.Value == ""
	}
	e.Session.RememberCall(string(b.ID), call)
}

// isShell reports whether a tool's result needs the command of its call.
func isShell(tool string) bool { return strings.EqualFold(tool, "bash") }
