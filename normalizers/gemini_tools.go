package normalizers

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
)

// What Gemini CLI writes about its tools: calls with their results in the message that
// made them, and results once more as parts of the user's side.

// geminiCall is a tool call as a session keeps it.
type geminiCall struct {
	ID            text           `json:"id"`
	Name          text           `json:"name"`
	Args          jsontext.Value `json:"args"`
	Result        geminiParts    `json:"result"`
	Status        text           `json:"status"`
	Timestamp     text           `json:"timestamp"`
	ResultDisplay jsontext.Value `json:"resultDisplay"`
}

// geminiFunctionCall is a call as the API has it.
type geminiFunctionCall struct {
	ID   text           `json:"id"`
	Name text           `json:"name"`
	Args jsontext.Value `json:"args"`
}

// geminiResponse is a result as the API has it.
type geminiResponse struct {
	ID       text           `json:"id"`
	Name     text           `json:"name"`
	Response jsontext.Value `json:"response"`
}

// calls reports whether the message lists a call of this id.
func (m *geminiMessage) calls(id text) bool {
	for i := range m.ToolCalls {
		if id != "" && m.ToolCalls[i].value.ID == id {
			return true
		}
	}
	return false
}

// pairCalls gives calls and results of a document an id where the vendor left it out: the
// other's, else one of the call's place.
func pairCalls(messages []geminiMessage) {
	type open struct {
		call  *geminiFunctionCall
		place text
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
			if c := &parts[j].FunctionCall; c.ok {
				waiting = append(waiting, open{&c.value, m.place(i, j)})
			}
			r := &parts[j].FunctionResponse
			if !r.ok {
				continue
			}
			for k, o := range waiting {
				if o.call.ID != "" && r.value.ID != "" && o.call.ID != r.value.ID || o.call.Name != r.value.Name {
					continue
				}
				for _, id := range []text{o.call.ID, r.value.ID, o.place} {
					if id != "" {
						o.call.ID, r.value.ID = id, id
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
func (m *geminiMessage) place(i, part int) text {
	id := m.ID
	if id == "" {
		id = text("@" + strconv.Itoa(i+1))
	}
	return id + text("#call"+strconv.Itoa(part))
}

const maxFilePaths = 64 << 10 // bytes of the paths of files

// geminiArgs are the arguments of a tool that name a file.
type geminiArgs struct {
	FilePath     text       `json:"file_path"`
	AbsolutePath text       `json:"absolute_path"`
	Path         text       `json:"path"`
	DirPath      text       `json:"dir_path"`
	Paths        list[text] `json:"paths"`
}

// call emits a call and, as soon as anything is known of it, its result.
func (g *geminiFold) call(m *geminiMessage, i int, c *geminiCall) {
	for _, p := range c.Result.parts {
		if c.ID == "" {
			c.ID = p.FunctionResponse.value.ID
		}
	}
	if c.ID == "" {
		c.ID = m.place(cmp.Or(g.number, int(g.s.Records))-1, i)
	}
	// What a history repeats of a call may have been shortened, and says nothing new.
	if g.history && g.s.knows(string(c.ID)) {
		g.mirrored = true
	} else {
		g.made(c.ID, c.Name, c.Args, c.Timestamp, m.Model)
	}
	if g.s.knows(string(c.ID)+"#result") && (g.history || g.responded(c.ID)) {
		g.mirrored = true
	} else if r, ok := c.result(); ok {
		g.result(c.ID+"#result", c.ID, r)
	}
}

// made emits a call.
func (g *geminiFold) made(id, name text, args jsontext.Value, timestamp, model text) {
	t := toolOf(string(name))
	d := draft{on: t.channel}
	d.EventType = envelopes.ToolCall
	d.ToolName, d.ToolCallID = name.ptr(), id.ptr()
	d.ToolStatus = new(envelopes.StatusInProgress)
	d.Model = model.ptr()
	d.TS, _ = parseTime(string(timestamp))
	var in geminiArgs
	switch {
	case args.Kind() == '"':
		d.Text = new(unquote(args))
	case isValue(args):
		d.Text = new(compactText(args))
		readObject(args, &in)
	}
	path := string(cmp.Or(in.FilePath, in.AbsolutePath, in.Path, in.DirPath))
	if path == "" && len(in.Paths) > 0 {
		path = string(in.Paths[0])
	}
	if t == shell {
		path = "" // what it has is a directory to work in
	}
	d.touch(path, t.op)
	if len(in.Paths) > 1 && t.op != "" {
		size := 0
		for _, p := range in.Paths {
			if size += len(p); p != "" && size <= maxFilePaths {
				d.Files = append(d.Files, envelopes.File{Path: string(p), Op: t.op})
			}
		}
	}
	if g.put(id, d) {
		g.s.remember(string(id), call{Tool: string(name), Channel: t.channel, Op: t.op, Path: path})
	}
}

// geminiResult is the outcome of a call, in whatever form it came.
type geminiResult struct {
	name      text
	status    text
	output    string // what the model is told
	display   string // what the human is shown
	shown     bool   // display is there, and no picture of a terminal
	failed    bool
	data      bool // there is anything at all
	path      string
	created   bool
	timestamp text
}

// result is the outcome of a call; false while it has none.
func (c *geminiCall) result() (geminiResult, bool) {
	r := geminiResult{name: c.Name, status: c.Status, timestamp: c.Timestamp}
	for _, p := range c.own() {
		r.add(p)
	}
	r.show(c.ResultDisplay)
	r.data = c.Result.present || isValue(c.ResultDisplay)
	return r, r.data || geminiStatus(c.Status) == envelopes.StatusError || geminiStatus(c.Status) == envelopes.StatusSuccess
}

// own are the parts of the result that are this call's. Where the history was written
// again, a result holds those of all calls that were answered together.
func (c *geminiCall) own() []*geminiPart {
	named := c.Result.has(func(p *geminiPart) bool { return p.FunctionResponse.value.ID == c.ID })
	var out []*geminiPart
	mine := true
	for i := range c.Result.parts {
		p := &c.Result.parts[i]
		if p.FunctionResponse.ok {
			mine = !named || p.FunctionResponse.value.ID == c.ID
		}
		if mine {
			out = append(out, p)
		}
	}
	return out
}

// add takes a part of a result.
func (r *geminiResult) add(p *geminiPart) {
	if !p.FunctionResponse.ok {
		r.output += string(p.Text)
		return
	}
	var in struct {
		Output jsontext.Value `json:"output"`
		Error  jsontext.Value `json:"error"`
	}
	v := p.FunctionResponse.value.Response
	readObject(v, &in)
	switch {
	case isValue(in.Output):
		v = in.Output
	case isValue(in.Error):
		v = in.Error
	}
	if failure := in.Error; isValue(failure) && string(failure) != `""` && string(failure) != "false" {
		r.failed = true
	}
	if v.Kind() == '"' {
		r.output += unquote(v)
	} else if isValue(v) {
		r.output += compactText(v)
	}
}

// show takes what is displayed of a result.
func (r *geminiResult) show(v jsontext.Value) {
	switch v.Kind() {
	case '"':
		r.display = unquote(v)
		r.shown = r.display != ""
	case '{':
		var in struct {
			Summary   text `json:"summary"`
			Result    text `json:"result"` // of a subagent
			FilePath  text `json:"filePath"`
			IsNewFile flag `json:"isNewFile"`
		}
		readObject(v, &in)
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
	for _, l := range elementsOf(v) {
		var line strings.Builder
		for _, token := range elementsOf(l) {
			var in struct {
				Text text `json:"text"`
			}
			readObject(token, &in)
			line.WriteString(string(in.Text))
		}
		lines = append(lines, strings.TrimRight(line.String(), " "))
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

// geminiStatus is the outcome that the vendor states; empty when it states none.
func geminiStatus(status text) envelopes.ToolStatus {
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
func (r *geminiResult) outcome(exit *int64) envelopes.ToolStatus {
	status := geminiStatus(r.status)
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
func (g *geminiFold) result(event, id text, r geminiResult) {
	made, _ := g.s.recall(string(id))
	name := cmp.Or(text(made.Tool), r.name)
	t := toolOf(string(name))
	d := draft{on: t.channel}
	d.EventType = envelopes.ToolResult
	d.ToolCallID, d.ToolName = id.ptr(), name.ptr()
	switch {
	case r.shown || r.output == "" && r.display != "":
		d.Text = &r.display
	case r.data:
		d.Text = &r.output
	}
	d.ToolExitCode = geminiExitCode(d.on, &r)
	d.ToolStatus = new(r.outcome(d.ToolExitCode))
	d.TS, _ = parseTime(string(r.timestamp))
	path := cmp.Or(r.path, made.Path)
	d.touch(path, t.op)
	if r.created && path != "" && len(path) <= maxPath {
		d.Files = []envelopes.File{{Path: path, Op: envelopes.OpCreate}}
	}
	g.put(event, d)
}

// response emits a result that stands on the user's side, unless the call has told it.
func (g *geminiFold) response(m *geminiMessage, i int, v *geminiResponse) {
	if v.ID != "" && g.s.knows(string(v.ID)+"#result") {
		g.mirrored = true
		return
	}
	r := geminiResult{name: v.Name, data: isValue(v.Response), timestamp: m.Timestamp}
	r.add(&geminiPart{FunctionResponse: object[geminiResponse]{value: *v, ok: true}})
	event := v.ID + "#result"
	switch {
	case v.ID != "":
		g.s.ids.put(fingerprintOf("response", string(v.ID)), fingerprint{})
	case m.ID != "":
		event = m.ID + text("#result"+strconv.Itoa(i))
	default:
		event = ""
	}
	g.result(event, v.ID, r)
}

// responded reports whether the result of a call was told from the user's side.
func (g *geminiFold) responded(id text) bool {
	_, ok := g.s.ids.get(fingerprintOf("response", string(id)))
	return ok
}

// geminiExitCode is the exit code that a shell's output states: in its last line that
// begins with it (semantics.md section 7).
func geminiExitCode(on envelopes.Channel, r *geminiResult) *int64 {
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
