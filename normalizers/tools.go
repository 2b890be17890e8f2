package normalizers

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
)

// tool says where a tool works and what it does to the file that it is given
// (semantics.md section 7).
type tool struct {
	channel envelopes.Channel
	op      envelopes.FileOp
}

var (
	shell  = tool{envelopes.ChannelTerminal, ""}
	search = tool{envelopes.ChannelFilesystem, envelopes.OpRead}
	read   = tool{envelopes.ChannelEditor, envelopes.OpRead}
	write  = tool{envelopes.ChannelEditor, envelopes.OpWrite}
	modify = tool{envelopes.ChannelEditor, envelopes.OpModify}
	remove = tool{envelopes.ChannelEditor, envelopes.OpDelete}
)

// tools are the tools of all vendors by their lower-case names; those that are not here
// are of channel other.
var tools = map[string]tool{
	// Claude Code
	"bash":         shell,
	"bashoutput":   shell,
	"killbash":     shell,
	"killshell":    shell,
	"powershell":   shell,
	"read":         read,
	"notebookread": read,
	"write":        write,
	"edit":         modify,
	"multiedit":    modify,
	"notebookedit": modify,
	"glob":         search,
	"grep":         search,
	"ls":           search,
	// Codex
	"shell":             shell,
	"shell_command":     shell,
	"local_shell":       shell,
	"exec":              shell,
	"exec_command":      shell,
	"command_execution": shell,
	"container.exec":    shell,
	"unified_exec":      shell,
	"write_stdin":       shell,
	"apply_patch":       modify,
	"file_change":       modify,
	"view_image":        read,
	"list_dir":          search,
	"grep_files":        search,
	// Gemini CLI
	"run_shell_command":   shell,
	"read_file":           read,
	"read_many_files":     read,
	"write_file":          write,
	"replace":             modify,
	"list_directory":      search,
	"search_file_content": search,
	"grep_search":         search,
	// Cursor
	"delete":           remove,
	"deletefile":       remove,
	"delete_file":      remove,
	"strreplace":       modify,
	"search_replace":   modify,
	"editfile":         modify,
	"edit_file":        modify,
	"editnotebook":     modify,
	"applypatch":       modify,
	"readfile":         read,
	"listdir":          search,
	"semsearch":        search,
	"semanticsearch":   search,
	"codebase_search":  search,
	"file_search":      search,
	"ripgrep":          search,
	"run_terminal_cmd": shell,
	"writeshellstdin":  shell,
}

// toolOf looks a tool up by the vendor's name.
func toolOf(name string) tool {
	if t, ok := tools[strings.ToLower(name)]; ok {
		return t
	}
	return tool{channel: envelopes.ChannelOther}
}

// touch puts the file that a tool works on, and what it does to it, into an event.
func (d *draft) touch(file string, op envelopes.FileOp) {
	if op != "" {
		d.FileOp = &op
	}
	if file != "" {
		d.FilePath = &file
		d.FileLanguage = languageOf(file)
	}
}

// compactText is a JSON value as the text of an event.
func compactText(v jsontext.Value) string {
	v = v.Clone()
	if v.Compact(vendorJSON) != nil {
		return ""
	}
	return strings.ToValidUTF8(string(v), "\ufffd")
}

// isValue reports whether a member is there and not null.
func isValue(v jsontext.Value) bool { return len(v) > 0 && v.Kind() != 'n' }
