package cursor

import (
	"cmp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// What the stream of Cursor writes about its tools. The key of the tool_call object names
// the tool; a call is told when it starts, its result when it is completed. Calls run
// side by side, so that only the call_id pairs them, which is no plain text: it may hold
// a newline.

// tool is the content of a tool_call, or of a tool_use in a transcript.
type tool struct {
	id     string // for a record without a call_id
	name   string
	args   jsontext.Value
	result jsontext.Value
}

// readTool finds the tool in a tool_call object: what stands under a key that ends
// in ToolCall, or under `function`, else the first object; beside it newer versions write
// its id and its times.
func readTool(v jsontext.Value) tool {
	var in struct {
		ID lenient.Text `json:"toolCallId"`
	}
	lenient.ReadObject(v, &in)
	var t tool
	var body jsontext.Value
	for _, m := range lenient.ObjectMembers(v) {
		named := strings.HasSuffix(m.Name, "ToolCall") || m.Name == "function"
		if m.Value.Kind() == '{' && (body == nil || named) {
			t.name, body = m.Name, m.Value
			if named {
				break
			}
		}
	}
	var tool struct {
		Name      lenient.Text   `json:"name"`
		Case      lenient.Text   `json:"case"`
		Value     jsontext.Value `json:"value"`
		Args      jsontext.Value `json:"args"`
		Arguments jsontext.Value `json:"arguments"`
		Result    jsontext.Value `json:"result"`
	}
	lenient.ReadObject(body, &tool)
	if t.name == "tool" && tool.Case != "" {
		t.name = string(tool.Case)
		lenient.ReadObject(tool.Value, &tool)
	}
	var args struct {
		ID lenient.Text `json:"toolCallId"`
	}
	lenient.ReadObject(tool.Args, &args)
	t.id = string(cmp.Or(in.ID, args.ID))
	t.args, t.result = tool.Args, tool.Result
	if t.name == "function" {
		t.name = string(cmp.Or(tool.Name, "function"))
		if lenient.IsValue(tool.Arguments) {
			t.args = tool.Arguments
		}
		return t
	}
	t.name = strings.ToLower(strings.TrimSuffix(t.name, "ToolCall"))
	if t.name == "updatetodos" {
		t.name = "todo"
	}
	return t
}

// toolCall maps the start or the completion of a call.
func (c *mapper) toolCall() core.SkipReason {
	t := readTool(c.ToolCall)
	id := string(cmp.Or(c.CallID, lenient.Text(t.id)))
	switch c.Subtype {
	case "started":
		c.st.Segment = segment{}
		if id == "" {
			id = c.OrdinalID(&core.Pending{Record: c.Session.Records})
		}
		c.call(id, t)
	case "completed":
		c.completed(id, t)
	default:
		c.runtime(envelopes.Meta, "")
	}
	return core.SkipDuplicate
}

// args are the arguments of a tool that name a file.
type args struct {
	Path           lenient.Text `json:"path"`
	FilePath       lenient.Text `json:"file_path"`
	FilePathCamel  lenient.Text `json:"filePath"`
	TargetFile     lenient.Text `json:"target_file"`
	TargetNotebook lenient.Text `json:"target_notebook"`
	RelativePath   lenient.Text `json:"relativeWorkspacePath"`
}

func (a *args) file() string {
	return string(cmp.Or(a.Path, a.FilePath, a.FilePathCamel, a.TargetFile, a.TargetNotebook, a.RelativePath))
}

// file is the file that the tool works on, as far as its arguments say.
func (t *tool) file() string {
	if core.ToolOf(t.name).Op == "" {
		return ""
	}
	var args args
	lenient.ReadObject(t.args, &args)
	return args.file()
}

// call emits the call of a tool.
func (c *mapper) call(id string, t tool) {
	is := core.ToolOf(t.name)
	d := core.Draft{OnChannel: is.Channel}
	d.EventType, d.EventID = envelopes.ToolCall, id
	d.ToolName, d.ToolCallID = lenient.Text(t.name).Ptr(), &id
	d.ToolStatus = new(envelopes.StatusInProgress)
	d.Model = lenient.Text(c.Session.Model).Ptr()
	switch {
	case t.args.Kind() == '"':
		d.Text = new(lenient.Unquote(t.args))
	case lenient.IsValue(t.args):
		d.Text = new(lenient.CompactText(t.args))
	}
	file := t.file()
	d.Touch(file, is.Op)
	if is == core.ToolModify && t.args.Kind() == '"' {
		d.Patch(core.PatchFiles(*d.Text))
	}
	if d.FilePath != nil {
		file = *d.FilePath
	}
	if c.Emit(d) {
		c.Session.RememberCall(id, core.Call{Tool: t.name, Channel: is.Channel, Op: is.Op, Path: file})
	}
}

// completed emits the result of a call, also of one that was never started.
func (c *mapper) completed(id string, t tool) {
	made, known := c.Session.RecallCall(id)
	name := cmp.Or(made.Tool, t.name)
	is := core.ToolOf(name)
	r := readResult(t.result)
	d := core.Draft{OnChannel: is.Channel}
	d.EventType, d.EventID = envelopes.ToolResult, resultEventID(id)
	d.ToolCallID, d.ToolName = lenient.Text(id).Ptr(), lenient.Text(name).Ptr()
	d.Text = r.text()
	d.ToolStatus = new(r.status())
	d.ToolExitCode = r.exitCode()
	d.ToolLatencyMS = r.latency()
	d.ToolOutput = r.output(is.Op)
	if !known {
		d.ToolInput = t.input()
	}
	file := ""
	if is.Op != "" {
		file = cmp.Or(t.file(), made.Path, r.outcome.file())
	}
	d.Touch(file, is.Op)
	c.Emit(d)
}

// result is the result of a tool: an object whose one key is the outcome, or what
// the tool returned.
type result struct {
	name       string         // of the outcome; empty where the result names none
	value      jsontext.Value // what stands under it, or the whole result
	outcome    outcome
	background bool // it runs on
}

// outcome is what stands under the key of an outcome.
type outcome struct {
	args `json:",embed"`

	Stdout           lenient.Text   `json:"stdout"`
	Stderr           lenient.Text   `json:"stderr"`
	Output           lenient.Text   `json:"output"`
	Interleaved      lenient.Text   `json:"interleavedOutput"`
	Content          jsontext.Value `json:"content"`
	DiffString       lenient.Text   `json:"diffString"`
	Diff             lenient.Text   `json:"diff"`
	Message          lenient.Text   `json:"message"`
	Error            jsontext.Value `json:"error"`
	ErrorMessage     lenient.Text   `json:"errorMessage"`
	Reason           lenient.Text   `json:"reason"`
	IsError          lenient.Flag   `json:"isError"`
	ExitCode         lenient.Number `json:"exitCode"`
	ExitCodeSnake    lenient.Number `json:"exit_code"`
	Signal           lenient.Text   `json:"signal"`
	Aborted          lenient.Flag   `json:"aborted"`
	IsBackground     lenient.Flag   `json:"isBackground"`
	BackgroundReason lenient.Text   `json:"backgroundReason"`
	ExecutionTime    lenient.Number `json:"executionTime"`
	ExecutionTimeMS  lenient.Number `json:"executionTimeMs"`
	LocalTimeMS      lenient.Number `json:"localExecutionTimeMs"`
	DurationMS       lenient.Number `json:"durationMs"`
}

// readResult finds the outcome in a result. Keys that are no outcome by their words
// are what the tool returned.
func readResult(v jsontext.Value) result {
	r := result{value: v}
	for _, m := range lenient.ObjectMembers(v) {
		switch {
		case !lenient.IsValue(m.Value):
		case m.Name == "success", r.name == "" && isOutcome(m.Name) && string(m.Value) != "false":
			r.name, r.value = m.Name, m.Value
		case m.Name == "isBackground":
			r.background = string(m.Value) == "true"
		}
	}
	lenient.ReadObject(r.value, &r.outcome)
	if r.name == "" && len(lenient.ObjectMembers(v)) == 1 && isMember(v, "isBackground") {
		r.value = nil // that it does not run on is no result
	}
	return r
}

// isMember reports whether an object has a member of the name.
func isMember(v jsontext.Value, name string) bool {
	return slices.ContainsFunc(lenient.ObjectMembers(v), func(m lenient.Member) bool { return m.Name == name })
}

// isOutcome reports whether a key of a result names how the call went wrong, or that it
// runs on: failure, error, rejected, timeout, permissionDenied, spawnError, fileNotFound,
// writePermissionDenied, noSpace, invalidFile and so on.
func isOutcome(key string) bool {
	key = strings.ToLower(key)
	for _, word := range []string{
		"fail", "error", "reject", "timeout", "timedout", "denied", "notfound", "not_found", "nospace", "notfile", "notdirectory",
		"invalid", "busy", "abort", "cancel", "interrupt", "unavailable", "unsupported", "backgrounded",
	} {
		if strings.Contains(key, word) && key != "iserror" && key != "is_error" {
			return true
		}
	}
	return key == "async"
}

// status is the outcome by semantics.md section 7.
func (r *result) status() envelopes.ToolStatus {
	o := &r.outcome
	exit := r.exitCode()
	switch key := strings.ToLower(r.name); {
	case exit != nil && *exit != 0, bool(o.IsError), bool(o.Aborted), o.Signal != "", key == "success" && string(r.value) == "false":
		return envelopes.StatusError
	case strings.Contains(key, "backgrounded"), key == "async":
		return envelopes.StatusInProgress
	case key != "" && key != "success":
		return envelopes.StatusError
	case r.background, bool(o.IsBackground), o.BackgroundReason != "":
		return envelopes.StatusInProgress
	case !lenient.IsValue(r.value), string(r.value) == "{}" && key == "":
		return envelopes.StatusUnknown
	default:
		return envelopes.StatusSuccess
	}
}

// exitCode is the exit code that the outcome states.
func (r *result) exitCode() *int64 {
	if code := r.outcome.ExitCode.Integer(); code != nil {
		return code
	}
	return r.outcome.ExitCodeSnake.Integer()
}

// latency is how long the call took, in the vendor's own figure.
func (r *result) latency() *int64 {
	o := &r.outcome
	for _, n := range []lenient.Number{o.ExecutionTime, o.ExecutionTimeMS, o.LocalTimeMS, o.DurationMS} {
		if n.OK && n.Value >= 0 {
			return new(n.Count())
		}
	}
	return nil
}

// text is what the tool returned, as a reader wants it: output, content, a diff, a
// message; else the outcome as it stands. Nil where there is nothing.
func (r *result) text() *string {
	o := &r.outcome
	switch {
	case r.value.Kind() == '"':
		return new(lenient.Unquote(r.value))
	case r.value.Kind() == 't', r.value.Kind() == 'f', !lenient.IsValue(r.value):
		return nil
	case o.Stdout != "" && o.Stderr != "":
		return new(string(o.Stdout + "\n" + o.Stderr))
	case o.Stdout+o.Stderr != "":
		return new(string(o.Stdout + o.Stderr))
	case o.Interleaved+o.Output != "":
		return new(string(cmp.Or(o.Interleaved, o.Output)))
	case isMember(r.value, "stdout"), isMember(r.value, "stderr"):
		return new("")
	case o.Content.Kind() == '"':
		return new(lenient.Unquote(o.Content))
	case o.Content.Kind() == '[':
		return new(mcpText(o.Content))
	}
	_, message := core.VendorError(o.Error)
	if o.Error.Kind() == '"' {
		message = lenient.Unquote(o.Error)
	}
	words := cmp.Or(o.DiffString, o.Diff, lenient.Text(message), o.ErrorMessage, o.Message, o.Reason)
	if words == "" {
		words = lenient.Text(lenient.CompactText(r.value))
	}
	return new(string(words))
}

// mcpText joins the texts of the content of an MCP tool, which stand as {text} or as
// {text: {text}}; other content stands as it is.
func mcpText(v jsontext.Value) string {
	var parts []string
	for _, e := range lenient.Elements(v) {
		var flat struct {
			Text jsontext.Value `json:"text"`
		}
		lenient.ReadObject(e, &flat)
		var inner struct {
			Text lenient.Text `json:"text"`
		}
		lenient.ReadObject(flat.Text, &inner)
		switch {
		case flat.Text.Kind() == '"':
			parts = append(parts, lenient.Unquote(flat.Text))
		case inner.Text != "":
			parts = append(parts, string(inner.Text))
		default:
			parts = append(parts, lenient.CompactText(e))
		}
	}
	return strings.Join(parts, "\n")
}
