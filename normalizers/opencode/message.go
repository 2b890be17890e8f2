package opencode

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// wireMessage is a message with its parts.
type wireMessage struct {
	Info  lenient.Object[info]               `json:"info"`
	Parts lenient.List[lenient.Object[part]] `json:"parts"`
}

// readMessage reads a message with its parts; a value that is not a message has no Info.
func readMessage(v jsontext.Value) (m wireMessage) {
	lenient.ReadObject(v, &m)
	return m
}

// info is what OpenCode states about a message.
type info struct {
	ID         lenient.Text                `json:"id"`
	SessionID  lenient.Text                `json:"sessionID"`
	Role       lenient.Text                `json:"role"`
	Time       lenient.Object[messageTime] `json:"time"`
	ModelID    lenient.Text                `json:"modelID"`
	ProviderID lenient.Text                `json:"providerID"`
	Model      lenient.Object[model]       `json:"model"` // requested by a user message
	Agent      lenient.Text                `json:"agent"`
	Mode       lenient.Text                `json:"mode"` // older name of Agent
	Path       lenient.Object[path]        `json:"path"`
	Tokens     lenient.Object[tokens]      `json:"tokens"`
	Cost       lenient.Number              `json:"cost"`
	Error      jsontext.Value              `json:"error"`
	Summary    lenient.Flag                `json:"summary"` // the message is a summary; for a user message it is an object
}

// used returns the tokens and the cost of the message.
func (in *info) used() *tokens {
	in.Tokens.Value.cost = in.Cost
	return &in.Tokens.Value
}

type messageTime struct {
	Created   lenient.Number `json:"created"`
	Completed lenient.Number `json:"completed"`
}

type model struct {
	ModelID    lenient.Text `json:"modelID"`
	ProviderID lenient.Text `json:"providerID"`
}

type path struct {
	Cwd lenient.Text `json:"cwd"`
}

// part is a part of a message.
type part struct {
	ID        lenient.Text             `json:"id"`
	MessageID lenient.Text             `json:"messageID"`
	SessionID lenient.Text             `json:"sessionID"`
	Type      lenient.Text             `json:"type"`
	Time      lenient.Object[partTime] `json:"time"`

	// text, reasoning
	Text      lenient.Text `json:"text"`
	Synthetic lenient.Flag `json:"synthetic"` // written for the model by a machine
	Ignored   lenient.Flag `json:"ignored"`   // shown to the human, not sent to the model

	// tool
	Tool  lenient.Text              `json:"tool"`
	State lenient.Object[toolState] `json:"state"`

	Tokens   lenient.Object[tokens]     `json:"tokens"` // step-finish
	Cost     lenient.Number             `json:"cost"`
	Files    lenient.List[lenient.Text] `json:"files"` // patch
	Filename lenient.Text               `json:"filename"`
	URL      lenient.Text               `json:"url"` // file
	Prompt   lenient.Text               `json:"prompt"`
	Name     lenient.Text               `json:"name"`  // agent
	Error    jsontext.Value             `json:"error"` // retry
}

type partTime struct {
	Start lenient.Number `json:"start"`
	End   lenient.Number `json:"end"`
}

// message is what is known about a message while its parts are mapped. A session remembers it if the parts come one
// by one.
type message struct {
	ID      core.Fingerprint `json:"i"`
	Role    role             `json:"r,omitzero"`
	Model   string           `json:"m,omitzero"`
	Created string           `json:"t,omitzero"` // in the form of an event
	Summary bool             `json:"s,omitzero"` // the summary with which a compacted conversation continues
	Copied  bool             `json:"c,omitzero"` // history of another session

	key string // the vendor's id, else the place in the document; empty if there is neither
}

// maxMessages is how many messages are remembered.
const maxMessages = 32

// messages are the messages that a session remembers for their parts.
type messages struct {
	Messages core.Window[message] `json:"messages,omitzero"`
}

// remember keeps what is known of a message for its parts.
func (ms *messages) remember(m message) {
	m.key = "" // not kept
	others := ms.Messages.Without(func(o message) bool { return o.ID == m.ID })
	ms.Messages = others.Push(m, maxMessages, nil)
}

// role is the speaker of a message.
type role int

const (
	roleAssistant role = iota // also for a part without its message, as in a run
	roleUser
	roleOther
)

// learn notes what a message states about the session and about its parts.
func learn(c *mapper, in *info) message {
	learnSessionID(c, in.SessionID)
	c.Session.SetRoot(string(in.Path.Value.Cwd))
	modelID := cmp.Or(in.ModelID, in.Model.Value.ModelID)
	c.Session.SetModel(string(modelID))
	c.Session.SetTextExtension("provider", cmp.Or(in.ProviderID, in.Model.Value.ProviderID))
	c.Session.SetTextExtension("agent", cmp.Or(in.Agent, in.Mode))
	m := message{
		ID:      core.FingerprintOf(string(in.ID)),
		Summary: bool(in.Summary),
		Copied:  in.Time.Value.Created.Count() < c.st.Created && in.Time.Value.Created.OK,
		key:     cmp.Or(vendorID(in.ID), c.place(-1)),
	}
	m.Created, _ = core.TimeOfMillis(in.Time.Value.Created)
	if c.dialect.CostOfSteps {
		in.Cost = lenient.Number{}
	}
	switch in.Role {
	case "user":
		m.Role = roleUser
	case "assistant":
		m.Model = core.Cut(string(modelID), core.MaxName)
	default:
		m.Role = roleOther
		c.Unknown(core.UnknownRecord, "message", in.Role)
	}
	c.noteTokens(&in.Tokens.Value)
	return m
}

// emitMessage maps a message that is a record of its own.
func emitMessage(c *mapper, v jsontext.Value) {
	m := readMessage(v)
	if ts, ok := core.TimeOfMillis(m.Info.Value.Time.Value.Created); ok {
		c.TS = ts
	}
	wholeMessage(c, &m)
}

// wholeMessage maps a message that came with all of its parts: the parts in order, then its error. Its token counts
// are on its first answer, else on its first event.
func wholeMessage(c *mapper, w *wireMessage) {
	if !w.Info.OK {
		c.putSystem(c.place(-1), envelopes.Meta, "")
		return
	}
	in := &w.Info.Value
	m := learn(c, in)
	from := len(c.Events)
	var stepped core.Consumption
	for i := range w.Parts {
		p := &w.Parts[i].Value
		c.st.drop(string(p.ID))
		switch p.Type {
		case "step-start": // the message itself states what it does
		case "step-finish":
			stepped = stepped.Plus(p.used().consumption(c.st.Version))
		default:
			emitPart(c, m, p, cmp.Or(vendorID(p.ID), c.place(i)))
		}
	}
	messageError(c, m, in.Error)
	t := in.used()
	c.bill(m, t, stepped, func() int { return c.carrier(m, t, from) })
}

// carrier returns the event that carries the token counts of a message: its first answer, else its first event at or
// after from, else one made for it.
func (e *emitter) carrier(m message, t *tokens, from int) int {
	first := -1
	for i := from; i < len(e.Events); i++ {
		at := &e.Events[i]
		switch {
		case at.Sequence != e.Record.Sequence: // of a pending record
		case at.Event.EventType == envelopes.AssistantMessage:
			return i
		case first < 0:
			first = i
		}
	}
	if first < 0 && e.usage(m, t) {
		first = len(e.Events) - 1
	}
	return first
}

// emitPart maps a part in its final form; id is empty if the vendor has none.
func emitPart(c *mapper, m message, p *part, id string) {
	switch p.Type {
	case "text", "reasoning":
		emitText(c, m, p, id)
	case "tool":
		emitTool(c, m, p, id)
	case "patch":
		d := core.Draft{OnChannel: envelopes.ChannelFilesystem, Identity: joined(p.Files)}
		d.EventType, d.Text = envelopes.FileSnapshot, new(fmt.Sprintf("snapshot of %d files", len(p.Files)))
		c.say(m, id, d)
	case "step-start":
		c.skip = core.SkipHeartbeat
	case "step-finish":
		stepFinish(c, m, p, id)
	case "retry":
		code, text := readError(p.Error)
		c.say(m, id, c.failure(code, text))
	case "file":
		text := string(cmp.Or(p.Filename, p.URL))
		if strings.HasPrefix(text, "data:") {
			text = ""
		}
		c.note(m, id, text)
	case "subtask", "agent", "compaction", "snapshot":
		c.note(m, id, string(cmp.Or(p.Prompt, p.Name)))
	default:
		c.Unknown(core.UnknownBlock, p.Type)
		d := core.UnknownDraft()
		d.Text = cmp.Or(p.Prompt, p.Name).Ptr()
		c.say(m, id, d)
	}
}

// emitText emits a text by its author. It ignores white space.
func emitText(c *mapper, m message, p *part, id string) {
	if strings.TrimSpace(string(p.Text)) == "" {
		return
	}
	d := speech(m, p)
	if d.EventType == envelopes.UserMessage && !c.Session.HasEvent(id) {
		c.st.releaseAll(&c.emitter) // earlier text belongs to the previous turn
		if c.st.Child {
			d.Origin = envelopes.OriginAgent
		}
	}
	d.TS = cmp.Or(partTS(p), m.Created)
	c.say(m, id, d)
}

// speech returns the event of a text by its part and its message.
func speech(m message, p *part) core.Draft {
	text := string(p.Text)
	switch {
	case p.Type == "reasoning":
		return core.ChatDraft(envelopes.Reasoning, &text, lenient.Text(m.Model).Ptr())
	case bool(p.Synthetic), bool(p.Ignored), m.Role == roleOther:
		return core.DraftOf(core.SpeechInjected, text)
	case m.Role == roleUser:
		return core.DraftOf(core.SpeechHuman, text)
	case m.Summary:
		d := core.DraftOf(core.SpeechSummary, text)
		d.InRole, d.Model = envelopes.RoleAssistant, lenient.Text(m.Model).Ptr()
		return d
	default:
		return core.ChatDraft(envelopes.AssistantMessage, &text, lenient.Text(m.Model).Ptr())
	}
}

// partTS returns when a part was done, else when it began, in the form of an event; empty if it states neither.
func partTS(p *part) string {
	if ts, ok := core.TimeOfMillis(p.Time.Value.End); ok {
		return ts
	}
	ts, _ := core.TimeOfMillis(p.Time.Value.Start)
	return ts
}

// statedError is an error stated by a message or the session. Both state the same error, one after the other.
type statedError struct {
	Error   core.Fingerprint `json:"e"`
	Message core.Fingerprint `json:"m,omitzero"` // zero until a message states it
	Session bool             `json:"s,omitzero"` // the session stated it
}

const maxErrors = 16 // errors that a session remembers

// statedErrors are the errors that a session remembers.
type statedErrors struct {
	Errors core.Window[statedError] `json:"errors,omitzero"`
}

// repeatedBy notes that a message, or the session if message is zero, states an error again. It returns false for a
// new error.
func (s *statedErrors) repeatedBy(message, is core.Fingerprint) bool {
	for i, e := range s.Errors {
		switch {
		case e.Error != is:
		case message == core.Fingerprint{} && !e.Session:
			e.Session = true
			s.Errors = s.Errors.With(i, e)
			return true
		case message != core.Fingerprint{} && e.Message == message:
			return true
		case message != core.Fingerprint{} && e.Message == core.Fingerprint{}:
			e.Message = message
			s.Errors = s.Errors.With(i, e)
			return true
		}
	}
	return false
}

// add remembers an error that is new.
func (s *statedErrors) add(e statedError) { s.Errors = s.Errors.Push(e, maxErrors, nil) }

// messageError emits the error of a message, unless the session has stated it.
func messageError(c *mapper, m message, v jsontext.Value) {
	if !lenient.IsValue(v) {
		return
	}
	code, text := readError(v)
	is, message := core.FingerprintOf(code, text), core.FingerprintOf("message", m.key)
	if c.st.repeatedBy(message, is) {
		c.skip = core.SkipMirror
		return
	}
	id := m.key
	if id != "" {
		id += "#error"
	}
	if c.say(m, id, c.failure(code, text)) {
		c.st.statedErrors.add(statedError{Error: is, Message: message})
	}
}

// sessionError emits an error stated by the session, unless a message has stated it.
func sessionError(c *mapper, v jsontext.Value) {
	code, text := readError(v)
	is := core.FingerprintOf(code, text)
	if c.st.repeatedBy(core.Fingerprint{}, is) {
		c.skip = core.SkipMirror
		return
	}
	c.put("", c.failure(code, text))
	c.st.statedErrors.add(statedError{Error: is, Session: true})
}

// readError reads an error: a name, and data with a message.
func readError(v jsontext.Value) (code, text string) {
	var e struct {
		Name    lenient.Text `json:"name"`
		Message lenient.Text `json:"message"`
		Data    lenient.Object[struct {
			Message lenient.Text `json:"message"`
		}] `json:"data"`
	}
	lenient.ReadObject(v, &e)
	text = string(cmp.Or(e.Data.Value.Message, e.Message))
	switch {
	case text != "":
	case v.Kind() == '"':
		text = lenient.Unquote(v)
	case e.Name == "" && lenient.IsValue(v):
		text = lenient.CompactText(v)
	}
	return string(e.Name), text
}

// joined returns a list of texts as the content of an event.
func joined(list []lenient.Text) string {
	b, err := json.Marshal(list, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return ""
	}
	return string(b)
}
