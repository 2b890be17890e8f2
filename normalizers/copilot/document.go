package copilot

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// The one document of a session that versions before events.jsonl kept
// (~/.copilot/history-session-state): {sessionId, startTime, chatMessages, timeline}. It
// is written again with every change, so that only what is new is told. The timeline is
// what happened; chatMessages are what the model was sent of it.

// entry is an entry of the timeline.
type entry struct {
	Type      lenient.Text         `json:"type"`
	ID        lenient.Text         `json:"id"`
	Timestamp lenient.Text         `json:"timestamp"`
	Text      lenient.Text         `json:"text"`
	CallID    lenient.Text         `json:"callId"`
	Name      lenient.Text         `json:"name"`
	Arguments jsontext.Value       `json:"arguments"`
	Result    lenient.Object[told] `json:"result"`
}

// told is a result in the timeline.
type told struct {
	Type lenient.Text `json:"type"`
	Log  lenient.Text `json:"log"`
}

// document maps the whole of a session. Of its entries those that cannot have changed are
// passed over.
func (c *mapper) document() core.SkipReason {
	c.Session.SetResumeID(string(c.SessionID))
	var entries []jsontext.Value
	if c.Timeline.Kind() == '[' {
		entries = lenient.Elements(c.Timeline)
	}
	if len(entries) == 0 {
		c.runtime(envelopes.Meta, "") // of a shape that is not known, or with nothing in it
		return core.SkipDuplicate
	}
	before := c.st.Document
	from := 0
	if before.Messages > 0 && before.Messages <= len(entries) && core.DigestOf(entries[:before.Messages]) == before.Digest {
		from = before.Messages
	}
	for i := from; i < len(entries); i++ {
		var e entry
		lenient.ReadObject(entries[i], &e)
		c.begin(i+1, entries[i], e.Timestamp)
		c.entry(&e)
		c.end()
	}
	if n := max(0, len(entries)-core.DocumentTail); n > 0 {
		c.st.Document = core.DocumentHead{Messages: n, Digest: core.DigestOf(entries[:n])}
	}
	return core.SkipDuplicate
}

// begin starts the work on the n-th entry.
func (c *mapper) begin(n int, raw jsontext.Value, timestamp lenient.Text) {
	c.number, c.unnamed, c.Raw, c.First = n, 0, raw, -1
	if ts, ok := core.ParseTime(string(timestamp)); ok {
		c.TS = ts
	} else if c.Session.TS != "" {
		c.TS = c.Session.TS
	}
}

// end finishes an entry: its first event carries it.
func (c *mapper) end() {
	if c.First >= 0 {
		c.Events[c.First].Event.Raw = core.EventRaw(c.Raw)
		c.own = true
	}
	c.number, c.Raw, c.First = 0, c.Record.Data, -1
}

// place is the id of an entry without one: its place in the timeline.
func (c *mapper) place() lenient.Text {
	id := "@" + strconv.Itoa(c.number)
	if c.unnamed > 0 {
		id += "." + strconv.Itoa(c.unnamed)
	}
	c.unnamed++
	return lenient.Text(id)
}

// entry maps an entry of the timeline.
func (c *mapper) entry(e *entry) {
	c.ID, c.Data = cmp.Or(e.ID, c.place()), c.Raw
	words := core.Draft{OnChannel: envelopes.ChannelChat}
	words.Text = e.Text.Ptr()
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
		is := &e.Result.Value
		o := outcome{words: string(is.Log), some: e.Result.OK, success: is.Type == "success"}
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
func (c *mapper) entryCall(e *entry) {
	id := e.CallID
	if id == "" {
		id = c.ID
	}
	if !c.Session.HasEvent(string(id)) {
		c.made(id, e.Name, e.Arguments)
	}
}
