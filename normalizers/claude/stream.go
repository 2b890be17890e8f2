package claude

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

// What the SDK of Claude Code writes (claude -p --output-format stream-json, and the
// messages of the SDK as objects, seed claude-sdk-messages): the blocks of messages as a
// transcript has them, a first record that introduces the session, a last one with the
// bill of the run, and, where they are asked for, the pieces of a message as they come.

const (
	maxPartials    = 8        // messages of which pieces have come
	maxBlocks      = 256      // blocks of one of them
	maxPartialText = 32 << 10 // bytes in JSON of what a session keeps of their pieces
)

// stream are the members of a record that only the SDK writes.
type stream struct {
	AuditTimestamp     lenient.Text                `json:"_audit_timestamp"` // of streams that the desktop application keeps
	ParentToolUseID    lenient.Text                `json:"parent_tool_use_id"`
	ToolUseResultSnake jsontext.Value              `json:"tool_use_result"`
	Model              lenient.Text                `json:"model"`
	Data               jsontext.Value              `json:"data"`
	Event              lenient.Object[streamEvent] `json:"event"`
	MCPServers         jsontext.Value              `json:"mcp_servers"`
	CodeVersion        lenient.Text                `json:"claude_code_version"`
	IsSynthetic        lenient.Flag                `json:"isSynthetic"`
	Key                lenient.Text                `json:"key"`
	RateLimit          lenient.Object[rateLimit]   `json:"rate_limit_info"`
	Output             content                     `json:"output"`
	CompactError       lenient.Text                `json:"compact_error"`
	Stdout             lenient.Text                `json:"stdout"`
	Stderr             lenient.Text                `json:"stderr"`

	// Of a result.
	Usage             jsontext.Value             `json:"usage"`
	ModelUsage        jsontext.Value             `json:"modelUsage"`
	Result            jsontext.Value             `json:"result"`
	Errors            lenient.List[lenient.Text] `json:"errors"`
	IsErrorSnake      lenient.Flag               `json:"is_error"`
	IsErrorCamel      lenient.Flag               `json:"isError"`
	DurationMS        jsontext.Value             `json:"duration_ms"`
	DurationAPIMS     jsontext.Value             `json:"duration_api_ms"`
	NumTurns          jsontext.Value             `json:"num_turns"`
	TotalCostUSD      jsontext.Value             `json:"total_cost_usd"`
	StructuredOutput  jsontext.Value             `json:"structured_output"`
	PermissionDenials jsontext.Value             `json:"permission_denials"`
	StopReason        jsontext.Value             `json:"stop_reason"`
}

// rateLimit says how far the use of an account has come.
type rateLimit struct {
	Status lenient.Text `json:"status"`
}

// streamEvent is an event of the API as it streams a message.
type streamEvent struct {
	Type    lenient.Text            `json:"type"`
	Index   lenient.Number          `json:"index"`
	Message lenient.Object[message] `json:"message"`
	Block   lenient.Object[block]   `json:"content_block"`
	Delta   lenient.Object[delta]   `json:"delta"`
	Usage   lenient.Object[usage]   `json:"usage"`
	Error   jsontext.Value          `json:"error"`
}

// delta is a piece of a block.
type delta struct {
	Text        lenient.Text `json:"text"`
	Thinking    lenient.Text `json:"thinking"`
	PartialJSON lenient.Text `json:"partial_json"`
}

// partial is a message of which pieces have come, and not yet the whole.
type partial struct {
	Thread  core.Fingerprint     `json:"t,omitzero"`
	Agent   string               `json:"a,omitzero"`
	Message string               `json:"m,omitzero"` // its id; empty when its start was missed
	Model   string               `json:"model,omitzero"`
	Blocks  core.Window[section] `json:"b,omitzero"`
	Used    core.Consumption     `json:"u,omitzero"`
	Last    core.Pending         `json:"last"`           // the record of its last piece
	UUID    string               `json:"uuid,omitzero"`  // of that record
	Ended   bool                 `json:"ended,omitzero"` // no piece follows
}

// section is a block of a message as far as its pieces have come.
type section struct {
	Index int64  `json:"i"`
	Type  string `json:"y"`
	ID    string `json:"id,omitzero"`
	Name  string `json:"n,omitzero"`
	Words string `json:"w,omitzero"`
	Told  bool   `json:"told,omitzero"` // a record has told the block whole
	Cut   bool   `json:"cut,omitzero"`  // more came than is kept
}

// size is about how many bytes the pieces take in memory.
func (p *partial) size() int {
	n := 256 + len(p.Agent) + len(p.Message) + len(p.Model) + len(p.UUID) + len(p.Last.Raw) + len(p.Last.Traceparent) + len(p.Last.Tracestate)
	for _, b := range p.Blocks {
		n += 64 + len(b.Type) + len(b.ID) + len(b.Name) + len(b.Words)
	}
	return n
}

// unwrap gives a message of the SDK that comes as an object, without a type, the form of
// a line of the stream (seed-features.md section 3.1).
func (r *wireRecord) unwrap() {
	if !lenient.IsValue(r.ToolUseResult) {
		r.ToolUseResult = r.ToolUseResultSnake
	}
	switch {
	case r.Type != "":
		return
	case r.Subtype == "init" && r.Data.Kind() == '{':
		lenient.ReadObject(r.Data.Clone(), r)
		r.Type = "system"
	case lenient.IsValue(r.NumTurns), lenient.IsValue(r.TotalCostUSD):
		r.Type = "result"
	case r.Event.OK:
		r.Type = "stream_event"
	case r.Content.present && r.Model != "":
		r.Type = "assistant"
	case r.Content.present && (r.UUID != "" || r.ToolUseResultSnake != nil):
		r.Type = "user"
	default:
		return
	}
	if (r.Type == "assistant" || r.Type == "user") && !r.Message.OK {
		r.Message.OK = true
		r.Message.Value = message{Role: r.Type, Model: r.Model, Content: r.Content}
		r.Content = content{}
	}
}

// isStream reports whether the record is one of the SDK and not of a transcript: those
// have the id of their session in camel case.
func (r *wireRecord) isStream() bool {
	return r.SessionID == "" || r.Type == "system" && r.Subtype == "init"
}

// introduce emits the first record of a run.
func (c *mapper) introduce() {
	c.flush(nil)
	c.Session.SetModel(string(c.Model))
	c.Session.SetTextExtension("claudeCodeVersion", c.CodeVersion)
	if c.MCPServers.Kind() == '[' {
		c.Session.SetExtension("mcpServers", mcpServers(c.MCPServers))
	}
	words := "Session: " + cmp.Or(c.session(), "unknown")
	if c.Model != "" {
		words += ", Model: " + string(c.Model)
	}
	d := core.Draft{OnChannel: envelopes.ChannelSystem}
	d.EventType, d.Text = envelopes.SystemMessage, &words
	if c.put(c.UUID, d) {
		c.st.Runs.over() // of a run before it that had no result
	}
}

// mcpServers are MCP servers as objects: some versions write only their names
// (seed-features.md C11).
func mcpServers(list jsontext.Value) jsontext.Value {
	out := jsontext.Value{'['}
	for _, v := range lenient.Elements(list) {
		if v.Kind() == '"' {
			v = append(lenient.AppendQuote([]byte(`{"name":`), lenient.Unquote(v)), '}')
		}
		if v = core.EventRaw(v); v.Kind() != '{' {
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
func (c *mapper) ended() {
	c.flush(nil)
	r := &c.stream
	words, failed := c.outcome()
	d := core.Draft{OnChannel: envelopes.ChannelSystem, InRole: envelopes.RoleSystem, Identity: string(c.Record.Data)}
	d.EventType = envelopes.SessionSummary
	if !failed && words != "" {
		d.Text = &words
	}
	d.Metadata = c.Session.MetadataWith(map[string]jsontext.Value{
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
	if c.st.Runs.Last == core.PromptKey(words) { // told by its own record, which does not make the result another one
		c.Events[len(c.Events)-1].Event.Text = nil
	}
	var v lenient.Object[usage]
	if v.OK = r.Usage.Kind() == '{'; v.OK {
		lenient.ReadObject(r.Usage, &v.Value)
	}
	if u := c.st.Runs.result(v.Value.consumption()); v.OK && u != nil {
		c.AddUsage(u, figures(u, v.Value.OutputDetails.Value.Thinking.OK))
	}
	c.st.Runs.over()
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
func (c *mapper) outcome() (words string, failed bool) {
	r := &c.stream
	failed = bool(r.IsErrorSnake) || bool(r.IsErrorCamel) || strings.HasPrefix(string(c.Subtype), "error")
	switch kind := r.Result.Kind(); {
	case kind == '"':
		words = lenient.Unquote(r.Result)
	case kind == '{':
		if _, words = core.VendorError(r.Result); words == "" {
			var e struct {
				Error lenient.Text `json:"error"`
			}
			lenient.ReadObject(r.Result, &e)
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
func textValue(t lenient.Text) jsontext.Value {
	if t == "" {
		return nil
	}
	return lenient.AppendQuote(nil, string(t))
}

// failedText reports whether the text of a result is a JSON object that says so itself:
// an error, or an exit code that is not zero (seed-features.md section 2.3). The code is
// never read from there (semantics.md section 7).
func failedText(words string) bool {
	v := jsontext.Value(strings.TrimSpace(words))
	if v.Kind() != '{' || !v.IsValid(lenient.Options) {
		return false
	}
	var r struct {
		Error    jsontext.Value `json:"error"`
		IsError  jsontext.Value `json:"isError"`
		ExitCode lenient.Number `json:"exitCode"`
	}
	lenient.ReadObject(v, &r)
	says := func(v jsontext.Value) bool {
		return lenient.IsValue(v) && v.Kind() != 'f' && string(v) != `""`
	}
	return says(r.Error) || says(r.IsError) || r.ExitCode.OK && r.ExitCode.Value != 0
}

// streamEvent takes a piece of a message. The message itself follows, as a rule: then the
// pieces tell nothing (seed-features.md row 002-23).
func (c *mapper) streamEvent() core.SkipReason {
	e := &c.Event.Value
	switch e.Type {
	case "ping":
		return core.SkipHeartbeat
	case "error":
		code, message := core.VendorError(e.Error)
		c.fail(c.UUID, code, message, message)
		return core.SkipDuplicate
	case "message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop":
	default:
		c.runtime(c.UUID, envelopes.Meta, "")
		return core.SkipDuplicate
	}
	at := c.partial()
	if at >= 0 && (e.Type == "message_start" || c.st.Partials[at].Ended) {
		c.flush(func(p partial) bool { return p.Thread == c.in })
		at = -1
	}
	p := partial{Thread: c.in, Agent: string(c.AgentID)}
	if at >= 0 {
		p = c.st.Partials[at]
	}
	p.Last, p.UUID = c.PendingRecord(), core.Cut(string(c.UUID), core.MaxIdentity)
	c.grow(&p, e)
	if at >= 0 {
		c.st.Partials = c.st.Partials.With(at, p)
	} else {
		if len(c.st.Partials) == maxPartials {
			c.emitPartial(c.st.Partials[0])
		}
		c.st.Partials = c.st.Partials.Push(p, maxPartials, nil)
	}
	return core.SkipProgress
}

// partial is the place of the message of this thread of which pieces have come, -1 for
// none.
func (c *mapper) partial() int {
	return slices.IndexFunc(c.st.Partials, func(p partial) bool { return p.Thread == c.in })
}

// grow adds a piece to a message.
func (c *mapper) grow(p *partial, e *streamEvent) {
	if m := &e.Message.Value; e.Message.OK {
		p.Message, p.Model = core.Cut(string(m.ID), core.MaxIdentity), core.Cut(string(m.Model), core.MaxName)
		p.Used = p.Used.Raise(m.Usage.Value.consumption())
		if !c.internal || c.Session.Model == "" {
			c.Session.SetModel(p.Model)
		}
		if p.Message != "" {
			c.consumed(core.Consumption{}, false, p.Message) // names the call: it is of this run, whenever it is told
		}
	}
	if e.Usage.OK {
		p.Used = p.Used.Raise(e.Usage.Value.consumption())
	}
	p.Ended = e.Type == "message_stop"
	if e.Type != "content_block_start" && e.Type != "content_block_delta" {
		return
	}
	index := e.Index.Count()
	at := slices.IndexFunc(p.Blocks, func(b section) bool { return b.Index == index })
	section := section{Index: index, Type: "text"}
	if at >= 0 {
		section = p.Blocks[at]
	}
	if b := &e.Block.Value; e.Block.OK {
		section.Type, section.ID, section.Name = core.Cut(string(b.Type), core.MaxName), core.Cut(string(b.ID), core.MaxIdentity), core.Cut(string(b.Name), core.MaxName)
		c.extend(&section, b.Text+b.Thinking)
	}
	d := &e.Delta.Value
	if d.Thinking != "" && section.Type == "text" && at < 0 {
		section.Type = "thinking" // its start was missed
	}
	c.extend(&section, d.Text+d.Thinking+d.PartialJSON)
	switch {
	case at >= 0:
		p.Blocks = p.Blocks.With(at, section)
	case len(p.Blocks) < maxBlocks:
		p.Blocks = p.Blocks.Push(section, maxBlocks, nil)
	}
}

// extend adds to a block what a session may keep.
func (c *mapper) extend(b *section, more lenient.Text) {
	if more == "" {
		return
	}
	kept := 0
	for _, p := range c.st.Partials {
		for _, o := range p.Blocks {
			kept += len(o.Words)
		}
	}
	if 6*(kept+len(more)) > maxPartialText && c.quotedPartials()+len(lenient.AppendQuote(nil, string(more))) > maxPartialText {
		b.Cut = true
	}
	if !b.Cut {
		b.Words += string(more)
	}
}

// quotedPartials is how many bytes of JSON the pieces take.
func (c *mapper) quotedPartials() int {
	n := 0
	for _, p := range c.st.Partials {
		for _, b := range p.Blocks {
			n += len(lenient.AppendQuote(nil, b.Words))
		}
	}
	return n
}

// match takes note that a record tells blocks of a message whole. Pieces of another
// message of its thread are told before it: their own record has not come.
func (c *mapper) match() {
	id := core.Cut(string(c.Message.Value.ID), core.MaxIdentity)
	c.flush(func(p partial) bool { return p.Thread == c.in && p.Message != "" && p.Message != id })
	at := c.partial()
	if at < 0 {
		return
	}
	p := c.st.Partials[at]
	for i := range c.Message.Value.Content.blocks {
		b := &c.Message.Value.Content.blocks[i]
		if j := slices.IndexFunc(p.Blocks, func(s section) bool { return !s.Told && s.Type == string(b.Type) }); j >= 0 {
			if b.Type == "thinking" && b.Thinking == "" {
				b.Thinking = lenient.Text(p.Blocks[j].Words) // the message itself has only its signature
			}
			p.Blocks = p.Blocks.With(j, section{Index: p.Blocks[j].Index, Type: p.Blocks[j].Type, Told: true})
		}
	}
	c.st.Partials = c.st.Partials.With(at, p)
}

// flush tells the messages of which only pieces have come, those that match; nil matches
// all.
func (c *mapper) flush(match func(partial) bool) {
	if len(c.st.Partials) == 0 {
		return
	}
	var let []partial
	c.st.Partials = c.st.Partials.Without(func(p partial) bool {
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
func (c *mapper) emitPartial(p partial) {
	f := &mapper{Builder: c.Builder, st: c.st, in: p.Thread, internal: p.Agent != "", from: &p.Last}
	f.AgentID, f.UUID = lenient.Text(p.Agent), lenient.Text(p.UUID)
	f.Message.Value.ID, f.Message.Value.Model = lenient.Text(p.Message), lenient.Text(p.Model)
	f.ParentToolUseID = lenient.Text(p.Agent)
	first := len(f.Events)
	unnamed := 0
	id := func(suffix string) lenient.Text { // of an event whose block has no id
		base := p.UUID
		if base == "" {
			base = "@" + strconv.FormatUint(p.Last.Record, 10)
			if unnamed++; unnamed > 1 {
				suffix = "." + strconv.Itoa(unnamed-1)
			}
		}
		return lenient.Text(base + suffix)
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
			f.utter(id("#thinking"+strconv.Itoa(thoughts)), envelopes.Reasoning, lenient.Text(b.Words).Ptr())
		case strings.HasSuffix(b.Type, "tool_use"):
			f.truncated = b.Cut
			f.call(&block{Type: lenient.Text(b.Type), ID: lenient.Text(b.ID), Name: lenient.Text(b.Name), Input: partialInput(b)})
		}
		if isThought {
			thoughts++
		}
	}
	if len(f.Events) == first || p.Used == (core.Consumption{}) {
		return
	}
	if u, set := f.consumed(p.Used, false, p.Message); u != nil {
		f.AddUsageAt(first, u, set)
	}
}

// partialInput is the input of a call as far as its pieces have come: JSON, or else the
// text as it stands.
func partialInput(b section) jsontext.Value {
	v := jsontext.Value(b.Words)
	switch {
	case len(v) == 0:
		return jsontext.Value(`{}`)
	case !b.Cut && v.IsValid(lenient.Options):
		return v
	default:
		return lenient.AppendQuote(nil, b.Words)
	}
}

// normalizeArray maps the messages of a run that come as one JSON array (--output-format json
// --verbose). Each counts as a record, so that they tell what the lines of a stream do.
func normalizeArray(s *core.Session, r core.Record, elements []jsontext.Value) (core.Result, error) {
	f := s.Begin(r, "")
	first := -1
	for i, e := range elements {
		if i > 0 {
			s.Records++
		}
		c := &mapper{Builder: f, st: stateOf(s)}
		if err := core.ReadRecord(e, &c.wireRecord); err != nil {
			return core.Result{}, err
		}
		f.NextElement()
		c.Builder.Record.Data = e
		c.start()
		c.record()
		if first < 0 {
			first = f.First
		}
	}
	f.First = first
	return f.Finish(core.SkipEmpty)
}

// objectsOf are the elements of a JSON array of objects; nil for any other value.
func objectsOf(v jsontext.Value) []jsontext.Value {
	if v.Kind() != '[' {
		return nil
	}
	elements := lenient.Elements(v)
	if slices.ContainsFunc(elements, func(e jsontext.Value) bool { return e.Kind() != '{' }) {
		return nil
	}
	return elements
}
