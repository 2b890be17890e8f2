package cline

import (
	"cmp"
	"path"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// record has the members of the document of a session; a file of a task is an array of elements.
type record struct {
	SessionID    lenient.Text   `json:"sessionId"`
	Agent        lenient.Text   `json:"agent"`
	SystemPrompt lenient.Text   `json:"system_prompt"`
	Messages     jsontext.Value `json:"messages"`
}

// element is a message that is shown to the human (type, say, ask), or sent to the model (role, content).
type element struct {
	TS        lenient.Number            `json:"ts"`
	Timestamp lenient.Number            `json:"timestamp"` // instead of ts, as some tools export it
	ModelInfo lenient.Object[modelInfo] `json:"modelInfo"`

	Type      lenient.Text               `json:"type"`
	Say       lenient.Text               `json:"say"`
	Ask       lenient.Text               `json:"ask"`
	Text      lenient.Text               `json:"text"`
	Reasoning lenient.Text               `json:"reasoning"`
	Images    lenient.List[lenient.Text] `json:"images"`
	Partial   lenient.Flag               `json:"partial"`
	Condense  lenient.Object[condense]   `json:"contextCondense"`

	ID        lenient.Text             `json:"id"`
	Role      lenient.Text             `json:"role"`
	Content   jsontext.Value           `json:"content"`
	IsSummary lenient.Flag             `json:"isSummary"`
	IsMarker  lenient.Flag             `json:"isTruncationMarker"`
	Summary   lenient.List[block]      `json:"summary"` // of a message of type reasoning
	Metrics   lenient.Object[metrics]  `json:"metrics"`
	Metadata  lenient.Object[metadata] `json:"metadata"`
}

type modelInfo struct {
	ModelID lenient.Text `json:"modelId"`
	ID      lenient.Text `json:"id"`
}

type condense struct {
	Summary lenient.Text   `json:"summary"`
	Cost    lenient.Number `json:"cost"`
}

// metrics are the tokens of an API call: those of a session, or in a task fewer figures, under tokens.
type metrics struct {
	Tokens     lenient.Object[taskTokens] `json:"tokens"`
	Input      lenient.Number             `json:"inputTokens"`
	Output     lenient.Number             `json:"outputTokens"`
	CacheRead  lenient.Number             `json:"cacheReadTokens"`
	CacheWrite lenient.Number             `json:"cacheWriteTokens"`
	Cost       lenient.Number             `json:"cost"`
}

type taskTokens struct {
	Prompt     lenient.Number `json:"prompt"`
	Completion lenient.Number `json:"completion"`
}

type metadata struct {
	Kind        lenient.Text `json:"kind"`
	DisplayRole lenient.Text `json:"displayRole"`
	Summary     lenient.Text `json:"summary"`
}

// request is the text of api_req_started.
type request struct {
	Request    lenient.Text   `json:"request"`
	In         lenient.Number `json:"tokensIn"`
	Out        lenient.Number `json:"tokensOut"`
	CacheRead  lenient.Number `json:"cacheReads"`
	CacheWrite lenient.Number `json:"cacheWrites"`
	Cost       lenient.Number `json:"cost"`
	Protocol   lenient.Text   `json:"apiProtocol"`
	Failed     lenient.Text   `json:"streamingFailedMessage"`
}

// block is a part of the content of a message.
type block struct {
	Type      lenient.Text        `json:"type"`
	Text      lenient.Text        `json:"text"`
	Thinking  lenient.Text        `json:"thinking"`
	Summary   lenient.List[block] `json:"summary"`
	ID        lenient.Text        `json:"id"`
	Name      lenient.Text        `json:"name"`
	Input     jsontext.Value      `json:"input"`
	ToolUseID lenient.Text        `json:"tool_use_id"`
	Content   jsontext.Value      `json:"content"`
	IsError   lenient.Flag        `json:"is_error"`

	Result  lenient.Text `json:"result"`  // of an item of a tool_result
	Success lenient.Kind `json:"success"` // t or f
}

// arguments are those of a call in either file.
type arguments struct {
	lenient.Data

	Command    lenient.Text                        `json:"command"`
	Path       lenient.Text                        `json:"path"`
	FilePath   lenient.Text                        `json:"file_path"`
	Absolute   lenient.Text                        `json:"absolutePath"`
	Patch      lenient.Text                        `json:"patch"`
	Input      lenient.Text                        `json:"input"`
	Files      lenient.List[lenient.Object[named]] `json:"files"`
	Batch      lenient.List[lenient.Object[named]] `json:"batchFiles"`
	Tool       lenient.Text                        `json:"tool"`
	ToolName   lenient.Text                        `json:"toolName"`
	SnakeTool  lenient.Text                        `json:"tool_name"`
	Kind       lenient.Text                        `json:"type"`
	Arguments  lenient.Text                        `json:"arguments"`
	Action     lenient.Text                        `json:"action"`
	Content    lenient.Text                        `json:"content"`
	Context    lenient.Text                        `json:"context"`
	ResultText lenient.Text                        `json:"result"`
	Question   lenient.Text                        `json:"question"`
	Response   lenient.Text                        `json:"response"`
}

type named struct {
	Path lenient.Text `json:"path"`
}

// file returns the first file of a call.
func (a *arguments) file() string {
	for _, list := range []lenient.List[lenient.Object[named]]{a.Files, a.Batch} {
		if len(list) > 0 {
			return string(list[0].Value.Path)
		}
	}
	if files := core.PatchFiles(string(a.Patch + a.Input)); len(files) > 0 {
		return files[0].Path
	}
	return string(cmp.Or(a.Path, a.FilePath, a.Absolute))
}

// tools are the tools that other agents lack.
var tools = map[string]core.Tool{
	"execute_command": core.ToolShell, "run_commands": core.ToolShell, "read_command_output": core.ToolShell,
	"read_files": core.ToolRead, "list_files": core.ToolSearch, "list_code_definition_names": core.ToolSearch,
	"search_files": core.ToolSearch, "search_codebase": core.ToolSearch,
	"write_to_file": core.ToolWrite, "replace_in_file": core.ToolModify, "apply_diff": core.ToolModify,
	"insert_content": core.ToolModify, "search_and_replace": core.ToolModify, "edit": core.ToolModify,
	"edit_file": core.ToolModify, "search_replace": core.ToolModify, "apply_patch": core.ToolModify,
	"editor": core.ToolModify,
}

// shownTools are the names under which the shown messages have a tool, where they do not follow from its own.
var shownTools = map[string]string{
	"editedExistingFile": "replace_in_file", "newFileCreated": "write_to_file", "appliedDiff": "apply_diff",
	"listFilesTopLevel": "list_files", "listFilesRecursive": "list_files", "fileDeleted": "delete_file",
}

// toolOf returns the name of a tool that the shown messages name.
func toolOf(shown string) string {
	if name, ok := shownTools[shown]; ok {
		return name
	}
	var b strings.Builder
	for _, c := range shown {
		if c >= 'A' && c <= 'Z' {
			b.WriteByte('_')
			c += 'a' - 'A'
		}
		b.WriteRune(c)
	}
	return b.String()
}

// mcpInfix is between the server and the tool in the name of a tool of a server.
const mcpInfix = "0mcp0"

// keyOf returns the content that a call has in both files: its tool, and its file or command.
func keyOf(name string, a *arguments) string {
	switch tool := tools[name]; {
	case strings.HasPrefix(name, "mcp--"):
		return "mcp " + name[strings.LastIndex(name, "--")+2:]
	case strings.Contains(name, mcpInfix):
		return "mcp " + name[strings.LastIndex(name, mcpInfix)+len(mcpInfix):]
	case name == "use_mcp_tool", name == "access_mcp_resource":
		return "mcp " + string(a.ToolName+a.SnakeTool)
	case name == "execute_command":
		return "command " + squeezed(string(a.Command))
	case name == "browser_action":
		return "browser " + string(a.Action)
	case tool == core.ToolWrite, tool == core.ToolModify:
		return "edit " + baseOf(a.file())
	case name == "read_file":
		return "read " + baseOf(a.file())
	default:
		return name
	}
}

// baseOf returns the name of a file without its folders. The shown messages have / where those sent may have \.
func baseOf(file string) string { return path.Base(strings.ReplaceAll(file, `\`, "/")) }

// squeezed returns a text with single spaces.
func squeezed(s string) string { return strings.Join(strings.Fields(s), " ") }
