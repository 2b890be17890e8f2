package envelopes

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// toolUse is a tool that was called, as far as its entry is known.
type toolUse struct {
	index     int
	timestamp string
	name      string // of the tool, as the vendor has it; unknown for a result that names none
	action    EntryAction
	heading   string // the content of the entry before the outcome
}

// size is about how many bytes a toolUse keeps.
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

// toolInput is what a tool was called with, in the ways in which it is asked for.
type toolInput struct {
	e     *AgentEventV1
	name  string
	text  string         // the arguments as the event has them
	value jsontext.Value // the same as JSON, nil where they are none
	args  members        // the same where they are an object
}

// inputOf reads the arguments of a tool: the text of its call. The completion of a call
// that was never told may still have them in its record.
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
	} else if call := cursorCall(e); call != nil {
		in.value = call["args"]
	}
	in.args = membersOf(in.value)
	return in
}

// use is the tool and what it does, by the table of seed standardized-metadata: first by
// what the event says of its place and of its file, then by the name and the arguments.
func (in toolInput) use() toolUse {
	u := toolUse{timestamp: in.e.TS, name: in.name}
	place, op := Channel(""), FileOp("")
	if in.e.Channel != nil {
		place = *in.e.Channel
	}
	if in.e.FileOp != nil {
		op = *in.e.FileOp
	}
	path := in.path()
	switch {
	case in.mcp(&u):
	case place == ChannelTerminal && in.command(&u):
	case place == ChannelFilesystem && op != OpDelete:
		in.look(&u, path)
	case path == "":
		in.other(&u)
	case op == OpRead:
		u.action = EntryAction{Kind: ActionFileRead, Path: &path}
		u.heading = "Read file: " + codeSpan(path)
	case op == OpWrite, op == OpCreate:
		u.action = EntryAction{Kind: ActionFileWrite, Path: &path}
		u.heading = "Write file: " + codeSpan(path)
	case op == OpModify, op == OpMove:
		u.action = EntryAction{Kind: ActionFileEdit, Path: &path, Changes: in.changes(path)}
	case op == OpDelete:
		u.action = EntryAction{Kind: ActionFileEdit, Path: &path, Changes: []EntryChange{{Type: ChangeDelete}}}
	default:
		in.other(&u)
	}
	return u
}

// show is a path as an entry has it.
func (in toolInput) show(path string) string {
	if in.e.ProjectRoot == nil {
		return path
	}
	return relativize(path, *in.e.ProjectRoot)
}

// path is the file or the folder that the tool works on, as it is shown; empty when there
// is none.
func (in toolInput) path() string {
	if in.e.FilePath != nil && *in.e.FilePath != "" {
		return in.show(*in.e.FilePath)
	}
	path, _ := in.args.text("path", "file_path", "filePath", "notebook_path", "target_file", "dir_path")
	return in.show(path)
}

// command makes u a command, unless the tool has arguments and none of them is a command:
// then it reads from a shell, or ends one.
func (in toolInput) command(u *toolUse) bool {
	command, ok := in.args.text("command", "cmd", "script")
	if words := in.args.value("command", "cmd"); !ok && words.Kind() == jsontext.KindBeginArray {
		command, ok = commandLine(words)
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
	u.heading = fence("bash", command)
	return true
}

// commandLine is the command of a list of words: the script where a shell is asked to run
// one, else the words in a row.
func commandLine(v jsontext.Value) (string, bool) {
	list, ok := listOf(v)
	words := make([]string, len(list))
	for i := range list {
		if words[i], ok = stringOf(list[i]); !ok {
			return "", false
		}
	}
	if len(words) == 3 && (words[1] == "-lc" || words[1] == "-c" || words[1] == "-Command") {
		return words[2], ok
	}
	return strings.Join(words, " "), ok
}

// look makes u a tool that looks for something in files, or through folders.
func (in toolInput) look(u *toolUse, path string) {
	name := strings.ToLower(in.name)
	query, ok := in.args.text("pattern", "query", "regex", "glob_pattern", "globPattern")
	switch {
	case ok && strings.Contains(name, "semsearch"):
		u.action = EntryAction{Kind: ActionSearch, Query: &query}
		u.heading = "Semantic search: " + codeSpan(query)
	case ok && (strings.Contains(name, "grep") || strings.Contains(name, "search") || name == "rg"):
		u.action = EntryAction{Kind: ActionSearch, Query: &query}
		u.heading = "Search: " + codeSpan(query)
	case ok:
		in.other(u)
		u.heading = "Glob pattern: " + codeSpan(query)
	default:
		in.other(u)
		if path == "" {
			path = "."
		}
		u.heading = "List directory: " + codeSpan(path)
	}
}

// mcp makes u a tool of an MCP server, where it is one: Cursor names the server in the
// arguments, Claude Code and Codex in the name.
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
	u.heading = "MCP Tool: " + codeSpan(full)
	return true
}

// other makes u a tool of which only the name and the arguments are known.
func (in toolInput) other(u *toolUse) {
	u.action = EntryAction{Kind: ActionTool, ToolName: new(in.name), Args: in.value}
	if in.value == nil && in.text != "" {
		u.action.Args = quoted(in.text)
	}
	u.heading = "Tool: " + codeSpan(in.name)
	if !strings.Contains(strings.ToLower(in.name), "todo") {
		return
	}
	todos, _ := in.args.list("todos")
	u.heading = "View todos (0 items)"
	if len(todos) > 0 {
		u.heading = fmt.Sprintf("Update todos (%d items)", len(todos))
	}
}

// changes are what an edit changes, as far as its arguments tell.
func (in toolInput) changes(path string) []EntryChange {
	if changes := envelopeChanges(in.patch(), in.show); len(changes) > 0 {
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

// patch is the text that holds an apply_patch envelope, if any does.
func (in toolInput) patch() string {
	if s, ok := in.args.text("input", "patch", "command", "cmd"); ok {
		return s
	}
	if words, ok := in.args.list("command", "cmd"); ok && len(words) > 0 {
		s, _ := stringOf(words[len(words)-1])
		return s
	}
	if s, ok := stringOf(in.value); ok {
		return s
	}
	return in.text
}

// replacementOf reads the arguments of an edit that replaces one text by another.
func replacementOf(args members) (replacement, bool) {
	before, known := args.text("old_string", "oldText", "old_str", "oldString")
	after, ok := args.text("new_string", "newText", "new_str", "newString", "new_source")
	return replacement{before, after}, known || ok
}

// outcome is what the result of a tool adds to its entry.
func (u *toolUse) outcome(e *AgentEventV1) (tool EntryTool, content string) {
	tool = EntryTool{ToolName: u.name, Action: u.action, Status: statusOf(e)}
	text := ""
	if e.Text != nil {
		text = *e.Text
	}
	switch tool.Status {
	case EntrySuccess:
		tool.Result = &EntryOutcome{Success: true}
		if e.Text != nil {
			tool.Result.Data = jsonText(text)
		}
	case EntryFailed:
		tool.Result = &EntryOutcome{Error: problemOf(e, text)}
	default: // it has not ended
	}
	content = u.heading
	switch u.action.Kind {
	case ActionCommandRun:
		if tool.Result != nil {
			result := commandResult(e, tool.Result.Success, text)
			tool.Action.Result, _ = json.Marshal(result) // strings and a number
			content += result.markdown()
		}
	case ActionFileWrite:
		switch tool.Status {
		case EntrySuccess:
			content += " ✓"
		case EntryFailed:
			content += " ✗"
		default: // it has not ended
		}
	case ActionFileEdit:
		tool.Action.Changes = u.changed(e)
		content = editContent(*u.action.Path, tool.Action.Changes)
	case ActionTool:
		if tool.Result == nil {
			break
		}
		tool.Action.Result = tool.Result.Data
		if strings.HasPrefix(*u.action.ToolName, "mcp:") && text != "" {
			content += "\n\n" + text
		}
	case ActionFileRead, ActionSearch:
	}
	return tool, content
}

// call is the entry's tool and content before there is an outcome.
func (u *toolUse) call(e *AgentEventV1) (tool EntryTool, content string) {
	content = u.heading
	if u.action.Kind == ActionFileEdit {
		content = editContent(*u.action.Path, u.action.Changes)
	}
	return EntryTool{ToolName: u.name, Action: u.action, Status: statusOf(e)}, content
}

// changed are the changes of an edit once its result is there: what the vendor says was
// changed is better than what was asked for.
func (u *toolUse) changed(e *AgentEventV1) []EntryChange {
	if diff, ok := membersOf(e.ToolMetadata).text("diff"); ok && diff != "" {
		return []EntryChange{{Type: ChangeEdit, UnifiedDiff: diff}}
	}
	if len(u.action.Changes) != 1 || u.action.Changes[0] != (EntryChange{Type: ChangeEdit}) {
		return u.action.Changes
	}
	if diff, ok := cursorCall(e).object("result").object("success").text("diffString"); ok && diff != "" {
		return []EntryChange{{Type: ChangeEdit, UnifiedDiff: patchDiff(*u.action.Path, diff)}}
	}
	return u.action.Changes
}

// statusOf is how far a tool has come by an event of it (row 000-23 read backwards).
func statusOf(e *AgentEventV1) EntryStatus {
	status := StatusUnknown
	if e.ToolStatus != nil {
		status = *e.ToolStatus
	}
	switch {
	case status == StatusError:
		return EntryFailed
	case status == StatusSuccess:
		return EntrySuccess
	case status == StatusInProgress:
		return EntryRunning
	case e.EventType == ToolResult:
		return EntrySuccess
	default:
		return EntryCreated
	}
}

// problemOf is the message of a tool that failed: what its JSON says, else its text, else
// the exit code.
func problemOf(e *AgentEventV1, text string) string {
	m := membersOf(jsonOf(text))
	if s, ok := m.text("error"); ok {
		return s
	}
	if s, ok := m.object("error").text("message"); ok {
		return s
	}
	if s, ok := m.text("message"); ok {
		return s
	}
	if text == "" && e.ToolExitCode != nil {
		return fmt.Sprintf("Command exited with code %d", *e.ToolExitCode)
	}
	return text
}

// commandResult is how a command ended. Its two outputs are told apart where the record
// is still there, or where the result is JSON that does.
func commandResult(e *AgentEventV1, success bool, text string) CommandResult {
	r := CommandResult{Stdout: text}
	switch {
	case e.ToolExitCode != nil:
		r.ExitCode = *e.ToolExitCode
	case !success:
		r.ExitCode = 1
	}
	for _, told := range []members{
		cursorCall(e).object("result").object("success", "failure"),
		claudeResult(e, text),
		membersOf(jsonOf(text)),
	} {
		stdout, known := told.text("stdout")
		stderr, ok := told.text("stderr")
		if known || ok {
			r.Stdout, r.Stderr = stdout, stderr
			break
		}
	}
	return r
}

// markdown is what the content of a command ends with.
func (r CommandResult) markdown() string {
	s := fmt.Sprintf("\n\n**Exit Code:** %d", r.ExitCode)
	if r.Stdout != "" {
		s += "\n\n**Output:**\n" + fence("", r.Stdout)
	}
	if r.Stderr != "" {
		s += "\n\n**Error:**\n" + fence("", r.Stderr)
	}
	return s
}

// cursorCall is the call in a record of Cursor, arguments and result, when the event still
// carries the record and it is the one of this call.
func cursorCall(e *AgentEventV1) members {
	if e.Source != Cursor || e.Raw == nil {
		return nil
	}
	record := membersOf(e.Raw)
	if id, ok := record.text("call_id"); !ok || e.ToolCallID == nil || id != *e.ToolCallID {
		return nil
	}
	call := record.object("tool_call")
	for _, kind := range slices.Sorted(maps.Keys(call)) {
		if strings.HasSuffix(kind, "ToolCall") {
			return membersOf(call[kind])
		}
	}
	return nil
}

// claudeResult is the structured result in a record of Claude Code, when the event still
// carries the record and its output is that of this result: a record can hold several.
func claudeResult(e *AgentEventV1, text string) members {
	if e.Source != ClaudeCode || e.Raw == nil {
		return nil
	}
	result := membersOf(e.Raw).object("toolUseResult", "tool_use_result")
	for _, name := range []string{"stdout", "stderr"} {
		if s, ok := result.text(name); ok && !strings.Contains(text, strings.TrimSpace(s)) {
			return nil
		}
	}
	return result
}

// editContent is the content of an edit: its file, and what changed in it.
func editContent(path string, changes []EntryChange) string {
	content := "Delete file: " + codeSpan(path)
	var diffs []string
	for _, c := range changes {
		if c.Type == ChangeEdit {
			content = "Edit file: " + codeSpan(path)
		}
		if c.UnifiedDiff != "" {
			diffs = append(diffs, c.UnifiedDiff)
		}
	}
	if len(diffs) > 0 {
		content += "\n\n" + fence("diff", strings.Join(diffs, "\n"))
	}
	return content
}

// fence is a block of code in markdown, with as many backticks as the text needs.
func fence(language, text string) string {
	ticks := strings.Repeat("`", max(3, backticks(text)+1))
	return ticks + language + "\n" + strings.TrimSuffix(text, "\n") + "\n" + ticks
}

// codeSpan is a piece of code in a line of markdown.
func codeSpan(text string) string {
	n := backticks(text)
	if n == 0 {
		return "`" + text + "`"
	}
	ticks := strings.Repeat("`", n+1)
	return ticks + " " + text + " " + ticks
}

// backticks is the length of the longest run of backticks in a text.
func backticks(text string) int {
	longest, run := 0, 0
	for i := range len(text) {
		if text[i] != '`' {
			run = 0
			continue
		}
		run++
		longest = max(longest, run)
	}
	return longest
}
