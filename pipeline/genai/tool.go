package genai

import (
	"crypto/sha256"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.opentelemetry.io/otel/attribute"

	"tributary/envelopes"
)

// tools are the tool calls of a session.
type tools struct {
	calls   []*call // in the order of their first events
	byID    map[string]*call
	prompts map[[sha256.Size]byte]*call // by argument text
}

// call is a tool call: one span, however many events it has.
type call struct {
	*Span
	thread    *thread
	id, tool  string
	status    envelopes.ToolStatus
	ended     bool // a final result has come
	exit      *int64
	arguments string // content
	output    string // content
}

// begin adds the event of a call.
func (l *tools) begin(s *Session, t *thread, e *envelopes.AgentEventV1, at time.Time) {
	c := l.find(e, at)
	if c == nil {
		c = l.add(t, e, at)
	}
	c.tool = value(e.ToolName)
	l.notePrompts(c, value(e.Text))
	if s.content {
		c.arguments = value(e.Text)
	}
}

// add adds a call that begins with an event.
func (l *tools) add(t *thread, e *envelopes.AgentEventV1, start time.Time) *call {
	c := &call{Span: newSpan(executeTool, e, start), thread: t, id: value(e.ToolCallID), tool: value(e.ToolName), status: envelopes.StatusInProgress}
	t.turn.adopt(c.Span)
	l.calls = append(l.calls, c)
	if l.byID == nil {
		l.byID, l.prompts = map[string]*call{}, map[[sha256.Size]byte]*call{}
	}
	if c.id != "" {
		l.byID[c.id] = c
	}
	return c
}

// find returns the call of an event. A result without an id belongs to the oldest call of its tool that has neither
// id nor result.
func (l *tools) find(e *envelopes.AgentEventV1, at time.Time) *call {
	if id := value(e.ToolCallID); id != "" {
		return l.byID[id]
	}
	if e.EventType != envelopes.ToolResult {
		return nil
	}
	for _, c := range l.calls {
		if c.id == "" && !c.ended && c.tool == value(e.ToolName) && !c.Start.After(at) {
			return c
		}
	}
	return nil
}

// end adds the event of a result. The last final result ends the call.
func (l *tools) end(s *Session, t *thread, e *envelopes.AgentEventV1, at time.Time) {
	c := l.find(e, at)
	if c == nil { // the call itself has no event
		start := at
		if ms := value(e.ToolLatencyMS); ms > 0 && ms < int64(24*time.Hour/time.Millisecond) {
			start = at.Add(-time.Duration(ms) * time.Millisecond)
		}
		c = l.add(t, e, start)
		if s.content && e.ToolInput != nil {
			c.arguments = string(e.ToolInput)
		}
	}
	if c.tool == "" {
		c.tool = value(e.ToolName)
	}
	progress := value(e.ToolStatus) == envelopes.StatusInProgress
	if progress && c.ended {
		return
	}
	c.status, c.exit, c.ended = value(e.ToolStatus), e.ToolExitCode, !progress
	c.extend(at)
	if s.content {
		c.output = value(e.Text)
	}
}

// minPrompt is the minimum length in bytes of an argument that may be the prompt of a subagent.
const minPrompt = 8

// notePrompts notes the arguments of a call that may be prompts of a subagent.
func (l *tools) notePrompts(c *call, arguments string) {
	var values map[string]jsontext.Value
	if json.Unmarshal([]byte(arguments), &values) != nil {
		return
	}
	for _, v := range values {
		var text string
		if v.Kind() == '"' && json.Unmarshal(v, &text) == nil && len(text) >= minPrompt {
			l.prompts[sha256.Sum256([]byte(text))] = c
		}
	}
}

// prompting returns the call in another thread that has text as an argument.
func (l *tools) prompting(t *thread, text string) *call {
	c := l.prompts[sha256.Sum256([]byte(text))]
	if c == nil || c.thread == t {
		return nil
	}
	return c
}

// finishCall completes the span of a call of a tool.
func (s *Session) finishCall(c *call) {
	c.Name = string(executeTool)
	c.Attributes = []attribute.KeyValue{operationName.String(string(executeTool)), conversationID.String(s.id)}
	if c.tool != "" {
		c.Name += " " + c.tool
		c.Attributes = append(c.Attributes, toolName.String(c.tool))
	}
	if c.id != "" {
		c.Attributes = append(c.Attributes, toolCallID.String(c.id))
	}
	if c.status != "" {
		c.Attributes = append(c.Attributes, toolStatus.String(string(c.status)))
	}
	if c.exit != nil {
		c.Attributes = append(c.Attributes, exitCode.Int64(*c.exit))
	}
	if c.status == envelopes.StatusError {
		c.fail(toolFailed)
	}
	if c.arguments != "" {
		c.Attributes = append(c.Attributes, toolCallArguments.String(c.arguments))
	}
	if c.output != "" {
		c.Attributes = append(c.Attributes, toolCallResult.String(c.output))
	}
}

// toolFailed is the error.type of a failed tool; events state no more.
const toolFailed = "tool_error"
