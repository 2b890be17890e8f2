package normalizers

import (
	"cmp"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
)

// cursor normalizes what Cursor's agent writes: the stream of `cursor-agent -p
// --output-format stream-json`, also with --stream-partial-output, and the transcripts
// below ~/.cursor/projects (vendor-formats.md section 8). The program's own lines stand
// in the stream as plain text, so a line that is no JSON is a record of it too.
type cursor struct{}

// cursorRecord is a line of the stream or of a transcript, in the vendor's names. Older
// versions write some names with underscores.
type cursorRecord struct {
	Type           text                  `json:"type"`
	Subtype        text                  `json:"subtype"`
	Role           text                  `json:"role"` // of a transcript, instead of a type
	SessionID      text                  `json:"session_id"`
	SessionIDCamel text                  `json:"sessionId"`
	Model          text                  `json:"model"`
	Cwd            text                  `json:"cwd"`
	Mode           text                  `json:"permissionMode"`
	ModeSnake      text                  `json:"permission_mode"`
	KeySource      text                  `json:"apiKeySource"`
	KeySourceSnake text                  `json:"api_key_source"`
	Timestamp      text                  `json:"timestamp"`
	TimestampMS    number                `json:"timestamp_ms"`
	ModelCallID    text                  `json:"model_call_id"`
	Message        object[cursorMessage] `json:"message"`
	Text           text                  `json:"text"`
	CallID         text                  `json:"call_id"`
	ToolCall       jsontext.Value        `json:"tool_call"`
	IsError        flag                  `json:"is_error"`
	Result         jsontext.Value        `json:"result"`
	RequestID      text                  `json:"request_id"`
	Query          jsontext.Value        `json:"query"`
	Usage          object[cursorUsage]   `json:"usage"`
	Status         text                  `json:"status"`
	Error          jsontext.Value        `json:"error"`
}

type cursorMessage struct {
	Model   text           `json:"model"`
	Content jsontext.Value `json:"content"`
}

// cursorUsage is what a run used. What was read from a cache or written to one is not
// part of the input: the CLI states 115 input tokens beside 19,776 that were read.
type cursorUsage struct {
	Input      number `json:"inputTokens"`
	Output     number `json:"outputTokens"`
	CacheRead  number `json:"cacheReadTokens"`
	CacheWrite number `json:"cacheWriteTokens"`
}

// cursorFold is the work on one record.
type cursorFold struct {
	*fold
	cursorRecord
}

// Normalize maps one record. What is said in pieces is held; the end of input lets it go.
func (cursor) Normalize(s *Session, r Record) (Result, error) {
	c := &cursorFold{}
	if r.Origin.End {
		c.fold = s.begin(r, "")
		c.release()
		return c.done("")
	}
	if err := readRecord(r.Data, &c.cursorRecord); err != nil {
		c.cursorRecord = cursorRecord{}
		c.fold = s.begin(r, "")
		return c.done(c.line())
	}
	c.fold = s.begin(r, c.time())
	return c.done(c.record())
}

// time is the record's own time in the form of an event; empty when it has none. In a
// transcript only a prompt may have one, in its wrapping.
func (r *cursorRecord) time() string {
	if ts, ok := timeOfMillis(r.TimestampMS); ok {
		return ts
	}
	if ts, ok := parseTime(string(r.Timestamp)); ok {
		return ts
	}
	if r.Role != "user" {
		return ""
	}
	for _, b := range r.blocks() {
		if ts, ok := cursorTime(element(string(b.Text), "timestamp")); ok {
			return ts
		}
	}
	return ""
}

// line emits a line that is no JSON: what the program says of itself. It is in raw as a
// JSON string.
func (c *cursorFold) line() SkipReason {
	words := strings.ToValidUTF8(strings.Trim(string(c.r.Data), " \t\r\n"), "\ufffd")
	if words == "" {
		return SkipEmpty
	}
	c.raw = appendQuote(nil, words)
	c.release()
	if !needsSetup(words) {
		c.runtime(envelopes.SystemMessage, text(words))
		return SkipDuplicate
	}
	d := draft{on: envelopes.ChannelSystem}
	d.EventType, d.Text = envelopes.Log, &words
	d.Metadata = c.s.metadataWithError("SETUP_REQUIRED", words)
	c.emit(d)
	return SkipDuplicate
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
func (c *cursorFold) record() SkipReason {
	c.s.setRoot(string(c.Cwd))
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
	case c.Type == "user", c.Type == "assistant", c.Type == "" && c.Message.ok && (c.Role == "user" || c.Role == "assistant"):
		return c.message()
	case c.Type == "system":
		return c.system()
	case c.Type == "tool_call":
		return c.toolCall()
	case c.Type == "result":
		return c.ended()
	case c.Type == "turn_ended" && (isValue(c.Error) || c.Status == "error"):
		code, _ := problemOf(c.Error)
		if c.Error.Kind() != '{' {
			code = ""
		}
		c.failure(cmp.Or(code, string(c.Status), "error"), cursorProblem(c.Error))
	case c.Type == "turn_ended":
		c.runtime(envelopes.Meta, c.Status)
	case c.Type == "interaction_query":
		c.runtime(envelopes.Meta, c.plan())
	default: // a connection that is lost and found again, and what is not known
		c.runtime(envelopes.Meta, "")
	}
	return SkipDuplicate
}

// runtime emits an event in which the program speaks, not the conversation.
func (c *cursorFold) runtime(t envelopes.EventType, words text) {
	d := draft{as: envelopes.RoleSystem, on: envelopes.ChannelSystem}
	d.EventType, d.Text = t, words.ptr()
	c.emit(d)
}

// failure emits an error that the vendor reports.
func (c *cursorFold) failure(code, message string) {
	d := draft{on: envelopes.ChannelSystem}
	d.EventType, d.Text = envelopes.Log, text(message).ptr()
	d.Metadata = c.s.metadataWithError(code, message)
	c.emit(d)
}

// plan is the plan that the program asks the human to agree to; empty for what else it
// asks.
func (c *cursorFold) plan() text {
	for _, m := range objectMembers(c.Query) {
		var asked struct {
			Args object[struct {
				Plan text `json:"plan"`
			}] `json:"args"`
		}
		if readObject(m.value, &asked); asked.Args.value.Plan != "" {
			return asked.Args.value.Plan
		}
	}
	return ""
}

// system takes what the program states of the session, and tells what it has not stated
// before (seed-features.md 2.4). The metadata of a session begins here.
func (c *cursorFold) system() SkipReason {
	c.s.Cursor.Segment = cursorSegment{}
	s := c.s
	mode := cmp.Or(c.Mode, c.ModeSnake)
	session, model, before := s.ResumeID, s.Model, s.Extensions["permissionMode"]
	s.setResumeID(string(cmp.Or(c.SessionID, c.SessionIDCamel)))
	s.setModel(string(c.Model))
	s.setTextExtension("permissionMode", mode)
	s.setTextExtension("apiKeySource", cmp.Or(c.KeySource, c.KeySourceSnake))
	if c.Subtype != "init" && c.Subtype != "" {
		c.runtime(envelopes.Meta, "")
		return SkipDuplicate
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
		return SkipDuplicate
	}
	c.runtime(envelopes.SystemMessage, text(strings.Join(parts, ", ")))
	return SkipDuplicate
}

// ended emits the end of a run with what the run used, and its failure. The text of the
// result was told before.
func (c *cursorFold) ended() SkipReason {
	c.s.Cursor.Segment = cursorSegment{}
	c.runtime(envelopes.SessionSummary, "")
	c.consume()
	if c.IsError {
		code := string(c.Subtype)
		if code == "" || code == "success" {
			code = "TASK_ERROR"
		}
		c.failure(code, cmp.Or(cursorProblem(c.Result), cursorProblem(c.Error)))
	}
	return SkipDuplicate
}

// cursorProblem is the message of what went wrong: a text, an object with one inside, or
// else the object.
func cursorProblem(v jsontext.Value) string {
	var in struct {
		Error text `json:"error"`
	}
	readObject(v, &in)
	_, message := problemOf(v)
	switch {
	case v.Kind() == '"':
		return unquote(v)
	case message != "":
		return message
	case in.Error != "":
		return string(in.Error)
	case isValue(v):
		return compactText(v)
	default:
		return ""
	}
}

// consume bills what a run used: the figures are those of the run, which a request
// stands for, so that the same result again adds nothing (semantics.md section 3).
func (c *cursorFold) consume() {
	if !c.Usage.ok {
		return
	}
	v := &c.Usage.value
	now := consumption{Input: v.Input.count(), CacheRead: v.CacheRead.count(), CacheWrite: v.CacheWrite.count(), Output: v.Output.count()}
	var before consumption
	if c.RequestID != "" {
		slot := fingerprintOf("request", string(c.RequestID))
		before, _ = c.s.apiCalls.get(slot)
		now = before.raise(now)
		c.s.apiCalls.put(slot, now)
	}
	u := now.usageSince(before, string(c.RequestID))
	if u == nil {
		return
	}
	c.bill(u, func(e *envelopes.AgentEventV1) {
		e.TokensInput = new(u.Input)
		e.TokensOutput = new(u.Output)
		e.TokensCached = new(u.CacheRead)
	})
}
