package claude

import (
	"cmp"
	"strings"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// toolCall emits the call of a tool and remembers it for its result.
func (e *emitter) toolCall(b *block) {
	t := core.ToolOf(string(b.Name))
	var input core.FileInput
	var text *string
	if lenient.IsValue(b.Input) {
		text = new(lenient.CompactText(b.Input))
		lenient.ReadObject(b.Input, &input)
	}
	d := core.CallDraft(b.ID, b.Name, t, text, input.File())
	d.Model, d.TextTruncated = e.model.Ptr(), b.truncated
	is := e.put(b.ID, d)
	if b.ID == "" {
		return
	}
	if !is && (e.Via != "" || e.st.Unknown == 0) {
		return
	}
	if known, ok := e.Session.RecallCall(string(b.ID)); !is && ok {
		e.Session.RememberCall(string(b.ID), known) // telemetry has stated it before; its result follows now
		return
	}
	e.st.setThin(string(b.ID), false)
	call := core.Call{Tool: string(b.Name), Channel: t.Channel, Op: t.Op, Path: input.File()}
	if isShell(call.Tool) {
		call.About = string(cmp.Or(lenient.Text(input.Description.Value), input.Command))
		call.Undescribed = input.Description.OK && input.Description.Value == ""
	}
	e.Session.RememberCall(string(b.ID), call)
}

// isShell reports whether a tool's result needs the command of its call.
func isShell(tool string) bool { return strings.EqualFold(tool, "bash") }
