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

// What Gemini CLI writes about its tools: calls with their results in the message that
// made them, and results once more as parts of the user's side.

// call is a tool call as a session keeps it.
type call struct {
	ID            lenient.Text   `json:"id"`
	Name          lenient.Text   `json:"name"`
	Args          jsontext.Value `json:"args"`
	Result        parts          `json:"result"`
	Status        lenient.Text   `json:"status"`
	Timestamp     lenient.Text   `json:"timestamp"`
	ResultDisplay jsontext.Value `json:"resultDisplay"`
}

// functionCall is a call as the API has it.
type functionCall struct {
	ID   lenient.Text   `json:"id"`
	Name lenient.Text   `json:"name"`
	Args jsontext.Value `json:"args"`
}

// response is a result as the API has it.
type response struct {
	ID       lenient.Text   `json:"id"`
	Name     lenient.Text   `json:"name"`
	Response jsontext.Value `json:"response"`
}

// calls reports whether the message lists a call of this id.
func (m *wireMessage) calls(id lenient.Text) bool {
	for i := range m.ToolCalls {
		if id != "" && m.ToolCalls[i].Value.ID == id {
			return true
		}
	}
	return false
}

// pairCalls gives calls and results of a document an id where the vendor left it out: the
// other's, else one of the call's place.
func pairCalls(messages []wireMessage) {
	type open struct {
		call  *functionCall
		place lenient.Text
	}
	var waiting []open
	settle := func() {
		for _, o := range waiting {
			if o.call.ID == "" {
				o.call.ID = o.place
			}
		}
		waiting = waiting[:0]
	}
	for i := range messages {
		m := &messages[i]
		parts := m.body().parts
		if m.kind() == "gemini" {
			settle()
		}
		for j := range parts {
			if c := &parts[j].FunctionCall; c.OK {
				waiting = append(waiting, open{&c.Value, m.place(i, j)})
			}
			r := &parts[j].FunctionResponse
			if !r.OK {
				continue
			}
			for k, o := range waiting {
				if o.call.ID != "" && r.Value.ID != "" && o.call.ID != r.Value.ID || o.call.Name != r.Value.Name {
					continue
				}
				for _, id := range []lenient.Text{o.call.ID, r.Value.ID, o.place} {
					if id != "" {
						o.call.ID, r.Value.ID = id, id
						break
					}
				}
				waiting = append(waiting[:k:k], waiting[k+1:]...)
				break
			}
		}
	}
	settle()
}

// place is an id for a part of the i-th message.
func (m *wireMessage) place(i, part int) lenient.Text {
	id := m.ID
	if id == "" {
		id = lenient.Text("@" + strconv.Itoa(i+1))
	}
	return id + lenient.Text("#call"+strconv.Itoa(part))
}

const maxFilePaths = 64 << 10 // bytes of the paths of files

// geminiArgs are the arguments of a tool that name a file.
type geminiArgs struct {
	FilePath     lenient.Text               `json:"file_path"`
	AbsolutePath lenient.Text               `json:"absolute_path"`
	Path         lenient.Text               `json:"path"`
	DirPath      lenient.Text               `json:"dir_path"`
	Paths        lenient.List[lenient.Text] `json:"paths"`
}

// call emits a call and, as soon as anything is known of it, its result.
func (g *mapper) call(m *wireMessage, i int, c *call) {
	for _, p := range c.Result.parts {
		if c.ID == "" {
			c.ID = p.FunctionResponse.Value.ID
		}
	}
	if c.ID == "" {
		c.ID = m.place(cmp.Or(g.number, int(g.Session.Records))-1, i)
	}
	// What a history repeats of a call may have been shortened, and says nothing new.
	if g.history && g.Session.HasEvent(string(c.ID)) {
		g.mirrored = true
	} else {
		g.made(c.ID, c.Name, c.Args, c.Timestamp, m.Model)
	}
	if g.Session.HasEvent(string(c.ID)+"#result") && (g.history || g.responded(c.ID)) {
		g.mirrored = true
	} else if r, ok := c.result(); ok {
		g.result(c.ID+"#result", c.ID, r)
	}
}

// made emits a call.
func (g *mapper) made(id, name lenient.Text, args jsontext.Value, timestamp, model lenient.Text) {
	t := core.ToolOf(string(name))
	d := core.Draft{OnChannel: t.Channel}
	d.EventType = envelopes.ToolCall
	d.ToolName, d.ToolCallID = name.Ptr(), id.Ptr()
	d.ToolStatus = new(envelopes.StatusInProgress)
	d.Model = model.Ptr()
	d.TS, _ = core.ParseTime(string(timestamp))
	var in geminiArgs
	switch {
	case args.Kind() == '"':
		d.Text = new(lenient.Unquote(args))
	case lenient.IsValue(args):
		d.Text = new(lenient.CompactText(args))
		lenient.ReadObject(args, &in)
	}
	path := string(cmp.Or(in.FilePath, in.AbsolutePath, in.Path, in.DirPath))
	if path == "" && len(in.Paths) > 0 {
		path = string(in.Paths[0])
	}
	if t == core.ToolShell {
		path = "" // what it has is a directory to work in
	}
	d.Touch(path, t.Op)
	if len(in.Paths) > 1 && t.Op != "" {
		size := 0
		for _, p := range in.Paths {
			if size += len(p); p != "" && size <= maxFilePaths {
				d.Files = append(d.Files, envelopes.File{Path: string(p), Op: t.Op})
			}
		}
	}
	if g.put(id, d) {
		g.Session.RememberCall(string(id), core.Call{Tool: string(name), Channel: t.Channel, Op: t.Op, Path: path})
	}
}

// result is the outcome of a call, in whatever form it came.
type result struct {
	name      lenient.Text
	status    lenient.Text
	output    string // what the model is told
	display   string // what the human is shown
	shown     bool   // display is there, and no picture of a terminal
	failed    bool
	data      bool // there is anything at all
	path      string
	created   bool
	timestamp lenient.Text
}

// result is the outcome of a call; false while it has none.
func (c *call) result() (result, bool) {
	r := result{name: c.Name, status: c.Status, timestamp: c.Timestamp}
	for _, p := range c.own() {
		r.add(p)
	}
	r.show(c.ResultDisplay)
	r.data = c.Result.present || lenient.IsValue(c.ResultDisplay)
	return r, r.data || status(c.Status) == envelopes.StatusError || status(c.Status) == envelopes.StatusSuccess
}

// own are the parts of the result that are this call's. Where the history was written
// again, a result holds those of all calls that were answered together.
func (c *call) own() []*part {
	named := c.Result.has(func(p *part) bool { return p.FunctionResponse.Value.ID == c.ID })
	var out []*part
	mine := true
	for i := range c.Result.parts {
		p := &c.Result.parts[i]
		if p.FunctionResponse.OK {
			mine = !named || p.FunctionResponse.Value.ID == c.ID
		}
		if mine {
			out = append(out, p)
		}
	}
	return out
}

// add takes a part of a result.
func (r *result) add(p *part) {
	if !p.FunctionResponse.OK {
		r.output += string(p.Text)
		return
	}
	var in struct {
		Output jsontext.Value `json:"output"`
		Error  jsontext.Value `json:"error"`
	}
	v := p.FunctionResponse.Value.Response
	lenient.ReadObject(v, &in)
	switch {
	case lenient.IsValue(in.Output):
		v = in.Output
	case lenient.IsValue(in.Error):
		v = in.Error
	}
	if failure := in.Error; lenient.IsValue(failure) && string(failure) != `""` && string(failure) != "false" {
		r.failed = true
	}
	if v.Kind() == '"' {
		r.output += lenient.Unquote(v)
	} else if lenient.IsValue(v) {
		r.output += lenient.CompactText(v)
	}
}

// show takes what is displayed of a result.
func (r *result) show(v jsontext.Value) {
	switch v.Kind() {
	case '"':
		r.display = lenient.Unquote(v)
		r.shown = r.display != ""
	case '{':
		var in struct {
			Summary   lenient.Text `json:"summary"`
			Result    lenient.Text `json:"result"` // of a subagent
			FilePath  lenient.Text `json:"filePath"`
			IsNewFile lenient.Flag `json:"isNewFile"`
		}
		lenient.ReadObject(v, &in)
		r.path, r.created = string(in.FilePath), bool(in.IsNewFile)
		r.display = string(in.Summary + in.Result)
		r.shown = r.display != ""
	case '[':
		r.display = screen(v)
	default: // nothing to show
	}
}

// screen is the text of a picture of a terminal: lines of tokens.
func screen(v jsontext.Value) string {
	var lines []string
	for _, l := range lenient.Elements(v) {
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

// status is the outcome that the vendor states; empty when it states none.
func status(status lenient.Text) envelopes.ToolStatus {
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

// outcome is the status by semantics.md section 7. The exit code counts before what the
// vendor states, which is a success for every command that could be run.
func (r *result) outcome(exit *int64) envelopes.ToolStatus {
	status := status(r.status)
	if status == "" && r.data {
		status = envelopes.StatusSuccess
	}
	shown := strings.TrimPrefix(r.output+r.display, "<untrusted_context>\n")
	switch {
	case r.failed, exit != nil && *exit != 0:
		return envelopes.StatusError
	case status == envelopes.StatusSuccess && strings.HasPrefix(shown, "Command moved to background (PID:"):
		return envelopes.StatusInProgress
	case status == "":
		return envelopes.StatusUnknown
	default:
		return status
	}
}

// result emits the result of a call, under the id of an event.
func (g *mapper) result(event, id lenient.Text, r result) {
	made, _ := g.Session.RecallCall(string(id))
	name := cmp.Or(lenient.Text(made.Tool), r.name)
	t := core.ToolOf(string(name))
	d := core.Draft{OnChannel: t.Channel}
	d.EventType = envelopes.ToolResult
	d.ToolCallID, d.ToolName = id.Ptr(), name.Ptr()
	switch {
	case r.shown || r.output == "" && r.display != "":
		d.Text = &r.display
	case r.data:
		d.Text = &r.output
	}
	d.ToolExitCode = exitCode(d.OnChannel, &r)
	d.ToolStatus = new(r.outcome(d.ToolExitCode))
	d.TS, _ = core.ParseTime(string(r.timestamp))
	path := cmp.Or(r.path, made.Path)
	d.Touch(path, t.Op)
	if r.created && path != "" && len(path) <= core.MaxPath {
		d.Files = []envelopes.File{{Path: path, Op: envelopes.OpCreate}}
	}
	g.put(event, d)
}

// response emits a result that stands on the user's side, unless the call has told it.
func (g *mapper) response(m *wireMessage, i int, v *response) {
	if v.ID != "" && g.Session.HasEvent(string(v.ID)+"#result") {
		g.mirrored = true
		return
	}
	r := result{name: v.Name, data: lenient.IsValue(v.Response), timestamp: m.Timestamp}
	r.add(&part{FunctionResponse: lenient.Object[response]{Value: *v, OK: true}})
	event := v.ID + "#result"
	switch {
	case v.ID != "":
		g.Session.IDs.Put(core.FingerprintOf("response", string(v.ID)), core.Fingerprint{})
	case m.ID != "":
		event = m.ID + lenient.Text("#result"+strconv.Itoa(i))
	default:
		event = ""
	}
	g.result(event, v.ID, r)
}

// responded reports whether the result of a call was told from the user's side.
func (g *mapper) responded(id lenient.Text) bool {
	_, ok := g.Session.IDs.Get(core.FingerprintOf("response", string(id)))
	return ok
}

// exitCode is the exit code that a shell's output states: in its last line that
// begins with it (semantics.md section 7).
func exitCode(on envelopes.Channel, r *result) *int64 {
	const name = "Exit Code: "
	if on != envelopes.ChannelTerminal {
		head := strings.TrimPrefix(r.output, "<untrusted_context>\n")
		if !strings.HasPrefix(head, "Command: ") && !strings.HasPrefix(head, "Stdout: ") && !strings.HasPrefix(head, "Output: ") {
			return nil
		}
	}
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

// leadingInteger is the number that s begins with, nil when it begins with none.
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
