package envelopes

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// toolUse is a tool call with the known part of its entry.
type toolUse struct {
	index     int
	timestamp string
	name      string // the vendor's tool name, or "unknown"
	action    EntryAction
	heading   string // the content of the entry without the outcome
}

// size returns the approximate memory of a toolUse, in bytes.
func (u *toolUse) size() int {
	n := len(u.name) + len(u.heading) + len(u.action.Args) + 128
	for _, s := range []*string{u.action.Path, u.action.Command, u.action.Query} {
		if s != nil {
			n += len(*s)
		}
	}
	for _, c := range u.action.Changes {
		n += len(c.UnifiedDiff)
	}
	return n
}

// toolInput is the input of a tool call, in the forms that the table of actions reads.
type toolInput struct {
	e     *AgentEventV1
	name  string
	text  string         // the arguments as the event holds them
	value jsontext.Value // the arguments if they are JSON, else nil
	args  members        // the arguments if they are an object, else nil
}

// inputOf returns the input of a tool: the text of its call, else the tool_input of its result.
func inputOf(e *AgentEventV1) toolInput {
	in := toolInput{e: e, name: "unknown"}
	if !isEmpty(e.ToolName) {
		in.name = *e.ToolName
	}
	if e.EventType == ToolCall {
		if e.Text != nil {
			in.text = *e.Text
			in.value = jsonOf(in.text)
		}
	} else {
		in.value = e.ToolInput
	}
	in.args = membersOf(in.value)
	return in
}

// use returns the tool and its action. The channel and the file operation of the event decide
// first, then the name and the arguments of the tool.
func (in toolInput) use() toolUse {
	u := toolUse{timestamp: in.e.TS, name: in.name}
	channel, op := Channel(""), FileOp("")
	if in.e.Channel != nil {
		channel = *in.e.Channel
	}
	if in.e.FileOp != nil {
		op = *in.e.FileOp
	}
	path := in.path()
	switch {
	case in.mcp(&u):
	case channel == ChannelTerminal && in.command(&u):
	case channel == ChannelFilesystem && op != OpDelete:
		in.search(&u, path)
	case path == "":
		in.other(&u)
	case op == OpRead:
		u.action = EntryAction{Kind: ActionFileRead, Path: &path}
		u.heading = "Read file: " + CodeSpan(path)
	case op == OpWrite, op == OpCreate:
		u.action = EntryAction{Kind: ActionFileWrite, Path: &path}
		u.heading = "Write file: " + CodeSpan(path)
	case op == OpModify, op == OpMove:
		u.action = EntryAction{Kind: ActionFileEdit, Path: &path, Changes: in.changes(path)}
	case op == OpDelete:
		u.action = EntryAction{Kind: ActionFileEdit, Path: &path, Changes: []EntryChange{{Type: ChangeDelete}}}
	default:
		in.other(&u)
	}
	return u
}

// show returns a path in the form of an entry: relative to the project root if that is shorter.
func (in toolInput) show(path string) string {
	if in.e.ProjectRoot == nil {
		return path
	}
	return relativize(path, *in.e.ProjectRoot)
}

// path returns the file or folder that the tool works on, in the form of an entry; empty for none.
func (in toolInput) path() string {
	if in.e.FilePath != nil && *in.e.FilePath != "" {
		return in.show(*in.e.FilePath)
	}
	path, _ := in.args.text("path", "file_path", "filePath", "notebook_path", "target_file", "dir_path")
	return in.show(path)
}

// Command returns the command of a shell call, from the call or from a result with tool_input; false for any other
// event.
func (e *AgentEventV1) Command() (string, bool) {
	var u toolUse
	if e.Channel == nil || *e.Channel != ChannelTerminal || !inputOf(e).command(&u) {
		return "", false
	}
	return *u.action.Command, true
}

// command makes u a command_run. It returns false for a tool that has arguments but no command, because that only
// reads from a shell or ends one.
func (in toolInput) command(u *toolUse) bool {
	command, ok := in.args.text("command", "cmd", "script")
	if argv := in.args.value("command", "cmd"); !ok && argv.Kind() == jsontext.KindBeginArray {
		command, ok = commandLine(argv)
	}
	if in.value.Kind() == jsontext.KindBeginArray {
		command, ok = commandLine(in.value)
	}
	if !ok && in.args != nil {
		return false
	}
	if !ok {
		command = in.text
	}
	u.action = EntryAction{Kind: ActionCommandRun, Command: &command}
	u.heading = CodeBlock("bash", command)
	return true
}

// commandLine returns the command in an argument vector: the script of a shell with -c, else the arguments joined by
// spaces. It returns false if an argument is not a string.
func commandLine(v jsontext.Value) (string, bool) {
	list, ok := listOf(v)
	argv := make([]string, len(list))
	for i := range list {
		if argv[i], ok = stringOf(list[i]); !ok {
			return "", false
		}
	}
	if len(argv) == 3 && (argv[1] == "-lc" || argv[1] == "-c" || argv[1] == "-Command") {
		return argv[2], ok
	}
	return strings.Join(argv, " "), ok
}

// search makes u a search in files, or a tool that lists files.
func (in toolInput) search(u *toolUse, path string) {
	name := strings.ToLower(in.name)
	query, ok := in.args.text("pattern", "query", "regex", "glob_pattern", "globPattern")
	switch {
	case ok && strings.Contains(name, "semsearch"):
		u.action = EntryAction{Kind: ActionSearch, Query: &query}
		u.heading = "Semantic search: " + CodeSpan(query)
	case ok && (strings.Contains(name, "grep") || strings.Contains(name, "search") || name == "rg"):
		u.action = EntryAction{Kind: ActionSearch, Query: &query}
		u.heading = "Search: " + CodeSpan(query)
	case ok:
		in.other(u)
		u.heading = "Glob pattern: " + CodeSpan(query)
	default:
		in.other(u)
		if path == "" {
			path = "."
		}
		u.heading = "List directory: " + CodeSpan(path)
	}
}

// mcp makes u a tool of an MCP server; it returns false for any other tool. The server is named in the arguments or
// in the name of the tool.
func (in toolInput) mcp(u *toolUse) bool {
	args, full := in.value, ""
	if server, tool, ok := strings.Cut(strings.TrimPrefix(in.name, "mcp__"), "__"); ok && strings.HasPrefix(in.name, "mcp__") {
		full = "mcp:" + server + ":" + tool
	} else if in.name == "mcp" {
		tool, ok := in.args.text("tool_name", "toolName", "name")
		if !ok {
			tool = "unknown"
		}
		full = "mcp:" + tool
		if server, ok := in.args.text("provider_identifier", "providerIdentifier"); ok && server != "" {
			full = "mcp:" + server + ":" + tool
		}
		args = in.args.value("args")
	}
	if full == "" {
		return false
	}
	u.action = EntryAction{Kind: ActionTool, ToolName: &full, Args: args}
	u.heading = "MCP Tool: " + CodeSpan(full)
	return true
}

// other makes u a tool with name and arguments, of no specific kind.
func (in toolInput) other(u *toolUse) {
	u.action = EntryAction{Kind: ActionTool, ToolName: new(in.name), Args: in.value}
	if in.value == nil && in.text != "" {
		u.action.Args = quoted(in.text)
	}
	u.heading = "Tool: " + CodeSpan(in.name)
	if !strings.Contains(strings.ToLower(in.name), "todo") {
		return
	}
	todos, _ := in.args.list("todos")
	u.heading = "View todos (0 items)"
	if len(todos) > 0 {
		u.heading = fmt.Sprintf("Update todos (%d items)", len(todos))
	}
}

// changes returns the changes of an edit that its arguments state.
func (in toolInput) changes(path string) []EntryChange {
	if changes := patchEnvelopeChanges(in.patch(), in.show); len(changes) > 0 {
		return changes
	}
	var edits []replacement
	if patch, ok := in.args.object("applyPatch").text("patchContent"); ok && patch != "" {
		return []EntryChange{{Type: ChangeEdit, UnifiedDiff: patchDiff(path, patch)}}
	} else if e, ok := replacementOf(in.args.object("strReplace")); ok {
		edits = append(edits, e)
	} else if e, ok := replacementOf(in.args); ok {
		edits = append(edits, e)
	} else {
		list, ok := in.args.object("multiStrReplace").list("edits")
		if !ok {
			list, _ = in.args.list("edits")
		}
		for _, v := range list {
			if e, ok := replacementOf(membersOf(v)); ok {
				edits = append(edits, e)
			}
		}
	}
	if len(edits) > 0 {
		return []EntryChange{{Type: ChangeEdit, UnifiedDiff: diffOf(path, edits...)}}
	}
	var changes []EntryChange
	for _, f := range in.e.Files {
		change := EntryChange{Type: ChangeEdit}
		if f.Op == OpDelete {
			change.Type = ChangeDelete
		}
		changes = append(changes, change)
	}
	if changes == nil {
		changes = []EntryChange{{Type: ChangeEdit}}
	}
	return changes
}

// patch returns the text that may contain an apply_patch envelope.
func (in toolInput) patch() string {
	if s, ok := in.args.text("input", "patch", "command", "cmd"); ok {
		return s
	}
	if argv, ok := in.args.list("command", "cmd"); ok && len(argv) > 0 {
		s, _ := stringOf(argv[len(argv)-1])
		return s
	}
	if s, ok := stringOf(in.value); ok {
		return s
	}
	return in.text
}

// replacementOf parses the arguments of an edit that replaces one text by another; false for
// any other arguments.
func replacementOf(args members) (replacement, bool) {
	before, known := args.text("old_string", "oldText", "old_str", "oldString")
	after, ok := args.text("new_string", "newText", "new_str", "newString", "new_source")
	return replacement{before, after}, known || ok
}
