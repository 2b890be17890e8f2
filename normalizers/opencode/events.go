package opencode

import (
	"cmp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// Bounds of what a session remembers of messages whose parts come one by one.
const (
	maxMessages    = 32
	maxPending     = 4
	maxPendingText = 48 << 10 // bytes of the texts of all pending parts, in JSON
)

// pendingPart is a text that still grows, as its last update has it.
type pendingPart struct {
	ID        string       `json:"id"`
	Message   message      `json:"msg"`
	Reasoning bool         `json:"r,omitzero"`
	Text      string       `json:"t"`
	Cut       bool         `json:"c,omitzero"` // Text is not all of it
	TS        string       `json:"ts,omitzero"`
	From      core.Pending `json:"from"`
}

// properties are those of an event of the server.
type properties struct {
	SessionID lenient.Text           `json:"sessionID"`
	Info      jsontext.Value         `json:"info"`
	Part      jsontext.Value         `json:"part"`
	MessageID lenient.Text           `json:"messageID"`
	PartID    lenient.Text           `json:"partID"`
	Field     lenient.Text           `json:"field"`
	Delta     lenient.Text           `json:"delta"`
	Error     jsontext.Value         `json:"error"`
	Status    lenient.Object[status] `json:"status"`
	Branch    lenient.Text           `json:"branch"`
}

type status struct {
	Type    lenient.Text `json:"type"`
	Message lenient.Text `json:"message"`
}

// event maps an event of the server by its type.
func (c *mapper) event() {
	var in properties
	lenient.ReadObject(c.Properties, &in)
	switch c.Type {
	case "message.updated":
		c.messageUpdated(in.Info)
	case "message.part.updated":
		c.partUpdated(in.Part)
	case "message.part.delta":
		c.partDelta(&in)
	case "message.removed", "message.part.removed":
		c.learnSessionID(in.SessionID)
		c.release(func(p *pendingPart) bool {
			return p.ID == core.BoundID(string(in.PartID)) || in.PartID == "" && p.Message.ID == core.FingerprintOf(string(in.MessageID))
		})
		c.runtime("", envelopes.Meta, "")
	case "session.created", "session.updated":
		c.sessionUpdated(in.Info)
	case "session.error":
		c.learnSessionID(in.SessionID)
		c.releaseAll()
		c.sessionError(in.Error)
	case "session.idle":
		c.releaseAll()
		c.skip = core.SkipHeartbeat
	case "session.status":
		c.learnSessionID(in.SessionID)
		c.sessionStatus(&in.Status.Value)
	case "vcs.branch.updated": // of the folder of the server
		c.learnSessionID(in.SessionID)
		c.Session.SetBranch(in.Branch)
		c.runtime("", envelopes.Meta, "")
	case "session.diff", "file.edited", "todo.updated": // a tool part states it
		c.skip = core.SkipMirror
	default:
		c.otherEvent(string(c.Type), in.SessionID)
	}
}

// otherEvent maps an event by the family of its type.
func (c *mapper) otherEvent(kind string, session lenient.Text) {
	switch {
	case isHeartbeat(kind):
		c.skip = core.SkipHeartbeat
	case knownEvents[c.Type]:
		c.learnSessionID(session)
		c.runtime("", envelopes.Meta, "")
	default:
		c.Unknown(core.UnknownRecord, c.Type)
		c.put("", core.UnknownDraft())
	}
}

// isHeartbeat reports whether an event is of the server or of an editor, not of a session.
func isHeartbeat(kind string) bool {
	for _, prefix := range []string{"server.", "lsp.", "installation.", "custom."} {
		if strings.HasPrefix(kind, prefix) {
			return true
		}
	}
	return false
}

// runLine maps a line of `opencode run --format json`: a part in its final form, or an error.
func (c *mapper) runLine() {
	switch {
	case c.Part.Kind() == '{':
		c.learnSessionID(c.SessionID)
		var p part
		lenient.ReadObject(c.Part, &p)
		c.part(c.messageOf(&p), &p, vendorID(p.ID))
	case c.Type == "error":
		c.learnSessionID(c.SessionID)
		c.sessionError(c.Error)
	default:
		c.Unknown(core.UnknownRecord, c.Type)
		c.put("", core.UnknownDraft())
	}
}

// sessionUpdated maps what the server states of the session.
func (c *mapper) sessionUpdated(v jsontext.Value) {
	var in session
	lenient.ReadObject(v, &in)
	if ts, ok := core.TimeOfMillis(in.Time.Value.Updated); ok {
		c.TS = ts
	}
	c.session(&in)
}

// sessionStatus emits that a call is tried again, and why.
func (c *mapper) sessionStatus(s *status) {
	switch s.Type {
	case "retry":
		c.put("", c.failure("retry", string(s.Message)))
	case "idle":
		c.releaseAll()
		c.skip = core.SkipHeartbeat
	default:
		if s.Type != "busy" {
			c.Unknown(core.UnknownRecord, c.Type, s.Type)
		}
		c.skip = core.SkipHeartbeat
	}
}

// messageUpdated maps what the server states of a message, of which the parts come in events
// of their own. When the message is done its parts are too.
func (c *mapper) messageUpdated(v jsontext.Value) {
	var in info
	lenient.ReadObject(v, &in)
	m := c.learn(&in)
	c.remember(m)
	at := in.Time.Value.Created
	if in.Time.Value.Completed.OK {
		at = in.Time.Value.Completed
	}
	if ts, ok := core.TimeOfMillis(at); ok {
		c.TS = ts
	}
	if in.Time.Value.Completed.OK || lenient.IsValue(in.Error) {
		c.release(func(p *pendingPart) bool { return p.Message.ID == m.ID })
	}
	c.skip = core.SkipProgress
	c.messageError(m, in.Error)
	if m.key == "" {
		return // its step-finish is what it can be known by
	}
	t := in.used()
	c.bill(m, t, func() int { return c.carrier(m, t, len(c.Events)) })
}

// remember keeps what is known of a message for its parts.
func (c *mapper) remember(m message) {
	m.key = "" // not remembered
	others := c.st.Messages.Without(func(o message) bool { return o.ID == m.ID })
	c.st.Messages = others.Push(m, maxMessages, nil)
}

// messageOf returns what is known of the message of a part.
func (c *mapper) messageOf(p *part) message {
	c.learnSessionID(p.SessionID)
	m := message{ID: core.FingerprintOf(string(p.MessageID)), Model: c.Session.Model}
	for _, known := range c.st.Messages {
		if known.ID == m.ID {
			m = known
		}
	}
	m.key = vendorID(p.MessageID)
	return m
}

// partUpdated maps a part as it is now. A text of the model is pending until it states its
// end.
func (c *mapper) partUpdated(v jsontext.Value) {
	var p part
	lenient.ReadObject(v, &p)
	m := c.messageOf(&p)
	c.TS = cmp.Or(partTS(&p), stateTS(&p.State.Value), max(m.Created, c.TS))
	c.dropPending(string(p.ID))
	grows := p.Type == "reasoning" || p.Type == "text" && m.Role == roleAssistant && !bool(p.Synthetic) && !bool(p.Ignored)
	if grows && !p.Time.Value.End.OK && vendorID(p.ID) != "" {
		c.hold(m, &p)
		return
	}
	c.part(m, &p, vendorID(p.ID))
}

// stateTS is when a tool was done, else when it began; empty where it states neither.
func stateTS(s *toolState) string { return partTS(&part{Time: s.Time}) }

// hold makes a text that still grows pending.
func (c *mapper) hold(m message, p *part) {
	c.skip = core.SkipProgress
	h := pendingPart{
		ID: core.BoundID(string(p.ID)), Message: m, Reasoning: p.Type == "reasoning",
		TS: cmp.Or(partTS(p), m.Created), From: c.PendingRecord(),
	}
	h.Message.key = ""
	h.setText(string(p.Text))
	c.push(h)
}

// push adds a pending part. The oldest are emitted as they are until there is room for it.
func (c *mapper) push(h pendingPart) {
	for len(c.st.Pending) > 0 && (len(c.st.Pending) == maxPending || pendingSize(c.st.Pending)+quotedLen(h.Text) > maxPendingText) {
		oldest := c.st.Pending[0].ID
		c.release(func(p *pendingPart) bool { return p.ID == oldest })
	}
	c.st.Pending = c.st.Pending.Push(h, maxPending, nil)
}

// pendingSize is how many bytes the texts of parts take in an encoded session.
func pendingSize(parts []pendingPart) int {
	n := 0
	for i := range parts {
		n += quotedLen(parts[i].Text)
	}
	return n
}

func quotedLen(s string) int { return len(lenient.AppendQuote(nil, s)) }

// setText keeps as much of a text as a session may.
func (p *pendingPart) setText(s string) {
	p.Text = s
	for !core.FitsJSON(p.Text, maxPendingText-2) {
		p.Text, p.Cut = core.Cut(p.Text, len(p.Text)*3/4), true
	}
}

// partDelta adds to a pending text.
func (c *mapper) partDelta(in *properties) {
	c.skip = core.SkipProgress
	id := core.BoundID(string(in.PartID))
	i := slices.IndexFunc(c.st.Pending, func(p pendingPart) bool { return p.ID == id })
	if i < 0 || in.Field != "text" || c.st.Pending[i].Cut {
		return // the last update of the part has all of it
	}
	h := c.st.Pending[i]
	c.dropPending(id)
	h.From = c.PendingRecord()
	h.setText(h.Text + string(in.Delta))
	c.push(h)
}

// dropPending forgets a pending part: it came in a later form.
func (c *mapper) dropPending(id string) {
	c.st.Pending = c.st.Pending.Without(func(p pendingPart) bool { return p.ID == core.BoundID(id) })
}

// releaseAll emits all pending parts.
func (c *mapper) releaseAll() { c.release(func(*pendingPart) bool { return true }) }

// release emits the pending parts that match, as they are.
func (c *mapper) release(match func(*pendingPart) bool) {
	var kept core.Window[pendingPart]
	var out []pendingPart
	for _, p := range c.st.Pending {
		if match(&p) {
			out = append(out, p)
		} else {
			kept = append(kept, p)
		}
	}
	if len(out) == 0 {
		return
	}
	c.st.Pending = kept
	for i := range out {
		c.emitPending(&out[i])
	}
}

// emitPending emits a pending part as it is.
func (c *mapper) emitPending(h *pendingPart) {
	if strings.TrimSpace(h.Text) == "" {
		return
	}
	p := part{Type: "text", Text: lenient.Text(h.Text)}
	if h.Reasoning {
		p.Type = "reasoning"
	}
	d := speech(h.Message, &p)
	d.From, d.TS, d.TextTruncated = &h.From, h.TS, h.Cut
	c.say(h.Message, h.ID, d)
}
