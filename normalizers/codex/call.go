package codex

import (
	"cmp"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// maxCallFiles is how many files of the end of a tool are kept for its result.
const maxCallFiles = 8

// toolCall is a call of a tool, from any record that states it.
type toolCall struct {
	id    lenient.Text     // call_id, else id of the item; also the id of the event
	name  lenient.Text     // of the tool
	args  jsontext.Value   // JSON, or a string that may hold JSON, a patch or code
	files []envelopes.File // files stated as changed
}

// functionCall maps a response_item that calls a tool.
func functionCall(m *mapper) {
	m.st.releaseTexts(&m.emitter)
	call := toolCall{id: cmp.Or(m.toolCallID(), m.ID), name: m.Name, args: m.Arguments}
	if call.name == "" {
		call.name = m.hostedName()
	}
	for _, v := range []jsontext.Value{m.Input, m.Action} {
		if !lenient.IsValue(call.args) {
			call.args = v
		}
	}
	m.emitCall(call)
}

// hostedName returns the name of a tool that only the type of the item names.
func (p *payload) hostedName() lenient.Text {
	return lenient.Text(strings.TrimSuffix(string(p.Type), "_call"))
}

// functionOutput maps a response_item with the output of a tool. If the end of the tool came first, it adds what the
// output does not state.
func functionOutput(m *mapper) {
	m.st.releaseTexts(&m.emitter)
	r := readOutput(m)
	id := m.toolCallID()
	call, known := m.Session.RecallCall(string(id))
	end := call.Outcome
	if r.exit == nil {
		r.exit = end.Exit
	}
	if r.latency == nil {
		r.latency = end.Latency
	}
	r.failed = r.failed || end.Failed
	r.files = end.Files
	m.emitResult(id, call, r)
	if known {
		m.noteResult(id, r)
		m.st.rememberOutput(id, r)
	}
	if m.Type == "" {
		var info tokenInfo
		lenient.ReadObject(m.Info, &info)
		m.bill(m.st.logged(info.Last.Value.tokens()), &info.Last.Value, "", info.Last.Value.Input.Count())
	}
}

// hostedTool maps a tool that runs at the vendor, web search or image generation: one item is both call and result.
// The web_search_end before a search has its id.
func hostedTool(m *mapper) {
	m.st.releaseTexts(&m.emitter)
	id := cmp.Or(m.CallID, m.ID)
	name := m.hostedName()
	if name == "web_search" {
		id = takeSearch(m, id)
	}
	r := result{
		text:      string(m.RevisedPrompt),
		stated:    m.RevisedPrompt != "",
		failed:    m.Status == "failed",
		completed: m.Status == "completed",
	}
	m.emitCall(toolCall{id: id, name: name, args: m.Action})
	m.emitResult(id, m.callOf(id, name), r)
	m.noteResult(id, r)
}

// emitCall emits a call of the rollout, and remembers it for its result.
func (e *emitter) emitCall(call toolCall) {
	_, sent := e.sentCall(call.id)
	_, known := e.Session.RecallCall(string(call.id))
	d, is := call.draft(e.model())
	if (e.put(call.id, d) || sent && !known) && call.id != "" {
		e.Session.RememberCall(string(call.id), is)
	}
}

// draft returns the event of a call, and what its result needs.
func (call *toolCall) draft(model *string) (core.Draft, core.Call) {
	tool := core.ToolOf(string(call.name))
	text := argumentText(call.args)
	files := call.files
	if patched := core.PatchFiles(patchOf(text)); patched != nil {
		files = patched
	}
	file := fileOf(text)
	if len(files) > 0 {
		file, tool.Op = files[0].Path, envelopes.OpModify
	}
	d := core.CallDraft(call.id, call.name, tool, core.ArgumentText(call.args), file)
	d.Model = model
	d.Patch(files)
	return d, core.Call{Tool: string(call.name), Channel: tool.Channel, Op: tool.Op, Path: file}
}

// argumentText returns the arguments of a call as text: a string unchanged, any other value as JSON.
func argumentText(args jsontext.Value) string {
	switch {
	case args.Kind() == '"':
		return lenient.Unquote(args)
	case lenient.IsValue(args):
		return lenient.CompactText(args)
	default:
		return ""
	}
}

// patchOf returns the patch in the arguments of a call, which are the patch itself, or JSON with the patch in one of
// its strings.
func patchOf(args string) string {
	if !strings.Contains(args, "*** Begin Patch") {
		return ""
	}
	v := jsontext.Value(args)
	if v.Kind() != '{' || !v.IsValid(lenient.Options) {
		return args
	}
	for _, s := range stringsOf(v) {
		if strings.Contains(s, "*** Begin Patch") {
			return s
		}
	}
	return ""
}

// stringsOf returns the strings among the members of an object and in its arrays.
func stringsOf(v jsontext.Value) []string {
	var out []string
	add := func(v jsontext.Value) {
		if v.Kind() == '"' {
			out = append(out, lenient.Unquote(v))
		}
	}
	for _, m := range lenient.Members(v) {
		add(m.Value)
		if m.Value.Kind() == '[' {
			for _, e := range lenient.Elements(m.Value) {
				add(e)
			}
		}
	}
	return out
}

// fileOf returns the file named in the JSON arguments of a call; empty for none.
func fileOf(args string) string {
	v := jsontext.Value(args)
	if v.Kind() != '{' || !v.IsValid(lenient.Options) {
		return ""
	}
	var in struct {
		core.FileInput
		DirPath lenient.Text `json:"dir_path"`
	}
	lenient.ReadObject(v, &in)
	return cmp.Or(in.File(), string(in.DirPath))
}

// callOf returns the call of a result from the same record. A call without an id is not remembered.
func (e *emitter) callOf(id, name lenient.Text) core.Call {
	call, ok := e.Session.RecallCall(string(id))
	if id == "" || !ok {
		call = core.Call{Tool: string(name), Channel: core.ToolOf(string(name)).Channel}
	}
	return call
}

// emitResult emits the result of a call.
func (e *emitter) emitResult(id lenient.Text, call core.Call, r result) {
	d := core.ResultDraft(id, call, nil, r.status())
	d.ToolExitCode, d.ToolLatencyMS = r.exit, r.latency
	if r.latency == nil {
		d.ToolLatencyMS, _ = e.sentCall(id)
	}
	if r.stated {
		d.Text, d.TextTruncated = &r.text, r.cut
	}
	d.Patch(r.files)
	e.put(core.PartID(id, "result"), d)
}

// noteResult notes that a call has its result, and what the result states.
func (e *emitter) noteResult(id lenient.Text, r result) {
	e.Session.SetOutcome(string(id), core.Outcome{Exit: r.exit, Latency: r.latency, Emitted: true})
}
