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

// resultID returns the id of the event of a result; empty if its call has none.
func resultID(call string) string { return string(core.PartID(lenient.Text(call), "result")) }

// emitResult emits the result of a call in the stream, even of one that never started.
func (m *mapper) emitResult(id string, t tool) {
	made, known := m.Session.RecallCall(id)
	name := cmp.Or(made.Tool, t.name)
	kind := core.ToolOf(name)
	r := readResult(t.result)
	noteOutput(m, &r)
	file := ""
	if kind.Op != "" {
		file = cmp.Or(t.file(), made.Path, r.outcome.file())
	}
	d := core.ResultDraft(lenient.Text(id), core.Call{Tool: name, Channel: kind.Channel, Op: kind.Op, Path: file}, r.text(), r.status())
	d.EventID, d.ToolExitCode, d.ToolLatencyMS = resultID(id), r.exitCode(), r.latency()
	d.ToolOutput = r.output(kind.Op)
	if !known {
		d.ToolInput = t.input()
	}
	m.Emit(d)
}

// emitToolResult emits the result of a tool in a transcript, where only its call names the tool.
func emitToolResult(m *mapper, b *block) {
	made, _ := m.Session.RecallCall(string(b.ToolUseID))
	status := envelopes.StatusUnknown
	var text *string
	noteBlocks(m, b.Content)
	if lenient.IsValue(b.Content) {
		status = envelopes.StatusSuccess
		text = new(joinTexts(readBlocks(b.Content), "\n"))
		if b.Content.Kind() == '{' {
			text = new(lenient.CompactText(b.Content))
		}
	}
	if b.IsError {
		status = envelopes.StatusError
	}
	d := core.ResultDraft(b.ToolUseID, made, text, status)
	d.EventID = resultID(string(b.ToolUseID))
	m.Emit(d)
}

// result is the result of a tool in the stream: an object whose key names the outcome, or the output of the tool.
type result struct {
	name         string         // of the outcome; empty if the result names none
	value        jsontext.Value // value under the name, or the whole result
	outcome      outcome
	isBackground bool // the tool is still running
}

// outcome has the members of the value under an outcome's name.
type outcome struct {
	toolArgs `json:",embed"`

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

// readResult reads a result. Without a key that names an outcome it is the output of the tool.
func readResult(v jsontext.Value) result {
	r := result{value: v}
	members := lenient.ObjectMembers(v)
	for _, m := range members {
		switch {
		case !lenient.IsValue(m.Value):
		case m.Name == "success", r.name == "" && isOutcome(m.Name) && string(m.Value) != "false":
			r.name, r.value = m.Name, m.Value
		case m.Name == "isBackground":
			r.isBackground = string(m.Value) == "true"
		}
	}
	lenient.ReadObject(r.value, &r.outcome)
	if r.name == "" && len(members) == 1 && members[0].Name == "isBackground" {
		r.value = nil // that the tool is still running is not a result
	}
	return r
}

// hasMember reports whether an object has a member of the name.
func hasMember(v jsontext.Value, name string) bool {
	return slices.ContainsFunc(lenient.ObjectMembers(v), func(m lenient.Member) bool { return m.Name == name })
}

// failures occur in the names of outcomes that are failures, or that mean that the tool is still running.
var failures = []string{
	"fail", "error", "reject", "timeout", "timedout", "denied", "notfound", "not_found", "nospace", "notfile", "notdirectory",
	"invalid", "busy", "abort", "cancel", "interrupt", "unavailable", "unsupported", "backgrounded",
}

// isOutcome reports whether a key of a result names a failure, or that the tool is still running: failure, error,
// rejected, timeout, permissionDenied, spawnError, fileNotFound, writePermissionDenied, noSpace, invalidFile and so
// on.
func isOutcome(key string) bool {
	key = strings.ToLower(key)
	if key == "iserror" || key == "is_error" {
		return false
	}
	return key == "async" || slices.ContainsFunc(failures, func(part string) bool { return strings.Contains(key, part) })
}

// status returns the outcome (envelopes/event.md, Tools).
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
	case r.isBackground, bool(o.IsBackground), o.BackgroundReason != "":
		return envelopes.StatusInProgress
	case !lenient.IsValue(r.value), string(r.value) == "{}" && key == "":
		return envelopes.StatusUnknown
	default:
		return envelopes.StatusSuccess
	}
}

// exitCode returns the exit code stated in the outcome.
func (r *result) exitCode() *int64 {
	if code := r.outcome.ExitCode.Integer(); code != nil {
		return code
	}
	return r.outcome.ExitCodeSnake.Integer()
}

// latency returns the duration of the call in milliseconds, as stated by the vendor.
func (r *result) latency() *int64 {
	o := &r.outcome
	for _, n := range []lenient.Number{o.ExecutionTime, o.ExecutionTimeMS, o.LocalTimeMS, o.DurationMS} {
		if n.OK && n.Value >= 0 {
			return new(n.Count())
		}
	}
	return nil
}

// text returns what the tool returned: its output, a content, a diff or a message, else the
// outcome as JSON; nil for nothing.
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
	case hasMember(r.value, "stdout"), hasMember(r.value, "stderr"):
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
	text := cmp.Or(o.DiffString, o.Diff, lenient.Text(message), o.ErrorMessage, o.Message, o.Reason)
	if text == "" {
		text = lenient.Text(lenient.CompactText(r.value))
	}
	return new(string(text))
}

// mcpText joins the texts in the content of an MCP tool, which are {text} or {text: {text}}; other content is JSON.
func mcpText(content jsontext.Value) string {
	var parts []string
	for _, e := range lenient.Elements(content) {
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
