package cursor

import (
	"cmp"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// tool is the content of a tool_call in the stream, or of a tool_use in a transcript.
type tool struct {
	id     string // used for a record without a call_id
	name   string
	args   jsontext.Value
	result jsontext.Value
}

// wireTool has the members of the object under a tool's key.
type wireTool struct {
	Name      lenient.Text   `json:"name"`      // of a function
	Arguments jsontext.Value `json:"arguments"` // of a function
	Case      lenient.Text   `json:"case"`      // under `tool`: the key
	Value     jsontext.Value `json:"value"`     // under `tool`: the object
	Args      jsontext.Value `json:"args"`
	Result    jsontext.Value `json:"result"`
}

// wireToolID is the place of a call's id in newer versions.
type wireToolID struct {
	lenient.Data

	ID lenient.Text `json:"toolCallId"`
}

// readTool reads a tool_call object, whose key names the tool.
func readTool(v jsontext.Value) tool {
	key, body := findTool(v)
	var in wireTool
	lenient.ReadObject(body, &in)
	if key == "tool" && in.Case != "" {
		key = string(in.Case)
		lenient.ReadObject(in.Value, &in)
	}
	var outer, inner wireToolID
	lenient.ReadObject(v, &outer)
	lenient.ReadObject(in.Args, &inner)
	t := tool{id: string(cmp.Or(outer.ID, inner.ID)), args: in.Args, result: in.Result}
	switch name := strings.ToLower(strings.TrimSuffix(key, "ToolCall")); {
	case key == "function":
		t.name = string(cmp.Or(in.Name, "function"))
		if lenient.IsValue(in.Arguments) {
			t.args = in.Arguments
		}
	case name == "updatetodos":
		t.name = "todo"
	default:
		t.name = name
	}
	return t
}

// findTool finds the tool in a tool_call object: the value under a key that ends in ToolCall, or under `function`,
// else the first object. Newer versions have further members.
func findTool(v jsontext.Value) (key string, body jsontext.Value) {
	for _, m := range lenient.ObjectMembers(v) {
		if m.Value.Kind() != '{' {
			continue
		}
		if strings.HasSuffix(m.Name, "ToolCall") || m.Name == "function" {
			return m.Name, m.Value
		}
		if body == nil {
			key, body = m.Name, m.Value
		}
	}
	return key, body
}

// toolArgs has the arguments of a tool that name a file.
type toolArgs struct {
	lenient.Data

	Path           lenient.Text `json:"path"`
	FilePath       lenient.Text `json:"file_path"`
	FilePathCamel  lenient.Text `json:"filePath"`
	TargetFile     lenient.Text `json:"target_file"`
	TargetNotebook lenient.Text `json:"target_notebook"`
	RelativePath   lenient.Text `json:"relativeWorkspacePath"`
}

func (a *toolArgs) file() string {
	return string(cmp.Or(a.Path, a.FilePath, a.FilePathCamel, a.TargetFile, a.TargetNotebook, a.RelativePath))
}

// file returns the file of the tool, if its arguments state it.
func (t *tool) file() string {
	if core.ToolOf(t.name).Op == "" {
		return ""
	}
	var args toolArgs
	lenient.ReadObject(t.args, &args)
	return args.file()
}

// emitToolCall emits the start of a call, or its completion. Calls run in parallel, so only the call_id pairs the
// two.
func emitToolCall(m *mapper) {
	t := readTool(m.ToolCall)
	id := string(cmp.Or(m.CallID, lenient.Text(t.id)))
	switch m.Subtype {
	case "started":
		m.st.Answer = answer{}
		m.emitCall(id, t)
	case "completed":
		m.emitResult(id, t)
	default:
		m.Unknown(core.UnknownRecord, m.Type, m.Subtype)
		m.putSystem(envelopes.Meta, "")
	}
}

// emitToolUse emits the call of a tool in a transcript.
func emitToolUse(m *mapper, b *block) {
	t := tool{name: string(b.Name), args: b.Input}
	if id, ok := m.emitCall(string(b.ID), t); ok {
		m.st.awaitResult(id, t)
	}
}

// emitCall emits the call of a tool, and returns its id; ok is false for a duplicate. A call without an id gets that of
// its event.
func (m *mapper) emitCall(id string, t tool) (of string, ok bool) {
	if id == "" {
		id = m.OrdinalID(&core.Pending{Record: m.Session.Records})
	}
	kind := core.ToolOf(t.name)
	file := t.file()
	d := core.CallDraft(lenient.Text(id), lenient.Text(t.name), kind, core.ArgumentText(t.args), file)
	d.EventID, d.Model = id, lenient.Text(m.Session.Model).Ptr()
	if kind == core.ToolModify && t.args.Kind() == '"' {
		d.Patch(core.PatchFiles(*d.Text))
	}
	if d.FilePath != nil {
		file = *d.FilePath
	}
	if ok = m.Emit(d); ok {
		m.Session.RememberCall(id, core.Call{Tool: t.name, Channel: kind.Channel, Op: kind.Op, Path: file})
	}
	return id, ok
}
