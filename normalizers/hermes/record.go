package hermes

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// record is a row of the database, a line with a message, or a saved session.
type record struct {
	Table lenient.Text        `json:"table"`
	Row   lenient.Object[row] `json:"row"`

	message `json:",embed"`

	// Of a saved session.
	SessionID    lenient.Text                `json:"session_id"`
	SessionStart lenient.Text                `json:"session_start"`
	Platform     lenient.Text                `json:"platform"`
	Cwd          lenient.Text                `json:"cwd"`
	Config       lenient.Object[modelConfig] `json:"model_config"`
	Messages     jsontext.Value              `json:"messages"`
}

type modelConfig struct {
	Cwd lenient.Text `json:"cwd"`
}

// message is a message of any role. In a line of the database an empty text stands for none.
type message struct {
	Role        lenient.Text   `json:"role"`
	Content     jsontext.Value `json:"content"`
	Calls       jsontext.Value `json:"tool_calls"` // a list, or the JSON of one in a string
	CallID      lenient.Text   `json:"tool_call_id"`
	ToolName    lenient.Text   `json:"tool_name"`
	Name        lenient.Text   `json:"name"` // of the tool, in older versions
	DisplayKind lenient.Text   `json:"display_kind"`
	Compressed  jsontext.Value `json:"_compressed_summary"`
	Timestamp   jsontext.Value `json:"timestamp"` // RFC 3339, or seconds
	Model       lenient.Text   `json:"model"`     // of the session
	LineModel   lenient.Text   `json:"_model"`
	LineCwd     lenient.Text   `json:"_cwd"`

	// The same thoughts under several names.
	Reasoning        lenient.Text   `json:"reasoning"`
	ReasoningContent lenient.Text   `json:"reasoning_content"`
	ReasoningDetails jsontext.Value `json:"reasoning_details"`
}

// call is a call of a tool; in older versions the function is not nested.
type call struct {
	ID        lenient.Text             `json:"id"`
	CallID    lenient.Text             `json:"call_id"`
	Function  lenient.Object[function] `json:"function"`
	Name      lenient.Text             `json:"name"`
	Arguments jsontext.Value           `json:"arguments"`
}

type function struct {
	Name      lenient.Text   `json:"name"`
	Arguments jsontext.Value `json:"arguments"`
}

// calls returns the calls of a message.
func (m *message) calls() []call {
	list := m.Calls
	if list.Kind() == '"' {
		list = jsontext.Value(lenient.Unquote(list))
		if list.Kind() != '[' || lenient.ReadValue(list) != nil {
			return nil
		}
	}
	var out []call
	for _, v := range lenient.Elements(list) {
		var c call
		lenient.ReadObject(v, &c)
		out = append(out, c)
	}
	return out
}

// thought returns the reasoning of a message.
func (m *message) thought() lenient.Text {
	for _, t := range []lenient.Text{m.Reasoning, m.ReasoningContent} {
		if strings.TrimSpace(string(t)) != "" {
			return t
		}
	}
	text, _, _ := textsOf(m.ReasoningDetails)
	return lenient.Text(text)
}

// part is a part of a content.
type part struct {
	Type lenient.Text `json:"type"`
	Text lenient.Text `json:"text"`
}

// structured begin a content that is a list of parts as JSON.
var structured = []string{"\x00json:", "\x01json:"}

// textsOf returns the texts of a content, line by line; ok is false if it has none, and attached is true if it has an
// image.
func textsOf(content jsontext.Value) (text string, ok, attached bool) {
	if content.Kind() == '"' {
		text = lenient.Unquote(content)
		isList := false
		for _, mark := range structured {
			if rest, found := strings.CutPrefix(text, mark); found && lenient.ReadValue(jsontext.Value(rest)) == nil {
				content, isList = jsontext.Value(rest), true
			}
		}
		if !isList {
			return text, true, false
		}
	}
	var texts []string
	for _, v := range lenient.Elements(content) {
		var p part
		lenient.ReadObject(v, &p)
		switch {
		case p.Text != "":
			texts = append(texts, string(p.Text))
		case strings.Contains(string(p.Type), "image"):
			attached = true
		}
	}
	return strings.Join(texts, "\n"), texts != nil, attached
}

// outcome is what the JSON of a result may state.
type outcome struct {
	Success      jsontext.Value `json:"success"`
	Error        jsontext.Value `json:"error"`
	Status       lenient.Text   `json:"status"`
	ExitCode     lenient.Number `json:"exit_code"`
	Output       lenient.Text   `json:"output"`
	SessionID    lenient.Text   `json:"session_id"` // of a process in the background
	DelegationID lenient.Text   `json:"delegation_id"`
}

// tools are the tools of Hermes that other agents lack.
var tools = map[string]core.Tool{
	"terminal":     core.ToolShell,
	"process":      core.ToolShell,
	"execute_code": core.ToolShell,
	"patch":        core.ToolModify,
	"search_files": core.ToolSearch,
}
