package claude

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// emitToolResult emits the result of a tool. b is empty if the record only has a structured result.
func emitToolResult(c *mapper, b *block) {
	r := readResult(c, b)
	noteOutput(c, b)
	call, _ := c.Session.RecallCall(string(r.callID))
	call.Path = cmp.Or(r.structured.path(), call.Path)
	d := core.ResultDraft(r.callID, call, r.text.Ptr(), r.status())
	d.ToolExitCode, d.ToolLatencyMS = r.exitCode(), r.structured.latency()
	d.ToolOutput = r.output()
	if r.isObject {
		d.ToolMetadata, d.Strict = toolMetadata(c.Session, string(r.callID), call, &r.structured), true
	}
	id := c.UUID
	if r.callID != "" {
		id = withSuffix(r.callID, resultSuffix)
	}
	if c.put(id, d) {
		c.Session.ReleaseCall(string(r.callID))
	}
	c.st.setThin(string(id), false)
}

// resultSuffix ends the event id of a result.
const resultSuffix = "#result"

// toolResult is the result of one tool, from its block and the structured result beside it.
type toolResult struct {
	callID  lenient.Text
	text    lenient.NullText
	hasData bool // the record has a content or a structured result
	failed  bool

	structured structuredResult
	isObject   bool   // structured was read
	message    string // structured result that is a text, not an object
}

// readResult reads the result of one tool. The structured result belongs to the record, not to a block, so it is
// ignored in a record with several results.
func readResult(c *mapper, b *block) toolResult {
	r := toolResult{hasData: b.Content.present || lenient.IsValue(c.ToolUseResult)}
	if c.Message.Value.Content.results() <= 1 {
		r.readStructured(c.ToolUseResult)
	}
	r.callID = cmp.Or(b.ToolUseID, r.structured.ToolUseID, c.SourceToolUseID)
	text, ok := b.Content.text()
	if r.structured.IsImage { // stdout is an image
		ok = ok && text != r.structured.Stdout.Value
		r.structured.Stdout = lenient.NullText{}
	}
	errorCode := b.Content.errorCode()
	if !ok {
		text = cmp.Or(string(joinLines(r.structured.streams(), r.structured.Output, lenient.Text(r.message))), errorCode)
		ok = text != ""
	}
	r.text = lenient.NullText{Value: text, OK: ok}

	denied := b.IsError == 'f' // the vendor states that it is not a failure
	r.failed = b.IsError == 't' || errorCode != "" || bool(r.structured.Interrupted) || string(r.structured.Success) == "false" ||
		!denied && (isFailureMessage(r.message) || c.streamed && isFailureText(text))
	return r
}

// readStructured reads a structured result: an object, or a text.
func (r *toolResult) readStructured(v jsontext.Value) {
	switch v.Kind() {
	case '{':
		r.isObject = true
		lenient.ReadObject(v, &r.structured)
	case '"':
		r.message = lenient.Unquote(v)
	default: // a list of blocks repeats the content
	}
	if task := r.structured.Task.Value; task.Type != "" {
		r.structured.Status, r.structured.ExitCode = task.Status, task.ExitCode
	}
}

// exitCode returns the exit code stated in the structured result, else the one in the header of a failure's output;
// nil for none.
func (r *toolResult) exitCode() *int64 {
	if code := r.structured.ExitCode.Integer(); code != nil || !r.failed {
		return code
	}
	if code := headerExitCode(r.text.Value); code != nil {
		return code
	}
	return headerExitCode(r.message)
}

// exitHeader is the header that Claude Code puts before the output of a failed command.
var exitHeader = regexp.MustCompile(`^(?:Error: )?Exit code (\d{1,10})(?:\s|$)`)

// headerExitCode reads an exit code from the header of an output, never from its body; nil for none.
func headerExitCode(output string) *int64 { return core.ExitCode(exitHeader, output) }

// output returns the two streams of a command; nil if the text is stdout and stderr is empty. Streams that are not in
// the text belong to another result.
func (r *toolResult) output() *envelopes.ToolOutput {
	stdout, stderr := r.structured.Stdout, r.structured.Stderr
	if stderr.Value == "" && (!stdout.OK || stdout.Value == r.text.Value) {
		return nil
	}
	for _, stream := range []string{stdout.Value, stderr.Value} {
		if !strings.Contains(r.text.Value, strings.TrimSpace(stream)) {
			return nil
		}
	}
	return &envelopes.ToolOutput{Stdout: stdout.Ptr(), Stderr: stderr.Ptr()}
}

// status returns the outcome of the tool.
func (r *toolResult) status() envelopes.ToolStatus {
	exit := r.exitCode()
	switch {
	case r.failed, exit != nil && *exit != 0:
		return envelopes.StatusError
	case r.structured.BackgroundTaskID != "", bool(r.structured.IsAsync):
		return envelopes.StatusInProgress
	}
	switch r.structured.Status {
	case "async_launched", "remote_launched", "running", "in_progress", "pending":
		return envelopes.StatusInProgress
	case "failed", "error", "killed", "cancelled", "rejected", "interrupted":
		return envelopes.StatusError
	case "completed", "success":
		return envelopes.StatusSuccess
	}
	if r.hasData {
		return envelopes.StatusSuccess
	}
	return envelopes.StatusUnknown
}

// failureMessages begin the structured result, if it is only a text, of a call that failed or was rejected.
var failureMessages = []string{"Error", "Exit code ", "User rejected tool use", "The user doesn't want to ", "[Request interrupted by user"}

// isFailureMessage reports whether a structured result that is only a text is that of a failure or a rejection. The
// output of an MCP server is such a text, too.
func isFailureMessage(message string) bool {
	return slices.ContainsFunc(failureMessages, func(prefix string) bool { return strings.HasPrefix(message, prefix) })
}

// isFailureText reports whether the text of a result is a JSON object that states a failure: an error, or a nonzero
// exit code. The exit code of the event is never read from there.
func isFailureText(text string) bool {
	v := jsontext.Value(strings.TrimSpace(text))
	if v.Kind() != '{' || !v.IsValid(lenient.Options) {
		return false
	}
	var r struct {
		Error    jsontext.Value `json:"error"`
		IsError  jsontext.Value `json:"isError"`
		ExitCode lenient.Number `json:"exitCode"`
	}
	lenient.ReadObject(v, &r)
	states := func(v jsontext.Value) bool {
		return lenient.IsValue(v) && v.Kind() != 'f' && string(v) != `""`
	}
	return states(r.Error) || states(r.IsError) || r.ExitCode.OK && r.ExitCode.Value != 0
}
