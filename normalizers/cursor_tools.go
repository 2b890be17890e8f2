package normalizers

import (
	"cmp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
)

// What the stream of Cursor writes about its tools. The key of the tool_call object names
// the tool; a call is told when it starts, its result when it is completed. Calls run
// side by side, so that only the call_id pairs them, which is no plain text: it may hold
// a newline.

// cursorTool is the content of a tool_call, or of a tool_use in a transcript.
type cursorTool struct {
	id     string // for a record without a call_id
	name   string
	args   jsontext.Value
	result jsontext.Value
}

// readCursorTool finds the tool in a tool_call object: what stands under a key that ends
// in ToolCall, or under `function`, else the first object; beside it newer versions write
// its id and its times.
func readCursorTool(v jsontext.Value) cursorTool {
	var in struct {
		ID text `json:"toolCallId"`
	}
	readObject(v, &in)
	var t cursorTool
	var body jsontext.Value
	for _, m := range objectMembers(v) {
		named := strings.HasSuffix(m.name, "ToolCall") || m.name == "function"
		if m.value.Kind() == '{' && (body == nil || named) {
			t.name, body = m.name, m.value
			if named {
				break
			}
		}
	}
	var tool struct {
		Name      text           `json:"name"`
		Case      text           `json:"case"`
		Value     jsontext.Value `json:"value"`
		Args      jsontext.Value `json:"args"`
		Arguments jsontext.Value `json:"arguments"`
		Result    jsontext.Value `json:"result"`
	}
	readObject(body, &tool)
	if t.name == "tool" && tool.Case != "" {
		t.name = string(tool.Case)
		readObject(tool.Value, &tool)
	}
	var args struct {
		ID text `json:"toolCallId"`
	}
	readObject(tool.Args, &args)
	t.id = string(cmp.Or(in.ID, args.ID))
	t.args, t.result = tool.Args, tool.Result
	if t.name == "function" {
		t.name = string(cmp.Or(tool.Name, "function"))
		if isValue(tool.Arguments) {
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
func (c *cursorFold) toolCall() SkipReason {
	t := readCursorTool(c.ToolCall)
	id := string(cmp.Or(c.CallID, text(t.id)))
	switch c.Subtype {
	case "started":
		c.s.Cursor.Segment = cursorSegment{}
		if id == "" {
			id = c.ownID(&held{Record: c.s.Records})
		}
		c.call(id, t)
	case "completed":
		c.completed(id, t)
	default:
		c.runtime(envelopes.Meta, "")
	}
	return SkipDuplicate
}

// cursorArgs are the arguments of a tool that name a file.
type cursorArgs struct {
	Path           text `json:"path"`
	FilePath       text `json:"file_path"`
	FilePathCamel  text `json:"filePath"`
	TargetFile     text `json:"target_file"`
	TargetNotebook text `json:"target_notebook"`
	RelativePath   text `json:"relativeWorkspacePath"`
}

func (a *cursorArgs) file() string {
	return string(cmp.Or(a.Path, a.FilePath, a.FilePathCamel, a.TargetFile, a.TargetNotebook, a.RelativePath))
}

// file is the file that the tool works on, as far as its arguments say.
func (t *cursorTool) file() string {
	if toolOf(t.name).op == "" {
		return ""
	}
	var args cursorArgs
	readObject(t.args, &args)
	return args.file()
}

// call emits the call of a tool.
func (c *cursorFold) call(id string, t cursorTool) {
	is := toolOf(t.name)
	d := draft{on: is.channel}
	d.EventType, d.EventID = envelopes.ToolCall, id
	d.ToolName, d.ToolCallID = text(t.name).ptr(), &id
	d.ToolStatus = new(envelopes.StatusInProgress)
	d.Model = text(c.s.Model).ptr()
	switch {
	case t.args.Kind() == '"':
		d.Text = new(unquote(t.args))
	case isValue(t.args):
		d.Text = new(compactText(t.args))
	}
	file := t.file()
	d.touch(file, is.op)
	if is == modify && t.args.Kind() == '"' {
		d.patch(patchFiles(*d.Text))
	}
	if d.FilePath != nil {
		file = *d.FilePath
	}
	if c.emit(d) {
		c.s.remember(id, call{Tool: t.name, Channel: is.channel, Op: is.op, Path: file})
	}
}

// completed emits the result of a call, also of one that was never started.
func (c *cursorFold) completed(id string, t cursorTool) {
	made, _ := c.s.recall(id)
	name := cmp.Or(made.Tool, t.name)
	is := toolOf(name)
	r := readCursorResult(t.result)
	d := draft{on: is.channel}
	d.EventType, d.EventID = envelopes.ToolResult, resultEventID(id)
	d.ToolCallID, d.ToolName = text(id).ptr(), text(name).ptr()
	d.Text = r.text()
	d.ToolStatus = new(r.status())
	d.ToolExitCode = r.exitCode()
	d.ToolLatencyMS = r.latency()
	file := ""
	if is.op != "" {
		file = cmp.Or(t.file(), made.Path, r.outcome.file())
	}
	d.touch(file, is.op)
	c.emit(d)
}

// cursorResult is the result of a tool: an object whose one key is the outcome, or what
// the tool returned.
type cursorResult struct {
	name       string         // of the outcome; empty where the result names none
	value      jsontext.Value // what stands under it, or the whole result
	outcome    cursorOutcome
	background bool // it runs on
}

// cursorOutcome is what stands under the key of an outcome.
type cursorOutcome struct {
	cursorArgs `json:",embed"`

	Stdout           text           `json:"stdout"`
	Stderr           text           `json:"stderr"`
	Output           text           `json:"output"`
	Interleaved      text           `json:"interleavedOutput"`
	Content          jsontext.Value `json:"content"`
	DiffString       text           `json:"diffString"`
	Diff             text           `json:"diff"`
	Message          text           `json:"message"`
	Error            jsontext.Value `json:"error"`
	ErrorMessage     text           `json:"errorMessage"`
	Reason           text           `json:"reason"`
	IsError          flag           `json:"isError"`
	ExitCode         number         `json:"exitCode"`
	ExitCodeSnake    number         `json:"exit_code"`
	Signal           text           `json:"signal"`
	Aborted          flag           `json:"aborted"`
	IsBackground     flag           `json:"isBackground"`
	BackgroundReason text           `json:"backgroundReason"`
	ExecutionTime    number         `json:"executionTime"`
	ExecutionTimeMS  number         `json:"executionTimeMs"`
	LocalTimeMS      number         `json:"localExecutionTimeMs"`
	DurationMS       number         `json:"durationMs"`
}

// readCursorResult finds the outcome in a result. Keys that are no outcome by their words
// are what the tool returned.
func readCursorResult(v jsontext.Value) cursorResult {
	r := cursorResult{value: v}
	for _, m := range objectMembers(v) {
		switch {
		case !isValue(m.value):
		case m.name == "success", r.name == "" && isOutcome(m.name) && string(m.value) != "false":
			r.name, r.value = m.name, m.value
		case m.name == "isBackground":
			r.background = string(m.value) == "true"
		}
	}
	readObject(r.value, &r.outcome)
	if r.name == "" && len(objectMembers(v)) == 1 && isMember(v, "isBackground") {
		r.value = nil // that it does not run on is no result
	}
	return r
}

// isMember reports whether an object has a member of the name.
func isMember(v jsontext.Value, name string) bool {
	return slices.ContainsFunc(objectMembers(v), func(m member) bool { return m.name == name })
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
func (r *cursorResult) status() envelopes.ToolStatus {
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
	case !isValue(r.value), string(r.value) == "{}" && key == "":
		return envelopes.StatusUnknown
	default:
		return envelopes.StatusSuccess
	}
}

// exitCode is the exit code that the outcome states.
func (r *cursorResult) exitCode() *int64 {
	if code := r.outcome.ExitCode.integer(); code != nil {
		return code
	}
	return r.outcome.ExitCodeSnake.integer()
}

// latency is how long the call took, in the vendor's own figure.
func (r *cursorResult) latency() *int64 {
	o := &r.outcome
	for _, n := range []number{o.ExecutionTime, o.ExecutionTimeMS, o.LocalTimeMS, o.DurationMS} {
		if n.ok && n.value >= 0 {
			return new(n.count())
		}
	}
	return nil
}

// text is what the tool returned, as a reader wants it: output, content, a diff, a
// message; else the outcome as it stands. Nil where there is nothing.
func (r *cursorResult) text() *string {
	o := &r.outcome
	switch {
	case r.value.Kind() == '"':
		return new(unquote(r.value))
	case r.value.Kind() == 't', r.value.Kind() == 'f', !isValue(r.value):
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
		return new(unquote(o.Content))
	case o.Content.Kind() == '[':
		return new(mcpText(o.Content))
	}
	_, message := problemOf(o.Error)
	if o.Error.Kind() == '"' {
		message = unquote(o.Error)
	}
	words := cmp.Or(o.DiffString, o.Diff, text(message), o.ErrorMessage, o.Message, o.Reason)
	if words == "" {
		words = text(compactText(r.value))
	}
	return new(string(words))
}

// mcpText joins the texts of the content of an MCP tool, which stand as {text} or as
// {text: {text}}; other content stands as it is.
func mcpText(v jsontext.Value) string {
	var parts []string
	for _, e := range elementsOf(v) {
		var flat struct {
			Text jsontext.Value `json:"text"`
		}
		readObject(e, &flat)
		var inner struct {
			Text text `json:"text"`
		}
		readObject(flat.Text, &inner)
		switch {
		case flat.Text.Kind() == '"':
			parts = append(parts, unquote(flat.Text))
		case inner.Text != "":
			parts = append(parts, string(inner.Text))
		default:
			parts = append(parts, compactText(e))
		}
	}
	return strings.Join(parts, "\n")
}
