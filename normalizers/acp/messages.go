package acp

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// What a message of ACP becomes: one event for its words, one for each step on the way
// to them, one for each artifact.

const (
	maxMessageMetadata     = 1000      // entries of message_metadata
	maxMessageMetadataSize = 128 << 10 // bytes of it
)

// speaker tells who speaks, where it is not the message's role that does.
type speaker string

const (
	byRole   speaker = ""
	acpHuman speaker = "human"
	agent    speaker = "agent"
)

// said is a message that was told, by which it is known when it comes again without
// an id.
type said struct {
	Words core.Fingerprint `json:"w"`
	Time  core.Fingerprint `json:"t,omitzero"` // zero when it states none
	By    teller           `json:"b,omitzero"`
}

// teller is who told a message that the history of the session may repeat: once it
// has, nobody.
type teller int

const (
	byHistory teller = iota
	byRequest        // or by the answer that a run awaited: the run may repeat it too
	byRun
)

// saidOf is how a message is remembered.
func saidOf(speaker speaker, m *envelopes.ACPMessage) said {
	is := said{Words: acpWords(speaker, m)}
	if ts, ok := acpTime(m.CreatedAt, m.CompletedAt); ok {
		is.Time = core.FingerprintOf(ts)
	}
	return is
}

// acpWords is what makes two messages the same: the kind of speaker, and the parts,
// however the text of them is cut.
func acpWords(speaker speaker, m *envelopes.ACPMessage) core.Fingerprint {
	if speaker == byRole {
		speaker = acpHuman
		if _, ok := m.Agent(); ok {
			speaker = agent
		}
	}
	words := []string{string(speaker)}
	texts := false // the last of words is a text
	for i := range m.Parts {
		p := &m.Parts[i]
		is, plain := p.Text()
		switch plain = plain && p.Metadata == nil && p.Name == nil; {
		case plain && texts:
			words[len(words)-1] += is
		case plain:
			words, texts = append(words, "text", is), true
		default:
			words, texts = append(words, string(waiting(p))), false
		}
	}
	return core.FingerprintOf(words...)
}

// again reports whether two messages may be the same one.
func (s said) again(o said) bool {
	return s.Words == o.Words && (s.Time == core.Fingerprint{} || o.Time == core.Fingerprint{} || s.Time == o.Time)
}

// heard notes a message that was told.
func (a *mapper) heard(is said) {
	// A session has always more messages than are remembered: to let the oldest go is no loss.
	a.st.Said = a.st.Said.Push(is, maxSaid, nil)
}

// claimed reports whether a message of a run or of the history is one that was told: by
// the time that both state, or as one that a request, or for the history a run, has told.
// Each of these is claimed once.
func (a *mapper) claimed(is said, by teller) bool {
	for i, o := range a.st.Said {
		timed := by == byHistory && is.Time != core.Fingerprint{} && is.Time == o.Time
		if !o.again(is) || !timed && (o.By == byHistory || o.By == by) {
			continue
		}
		o.By, o.Time = by, cmp.Or(o.Time, is.Time)
		a.st.Said = a.st.Said.With(i, o)
		a.mirrored = true
		return true
	}
	return false
}

// alone maps a message of the history of a session.
func (a *mapper) alone(m *envelopes.ACPMessage) core.SkipReason {
	a.flush()
	if is := saidOf(byRole, m); !a.claimed(is, byHistory) && a.tell(&telling{message: m}) {
		a.heard(is)
	}
	return core.SkipEmpty
}

// history tells the messages of a list that may repeat what was told: of messages of the
// same words as many are told as the session has not heard. The last one of a request is
// always new.
func (a *mapper) history(messages []envelopes.ACPMessage, request bool) {
	before := slices.Clone(a.st.Said)
	for i := range messages {
		is := saidOf(byRole, &messages[i])
		if at := slices.IndexFunc(before, is.again); at >= 0 && !(request && i == len(messages)-1) {
			before = slices.Delete(before, at, at+1)
			a.mirrored = true
			continue
		}
		if a.tell(&telling{message: &messages[i]}) {
			if request {
				is.By = byRequest
			}
			a.heard(is)
		}
	}
}

// request maps the request of a run: what it is asked, and what was said before. The run
// that follows does not repeat it.
func (a *mapper) request(r *record) core.SkipReason {
	a.flush()
	a.about(&r.run)
	a.setTime(r.run.CreatedAt.Ptr())
	a.history(r.messages, true)
	if len(r.messages) == 0 {
		a.keep()
	}
	return core.SkipEmpty
}

// array maps an array of messages, or of any other records.
func (a *mapper) array(elements []record) core.SkipReason {
	var messages []envelopes.ACPMessage
	for i := range elements {
		if elements[i].kind == message {
			messages = append(messages, elements[i].messages[0])
		}
	}
	if len(messages) == len(elements) && len(messages) > 0 {
		a.flush()
		a.history(messages, false)
		return core.SkipEmpty
	}
	if !slices.ContainsFunc(elements, func(e record) bool { return e.kind != unknown }) {
		a.keep()
		return core.SkipDuplicate
	}
	skip := core.SkipDuplicate
	for i := range elements {
		skip = a.record(&elements[i])
	}
	return skip
}

// telling is a message, or some parts of one, on the way into events.
type telling struct {
	message *envelopes.ACPMessage
	speaker speaker
	run     string        // empty for a message of no run
	index   int           // of the message in the run
	first   int           // index of the first part in the message
	from    *core.Pending // the record it comes from, where that is not the one at work
	events  int           // so far
	told    bool          // one of them was new
}

// say tells a message of a run, or one that answers or asks.
func (a *mapper) say(t *telling) {
	is := saidOf(t.speaker, t.message)
	is.By = byRun
	if t.speaker == acpHuman {
		is.By = byRequest
	}
	if _, agent := t.message.Agent(); !agent && t.speaker == byRole && a.claimed(is, byRun) {
		return // the request has told it
	}
	if a.tell(t) {
		a.heard(is)
	}
}

// speaks is who speaks, and the name of the agent.
func (a *mapper) speaks(t *telling) (human bool, agent lenient.Text) {
	name, ok := t.message.Agent()
	if t.speaker == acpHuman || !ok && t.speaker == byRole {
		return true, ""
	}
	return false, lenient.Text(cmp.Or(name, a.st.Agent))
}

// tell emits the events of a message and reports whether there were any. Steps and
// artifacts come where their parts stand, the words where the first of them stand.
func (a *mapper) tell(t *telling) bool {
	human, agent := a.speaks(t)
	metadata := messageMetadata(t.message.Parts)
	words, spoken := spoken(t.message.Parts)
	ts, _ := acpTime(t.message.CompletedAt, t.message.CreatedAt)
	// put emits an event with what all events of the message share, and returns the id
	// that a tool call has by it.
	put := func(part int, suffix string, d core.Draft) string {
		d.EventID = a.partID(t, part, suffix)
		d.TS, d.AgentID = ts, agent.Ptr()
		if d.EventType == envelopes.ToolCall {
			d.ToolCallID = new(d.EventID)
		}
		if d.MessageMetadata == nil && spoken < 0 && t.events == 0 {
			d.MessageMetadata = metadata
		}
		if t.from != nil && (t.from.Record != a.Session.Records || a.Record.Origin.End) {
			from := *t.from
			if t.events > 0 {
				from.Raw = nil
			}
			d.From = &from
		}
		t.events++
		if a.Emit(d) {
			t.told = true
		}
		return d.EventID
	}
	for i := range t.message.Parts {
		p := &t.message.Parts[i]
		content := "" // the part has one event, or its step takes the id
		if s, ok := p.Metadata.(*envelopes.ACPTrajectory); ok {
			before := t.events
			a.step(s, func(suffix string, d core.Draft) string { return put(i, suffix, d) })
			if t.events > before {
				content = "#content"
			}
		}
		switch {
		case i == spoken:
			d := core.Draft{OnChannel: envelopes.ChannelChat, Identity: string(metadata)}
			d.EventType, d.Text, d.MessageMetadata = envelopes.AssistantMessage, words, metadata
			if human {
				d.EventType = envelopes.UserMessage
			}
			put(i, content, d)
		case p.Name != nil:
			put(i, content, artifactOf(p))
		}
	}
	if t.events == 0 && metadata != nil {
		d := core.Draft{OnChannel: envelopes.ChannelSystem}
		d.EventType = envelopes.Meta
		put(0, "", d)
	}
	return t.told
}

// partID is the id of the event of a part (semantics.md section 4).
func (a *mapper) partID(t *telling, part int, suffix string) string {
	switch {
	case t.run != "":
		return core.BoundID(t.run + ":" + strconv.Itoa(t.index) + ":" + strconv.Itoa(t.first+part) + suffix)
	case t.from == nil || t.from.Record == a.Session.Records && !a.Record.Origin.End:
		return a.OrdinalID(&core.Pending{Record: a.Session.Records})
	}
	id := "@" + strconv.FormatUint(t.from.Record, 10)
	if t.events > 0 {
		id += "." + strconv.Itoa(t.events)
	}
	return id
}

// spoken is what a message says beside its artifacts, and the part that its words
// begin with: -1 when it says nothing. White space is nothing; an image says something,
// though not in words.
func spoken(parts []envelopes.ACPPart) (words *string, first int) {
	var b strings.Builder
	first, other := -1, -1
	for i := range parts {
		p := &parts[i]
		switch said, ok := p.Text(); {
		case p.Name != nil:
		case ok && said != "":
			if first < 0 {
				first = i
			}
			b.WriteString(said)
		case !ok && (p.Content != nil || p.ContentURL != nil) && other < 0:
			other = i
		}
	}
	if strings.TrimSpace(b.String()) != "" {
		return new(b.String()), first
	}
	return nil, other
}

// artifactOf is the event of a part with a name: a file that the agent made.
func artifactOf(p *envelopes.ACPPart) core.Draft {
	d := core.Draft{OnChannel: envelopes.ChannelFilesystem}
	d.EventType = envelopes.FileSnapshot
	if words, ok := p.Text(); ok {
		d.Text = &words
	} else if p.ContentEncoding == envelopes.ACPPlain {
		d.Text = p.Content
	}
	d.Content = contentOf(p, d.Text)
	d.Touch(*p.Name, "")
	return d
}

// acpTool are the members of the input of a tool that name a file, and of its output that
// tell how it went. The output is an object of the agent's own, so that a member of it is
// where a code is stated.
type acpTool struct {
	Path     lenient.Text   `json:"path"`
	FilePath lenient.Text   `json:"file_path"`
	ExitCode lenient.Number `json:"exit_code"`
	Exit     lenient.Number `json:"exitCode"`
	IsError  lenient.Flag   `json:"is_error"`
	Success  jsontext.Value `json:"success"`
	Error    jsontext.Value `json:"error"`
}

// failed reports whether the output has a sign of failure.
func (t *acpTool) failed() bool {
	switch string(t.Error) {
	case "", "null", "false", `""`, "0", "{}", "[]":
	default:
		return true
	}
	return bool(t.IsError) || t.Success.Kind() == 'f'
}

// step maps a step of the agent: a thought, or a call of a tool and what it returned.
// put emits an event and returns its id.
func (a *mapper) step(s *envelopes.ACPTrajectory, put func(suffix string, d core.Draft) string) {
	if s.ToolName == nil && s.ToolInput == nil && s.ToolOutput == nil {
		if s.Message != nil && strings.TrimSpace(*s.Message) != "" {
			d := core.Draft{OnChannel: envelopes.ChannelChat}
			d.EventType, d.Text = envelopes.Reasoning, s.Message
			put("", d)
		}
		return
	}
	var name string
	if s.ToolName != nil {
		name = *s.ToolName
	}
	t := core.ToolOf(name)
	d := core.Draft{OnChannel: t.Channel}
	d.EventType, d.ToolName = envelopes.ToolCall, s.ToolName
	d.ToolStatus = new(envelopes.StatusInProgress)
	var tool acpTool
	if s.ToolInput != nil {
		d.Text = new(lenient.CompactText(s.ToolInput))
		lenient.ReadObject(s.ToolInput, &tool)
	}
	path := string(cmp.Or(tool.FilePath, tool.Path))
	d.Touch(path, t.Op)
	id := put("", d)
	if s.ToolOutput == nil {
		return
	}
	d = core.Draft{OnChannel: t.Channel}
	d.EventType, d.ToolName, d.ToolCallID = envelopes.ToolResult, s.ToolName, &id
	tool = acpTool{}
	lenient.ReadObject(s.ToolOutput, &tool)
	d.Text = new(lenient.CompactText(s.ToolOutput))
	if d.ToolExitCode = tool.ExitCode.Integer(); d.ToolExitCode == nil {
		d.ToolExitCode = tool.Exit.Integer()
	}
	d.ToolStatus = new(envelopes.StatusSuccess)
	if tool.failed() || d.ToolExitCode != nil && *d.ToolExitCode != 0 {
		d.ToolStatus = new(envelopes.StatusError)
	}
	d.Touch(path, t.Op)
	put("#result", d)
}

// messageMetadata is the metadata of the parts as an event carries it; nil for none. What
// goes into and comes out of a tool has events of its own, so that it is left out where
// it is too long, and the list ends where it is.
func messageMetadata(parts []envelopes.ACPPart) jsontext.Value {
	out := jsontext.Value{'['}
	n := 0
	for i := range parts {
		m := parts[i].Metadata
		if m == nil || n == maxMessageMetadata {
			continue
		}
		v, err := m.MarshalJSON()
		if s, ok := m.(*envelopes.ACPTrajectory); ok && len(out)+len(v) > maxMessageMetadataSize {
			short := *s
			short.ToolInput, short.ToolOutput = nil, nil
			v, err = short.MarshalJSON()
		}
		if len(out)+len(v) > maxMessageMetadataSize {
			v = core.Shorten(v, core.MaxFieldText)
		}
		if err != nil || len(out)+len(v) > 2*maxMessageMetadataSize {
			continue
		}
		if n > 0 {
			out = append(out, ',')
		}
		out = append(out, v...)
		n++
	}
	if n == 0 {
		return nil
	}
	return append(out, ']')
}
