package copilot

import (
	"cmp"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// maxStarted is how many calls are remembered that started before a message requested them.
const maxStarted = 32

// tools are the tools that other vendors lack, or use under the same name with another meaning.
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

// editorCommands are the commands of str_replace_editor, the only editor of older versions.
var editorCommands = map[lenient.Text]core.Tool{
	"view":        core.ToolRead,
	"create":      core.ToolWrite,
	"str_replace": core.ToolModify,
	"insert":      core.ToolModify,
	"undo_edit":   core.ToolModify,
}

// toolOf returns a tool by its name and its arguments.
func toolOf(name lenient.Text, args *arguments) core.Tool {
	if name == "str_replace_editor" {
		if t, ok := editorCommands[args.Command]; ok {
			return t
		}
		return core.Tool{Channel: envelopes.ChannelEditor}
	}
	if t, ok := tools[string(name)]; ok {
		return t
	}
	return core.ToolOf(string(name))
}

// arguments has the arguments of a tool that name a file, or a command of an editor.
type arguments struct {
	core.FileInput `json:",embed"`

	CamelPath lenient.Text `json:"filePath"`
	Command   lenient.Text `json:"command"`
}

// readArguments reads the arguments of a call: an object, an object in a string, or a string that is the patch of
// apply_patch. text is nil if there are none.
func readArguments(v jsontext.Value) (text *string, args arguments) {
	switch {
	case v.Kind() == '"':
		text = new(lenient.Unquote(v))
		if inner := jsontext.Value(*text); inner.Kind() == '{' && lenient.ReadValue(inner) == nil {
			lenient.ReadObject(inner, &args)
		}
	case lenient.IsValue(v):
		text = new(lenient.CompactText(v))
		lenient.ReadObject(v, &args)
	}
	return text, args
}

// requestedCall emits a call that a message requests. It returns false if the start of the call came before and
// emitted it, or the telemetry did.
func requestedCall(m *mapper, r *request) bool {
	id := core.FingerprintOf(string(r.ToolCallID))
	if r.ToolCallID != "" && slices.Contains(m.st.Started, id) {
		m.st.Started = m.st.Started.Without(func(f core.Fingerprint) bool { return f == id })
		return false
	}
	isDuplicate := m.Duplicate
	emitted := m.emitCall(r.ToolCallID, r.Name, r.Arguments)
	if sent := m.noteLogged(sentCallKey(r.ToolCallID)); sent && !emitted {
		m.Duplicate = isDuplicate // the message is no repeated one
		return false
	}
	return true
}

// sentCallKey is the key of a call in the memory of ids: its value is not zero while only the telemetry has stated it.
func sentCallKey(id lenient.Text) core.Fingerprint {
	return core.FingerprintOf("sent call", string(id))
}

// onlySent reports whether only the telemetry has stated a call or a result, by its key.
func (e *emitter) onlySent(key core.Fingerprint) bool {
	v, _ := e.Session.IDs.Get(key)
	return v != core.Fingerprint{}
}

// noteLogged notes that the log states a call or a result, and reports whether only the telemetry had.
func (e *emitter) noteLogged(key core.Fingerprint) bool {
	sent := e.onlySent(key)
	if sent {
		e.Session.IDs.Put(key, core.Fingerprint{})
	}
	return sent
}

// callStarted maps the start of a call. It emits the call if no message requested it, as when a human runs a command.
func callStarted(m *mapper) {
	d := &m.data
	if m.Session.HasEvent(string(d.ToolCallID)) {
		m.skip = skipOfStart(m)
		return
	}
	m.emitCall(d.ToolCallID, d.ToolName, d.Arguments)
	if d.ToolCallID != "" {
		m.st.Started = m.st.Started.Push(core.FingerprintOf(string(d.ToolCallID)), maxStarted, nil)
	}
}

// skipOfStart returns why the start of a call that has an event is skipped: a start read before is a duplicate, a
// first one repeats its message. The table of API calls remembers them.
func skipOfStart(m *mapper) core.SkipReason {
	start := core.FingerprintOf("started", string(m.ID), string(m.Data))
	if _, ok := m.Session.APICalls.Get(start); ok && m.ID != "" {
		return core.SkipDuplicate
	}
	m.Session.APICalls.Put(start, core.Consumption{})
	return core.SkipMirror
}

// emitCall emits a call, and remembers it for its result. It returns false if the session has emitted it before.
func (e *emitter) emitCall(id, name lenient.Text, v jsontext.Value) bool {
	text, args := readArguments(v)
	tool := toolOf(name, &args)
	file := cmp.Or(args.File(), string(args.CamelPath))
	d := core.CallDraft(id, name, tool, text, file)
	d.Model = e.model()
	if name == "apply_patch" && text != nil {
		if files := core.PatchFiles(*text); len(files) > 0 {
			d.Patch(files)
			file = files[0].Path
		}
	}
	if e.agent != "" && !e.sent && e.onlySent(sentCallKey(id)) {
		d.Identity = e.agent // the telemetry does not state it
	}
	emitted := e.put(id, d)
	if emitted && id != "" {
		was, _ := e.Session.RecallCall(string(id)) // with what the telemetry has stated of its result
		e.Session.RememberCall(string(id), core.Call{Tool: string(name), Channel: tool.Channel, Op: tool.Op, Path: file, Outcome: was.Outcome})
	}
	return emitted
}
