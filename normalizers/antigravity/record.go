package antigravity

import (
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// record is a step of a conversation, or a row of its database.
type record struct {
	Table lenient.Text              `json:"table"`
	Row   lenient.Object[rowRecord] `json:"row"`

	Step      lenient.Number             `json:"step_index"`
	Source    lenient.Text               `json:"source"` // MODEL, SYSTEM or USER_EXPLICIT
	Type      lenient.Text               `json:"type"`
	Status    lenient.Text               `json:"status"`
	CreatedAt lenient.Text               `json:"created_at"`
	Content   lenient.NullText           `json:"content"`
	Error     lenient.Text               `json:"error"`
	ErrorCode jsontext.Value             `json:"error_code"`
	Exit      lenient.Number             `json:"exit_code"`
	Thinking  lenient.Text               `json:"thinking"`
	Calls     lenient.List[call]         `json:"tool_calls"`
	Cut       lenient.List[lenient.Text] `json:"truncated_fields"`
}

// call is a call of a tool. Args of a shortened transcript have a JSON text in the string of each argument, those of a
// full one have the values; another version wrote id and arguments.
type call struct {
	Name      lenient.Text   `json:"name"`
	Args      jsontext.Value `json:"args"`
	ID        lenient.Text   `json:"id"`
	Arguments jsontext.Value `json:"arguments"`
}

// arguments returns the arguments of a call, each as the value that its text states. An argument that is no string shows
// that all are values.
func (c *call) arguments() jsontext.Value {
	members := lenient.ObjectMembers(c.Args)
	isValue := func(m lenient.Member) bool { return m.Value.Kind() != '"' }
	if c.Args.Kind() != '{' || slices.ContainsFunc(members, isValue) {
		if lenient.IsValue(c.Args) {
			return c.Args
		}
		return c.Arguments
	}
	out := []byte{'{'}
	for i, m := range members {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(lenient.AppendQuote(out, m.Name), ':')
		if inner := jsontext.Value(lenient.Unquote(m.Value)); inner.IsValid() {
			out = append(out, inner...)
		} else {
			out = append(out, m.Value...)
		}
	}
	return append(out, '}')
}

// tools are the tools of Antigravity that other agents lack.
var tools = map[string]core.Tool{
	"run_command":                core.ToolShell,
	"manage_task":                core.ToolShell,
	"view_file":                  core.ToolRead,
	"write_to_file":              core.ToolWrite,
	"replace_file_content":       core.ToolModify,
	"multi_replace_file_content": core.ToolModify,
}

// results are the tools of results whose call is not in the log, by type; of some types several tools are.
var results = map[lenient.Text]lenient.Text{
	"RUN_COMMAND":      "run_command",
	"VIEW_FILE":        "view_file",
	"LIST_DIRECTORY":   "list_dir",
	"GREP_SEARCH":      "grep_search",
	"SEARCH_WEB":       "search_web",
	"READ_URL_CONTENT": "read_url_content",
	"INVOKE_SUBAGENT":  "invoke_subagent",
	"BROWSER_SUBAGENT": "browser_subagent",
	"GENERATE_IMAGE":   "generate_image",
	"CODE_ACTION":      "",
	"GENERIC":          "",
}
