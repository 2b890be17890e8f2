package copilot

import (
	"cmp"
	"regexp"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// result is what is known about how a call ended.
type result struct {
	text          lenient.Text
	stated        bool // there is a result or an error
	failed        bool
	succeeded     bool // the vendor states success
	latency       lenient.Number
	exit          *int64 // if it has a member of its own
	code, message string // of the error
}

// callCompleted maps the result of a call. Its model is that of a session whose other records name none.
func callCompleted(m *mapper) {
	d := &m.data
	if m.Session.Model == "" {
		m.setModel(d.Model)
	}
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

// statedExit returns the exit code that has a member of its own: in the last block of a shell, else beside the
// result, else in the telemetry.
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
	// exitLine matches the last line of a shell's output if its command ended.
	exitLine = regexp.MustCompile(`(?:^|\n)<(?:(?:shellId|command with id): [^<>\r\n]+ )?(?:completed|exited) with exit code (-?\d{1,10})>\s*$`)
	// runningLine matches that line while the command is running.
	runningLine = regexp.MustCompile(`(?:^|\n)<[^<>\r\n]*\b(?:still running|started in)\b[^<>\r\n]*>\s*$`)
)

// shellEnd reads from the last line of a shell's output how the command ended.
func shellEnd(output string) (exit *int64, running bool) {
	if exit = core.ExitCode(exitLine, output); exit != nil {
		return exit, false
	}
	return nil, runningLine.MatchString(output)
}

// emitResult emits the result of a call; name is used if the call is forgotten. An exit code without a member of its
// own is read from the output, only for a shell. A latency that the log does not state may be known from the telemetry.
func (e *emitter) emitResult(id, name lenient.Text, r result) {
	call, known := e.Session.RecallCall(string(id))
	if !known {
		call = core.Call{Tool: string(name), Channel: envelopes.ChannelOther}
	}
	running := false
	if r.exit == nil && (!known || call.Channel == envelopes.ChannelTerminal) {
		r.exit, running = shellEnd(string(r.text))
	}
	d := core.ResultDraft(id, call, r.text.Ptr(), r.status(running))
	d.Model, d.ToolExitCode = e.model(), r.exit
	d.ToolLatencyMS = call.Outcome.Latency
	if r.latency.OK && r.latency.Value >= 0 {
		d.ToolLatencyMS = new(r.latency.Count())
	}
	if r.code != "" || r.message != "" {
		d.Metadata = e.Session.MetadataWithError(r.code, r.message)
	}
	if e.agent != "" && !e.sent && e.onlySent(sentResultKey(id)) {
		d.Identity = e.agent // the telemetry does not state it
	}
	e.put(core.PartID(id, "result"), d)
	switch {
	case e.sent:
		e.Session.SetOutcome(string(id), core.Outcome{Latency: d.ToolLatencyMS})
		return
	case d.ToolLatencyMS == nil:
		e.Session.SetOutcome(string(id), core.Outcome{Emitted: true})
	}
	e.noteLogged(sentResultKey(id))
}

// status returns the status of the event. A nonzero exit code is a failure, whatever else is stated.
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
