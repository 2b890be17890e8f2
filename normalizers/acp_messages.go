package normalizers

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
)

// What a message of ACP becomes: one event for its words, one for each step on the way
// to them, one for each artifact.

const (
	maxMessageMetadata     = 1000      // entries of message_metadata
	maxMessageMetadataSize = 128 << 10 // bytes of it
)

// acpSpeaker tells who speaks, where it is not the message's role that does.
type acpSpeaker string

const (
	acpByRole acpSpeaker = ""
	acpHuman  acpSpeaker = "human"
	acpAgent  acpSpeaker = "agent"
)

// acpSaid is a message that was told, by which it is known when it comes again without
// an id.
type acpSaid struct {
	Words fingerprint `json:"w"`
	Time  fingerprint `json:"t,omitzero"` // zero when it states none
	By    acpTeller   `json:"b,omitzero"`
}

// acpTeller is who told a message that the history of the session may repeat: once it
// has, nobody.
type acpTeller int

const (
	acpByHistory acpTeller = iota
	acpByRequest           // or by the answer that a run awaited: the run may repeat it too
	acpByRun
)

// acpSaidOf is how a message is remembered.
func acpSaidOf(speaker acpSpeaker, m *envelopes.ACPMessage) acpSaid {
	is := acpSaid{Words: acpWords(speaker, m)}
	if ts, ok := acpTime(m.CreatedAt, m.CompletedAt); ok {
		is.Time = fingerprintOf(ts)
	}
	return is
}

// acpWords is what makes two messages the same: the kind of speaker, and the parts,
// however the text of them is cut.
func acpWords(speaker acpSpeaker, m *envelopes.ACPMessage) fingerprint {
	if speaker == acpByRole {
		speaker = acpHuman
		if _, ok := m.Agent(); ok {
			speaker = acpAgent
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
	return fingerprintOf(words...)
}

// again reports whether two messages may be the same one.
func (s acpSaid) again(o acpSaid) bool {
	return s.Words == o.Words && (s.Time == fingerprint{} || o.Time == fingerprint{} || s.Time == o.Time)
}

// heard notes a message that was told.
func (a *acpFold) heard(is acpSaid) {
	// A session has always more messages than are remembered: to let the oldest go is no loss.
	a.st.Said = a.st.Said.push(is, maxACPSaid, nil)
}

// claimed reports whether a message of a run or of the history is one that was told: by
// the time that both state, or as one that a request, or for the history a run, has told.
// Each of these is claimed once.
func (a *acpFold) claimed(is acpSaid, by acpTeller) bool {
	for i, o := range a.st.Said {
		timed := by == acpByHistory && is.Time != fingerprint{} && is.Time == o.Time
		if !o.again(is) || !timed && (o.By == acpByHistory || o.By == by) {
			continue
		}
		o.By, o.Time = by, cmp.Or(o.Time, is.Time)
		a.st.Said = a.st.Said.with(i, o)
		a.mirrored = true
		return true
	}
	return false
}

// alone maps a message of the history of a session.
func (a *acpFold) alone(m *envelopes.ACPMessage) SkipReason {
	a.flush()
	if is := acpSaidOf(acpByRole, m); !a.claimed(is, acpByHistory) && a.tell(&acpTelling{message: m}) {
		a.heard(is)
	}
	return SkipEmpty
}

// history tells the messages of a list that may repeat what was told: of messages of the
// same words as many are told as the session has not heard. The last one of a request is
// always new.
func (a *acpFold) history(messages []envelopes.ACPMessage, request bool) {
	before := slices.Clone(a.st.Said)
	for i := range messages {
		is := acpSaidOf(acpByRole, &messages[i])
		if at := slices.IndexFunc(before, is.again); at >= 0 && !(request && i == len(messages)-1) {
			before = slices.Delete(before, at, at+1)
			a.mirrored = true
			continue
		}
		if a.tell(&acpTelling{message: &messages[i]}) {
			if request {
				is.By = acpByRequest
			}
			a.heard(is)
		}
	}
}

// request maps the request of a run: what it is asked, and what was said before. The run
// that follows does not repeat it.
func (a *acpFold) request(r *acpRecord) SkipReason {
	a.flush()
	a.about(&r.run)
	a.setTime(r.run.CreatedAt.ptr())
	a.history(r.messages, true)
	if len(r.messages) == 0 {
		a.keep()
	}
	return SkipEmpty
}

// array maps an array of messages, or of any other records.
func (a *acpFold) array(elements []acpRecord) SkipReason {
	var messages []envelopes.ACPMessage
	for i := range elements {
		if elements[i].kind == acpMessage {
			messages = append(messages, elements[i].messages[0])
		}
	}
	if len(messages) == len(elements) && len(messages) > 0 {
		a.flush()
		a.history(messages, false)
		return SkipEmpty
	}
	if !slices.ContainsFunc(elements, func(e acpRecord) bool { return e.kind != acpUnknown }) {
		a.keep()
		return SkipDuplicate
	}
	skip := SkipDuplicate
	for i := range elements {
		skip = a.record(&elements[i])
	}
	return skip
}

// acpTelling is a message, or some parts of one, on the way into events.
type acpTelling struct {
	message *envelopes.ACPMessage
	speaker acpSpeaker
	run     string // empty for a message of no run
	index   int    // of the message in the run
	first   int    // index of the first part in the message
	from    *held  // the record it comes from, where that is not the one at work
	events  int    // so far
	told    bool   // one of them was new
}

// say tells a message of a run, or one that answers or asks.
func (a *acpFold) say(t *acpTelling) {
	is := acpSaidOf(t.speaker, t.message)
	is.By = acpByRun
	if t.speaker == acpHuman {
		is.By = acpByRequest
	}
	if _, agent := t.message.Agent(); !agent && t.speaker == acpByRole && a.claimed(is, acpByRun) {
		return // the request has told it
	}
	if a.tell(t) {
		a.heard(is)
	}
}

// speaks is who speaks, and the name of the agent.
func (a *acpFold) speaks(t *acpTelling) (human bool, agent text) {
	name, ok := t.message.Agent()
	if t.speaker == acpHuman || !ok && t.speaker == acpByRole {
		return true, ""
	}
	return false, text(cmp.Or(name, a.st.Agent))
}

// tell emits the events of a message and reports whether there were any. Steps and
// artifacts come where their parts stand, the words where the first of them stand.
func (a *acpFold) tell(t *acpTelling) bool {
	human, agent := a.speaks(t)
	metadata := messageMetadata(t.message.Parts)
	words, spoken := acpSpoken(t.message.Parts)
	ts, _ := acpTime(t.message.CompletedAt, t.message.CreatedAt)
	// put emits an event with what all events of the message share, and returns the id
	// that a tool call has by it.
	put := func(part int, suffix string, d draft) string {
		d.EventID = a.partID(t, part, suffix)
		d.TS, d.AgentID = ts, agent.ptr()
		if d.EventType == envelopes.ToolCall {
			d.ToolCallID = new(d.EventID)
		}
		if d.MessageMetadata == nil && spoken < 0 && t.events == 0 {
			d.MessageMetadata = metadata
		}
		if t.from != nil && (t.from.Record != a.s.Records || a.r.Origin.End) {
			from := *t.from
			if t.events > 0 {
				from.Raw = nil
			}
			d.from = &from
		}
		t.events++
		if a.emit(d) {
			t.told = true
		}
		return d.EventID
	}
	for i := range t.message.Parts {
		p := &t.message.Parts[i]
		content := "" // the part has one event, or its step takes the id
		if s, ok := p.Metadata.(*envelopes.ACPTrajectory); ok {
			before := t.events
			a.step(s, func(suffix string, d draft) string { return put(i, suffix, d) })
			if t.events > before {
				content = "#content"
			}
		}
		switch {
		case i == spoken:
			d := draft{on: envelopes.ChannelChat, identity: string(metadata)}
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
		d := draft{on: envelopes.ChannelSystem}
		d.EventType = envelopes.Meta
		put(0, "", d)
	}
	return t.told
}

// partID is the id of the event of a part (semantics.md section 4).
func (a *acpFold) partID(t *acpTelling, part int, suffix string) string {
	switch {
	case t.run != "":
		return boundID(t.run + ":" + strconv.Itoa(t.index) + ":" + strconv.Itoa(t.first+part) + suffix)
	case t.from == nil || t.from.Record == a.s.Records && !a.r.Origin.End:
		return a.ownID(&held{Record: a.s.Records})
	}
	id := "@" + strconv.FormatUint(t.from.Record, 10)
	if t.events > 0 {
		id += "." + strconv.Itoa(t.events)
	}
	return id
}

// acpSpoken is what a message says beside its artifacts, and the part that its words
// begin with: -1 when it says nothing. White space is nothing; an image says something,
// though not in words.
func acpSpoken(parts []envelopes.ACPPart) (words *string, first int) {
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
func artifactOf(p *envelopes.ACPPart) draft {
	d := draft{on: envelopes.ChannelFilesystem}
	d.EventType = envelopes.FileSnapshot
	if words, ok := p.Text(); ok {
		d.Text = &words
	} else if p.ContentEncoding == envelopes.ACPPlain {
		d.Text = p.Content
	}
	d.touch(*p.Name, "")
	return d
}

// acpTool are the members of the input of a tool that name a file, and of its output that
// tell how it went. The output is an object of the agent's own, so that a member of it is
// where a code is stated.
type acpTool struct {
	Path     text           `json:"path"`
	FilePath text           `json:"file_path"`
	ExitCode number         `json:"exit_code"`
	Exit     number         `json:"exitCode"`
	IsError  flag           `json:"is_error"`
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
func (a *acpFold) step(s *envelopes.ACPTrajectory, put func(suffix string, d draft) string) {
	if s.ToolName == nil && s.ToolInput == nil && s.ToolOutput == nil {
		if s.Message != nil && strings.TrimSpace(*s.Message) != "" {
			d := draft{on: envelopes.ChannelChat}
			d.EventType, d.Text = envelopes.Reasoning, s.Message
			put("", d)
		}
		return
	}
	var name string
	if s.ToolName != nil {
		name = *s.ToolName
	}
	t := toolOf(name)
	d := draft{on: t.channel}
	d.EventType, d.ToolName = envelopes.ToolCall, s.ToolName
	d.ToolStatus = new(envelopes.StatusInProgress)
	var tool acpTool
	if s.ToolInput != nil {
		d.Text = new(compactText(s.ToolInput))
		readObject(s.ToolInput, &tool)
	}
	path := string(cmp.Or(tool.FilePath, tool.Path))
	d.touch(path, t.op)
	id := put("", d)
	if s.ToolOutput == nil {
		return
	}
	d = draft{on: t.channel}
	d.EventType, d.ToolName, d.ToolCallID = envelopes.ToolResult, s.ToolName, &id
	tool = acpTool{}
	readObject(s.ToolOutput, &tool)
	d.Text = new(compactText(s.ToolOutput))
	if d.ToolExitCode = tool.ExitCode.integer(); d.ToolExitCode == nil {
		d.ToolExitCode = tool.Exit.integer()
	}
	d.ToolStatus = new(envelopes.StatusSuccess)
	if tool.failed() || d.ToolExitCode != nil && *d.ToolExitCode != 0 {
		d.ToolStatus = new(envelopes.StatusError)
	}
	d.touch(path, t.op)
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
			v = shorten(v, maxFieldText)
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
