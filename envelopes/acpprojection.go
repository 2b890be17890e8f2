package envelopes

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// ACPProjection turns the events of one session, in their order, into messages of the Agent
// Communication Protocol. The zero value is ready to use; each session needs its own.
// [DecodeACPMessage] accepts every message of a projection.
//
//   - A user_message becomes a message of the role user. It completes the open message of the
//     agent that it addresses; a user_message of the main thread completes all open messages.
//   - All events of an agent from one user_message to the next become one message of the role
//     agent/<agent_id>, or agent/<source> without an agent_id: one message per thread, in the
//     order in which the threads began. Another agent of the same thread begins another
//     message: the events of an ACP run are one thread, whichever agent acts.
//   - An assistant_message becomes a text part, the only place of its text. The citations of
//     its message_metadata follow as parts of their own. Their ranges, which count characters
//     of the event's text, are shifted to count characters of the message. A citation whose
//     range is beyond the text loses its range.
//   - A reasoning becomes a part with a trajectory, whose message is its text. A tool_call and
//     its tool_result become one part with one trajectory. ACP wants input and output to be
//     objects, so any other value is wrapped: {"input": ...}, {"output": ...}, with "status"
//     and, if stated, "exit_code" for a failed tool. A result after the end of the message of
//     its call becomes a trajectory without input.
//   - A file_snapshot of one file becomes a part with the path as its name, and the content if
//     the event has it.
//   - An event that supersedes another event of an open message replaces its part.
//   - meta, log, system_message, session_summary and injected events yield nothing; nor does
//     metadata without any field set.
//
// created_at is the earliest time of the events of a message, completed_at the latest.
//
// Memory is bounded: at most 64 open messages, each of at most 4,096 parts and 4 MiB. At a
// limit the projection completes a message early and continues in a new one of the same role.
type ACPProjection struct {
	open []*acpDraft // in the order in which they began
}

// Bounds of the memory of an [ACPProjection].
const (
	maxOpenMessages = 64
	maxOpenParts    = 4096
	maxOpenBytes    = 4 << 20
)

// acpDraft is an open message.
type acpDraft struct {
	thread             thread
	role               string
	created, completed string
	items              []acpItem
	size               int            // approximate memory of items, in bytes
	calls              map[string]int // index of the item of a call, by tool_call_id
	events             map[string]int // index of the item of an event, by event_id
}

// acpItem is the contribution of one event, or of a call and its result, to a message: a part, and the citations
// after it, whose ranges count characters of the part.
type acpItem struct {
	part      ACPPart
	citations []ACPCitation
}

// Project consumes the next event of the session and returns the messages that it completes,
// in their order; usually none.
func (p *ACPProjection) Project(e *AgentEventV1) []ACPMessage {
	if e.Origin == OriginInjected {
		return nil
	}
	switch e.EventType {
	case UserMessage:
		return p.prompt(e)
	case AssistantMessage:
		if item, ok := textItem(e); ok {
			return p.add(e, item)
		}
	case Reasoning:
		if e.Text != nil {
			return p.step(e, ACPTrajectory{Message: e.Text})
		}
	case ToolCall:
		return p.step(e, ACPTrajectory{ToolName: e.ToolName, ToolInput: toolObject("input", e)})
	case ToolResult:
		return p.result(e)
	case FileSnapshot:
		if e.FilePath != nil && *e.FilePath != "" {
			return p.add(e, acpItem{part: artifact(e)})
		}
	case SystemMessage, SessionSummary, Meta, Log:
	}
	return nil
}

// End completes all open messages and returns them. The projection remains usable.
func (p *ACPProjection) End() []ACPMessage {
	return p.complete(func(*acpDraft) bool { return true })
}

// complete closes the open messages for which match is true and returns them.
func (p *ACPProjection) complete(match func(*acpDraft) bool) []ACPMessage {
	var completed []ACPMessage
	var open []*acpDraft
	for _, d := range p.open {
		if match(d) {
			completed = append(completed, d.message())
		} else {
			open = append(open, d)
		}
	}
	p.open = open
	return completed
}

// prompt returns the message of a user_message, after the messages that it completes.
func (p *ACPProjection) prompt(e *AgentEventV1) []ACPMessage {
	to := threadOf(e)
	messages := p.complete(func(d *acpDraft) bool { return to == (thread{}) || d.thread == to })
	if item, ok := textItem(e); ok {
		d := acpDraft{role: "user"}
		d.put(e, item)
		messages = append(messages, d.message())
	}
	return messages
}

// step adds a trajectory to the message of the agent, unless it is empty.
func (p *ACPProjection) step(e *AgentEventV1, t ACPTrajectory) []ACPMessage {
	if isEmpty(t.Message) && isEmpty(t.ToolName) && t.ToolInput == nil && t.ToolOutput == nil {
		return nil
	}
	return p.add(e, acpItem{part: ACPPart{ContentType: ACPTextPlain, ContentEncoding: ACPPlain, Metadata: &t}})
}

// result adds the output of a tool to the part of its call.
func (p *ACPProjection) result(e *AgentEventV1) []ACPMessage {
	output := toolObject("output", e)
	if e.ToolCallID != nil {
		for _, d := range p.open {
			i, ok := d.calls[*e.ToolCallID]
			if !ok {
				continue
			}
			t := *d.items[i].part.Metadata.(*ACPTrajectory)
			if isEmpty(t.ToolName) {
				t.ToolName = e.ToolName
			}
			if output != nil {
				d.size += len(output) - len(t.ToolOutput)
				t.ToolOutput = output
			}
			d.items[i].part.Metadata = &t
			d.extend(e)
			return p.enforceBounds()
		}
	}
	return p.step(e, ACPTrajectory{ToolName: e.ToolName, ToolOutput: output})
}

// add adds an item to the open message of its thread and agent.
func (p *ACPProjection) add(e *AgentEventV1, item acpItem) []ACPMessage {
	in, role := threadOf(e), roleOf(e)
	completed := p.complete(func(d *acpDraft) bool { return d.thread == in && d.role != role })
	i := slices.IndexFunc(p.open, func(d *acpDraft) bool { return d.thread == in })
	if i < 0 {
		i = len(p.open)
		p.open = append(p.open, &acpDraft{thread: in, role: role})
	}
	p.open[i].put(e, item)
	return append(completed, p.enforceBounds()...)
}

// enforceBounds completes a message that is at a bound.
func (p *ACPProjection) enforceBounds() []ACPMessage {
	for _, d := range p.open {
		if len(d.items) >= maxOpenParts || d.size > maxOpenBytes {
			return p.complete(func(other *acpDraft) bool { return other == d })
		}
	}
	if len(p.open) > maxOpenMessages {
		oldest := p.open[0]
		return p.complete(func(d *acpDraft) bool { return d == oldest })
	}
	return nil
}

// put adds an item, or replaces the item of the event that e supersedes.
func (d *acpDraft) put(e *AgentEventV1, item acpItem) {
	d.extend(e)
	d.size += item.size() + len(e.EventID)
	i, ok := d.events[e.Supersedes]
	if ok && e.Supersedes != "" {
		old := d.items[i]
		d.size -= old.size()
		if was, ok := old.part.Metadata.(*ACPTrajectory); ok {
			if now, ok := item.part.Metadata.(*ACPTrajectory); ok && now.ToolOutput == nil {
				now.ToolOutput = was.ToolOutput
				d.size += len(was.ToolOutput)
			}
		}
		d.items[i] = item
	} else {
		i = len(d.items)
		d.items = append(d.items, item)
	}
	if d.events == nil {
		d.events, d.calls = map[string]int{}, map[string]int{}
	}
	d.events[e.EventID] = i
	if _, ok := item.part.Metadata.(*ACPTrajectory); ok && e.ToolCallID != nil {
		d.size += len(*e.ToolCallID)
		d.calls[*e.ToolCallID] = i
	}
}

// extend extends the time span of the message to the time of e.
func (d *acpDraft) extend(e *AgentEventV1) {
	if d.created == "" || earlier(e.TS, d.created) {
		d.created = e.TS
	}
	if d.completed == "" || earlier(d.completed, e.TS) {
		d.completed = e.TS
	}
}

// earlier reports whether timestamp a is before b.
func earlier(a, b string) bool {
	at, errA := time.Parse(time.RFC3339Nano, a)
	bt, errB := time.Parse(time.RFC3339Nano, b)
	return errA == nil && errB == nil && at.Before(bt)
}

// size returns the approximate memory of an item, in bytes.
func (i *acpItem) size() int {
	n := 256
	for _, s := range []*string{i.part.Name, i.part.Content, i.part.ContentURL} {
		if s != nil {
			n += len(*s)
		}
	}
	if t, ok := i.part.Metadata.(*ACPTrajectory); ok {
		n += len(t.ToolInput) + len(t.ToolOutput)
		if t.Message != nil {
			n += len(*t.Message)
		}
	}
	for _, c := range i.citations {
		n += 64
		for _, s := range []*string{c.URL, c.Title, c.Description} {
			if s != nil {
				n += len(*s)
			}
		}
	}
	return n
}

// message returns the completed message.
func (d *acpDraft) message() ACPMessage {
	m := ACPMessage{Role: d.role, CreatedAt: &d.created, CompletedAt: &d.completed}
	var before int64 // characters of the preceding text parts
	for i := range d.items {
		item := &d.items[i]
		m.Parts = append(m.Parts, item.part)
		text, _ := item.part.Text()
		length := int64(utf8.RuneCountInString(text))
		for _, c := range item.citations {
			c.shift(before, length)
			m.Parts = append(m.Parts, ACPPart{ContentType: ACPTextPlain, ContentEncoding: ACPPlain, Metadata: &c})
		}
		before += length
	}
	return m
}

// shift moves the range of a citation by the characters that precede its text in the message.
// It drops a range beyond the text, which would point into another text.
func (c *ACPCitation) shift(by, length int64) {
	for _, index := range []*int64{c.StartIndex, c.EndIndex} {
		if index != nil && (*index < 0 || *index > length) {
			c.StartIndex, c.EndIndex = nil, nil
		}
	}
	if c.StartIndex != nil && c.EndIndex != nil && *c.StartIndex > *c.EndIndex {
		c.StartIndex, c.EndIndex = nil, nil
	}
	for _, index := range []**int64{&c.StartIndex, &c.EndIndex} {
		if *index != nil {
			*index = new(**index + by)
		}
	}
}

// roleOf returns the role of the agent of an event. Characters that a role cannot hold become
// a dash.
func roleOf(e *AgentEventV1) string {
	name := string(e.Source)
	if e.AgentID != nil && *e.AgentID != "" {
		name = *e.AgentID
	}
	return "agent/" + strings.Map(func(r rune) rune {
		if isDigit(byte(r)) && r < utf8.RuneSelf || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || r == '_' || r == '-' {
			return r
		}
		return '-'
	}, name)
}

// textItem returns the text of an event as a part with its citations; false without text.
func textItem(e *AgentEventV1) (acpItem, bool) {
	if isEmpty(e.Text) {
		return acpItem{}, false
	}
	item := acpItem{part: ACPPart{ContentType: ACPTextPlain, ContentEncoding: ACPPlain, Content: e.Text}}
	list, _ := listOf(e.MessageMetadata)
	for _, v := range list {
		m, err := decodeACPMetadata(v, "")
		if c, ok := m.(*ACPCitation); err == nil && ok && *c != (ACPCitation{}) {
			item.citations = append(item.citations, *c)
		}
	}
	return item, true
}

// artifact returns the file of an event as a named part. Without a stated content type it is
// text for an event with text, else binary.
func artifact(e *AgentEventV1) ACPPart {
	p := ACPPart{Name: e.FilePath, ContentType: ACPTextPlain, ContentEncoding: ACPPlain, Content: e.Text}
	switch c := e.Content; {
	case c == nil && e.Text == nil:
		p.ContentType = "application/octet-stream"
	case c == nil:
	case c.Data != nil:
		p.ContentType, p.Content, p.ContentEncoding = c.Type, c.Data, ACPBase64
	case e.Text != nil:
		p.ContentType = c.Type
	case c.URL != nil && isURL(*c.URL):
		p.ContentType, p.ContentURL = c.Type, c.URL
	default:
		p.ContentType = c.Type
	}
	return p
}

// maxObjectDepth bounds the nesting of an object in the metadata of a part, so that
// [DecodeACPMessage] accepts the message.
const maxObjectDepth = maxDepth - 1 - 4

// toolObject returns the text of a tool's event as the object that ACP requires. It wraps any
// other text under name: a JSON array as it is, everything else as a string. It returns nil
// for an event without text, unless its tool failed.
func toolObject(name string, e *AgentEventV1) jsontext.Value {
	wrapped := map[string]jsontext.Value{}
	if e.Text != nil {
		value := jsonOf(*e.Text)
		switch {
		case value.Kind() == jsontext.KindBeginObject && !deeper(value, maxObjectDepth):
			return value
		case value.Kind() != jsontext.KindBeginArray, deeper(value, maxObjectDepth-1):
			value = quoted(*e.Text)
		}
		wrapped[name] = value
	}
	if e.EventType == ToolResult && statusOf(e) == EntryFailed {
		wrapped["status"] = jsontext.Value(`"error"`)
		if e.ToolExitCode != nil {
			wrapped["exit_code"] = strconv.AppendInt(nil, *e.ToolExitCode, 10)
		}
	}
	if len(wrapped) == 0 {
		return nil
	}
	object, _ := json.Marshal(wrapped, json.Deterministic(true)) // of strict JSON
	return object
}

// isEmpty reports whether there is no text.
func isEmpty(s *string) bool { return s == nil || *s == "" }

// textOf returns the text, empty for nil.
func textOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
