package envelopes

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// EntryProjection turns the events of one session, in their order, into entries as a user
// interface shows them (seed standardized-metadata). The zero value is ready: one for each
// session.
//
//   - A user_message (whoever prompted), system_message, assistant_message or reasoning is
//     an entry of that kind; one without any text is none, but for the system_message that begins a session
//     (content "Session: <id>, Model: <model>").
//   - A tool_call and its tool_result are one entry, told twice with the index of the call
//     (seed-features C4). A result whose call was not seen is an entry alone.
//   - Chunks of one message are one entry: an assistant_message of Claude Code or Cursor
//     that follows right behind another of its thread, with no other event between them
//     and not of another API call, is joined to it without a separator and told again.
//   - A log with metadata.error is an error.
//   - An event that supersedes another takes its index.
//   - meta, other logs, file_snapshot, session_summary and all that is injected have no
//     kind of entry and yield none.
//
// What it remembers is bounded: the last 1,024 calls (of at most 4 MiB together), the ids of
// the last 1,024 events with an entry, and the assistant message that may still grow: by up
// to 1,000 chunks, to 64 KiB. A result or a replacement of something older is an entry of
// its own, and so is a chunk beyond that.
//
// Indexes count the entries of this projection from 0. One that begins in the middle of a
// session counts from there.
type EntryProjection struct {
	next    int // index of the next entry
	calls   recent[toolUse]
	indexes recent[int] // of the last events, by their ids
	message growing
}

// Limits of what an [EntryProjection] remembers.
const (
	maxProjectedCalls  = 1024
	maxProjectedBytes  = 4 << 20
	maxProjectedEvents = 1024
	maxJoinedBytes     = 64 << 10
	maxJoinedChunks    = 1000
)

// growing is the assistant message that the next event may add to.
type growing struct {
	first     string // id of the event that began it
	sequence  uint64 // of its last event; 0 when there is none
	chunks    int
	index     int
	timestamp string
	content   string
	thread    thread
	key       string // of the API call, where known
}

// Project takes the next event of the session and returns its entry; false when it has
// none. The entry shares memory with e.
func (p *EntryProjection) Project(e *AgentEventV1) (NormalizedEntry, bool) {
	if e.Origin == OriginInjected {
		return NormalizedEntry{}, false
	}
	switch e.EventType {
	case UserMessage:
		return p.say(e, EntryUserMessage)
	case SystemMessage:
		return p.say(e, EntrySystemMessage)
	case AssistantMessage:
		return p.assistant(e)
	case Reasoning:
		return p.say(e, EntryThinking)
	case ToolCall:
		return p.call(e), true
	case ToolResult:
		return p.result(e), true
	case Log:
		return p.report(e)
	case FileSnapshot, SessionSummary, Meta:
		return NormalizedEntry{}, false
	default: // of a later version of the schema
		return NormalizedEntry{}, false
	}
}

// entry is the entry of an event, at an index.
func entry(e *AgentEventV1, index int, t EntryType, content string) NormalizedEntry {
	return NormalizedEntry{Index: index, Timestamp: e.TS, Type: t, Content: content, Metadata: e.Metadata}
}

// place is the index of the entry that an event begins, or of the one that it replaces.
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

// say makes an entry of words.
func (p *EntryProjection) say(e *AgentEventV1, kind EntryKind) (NormalizedEntry, bool) {
	words := ""
	if e.Text != nil {
		words = *e.Text
	}
	if words == "" && kind == EntrySystemMessage {
		words = sessionLine(e)
	}
	if strings.TrimSpace(words) == "" {
		return NormalizedEntry{}, false
	}
	t := EntryType{Kind: kind}
	if kind == EntryThinking {
		t.Reasoning = words
	}
	return entry(e, p.place(e), t, words), true
}

// sessionLine is the content of the message that begins a session; empty while nothing is
// known of it.
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
	if mode, ok := stringOf(e.Metadata.Extensions["permissionMode"]); ok && e.Source == Cursor {
		line += ", Mode: " + mode
	}
	return line
}

// assistant makes an entry of an assistant message, or adds it to the one before it.
func (p *EntryProjection) assistant(e *AgentEventV1) (NormalizedEntry, bool) {
	if e.Text == nil || *e.Text == "" {
		return NormalizedEntry{}, false
	}
	now := growing{first: e.EventID, sequence: e.Sequence, chunks: 1, timestamp: e.TS, content: *e.Text, thread: threadOf(e)}
	if e.Usage != nil {
		now.key = e.Usage.Key
	}
	before := p.message
	streams := e.Source == ClaudeCode || e.Source == Cursor
	if streams && e.Supersedes == "" && now.follows(before) {
		now.first, now.index, now.timestamp = before.first, before.index, before.timestamp
		now.chunks, now.content = before.chunks+1, before.content+now.content
		if now.key == "" {
			now.key = before.key
		}
		p.message = now
		// The entry is of several events now, none of which can be replaced alone.
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

// follows reports whether g is the next chunk of before. The sequence says that no other
// event is between them, also where not all events are shown.
func (g growing) follows(before growing) bool {
	return before.sequence != 0 && g.sequence == before.sequence+1 && g.thread == before.thread &&
		(g.key == "" || before.key == "" || g.key == before.key) &&
		before.chunks < maxJoinedChunks && len(before.content)+len(g.content) <= maxJoinedBytes
}

// call makes an entry of a tool that begins.
func (p *EntryProjection) call(e *AgentEventV1) NormalizedEntry {
	use := inputOf(e).use()
	use.index = p.place(e)
	if e.ToolCallID != nil {
		p.calls.put(*e.ToolCallID, use, use.size(), maxProjectedCalls, maxProjectedBytes)
	}
	tool, content := use.call(e)
	return entry(e, use.index, EntryType{Kind: EntryToolUse, Tool: &tool}, content)
}

// result makes the entry of a tool complete. The call stays remembered: a vendor can tell
// a result again, with more.
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

// report makes an entry of an error that the vendor reports.
func (p *EntryProjection) report(e *AgentEventV1) (NormalizedEntry, bool) {
	if e.Metadata == nil {
		return NormalizedEntry{}, false
	}
	v := e.Metadata.Extensions["error"]
	if v == nil || v.Kind() == jsontext.KindNull {
		return NormalizedEntry{}, false
	}
	problem := membersOf(v)
	message, told := problem.text("message")
	if s, ok := stringOf(v); ok {
		message, told = s, true
	}
	if !told && e.Text != nil {
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
