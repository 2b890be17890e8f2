package codex

import (
	"cmp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// toolEnd maps an event_msg with the end of a tool, which follows or precedes the output and may state more: exit code,
// time and files. Between call and output it adds to the result. Behind one of the last 8 outputs, if that lacks exit
// code or time, the result is emitted again. Without a call it is call and result at once.
func toolEnd(m *mapper) {
	id := m.toolCallID()
	end := m.readEnd()
	call, known := m.Session.RecallCall(string(id))
	_, sent := m.sentCall(id)
	switch {
	case !known && !sent && m.Session.HasEvent(string(id)):
		m.skip = core.SkipMirror // a call from so long ago that it is forgotten
	case !known:
		endWithoutCall(m, id, end)
	case call.Outcome.Alone:
		m.st.releaseTexts(&m.emitter)
		m.emitResult(id, call, end)
		m.noteResult(id, end)
	case !call.Outcome.Emitted:
		noteEnd(m, id, call.Outcome, end)
		m.skip = core.SkipMirror
	case end.exit != nil && call.Outcome.Exit == nil, end.latency != nil && call.Outcome.Latency == nil:
		supersedeResult(m, id, call, end)
	default:
		m.skip = core.SkipMirror
	}
}

// supersedeResult emits the result of a call again, because its output lacked the exit code or the time that the end
// states. What the text of the end lacks of the output's text stays in front of it. An output too long to keep stays
// only where the end begins with it: any other text of the end counts as cut, and an end without a text is skipped.
func supersedeResult(m *mapper, id lenient.Text, call core.Call, end result) {
	key := core.FingerprintOf(string(id))
	at := slices.IndexFunc(m.st.Outputs, func(o output) bool { return o.Call == key })
	if at >= 0 {
		switch o := m.st.Outputs[at]; {
		case o.Text == "" && end.text == "":
			m.skip = core.SkipMirror
			return
		case o.Text == "":
			end.cut = !o.begins(end.text)
		case end.text == "" || !strings.Contains(end.text, strings.TrimSpace(bodyOf(o.Text))):
			end.text = continued(o.Text, end.text)
		}
	}
	end.exit, end.latency = cmp.Or(end.exit, call.Outcome.Exit), cmp.Or(end.latency, call.Outcome.Latency)
	m.emitResult(id, call, end)
	m.noteResult(id, end)
}

// continued returns a text joined with its continuation; an overlap between its end and the beginning of the
// continuation appears once.
func continued(text, more string) string {
	if more == "" {
		return text
	}
	for i := max(0, len(text)-len(more)); i < len(text); i++ {
		if strings.HasPrefix(more, text[i:]) {
			return text[:i] + more
		}
	}
	return strings.TrimSuffix(text, "\n") + "\n" + more
}

// Limits of the remembered outputs that an end may supersede: only the last ones, and no long texts.
const (
	maxOutputs    = 8
	maxOutputText = 2 << 10
)

// output is the text of a result without an exit code or a time.
type output struct {
	Call core.Fingerprint `json:"c"`
	Text string           `json:"t,omitzero"` // empty if it is too long
	Size int              `json:"n,omitzero"` // bytes of the body of such a text
	Body core.Fingerprint `json:"b,omitzero"` // that body
}

// begins reports whether a text begins with the body of an output too long to keep.
func (o *output) begins(text string) bool {
	text = strings.TrimSpace(text)
	return len(text) >= o.Size && core.FingerprintOf(text[:o.Size]) == o.Body
}

// rememberOutput keeps the text of a result for an end that may supersede it.
func (s *state) rememberOutput(id lenient.Text, r result) {
	if id == "" || r.text == "" || r.exit != nil && r.latency != nil {
		return
	}
	o := output{Call: core.FingerprintOf(string(id)), Text: r.text}
	if len(o.Text) > maxOutputText {
		body := strings.TrimSpace(bodyOf(o.Text))
		o.Text, o.Size, o.Body = "", len(body), core.FingerprintOf(body)
	}
	others := s.Outputs.Without(func(p output) bool { return p.Call == o.Call })
	s.Outputs = others.Push(o, maxOutputs, nil)
}

// endWithoutCall emits an end that is both call and result. A view_image_tool_call states no result.
func endWithoutCall(m *mapper, id lenient.Text, end result) {
	m.st.releaseTexts(&m.emitter)
	call := m.callOfEnd()
	call.id, call.files = id, end.files
	m.emitCall(call)
	if m.Type == "view_image_tool_call" {
		return
	}
	m.emitResult(id, m.callOf(id, call.name), end)
	m.noteResult(id, end)
}

// noteEnd keeps what an end states for the result that follows. A tool may have several ends: for a command, and for
// the patch in it.
func noteEnd(m *mapper, id lenient.Text, seen core.Outcome, end result) {
	files := end.files
	if len(files) == 0 {
		files = seen.Files
	}
	m.Session.SetOutcome(string(id), core.Outcome{
		Exit:    cmp.Or(end.exit, seen.Exit),
		Latency: cmp.Or(end.latency, seen.Latency),
		Failed:  end.failed || seen.Failed,
		Files:   files[:min(len(files), maxCallFiles)],
	})
}

// toolRequest maps the request of a dynamic tool. If it has no response_item, its response is the result.
func toolRequest(m *mapper) {
	id := m.toolCallID()
	_, known := m.Session.RecallCall(string(id))
	if _, sent := m.sentCall(id); (known || !sent) && m.Session.HasEvent(string(id)) {
		m.skip = core.SkipMirror
		return
	}
	m.st.releaseTexts(&m.emitter)
	m.emitCall(toolCall{id: id, name: m.Tool, args: m.Arguments})
	m.Session.SetOutcome(string(id), core.Outcome{Alone: true})
}

// readEnd returns what an end states about the result.
func (p *payload) readEnd() result {
	r := result{stated: true, text: string(p.Aggregated), exit: p.ExitCode.Integer()}
	if d := p.Duration.Value; d.Secs.OK {
		r.latency = milliseconds(d.Secs.Value + d.Nanos.Value/1e9)
	}
	r.failed = string(p.Success) == "false" || p.Status == "failed" || p.Status == "declined"
	if r.text == "" {
		r.text = strings.TrimSuffix(string(p.Stdout)+"\n"+string(p.Stderr), "\n")
	}
	switch p.Type {
	case "patch_apply_end":
		r.files = patchedFiles(p.Changes)
	case "mcp_tool_call_end":
		p.readMCPEnd(&r)
	case "dynamic_tool_call_response":
		r.text = cmp.Or(p.ContentItems.text(), string(lenient.Scalar(p.Error)))
	case "image_generation_end":
		r.text = string(cmp.Or(p.RevisedPrompt, p.RevisedCamel))
	case "web.search":
		if lenient.IsValue(p.Results) {
			r.text = lenient.CompactText(p.Results)
		}
	}
	return r
}

// mcpResult is the output of an MCP tool.
type mcpResult struct {
	Content content      `json:"content"`
	IsError lenient.Flag `json:"isError"`
}

// readMCPEnd reads the result of an MCP tool: {"Ok": ...} or {"Err": ...}; in a completed item only the result, with
// the error beside it.
func (p *payload) readMCPEnd(r *result) {
	var end struct {
		Ok  lenient.Object[mcpResult] `json:"Ok"`
		Err jsontext.Value            `json:"Err"`
		mcpResult
	}
	lenient.ReadObject(p.Result, &end)
	returned := end.mcpResult
	if end.Ok.OK {
		returned = end.Ok.Value
	}
	_, message := core.VendorError(p.Error)
	r.text = cmp.Or(string(lenient.Scalar(end.Err)), message, returned.Content.text())
	r.failed = r.failed || lenient.IsValue(end.Err) || lenient.IsValue(p.Error) || bool(returned.IsError)
}

// patchedFiles returns the files of a patch_apply_end, by path. A moved file has two entries.
func patchedFiles(changes jsontext.Value) []envelopes.File {
	var files []envelopes.File
	for _, m := range lenient.ObjectMembers(changes) {
		var change struct {
			Type lenient.Text `json:"type"`
			Move lenient.Text `json:"move_path"`
		}
		lenient.ReadObject(m.Value, &change)
		files = append(files, envelopes.File{Path: m.Name, Op: opOf(change.Type)})
		if change.Move != "" {
			files = append(files, envelopes.File{Path: string(change.Move), Op: envelopes.OpMove})
		}
	}
	return files
}

// opOf returns the operation of a change in a patch.
func opOf(change lenient.Text) envelopes.FileOp {
	switch change {
	case "add":
		return envelopes.OpCreate
	case "delete":
		return envelopes.OpDelete
	default:
		return envelopes.OpModify
	}
}

// callOfEnd returns the call stated in an end, without its id.
func (p *payload) callOfEnd() toolCall {
	switch p.Type {
	case "exec_command_end":
		return toolCall{name: "exec_command", args: p.Command}
	case "patch_apply_end":
		return toolCall{name: "apply_patch"}
	case "mcp_tool_call_end":
		i := p.Invocation.Value
		if !p.Invocation.OK {
			i = invocation{p.Server, p.Tool, p.Arguments}
		}
		return toolCall{name: mcpName(i.Server, i.Tool), args: i.Arguments}
	case "image_generation_end":
		return toolCall{name: "image_generation"}
	case "view_image_tool_call":
		path := strings.TrimPrefix(string(p.Path), "file://")
		return toolCall{name: "view_image", args: jsontext.Value(`{"path":` + string(lenient.AppendQuote(nil, path)) + `}`)}
	case "web.search":
		if !lenient.IsValue(p.Action) {
			return toolCall{name: "web_search", args: lenient.AppendQuote(nil, string(p.Query))}
		}
		return toolCall{name: "web_search", args: p.Action}
	default:
		return toolCall{name: p.Tool, args: p.Arguments}
	}
}

// mcpName returns the name of a tool of an MCP server.
func mcpName(server, tool lenient.Text) lenient.Text { return "mcp__" + server + "__" + tool }
