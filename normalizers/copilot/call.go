package copilot

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// maxStarted is how many calls are remembered that started before a message requested them.
const maxStarted = 32

// tools are the tools that other vendors do not have, or have under a name of another meaning.
var tools = map[string]core.Tool{
	"view":             core.ToolRead,
	"create":           core.ToolWrite,
	"str_replace":      core.ToolModify,
	"insert":           core.ToolModify,
	"read_bash":        core.ToolShell,
	"write_bash":       core.ToolShell,
	"stop_bash":        core.ToolShell,
	"list_bash":        core.ToolShell,
	"read_powershell":  core.ToolShell,
	"write_powershell": core.ToolShell,
	"stop_powershell":  core.ToolShell,
	"list_powershell":  core.ToolShell,
	"local_shell":      core.ToolShell,
	"rg":               core.ToolSearch,
}

// editorCommands are the commands of str_replace_editor, the one editor of older versions.
var editorCommands = map[lenient.Text]core.Tool{
	"view":        core.ToolRead,
	"create":      core.ToolWrite,
	"str_replace": core.ToolModify,
	"insert":      core.ToolModify,
	"undo_edit":   core.ToolModify,
}

// toolOf returns what a tool works on, by its name and its arguments.
func toolOf(name lenient.Text, args *arguments) core.Tool {
	if name == "str_replace_editor" {
		if t, ok := editorCommands[args.Command]; ok {
			return t
		}
		return core.Tool{Channel: envelopes.ChannelEditor}
	}
	if t, ok := tools[string(name)]; ok {
		return t
	}
	return core.ToolOf(string(name))
}

// arguments are the arguments of a tool that name a file, or a command of an editor.
type arguments struct {
	core.FileInput `json:",embed"`

	CamelPath lenient.Text `json:"filePath"`
	Command   lenient.Text `json:"command"`
}

// readArguments reads the arguments of a call: an object, an object in a string, or a string
// that is the patch of apply_patch. The text is nil when there are none.
func readArguments(v jsontext.Value) (text *string, args arguments) {
	switch {
	case v.Kind() == '"':
		text = new(lenient.Unquote(v))
		if inner := jsontext.Value(*text); inner.Kind() == '{' && lenient.ReadValue(inner) == nil {
			lenient.ReadObject(inner, &args)
		}
	case lenient.IsValue(v):
		text = new(lenient.CompactText(v))
		lenient.ReadObject(v, &args)
	}
	return text, args
}

// requestedCall emits a call that a message requests. It reports false when the start of the call
// came before, and emitted it.
func requestedCall(m *mapper, r *request) bool {
	id := core.FingerprintOf(string(r.ToolCallID))
	if r.ToolCallID != "" && slices.Contains(m.st.Started, id) {
		m.st.Started = m.st.Started.Without(func(f core.Fingerprint) bool { return f == id })
		return false
	}
	m.emitCall(r.ToolCallID, r.Name, r.Arguments)
	return true
}

// callStarted maps the start of a call. It emits the call where no message requested it, as when a
// human runs a command.
func callStarted(m *mapper) {
	d := &m.data
	if m.Session.HasEvent(string(d.ToolCallID)) {
		m.skip = skipOfStart(m)
		return
	}
	m.emitCall(d.ToolCallID, d.ToolName, d.Arguments)
	if d.ToolCallID != "" {
		m.st.Started = m.st.Started.Push(core.FingerprintOf(string(d.ToolCallID)), maxStarted, nil)
	}
}

// skipOfStart returns why the start of a call that has an event is skipped: a start read before
// is a duplicate, a first one repeats its message. The table of API calls remembers them.
func skipOfStart(m *mapper) core.SkipReason {
	start := core.FingerprintOf("started", string(m.ID), string(m.Data))
	if _, ok := m.Session.APICalls.Get(start); ok && m.ID != "" {
		return core.SkipDuplicate
	}
	m.Session.APICalls.Put(start, core.Consumption{})
	return core.SkipMirror
}

// emitCall emits a call, and remembers it for its result.
func (e *emitter) emitCall(id, name lenient.Text, v jsontext.Value) {
	text, args := readArguments(v)
	tool := toolOf(name, &args)
	d := core.Draft{OnChannel: tool.Channel}
	d.EventType, d.Text, d.Model = envelopes.ToolCall, text, e.model()
	d.ToolName, d.ToolCallID = name.Ptr(), id.Ptr()
	d.ToolStatus = new(envelopes.StatusInProgress)
	file := cmp.Or(args.File(), string(args.CamelPath))
	d.Touch(file, tool.Op)
	if name == "apply_patch" && text != nil {
		if files := core.PatchFiles(*text); len(files) > 0 {
			d.Patch(files)
			file = files[0].Path
		}
	}
	if e.put(id, d) && id != "" {
		e.Session.RememberCall(string(id), core.Call{Tool: string(name), Channel: tool.Channel, Op: tool.Op, Path: file})
	}
}

// result is what is known of how a call ended.
type result struct {
	text          lenient.Text
	stated        bool // there is a result or an error
	failed        bool
	succeeded     bool // the vendor states success
	latency       lenient.Number
	exit          *int64 // where it has a member of its own
	code, message string // of the error
}

// callCompleted maps the result of a call.
func callCompleted(m *mapper) {
	d := &m.data
	var returned toolResult
	lenient.ReadObject(d.Result, &returned)
	noteOutput(m, &returned)
	r := result{
		text:      returned.Content,
		stated:    lenient.IsValue(d.Result) || lenient.IsValue(d.Error),
		failed:    lenient.IsValue(d.Error) || string(d.Success) == "false",
		succeeded: string(d.Success) == "true",
		latency:   d.Telemetry.Value.Metrics.Value.DurationMS,
		exit:      d.statedExit(&returned),
	}
	if d.Result.Kind() == '"' {
		r.text = lenient.Text(lenient.Unquote(d.Result))
	}
	if lenient.IsValue(d.Error) {
		r.code, r.message = d.problem()
	}
	r.text = cmp.Or(r.text, returned.Detailed, lenient.Text(r.message))
	m.emitResult(d.ToolCallID, "", r)
}

// statedExit returns the exit code that has a member of its own: of the last block of a shell,
// else beside the result, else in the telemetry.
func (d *data) statedExit(r *toolResult) *int64 {
	exit := cmp.Or(d.Shell.Value.ExitCode.Integer(), d.Telemetry.Value.Metrics.Value.ExitCode.Integer())
	for _, b := range r.Blocks {
		if b.Type == "shell_exit" || b.Type == "terminal" {
			exit = cmp.Or(b.ExitCode.Integer(), exit)
		}
	}
	return exit
}

var (
	// exitLine is the last line of the output of a shell whose command ended.
	exitLine = regexp.MustCompile(`(?:^|\n)<(?:(?:shellId|command with id): [^<>\r\n]+ )?(?:completed|exited) with exit code (-?\d{1,10})>\s*$`)
	// runningLine is that line while the command goes on.
	runningLine = regexp.MustCompile(`(?:^|\n)<[^<>\r\n]*\b(?:still running|started in)\b[^<>\r\n]*>\s*$`)
)

// shellEnd reads how a command ended from the last line of the output of a shell.
func shellEnd(output string) (exit *int64, running bool) {
	if m := exitLine.FindStringSubmatch(output); m != nil {
		if n, err := strconv.ParseInt(m[1], 10, 64); err == nil {
			return &n, false
		}
	}
	return nil, runningLine.MatchString(output)
}

// emitResult emits the result of a call, which has this name where the call is not remembered.
// An exit code without a member of its own is read from the output, of a shell alone.
func (e *emitter) emitResult(id, name lenient.Text, r result) {
	call, known := e.Session.RecallCall(string(id))
	if !known {
		call = core.Call{Tool: string(name), Channel: envelopes.ChannelOther}
	}
	running := false
	if r.exit == nil && (!known || call.Channel == envelopes.ChannelTerminal) {
		r.exit, running = shellEnd(string(r.text))
	}
	d := core.Draft{OnChannel: call.Channel}
	d.EventType, d.Text, d.Model = envelopes.ToolResult, r.text.Ptr(), e.model()
	d.ToolName, d.ToolCallID = lenient.Text(call.Tool).Ptr(), id.Ptr()
	d.ToolExitCode = r.exit
	d.ToolStatus = new(r.status(running))
	if r.latency.OK && r.latency.Value >= 0 {
		d.ToolLatencyMS = new(r.latency.Count())
	}
	d.Touch(call.Path, call.Op)
	if r.code != "" || r.message != "" {
		d.Metadata = e.Session.MetadataWithError(r.code, r.message)
	}
	e.put(partID(id, "result"), d)
}

// status returns the status of the event. An exit code that is not zero is a failure, whatever
// else is stated.
func (r *result) status(running bool) envelopes.ToolStatus {
	switch {
	case r.failed, r.exit != nil && *r.exit != 0:
		return envelopes.StatusError
	case running:
		return envelopes.StatusInProgress
	case r.succeeded, r.stated:
		return envelopes.StatusSuccess
	default:
		return envelopes.StatusUnknown
	}
}
