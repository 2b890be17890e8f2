package codex

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// What Codex writes about its tools: calls, outputs, and the ends of tools beside them
// (vendor-formats.md sections 5.2 and 5.3).

const maxCallFiles = 8 // files that a remembered call keeps

// call emits the call of a tool.
func (c *mapper) call() {
	name := c.Name
	if name == "" {
		name = lenient.Text(strings.TrimSuffix(string(c.Type), "_call"))
	}
	id := cmp.Or(c.CallID, c.CallIDCamel)
	args := c.Arguments
	for _, v := range []jsontext.Value{c.Input, c.Action} {
		if !lenient.IsValue(args) {
			args = v
		}
	}
	c.emitCall(id, cmp.Or(id, c.ID), name, args)
}

// emitCall emits a call of a tool with its arguments, which are JSON, or a string that
// may hold JSON, a patch, or code. The files are those that it is known to change.
func (c *mapper) emitCall(callID, event, name lenient.Text, args jsontext.Value, changed ...envelopes.File) {
	t := core.ToolOf(string(name))
	d := core.Draft{OnChannel: t.Channel}
	d.EventType = envelopes.ToolCall
	d.ToolName, d.ToolCallID = name.Ptr(), callID.Ptr()
	d.ToolStatus = new(envelopes.StatusInProgress)
	d.Model = lenient.Text(c.Session.Model).Ptr()
	var words string
	switch {
	case args.Kind() == '"':
		words = lenient.Unquote(args)
	case lenient.IsValue(args):
		words = lenient.CompactText(args)
	}
	if lenient.IsValue(args) {
		d.Text = &words
	}
	var file string
	if files := core.PatchFiles(patchOf(words)); files != nil {
		changed = files
	}
	if len(changed) > 0 {
		d.Patch(changed)
		file = changed[0].Path
		t.Op = envelopes.OpModify
	} else {
		file = fileOf(words)
		d.Touch(file, t.Op)
	}
	if c.put(event, d) && callID != "" {
		c.Session.RememberCall(string(callID), core.Call{Tool: string(name), Channel: t.Channel, Op: t.Op, Path: file})
	}
}

// patchOf is the patch in the arguments of a tool: they are the patch, or JSON with the
// patch in one of its strings.
func patchOf(args string) string {
	if !strings.Contains(args, "*** Begin Patch") {
		return ""
	}
	v := jsontext.Value(args)
	if v.Kind() != '{' || !v.IsValid(lenient.Options) {
		return args
	}
	for _, s := range stringsOf(v) {
		if strings.Contains(s, "*** Begin Patch") {
			return s
		}
	}
	return ""
}

// stringsOf are the strings among the members of an object and the elements of its
// arrays.
func stringsOf(v jsontext.Value) []string {
	var out []string
	for _, m := range lenient.Members(v) {
		switch m.Value.Kind() {
		case '"':
			out = append(out, lenient.Unquote(m.Value))
		case '[':
			for _, e := range lenient.Elements(m.Value) {
				if e.Kind() == '"' {
					out = append(out, lenient.Unquote(e))
				}
			}
		default:
		}
	}
	return out
}

// fileOf is the file that the JSON arguments of a tool name.
func fileOf(args string) string {
	v := jsontext.Value(args)
	if v.Kind() != '{' || !v.IsValid(lenient.Options) {
		return ""
	}
	var in struct {
		core.FileInput
		DirPath lenient.Text `json:"dir_path"`
	}
	lenient.ReadObject(v, &in)
	return cmp.Or(in.File(), string(in.DirPath))
}

// output emits the result of a call.
func (c *mapper) output() core.SkipReason {
	o := c.readOutput(c.Output)
	if c.Type == "tool_search_output" {
		o.words = ""
		if lenient.IsValue(c.Tools) {
			o.words = lenient.CompactText(c.Tools)
		}
	}
	id := cmp.Or(c.CallID, c.CallIDCamel)
	made, known := c.Session.RecallCall(string(id))
	seen := made.Outcome
	if o.exit == nil {
		o.exit = seen.Exit
	}
	if o.latency == nil {
		o.latency = seen.Latency
	}
	o.failed = o.failed || seen.Failed
	c.emitResult(id, made, o, seen.Files, lenient.IsValue(c.Output) || o.words != "")
	if known {
		c.Session.SetOutcome(string(id), core.Outcome{Exit: o.exit, Latency: o.latency, Told: true})
	}
	return core.SkipDuplicate
}

// made is the call of a result that comes in the same record, which needs no id for it.
func (c *mapper) made(id, name lenient.Text) core.Call {
	made, ok := c.Session.RecallCall(string(id))
	if id == "" || !ok {
		made = core.Call{Tool: string(name), Channel: core.ToolOf(string(name)).Channel}
	}
	return made
}

// emitResult emits a result; data says that the vendor gave any.
func (c *mapper) emitResult(id lenient.Text, made core.Call, o output, files []envelopes.File, data bool) {
	d := core.Draft{OnChannel: cmp.Or(made.Channel, envelopes.ChannelOther)}
	d.EventType = envelopes.ToolResult
	d.ToolName, d.ToolCallID = lenient.Text(made.Tool).Ptr(), id.Ptr()
	d.ToolStatus = new(o.status())
	if !data && o.exit == nil && !o.failed && !o.done {
		d.ToolStatus = new(envelopes.StatusUnknown)
	}
	d.ToolExitCode, d.ToolLatencyMS = o.exit, o.latency
	if data {
		d.Text = &o.words
	}
	d.Touch(made.Path, made.Op)
	if len(files) > 0 {
		d.Patch(files)
	}
	c.put(resultID(id), d)
}

// resultID is the id of the result of a call; empty when the call has none.
func resultID(call lenient.Text) lenient.Text {
	if call == "" {
		return ""
	}
	return call + "#result"
}

// readOutput reads an output in any of its forms.
func (c *mapper) readOutput(v jsontext.Value) output {
	var o output
	switch v.Kind() {
	case '"':
		o.words = lenient.Unquote(v)
		if strings.HasPrefix(o.words, "{") && o.readJSON(o.words) {
			return o
		}
		o.readHeader(o.words)
	case '[', '{':
		var parts content
		var wrapped struct {
			Content content        `json:"content"`
			Success jsontext.Value `json:"success"`
		}
		lenient.ReadObject(v, &wrapped)
		if wrapped.Content.present {
			parts = wrapped.Content
			o.failed = string(wrapped.Success) == "false"
		} else {
			_ = json.Unmarshal(v, &parts, lenient.Options) // read once already
		}
		texts := parts.texts()
		if len(texts) > 0 {
			failed := o.failed
			o.readHeader(texts[0])
			o.failed = o.failed || failed
		}
		o.words = strings.Join(texts, "\n")
	default: // it returned nothing that can be read
	}
	return o
}

// readJSON reads the form {"output": ..., "metadata": {"exit_code", "duration_seconds"}}.
func (o *output) readJSON(s string) bool {
	v := jsontext.Value(s)
	if !v.IsValid(lenient.Options) {
		return false
	}
	var form struct {
		Output   jsontext.Value `json:"output"`
		Metadata lenient.Object[struct {
			ExitCode lenient.Number `json:"exit_code"`
			Duration lenient.Number `json:"duration_seconds"`
		}] `json:"metadata"`
	}
	lenient.ReadObject(v, &form)
	if form.Output.Kind() != '"' || !form.Metadata.OK {
		return false
	}
	o.words = lenient.Unquote(form.Output)
	o.exit = form.Metadata.Value.ExitCode.Integer()
	if d := form.Metadata.Value.Duration; d.OK {
		o.latency = milliseconds(d.Value)
	}
	return true
}

// toolEnd maps the end of a tool that is told beside its result: in front of the result
// it adds to it; behind it, it says nothing new unless the result lacked the exit code or
// the latency; without a call it is call and result at once (semantics.md section 9).
func (c *mapper) toolEnd() core.SkipReason {
	id := cmp.Or(c.CallID, c.CallIDCamel)
	o, files := c.readEnd()
	made, remembered := c.Session.RecallCall(string(id))
	switch {
	case !remembered && c.Session.HasEvent(string(id)):
		return core.SkipMirror // the call is too long ago to be remembered
	case !remembered:
		c.promote(len(c.st.Twins))
		name, args := c.endedCall()
		c.emitCall(id, id, name, args, files...)
		if c.Type == "view_image_tool_call" {
			return core.SkipDuplicate
		}
		c.emitResult(id, c.made(id, name), o, files, true)
		c.Session.SetOutcome(string(id), core.Outcome{Exit: o.exit, Latency: o.latency, Told: true})
		return core.SkipDuplicate
	case made.Outcome.Alone:
		c.promote(len(c.st.Twins))
		c.emitResult(id, made, o, files, true)
		c.Session.SetOutcome(string(id), core.Outcome{Exit: o.exit, Latency: o.latency, Told: true})
		return core.SkipDuplicate
	case !made.Outcome.Told:
		// A tool may have several ends: of a command, and of the patch in it.
		seen := made.Outcome
		if len(files) == 0 {
			files = seen.Files
		}
		c.Session.SetOutcome(string(id), core.Outcome{
			Exit: cmp.Or(o.exit, seen.Exit), Latency: cmp.Or(o.latency, seen.Latency),
			Failed: o.failed || seen.Failed, Files: files[:min(len(files), maxCallFiles)],
		})
		return core.SkipMirror
	case o.exit != nil && made.Outcome.Exit == nil, o.latency != nil && made.Outcome.Latency == nil:
		// The result lacked what this tells: it is told again.
		o.exit, o.latency = cmp.Or(o.exit, made.Outcome.Exit), cmp.Or(o.latency, made.Outcome.Latency)
		c.emitResult(id, made, o, files, true)
		c.Session.SetOutcome(string(id), core.Outcome{Exit: o.exit, Latency: o.latency, Told: true})
		return core.SkipDuplicate
	default:
		return core.SkipMirror
	}
}

// toolBegin maps the request of a tool that has no response_item.
func (c *mapper) toolBegin() core.SkipReason {
	id := cmp.Or(c.CallID, c.CallIDCamel)
	if c.Session.HasEvent(string(id)) {
		return core.SkipMirror
	}
	c.promote(len(c.st.Twins))
	c.emitCall(id, id, c.Tool, c.Arguments)
	c.Session.SetOutcome(string(id), core.Outcome{Alone: true})
	return core.SkipDuplicate
}

// readEnd is what an end record says about the outcome.
func (c *mapper) readEnd() (o output, files []envelopes.File) {
	o.exit = c.ExitCode.Integer()
	if d := c.Duration.Value; d.Secs.OK {
		o.latency = milliseconds(d.Secs.Value + d.Nanos.Value/1e9)
	}
	o.failed = string(c.Success) == "false" || c.Status == "failed" || c.Status == "declined"
	o.words = string(c.Aggregated)
	if o.words == "" {
		o.words = strings.TrimSuffix(string(c.Stdout)+"\n"+string(c.Stderr), "\n")
	}
	switch c.Type {
	case "patch_apply_end":
		for _, m := range lenient.ObjectMembers(c.Changes) {
			var change struct {
				Type lenient.Text `json:"type"`
				Move lenient.Text `json:"move_path"`
			}
			lenient.ReadObject(m.Value, &change)
			op := envelopes.OpModify
			switch change.Type {
			case "add":
				op = envelopes.OpCreate
			case "delete":
				op = envelopes.OpDelete
			}
			files = append(files, envelopes.File{Path: m.Name, Op: op})
			if change.Move != "" {
				files = append(files, envelopes.File{Path: string(change.Move), Op: envelopes.OpMove})
			}
		}
	case "mcp_tool_call_end":
		var result struct {
			Ok  lenient.Object[returned] `json:"Ok"`
			Err jsontext.Value           `json:"Err"`
			returned
		}
		lenient.ReadObject(c.Result, &result)
		returned := result.returned // of an item, whose error stands beside it
		if result.Ok.OK {
			returned = result.Ok.Value
		}
		o.words = strings.Join(returned.Content.texts(), "\n")
		_, message := core.VendorError(c.Error)
		if message = cmp.Or(string(lenient.Scalar(result.Err)), message); message != "" {
			o.words = message
		}
		o.failed = o.failed || lenient.IsValue(result.Err) || lenient.IsValue(c.Error) || bool(returned.IsError)
	case "dynamic_tool_call_response":
		o.words = cmp.Or(strings.Join(c.ContentItems.texts(), "\n"), string(lenient.Scalar(c.Error)))
	case "image_generation_end":
		o.words = string(cmp.Or(c.RevisedPrompt, c.RevisedCamel))
	case "web.search":
		if lenient.IsValue(c.Results) {
			o.words = lenient.CompactText(c.Results)
		}
	}
	return o, files
}

// returned is what an MCP tool returned.
type returned struct {
	Content content      `json:"content"`
	IsError lenient.Flag `json:"isError"`
}

// endedCall is the call of an end record that has none.
func (c *mapper) endedCall() (name lenient.Text, args jsontext.Value) {
	switch c.Type {
	case "exec_command_end":
		return "exec_command", c.Command
	case "patch_apply_end":
		return "apply_patch", nil
	case "mcp_tool_call_end":
		i := c.Invocation.Value
		if !c.Invocation.OK {
			i = invocation{c.Server, c.Tool, c.Arguments}
		}
		return "mcp__" + i.Server + "__" + i.Tool, i.Arguments
	case "image_generation_end":
		return "image_generation", nil
	case "view_image_tool_call":
		path := strings.TrimPrefix(string(c.Path), "file://")
		return "view_image", jsontext.Value(`{"path":` + string(lenient.AppendQuote(nil, path)) + `}`)
	case "web.search":
		if !lenient.IsValue(c.Action) {
			return "web_search", lenient.AppendQuote(nil, string(c.Query))
		}
		return "web_search", c.Action
	default:
		return c.Tool, c.Arguments
	}
}

// hosted emits the call and the result of a tool that the vendor runs: web search, image
// generation.
func (c *mapper) hosted() core.SkipReason {
	name := lenient.Text(strings.TrimSuffix(string(c.Type), "_call"))
	id := cmp.Or(c.CallID, c.ID)
	o := output{words: string(c.RevisedPrompt), failed: c.Status == "failed", done: c.Status == "completed"}
	action := c.Action
	if search := c.st.Search; search != nil {
		if name == "web_search" && (bytes.Equal(search.Action, compactValue(action)) || search.Call == string(id)) {
			id = lenient.Text(search.Call)
			c.st.Search = nil
		} else {
			c.releaseSearch()
		}
	}
	c.emitCall(id, id, name, action)
	c.emitResult(id, c.made(id, name), o, nil, o.words != "")
	c.Session.SetOutcome(string(id), core.Outcome{Told: true})
	return core.SkipDuplicate
}

// search is the end of a web search that waits one record for its call.
type search struct {
	Call   string         `json:"call"`
	Action jsontext.Value `json:"action,omitzero"`
	Copied bool           `json:"c,omitzero"`
	From   core.Pending   `json:"from"`
}

// searchEnd takes the end of a web search: the next record may be its call, which has no
// id of its own.
func (c *mapper) searchEnd() core.SkipReason {
	if c.Session.HasEvent(string(c.CallID)) {
		return core.SkipMirror
	}
	c.st.Search = &search{
		Call:   core.BoundID(string(c.CallID)),
		Action: compactValue(c.Action),
		Copied: c.copied,
		From:   c.PendingRecord(),
	}
	return core.SkipHeld
}

// releaseSearch tells a web search whose call did not come.
func (c *mapper) releaseSearch() {
	search := c.st.Search
	if search == nil {
		return
	}
	c.st.Search = nil
	c.promote(len(c.st.Twins)) // what waits stands before the search
	t := core.ToolOf("web_search")
	for _, kind := range []envelopes.EventType{envelopes.ToolCall, envelopes.ToolResult} {
		d := core.Draft{OnChannel: t.Channel, From: &search.From}
		d.EventType = kind
		d.ToolName, d.ToolCallID = new("web_search"), lenient.Text(search.Call).Ptr()
		id := lenient.Text(search.Call)
		if kind == envelopes.ToolCall {
			d.ToolStatus = new(envelopes.StatusInProgress)
			d.Text = lenient.Text(search.Action).Ptr()
			d.Model = lenient.Text(c.Session.Model).Ptr()
		} else {
			d.ToolStatus = new(envelopes.StatusSuccess)
			id = resultID(id)
		}
		if id == "" {
			id = c.heldID(&search.From)
		}
		if search.Copied {
			d.Origin = envelopes.OriginCopied
		}
		c.put(id, d)
		search.From.Raw = nil // on the first of the two
	}
}

// compactValue is a small JSON value in one form, for comparing; nil when it is not small.
func compactValue(v jsontext.Value) jsontext.Value {
	if !lenient.IsValue(v) || len(v) > core.MaxExtension {
		return nil
	}
	v = slices.Clone(v)
	if v.Compact(lenient.Options) != nil || !v.IsValid() {
		return nil
	}
	return v
}
