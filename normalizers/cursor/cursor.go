// Package cursor normalizes what Cursor's agent writes: the stream of `cursor-agent -p
// --output-format stream-json`, also with --stream-partial-output, and the transcripts
// below ~/.cursor/projects (vendor-formats.md section 8). The program's own lines stand
// in the stream as plain text, so a line that is no JSON is a record of it too.
package cursor

import (
	"cmp"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// wireRecord is a line of the stream or of a transcript, in the vendor's names. Older
// versions write some names with underscores.
type wireRecord struct {
	Type           lenient.Text            `json:"type"`
	Subtype        lenient.Text            `json:"subtype"`
	Role           lenient.Text            `json:"role"` // of a transcript, instead of a type
	SessionID      lenient.Text            `json:"session_id"`
	SessionIDCamel lenient.Text            `json:"sessionId"`
	Model          lenient.Text            `json:"model"`
	Cwd            lenient.Text            `json:"cwd"`
	Mode           lenient.Text            `json:"permissionMode"`
	ModeSnake      lenient.Text            `json:"permission_mode"`
	KeySource      lenient.Text            `json:"apiKeySource"`
	KeySourceSnake lenient.Text            `json:"api_key_source"`
	Timestamp      lenient.Text            `json:"timestamp"`
	TimestampMS    lenient.Number          `json:"timestamp_ms"`
	ModelCallID    lenient.Text            `json:"model_call_id"`
	Message        lenient.Object[message] `json:"message"`
	Text           lenient.Text            `json:"text"`
	CallID         lenient.Text            `json:"call_id"`
	ToolCall       jsontext.Value          `json:"tool_call"`
	IsError        lenient.Flag            `json:"is_error"`
	Result         jsontext.Value          `json:"result"`
	RequestID      lenient.Text            `json:"request_id"`
	Query          jsontext.Value          `json:"query"`
	Usage          lenient.Object[usage]   `json:"usage"`
	Status         lenient.Text            `json:"status"`
	Error          jsontext.Value          `json:"error"`
}

type message struct {
	Model   lenient.Text   `json:"model"`
	Content jsontext.Value `json:"content"`
}

// usage is what a run used. What was read from a cache or written to one is not
// part of the input: the CLI states 115 input tokens beside 19,776 that were read.
type usage struct {
	Input      lenient.Number `json:"inputTokens"`
	Output     lenient.Number `json:"outputTokens"`
	CacheRead  lenient.Number `json:"cacheReadTokens"`
	CacheWrite lenient.Number `json:"cacheWriteTokens"`
}

// mapper is the work on one record.
type mapper struct {
	*core.Builder
	st *state
	wireRecord
}

// normalize maps one record. What is said in pieces is held; the end of input lets it go.
func normalize(s *core.Session, r core.Record) (core.Result, error) {
	c := &mapper{st: stateOf(s)}
	if r.Origin.End {
		c.Builder = s.Begin(r, "")
		c.release()
		return c.Finish("")
	}
	if err := core.ReadRecord(r.Data, &c.wireRecord); err != nil {
		c.wireRecord = wireRecord{}
		c.Builder = s.Begin(r, "")
		return c.Finish(c.line())
	}
	c.Builder = s.Begin(r, c.time())
	return c.Finish(c.record())
}

// time is the record's own time in the form of an event; empty when it has none. In a
// transcript only a prompt may have one, in its wrapping.
func (r *wireRecord) time() string {
	if ts, ok := core.TimeOfMillis(r.TimestampMS); ok {
		return ts
	}
	if ts, ok := core.ParseTime(string(r.Timestamp)); ok {
		return ts
	}
	if r.Role != "user" {
		return ""
	}
	for _, b := range r.blocks() {
		if ts, ok := cursorTime(core.TagContent(string(b.Text), "timestamp")); ok {
			return ts
		}
	}
	return ""
}

// line emits a line that is no JSON: what the program says of itself. It is in raw as a
// JSON string.
func (c *mapper) line() core.SkipReason {
	words := strings.ToValidUTF8(strings.Trim(string(c.Record.Data), " \t\r\n"), "\ufffd")
	if words == "" {
		return core.SkipEmpty
	}
	c.Raw = lenient.AppendQuote(nil, words)
	c.release()
	if !needsSetup(words) {
		c.runtime(envelopes.SystemMessage, lenient.Text(words))
		return core.SkipDuplicate
	}
	d := core.Draft{OnChannel: envelopes.ChannelSystem}
	d.EventType, d.Text = envelopes.Log, &words
	d.Metadata = c.Session.MetadataWithError("SETUP_REQUIRED", words)
	c.Emit(d)
	return core.SkipDuplicate
}

// needsSetup reports whether the program says that nobody is logged in (row 000-11). A
// record that was cut says nothing of that kind.
func needsSetup(line string) bool {
	if strings.HasPrefix(line, "{") {
		return false
	}
	for _, sign := range []string{"authentication", "Authentication", "login", "CURSOR_API_KEY", "not authenticated"} {
		if strings.Contains(line, sign) {
			return true
		}
	}
	return false
}

// record maps the record by its type, and says why there is no event where there is none.
func (c *mapper) record() core.SkipReason {
	c.Session.SetRoot(string(c.Cwd))
	switch {
	case c.Type == "thinking" && c.Subtype != "completed":
		return c.think()
	case c.Type == "thinking":
		return c.thought()
	case c.Type == "assistant" && c.spoken():
		return c.speak()
	}
	c.release()
	switch {
	case c.Type == "user", c.Type == "assistant", c.Type == "" && c.Message.OK && (c.Role == "user" || c.Role == "assistant"):
		return c.message()
	case c.Type == "system":
		return c.system()
	case c.Type == "tool_call":
		return c.toolCall()
	case c.Type == "result":
		return c.ended()
	case c.Type == "turn_ended" && (lenient.IsValue(c.Error) || c.Status == "error"):
		code, _ := core.VendorError(c.Error)
		if c.Error.Kind() != '{' {
			code = ""
		}
		c.failure(cmp.Or(code, string(c.Status), "error"), problem(c.Error))
	case c.Type == "turn_ended":
		c.runtime(envelopes.Meta, c.Status)
	case c.Type == "interaction_query":
		c.runtime(envelopes.Meta, c.plan())
	default: // a connection that is lost and found again, and what is not known
		c.runtime(envelopes.Meta, "")
	}
	return core.SkipDuplicate
}

// runtime emits an event in which the program speaks, not the conversation.
func (c *mapper) runtime(t envelopes.EventType, words lenient.Text) {
	d := core.Draft{InRole: envelopes.RoleSystem, OnChannel: envelopes.ChannelSystem}
	d.EventType, d.Text = t, words.Ptr()
	c.Emit(d)
}

// failure emits an error that the vendor reports.
func (c *mapper) failure(code, message string) {
	d := core.Draft{OnChannel: envelopes.ChannelSystem}
	d.EventType, d.Text = envelopes.Log, lenient.Text(message).Ptr()
	d.Metadata = c.Session.MetadataWithError(code, message)
	c.Emit(d)
}

// plan is the plan that the program asks the human to agree to; empty for what else it
// asks.
func (c *mapper) plan() lenient.Text {
	for _, m := range lenient.ObjectMembers(c.Query) {
		var asked struct {
			Args lenient.Object[struct {
				Plan lenient.Text `json:"plan"`
			}] `json:"args"`
		}
		if lenient.ReadObject(m.Value, &asked); asked.Args.Value.Plan != "" {
			return asked.Args.Value.Plan
		}
	}
	return ""
}

// system takes what the program states of the session, and tells what it has not stated
// before (seed-features.md 2.4). The metadata of a session begins here.
func (c *mapper) system() core.SkipReason {
	c.st.Segment = segment{}
	s := c.Session
	mode := cmp.Or(c.Mode, c.ModeSnake)
	session, model, before := s.ResumeID, s.Model, s.Extensions["permissionMode"]
	s.SetResumeID(string(cmp.Or(c.SessionID, c.SessionIDCamel)))
	s.SetModel(string(c.Model))
	s.SetTextExtension("permissionMode", mode)
	s.SetTextExtension("apiKeySource", cmp.Or(c.KeySource, c.KeySourceSnake))
	if c.Subtype != "init" && c.Subtype != "" {
		c.runtime(envelopes.Meta, "")
		return core.SkipDuplicate
	}
	var parts []string
	if s.ResumeID != session {
		parts = append(parts, "Session: "+s.ResumeID)
	}
	if s.Model != model {
		parts = append(parts, "Model: "+s.Model)
	}
	if string(s.Extensions["permissionMode"]) != string(before) {
		parts = append(parts, "Mode: "+string(mode))
	}
	if len(parts) == 0 {
		return core.SkipDuplicate
	}
	c.runtime(envelopes.SystemMessage, lenient.Text(strings.Join(parts, ", ")))
	return core.SkipDuplicate
}

// ended emits the end of a run with what the run used, and its failure. The text of the
// result was told before.
func (c *mapper) ended() core.SkipReason {
	c.st.Segment = segment{}
	c.runtime(envelopes.SessionSummary, "")
	c.consume()
	if c.IsError {
		code := string(c.Subtype)
		if code == "" || code == "success" {
			code = "TASK_ERROR"
		}
		c.failure(code, cmp.Or(problem(c.Result), problem(c.Error)))
	}
	return core.SkipDuplicate
}

// problem is the message of what went wrong: a text, an object with one inside, or
// else the object.
func problem(v jsontext.Value) string {
	var in struct {
		Error lenient.Text `json:"error"`
	}
	lenient.ReadObject(v, &in)
	_, message := core.VendorError(v)
	switch {
	case v.Kind() == '"':
		return lenient.Unquote(v)
	case message != "":
		return message
	case in.Error != "":
		return string(in.Error)
	case lenient.IsValue(v):
		return lenient.CompactText(v)
	default:
		return ""
	}
}

// consume bills what a run used: the figures are those of the run, which a request
// stands for, so that the same result again adds nothing (semantics.md section 3).
func (c *mapper) consume() {
	if !c.Usage.OK {
		return
	}
	v := &c.Usage.Value
	now := core.Consumption{Input: v.Input.Count(), CacheRead: v.CacheRead.Count(), CacheWrite: v.CacheWrite.Count(), Output: v.Output.Count()}
	var before core.Consumption
	if c.RequestID != "" {
		slot := core.FingerprintOf("request", string(c.RequestID))
		before, _ = c.Session.APICalls.Get(slot)
		now = before.Raise(now)
		c.Session.APICalls.Put(slot, now)
	}
	u := now.UsageSince(before, string(c.RequestID))
	if u == nil {
		return
	}
	c.AddUsage(u, func(e *envelopes.AgentEventV1) {
		e.TokensInput = new(u.Input)
		e.TokensOutput = new(u.Output)
		e.TokensCached = new(u.CacheRead)
	})
}
