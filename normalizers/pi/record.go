package pi

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// record has the members of a line: the first line of a session, or an entry of its tree.
type record struct {
	Type       lenient.Text            `json:"type"`
	ID         lenient.Text            `json:"id"`
	Timestamp  lenient.Text            `json:"timestamp"`
	Cwd        lenient.Text            `json:"cwd"`
	Parent     lenient.Text            `json:"parentSession"` // file from which the session was forked
	Branched   lenient.Text            `json:"branchedFrom"`  // the same in format version 1
	Provider   lenient.Text            `json:"provider"`
	ModelID    lenient.Text            `json:"modelId"`
	Thinking   lenient.Text            `json:"thinkingLevel"`
	Summary    lenient.Text            `json:"summary"`
	Name       lenient.Text            `json:"name"`
	CustomType lenient.Text            `json:"customType"`
	Content    jsontext.Value          `json:"content"` // of a custom_message
	Usage      lenient.Object[usage]   `json:"usage"`   // of a summary
	Message    lenient.Object[message] `json:"message"`
}

// message is a message of any role.
type message struct {
	Role         lenient.Text          `json:"role"`
	Content      jsontext.Value        `json:"content"`
	Provider     lenient.Text          `json:"provider"`
	Model        lenient.Text          `json:"model"`
	Usage        lenient.Object[usage] `json:"usage"`
	StopReason   lenient.Text          `json:"stopReason"`
	ErrorMessage lenient.Text          `json:"errorMessage"`
	ResponseID   lenient.Text          `json:"responseId"`

	// Of a toolResult.
	ToolCallID lenient.Text `json:"toolCallId"`
	ToolName   lenient.Text `json:"toolName"`
	IsError    lenient.Flag `json:"isError"`

	// Of a bashExecution.
	Command lenient.Text `json:"command"`
	Output  lenient.Text `json:"output"`

	// Of a summary.
	Summary lenient.Text `json:"summary"`
}

// usage has the tokens of an API call. The input is without the cache, the output with the reasoning.
type usage struct {
	Input      lenient.Number       `json:"input"`
	Output     lenient.Number       `json:"output"`
	CacheRead  lenient.Number       `json:"cacheRead"`
	CacheWrite lenient.Number       `json:"cacheWrite"`
	Reasoning  lenient.Number       `json:"reasoning"`
	Write1h    lenient.Number       `json:"cacheWrite1h"`
	Cost       lenient.Object[cost] `json:"cost"`
}

type cost struct {
	Total lenient.Number `json:"total"`
}

// block is an element of the content of a message.
type block struct {
	Type      lenient.Text   `json:"type"`
	Text      lenient.Text   `json:"text"`
	Thinking  lenient.Text   `json:"thinking"`
	ID        lenient.Text   `json:"id"`
	Name      lenient.Text   `json:"name"`
	Arguments jsontext.Value `json:"arguments"`
}

// blocks returns the content of a message; a text alone is one block.
func blocks(content jsontext.Value) []block {
	if content.Kind() == '"' {
		return []block{{Type: "text", Text: lenient.Text(lenient.Unquote(content))}}
	}
	var list []block
	for _, v := range lenient.Elements(content) {
		var b block
		lenient.ReadObject(v, &b)
		list = append(list, b)
	}
	return list
}

// joined returns the texts of a content, line by line; ok is false if it has none.
func joined(content jsontext.Value) (text string, ok bool) {
	var texts []string
	for _, b := range blocks(content) {
		if b.Type == "text" {
			texts = append(texts, string(b.Text))
		}
	}
	return strings.Join(texts, "\n"), texts != nil
}

// tools are the tools of Pi that other agents lack.
var tools = map[string]core.Tool{"find": core.ToolSearch}
