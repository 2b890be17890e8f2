package gemini

import (
	"cmp"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

const maxFilePaths = 64 << 10 // bytes of all file paths

// call is a tool call in the toolCalls of a message, with its result.
type call struct {
	ID            lenient.Text   `json:"id"`
	Name          lenient.Text   `json:"name"`
	Args          jsontext.Value `json:"args"`
	Result        parts          `json:"result"`
	Status        lenient.Text   `json:"status"`
	Timestamp     lenient.Text   `json:"timestamp"`
	ResultDisplay jsontext.Value `json:"resultDisplay"`
}

// functionCall is a call in a part, in the form of the API.
type functionCall struct {
	ID   lenient.Text   `json:"id"`
	Name lenient.Text   `json:"name"`
	Args jsontext.Value `json:"args"`
}

// toolArgs has the arguments of a tool that name a file.
type toolArgs struct {
	lenient.Data

	FilePath     lenient.Text               `json:"file_path"`
	AbsolutePath lenient.Text               `json:"absolute_path"`
	Path         lenient.Text               `json:"path"`
	DirPath      lenient.Text               `json:"dir_path"`
	Paths        lenient.List[lenient.Text] `json:"paths"`
}

// file returns the file named in the arguments; empty for none.
func (a *toolArgs) file() string {
	file := cmp.Or(a.FilePath, a.AbsolutePath, a.Path, a.DirPath)
	if file == "" && len(a.Paths) > 0 {
		file = a.Paths[0]
	}
	return string(file)
}

// files returns the files of arguments that name several; nil for others.
func (a *toolArgs) files(op envelopes.FileOp) []envelopes.File {
	if len(a.Paths) < 2 || op == "" {
		return nil
	}
	var files []envelopes.File
	size := 0
	for _, p := range a.Paths {
		if size += len(p); p != "" && size <= maxFilePaths {
			files = append(files, envelopes.File{Path: string(p), Op: op})
		}
	}
	return files
}

// emitToolCalls emits the calls of a message, including those among its parts that toolCalls does not list.
func emitToolCalls(m *mapper, w *wireMessage) {
	for i := range w.ToolCalls {
		emitToolCall(m, w, i, &w.ToolCalls[i].Value)
	}
	for i, p := range w.body().parts {
		if c := &p.FunctionCall; c.OK && !w.listsCall(c.Value.ID) {
			emitToolCall(m, w, len(w.ToolCalls)+i, &call{ID: c.Value.ID, Name: c.Value.Name, Args: c.Value.Args})
		}
	}
}

// emitToolCall emits a call and, once anything is known about it, its result. A rewritten history may have shortened
// both, and adds nothing.
func emitToolCall(m *mapper, w *wireMessage, i int, c *call) {
	c.ID = cmp.Or(c.id(), w.partID(cmp.Or(m.number, int(m.Session.Records))-1, i))
	if m.history && m.Session.HasEvent(string(c.ID)) {
		m.repeated = true
	} else {
		m.emitCall(c.ID, c.Name, c.Args, c.Timestamp, w.Model)
	}
	if m.hasResult(c.ID) && (m.history || m.known.answered(c.ID)) {
		m.repeated = true
	} else if r, ok := c.result(); ok {
		m.emitResult(resultID(c.ID), c.ID, r)
	}
}

// id returns the id of a call: its own, or else that of its response.
func (c *call) id() lenient.Text {
	id := c.ID
	for _, p := range c.Result.parts {
		id = cmp.Or(id, p.FunctionResponse.Value.ID)
	}
	return id
}

// emitCall emits the call of a tool.
func (e *emitter) emitCall(id, name lenient.Text, args jsontext.Value, timestamp, model lenient.Text) {
	tool := core.ToolOf(string(name))
	var in toolArgs
	lenient.ReadObject(args, &in)
	file := in.file()
	if tool == core.ToolShell {
		file = "" // it is the shell's directory
	}
	d := core.CallDraft(id, name, tool, core.ArgumentText(args), file)
	d.Model, d.Files = model.Ptr(), in.files(tool.Op)
	d.TS, _ = core.ParseTime(string(timestamp))
	if e.put(id, d) {
		e.Session.RememberCall(string(id), core.Call{Tool: string(name), Channel: tool.Channel, Op: tool.Op, Path: file})
	}
}

// listsCall reports whether toolCalls has a call with this id.
func (w *wireMessage) listsCall(id lenient.Text) bool {
	for i := range w.ToolCalls {
		if id != "" && w.ToolCalls[i].Value.ID == id {
			return true
		}
	}
	return false
}

// partID returns an id for a call without one, made from its part in the i-th message.
func (w *wireMessage) partID(i, part int) lenient.Text {
	id := w.ID
	if id == "" {
		id = lenient.Text("@" + strconv.Itoa(i+1))
	}
	return id + lenient.Text("#call"+strconv.Itoa(part))
}

// openCall is a call among the parts of a document without a response so far.
type openCall struct {
	call   *functionCall
	partID lenient.Text
}

// answer gives a call and its response one id: the call's, the response's, or that of the part. It returns false, and
// changes nothing, if they do not belong together.
func (o openCall) answer(r *response) bool {
	c := o.call
	if c.ID != "" && r.ID != "" && c.ID != r.ID || c.Name != r.Name {
		return false
	}
	id := cmp.Or(c.ID, r.ID, o.partID)
	c.ID, r.ID = id, id
	return true
}

// pairCalls gives the calls and responses among the parts of a document the ids that the vendor omitted. A response
// belongs to the first open call with its name; calls are open until the next message of the model.
func pairCalls(messages []wireMessage) {
	var open []openCall
	closeAll := func() {
		for _, o := range open {
			o.call.ID = cmp.Or(o.call.ID, o.partID)
		}
		open = open[:0]
	}
	for i := range messages {
		w := &messages[i]
		if w.kind() == "gemini" {
			closeAll()
		}
		parts := w.body().parts
		for j := range parts {
			p := &parts[j]
			if p.FunctionCall.OK {
				open = append(open, openCall{&p.FunctionCall.Value, w.partID(i, j)})
			}
			if !p.FunctionResponse.OK {
				continue
			}
			for k, o := range open {
				if o.answer(&p.FunctionResponse.Value) {
					open = append(open[:k:k], open[k+1:]...)
					break
				}
			}
		}
	}
	closeAll()
}
