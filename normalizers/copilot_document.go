package normalizers

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
)

// The one document of a session that versions before events.jsonl kept
// (~/.copilot/history-session-state): {sessionId, startTime, chatMessages, timeline}. It
// is written again with every change, so that only what is new is told. The timeline is
// what happened; chatMessages are what the model was sent of it.

// copilotEntry is an entry of the timeline.
type copilotEntry struct {
	Type      text                `json:"type"`
	ID        text                `json:"id"`
	Timestamp text                `json:"timestamp"`
	Text      text                `json:"text"`
	CallID    text                `json:"callId"`
	Name      text                `json:"name"`
	Arguments jsontext.Value      `json:"arguments"`
	Result    object[copilotTold] `json:"result"`
}

// copilotTold is a result in the timeline.
type copilotTold struct {
	Type text `json:"type"`
	Log  text `json:"log"`
}

// document maps the whole of a session. Of its entries those that cannot have changed are
// passed over.
func (c *copilotFold) document() SkipReason {
	c.s.setResumeID(string(c.SessionID))
	var entries []jsontext.Value
	if c.Timeline.Kind() == '[' {
		entries = elementsOf(c.Timeline)
	}
	if len(entries) == 0 {
		c.runtime(envelopes.Meta, "") // of a shape that is not known, or with nothing in it
		return SkipDuplicate
	}
	before := c.s.Copilot.Document
	from := 0
	if before.Messages > 0 && before.Messages <= len(entries) && digestOf(entries[:before.Messages]) == before.Digest {
		from = before.Messages
	}
	for i := from; i < len(entries); i++ {
		var e copilotEntry
		readObject(entries[i], &e)
		c.begin(i+1, entries[i], e.Timestamp)
		c.entry(&e)
		c.end()
	}
	if n := max(0, len(entries)-geminiTail); n > 0 {
		c.s.Copilot.Document = geminiDocument{n, digestOf(entries[:n])}
	}
	return SkipDuplicate
}

// begin starts the work on the n-th entry.
func (c *copilotFold) begin(n int, raw jsontext.Value, timestamp text) {
	c.number, c.unnamed, c.raw, c.first = n, 0, raw, -1
	if ts, ok := parseTime(string(timestamp)); ok {
		c.ts = ts
	} else if c.s.TS != "" {
		c.ts = c.s.TS
	}
}

// end finishes an entry: its first event carries it.
func (c *copilotFold) end() {
	if c.first >= 0 {
		c.events[c.first].Event.Raw = carried(c.raw)
		c.own = true
	}
	c.number, c.raw, c.first = 0, c.r.Data, -1
}

// place is the id of an entry without one: its place in the timeline.
func (c *copilotFold) place() text {
	id := "@" + strconv.Itoa(c.number)
	if c.unnamed > 0 {
		id += "." + strconv.Itoa(c.unnamed)
	}
	c.unnamed++
	return text(id)
}

// entry maps an entry of the timeline.
func (c *copilotFold) entry(e *copilotEntry) {
	c.ID, c.Data = cmp.Or(e.ID, c.place()), c.raw
	words := draft{on: envelopes.ChannelChat}
	words.Text = e.Text.ptr()
	blank := strings.TrimSpace(string(e.Text)) == ""
	switch {
	case e.Type == "user" && !blank:
		words.EventType = envelopes.UserMessage
		c.put(c.ID, words)
	case (e.Type == "copilot" || e.Type == "assistant") && !blank:
		words.EventType, words.Model = envelopes.AssistantMessage, c.speaker()
		c.put(c.ID, words)
	case e.Type == "tool_call_requested":
		c.entryCall(e)
	case e.Type == "tool_call_completed":
		c.entryCall(e)
		is := &e.Result.value
		o := copilotOutcome{words: string(is.Log), some: e.Result.ok, success: is.Type == "success"}
		o.failed = is.Type != "" && !o.success
		id := e.CallID
		if id == "" {
			id = c.ID
		}
		c.result(id, e.Name, o)
	case e.Type == "error":
		c.fail("", e.Text)
	default:
		c.runtime(envelopes.Meta, e.Text)
	}
}

// entryCall emits the call of an entry, unless an earlier one did: when it is done, the
// entry of a request becomes that of its result.
func (c *copilotFold) entryCall(e *copilotEntry) {
	id := e.CallID
	if id == "" {
		id = c.ID
	}
	if !c.s.knows(string(id)) {
		c.made(id, e.Name, e.Arguments)
	}
}
