package normalizers

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
)

// What the SDK of Claude Code writes (claude -p --output-format stream-json, and the
// messages of the SDK as objects, seed claude-sdk-messages): the blocks of messages as a
// transcript has them, a first record that introduces the session, a last one with the
// bill of the run, and, where they are asked for, the pieces of a message as they come.

const (
	maxPartials    = 8        // messages of which pieces have come
	maxBlocks      = 256      // blocks of one of them
	maxPartialText = 32 << 10 // bytes in JSON of what a session keeps of their pieces
)

// claudeStream are the members of a record that only the SDK writes.
type claudeStream struct {
	AuditTimestamp     text                      `json:"_audit_timestamp"` // of streams that the desktop application keeps
	ParentToolUseID    text                      `json:"parent_tool_use_id"`
	ToolUseResultSnake jsontext.Value            `json:"tool_use_result"`
	Model              text                      `json:"model"`
	Data               jsontext.Value            `json:"data"`
	Event              object[claudeStreamEvent] `json:"event"`
	MCPServers         jsontext.Value            `json:"mcp_servers"`
	CodeVersion        text                      `json:"claude_code_version"`
	IsSynthetic        flag                      `json:"isSynthetic"`
	Key                text                      `json:"key"`
	RateLimit          object[claudeRateLimit]   `json:"rate_limit_info"`
	Output             claudeContent             `json:"output"`
	CompactError       text                      `json:"compact_error"`
	Stdout             text                      `json:"stdout"`
	Stderr             text                      `json:"stderr"`

	// Of a result.
	Usage             jsontext.Value `json:"usage"`
	ModelUsage        jsontext.Value `json:"modelUsage"`
	Result            jsontext.Value `json:"result"`
	Errors            list[text]     `json:"errors"`
	IsErrorSnake      flag           `json:"is_error"`
	IsErrorCamel      flag           `json:"isError"`
	DurationMS        jsontext.Value `json:"duration_ms"`
	DurationAPIMS     jsontext.Value `json:"duration_api_ms"`
	NumTurns          jsontext.Value `json:"num_turns"`
	TotalCostUSD      jsontext.Value `json:"total_cost_usd"`
	StructuredOutput  jsontext.Value `json:"structured_output"`
	PermissionDenials jsontext.Value `json:"permission_denials"`
	StopReason        jsontext.Value `json:"stop_reason"`
}

// claudeRateLimit says how far the use of an account has come.
type claudeRateLimit struct {
	Status text `json:"status"`
}

// claudeStreamEvent is an event of the API as it streams a message.
type claudeStreamEvent struct {
	Type    text                  `json:"type"`
	Index   number                `json:"index"`
	Message object[claudeMessage] `json:"message"`
	Block   object[claudeBlock]   `json:"content_block"`
	Delta   object[claudeDelta]   `json:"delta"`
	Usage   object[claudeUsage]   `json:"usage"`
	Error   jsontext.Value        `json:"error"`
}

// claudeDelta is a piece of a block.
type claudeDelta struct {
	Text        text `json:"text"`
	Thinking    text `json:"thinking"`
	PartialJSON text `json:"partial_json"`
}

// claudePartial is a message of which pieces have come, and not yet the whole.
type claudePartial struct {
	Thread  fingerprint           `json:"t,omitzero"`
	Agent   string                `json:"a,omitzero"`
	Message string                `json:"m,omitzero"` // its id; empty when its start was missed
	Model   string                `json:"model,omitzero"`
	Blocks  window[claudeSection] `json:"b,omitzero"`
	Used    consumption           `json:"u,omitzero"`
	Last    held                  `json:"last"`           // the record of its last piece
	UUID    string                `json:"uuid,omitzero"`  // of that record
	Ended   bool                  `json:"ended,omitzero"` // no piece follows
}

// claudeSection is a block of a message as far as its pieces have come.
type claudeSection struct {
	Index int64  `json:"i"`
	Type  string `json:"y"`
	ID    string `json:"id,omitzero"`
	Name  string `json:"n,omitzero"`
	Words string `json:"w,omitzero"`
	Told  bool   `json:"told,omitzero"` // a record has told the block whole
	Cut   bool   `json:"cut,omitzero"`  // more came than is kept
}

// size is about how many bytes the pieces take in memory.
func (p *claudePartial) size() int {
	n := 256 + len(p.Agent) + len(p.Message) + len(p.Model) + len(p.UUID) + len(p.Last.Raw) + len(p.Last.Traceparent) + len(p.Last.Tracestate)
	for _, b := range p.Blocks {
		n += 64 + len(b.Type) + len(b.ID) + len(b.Name) + len(b.Words)
	}
	return n
}

// unwrap gives a message of the SDK that comes as an object, without a type, the form of
// a line of the stream (seed-features.md section 3.1).
func (r *claudeRecord) unwrap() {
	if !isValue(r.ToolUseResult) {
		r.ToolUseResult = r.ToolUseResultSnake
	}
	switch {
	case r.Type != "":
		return
	case r.Subtype == "init" && r.Data.Kind() == '{':
		readObject(r.Data.Clone(), r)
		r.Type = "system"
	case isValue(r.NumTurns), isValue(r.TotalCostUSD):
		r.Type = "result"
	case r.Event.ok:
		r.Type = "stream_event"
	case r.Content.present && r.Model != "":
		r.Type = "assistant"
	case r.Content.present && (r.UUID != "" || r.ToolUseResultSnake != nil):
		r.Type = "user"
	default:
		return
	}
	if (r.Type == "assistant" || r.Type == "user") && !r.Message.ok {
		r.Message.ok = true
		r.Message.value = claudeMessage{Role: r.Type, Model: r.Model, Content: r.Content}
		r.Content = claudeContent{}
	}
}

// isStream reports whether the record is one of the SDK and not of a transcript: those
// have the id of their session in camel case.
func (r *claudeRecord) isStream() bool {
	return r.SessionID == "" || r.Type == "system" && r.Subtype == "init"
}

// introduce emits the first record of a run.
func (c *claudeFold) introduce() {
	c.flush(nil)
	c.s.setModel(string(c.Model))
	c.s.setTextExtension("claudeCodeVersion", c.CodeVersion)
	if c.MCPServers.Kind() == '[' {
		c.s.setExtension("mcpServers", mcpServers(c.MCPServers))
	}
	words := "Session: " + cmp.Or(c.session(), "unknown")
	if c.Model != "" {
		words += ", Model: " + string(c.Model)
	}
	d := draft{on: envelopes.ChannelSystem}
	d.EventType, d.Text = envelopes.SystemMessage, &words
	if c.put(c.UUID, d) {
		c.s.Claude.Runs.over() // of a run before it that had no result
	}
}

// mcpServers are MCP servers as objects: some versions write only their names
// (seed-features.md C11).
func mcpServers(list jsontext.Value) jsontext.Value {
	out := jsontext.Value{'['}
	for _, v := range elementsOf(list) {
		if v.Kind() == '"' {
			v = append(appendQuote([]byte(`{"name":`), unquote(v)), '}')
		}
		if v = carried(v); v.Kind() != '{' {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, v...)
	}
	return append(out, ']')
}

// ended emits the result of a run. Its figures are those of the whole run: the event
// carries what they are above what the events of the run have carried, and the figures
// themselves in its metadata. What the run says at its end it has said before, unless it
// was asked for nothing but its result.
func (c *claudeFold) ended() {
	c.flush(nil)
	r := &c.claudeStream
	words, failed := c.outcome()
	d := draft{on: envelopes.ChannelSystem, as: envelopes.RoleSystem, identity: string(c.r.Data)}
	d.EventType = envelopes.SessionSummary
	if !failed && words != "" {
		d.Text = &words
	}
	d.Metadata = c.s.metadataWith(map[string]jsontext.Value{
		"subtype":           textValue(c.Subtype),
		"durationMs":        r.DurationMS,
		"durationApiMs":     r.DurationAPIMS,
		"numTurns":          r.NumTurns,
		"totalCostUsd":      r.TotalCostUSD,
		"usage":             r.Usage,
		"modelUsage":        r.ModelUsage,
		"permissionDenials": r.PermissionDenials,
		"stopReason":        r.StopReason,
		"structuredOutput":  r.StructuredOutput,
	})
	if !c.put(c.UUID, d) {
		return // the same result again
	}
	if c.s.Claude.Runs.Last == promptKey(words) { // told by its own record, which does not make the result another one
		c.events[len(c.events)-1].Event.Text = nil
	}
	var v object[claudeUsage]
	if v.ok = r.Usage.Kind() == '{'; v.ok {
		readObject(r.Usage, &v.value)
	}
	if u := c.s.Claude.Runs.result(v.value.consumption()); v.ok && u != nil {
		c.bill(u, claudeFigures(u, v.value.OutputDetails.value.Thinking.ok))
	}
	c.s.Claude.Runs.over()
	if !failed {
		return
	}
	code := "TASK_ERROR"
	if c.Subtype != "" && c.Subtype != "success" {
		code = string(c.Subtype)
	}
	id := c.UUID
	if id != "" {
		id += "#error"
	}
	c.fail(id, code, words, words)
}

// outcome is what a run ended with, and whether it failed: the flag says so, for the
// subtype is "success" when nobody was logged in (vendor-formats.md section 4), or a
// subtype that names an error, of which some versions say that it is none.
func (c *claudeFold) outcome() (words string, failed bool) {
	r := &c.claudeStream
	failed = bool(r.IsErrorSnake) || bool(r.IsErrorCamel) || strings.HasPrefix(string(c.Subtype), "error")
	switch kind := r.Result.Kind(); {
	case kind == '"':
		words = unquote(r.Result)
	case kind == '{':
		if _, words = problemOf(r.Result); words == "" {
			var e struct {
				Error text `json:"error"`
			}
			readObject(r.Result, &e)
			words = string(e.Error)
		}
	}
	if words == "" {
		var parts []string
		for _, e := range r.Errors {
			if e != "" {
				parts = append(parts, string(e))
			}
		}
		words = strings.Join(parts, "\n")
	}
	return words, failed
}

// textValue is a text as a JSON value; nil for the empty one.
func textValue(t text) jsontext.Value {
	if t == "" {
		return nil
	}
	return appendQuote(nil, string(t))
}

// failedText reports whether the text of a result is a JSON object that says so itself:
// an error, or an exit code that is not zero (seed-features.md section 2.3). The code is
// never read from there (semantics.md section 7).
func failedText(words string) bool {
	v := jsontext.Value(strings.TrimSpace(words))
	if v.Kind() != '{' || !v.IsValid(vendorJSON) {
		return false
	}
	var r struct {
		Error    jsontext.Value `json:"error"`
		IsError  jsontext.Value `json:"isError"`
		ExitCode number         `json:"exitCode"`
	}
	readObject(v, &r)
	says := func(v jsontext.Value) bool {
		return isValue(v) && v.Kind() != 'f' && string(v) != `""`
	}
	return says(r.Error) || says(r.IsError) || r.ExitCode.ok && r.ExitCode.value != 0
}

// streamEvent takes a piece of a message. The message itself follows, as a rule: then the
// pieces tell nothing (seed-features.md row 002-23).
func (c *claudeFold) streamEvent() SkipReason {
	e := &c.Event.value
	switch e.Type {
	case "ping":
		return SkipHeartbeat
	case "error":
		code, message := problemOf(e.Error)
		c.fail(c.UUID, code, message, message)
		return SkipDuplicate
	case "message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop":
	default:
		c.runtime(c.UUID, envelopes.Meta, "")
		return SkipDuplicate
	}
	at := c.partial()
	if at >= 0 && (e.Type == "message_start" || c.s.Claude.Partials[at].Ended) {
		c.flush(func(p claudePartial) bool { return p.Thread == c.in })
		at = -1
	}
	p := claudePartial{Thread: c.in, Agent: string(c.AgentID)}
	if at >= 0 {
		p = c.s.Claude.Partials[at]
	}
	p.Last, p.UUID = c.hold(), cut(string(c.UUID), maxIdentity)
	c.grow(&p, e)
	if at >= 0 {
		c.s.Claude.Partials = c.s.Claude.Partials.with(at, p)
	} else {
		if len(c.s.Claude.Partials) == maxPartials {
			c.emitPartial(c.s.Claude.Partials[0])
		}
		c.s.Claude.Partials = c.s.Claude.Partials.push(p, maxPartials, nil)
	}
	return SkipProgress
}

// partial is the place of the message of this thread of which pieces have come, -1 for
// none.
func (c *claudeFold) partial() int {
	return slices.IndexFunc(c.s.Claude.Partials, func(p claudePartial) bool { return p.Thread == c.in })
}

// grow adds a piece to a message.
func (c *claudeFold) grow(p *claudePartial, e *claudeStreamEvent) {
	if m := &e.Message.value; e.Message.ok {
		p.Message, p.Model = cut(string(m.ID), maxIdentity), cut(string(m.Model), maxName)
		p.Used = p.Used.raise(m.Usage.value.consumption())
		if !c.internal || c.s.Model == "" {
			c.s.setModel(p.Model)
		}
		if p.Message != "" {
			c.consumed(consumption{}, false, p.Message) // names the call: it is of this run, whenever it is told
		}
	}
	if e.Usage.ok {
		p.Used = p.Used.raise(e.Usage.value.consumption())
	}
	p.Ended = e.Type == "message_stop"
	if e.Type != "content_block_start" && e.Type != "content_block_delta" {
		return
	}
	index := e.Index.count()
	at := slices.IndexFunc(p.Blocks, func(b claudeSection) bool { return b.Index == index })
	section := claudeSection{Index: index, Type: "text"}
	if at >= 0 {
		section = p.Blocks[at]
	}
	if b := &e.Block.value; e.Block.ok {
		section.Type, section.ID, section.Name = cut(string(b.Type), maxName), cut(string(b.ID), maxIdentity), cut(string(b.Name), maxName)
		c.extend(&section, b.Text+b.Thinking)
	}
	d := &e.Delta.value
	if d.Thinking != "" && section.Type == "text" && at < 0 {
		section.Type = "thinking" // its start was missed
	}
	c.extend(&section, d.Text+d.Thinking+d.PartialJSON)
	switch {
	case at >= 0:
		p.Blocks = p.Blocks.with(at, section)
	case len(p.Blocks) < maxBlocks:
		p.Blocks = p.Blocks.push(section, maxBlocks, nil)
	}
}

// extend adds to a block what a session may keep.
func (c *claudeFold) extend(b *claudeSection, more text) {
	if more == "" {
		return
	}
	kept := 0
	for _, p := range c.s.Claude.Partials {
		for _, o := range p.Blocks {
			kept += len(o.Words)
		}
	}
	if 6*(kept+len(more)) > maxPartialText && c.quotedPartials()+len(appendQuote(nil, string(more))) > maxPartialText {
		b.Cut = true
	}
	if !b.Cut {
		b.Words += string(more)
	}
}

// quotedPartials is how many bytes of JSON the pieces take.
func (c *claudeFold) quotedPartials() int {
	n := 0
	for _, p := range c.s.Claude.Partials {
		for _, b := range p.Blocks {
			n += len(appendQuote(nil, b.Words))
		}
	}
	return n
}

// match takes note that a record tells blocks of a message whole. Pieces of another
// message of its thread are told before it: their own record has not come.
func (c *claudeFold) match() {
	id := cut(string(c.Message.value.ID), maxIdentity)
	c.flush(func(p claudePartial) bool { return p.Thread == c.in && p.Message != "" && p.Message != id })
	at := c.partial()
	if at < 0 {
		return
	}
	p := c.s.Claude.Partials[at]
	for i := range c.Message.value.Content.blocks {
		b := &c.Message.value.Content.blocks[i]
		if j := slices.IndexFunc(p.Blocks, func(s claudeSection) bool { return !s.Told && s.Type == string(b.Type) }); j >= 0 {
			if b.Type == "thinking" && b.Thinking == "" {
				b.Thinking = text(p.Blocks[j].Words) // the message itself has only its signature
			}
			p.Blocks = p.Blocks.with(j, claudeSection{Index: p.Blocks[j].Index, Type: p.Blocks[j].Type, Told: true})
		}
	}
	c.s.Claude.Partials = c.s.Claude.Partials.with(at, p)
}

// flush tells the messages of which only pieces have come, those that match; nil matches
// all.
func (c *claudeFold) flush(match func(claudePartial) bool) {
	if len(c.s.Claude.Partials) == 0 {
		return
	}
	var let []claudePartial
	c.s.Claude.Partials = c.s.Claude.Partials.without(func(p claudePartial) bool {
		if match != nil && !match(p) {
			return false
		}
		let = append(let, p)
		return true
	})
	for _, p := range let {
		c.emitPartial(p)
	}
}

// emitPartial tells the blocks of a message of which only pieces have come. Its events
// take the id and the time of the record of its last piece (semantics.md section 9).
func (c *claudeFold) emitPartial(p claudePartial) {
	f := &claudeFold{fold: c.fold, in: p.Thread, internal: p.Agent != "", from: &p.Last}
	f.AgentID, f.UUID = text(p.Agent), text(p.UUID)
	f.Message.value.ID, f.Message.value.Model = text(p.Message), text(p.Model)
	f.ParentToolUseID = text(p.Agent)
	first := len(f.events)
	unnamed := 0
	id := func(suffix string) text { // of an event whose block has no id
		base := p.UUID
		if base == "" {
			base = "@" + strconv.FormatUint(p.Last.Record, 10)
			if unnamed++; unnamed > 1 {
				suffix = "." + strconv.Itoa(unnamed-1)
			}
		}
		return text(base + suffix)
	}
	var words []string
	truncated := false
	for _, b := range p.Blocks {
		if b.Type == "text" && !b.Told {
			words = append(words, b.Words)
			truncated = truncated || b.Cut
		}
	}
	said := strings.TrimSpace(strings.Join(words, "")) != ""
	thoughts := 0
	for _, b := range p.Blocks {
		isThought := b.Type == "thinking" || b.Type == "redacted_thinking"
		switch {
		case b.Told:
		case b.Type == "text" && said:
			said = false // all texts are one event
			joined := strings.Join(words, "\n")
			f.truncated = truncated
			f.utter(id(""), envelopes.AssistantMessage, &joined)
		case isThought:
			f.truncated = b.Cut
			f.utter(id("#thinking"+strconv.Itoa(thoughts)), envelopes.Reasoning, text(b.Words).ptr())
		case strings.HasSuffix(b.Type, "tool_use"):
			f.truncated = b.Cut
			f.call(&claudeBlock{Type: text(b.Type), ID: text(b.ID), Name: text(b.Name), Input: partialInput(b)})
		}
		if isThought {
			thoughts++
		}
	}
	if len(f.events) == first || p.Used == (consumption{}) {
		return
	}
	if u, set := f.consumed(p.Used, false, p.Message); u != nil {
		f.billAt(first, u, set)
	}
}

// partialInput is the input of a call as far as its pieces have come: JSON, or else the
// text as it stands.
func partialInput(b claudeSection) jsontext.Value {
	v := jsontext.Value(b.Words)
	switch {
	case len(v) == 0:
		return jsontext.Value(`{}`)
	case !b.Cut && v.IsValid(vendorJSON):
		return v
	default:
		return appendQuote(nil, b.Words)
	}
}

// array maps the messages of a run that come as one JSON array (--output-format json
// --verbose). Each counts as a record, so that they tell what the lines of a stream do.
func (claude) array(s *Session, r Record, elements []jsontext.Value) (Result, error) {
	f := s.begin(r, "")
	first := -1
	for i, e := range elements {
		if i > 0 {
			s.Records++
		}
		c := &claudeFold{fold: f}
		if err := readRecord(e, &c.claudeRecord); err != nil {
			return Result{}, err
		}
		f.nextElement()
		c.fold.r.Data = e
		c.start()
		c.record()
		if first < 0 {
			first = f.first
		}
	}
	f.first = first
	return f.done(SkipEmpty)
}

// objectsOf are the elements of a JSON array of objects; nil for any other value.
func objectsOf(v jsontext.Value) []jsontext.Value {
	if v.Kind() != '[' {
		return nil
	}
	elements := elementsOf(v)
	if slices.ContainsFunc(elements, func(e jsontext.Value) bool { return e.Kind() != '{' }) {
		return nil
	}
	return elements
}
