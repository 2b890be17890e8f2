package vscode

import (
	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
	"tributary/normalizers/otlp"
)

// record is the document of a session, or an entry of its journal.
type record struct {
	otlp.Export `json:",embed"`
	session

	Kind lenient.Number `json:"kind"`
	Path jsontext.Value `json:"k"` // names of members and numbers of elements
	V    jsontext.Value `json:"v"`
	I    lenient.Number `json:"i"` // of a push: where the array is cut off before
}

// The kinds of entries of a journal.
const (
	kindInitial = 0
	kindSet     = 1
	kindPush    = 2
	kindDelete  = 3
)

// session is the whole of a session.
type session struct {
	Requests  jsontext.Value           `json:"requests"`
	Title     lenient.Text             `json:"customTitle"`
	OldTitle  lenient.Text             `json:"computedTitle"`
	Folder    lenient.Text             `json:"workingDirectory"` // a URI
	RepoData  lenient.Object[repoData] `json:"repoData"`
	SessionID lenient.Text             `json:"sessionId"`
	Created   lenient.Number           `json:"creationDate"`
}

type repoData struct {
	Remote lenient.Text `json:"remoteUrl"`
	Branch lenient.Text `json:"localBranch"`
	Commit lenient.Text `json:"localHeadCommit"`
}

// wireRequest is a prompt with its answer.
type wireRequest struct {
	ID        lenient.Text   `json:"requestId"`
	Timestamp lenient.Number `json:"timestamp"` // milliseconds
	Message   jsontext.Value `json:"message"`   // a text in old versions
	Variables lenient.Object[struct {
		List jsontext.Value `json:"variables"`
	}] `json:"variableData"`
	Confirmation lenient.Text            `json:"confirmation"` // the button that was pressed instead of a prompt
	BySystem     lenient.Flag            `json:"isSystemInitiated"`
	ModelID      lenient.Text            `json:"modelId"`
	Response     jsontext.Value          `json:"response"` // parts, or a text in old versions
	Result       lenient.Object[result]  `json:"result"`
	OldError     lenient.Object[problem] `json:"responseErrorDetails"`
	Canceled     lenient.Flag            `json:"isCanceled"`
	State        lenient.Object[struct {
		Value     lenient.Number `json:"value"`
		Completed lenient.Number `json:"completedAt"`
	}] `json:"modelState"`

	Prompt  lenient.Number `json:"promptTokens"`     // of the last API call
	Output  lenient.Number `json:"completionTokens"` // of all API calls
	Credits lenient.Number `json:"copilotCredits"`
	Totals  lenient.List[struct {
		Input  lenient.Number `json:"inputTokens"` // with the cache
		Cached lenient.Number `json:"cachedTokens"`
		Output lenient.Number `json:"outputTokens"`
	}] `json:"modelTotals"`
}

// promptPart is a part of a prompt, such as the participant that it names.
type promptPart struct {
	Kind lenient.Text `json:"kind"`
}

// stateCancelled is the value of the state of a request that a human stopped.
const stateCancelled = 2

type result struct {
	Timings lenient.Object[struct {
		Total lenient.Number `json:"totalElapsed"` // milliseconds
	}] `json:"timings"`
	Error    lenient.Object[problem]  `json:"errorDetails"`
	Details  lenient.Text             `json:"details"` // the name of the model and its price
	Metadata lenient.Object[metadata] `json:"metadata"`
}

type problem struct {
	Code    lenient.Text `json:"code"`
	Message lenient.Text `json:"message"`
}

// metadata is what Copilot keeps of a request for its next one.
type metadata struct {
	Rounds lenient.List[struct {
		Calls     lenient.List[roundCall] `json:"toolCalls"`
		Timestamp lenient.Number          `json:"timestamp"`
		Response  jsontext.Value          `json:"response"` // a text, or texts
		Thinking  lenient.Object[struct {
			Text jsontext.Value `json:"text"` // or texts
		}] `json:"thinking"`
	}] `json:"toolCallRounds"`
	Results jsontext.Value `json:"toolCallResults"` // by the id of a call
	Limited lenient.Flag   `json:"maxToolCallsExceeded"`
	Model   lenient.Text   `json:"resolvedModel"`
	Prompt  lenient.Number `json:"promptTokens"` // of the last API call, like the output
	Output  lenient.Number `json:"outputTokens"`
}

// roundCall is a call as the model made it.
type roundCall struct {
	ID        lenient.Text   `json:"id"`
	Name      lenient.Text   `json:"name"`
	Arguments jsontext.Value `json:"arguments"` // an object as text
}

// part is an element of an answer.
type part struct {
	Kind     lenient.Text            `json:"kind"`
	Value    jsontext.Value          `json:"value"`   // a text; of a thought also texts
	Content  jsontext.Value          `json:"content"` // an object with a value, or a text
	BaseURI  lenient.Object[wireURI] `json:"baseUri"` // of the folder of the workspace
	Resolved lenient.Object[struct {
		ID lenient.Text `json:"id"`
	}] `json:"resolved"` // the model that was chosen

	// Of a reference to a file or a symbol.
	Reference lenient.Object[struct {
		wireURI
		Name lenient.Text            `json:"name"`
		URI  lenient.Object[wireURI] `json:"uri"`
	}] `json:"inlineReference"`
	Name lenient.Text `json:"name"`

	invocation
}

type wireURI struct {
	Scheme lenient.Text `json:"scheme"`
	Path   lenient.Text `json:"path"`
	FSPath lenient.Text `json:"fsPath"`
}

// invocation is a call as VS Code shows it.
type invocation struct {
	CallID    lenient.Text           `json:"toolCallId"`
	ToolID    lenient.Text           `json:"toolId"`
	Agent     lenient.Text           `json:"subAgentInvocationId"` // the call that started the subagent
	Message   jsontext.Value         `json:"invocationMessage"`    // an object with a value, or a text
	Confirmed jsontext.Value         `json:"isConfirmed"`          // an object with a type, a flag in old versions
	Error     jsontext.Value         `json:"resultError"`          // a text, or true
	Details   jsontext.Value         `json:"resultDetails"`        // an object, or a list of files
	Specific  lenient.Object[detail] `json:"toolSpecificData"`
}

// detail is what some tools state about a call.
type detail struct {
	Kind        lenient.Text `json:"kind"`
	CommandLine lenient.Object[struct {
		Original lenient.Text `json:"original"`
	}] `json:"commandLine"`
	Command  lenient.Text     `json:"command"` // CommandLine in old versions
	RawInput jsontext.Value   `json:"rawInput"`
	Prompt   lenient.NullText `json:"prompt"` // of a subagent
	Result   lenient.NullText `json:"result"` // of a subagent
	Output   lenient.Object[struct {
		Text lenient.NullText `json:"text"`
	}] `json:"terminalCommandOutput"`
	State lenient.Object[struct {
		Exit     lenient.Number `json:"exitCode"`
		Duration lenient.Number `json:"duration"` // milliseconds
	}] `json:"terminalCommandState"`
}

// ioDetail is the result of a tool of a server.
type ioDetail struct {
	Input   jsontext.Value `json:"input"`
	Output  jsontext.Value `json:"output"` // a text, or a list of parts with a value
	IsError lenient.Flag   `json:"isError"`
}

// valued is an object with a value.
type valued struct {
	Value jsontext.Value `json:"value"`
	URIs  jsontext.Value `json:"uris"` // files that a message names
}

// node is a node of a prompt: an element, or a text.
type node struct {
	Text     lenient.Text   `json:"text"`
	Break    lenient.Flag   `json:"lineBreakBefore"`
	Node     jsontext.Value `json:"node"`
	Children jsontext.Value `json:"children"`
}

// tools are the tools that other agents lack or use with another meaning.
var tools = map[string]core.Tool{
	"await_terminal":               core.ToolShell,
	"create_and_run_task":          core.ToolShell,
	"create_file":                  core.ToolWrite,
	"edit_notebook_file":           core.ToolModify,
	"get_task_output":              core.ToolShell,
	"get_terminal_output":          core.ToolShell,
	"insert_edit_into_file":        core.ToolModify,
	"kill_terminal":                core.ToolShell,
	"multi_replace_string_in_file": core.ToolModify,
	"read_notebook_cell_output":    core.ToolRead,
	"replace_string_in_file":       core.ToolModify,
	"run_in_terminal":              core.ToolShell,
	"run_task":                     core.ToolShell,
	"semantic_search":              core.ToolSearch,
	"send_to_terminal":             core.ToolShell,
}

// modelNames are the names that the model has for tools that VS Code shows under another one.
var modelNames = map[lenient.Text]lenient.Text{
	"copilot_applyPatch": "apply_patch", "copilot_createDirectory": "create_directory",
	"copilot_createFile": "create_file", "copilot_createNewJupyterNotebook": "create_new_jupyter_notebook",
	"copilot_createNewWorkspace": "create_new_workspace", "copilot_editNotebook": "edit_notebook_file",
	"copilot_fetchWebPage": "fetch_webpage", "copilot_findFiles": "file_search",
	"copilot_findTestFiles": "test_search", "copilot_findTextInFiles": "grep_search",
	"copilot_getChangedFiles": "get_changed_files", "copilot_getErrors": "get_errors",
	"copilot_getProjectSetupInfo": "get_project_setup_info", "copilot_getSearchResults": "get_search_view_results",
	"copilot_getVSCodeAPI": "get_vscode_api", "copilot_githubRepo": "github_repo",
	"copilot_insertEdit": "insert_edit_into_file", "copilot_installExtension": "install_extension",
	"copilot_listDirectory": "list_dir", "copilot_memory": "memory",
	"copilot_multiReplaceString": "multi_replace_string_in_file", "copilot_readFile": "read_file",
	"copilot_readNotebookCellOutput": "read_notebook_cell_output", "copilot_readProjectStructure": "read_project_structure",
	"copilot_replaceString": "replace_string_in_file", "copilot_resolveMemoryFileUri": "resolve_memory_file_uri",
	"copilot_runNotebookCell": "run_notebook_cell", "copilot_runVscodeCommand": "run_vscode_command",
	"copilot_searchCodebase": "semantic_search", "copilot_searchWorkspaceSymbols": "search_workspace_symbols",
	"copilot_switchAgent": "switch_agent", "copilot_testFailure": "test_failure",
	"copilot_viewImage": "view_image",
}

// quietParts are the kinds of parts that have no content of the conversation, or that a call states.
var quietParts = map[lenient.Text]bool{
	"autoModeResolution": true, "clearToPreviousToolInvocation": true, "codeblockUri": true, "command": true,
	"confirmation": true, "disabledClaudeHooks": true, "elicitation": true, "elicitationSerialized": true,
	"extensions": true, "externalEdit": true, "hook": true, "mcpServersStarting": true, "multiDiffData": true,
	"notebookEditGroup": true, "planReview": true, "prepareToolInvocation": true, "progressMessage": true,
	"progressTask": true, "progressTaskSerialized": true, "pullRequest": true, "questionCarousel": true,
	"textEditGroup": true, "treeData": true, "undoStop": true, "voiceProgress": true, "workspaceEdit": true,
}
