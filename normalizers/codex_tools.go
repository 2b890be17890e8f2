package normalizers

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
)

// What Codex writes about its tools: calls, outputs, and the ends of tools beside them
// (vendor-formats.md sections 5.2 and 5.3).

const maxCallFiles = 8 // files that a remembered call keeps

// outcome is what an end record said about a call before its result came, or what its
// result said already.
type outcome struct {
	Exit    *int64           `json:"x,omitzero"`
	Latency *int64           `json:"l,omitzero"`
	Failed  bool             `json:"f,omitzero"`
	Files   []envelopes.File `json:"files,omitzero"`
	Told    bool             `json:"t,omitzero"` // the result is told
	Alone   bool             `json:"a,omitzero"` // no result follows: the end is it
}

// call emits the call of a tool.
func (c *codexFold) call() {
	name := c.Name
	if name == "" {
		name = text(strings.TrimSuffix(string(c.Type), "_call"))
	}
	id := cmp.Or(c.CallID, c.CallIDCamel)
	args := c.Arguments
	for _, v := range []jsontext.Value{c.Input, c.Action} {
		if !isValue(args) {
			args = v
		}
	}
	c.emitCall(id, cmp.Or(id, c.ID), name, args)
}

// emitCall emits a call of a tool with its arguments, which are JSON, or a string that
// may hold JSON, a patch, or code. The files are those that it is known to change.
func (c *codexFold) emitCall(callID, event, name text, args jsontext.Value, changed ...envelopes.File) {
	t := toolOf(string(name))
	d := draft{on: t.channel}
	d.EventType = envelopes.ToolCall
	d.ToolName, d.ToolCallID = name.ptr(), callID.ptr()
	d.ToolStatus = new(envelopes.StatusInProgress)
	d.Model = text(c.s.Model).ptr()
	var words string
	switch {
	case args.Kind() == '"':
		words = unquote(args)
	case isValue(args):
		words = compactText(args)
	}
	if isValue(args) {
		d.Text = &words
	}
	var file string
	if files := patchFiles(patchOf(words)); files != nil {
		changed = files
	}
	if len(changed) > 0 {
		d.patch(changed)
		file = changed[0].Path
		t.op = envelopes.OpModify
	} else {
		file = fileOf(words)
		d.touch(file, t.op)
	}
	if c.put(event, d) && callID != "" {
		c.s.remember(string(callID), call{Tool: string(name), Channel: t.channel, Op: t.op, Path: file})
	}
}

// patchOf is the patch in the arguments of a tool: they are the patch, or JSON with the
// patch in one of its strings.
func patchOf(args string) string {
	if !strings.Contains(args, "*** Begin Patch") {
		return ""
	}
	v := jsontext.Value(args)
	if v.Kind() != '{' || !v.IsValid(vendorJSON) {
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
	for _, m := range membersOf(v) {
		switch m.value.Kind() {
		case '"':
			out = append(out, unquote(m.value))
		case '[':
			for _, e := range elementsOf(m.value) {
				if e.Kind() == '"' {
					out = append(out, unquote(e))
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
	if v.Kind() != '{' || !v.IsValid(vendorJSON) {
		return ""
	}
	var in struct {
		claudeInput
		DirPath text `json:"dir_path"`
	}
	readObject(v, &in)
	return cmp.Or(in.file(), string(in.DirPath))
}

// output emits the result of a call.
func (c *codexFold) output() SkipReason {
	o := c.readOutput(c.Output)
	if c.Type == "tool_search_output" {
		o.words = ""
		if isValue(c.Tools) {
			o.words = compactText(c.Tools)
		}
	}
	id := cmp.Or(c.CallID, c.CallIDCamel)
	made, known := c.s.recall(string(id))
	seen := made.Outcome
	if o.exit == nil {
		o.exit = seen.Exit
	}
	if o.latency == nil {
		o.latency = seen.Latency
	}
	o.failed = o.failed || seen.Failed
	c.emitResult(id, made, o, seen.Files, isValue(c.Output) || o.words != "")
	if known {
		c.s.settle(string(id), outcome{Exit: o.exit, Latency: o.latency, Told: true})
	}
	return SkipDuplicate
}

// made is the call of a result that comes in the same record, which needs no id for it.
func (c *codexFold) made(id, name text) call {
	made, ok := c.s.recall(string(id))
	if id == "" || !ok {
		made = call{Tool: string(name), Channel: toolOf(string(name)).channel}
	}
	return made
}

// emitResult emits a result; data says that the vendor gave any.
func (c *codexFold) emitResult(id text, made call, o output, files []envelopes.File, data bool) {
	d := draft{on: cmp.Or(made.Channel, envelopes.ChannelOther)}
	d.EventType = envelopes.ToolResult
	d.ToolName, d.ToolCallID = text(made.Tool).ptr(), id.ptr()
	d.ToolStatus = new(o.status())
	if !data && o.exit == nil && !o.failed && !o.done {
		d.ToolStatus = new(envelopes.StatusUnknown)
	}
	d.ToolExitCode, d.ToolLatencyMS = o.exit, o.latency
	if data {
		d.Text = &o.words
	}
	d.touch(made.Path, made.Op)
	if len(files) > 0 {
		d.patch(files)
	}
	c.put(resultID(id), d)
}

// resultID is the id of the result of a call; empty when the call has none.
func resultID(call text) text {
	if call == "" {
		return ""
	}
	return call + "#result"
}

// readOutput reads an output in any of its forms.
func (c *codexFold) readOutput(v jsontext.Value) output {
	var o output
	switch v.Kind() {
	case '"':
		o.words = unquote(v)
		if strings.HasPrefix(o.words, "{") && o.readJSON(o.words) {
			return o
		}
		o.readHeader(o.words)
	case '[', '{':
		var parts codexContent
		var wrapped struct {
			Content codexContent   `json:"content"`
			Success jsontext.Value `json:"success"`
		}
		readObject(v, &wrapped)
		if wrapped.Content.present {
			parts = wrapped.Content
			o.failed = string(wrapped.Success) == "false"
		} else {
			_ = json.Unmarshal(v, &parts, vendorJSON) // read once already
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
	if !v.IsValid(vendorJSON) {
		return false
	}
	var form struct {
		Output   jsontext.Value `json:"output"`
		Metadata object[struct {
			ExitCode number `json:"exit_code"`
			Duration number `json:"duration_seconds"`
		}] `json:"metadata"`
	}
	readObject(v, &form)
	if form.Output.Kind() != '"' || !form.Metadata.ok {
		return false
	}
	o.words = unquote(form.Output)
	o.exit = form.Metadata.value.ExitCode.integer()
	if d := form.Metadata.value.Duration; d.ok {
		o.latency = milliseconds(d.value)
	}
	return true
}

// toolEnd maps the end of a tool that is told beside its result: in front of the result
// it adds to it; behind it, it says nothing new unless the result lacked the exit code or
// the latency; without a call it is call and result at once (semantics.md section 9).
func (c *codexFold) toolEnd() SkipReason {
	id := cmp.Or(c.CallID, c.CallIDCamel)
	o, files := c.readEnd()
	made, remembered := c.s.recall(string(id))
	switch {
	case !remembered && c.s.knows(string(id)):
		return SkipMirror // the call is too long ago to be remembered
	case !remembered:
		c.promote(len(c.st.Twins))
		name, args := c.endedCall()
		c.emitCall(id, id, name, args, files...)
		if c.Type == "view_image_tool_call" {
			return SkipDuplicate
		}
		c.emitResult(id, c.made(id, name), o, files, true)
		c.s.settle(string(id), outcome{Exit: o.exit, Latency: o.latency, Told: true})
		return SkipDuplicate
	case made.Outcome.Alone:
		c.promote(len(c.st.Twins))
		c.emitResult(id, made, o, files, true)
		c.s.settle(string(id), outcome{Exit: o.exit, Latency: o.latency, Told: true})
		return SkipDuplicate
	case !made.Outcome.Told:
		// A tool may have several ends: of a command, and of the patch in it.
		seen := made.Outcome
		if len(files) == 0 {
			files = seen.Files
		}
		c.s.settle(string(id), outcome{
			Exit: cmp.Or(o.exit, seen.Exit), Latency: cmp.Or(o.latency, seen.Latency),
			Failed: o.failed || seen.Failed, Files: files[:min(len(files), maxCallFiles)],
		})
		return SkipMirror
	case o.exit != nil && made.Outcome.Exit == nil, o.latency != nil && made.Outcome.Latency == nil:
		// The result lacked what this tells: it is told again.
		o.exit, o.latency = cmp.Or(o.exit, made.Outcome.Exit), cmp.Or(o.latency, made.Outcome.Latency)
		c.emitResult(id, made, o, files, true)
		c.s.settle(string(id), outcome{Exit: o.exit, Latency: o.latency, Told: true})
		return SkipDuplicate
	default:
		return SkipMirror
	}
}

// toolBegin maps the request of a tool that has no response_item.
func (c *codexFold) toolBegin() SkipReason {
	id := cmp.Or(c.CallID, c.CallIDCamel)
	if c.s.knows(string(id)) {
		return SkipMirror
	}
	c.promote(len(c.st.Twins))
	c.emitCall(id, id, c.Tool, c.Arguments)
	c.s.settle(string(id), outcome{Alone: true})
	return SkipDuplicate
}

// readEnd is what an end record says about the outcome.
func (c *codexFold) readEnd() (o output, files []envelopes.File) {
	o.exit = c.ExitCode.integer()
	if d := c.Duration.value; d.Secs.ok {
		o.latency = milliseconds(d.Secs.value + d.Nanos.value/1e9)
	}
	o.failed = string(c.Success) == "false" || c.Status == "failed" || c.Status == "declined"
	o.words = string(c.Aggregated)
	if o.words == "" {
		o.words = strings.TrimSuffix(string(c.Stdout)+"\n"+string(c.Stderr), "\n")
	}
	switch c.Type {
	case "patch_apply_end":
		for _, m := range objectMembers(c.Changes) {
			var change struct {
				Type text `json:"type"`
				Move text `json:"move_path"`
			}
			readObject(m.value, &change)
			op := envelopes.OpModify
			switch change.Type {
			case "add":
				op = envelopes.OpCreate
			case "delete":
				op = envelopes.OpDelete
			}
			files = append(files, envelopes.File{Path: m.name, Op: op})
			if change.Move != "" {
				files = append(files, envelopes.File{Path: string(change.Move), Op: envelopes.OpMove})
			}
		}
	case "mcp_tool_call_end":
		var result struct {
			Ok  object[codexReturned] `json:"Ok"`
			Err jsontext.Value        `json:"Err"`
			codexReturned
		}
		readObject(c.Result, &result)
		returned := result.codexReturned // of an item, whose error stands beside it
		if result.Ok.ok {
			returned = result.Ok.value
		}
		o.words = strings.Join(returned.Content.texts(), "\n")
		_, message := problemOf(c.Error)
		if message = cmp.Or(string(scalar(result.Err)), message); message != "" {
			o.words = message
		}
		o.failed = o.failed || isValue(result.Err) || isValue(c.Error) || bool(returned.IsError)
	case "dynamic_tool_call_response":
		o.words = cmp.Or(strings.Join(c.ContentItems.texts(), "\n"), string(scalar(c.Error)))
	case "image_generation_end":
		o.words = string(cmp.Or(c.RevisedPrompt, c.RevisedCamel))
	case "web.search":
		if isValue(c.Results) {
			o.words = compactText(c.Results)
		}
	}
	return o, files
}

// codexReturned is what an MCP tool returned.
type codexReturned struct {
	Content codexContent `json:"content"`
	IsError flag         `json:"isError"`
}

// objectMembers are the members of a value that is an object, else none.
func objectMembers(v jsontext.Value) []member {
	if v.Kind() != '{' {
		return nil
	}
	return membersOf(v)
}

// endedCall is the call of an end record that has none.
func (c *codexFold) endedCall() (name text, args jsontext.Value) {
	switch c.Type {
	case "exec_command_end":
		return "exec_command", c.Command
	case "patch_apply_end":
		return "apply_patch", nil
	case "mcp_tool_call_end":
		i := c.Invocation.value
		if !c.Invocation.ok {
			i = codexInvocation{c.Server, c.Tool, c.Arguments}
		}
		return "mcp__" + i.Server + "__" + i.Tool, i.Arguments
	case "image_generation_end":
		return "image_generation", nil
	case "view_image_tool_call":
		path := strings.TrimPrefix(string(c.Path), "file://")
		return "view_image", jsontext.Value(`{"path":` + string(appendQuote(nil, path)) + `}`)
	case "web.search":
		if !isValue(c.Action) {
			return "web_search", appendQuote(nil, string(c.Query))
		}
		return "web_search", c.Action
	default:
		return c.Tool, c.Arguments
	}
}

// hosted emits the call and the result of a tool that the vendor runs: web search, image
// generation.
func (c *codexFold) hosted() SkipReason {
	name := text(strings.TrimSuffix(string(c.Type), "_call"))
	id := cmp.Or(c.CallID, c.ID)
	o := output{words: string(c.RevisedPrompt), failed: c.Status == "failed", done: c.Status == "completed"}
	action := c.Action
	if search := c.st.Search; search != nil {
		if name == "web_search" && (bytes.Equal(search.Action, compactValue(action)) || search.Call == string(id)) {
			id = text(search.Call)
			c.st.Search = nil
		} else {
			c.releaseSearch()
		}
	}
	c.emitCall(id, id, name, action)
	c.emitResult(id, c.made(id, name), o, nil, o.words != "")
	c.s.settle(string(id), outcome{Told: true})
	return SkipDuplicate
}

// codexSearch is the end of a web search that waits one record for its call.
type codexSearch struct {
	Call   string         `json:"call"`
	Action jsontext.Value `json:"action,omitzero"`
	Copied bool           `json:"c,omitzero"`
	From   held           `json:"from"`
}

// searchEnd takes the end of a web search: the next record may be its call, which has no
// id of its own.
func (c *codexFold) searchEnd() SkipReason {
	if c.s.knows(string(c.CallID)) {
		return SkipMirror
	}
	c.st.Search = &codexSearch{
		Call:   boundID(string(c.CallID)),
		Action: compactValue(c.Action),
		Copied: c.copied,
		From:   c.hold(),
	}
	return SkipHeld
}

// releaseSearch tells a web search whose call did not come.
func (c *codexFold) releaseSearch() {
	search := c.st.Search
	if search == nil {
		return
	}
	c.st.Search = nil
	c.promote(len(c.st.Twins)) // what waits stands before the search
	t := toolOf("web_search")
	for _, kind := range []envelopes.EventType{envelopes.ToolCall, envelopes.ToolResult} {
		d := draft{on: t.channel, from: &search.From}
		d.EventType = kind
		d.ToolName, d.ToolCallID = new("web_search"), text(search.Call).ptr()
		id := text(search.Call)
		if kind == envelopes.ToolCall {
			d.ToolStatus = new(envelopes.StatusInProgress)
			d.Text = text(search.Action).ptr()
			d.Model = text(c.s.Model).ptr()
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
	if !isValue(v) || len(v) > maxExtension {
		return nil
	}
	v = slices.Clone(v)
	if v.Compact(vendorJSON) != nil || !v.IsValid() {
		return nil
	}
	return v
}
