package chat

import (
	"strings"
	"time"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// Channel is the way by which a record came.
type Channel byte

// The channels.
const (
	OnlyLog   Channel = iota // the agent has no other
	Log                      // its events replace those of the telemetry
	Telemetry                // it has events for what the log has not stated
)

// channels joins the two ways by which a session may come: each text, call and token counts once, whichever of the two
// states it first. The vendor needs [NewState] in its row, or a state that embeds [Joined].
type channels struct {
	Channel Channel // by which the record came

	// Apart gives the calls and results of the telemetry events of their own, which those of the log replace: of a log
	// that states a call several times.
	Apart bool
	// Undivided means that the log does not divide its tokens: the sums of input and of output are compared.
	Undivided bool

	builder  *core.Builder
	stated   *core.Fingerprint // what both channels state in place of the next event; nil for its own text
	mirrored bool              // something of the record was stated by the other channel
}

func (c *channels) state() *Joined {
	return c.builder.Session.State.(interface{ joined() *Joined }).joined()
}

// eventOf returns the id of the event of a call or a result.
func (c *channels) eventOf(id lenient.Text) lenient.Text {
	if c.Apart && c.Channel == Telemetry {
		return core.PartID(id, exportedPart)
	}
	return id
}

// IsStated reports whether the session has a call or a result, by the log or, Apart, by the telemetry.
func (c *channels) IsStated(id lenient.Text) bool {
	is := c.builder.Session.HasEvent(string(id)) || c.builder.Session.HasEvent(string(core.PartID(id, exportedPart)))
	c.mirrored = c.mirrored || is
	return is
}

// apart returns the event of the telemetry that the first one of the log for a call or a result replaces; empty for
// none.
func (c *channels) apart(id string) string {
	if exported := core.BoundID(string(core.PartID(lenient.Text(id), exportedPart))); c.builder.Session.HasEvent(exported) {
		return exported
	}
	return ""
}

// StatedAs sets what both channels state in place of the next event, if its own type or text are of one alone.
func (c *channels) StatedAs(of envelopes.EventType, text string) {
	c.StatedWith(core.StatementsOf(c.builder.Session, of, text).Key())
}

// StatedWith is [channels.StatedAs] by the key of the statements.
func (c *channels) StatedWith(key core.Fingerprint) { c.stated = &key }

// IsExportedAgain reports whether the telemetry has sent the record before, and remembers it: exporters send again what
// was not acknowledged.
func (c *channels) IsExportedAgain() bool {
	b := c.builder
	key := core.FingerprintOf("export", string(b.Record.Data))
	_, again := b.Session.IDs.Get(key)
	b.Session.IDs.Put(key, core.Fingerprint{})
	b.Duplicate = b.Duplicate || again
	return again
}

// EndHasID notes that the telemetry states the id of a call with its end, so that its name and arguments do not have to
// show it.
func (c *channels) EndHasID(call lenient.Text) { c.state().Logged.Remove(string(call)) }

// emit emits an event. A message of the telemetry is emitted if the log has not stated it, and replaced by that of the
// log.
func (c *channels) emit(d core.Draft) bool {
	if c.Channel == Telemetry {
		c.builder.Via = envelopes.ViaTelemetry
	}
	as := c.stated
	c.stated = nil
	if c.Channel == OnlyLog || d.Origin == envelopes.OriginCopied {
		return c.builder.Emit(d)
	}
	if as == nil && d.Origin == "" && (d.EventType == envelopes.UserMessage || d.EventType == envelopes.AssistantMessage) {
		text := ""
		if d.Text != nil {
			text = *d.Text
		}
		as = new(core.StatementsOf(c.builder.Session, d.EventType, text).Key())
	}
	if as == nil {
		return c.builder.Emit(d)
	}
	stated := core.StatementsAt(c.builder.Session, *as)
	if c.Channel == Log {
		return c.builder.EmitStated(d, stated)
	}
	if d.EventType == envelopes.UserMessage && d.Text == nil {
		stated = core.RedactedPrompts(c.builder.Session)
	}
	d.EventID = stated.InTelemetry()
	c.mirrored = c.mirrored || d.EventID == ""
	return d.EventID != "" && c.builder.Emit(d)
}

// replacedCall returns the event of the telemetry, where the call has no id or events of its own, that a call of the log
// replaces; empty for none.
func (c *channels) replacedCall(id string, name lenient.Text, arguments *string) (event string) {
	switch {
	case c.Channel != Log || c.builder.Session.HasEvent(id):
		return ""
	case c.Apart:
		return c.apart(id)
	}
	key := core.CallKey(name, arguments)
	event = c.state().Exported.Take(key)
	if event == "" {
		c.state().Logged.Add(key, id)
		return ""
	}
	c.builder.Session.IDs.Put(replacedBy(id), digestIn(event))
	return event
}

// replacedResult returns the event of the telemetry, where the call has no id or events of its own, that the result of a
// call of the log replaces; empty for none.
func (c *channels) replacedResult(call lenient.Text) string {
	id := string(core.PartID(call, "result"))
	switch {
	case c.Channel != Log || c.builder.Session.HasEvent(id):
		return ""
	case c.Apart:
		return c.apart(id)
	}
	digest, ok := c.builder.Session.IDs.Get(replacedBy(string(call)))
	if !ok {
		return ""
	}
	return string(core.PartID(idOfEnd(digest), "result"))
}

// repeatsCall notes that a call was not emitted because the session has it. The first time, the log repeats the
// telemetry, so the record is no duplicate if it was none before.
func (c *channels) repeatsCall(id string, before bool) {
	if c.Channel != Log {
		return
	}
	ids := &c.builder.Session.IDs
	if only, _ := ids.Get(onlyExported(id)); only[0] != 0 {
		ids.Put(onlyExported(id), core.Fingerprint{})
		c.builder.Duplicate, c.mirrored = before, true
	}
}

// leave reduces tokens to what the other channel has not billed; false for nothing.
func (c *channels) leave(u *envelopes.Usage) bool {
	if c.Channel == OnlyLog {
		return true
	}
	bill := c.state().Balance.Logged
	if c.Channel == Telemetry {
		bill = c.state().Balance.Exported
	}
	parts := [5]int64{u.Input, u.CacheRead, u.CacheWrite, u.Output, u.Reasoning}
	var left [5]int64
	if c.Undivided {
		sums := [5]int64{0: u.Input + u.CacheRead + u.CacheWrite, 3: u.Output + u.Reasoning}
		rest := bill(sums)
		left = parts
		take(sums[0]-rest[0], &left[0], &left[2], &left[1])
		take(sums[3]-rest[3], &left[3], &left[4])
	} else {
		left = bill(parts)
	}
	u.Input, u.CacheRead, u.CacheWrite, u.Output, u.Reasoning = left[0], left[1], left[2], left[3], left[4]
	u.CacheWrite1h = min(u.CacheWrite1h, u.CacheWrite)
	c.mirrored = c.mirrored || core.IsEmpty(u)
	return !core.IsEmpty(u)
}

// take takes a number from the parts of a sum, from the first ones first.
func take(n int64, parts ...*int64) {
	for _, p := range parts {
		taken := min(n, *p)
		*p, n = *p-taken, n-taken
	}
}

// End writes the end of a call that the telemetry states: the call and its result, as far as the log has not stated
// them, and the decision about its permission, empty for none. A call without an id is the oldest one of the log with
// its name and arguments, or else the next one.
func (w *Writer) End(c Call, r Result, decision lenient.Text) {
	if c.ID != "" {
		w.EndHasID(c.ID)
	} else {
		key := core.CallKey(c.Name, core.ArgumentText(c.Arguments))
		if c.ID = lenient.Text(w.state().Logged.Take(key)); c.ID == "" {
			c.ID = idOfEnd(core.FingerprintOf("end", key.String(), w.TS))
			w.state().Exported.Add(key, string(c.ID))
		}
	}
	if !w.Session.HasEvent(string(c.ID)) {
		ended := w.TS
		w.At(core.ParseTime(startOf(ended, r.Latency)))
		w.Call(c)
		w.TS = ended
		w.Session.IDs.Put(onlyExported(string(c.ID)), core.Fingerprint{1})
	}
	if ms := core.CountOf(r.Latency); ms != nil {
		w.Session.SetOutcome(string(c.ID), core.Outcome{Latency: ms})
	}
	if r.ID = c.ID; !w.Session.HasEvent(string(core.PartID(r.ID, "result"))) {
		w.Result(r)
	}
	if decision != "" {
		w.put(core.PartID(c.ID, "decision"), w.Session.PermissionDraft(c.ID, c.Name, decision))
	}
	if w.First < 0 {
		w.Meta()
	}
}

// startOf returns when something began that took a number of milliseconds.
func startOf(ended string, took lenient.Number) string {
	t, err := time.Parse(time.RFC3339, ended)
	if err != nil || !took.OK {
		return ended
	}
	return t.Add(-time.Duration(took.Count()) * time.Millisecond).Format("2006-01-02T15:04:05.000Z07:00")
}

// ofTelemetry begins the ids of calls of which the telemetry states none.
const ofTelemetry = "otlp:"

// exportedPart ends the ids of events that are Apart.
const exportedPart = "otlp"

func idOfEnd(digest core.Fingerprint) lenient.Text {
	return lenient.Text(ofTelemetry + digest.String())
}

// digestIn is the inverse of idOfEnd.
func digestIn(id string) (digest core.Fingerprint) {
	_ = digest.UnmarshalText([]byte(strings.TrimPrefix(id, ofTelemetry))) // it is one
	return digest
}

// onlyExported is the key of a call that the log has not stated.
func onlyExported(id string) core.Fingerprint { return core.FingerprintOf("only exported", id) }

// replacedBy is the key of a call of the log that replaces one of the telemetry.
func replacedBy(id string) core.Fingerprint { return core.FingerprintOf("replaces", id) }
