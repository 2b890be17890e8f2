package envelopes

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// EntryProjection turns the events of one session, in their order, into entries as a user
// interface shows them. The zero value is ready to use; each session needs its own.
//
//   - A user_message of any origin but injected, a system_message, assistant_message or
//     reasoning becomes an entry of that kind. An event without text yields none, except the
//     system_message that begins a session (content "Session: <id>, Model: <model>").
//   - A tool_call and its tool_result become one entry, emitted twice with the index of the
//     call. A result without a known call becomes an entry of its own.
//   - Chunks of one message become one entry: an assistant_message of an agent in sendsChunks
//     that directly follows another one of the same thread and API call is appended to it
//     without a separator, and the entry is emitted again.
//   - A log with metadata.error becomes an error.
//   - An event that supersedes another event takes its index.
//   - meta, other logs, file_snapshot, session_summary and injected events yield no entry.
//
// Memory is bounded: the last 1,024 calls (at most 4 MiB in total), the ids of the last 1,024
// events with an entry, and one growing assistant message of at most 1,000 chunks and 64 KiB.
// A result or a replacement of an older event becomes an entry of its own, and so does a chunk
// beyond the bounds.
//
// Indexes count the entries of this projection from 0, also if it begins in the middle of a
// session.
type EntryProjection struct {
	next    int // index of the next entry
	calls   recent[toolUse]
	indexes recent[int] // of the entries of the last events, by event_id
	message growing
}

// Bounds of the memory of an [EntryProjection].
const (
	maxProjectedCalls  = 1024
	maxProjectedBytes  = 4 << 20
	maxProjectedEvents = 1024
	maxJoinedBytes     = 64 << 10
	maxJoinedChunks    = 1000
)

// growing is an assistant message to which the next event may be appended.
type growing struct {
	first     string // event_id of its first event
	sequence  uint64 // of its last event; 0 for no message
	chunks    int
	index     int
	timestamp string
	content   string
	thread    thread
	key       string // of the API call, where known
}

// Project consumes the next event of the session and returns its entry; false for an event
// without an entry. The entry shares memory with e.
func (p *EntryProjection) Project(e *AgentEventV1) (NormalizedEntry, bool) {
	if e.Origin == OriginInjected {
		return NormalizedEntry{}, false
	}
	switch e.EventType {
	case UserMessage:
		return p.text(e, EntryUserMessage)
	case SystemMessage:
		return p.text(e, EntrySystemMessage)
	case AssistantMessage:
		return p.assistant(e)
	case Reasoning:
		return p.text(e, EntryThinking)
	case ToolCall:
		return p.call(e), true
	case ToolResult:
		return p.result(e), true
	case Log:
		return p.report(e)
	case FileSnapshot, SessionSummary, Meta:
		return NormalizedEntry{}, false
	default: // an event type of a later version of the schema
		return NormalizedEntry{}, false
	}
}

// entry returns the entry of an event at an index.
func entry(e *AgentEventV1, index int, t EntryType, content string) NormalizedEntry {
	return NormalizedEntry{Index: index, Timestamp: e.TS, Type: t, Content: content, Metadata: e.Metadata}
}

// place returns a new index for the entry of an event, or the index of the entry that it replaces.
func (p *EntryProjection) place(e *AgentEventV1) int {
	index, replaces := 0, false
	if e.Supersedes != "" {
		index, replaces = p.indexes.get(e.Supersedes)
	}
	if !replaces {
		index = p.next
		p.next++
	}
	p.indexes.put(e.EventID, index, 0, maxProjectedEvents, maxProjectedBytes)
	return index
}

// text returns the entry of an event whose content is its text.
func (p *EntryProjection) text(e *AgentEventV1, kind EntryKind) (NormalizedEntry, bool) {
	content := textOf(e.Text)
	if content == "" && kind == EntrySystemMessage {
		content = sessionLine(e)
	}
	if strings.TrimSpace(content) == "" {
		return NormalizedEntry{}, false
	}
	t := EntryType{Kind: kind}
	if kind == EntryThinking {
		t.Reasoning = content
	}
	return entry(e, p.place(e), t, content), true
}

// sessionLine returns the content of the message that begins a session; empty while the
// session has no metadata.
func sessionLine(e *AgentEventV1) string {
	if e.Metadata == nil {
		return ""
	}
	line := "Session: unknown"
	if e.Metadata.SessionID != nil {
		line = "Session: " + *e.Metadata.SessionID
	}
	if e.Metadata.Model != nil {
		line += ", Model: " + *e.Metadata.Model
	}
	return line
}

// assistant returns the entry of an assistant message, or the previous entry with the message
// appended.
func (p *EntryProjection) assistant(e *AgentEventV1) (NormalizedEntry, bool) {
	if e.Text == nil || *e.Text == "" {
		return NormalizedEntry{}, false
	}
	now := growing{first: e.EventID, sequence: e.Sequence, chunks: 1, timestamp: e.TS, content: *e.Text, thread: threadOf(e)}
	if e.Usage != nil {
		now.key = e.Usage.Key
	}
	before := p.message
	if sendsChunks[e.Source] && e.Supersedes == "" && now.follows(before) {
		now.first, now.index, now.timestamp = before.first, before.index, before.timestamp
		now.chunks, now.content = before.chunks+1, before.content+now.content
		if now.key == "" {
			now.key = before.key
		}
		p.message = now
		// The entry has several events now, none of which can be replaced alone.
		p.indexes.remove(now.first)
		joined := entry(e, now.index, EntryType{Kind: EntryAssistantMessage}, now.content)
		joined.Timestamp = now.timestamp
		return joined, true
	}
	now.index = p.place(e)
	if e.Supersedes == "" {
		p.message = now
	}
	return entry(e, now.index, EntryType{Kind: EntryAssistantMessage}, now.content), true
}

// follows reports whether g is the next chunk of before. The sequence proves that no other
// event is between them, even if the consumer filters events.
func (g growing) follows(before growing) bool {
	return before.sequence != 0 && g.sequence == before.sequence+1 && g.thread == before.thread &&
		(g.key == "" || before.key == "" || g.key == before.key) &&
		before.chunks < maxJoinedChunks && len(before.content)+len(g.content) <= maxJoinedBytes
}

// call returns the entry of a tool that begins.
func (p *EntryProjection) call(e *AgentEventV1) NormalizedEntry {
	use := inputOf(e).use()
	use.index = p.place(e)
	if e.ToolCallID != nil {
		p.calls.put(*e.ToolCallID, use, use.size(), maxProjectedCalls, maxProjectedBytes)
	}
	tool, content := use.call(e)
	return entry(e, use.index, EntryType{Kind: EntryToolUse, Tool: &tool}, content)
}

// result returns the complete entry of a tool. The call stays in memory, because a vendor can
// repeat a result with more data.
func (p *EntryProjection) result(e *AgentEventV1) NormalizedEntry {
	var use toolUse
	known := false
	if e.ToolCallID != nil {
		use, known = p.calls.get(*e.ToolCallID)
	}
	if !known {
		use = inputOf(e).use()
		use.index = p.place(e)
		if e.ToolCallID != nil {
			p.calls.put(*e.ToolCallID, use, use.size(), maxProjectedCalls, maxProjectedBytes)
		}
	}
	tool, content := use.outcome(e)
	n := entry(e, use.index, EntryType{Kind: EntryToolUse, Tool: &tool}, content)
	n.Timestamp = use.timestamp
	return n
}

// report returns the entry of an error that the vendor reports.
func (p *EntryProjection) report(e *AgentEventV1) (NormalizedEntry, bool) {
	if e.Metadata == nil {
		return NormalizedEntry{}, false
	}
	v := e.Metadata.Extensions["error"]
	if v == nil || v.Kind() == jsontext.KindNull {
		return NormalizedEntry{}, false
	}
	problem := membersOf(v)
	message, stated := problem.text("message")
	if s, ok := stringOf(v); ok {
		message, stated = s, true
	}
	if !stated && e.Text != nil {
		message = *e.Text
	}
	code, ok := problem.text("code")
	if !ok && problem.value("code").Kind() == jsontext.KindNumber {
		code = string(problem.value("code"))
	}
	content := message
	if e.Text != nil && *e.Text != "" {
		content = *e.Text
	}
	t := EntryType{Kind: EntryError, Error: &EntryReport{Message: message, Code: code}}
	return entry(e, p.place(e), t, content), true
}
