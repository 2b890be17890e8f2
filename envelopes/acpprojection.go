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

// ACPProjection turns the events of one session, in their order, into messages of the
// Agent Communication Protocol (seed acp-message-metadata). The zero value is ready: one
// for each session. Every message that it makes is one that [DecodeACPMessage] accepts.
//
//   - A user_message is a message of the role user, whoever prompted. It ends the message
//     of the agent that it speaks to; one of the main conversation ends those of all.
//   - All that an agent says and does from one user_message to the next is one message of
//     the role agent/<agent_id>, or agent/<source> where there is no agent_id: one for each
//     thread, in the order in which they began. In ACP itself, where a run is one thread,
//     another agent begins another message.
//   - An assistant_message is a text part, its text nowhere else. The citations of its
//     message_metadata follow as parts of their own: their ranges, which count the
//     characters of the event's text, count those of the message. A range beyond the text
//     is dropped; the citation then belongs to its place.
//   - A reasoning is a part with a trajectory that has its text as message. A tool_call and
//     its tool_result are one part with one trajectory (seed-features C24). Input and output
//     are objects: what is none is wrapped, {"input": ..} and {"output": ..}, the output of
//     a tool that failed with "status" and, where it is stated, "exit_code" (C18). A result
//     behind the end of its message is a trajectory without input.
//   - A file_snapshot of one file is a part with its path as name, with content where the
//     event has it.
//   - An event that supersedes another one of a message that is still open takes its place.
//   - meta, log, system_message, session_summary and all that is injected have no place in
//     ACP and yield nothing; nor does metadata in which nothing is set.
//
// created_at is the earliest time of the events of a message, completed_at the latest.
//
// What it remembers is bounded: the open messages, at most 64 of them, each up to 4,096
// parts and 4 MiB. Beyond that a message is ended and another of its role goes on.
type ACPProjection struct {
	open []*acpDraft // in the order in which they began
}

// Limits of what an [ACPProjection] remembers.
const (
	maxOpenMessages = 64
	maxOpenParts    = 4096
	maxOpenBytes    = 4 << 20
)

// acpDraft is a message that is being written.
type acpDraft struct {
	thread             thread
	role               string
	created, completed string
	items              []acpItem
	size               int            // about how many bytes items keep
	calls              map[string]int // index of the item of a call, by tool_call_id
	events             map[string]int // index of the item of an event, by event_id
}

// acpItem is what one event, or a call with its result, adds to a message: a part, and
// the citations that follow it. Their ranges count the text of the part.
type acpItem struct {
	part      ACPPart
	citations []ACPCitation
}

// Project takes the next event of the session and returns the messages that end with it,
// in their order; usually none.
func (p *ACPProjection) Project(e *AgentEventV1) []ACPMessage {
	if e.Origin == OriginInjected {
		return nil
	}
	switch e.EventType {
	case UserMessage:
		return p.prompt(e)
	case AssistantMessage:
		if item, ok := spoken(e); ok {
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

// End ends all messages that are open and returns them. A projection can go on after it.
func (p *ACPProjection) End() []ACPMessage {
	return p.end(func(*acpDraft) bool { return true })
}

// end ends the open messages that are asked for.
func (p *ACPProjection) end(which func(*acpDraft) bool) []ACPMessage {
	var ended []ACPMessage
	var open []*acpDraft
	for _, d := range p.open {
		if which(d) {
			ended = append(ended, d.message())
		} else {
			open = append(open, d)
		}
	}
	p.open = open
	return ended
}

// prompt is a message to an agent. It ends what that agent was saying.
func (p *ACPProjection) prompt(e *AgentEventV1) []ACPMessage {
	to := threadOf(e)
	messages := p.end(func(d *acpDraft) bool { return to == (thread{}) || d.thread == to })
	if item, ok := spoken(e); ok {
		d := acpDraft{role: "user"}
		d.put(e, item)
		messages = append(messages, d.message())
	}
	return messages
}

// step adds a trajectory to the message of the agent, unless nothing is in it.
func (p *ACPProjection) step(e *AgentEventV1, t ACPTrajectory) []ACPMessage {
	if isEmpty(t.Message) && isEmpty(t.ToolName) && t.ToolInput == nil && t.ToolOutput == nil {
		return nil
	}
	return p.add(e, acpItem{part: ACPPart{ContentType: ACPTextPlain, ContentEncoding: ACPPlain, Metadata: &t}})
}

// result puts the output of a tool to its call.
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
			d.happened(e)
			return p.cut()
		}
	}
	return p.step(e, ACPTrajectory{ToolName: e.ToolName, ToolOutput: output})
}

// add adds an item to the message of its thread and agent.
func (p *ACPProjection) add(e *AgentEventV1, item acpItem) []ACPMessage {
	in, role := threadOf(e), roleOf(e)
	ended := p.end(func(d *acpDraft) bool { return d.thread == in && d.role != role })
	i := slices.IndexFunc(p.open, func(d *acpDraft) bool { return d.thread == in })
	if i < 0 {
		i = len(p.open)
		p.open = append(p.open, &acpDraft{thread: in, role: role})
	}
	p.open[i].put(e, item)
	return append(ended, p.cut()...)
}

// cut ends the messages that are beyond the limits.
func (p *ACPProjection) cut() []ACPMessage {
	for _, d := range p.open {
		if len(d.items) >= maxOpenParts || d.size > maxOpenBytes {
			return p.end(func(other *acpDraft) bool { return other == d })
		}
	}
	if len(p.open) > maxOpenMessages {
		oldest := p.open[0]
		return p.end(func(d *acpDraft) bool { return d == oldest })
	}
	return nil
}

// put adds an item, or puts it in the place of the one that its event supersedes.
func (d *acpDraft) put(e *AgentEventV1, item acpItem) {
	d.happened(e)
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

// happened takes the time of an event into that of its message.
func (d *acpDraft) happened(e *AgentEventV1) {
	if d.created == "" || earlier(e.TS, d.created) {
		d.created = e.TS
	}
	if d.completed == "" || earlier(d.completed, e.TS) {
		d.completed = e.TS
	}
}

// earlier reports whether one ts is before another.
func earlier(a, b string) bool {
	at, errA := time.Parse(time.RFC3339Nano, a)
	bt, errB := time.Parse(time.RFC3339Nano, b)
	return errA == nil && errB == nil && at.Before(bt)
}

// size is about how many bytes an item keeps.
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

// message is the message that was written.
func (d *acpDraft) message() ACPMessage {
	m := ACPMessage{Role: d.role, CreatedAt: &d.created, CompletedAt: &d.completed}
	var before int64 // characters of the text parts in front
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

// shift moves the range of a citation of a text to where the text stands in its message.
// A range that is none of the text is dropped: it would point into other words.
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

// roleOf is the role of the agent that an event is of. Characters that no role holds
// become a dash.
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

// spoken is the text of an event as a part, with its citations; false when there is none.
func spoken(e *AgentEventV1) (acpItem, bool) {
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

// artifact is the file of an event as a named part. What kind of content it has is only
// in the record; without it the text of the event is taken for text, and a file without
// text for one of any kind.
func artifact(e *AgentEventV1) ACPPart {
	if told := membersOf(e.Raw).value("part"); e.Source == ACP && told != nil {
		p, err := DecodeACPPart(told)
		if err == nil && p.Name != nil && *p.Name == *e.FilePath {
			p.Metadata, p.Extra = nil, nil
			return p
		}
	}
	p := ACPPart{Name: e.FilePath, ContentType: ACPTextPlain, ContentEncoding: ACPPlain, Content: e.Text}
	if e.Text == nil {
		p.ContentType = "application/octet-stream"
	}
	return p
}

// maxObjectDepth is how deep an object may be nested that stands in the metadata of a part
// of a message, so that the message can be read.
const maxObjectDepth = maxDepth - 1 - 4

// toolObject is the text of a tool's event as the object that ACP wants. A text that is
// none is wrapped under a name: a JSON array as it is, all else as a string. Nil when there
// is nothing to tell.
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
