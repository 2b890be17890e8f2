package genai

import (
	"cmp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.opentelemetry.io/otel/attribute"

	"tributary/envelopes"
)

// modelProviders maps a part of a model's name to its provider.
var modelProviders = []struct{ part, provider string }{
	{"claude", "anthropic"},
	{"gpt", "openai"},
	{"codex", "openai"},
	{"gemini", "gcp.gemini"},
	{"grok", "x_ai"},
	{"deepseek", "deepseek"},
	{"mistral", "mistral_ai"},
	{"devstral", "mistral_ai"},
	{"command-r", "cohere"},
}

// provider returns the provider of a model; the agent itself if that is unknown.
func provider(source envelopes.Source, model string) string {
	if p := source.ModelProvider(); p != "" {
		return p
	}
	for _, m := range modelProviders {
		if strings.Contains(strings.ToLower(model), m.part) {
			return m.provider
		}
	}
	return string(source)
}

// finishChat completes the span of a model call. In the semantic conventions, input tokens include cache tokens, and
// output tokens include reasoning.
func (s *Session) finishChat(c *chat) {
	c.Name = string(callModel)
	c.Attributes = []attribute.KeyValue{
		operationName.String(string(callModel)), providerName.String(provider(s.source, c.model)), conversationID.String(s.id),
	}
	if c.model != "" {
		c.Name += " " + c.model
		c.Attributes = append(c.Attributes, requestModel.String(c.model), responseModel.String(c.model))
	}
	if u := (envelopes.Usage{Key: c.key}); u.KeyIsUnique(s.source) {
		c.Attributes = append(c.Attributes, responseID.String(c.key))
	}
	if c.counted {
		u := c.usage
		c.Usage = &u
		c.Attributes = append(c.Attributes,
			inputTokens.Int64(u.Input+u.CacheRead+u.CacheWrite), outputTokens.Int64(u.Output+u.Reasoning),
			cacheReadTokens.Int64(u.CacheRead), cacheWriteTokens.Int64(u.CacheWrite), reasoningTokens.Int64(u.Reasoning))
	}
	if text := c.output.messages("assistant"); text != "" {
		c.Attributes = append(c.Attributes, outputMessages.String(text))
	}
}

// finishTurn completes the span of a turn. It has no tokens: the sum of its calls would count them twice.
func (s *Session) finishTurn(t *thread, run *turn) {
	run.Attributes = append(run.Attributes, providerName.String(provider(s.source, t.model)))
	if t.model != "" {
		run.Attributes = append(run.Attributes, requestModel.String(t.model))
	}
	run.Attributes = appendPlace(run.Attributes, run.edge, run.vcs)
	if text := run.prompt.messages("user"); text != "" {
		run.Attributes = append(run.Attributes, inputMessages.String(text))
	}
	if run.Failure != "" {
		run.fail(run.Failure)
	}
}

// fail gives the span an error.
func (s *Span) fail(kind string) {
	s.Failure = kind
	s.Attributes = append(s.Attributes, errorType.String(kind))
}

// otherError is the error.type of an error without a code.
const otherError = "_OTHER"

// errorCode returns the code of the error in the metadata of an event.
func errorCode(stated jsontext.Value) string {
	var e struct {
		Code jsontext.Value `json:"code"`
	}
	var code string
	if json.Unmarshal(stated, &e) == nil && e.Code.Kind() == '"' {
		_ = json.Unmarshal(e.Code, &code) // a string
	}
	return cmp.Or(code, otherError)
}

// exchange is the content of a message: a prompt, or the answer of a model.
type exchange struct {
	chat  *chat    // nil for a prompt
	ids   []string // of the events
	parts []part
}

// part is a part of a message in the semantic conventions.
type part struct {
	Type      string  `json:"type"`
	Content   *string `json:"content,omitzero"`
	ID        *string `json:"id,omitzero"` // of a tool call
	Name      *string `json:"name,omitzero"`
	Arguments *string `json:"arguments,omitzero"`
}

// write adds the text of an event. If the event replaces another, its text takes the place of the other's.
func (s *Session) write(x *exchange, e *envelopes.AgentEventV1) {
	s.owners[e.EventID] = x
	if !s.content {
		return
	}
	p := part{Type: "text", Content: e.Text}
	if e.EventType == envelopes.Reasoning {
		p.Type = "reasoning"
	}
	if e.EventType == envelopes.ToolCall {
		p = part{Type: "tool_call", ID: e.ToolCallID, Name: e.ToolName, Arguments: e.Text}
	}
	if i := slices.Index(x.ids, e.Supersedes); e.Supersedes != "" && i >= 0 {
		x.ids[i], x.parts[i] = e.EventID, p
		return
	}
	x.ids, x.parts = append(x.ids, e.EventID), append(x.parts, p)
}

// messages returns the content as messages of the semantic conventions; empty for no content.
func (x *exchange) messages(role string) string {
	if len(x.parts) == 0 {
		return ""
	}
	type message struct {
		Role   string `json:"role"`
		Parts  []part `json:"parts"`
		Finish string `json:"finish_reason,omitzero"`
	}
	m := message{Role: role, Parts: x.parts}
	if role == "assistant" {
		if m.Finish = "stop"; x.parts[len(x.parts)-1].Type == "tool_call" {
			m.Finish = "tool_call"
		}
	}
	text, err := json.Marshal([]message{m}, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return ""
	}
	return string(text)
}
