package gemini

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// What Gemini CLI writes about who said what: the messages of a session, the contents of
// a saved conversation, and the prompts in logs.json (vendor-formats.md section 6.2).

// wireMessage is a message in any of its forms.
type wireMessage struct {
	ID             lenient.Text                          `json:"id"`
	Timestamp      lenient.Text                          `json:"timestamp"`
	Type           lenient.Text                          `json:"type"`
	Role           lenient.Text                          `json:"role"` // of a content, instead of a type
	Content        parts                                 `json:"content"`
	Parts          parts                                 `json:"parts"` // of a content, instead of it
	DisplayContent parts                                 `json:"displayContent"`
	Thoughts       lenient.List[lenient.Object[thought]] `json:"thoughts"`
	Tokens         lenient.Object[tokens]                `json:"tokens"`
	Model          lenient.Text                          `json:"model"`
	ToolCalls      lenient.List[lenient.Object[call]]    `json:"toolCalls"`

	MessageID jsontext.Value `json:"messageId"` // of a line of logs.json
	Message   lenient.Text   `json:"message"`
}

// kind is the type of a message, by the name that sessions use.
func (m *wireMessage) kind() string {
	switch {
	case m.Type == "model", m.Type == "assistant", m.Type == "" && m.Role == "model":
		return "gemini"
	case m.Type == "":
		return string(m.Role)
	default:
		return string(m.Type)
	}
}

// isMessage reports whether it is a message at all, known or not.
func (m *wireMessage) isMessage() bool {
	return m.isLine() || m.ID != "" && m.Type != "" || m.kind() != "" && (m.Content.present || m.Parts.present)
}

// isLine: a prompt as it was typed, of logs.json.
func (m *wireMessage) isLine() bool {
	return lenient.Scalar(m.MessageID) != "" && m.Type != "" && m.Message != ""
}

// body is what the message says.
func (m *wireMessage) body() *parts {
	if m.Content.present {
		return &m.Content
	}
	return &m.Parts
}

type thought struct {
	Subject     lenient.Text `json:"subject"`
	Description lenient.Text `json:"description"`
	Summary     lenient.Text `json:"summary"`
	Timestamp   lenient.Text `json:"timestamp"`
}

func (t *thought) words() lenient.Text {
	switch {
	case t.Subject != "" && t.Description != "":
		return t.Subject + ": " + t.Description
	case t.Subject+t.Description != "":
		return t.Subject + t.Description
	default:
		return t.Summary
	}
}

type tokens struct {
	Input    lenient.Number `json:"input"` // with what was read from a cache
	Output   lenient.Number `json:"output"`
	Cached   lenient.Number `json:"cached"`
	Thoughts lenient.Number `json:"thoughts"`
	Tool     lenient.Number `json:"tool"`
}

// parts are the parts of a content, which may stand as one string or one part too.
type parts struct {
	parts   []part
	present bool
}

type part struct {
	Text             lenient.Text                 `json:"text"`
	Thought          lenient.Flag                 `json:"thought"`
	FunctionCall     lenient.Object[functionCall] `json:"functionCall"`
	FunctionResponse lenient.Object[response]     `json:"functionResponse"`

	worded bool // it has a text, if only an empty one
}

func (p *parts) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*p = parts{}
	switch dec.PeekKind() {
	case '"', '{':
		p.present = true
		return p.read(dec)
	case '[':
		p.present = true
		if _, err := dec.ReadToken(); err != nil {
			return err
		}
		for dec.PeekKind() != ']' {
			if err := p.read(dec); err != nil {
				return err
			}
		}
		_, err := dec.ReadToken()
		return err
	default:
		return dec.SkipValue()
	}
}

// read reads one part.
func (p *parts) read(dec *jsontext.Decoder) error {
	var part part
	switch dec.PeekKind() {
	case '"':
		if err := part.Text.UnmarshalJSONFrom(dec); err != nil {
			return err
		}
		part.worded = true
	case '{':
		if err := json.UnmarshalDecode(dec, &part); err != nil {
			return err
		}
		part.worded = part.Text != ""
	default:
		return dec.SkipValue()
	}
	p.parts = append(p.parts, part)
	return nil
}

// isMedia: an image, a file, code: a part that is not said in words.
func (p *part) isMedia() bool {
	return !p.worded && !bool(p.Thought) && !p.FunctionCall.OK && !p.FunctionResponse.OK
}

// text is what the parts say in words, thoughts apart; as the vendor does, they are
// joined by nothing.
func (p *parts) text() string {
	var b strings.Builder
	for i := range p.parts {
		if !p.parts[i].Thought {
			b.WriteString(string(p.parts[i].Text))
		}
	}
	return b.String()
}

// prompt is what a human typed: [geminiParts.text] without the parts that a machine put
// beside it.
func (p *parts) prompt() string {
	var b strings.Builder
	for i := range p.parts {
		if bool(p.parts[i].Thought) || isNote(string(p.parts[i].Text)) {
			continue
		}
		b.WriteString(string(p.parts[i].Text))
	}
	if strings.TrimSpace(b.String()) == "" {
		return p.text()
	}
	return b.String()
}

func (p *parts) has(is func(*part) bool) bool {
	for i := range p.parts {
		if is(&p.parts[i]) {
			return true
		}
	}
	return false
}

func isResponse(p *part) bool { return p.FunctionResponse.OK }

// isGeminiNote: a part that a hook or the runtime put beside a prompt.
func isNote(s string) bool {
	s = strings.TrimSpace(s)
	return strings.HasPrefix(s, "<hook_context>") || strings.HasPrefix(s, "<session_context>") || strings.HasPrefix(s, "<system_note>")
}

// speech tells the speech of a user's text by how it begins; the first match
// counts (semantics.md section 5).
var speech = []struct {
	prefix string
	speech core.Speech
}{
	{"<session_context>", core.SpeechInjected},
	{"<hook_context>", core.SpeechInjected},
	{"This is the Gemini CLI. We are setting up the context for our chat", core.SpeechInjected},
	{"Here is the user's editor context as a JSON object", core.SpeechInjected},
	{"Here is a summary of changes in the user's editor context", core.SpeechInjected},
	{"System: Please continue.", core.SpeechInjected},
	{"<scratchpad>", core.SpeechSummary},
	{"<state_snapshot>", core.SpeechSummary},
	{"I ran the following shell command:\n```", core.SpeechTerminal},
	{"/", core.SpeechCommand},
	{"?", core.SpeechCommand},
}

// speechOf classifies a user's text and unwraps what was typed while the agent
// worked.
func speechOf(s string) (kind core.Speech, words string) {
	trimmed := strings.TrimSpace(s)
	for _, c := range speech {
		if strings.HasPrefix(trimmed, c.prefix) {
			return c.speech, s
		}
	}
	if strings.HasPrefix(trimmed, "User steering update:\n") || strings.HasPrefix(trimmed, "User hints:\n") {
		if typed := strings.TrimSpace(core.TagContent(trimmed, "user_input")); typed != "" {
			return core.SpeechHuman, typed
		}
	}
	return core.SpeechHuman, s
}

// message maps a message, of which the session may have told all or a part before.
func (g *mapper) message(m *wireMessage) {
	known := false
	if m.ID != "" {
		key := core.FingerprintOf("message", string(m.ID))
		if _, known = g.Session.IDs.Get(key); !known {
			g.Session.IDs.Put(key, core.Fingerprint{})
		}
	}
	g.copied = g.history && !known
	switch {
	case m.isLine():
		g.line(m)
	case m.kind() == "user":
		g.user(m)
	case m.kind() == "gemini":
		g.model(m)
	case m.kind() == "info", m.kind() == "warning":
		g.runtime(m.ID, envelopes.SystemMessage, lenient.Text(m.body().text()))
	case m.kind() == "error":
		g.failure(m.ID, m.body().text())
	default:
		g.runtime(m.ID, envelopes.Meta, lenient.Text(m.body().text()))
	}
}

// line maps a prompt of logs.json: one that the session's own file has told is its mirror
// (semantics.md section 9).
func (g *mapper) line(m *wireMessage) {
	id := lenient.Scalar(m.MessageID)
	if g.seen("line", string(id), string(m.Message)) {
		return
	}
	if g.twin(string(m.Message), false) {
		return
	}
	d := core.DraftOf(core.SpeechCommand, string(m.Message))
	g.put(id, d)
}

// seen reports whether the session has had this very thing before, and remembers it.
func (g *mapper) seen(parts ...string) bool {
	key := core.FingerprintOf(parts...)
	if _, ok := g.Session.IDs.Get(key); ok {
		g.Duplicate = true
		return true
	}
	g.Session.IDs.Put(key, key)
	return false
}

// twin reports whether a prompt has been told by the other of the two files that tell
// prompts: the session's own and logs.json. Each mirrors each only once: the counts of
// both that are still without a twin stand in the memory of ids.
func (g *mapper) twin(words string, chat bool) bool {
	key := core.FingerprintOf("prompt", strings.TrimSpace(words))
	alone, _ := g.Session.IDs.Get(key)
	mine, theirs := 0, 1
	if chat {
		mine, theirs = 1, 0
	}
	found := alone[theirs] > 0
	if found {
		alone[theirs]--
		g.mirrored = true
	} else if alone[mine] < 255 {
		alone[mine]++
	}
	g.Session.IDs.Put(key, alone)
	return found
}

// again reports whether the words of a message need not be told: the session has told
// them under its id, or, in a history that is written again, under another one.
func (g *mapper) again(m *wireMessage, words string) bool {
	words = geminiWords(words)
	is, said := core.FingerprintOf(m.kind(), words), core.FingerprintOf("said", m.kind(), words)
	_, mirror := g.Session.IDs.Get(said)
	g.Session.IDs.Put(said, is)
	if m.ID == "" {
		return false
	}
	key := core.FingerprintOf("message", string(m.ID))
	before, _ := g.Session.IDs.Get(key)
	g.Session.IDs.Put(key, is)
	switch {
	case before == is:
		g.Duplicate = true
		g.mirrored = g.mirrored || g.history
		return true
	case g.copied && mirror && words != "":
		g.mirrored = true
		return true
	default:
		return false
	}
}

// revised reports whether the session has told other words of the message before.
func (g *mapper) revised(m *wireMessage) bool {
	is, ok := g.Session.IDs.Get(core.FingerprintOf("message", string(m.ID)))
	return ok && is != core.Fingerprint{} && m.ID != ""
}

var invisible = regexp.MustCompile(`[\x{200B}-\x{200D}\x{FEFF}\x{200E}\x{200F}]|(?s:<!--.*?-->)`)

// geminiWords is a text as it is compared: the vendor writes answers without what cannot
// be seen, but keeps it in the history.
func geminiWords(s string) string {
	// What is looked for begins with one of these, and few texts have them.
	if strings.Contains(s, "\xe2\x80") || strings.Contains(s, "\ufeff") || strings.Contains(s, "<!--") {
		s = invisible.ReplaceAllString(s, "")
	}
	return strings.TrimSpace(s)
}

// user maps a message of the user's side: results of tools, what a human typed, what a
// machine put there.
func (g *mapper) user(m *wireMessage) {
	body := m.body()
	for i := range body.parts {
		if body.parts[i].FunctionResponse.OK {
			g.response(m, i, &body.parts[i].FunctionResponse.Value)
		}
	}
	shown := &m.DisplayContent
	if strings.TrimSpace(shown.text()) == "" || shown.has(isResponse) {
		shown = body
	}
	kind, words := speechOf(shown.prompt())
	blank := strings.TrimSpace(words) == ""
	if blank && !body.has((*part).isMedia) || blank && body.has(isResponse) {
		return
	}
	d := core.DraftOf(kind, words)
	if blank {
		d.Text = nil
	}
	revised := g.revised(m)
	if g.again(m, words) {
		return
	}
	human := d.EventType == envelopes.UserMessage
	if human && !revised && !g.copied && !blank && g.st.Agent == "" && g.twin(words, true) {
		return
	}
	if human && g.st.Agent != "" {
		d.Origin = envelopes.OriginAgent
	}
	d.Model = m.Model.Ptr()
	g.put(m.ID, d)
}

// model maps a message of the model: what it says, its thoughts, its calls, each with
// its result. What the message adds to the bill goes on the first event.
func (g *mapper) model(m *wireMessage) {
	body := m.body()
	words := body.text()
	again := g.again(m, words)
	if !g.copied {
		g.Session.SetModel(string(m.Model))
	}
	if !again && strings.TrimSpace(words) != "" {
		g.utter(m, m.ID, envelopes.AssistantMessage, lenient.Text(words), m.Timestamp)
	}
	if !again || !g.copied {
		g.thoughts(m)
	}
	for i := range m.ToolCalls {
		g.call(m, i, &m.ToolCalls[i].Value)
	}
	for i := range body.parts {
		c := &body.parts[i].FunctionCall
		if c.OK && !m.calls(c.Value.ID) {
			g.call(m, len(m.ToolCalls)+i, &call{ID: c.Value.ID, Name: c.Value.Name, Args: c.Value.Args})
		}
	}
	bill, set := g.consume(m)
	if bill == nil || g.copied {
		return
	}
	if g.First < 0 {
		d := core.Draft{OnChannel: envelopes.ChannelSystem}
		d.EventType, d.Model = envelopes.Meta, m.Model.Ptr()
		g.put(g.usageID(m.ID), d)
	}
	g.AddUsage(bill, set)
}

// usageID is the id of an event for figures that came late. Figures that grow again do not
// replace those before, but add to them: they have an id of their own.
func (g *mapper) usageID(message lenient.Text) lenient.Text {
	if message == "" {
		return ""
	}
	id := message + "#usage"
	for n := 2; g.Session.HasEvent(string(id)); n++ {
		id = message + lenient.Text("#usage"+strconv.Itoa(n))
	}
	return id
}

// utter emits what the model said or thought.
func (g *mapper) utter(m *wireMessage, id lenient.Text, t envelopes.EventType, words, timestamp lenient.Text) {
	d := core.Draft{OnChannel: envelopes.ChannelChat}
	d.EventType, d.Text, d.Model = t, words.Ptr(), m.Model.Ptr()
	d.TS, _ = core.ParseTime(string(timestamp))
	g.put(id, d)
}

// thoughts emits the thoughts of a message; where it lists none, those among its parts.
func (g *mapper) thoughts(m *wireMessage) {
	n := 0
	think := func(words, timestamp lenient.Text) {
		id := m.ID
		if id != "" {
			id += lenient.Text("#thought" + strconv.Itoa(n))
		}
		n++
		g.utter(m, id, envelopes.Reasoning, words, timestamp)
	}
	for i := range m.Thoughts {
		think(m.Thoughts[i].Value.words(), m.Thoughts[i].Value.Timestamp)
	}
	if n > 0 {
		return
	}
	for _, p := range m.body().parts {
		if bool(p.Thought) && p.Text != "" {
			think(p.Text, "")
		}
	}
}

// consume is what the message adds to the bill: each figure above the highest one seen
// (semantics.md section 3). set writes the vendor's own figures.
func (g *mapper) consume(m *wireMessage) (u *envelopes.Usage, set func(*envelopes.AgentEventV1)) {
	if !m.Tokens.OK || m.ID == "" && g.Duplicate {
		return nil, nil
	}
	slot := core.FingerprintOf("message", string(m.ID))
	if m.ID == "" {
		slot = core.FingerprintOf("record", strconv.FormatUint(g.Session.Records, 10), strconv.Itoa(g.number))
	}
	return g.increment(slot, core.BoundID(string(m.ID)), &m.Tokens.Value)
}

// increment is what figures add to those of a slot of the bill. What was read from the
// cache is part of the input, so that usage cannot have more of it.
func (g *mapper) increment(slot core.Fingerprint, key string, v *tokens) (u *envelopes.Usage, set func(*envelopes.AgentEventV1)) {
	before, _ := g.Session.APICalls.Get(slot)
	now := before.Raise(core.Consumption{
		Input:     v.Input.Count(),
		CacheRead: v.Cached.Count(),
		Output:    v.Output.Count(),
		Reasoning: v.Thoughts.Count(),
		Tool:      v.Tool.Count(),
	})
	input, cached, tool := now.Input-before.Input, now.CacheRead-before.CacheRead, now.Tool-before.Tool
	fromCache := min(now.CacheRead-before.Told, input)
	now.Told = before.Told + fromCache
	u = &envelopes.Usage{
		Input:     input - fromCache + tool,
		CacheRead: fromCache,
		Output:    now.Output - before.Output,
		Reasoning: now.Reasoning - before.Reasoning,
		Key:       key,
	}
	if u.Total() == 0 && cached == 0 {
		return nil, nil
	}
	g.Session.APICalls.Put(slot, now)
	return u, func(e *envelopes.AgentEventV1) {
		e.TokensInput, e.TokensOutput = &input, &u.Output
		for _, f := range []struct {
			stated bool
			to     **int64
			value  *int64
		}{
			{v.Cached.OK, &e.TokensCached, &cached},
			{v.Thoughts.OK, &e.TokensThinking, &u.Reasoning},
			{v.Tool.OK, &e.TokensTool, &tool},
		} {
			if f.stated {
				*f.to = f.value
			}
		}
	}
}

// failure emits an error that the vendor reports; its text may wrap an answer of the API.
func (g *mapper) failure(id lenient.Text, words string) {
	code, message := "", words
	if from, to := strings.IndexByte(words, '{'), strings.LastIndexByte(words, '}'); from >= 0 && from < to {
		if v := jsontext.Value(words[from : to+1]); lenient.ReadValue(v) == nil {
			if c, m := core.VendorError(v); m != "" {
				code, message = c, m
			}
		}
	}
	g.fail(id, words, code, message)
}

// fail emits an error.
func (g *mapper) fail(id lenient.Text, words, code, message string) {
	d := core.Draft{OnChannel: envelopes.ChannelSystem}
	d.EventType, d.Text = envelopes.Log, lenient.Text(words).Ptr()
	d.Metadata = g.Session.MetadataWithError(core.Cut(code, core.MaxName), message)
	g.put(id, d)
}
