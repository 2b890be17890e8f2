package gemini

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// response is a result in a part, in the form of the API.
type response struct {
	ID       lenient.Text   `json:"id"`
	Name     lenient.Text   `json:"name"`
	Response jsontext.Value `json:"response"`
}

// result is the result of a call, from any place.
type result struct {
	name       lenient.Text
	status     lenient.Text
	output     string // what the model sees
	display    string // what the human sees
	hasDisplay bool   // display is a text, not the screen of a terminal
	failed     bool
	present    bool // anything is stated
	path       string
	created    bool           // the file at path was created
	listed     jsontext.Value // the lists in the display
	timestamp  lenient.Text
	latency    *int64 // milliseconds
}

// resultID returns the id of the event of a result.
func resultID(call lenient.Text) lenient.Text { return call + "#result" }

// hasResult reports whether the session has emitted the result of a call, and not only that of the telemetry.
func (e *emitter) hasResult(call lenient.Text) bool {
	_, only := e.sentResult(call)
	return e.Session.HasEvent(string(resultID(call))) && !only
}

// answeredKey returns the key of a call whose result was emitted from a response.
func answeredKey(call lenient.Text) core.Fingerprint {
	return core.FingerprintOf("response", string(call))
}

// answered reports whether the result of a call was emitted from a response.
func (k known) answered(call lenient.Text) bool {
	_, ok := k.ids.Get(answeredKey(call))
	return ok
}

// emitResponses emits the results among the parts of a message of the user's side, except those already stated by the
// calls.
func emitResponses(m *mapper, w *wireMessage) {
	parts := w.body().parts
	for i := range parts {
		if parts[i].isResponse() {
			emitResponse(m, w, i, &parts[i])
		}
	}
}

// emitResponse emits the result in a part of a message.
func emitResponse(m *mapper, w *wireMessage, i int, p *part) {
	v := &p.FunctionResponse.Value
	if v.ID != "" && m.hasResult(v.ID) {
		m.repeated = true
		return
	}
	var id lenient.Text
	switch {
	case v.ID != "":
		id = resultID(v.ID)
		m.Session.IDs.Put(answeredKey(v.ID), core.Fingerprint{})
	case w.ID != "":
		id = w.ID + lenient.Text("#result"+strconv.Itoa(i))
	}
	r := result{name: v.Name, present: lenient.IsValue(v.Response), timestamp: w.Timestamp}
	r.addPart(p)
	m.emitResult(id, v.ID, r)
}

// result returns the result of a call; false while it has none.
func (c *call) result() (result, bool) {
	r := result{name: c.Name, status: c.Status, timestamp: c.Timestamp}
	for _, p := range c.resultParts() {
		r.addPart(p)
	}
	r.addDisplay(c.ResultDisplay)
	r.present = c.Result.present || lenient.IsValue(c.ResultDisplay)
	stated := statusOf(c.Status)
	return r, r.present || stated == envelopes.StatusError || stated == envelopes.StatusSuccess
}

// resultParts returns the parts of the result that belong to this call. In a rewritten history, a result has the
// parts of all calls answered together.
func (c *call) resultParts() []*part {
	isNamed := c.Result.has(func(p *part) bool { return p.FunctionResponse.Value.ID == c.ID })
	var out []*part
	isMine := true
	for i := range c.Result.parts {
		p := &c.Result.parts[i]
		if p.isResponse() {
			isMine = !isNamed || p.FunctionResponse.Value.ID == c.ID
		}
		if isMine {
			out = append(out, p)
		}
	}
	return out
}

// addPart adds a part to the output.
func (r *result) addPart(p *part) {
	if !p.isResponse() {
		r.output += string(p.Text)
		return
	}
	var in struct {
		lenient.Data

		Output jsontext.Value `json:"output"`
		Error  jsontext.Value `json:"error"`
	}
	output := p.FunctionResponse.Value.Response
	lenient.ReadObject(output, &in)
	switch {
	case lenient.IsValue(in.Output):
		output = in.Output
	case lenient.IsValue(in.Error):
		output = in.Error
	}
	r.output += lenient.TextOrJSON(output)
	if lenient.IsValue(in.Error) && string(in.Error) != `""` && string(in.Error) != "false" {
		r.failed = true
	}
}

// display is what a human sees of a result, if it is an object.
type display struct {
	Summary   lenient.Text `json:"summary"`
	Result    lenient.Text `json:"result"` // of a subagent
	FilePath  lenient.Text `json:"filePath"`
	IsNewFile lenient.Flag `json:"isNewFile"`

	displayLists

	displayBeside
}

// displayLists has the lists in it: a to-do list, search results, and files read.
type displayLists struct {
	Files    jsontext.Value `json:"files"`
	Matches  jsontext.Value `json:"matches"`
	Skipped  jsontext.Value `json:"skipped"`
	Include  jsontext.Value `json:"include"`
	Excludes jsontext.Value `json:"excludes"`
	Todos    jsontext.Value `json:"todos"`
}

// object returns the lists in one object under the vendor's names; nil for none.
func (l *displayLists) object() jsontext.Value {
	var out jsontext.Value
	for _, m := range []struct {
		name string
		list jsontext.Value
	}{
		{"files", l.Files},
		{"matches", l.Matches},
		{"skipped", l.Skipped},
		{"include", l.Include},
		{"excludes", l.Excludes},
		{"todos", l.Todos},
	} {
		if m.list.Kind() != '[' {
			continue
		}
		if out == nil {
			out = jsontext.Value{'{'}
		} else {
			out = append(out, ',')
		}
		out = append(append(lenient.AppendQuote(out, m.name), ':'), m.list...)
	}
	if out == nil {
		return nil
	}
	return core.EventRaw(append(out, '}'))
}

// addDisplay adds what a human sees of the result: a text, an object, or the screen of a terminal.
func (r *result) addDisplay(v jsontext.Value) {
	switch v.Kind() {
	case '"':
		r.display = lenient.Unquote(v)
		r.hasDisplay = r.display != ""
	case '{':
		var in display
		lenient.ReadObject(v, &in)
		r.path, r.created = string(in.FilePath), bool(in.IsNewFile)
		r.display = string(in.Summary + in.Result)
		r.hasDisplay = r.display != ""
		r.listed = in.object()
	case '[':
		r.display = screenText(v)
	default: // nothing to show
	}
}

// screenText returns the text of a terminal's screen: lines of tokens.
func screenText(screen jsontext.Value) string {
	var lines []string
	for _, l := range lenient.Elements(screen) {
		var line strings.Builder
		for _, token := range lenient.Elements(l) {
			var in struct {
				Text lenient.Text `json:"text"`
			}
			lenient.ReadObject(token, &in)
			line.WriteString(string(in.Text))
		}
		lines = append(lines, strings.TrimRight(line.String(), " "))
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

// emitResult emits the result of a call; id is that of the event.
func (e *emitter) emitResult(id, callID lenient.Text, r result) {
	made, _ := e.Session.RecallCall(string(callID))
	name, path := cmp.Or(made.Tool, string(r.name)), cmp.Or(r.path, made.Path)
	tool := core.ToolOf(name)
	exit := r.exitCode(tool.Channel)
	d := core.ResultDraft(callID, core.Call{Tool: name, Channel: tool.Channel, Op: tool.Op, Path: path}, r.text(), r.toolStatus(exit))
	d.ToolExitCode, d.ToolMetadata, d.ToolLatencyMS = exit, r.listed, r.latency
	if sent, only := e.sentResult(callID); !e.exported && only {
		d.ToolLatencyMS = sent
		e.noteResult(callID, inBoth, sent)
	}
	d.TS, _ = core.ParseTime(string(r.timestamp))
	if r.created && path != "" && len(path) <= core.MaxPath {
		d.Files = []envelopes.File{{Path: path, Op: envelopes.OpCreate}}
	}
	e.put(id, d)
}

// text returns what the human sees, else what the model sees; nil for no result.
func (r *result) text() *string {
	switch {
	case r.hasDisplay || r.output == "" && r.display != "":
		return &r.display
	case r.present:
		return &r.output
	default:
		return nil
	}
}

// statusOf returns the outcome stated by the vendor; empty for none.
func statusOf(status lenient.Text) envelopes.ToolStatus {
	switch status {
	case "success", "completed":
		return envelopes.StatusSuccess
	case "error", "failed", "cancelled", "canceled", "rejected":
		return envelopes.StatusError
	case "validating", "scheduled", "awaiting_approval", "executing", "running", "in_progress", "pending":
		return envelopes.StatusInProgress
	default:
		return ""
	}
}

// untrusted is the line that the vendor puts before the output of some tools.
const untrusted = "<untrusted_context>\n"

// toolStatus returns the outcome (envelopes/event.md, Tools). The exit code takes precedence over the vendor's
// status, which is success for every command that could be started.
func (r *result) toolStatus(exit *int64) envelopes.ToolStatus {
	status := statusOf(r.status)
	if status == "" && r.present {
		status = envelopes.StatusSuccess
	}
	text := strings.TrimPrefix(r.output+r.display, untrusted)
	switch {
	case r.failed, exit != nil && *exit != 0:
		return envelopes.StatusError
	case status == envelopes.StatusSuccess && strings.HasPrefix(text, "Command moved to background (PID:"):
		return envelopes.StatusInProgress
	case status == "":
		return envelopes.StatusUnknown
	default:
		return status
	}
}

// exitCode returns the exit code stated in a shell's output, in the last of its lines that begin with it, else in the
// display; nil for none.
func (r *result) exitCode(channel envelopes.Channel) *int64 {
	if channel != envelopes.ChannelTerminal && !isShellOutput(r.output) {
		return nil
	}
	const name = "Exit Code: "
	for rest := r.output; ; {
		at := strings.LastIndex(rest, name)
		if at < 0 {
			break
		}
		if at == 0 || rest[at-1] == '\n' {
			return leadingInteger(r.output[at+len(name):])
		}
		rest = rest[:at]
	}
	if code, ok := strings.CutPrefix(r.display, "Command exited with code: "); ok {
		return leadingInteger(code)
	}
	return nil
}

// isShellOutput reports whether an output has the form of a shell's, for any tool.
func isShellOutput(output string) bool {
	head := strings.TrimPrefix(output, untrusted)
	return strings.HasPrefix(head, "Command: ") || strings.HasPrefix(head, "Stdout: ") || strings.HasPrefix(head, "Output: ")
}

// leadingInteger returns the number at the beginning of s; nil for none.
func leadingInteger(s string) *int64 {
	end := 0
	if strings.HasPrefix(s, "-") {
		end = 1
	}
	for end < len(s) && end < 12 && '0' <= s[end] && s[end] <= '9' {
		end++
	}
	n, err := strconv.ParseInt(s[:end], 10, 64)
	if err != nil {
		return nil
	}
	return &n
}
