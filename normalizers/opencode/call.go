package opencode

import (
	"cmp"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// toolState is the state of a tool part. The part is rewritten as the call proceeds: pending, running, then completed
// or error.
type toolState struct {
	Status   lenient.Text             `json:"status"`
	Input    jsontext.Value           `json:"input"`
	Raw      lenient.Text             `json:"raw"` // arguments that could not be parsed
	Output   output                   `json:"output"`
	Error    lenient.NullText         `json:"error"`
	Time     lenient.Object[partTime] `json:"time"`
	Metadata jsontext.Value           `json:"metadata"`
}

// isDone reports whether the result of the call is known.
func (s *toolState) isDone() bool {
	return s.Status == "completed" || s.Status == "error" || s.Output.OK || s.Error.OK
}

// input has the arguments that name files.
type input struct {
	lenient.Data

	FilePath  lenient.Text `json:"filePath"`
	Path      lenient.Text `json:"path"`
	PatchText lenient.Text `json:"patchText"`
}

// ownTools are the tools that other vendors lack, or use under the same name with another meaning.
var ownTools = map[string]core.Tool{
	"list":  core.ToolSearch,
	"patch": core.ToolModify,
}

// toolOf returns a tool by its name.
func (d *Dialect) toolOf(name string) core.Tool {
	for _, own := range []map[string]core.Tool{d.Tools, ownTools} {
		if t, ok := own[name]; ok {
			return t
		}
	}
	return core.ToolOf(name)
}

// emitTool emits the call and, once known, the result of a tool part. The id of the part pairs the two, because the
// callID of some models restarts with each message.
func emitTool(c *mapper, m message, p *part, id string) {
	s := &p.State.Value
	noteState(c, s)
	if s.Status == "pending" && c.element == 0 && !s.isDone() {
		c.skip = core.SkipProgress
		return
	}
	if id == "" {
		id = c.OrdinalID(&core.Pending{Record: c.Session.Records})
	}
	if !c.say(m, id, call(c, m, p, id)) {
		c.skip = core.SkipDuplicate
		if !s.isDone() {
			c.skip = core.SkipProgress
		}
	}
	if s.isDone() {
		c.say(m, id+"#result", result(c, p, id))
	}
}

// draft returns the fields common to the call and the result of a tool part.
func (p *part) draft(c *mapper, t envelopes.EventType, id string) core.Draft {
	is := c.dialect.toolOf(string(p.Tool))
	d := core.Draft{OnChannel: is.Channel}
	d.EventType, d.ToolName, d.ToolCallID = t, p.Tool.Ptr(), &id
	var in input
	lenient.ReadObject(p.State.Value.Input, &in)
	if is.Op != "" {
		d.Touch(string(cmp.Or(in.FilePath, in.Path)), is.Op)
	}
	if is == core.ToolModify {
		d.Patch(core.PatchFiles(string(in.PatchText)))
	}
	return d
}

// call returns the event of a call.
func call(c *mapper, m message, p *part, id string) core.Draft {
	s := &p.State.Value
	d := p.draft(c, envelopes.ToolCall, id)
	d.ToolStatus = new(envelopes.StatusInProgress)
	d.Model = lenient.Text(m.Model).Ptr()
	d.TS, _ = core.TimeOfMillis(s.Time.Value.Start)
	switch {
	case s.Raw != "" && s.isDone():
		d.Text = new(string(s.Raw))
	case lenient.IsValue(s.Input):
		d.Text = new(lenient.CompactText(s.Input))
	}
	return d
}
