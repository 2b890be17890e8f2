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

// maxStarted is how many calls wait for the message that requests them.
const maxStarted = 32

// tools are the tools whose names other vendors use for something else, or not.
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

// edits is what the commands of str_replace_editor do, the one editor of older
// versions.
var edits = map[lenient.Text]core.Tool{
	"view":        core.ToolRead,
	"create":      core.ToolWrite,
	"str_replace": core.ToolModify,
	"insert":      core.ToolModify,
	"undo_edit":   core.ToolModify,
}

// copilotArguments are the members of a tool's arguments that name a file.
type copilotArguments struct {
	core.FileInput `json:",embed"`

	CamelPath lenient.Text `json:"filePath"`
	Command   lenient.Text `json:"command"`
}

// request is a call in a message.
type request struct {
	ToolCallID lenient.Text   `json:"toolCallId"`
	Name       lenient.Text   `json:"name"`
	Arguments  jsontext.Value `json:"arguments"`
}

// telemetry is what is measured beside a result.
type telemetry struct {
	Metrics lenient.Object[measured] `json:"metrics"`
}

type measured struct {
	DurationMS lenient.Number `json:"durationMs"`
	ExitCode   lenient.Number `json:"exit_code"`
}

// request emits a call of a message; false when its execution has told it before.
func (c *mapper) request(r *request) bool {
	started := &c.st.Started
	id := core.FingerprintOf(string(r.ToolCallID))
	if r.ToolCallID != "" && slices.Contains(*started, id) {
		*started = started.Without(func(f core.Fingerprint) bool { return f == id })
		return false
	}
	c.made(r.ToolCallID, r.Name, r.Arguments)
	return true
}

// started maps the execution of a call: the call itself where no message requested it, as
// when a human runs a command.
func (c *mapper) started() core.SkipReason {
	d := &c.data
	if c.Session.HasEvent(string(d.ToolCallID)) {
		again := core.FingerprintOf("started", string(c.ID), string(c.Data))
		if _, ok := c.Session.APICalls.Get(again); ok && c.ID != "" {
			return core.SkipDuplicate
		}
		c.Session.APICalls.Put(again, core.Consumption{})
		return core.SkipMirror
	}
	c.made(d.ToolCallID, d.ToolName, d.Arguments)
	if d.ToolCallID != "" {
		c.st.Started = c.st.Started.Push(core.FingerprintOf(string(d.ToolCallID)), maxStarted, nil)
	}
	return core.SkipDuplicate
}

// made emits a call. Its arguments are an object, an object in a text, or a patch.
func (c *mapper) made(id, name lenient.Text, arguments jsontext.Value) {
	var words *string
	var args copilotArguments
	switch {
	case arguments.Kind() == '"':
		plain := lenient.Unquote(arguments)
		words = &plain
		if v := jsontext.Value(plain); v.Kind() == '{' && lenient.ReadValue(v) == nil {
			lenient.ReadObject(v, &args)
		}
	case lenient.IsValue(arguments):
		words = new(lenient.CompactText(arguments))
		lenient.ReadObject(arguments, &args)
	}
	t, ok := tools[string(name)]
	switch {
	case name == "str_replace_editor":
		if t, ok = edits[args.Command]; !ok {
			t = core.Tool{Channel: envelopes.ChannelEditor}
		}
	case !ok:
		t = core.ToolOf(string(name))
	}
	d := core.Draft{OnChannel: t.Channel}
	d.EventType, d.Text, d.Model = envelopes.ToolCall, words, c.speaker()
	d.ToolName, d.ToolCallID = name.Ptr(), id.Ptr()
	d.ToolStatus = new(envelopes.StatusInProgress)
	file := args.File()
	if file == "" {
		file = string(args.CamelPath)
	}
	d.Touch(file, t.Op)
	if name == "apply_patch" && words != nil {
		if files := core.PatchFiles(*words); len(files) > 0 {
			d.Patch(files)
			file = files[0].Path
		}
	}
	if c.put(id, d) && id != "" {
		c.Session.RememberCall(string(id), core.Call{Tool: string(name), Channel: t.Channel, Op: t.Op, Path: file})
	}
}

// result is what a tool returned to the model, and in full to the human.
type result struct {
	Content  lenient.Text        `json:"content"`
	Detailed lenient.Text        `json:"detailedContent"`
	Blocks   lenient.List[block] `json:"contents"`
}

// block is a block of a result, or what stands beside it. That of a shell states
// how its command ended.
type block struct {
	Type     lenient.Text   `json:"type"`
	ExitCode lenient.Number `json:"exitCode"`
}

// completed maps the result of a call.
func (c *mapper) completed() {
	d := &c.data
	var result result
	lenient.ReadObject(d.Result, &result)
	o := outcome{
		words:   string(result.Content),
		some:    lenient.IsValue(d.Result) || lenient.IsValue(d.Error),
		failed:  lenient.IsValue(d.Error) || string(d.Success) == "false",
		success: string(d.Success) == "true",
		latency: d.Telemetry.Value.Metrics.Value.DurationMS,
	}
	if d.Result.Kind() == '"' {
		o.words = lenient.Unquote(d.Result)
	}
	o.exit = cmp.Or(d.Shell.Value.ExitCode.Integer(), d.Telemetry.Value.Metrics.Value.ExitCode.Integer())
	for _, b := range result.Blocks {
		if b.Type == "shell_exit" || b.Type == "terminal" {
			o.exit = cmp.Or(b.ExitCode.Integer(), o.exit)
		}
	}
	if lenient.IsValue(d.Error) {
		o.code, o.message = c.problem()
	}
	for _, other := range []string{string(result.Detailed), o.message} {
		if o.words == "" {
			o.words = other
		}
	}
	c.result(d.ToolCallID, "", o)
}

// outcome is what is known of a result.
type outcome struct {
	words         string
	some          bool // there is a result or an error
	failed        bool
	success       bool // the vendor says so
	latency       lenient.Number
	exit          *int64 // beside the output
	code, message string // of the error
}

var (
	// copilotExit is the last line of what a shell returns.
	exit = regexp.MustCompile(`(?:^|\n)<(?:(?:shellId|command with id): [^<>\r\n]+ )?(?:completed|exited) with exit code (-?\d{1,10})>\s*$`)
	// copilotRunning is that line while the command goes on.
	copilotRunning = regexp.MustCompile(`(?:^|\n)<[^<>\r\n]*\b(?:still running|started in)\b[^<>\r\n]*>\s*$`)
)

// result emits the result of a call. A code that has no field of its own is read from the
// last line of a shell alone, where the vendor states it; one that is not zero is a
// failure, whatever else is said.
func (c *mapper) result(id, name lenient.Text, o outcome) {
	made, ok := c.Session.RecallCall(string(id))
	if !ok {
		made = core.Call{Tool: string(name), Channel: envelopes.ChannelOther}
	}
	d := core.Draft{OnChannel: made.Channel}
	d.EventType, d.Text, d.Model = envelopes.ToolResult, lenient.Text(o.words).Ptr(), c.speaker()
	d.ToolName, d.ToolCallID = lenient.Text(made.Tool).Ptr(), id.Ptr()
	d.ToolExitCode = o.exit
	running := false
	if o.exit == nil && (!ok || made.Channel == envelopes.ChannelTerminal) {
		if m := exit.FindStringSubmatch(o.words); m != nil {
			if n, err := strconv.ParseInt(m[1], 10, 64); err == nil {
				d.ToolExitCode = &n
			}
		}
		running = d.ToolExitCode == nil && copilotRunning.MatchString(o.words)
	}
	status := envelopes.StatusUnknown
	switch {
	case o.failed, d.ToolExitCode != nil && *d.ToolExitCode != 0:
		status = envelopes.StatusError
	case running:
		status = envelopes.StatusInProgress
	case o.success, o.some:
		status = envelopes.StatusSuccess
	}
	d.ToolStatus = &status
	if o.latency.OK && o.latency.Value >= 0 {
		d.ToolLatencyMS = new(o.latency.Count())
	}
	d.Touch(made.Path, made.Op)
	if o.code != "" || o.message != "" {
		d.Metadata = c.Session.MetadataWithError(o.code, o.message)
	}
	event := id
	if id != "" {
		event += "#result"
	}
	c.put(event, d)
}
