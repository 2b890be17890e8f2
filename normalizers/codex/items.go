package codex

import (
	"strings"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// item is an item of the newer event stream, told again beside its response_item.
type item struct {
	Type        lenient.Text `json:"type"`
	Kind        lenient.Text `json:"kind"` // of an extension
	Text        lenient.Text `json:"text"`
	Content     content      `json:"content"`
	SummaryText content      `json:"summary_text"`
}

// ends are the items that tell how a tool ended, by the events that older rollouts
// tell it with.
var ends = map[lenient.Text]lenient.Text{
	"CommandExecution":     "exec_command_end",
	"FileChange":           "patch_apply_end",
	"McpToolCall":          "mcp_tool_call_end",
	"DynamicToolCall":      "dynamic_tool_call_response",
	"ImageView":            "view_image_tool_call",
	"ImageGeneration":      "image_generation_end",
	"image_gen.generation": "image_generation_end",
	"WebSearch":            "web_search_end",
	"web.search":           "web.search",
}

// itemCompleted maps an item of the newer event stream: a twin of what is said, or the
// end of a tool, else meta.
func (c *mapper) itemCompleted() core.SkipReason {
	var i item
	lenient.ReadObject(c.Item, &i)
	words := strings.Join(i.Content.texts(), "\n")
	switch i.Type {
	case "UserMessage":
		return c.twin(speakerUser, words)
	case "AgentMessage":
		return c.twin(speakerAgent, words)
	case "Plan":
		return c.twin(speakerAgent, string(i.Text))
	case "Reasoning":
		skip := core.SkipEmpty
		for _, t := range i.SummaryText.texts() {
			skip = c.twin(speakerThought, t)
		}
		return skip
	case "Extension":
		i.Type = i.Kind
	}
	end, ok := ends[i.Type]
	if !ok {
		c.runtime(envelopes.Meta, "")
		return core.SkipDuplicate
	}
	item := c.Item
	c.payload = payload{}
	lenient.ReadObject(item, &c.payload)
	c.Type, c.CallID = end, c.ID
	if end == "web_search_end" {
		return c.searchEnd()
	}
	return c.toolEnd()
}
