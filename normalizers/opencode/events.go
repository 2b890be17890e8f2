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

// properties has the properties of a server event.
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

// emitEvent maps an event of the server by its type.
func emitEvent(c *mapper) {
	var in properties
	lenient.ReadObject(c.Properties, &in)
	switch c.Type {
	case "message.updated":
		messageUpdated(c, in.Info)
	case "message.part.updated":
		partUpdated(c, in.Part)
	case "message.part.delta":
		partDelta(c, &in)
	case "message.removed", "message.part.removed":
		learnSessionID(c, in.SessionID)
		c.st.release(&c.emitter, func(p *pendingPart) bool {
			return p.ID == core.BoundID(string(in.PartID)) || in.PartID == "" && p.Message.ID == core.FingerprintOf(string(in.MessageID))
		})
		c.putSystem("", envelopes.Meta, "")
	case "session.created", "session.updated":
		sessionUpdated(c, in.Info)
	case "session.error":
		learnSessionID(c, in.SessionID)
		c.st.releaseAll(&c.emitter)
		sessionError(c, in.Error)
	case "session.idle":
		c.st.releaseAll(&c.emitter)
		c.skip = core.SkipHeartbeat
	case "session.status":
		learnSessionID(c, in.SessionID)
		sessionStatus(c, &in.Status.Value)
	case "vcs.branch.updated": // about the server's folder
		learnSessionID(c, in.SessionID)
		c.Session.SetBranch(in.Branch)
		c.putSystem("", envelopes.Meta, "")
	case "session.diff", "file.edited", "todo.updated": // a tool part states it
		c.skip = core.SkipMirror
	default:
		otherEvent(c, string(c.Type), in.SessionID)
	}
}

// otherEvent maps an event by the family of its type.
func otherEvent(c *mapper, kind string, session lenient.Text) {
	switch {
	case isHeartbeat(kind):
		c.skip = core.SkipHeartbeat
	case knownEvents[c.Type]:
		learnSessionID(c, session)
		c.putSystem("", envelopes.Meta, "")
	default:
		c.Unknown(core.UnknownRecord, c.Type)
		c.put("", core.UnknownDraft())
	}
}

// isHeartbeat reports whether an event concerns the server or an editor, not a session.
func isHeartbeat(kind string) bool {
	for _, prefix := range []string{"server.", "lsp.", "installation.", "custom."} {
		if strings.HasPrefix(kind, prefix) {
			return true
		}
	}
	return false
}

// runLine maps a line of `opencode run --format json`: a part in its final form, or an error.
func runLine(c *mapper) {
	switch {
	case c.Part.Kind() == '{':
		learnSessionID(c, c.SessionID)
		var p part
		lenient.ReadObject(c.Part, &p)
		emitPart(c, messageOf(c, &p), &p, vendorID(p.ID))
	case c.Type == "error":
		learnSessionID(c, c.SessionID)
		sessionError(c, c.Error)
	default:
		c.Unknown(core.UnknownRecord, c.Type)
		c.put("", core.UnknownDraft())
	}
}

// sessionUpdated maps what the server states about the session.
func sessionUpdated(c *mapper, v jsontext.Value) {
	var in session
	lenient.ReadObject(v, &in)
	if ts, ok := core.TimeOfMillis(in.Time.Value.Updated); ok {
		c.TS = ts
	}
	emitSession(c, &in)
}

// sessionStatus emits that a call is retried, and why.
func sessionStatus(c *mapper, s *status) {
	switch s.Type {
	case "retry":
		c.put("", c.failure("retry", string(s.Message)))
	case "idle":
		c.st.releaseAll(&c.emitter)
		c.skip = core.SkipHeartbeat
	default:
		if s.Type != "busy" {
			c.Unknown(core.UnknownRecord, c.Type, s.Type)
		}
		c.skip = core.SkipHeartbeat
	}
}

// messageUpdated maps what the server states about a message, whose parts come in events of their own. When the
// message is done, so are its parts.
func messageUpdated(c *mapper, v jsontext.Value) {
	var in info
	lenient.ReadObject(v, &in)
	noteMessage(c, &in)
}

// noteMessage notes a message without its parts, and emits what it used.
func noteMessage(c *mapper, in *info) {
	m := learn(c, in)
	c.st.remember(m)
	at := in.Time.Value.Created
	if in.Time.Value.Completed.OK {
		at = in.Time.Value.Completed
	}
	if ts, ok := core.TimeOfMillis(at); ok {
		c.TS = ts
	}
	if in.Time.Value.Completed.OK || lenient.IsValue(in.Error) {
		c.st.release(&c.emitter, func(p *pendingPart) bool { return p.Message.ID == m.ID })
	}
	c.skip = core.SkipProgress
	messageError(c, m, in.Error)
	if m.key == "" {
		return // only its step-finish identifies it
	}
	t := in.used()
	c.bill(m, t, c.st.stepsOf(m), func() int { return c.carrier(m, t, len(c.Events)) })
}

// messageOf returns what is known about the message of a part.
func messageOf(c *mapper, p *part) message {
	learnSessionID(c, p.SessionID)
	m := message{ID: core.FingerprintOf(string(p.MessageID)), Model: c.Session.Model}
	for _, known := range c.st.Messages {
		if known.ID == m.ID {
			m = known
		}
	}
	m.key = vendorID(p.MessageID)
	return m
}

// partUpdated maps the present form of a part. A text of the model is pending until it states its end.
func partUpdated(c *mapper, v jsontext.Value) {
	var p part
	lenient.ReadObject(v, &p)
	m := messageOf(c, &p)
	c.TS = cmp.Or(partTS(&p), stateTS(&p.State.Value), max(m.Created, c.TS))
	c.st.drop(string(p.ID))
	grows := p.Type == "reasoning" || p.Type == "text" && m.Role == roleAssistant && !bool(p.Synthetic) && !bool(p.Ignored)
	if grows && !p.Time.Value.End.OK && vendorID(p.ID) != "" {
		hold(c, m, &p)
		return
	}
	emitPart(c, m, &p, vendorID(p.ID))
}

// stateTS returns when a tool was done, else when it began; empty if it states neither.
func stateTS(s *toolState) string { return partTS(&part{Time: s.Time}) }

// hold makes a growing text pending.
func hold(c *mapper, m message, p *part) {
	c.skip = core.SkipProgress
	h := pendingPart{
		ID: core.BoundID(string(p.ID)), Message: m, Reasoning: p.Type == "reasoning",
		TS: cmp.Or(partTS(p), m.Created), From: c.PendingRecord(),
	}
	h.Message.key = ""
	h.setText(string(p.Text))
	c.st.push(&c.emitter, h)
}

// partDelta adds to a pending text.
func partDelta(c *mapper, in *properties) {
	c.skip = core.SkipProgress
	id := core.BoundID(string(in.PartID))
	i := slices.IndexFunc(c.st.Pending, func(p pendingPart) bool { return p.ID == id })
	if i < 0 || in.Field != "text" || c.st.Pending[i].Cut {
		return // the last update of the part has all of it
	}
	h := c.st.Pending[i]
	c.st.drop(id)
	h.From = c.PendingRecord()
	h.setText(h.Text + string(in.Delta))
	c.st.push(&c.emitter, h)
}
