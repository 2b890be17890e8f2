package core

import (
	"strings"

	"tributary/envelopes"
)

// Patch sets the files of a patch in an event: the first is its file, and all are listed if there are several or one
// does more than modify.
func (d *Draft) Patch(files []envelopes.File) {
	if len(files) == 0 {
		return
	}
	d.Touch(files[0].Path, envelopes.OpModify)
	if len(files) > 1 || files[0].Op != envelopes.OpModify {
		d.Files = files
	}
}

// Tool is where a tool works and what it does to its file (README.md, Tools).
type Tool struct {
	Channel envelopes.Channel
	Op      envelopes.FileOp
}

// Common tools.
var (
	ToolShell  = Tool{envelopes.ChannelTerminal, ""}
	ToolSearch = Tool{envelopes.ChannelFilesystem, envelopes.OpRead}
	ToolRead   = Tool{envelopes.ChannelEditor, envelopes.OpRead}
	ToolWrite  = Tool{envelopes.ChannelEditor, envelopes.OpWrite}
	ToolModify = Tool{envelopes.ChannelEditor, envelopes.OpModify}
	toolRemove = Tool{envelopes.ChannelEditor, envelopes.OpDelete}
)

// tools are the tools of all vendors by lower-case name. Others have the channel other.
var tools = map[string]Tool{
	"bash":                ToolShell,
	"bashoutput":          ToolShell,
	"killbash":            ToolShell,
	"killshell":           ToolShell,
	"powershell":          ToolShell,
	"read":                ToolRead,
	"notebookread":        ToolRead,
	"write":               ToolWrite,
	"edit":                ToolModify,
	"multiedit":           ToolModify,
	"notebookedit":        ToolModify,
	"glob":                ToolSearch,
	"grep":                ToolSearch,
	"ls":                  ToolSearch,
	"shell":               ToolShell,
	"shell_command":       ToolShell,
	"local_shell":         ToolShell,
	"exec":                ToolShell,
	"exec_command":        ToolShell,
	"command_execution":   ToolShell,
	"container.exec":      ToolShell,
	"unified_exec":        ToolShell,
	"write_stdin":         ToolShell,
	"apply_patch":         ToolModify,
	"file_change":         ToolModify,
	"view_image":          ToolRead,
	"list_dir":            ToolSearch,
	"grep_files":          ToolSearch,
	"run_shell_command":   ToolShell,
	"read_file":           ToolRead,
	"read_many_files":     ToolRead,
	"write_file":          ToolWrite,
	"replace":             ToolModify,
	"list_directory":      ToolSearch,
	"search_file_content": ToolSearch,
	"grep_search":         ToolSearch,
	"delete":              toolRemove,
	"deletefile":          toolRemove,
	"delete_file":         toolRemove,
	"strreplace":          ToolModify,
	"search_replace":      ToolModify,
	"editfile":            ToolModify,
	"edit_file":           ToolModify,
	"editnotebook":        ToolModify,
	"applypatch":          ToolModify,
	"readfile":            ToolRead,
	"listdir":             ToolSearch,
	"semsearch":           ToolSearch,
	"semanticsearch":      ToolSearch,
	"codebase_search":     ToolSearch,
	"file_search":         ToolSearch,
	"ripgrep":             ToolSearch,
	"run_terminal_cmd":    ToolShell,
	"writeshellstdin":     ToolShell,
}

// ToolOf returns the tool with a vendor's name.
func ToolOf(name string) Tool {
	if t, ok := tools[strings.ToLower(name)]; ok {
		return t
	}
	return Tool{Channel: envelopes.ChannelOther}
}

// Touch sets the file of a tool, and its operation, in an event.
func (d *Draft) Touch(file string, op envelopes.FileOp) {
	if op != "" {
		d.FileOp = &op
	}
	if file != "" {
		d.FilePath = &file
		d.FileLanguage = languageOf(file)
	}
}
