package normalizers

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
)

// What Gemini CLI writes about who said what: the messages of a session, the contents of
// a saved conversation, and the prompts in logs.json (vendor-formats.md section 6.2).

// geminiMessage is a message in any of its forms.
type geminiMessage struct {
	ID             text                        `json:"id"`
	Timestamp      text                        `json:"timestamp"`
	Type           text                        `json:"type"`
	Role           text                        `json:"role"` // of a content, instead of a type
	Content        geminiParts                 `json:"content"`
	Parts          geminiParts                 `json:"parts"` // of a content, instead of it
	DisplayContent geminiParts                 `json:"displayContent"`
	Thoughts       list[object[geminiThought]] `json:"thoughts"`
	Tokens         object[geminiTokens]        `json:"tokens"`
	Model          text                        `json:"model"`
	ToolCalls      list[object[geminiCall]]    `json:"toolCalls"`

	MessageID jsontext.Value `json:"messageId"` // of a line of logs.json
	Message   text           `json:"message"`
}

// kind is the type of a message, by the name that sessions use.
func (m *geminiMessage) kind() string {
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
func (m *geminiMessage) isMessage() bool {
	return m.isLine() || m.ID != "" && m.Type != "" || m.kind() != "" && (m.Content.present || m.Parts.present)
}

// isLine: a prompt as it was typed, of logs.json.
func (m *geminiMessage) isLine() bool {
	return scalar(m.MessageID) != "" && m.Type != "" && m.Message != ""
}

// body is what the message says.
func (m *geminiMessage) body() *geminiParts {
	if m.Content.present {
		return &m.Content
	}
	return &m.Parts
}

type geminiThought struct {
	Subject     text `json:"subject"`
	Description text `json:"description"`
	Summary     text `json:"summary"`
	Timestamp   text `json:"timestamp"`
}

func (t *geminiThought) words() text {
	switch {
	case t.Subject != "" && t.Description != "":
		return t.Subject + ": " + t.Description
	case t.Subject+t.Description != "":
		return t.Subject + t.Description
	default:
		return t.Summary
	}
}

type geminiTokens struct {
	Input    number `json:"input"` // with what was read from a cache
	Output   number `json:"output"`
	Cached   number `json:"cached"`
	Thoughts number `json:"thoughts"`
	Tool     number `json:"tool"`
}

// geminiParts are the parts of a content, which may stand as one string or one part too.
type geminiParts struct {
	parts   []geminiPart
	present bool
}

type geminiPart struct {
	Text             text                       `json:"text"`
	Thought          flag                       `json:"thought"`
	FunctionCall     object[geminiFunctionCall] `json:"functionCall"`
	FunctionResponse object[geminiResponse]     `json:"functionResponse"`

	worded bool // it has a text, if only an empty one
}

func (p *geminiParts) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*p = geminiParts{}
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
func (p *geminiParts) read(dec *jsontext.Decoder) error {
	var part geminiPart
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
func (p *geminiPart) isMedia() bool {
	return !p.worded && !bool(p.Thought) && !p.FunctionCall.ok && !p.FunctionResponse.ok
}

// text is what the parts say in words, thoughts apart; as the vendor does, they are
// joined by nothing.
func (p *geminiParts) text() string {
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
func (p *geminiParts) prompt() string {
	var b strings.Builder
	for i := range p.parts {
		if bool(p.parts[i].Thought) || isGeminiNote(string(p.parts[i].Text)) {
			continue
		}
		b.WriteString(string(p.parts[i].Text))
	}
	if strings.TrimSpace(b.String()) == "" {
		return p.text()
	}
	return b.String()
}

func (p *geminiParts) has(is func(*geminiPart) bool) bool {
	for i := range p.parts {
		if is(&p.parts[i]) {
			return true
		}
	}
	return false
}

func isResponse(p *geminiPart) bool { return p.FunctionResponse.ok }

// isGeminiNote: a part that a hook or the runtime put beside a prompt.
func isGeminiNote(s string) bool {
	s = strings.TrimSpace(s)
	return strings.HasPrefix(s, "<hook_context>") || strings.HasPrefix(s, "<session_context>") || strings.HasPrefix(s, "<system_note>")
}

// geminiSpeech tells the speech of a user's text by how it begins; the first match
// counts (semantics.md section 5).
var geminiSpeech = []struct {
	prefix string
	speech speech
}{
	{"<session_context>", speechInjected},
	{"<hook_context>", speechInjected},
	{"This is the Gemini CLI. We are setting up the context for our chat", speechInjected},
	{"Here is the user's editor context as a JSON object", speechInjected},
	{"Here is a summary of changes in the user's editor context", speechInjected},
	{"System: Please continue.", speechInjected},
	{"<scratchpad>", speechSummary},
	{"<state_snapshot>", speechSummary},
	{"I ran the following shell command:\n```", speechTerminal},
	{"/", speechCommand},
	{"?", speechCommand},
}

// geminiSpeechOf classifies a user's text and unwraps what was typed while the agent
// worked.
func geminiSpeechOf(s string) (kind speech, words string) {
	trimmed := strings.TrimSpace(s)
	for _, c := range geminiSpeech {
		if strings.HasPrefix(trimmed, c.prefix) {
			return c.speech, s
		}
	}
	if strings.HasPrefix(trimmed, "User steering update:\n") || strings.HasPrefix(trimmed, "User hints:\n") {
		if typed := strings.TrimSpace(element(trimmed, "user_input")); typed != "" {
			return speechHuman, typed
		}
	}
	return speechHuman, s
}

// message maps a message, of which the session may have told all or a part before.
func (g *geminiFold) message(m *geminiMessage) {
	known := false
	if m.ID != "" {
		key := fingerprintOf("message", string(m.ID))
		if _, known = g.s.ids.get(key); !known {
			g.s.ids.put(key, fingerprint{})
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
		g.runtime(m.ID, envelopes.SystemMessage, text(m.body().text()))
	case m.kind() == "error":
		g.failure(m.ID, m.body().text())
	default:
		g.runtime(m.ID, envelopes.Meta, text(m.body().text()))
	}
}

// line maps a prompt of logs.json: one that the session's own file has told is its mirror
// (semantics.md section 9).
func (g *geminiFold) line(m *geminiMessage) {
	id := scalar(m.MessageID)
	if g.seen("line", string(id), string(m.Message)) {
		return
	}
	if g.twin(string(m.Message), false) {
		return
	}
	d := draftOf(speechCommand, string(m.Message))
	g.put(id, d)
}

// seen reports whether the session has had this very thing before, and remembers it.
func (g *geminiFold) seen(parts ...string) bool {
	key := fingerprintOf(parts...)
	if _, ok := g.s.ids.get(key); ok {
		g.told = true
		return true
	}
	g.s.ids.put(key, key)
	return false
}

// twin reports whether a prompt has been told by the other of the two files that tell
// prompts: the session's own and logs.json. Each mirrors each only once: the counts of
// both that are still without a twin stand in the memory of ids.
func (g *geminiFold) twin(words string, chat bool) bool {
	key := fingerprintOf("prompt", strings.TrimSpace(words))
	alone, _ := g.s.ids.get(key)
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
	g.s.ids.put(key, alone)
	return found
}

// again reports whether the words of a message need not be told: the session has told
// them under its id, or, in a history that is written again, under another one.
func (g *geminiFold) again(m *geminiMessage, words string) bool {
	words = geminiWords(words)
	is, said := fingerprintOf(m.kind(), words), fingerprintOf("said", m.kind(), words)
	_, mirror := g.s.ids.get(said)
	g.s.ids.put(said, is)
	if m.ID == "" {
		return false
	}
	key := fingerprintOf("message", string(m.ID))
	before, _ := g.s.ids.get(key)
	g.s.ids.put(key, is)
	switch {
	case before == is:
		g.told = true
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
func (g *geminiFold) revised(m *geminiMessage) bool {
	is, ok := g.s.ids.get(fingerprintOf("message", string(m.ID)))
	return ok && is != fingerprint{} && m.ID != ""
}

var geminiInvisible = regexp.MustCompile(`[\x{200B}-\x{200D}\x{FEFF}\x{200E}\x{200F}]|(?s:<!--.*?-->)`)

// geminiWords is a text as it is compared: the vendor writes answers without what cannot
// be seen, but keeps it in the history.
func geminiWords(s string) string {
	// What is looked for begins with one of these, and few texts have them.
	if strings.Contains(s, "\xe2\x80") || strings.Contains(s, "\ufeff") || strings.Contains(s, "<!--") {
		s = geminiInvisible.ReplaceAllString(s, "")
	}
	return strings.TrimSpace(s)
}

// user maps a message of the user's side: results of tools, what a human typed, what a
// machine put there.
func (g *geminiFold) user(m *geminiMessage) {
	body := m.body()
	for i := range body.parts {
		if body.parts[i].FunctionResponse.ok {
			g.response(m, i, &body.parts[i].FunctionResponse.value)
		}
	}
	shown := &m.DisplayContent
	if strings.TrimSpace(shown.text()) == "" || shown.has(isResponse) {
		shown = body
	}
	kind, words := geminiSpeechOf(shown.prompt())
	blank := strings.TrimSpace(words) == ""
	if blank && !body.has((*geminiPart).isMedia) || blank && body.has(isResponse) {
		return
	}
	d := draftOf(kind, words)
	if blank {
		d.Text = nil
	}
	revised := g.revised(m)
	if g.again(m, words) {
		return
	}
	human := d.EventType == envelopes.UserMessage
	if human && !revised && !g.copied && !blank && g.s.Gemini.Agent == "" && g.twin(words, true) {
		return
	}
	if human && g.s.Gemini.Agent != "" {
		d.Origin = envelopes.OriginAgent
	}
	d.Model = m.Model.ptr()
	g.put(m.ID, d)
}

// model maps a message of the model: what it says, its thoughts, its calls, each with
// its result. What the message adds to the bill goes on the first event.
func (g *geminiFold) model(m *geminiMessage) {
	body := m.body()
	words := body.text()
	again := g.again(m, words)
	if !g.copied {
		g.s.setModel(string(m.Model))
	}
	if !again && strings.TrimSpace(words) != "" {
		g.utter(m, m.ID, envelopes.AssistantMessage, text(words), m.Timestamp)
	}
	if !again || !g.copied {
		g.thoughts(m)
	}
	for i := range m.ToolCalls {
		g.call(m, i, &m.ToolCalls[i].value)
	}
	for i := range body.parts {
		c := &body.parts[i].FunctionCall
		if c.ok && !m.calls(c.value.ID) {
			g.call(m, len(m.ToolCalls)+i, &geminiCall{ID: c.value.ID, Name: c.value.Name, Args: c.value.Args})
		}
	}
	bill, set := g.consume(m)
	if bill == nil || g.copied {
		return
	}
	if g.first < 0 {
		d := draft{on: envelopes.ChannelSystem}
		d.EventType, d.Model = envelopes.Meta, m.Model.ptr()
		g.put(g.usageID(m.ID), d)
	}
	g.bill(bill, set)
}

// usageID is the id of an event for figures that came late. Figures that grow again do not
// replace those before, but add to them: they have an id of their own.
func (g *geminiFold) usageID(message text) text {
	if message == "" {
		return ""
	}
	id := message + "#usage"
	for n := 2; g.s.knows(string(id)); n++ {
		id = message + text("#usage"+strconv.Itoa(n))
	}
	return id
}

// utter emits what the model said or thought.
func (g *geminiFold) utter(m *geminiMessage, id text, t envelopes.EventType, words, timestamp text) {
	d := draft{on: envelopes.ChannelChat}
	d.EventType, d.Text, d.Model = t, words.ptr(), m.Model.ptr()
	d.TS, _ = parseTime(string(timestamp))
	g.put(id, d)
}

// thoughts emits the thoughts of a message; where it lists none, those among its parts.
func (g *geminiFold) thoughts(m *geminiMessage) {
	n := 0
	think := func(words, timestamp text) {
		id := m.ID
		if id != "" {
			id += text("#thought" + strconv.Itoa(n))
		}
		n++
		g.utter(m, id, envelopes.Reasoning, words, timestamp)
	}
	for i := range m.Thoughts {
		think(m.Thoughts[i].value.words(), m.Thoughts[i].value.Timestamp)
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
func (g *geminiFold) consume(m *geminiMessage) (u *envelopes.Usage, set func(*envelopes.AgentEventV1)) {
	if !m.Tokens.ok || m.ID == "" && g.told {
		return nil, nil
	}
	slot := fingerprintOf("message", string(m.ID))
	if m.ID == "" {
		slot = fingerprintOf("record", strconv.FormatUint(g.s.Records, 10), strconv.Itoa(g.number))
	}
	return g.increment(slot, boundID(string(m.ID)), &m.Tokens.value)
}

// increment is what figures add to those of a slot of the bill. What was read from the
// cache is part of the input, so that usage cannot have more of it.
func (g *geminiFold) increment(slot fingerprint, key string, v *geminiTokens) (u *envelopes.Usage, set func(*envelopes.AgentEventV1)) {
	before, _ := g.s.apiCalls.get(slot)
	now := before.raise(consumption{
		Input:     v.Input.count(),
		CacheRead: v.Cached.count(),
		Output:    v.Output.count(),
		Reasoning: v.Thoughts.count(),
		Tool:      v.Tool.count(),
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
	g.s.apiCalls.put(slot, now)
	return u, func(e *envelopes.AgentEventV1) {
		e.TokensInput, e.TokensOutput = &input, &u.Output
		for _, f := range []struct {
			stated bool
			to     **int64
			value  *int64
		}{
			{v.Cached.ok, &e.TokensCached, &cached},
			{v.Thoughts.ok, &e.TokensThinking, &u.Reasoning},
			{v.Tool.ok, &e.TokensTool, &tool},
		} {
			if f.stated {
				*f.to = f.value
			}
		}
	}
}

// failure emits an error that the vendor reports; its text may wrap an answer of the API.
func (g *geminiFold) failure(id text, words string) {
	code, message := "", words
	if from, to := strings.IndexByte(words, '{'), strings.LastIndexByte(words, '}'); from >= 0 && from < to {
		if v := jsontext.Value(words[from : to+1]); readValue(v) == nil {
			if c, m := problemOf(v); m != "" {
				code, message = c, m
			}
		}
	}
	g.fail(id, words, code, message)
}

// fail emits an error.
func (g *geminiFold) fail(id text, words, code, message string) {
	d := draft{on: envelopes.ChannelSystem}
	d.EventType, d.Text = envelopes.Log, text(words).ptr()
	d.Metadata = g.s.metadataWithError(cut(code, maxName), message)
	g.put(id, d)
}
