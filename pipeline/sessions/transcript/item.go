package transcript

import (
	"regexp"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"tributary/envelopes"
	"tributary/pipeline/sessions"
)

// Type is the type of an item: the type of its event, or one of the following.
type Type string

// Types in addition to those of events.
const (
	Tool     Type = "tool"     // a tool_call with its tool_result
	Error    Type = "error"    // an error reported by the vendor
	Subagent Type = "subagent" // heading of the work of a subagent
)

// Item is a part of the conversation: a message, a thought, a call with its result, an error, or the heading of a
// subagent.
type Item struct {
	Type      Type             `json:"type"`
	Turn      int              `json:"turn"`
	Depth     int              `json:"depth"` // 0 in the main conversation, 1 in a subagent, 2 in a subagent of that
	Agent     string           `json:"agent,omitzero"`
	TS        string           `json:"ts,omitzero"`       // of its first event
	EventID   string           `json:"event_id,omitzero"` // of its first event
	Sequence  uint64           `json:"sequence,omitzero"` // of its first event
	Role      envelopes.Role   `json:"role,omitzero"`
	Origin    envelopes.Origin `json:"origin,omitzero"`
	Text      string           `json:"text,omitzero"`
	Truncated bool             `json:"text_truncated,omitzero"`
	Call      *Call            `json:"call,omitzero"` // of a [Tool]
	*Section                   // of a [Subagent]
}

// Call is a call of a tool with its result.
type Call struct {
	ID        string               `json:"id,omitzero"`
	Tool      string               `json:"tool"`
	Kind      envelopes.ActionKind `json:"kind"`
	Path      string               `json:"path,omitzero"`
	Command   string               `json:"command,omitzero"`
	Query     string               `json:"query,omitzero"`
	Arguments string               `json:"arguments,omitzero"` // as written by the vendor, JSON for most tools
	Diff      string               `json:"diff,omitzero"`
	Status    envelopes.ToolStatus `json:"status"` // in_progress without a result
	ExitCode  *int64               `json:"exit_code,omitzero"`
	LatencyMS *int64               `json:"latency_ms,omitzero"` // if stated by the vendor
	ElapsedMS *int64               `json:"elapsed_ms,omitzero"` // from the time of the call to the time of its result
	Output    string               `json:"output,omitzero"`
	Stderr    string               `json:"stderr,omitzero"`
}

// newItem returns the item that begins with an event.
func newItem(e *envelopes.AgentEventV1) *Item {
	return &Item{
		Type: Type(e.EventType), Agent: value(e.AgentID), TS: e.TS, EventID: e.EventID, Sequence: e.Sequence,
		Role: value(e.Role), Origin: e.Origin, Text: value(e.Text), Truncated: e.TextTruncated,
	}
}

// take updates the item with an entry that an event has completed.
func (i *Item) take(e *envelopes.AgentEventV1, n *envelopes.NormalizedEntry) {
	switch n.Type.Kind {
	case envelopes.EntryToolUse:
		i.takeCall(e, n.Type.Tool)
	case envelopes.EntryError:
		i.Type = Error
		i.Text = n.Content
	case envelopes.EntrySystemMessage:
		i.Text = value(e.Text) // without what the entry makes from the metadata
	default:
		i.Text = n.Content
	}
	i.Truncated = i.Truncated || e.TextTruncated
}

// takeCall updates the item with a call or its result.
func (i *Item) takeCall(e *envelopes.AgentEventV1, tool *envelopes.EntryTool) {
	i.Type, i.Text = Tool, ""
	begins := i.Call == nil
	if begins {
		i.Call = &Call{ID: value(e.ToolCallID), Tool: tool.ToolName, Status: envelopes.StatusInProgress}
	}
	c, a := i.Call, &tool.Action
	if e.ToolName != nil {
		c.Tool = tool.ToolName // of a call that came after its result
	}
	c.Kind = a.Kind
	c.Path, c.Command, c.Query = value(a.Path), value(a.Command), value(a.Query)
	if a.ToolName != nil {
		c.Tool = *a.ToolName
	}
	if c.Path == "" {
		c.Path = value(e.FilePath)
	}
	var diffs []string
	for _, change := range a.Changes {
		if change.UnifiedDiff != "" {
			diffs = append(diffs, strings.TrimSuffix(change.UnifiedDiff, "\n"))
		}
	}
	c.Diff = strings.Join(diffs, "\n")
	if e.EventType == envelopes.ToolCall {
		c.Arguments = value(e.Text)
		return
	}
	if begins {
		c.Arguments = string(e.ToolInput)
	}
	c.takeResult(i, e, a)
}

// takeResult updates a call with a result. A vendor may repeat a result with more content.
func (c *Call) takeResult(i *Item, e *envelopes.AgentEventV1, a *envelopes.EntryAction) {
	if status := value(e.ToolStatus); status != envelopes.StatusInProgress || c.Output == "" {
		c.Status = status
	}
	if e.ToolExitCode != nil {
		c.ExitCode = e.ToolExitCode
	}
	if e.ToolLatencyMS != nil {
		c.LatencyMS = e.ToolLatencyMS
	}
	called, err := time.Parse(time.RFC3339Nano, i.TS)
	if ended, timed := e.Timestamp(); err == nil && timed == nil && e.TS != i.TS && !ended.Before(called) {
		c.ElapsedMS = new(ended.Sub(called).Milliseconds())
	}
	output, stderr := value(e.Text), ""
	var result envelopes.CommandResult
	if a.Kind == envelopes.ActionCommandRun && json.Unmarshal(a.Result, &result) == nil {
		output, stderr = result.Stdout, result.Stderr
	}
	if output != "" || stderr != "" {
		c.Output, c.Stderr = output, stderr
	}
}

// IsNoise reports whether an item is not part of the conversation as a human sees it: logs, metadata, snapshots of
// files, titles, history of another session, and events without content.
func (i *Item) IsNoise() bool {
	switch envelopes.EventType(i.Type) {
	case envelopes.Log, envelopes.Meta, envelopes.FileSnapshot:
		return true
	case envelopes.SessionSummary:
		return i.Role == envelopes.RoleSystem || sessions.IsTitle(i.Text)
	case envelopes.UserMessage:
		return i.Origin == envelopes.OriginCopied
	default:
		if i.Section != nil {
			return i.Section.Items == 0
		}
		return i.Origin == envelopes.OriginCopied || i.Text == "" && i.Call == nil
	}
}

// Speaks reports whether an event makes its item more than noise. What precedes the first event of a thread that does
// is of the turn that the first prompt begins.
func Speaks(e *envelopes.AgentEventV1) bool {
	switch e.EventType {
	case envelopes.ToolCall, envelopes.ToolResult:
		return e.Origin != envelopes.OriginCopied
	case envelopes.Log:
		return e.Metadata != nil && e.Metadata.Extensions["error"] != nil
	default:
		return !newItem(e).IsNoise()
	}
}

// Failed reports whether an item is an error reported by the vendor, or a failed call.
func (i *Item) Failed() bool {
	return i.Type == Error || i.Call != nil && i.Call.Status == envelopes.StatusError
}

// Matches reports whether an expression matches a text of the item.
func (i *Item) Matches(e *regexp.Regexp) bool {
	texts := []string{i.Text}
	if i.Section != nil {
		texts = append(texts, i.Title)
	}
	if c := i.Call; c != nil {
		texts = append(texts, c.Path, c.Command, c.Query, c.Arguments, c.Diff, c.Output, c.Stderr)
	}
	for _, text := range texts {
		if text != "" && e.MatchString(text) {
			return true
		}
	}
	return false
}

// value returns what p points to, or the zero value.
func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
