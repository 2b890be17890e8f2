package normalizers

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
)

// maxCopilotStarted is how many calls wait for the message that requests them.
const maxCopilotStarted = 32

// copilotTools are the tools whose names other vendors use for something else, or not.
var copilotTools = map[string]tool{
	"view":             read,
	"create":           write,
	"str_replace":      modify,
	"insert":           modify,
	"read_bash":        shell,
	"write_bash":       shell,
	"stop_bash":        shell,
	"list_bash":        shell,
	"read_powershell":  shell,
	"write_powershell": shell,
	"stop_powershell":  shell,
	"list_powershell":  shell,
	"local_shell":      shell,
	"rg":               search,
}

// copilotEdits is what the commands of str_replace_editor do, the one editor of older
// versions.
var copilotEdits = map[text]tool{
	"view":        read,
	"create":      write,
	"str_replace": modify,
	"insert":      modify,
	"undo_edit":   modify,
}

// copilotArguments are the members of a tool's arguments that name a file.
type copilotArguments struct {
	claudeInput `json:",embed"`

	CamelPath text `json:"filePath"`
	Command   text `json:"command"`
}

// copilotRequest is a call in a message.
type copilotRequest struct {
	ToolCallID text           `json:"toolCallId"`
	Name       text           `json:"name"`
	Arguments  jsontext.Value `json:"arguments"`
}

// copilotTelemetry is what is measured beside a result.
type copilotTelemetry struct {
	Metrics object[copilotMeasured] `json:"metrics"`
}

type copilotMeasured struct {
	DurationMS number `json:"durationMs"`
	ExitCode   number `json:"exit_code"`
}

// request emits a call of a message; false when its execution has told it before.
func (c *copilotFold) request(r *copilotRequest) bool {
	started := &c.s.Copilot.Started
	id := fingerprintOf(string(r.ToolCallID))
	if r.ToolCallID != "" && slices.Contains(*started, id) {
		*started = started.without(func(f fingerprint) bool { return f == id })
		return false
	}
	c.made(r.ToolCallID, r.Name, r.Arguments)
	return true
}

// started maps the execution of a call: the call itself where no message requested it, as
// when a human runs a command.
func (c *copilotFold) started() SkipReason {
	d := &c.data
	if c.s.knows(string(d.ToolCallID)) {
		again := fingerprintOf("started", string(c.ID), string(c.Data))
		if _, ok := c.s.apiCalls.get(again); ok && c.ID != "" {
			return SkipDuplicate
		}
		c.s.apiCalls.put(again, consumption{})
		return SkipMirror
	}
	c.made(d.ToolCallID, d.ToolName, d.Arguments)
	if d.ToolCallID != "" {
		c.s.Copilot.Started = c.s.Copilot.Started.push(fingerprintOf(string(d.ToolCallID)), maxCopilotStarted, nil)
	}
	return SkipDuplicate
}

// made emits a call. Its arguments are an object, an object in a text, or a patch.
func (c *copilotFold) made(id, name text, arguments jsontext.Value) {
	var words *string
	var args copilotArguments
	switch {
	case arguments.Kind() == '"':
		plain := unquote(arguments)
		words = &plain
		if v := jsontext.Value(plain); v.Kind() == '{' && readValue(v) == nil {
			readObject(v, &args)
		}
	case isValue(arguments):
		words = new(compactText(arguments))
		readObject(arguments, &args)
	}
	t, ok := copilotTools[string(name)]
	switch {
	case name == "str_replace_editor":
		if t, ok = copilotEdits[args.Command]; !ok {
			t = tool{channel: envelopes.ChannelEditor}
		}
	case !ok:
		t = toolOf(string(name))
	}
	d := draft{on: t.channel}
	d.EventType, d.Text, d.Model = envelopes.ToolCall, words, c.speaker()
	d.ToolName, d.ToolCallID = name.ptr(), id.ptr()
	d.ToolStatus = new(envelopes.StatusInProgress)
	file := args.file()
	if file == "" {
		file = string(args.CamelPath)
	}
	d.touch(file, t.op)
	if name == "apply_patch" && words != nil {
		if files := patchFiles(*words); len(files) > 0 {
			d.patch(files)
			file = files[0].Path
		}
	}
	if c.put(id, d) && id != "" {
		c.s.remember(string(id), call{Tool: string(name), Channel: t.channel, Op: t.op, Path: file})
	}
}

// copilotResult is what a tool returned to the model, and in full to the human.
type copilotResult struct {
	Content  text               `json:"content"`
	Detailed text               `json:"detailedContent"`
	Blocks   list[copilotBlock] `json:"contents"`
}

// copilotBlock is a block of a result, or what stands beside it. That of a shell states
// how its command ended.
type copilotBlock struct {
	Type     text   `json:"type"`
	ExitCode number `json:"exitCode"`
}

// completed maps the result of a call.
func (c *copilotFold) completed() {
	d := &c.data
	var result copilotResult
	readObject(d.Result, &result)
	o := copilotOutcome{
		words:   string(result.Content),
		some:    isValue(d.Result) || isValue(d.Error),
		failed:  isValue(d.Error) || string(d.Success) == "false",
		success: string(d.Success) == "true",
		latency: d.Telemetry.value.Metrics.value.DurationMS,
	}
	if d.Result.Kind() == '"' {
		o.words = unquote(d.Result)
	}
	o.exit = cmp.Or(d.Shell.value.ExitCode.integer(), d.Telemetry.value.Metrics.value.ExitCode.integer())
	for _, b := range result.Blocks {
		if b.Type == "shell_exit" || b.Type == "terminal" {
			o.exit = cmp.Or(b.ExitCode.integer(), o.exit)
		}
	}
	if isValue(d.Error) {
		o.code, o.message = c.problem()
	}
	for _, other := range []string{string(result.Detailed), o.message} {
		if o.words == "" {
			o.words = other
		}
	}
	c.result(d.ToolCallID, "", o)
}

// copilotOutcome is what is known of a result.
type copilotOutcome struct {
	words         string
	some          bool // there is a result or an error
	failed        bool
	success       bool // the vendor says so
	latency       number
	exit          *int64 // beside the output
	code, message string // of the error
}

var (
	// copilotExit is the last line of what a shell returns.
	copilotExit = regexp.MustCompile(`(?:^|\n)<(?:(?:shellId|command with id): [^<>\r\n]+ )?(?:completed|exited) with exit code (-?\d{1,10})>\s*$`)
	// copilotRunning is that line while the command goes on.
	copilotRunning = regexp.MustCompile(`(?:^|\n)<[^<>\r\n]*\b(?:still running|started in)\b[^<>\r\n]*>\s*$`)
)

// result emits the result of a call. A code that has no field of its own is read from the
// last line of a shell alone, where the vendor states it; one that is not zero is a
// failure, whatever else is said.
func (c *copilotFold) result(id, name text, o copilotOutcome) {
	made, ok := c.s.recall(string(id))
	if !ok {
		made = call{Tool: string(name), Channel: envelopes.ChannelOther}
	}
	d := draft{on: made.Channel}
	d.EventType, d.Text, d.Model = envelopes.ToolResult, text(o.words).ptr(), c.speaker()
	d.ToolName, d.ToolCallID = text(made.Tool).ptr(), id.ptr()
	d.ToolExitCode = o.exit
	running := false
	if o.exit == nil && (!ok || made.Channel == envelopes.ChannelTerminal) {
		if m := copilotExit.FindStringSubmatch(o.words); m != nil {
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
	if o.latency.ok && o.latency.value >= 0 {
		d.ToolLatencyMS = new(o.latency.count())
	}
	d.touch(made.Path, made.Op)
	if o.code != "" || o.message != "" {
		d.Metadata = c.s.metadataWithError(o.code, o.message)
	}
	event := id
	if id != "" {
		event += "#result"
	}
	c.put(event, d)
}
