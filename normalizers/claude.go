package normalizers

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
)

// claude normalizes the transcripts of Claude Code: the lines of
// ~/.claude/projects/<project>/<session>.jsonl and of the files of its subagents.
// What it rests on: one API message is written as several records, each with one block
// and with the usage of the whole message so far.
type claude struct{}

// claudeRecord is a line of a transcript, in the vendor's names.
type claudeRecord struct {
	Type               text                     `json:"type"`
	Subtype            text                     `json:"subtype"`
	UUID               text                     `json:"uuid"`
	SessionID          text                     `json:"sessionId"`
	SessionIDSnake     text                     `json:"session_id"`
	Timestamp          text                     `json:"timestamp"`
	CWD                text                     `json:"cwd"`
	Version            text                     `json:"version"`
	GitBranch          text                     `json:"gitBranch"`
	PermissionMode     text                     `json:"permissionMode"`
	IsSidechain        flag                     `json:"isSidechain"`
	AgentID            text                     `json:"agentId"`
	RequestID          text                     `json:"requestId"`
	IsMeta             flag                     `json:"isMeta"`
	IsCompactSummary   flag                     `json:"isCompactSummary"`
	IsAPIErrorMessage  flag                     `json:"isApiErrorMessage"`
	Origin             object[claudeOrigin]     `json:"origin"`
	ForkedFrom         object[claudeFork]       `json:"forkedFrom"`
	PromptSource       text                     `json:"promptSource"`
	Message            object[claudeMessage]    `json:"message"`
	ToolUseResult      jsontext.Value           `json:"toolUseResult"`
	SourceToolUseID    text                     `json:"sourceToolUseID"`
	Attachment         object[claudeAttachment] `json:"attachment"`
	MessageID          text                     `json:"messageId"`
	Snapshot           object[claudeSnapshot]   `json:"snapshot"`
	TrackingPath       text                     `json:"trackingPath"`
	Summary            text                     `json:"summary"`
	Text               text                     `json:"text"`
	Content            claudeContent            `json:"content"`
	Operation          text                     `json:"operation"`
	Error              jsontext.Value           `json:"error"`
	APIErrorStatus     jsontext.Value           `json:"apiErrorStatus"`
	APIRefusalCategory text                     `json:"apiRefusalCategory"`
	AITitle            text                     `json:"aiTitle"`
	CustomTitle        text                     `json:"customTitle"`
	AgentName          text                     `json:"agentName"`
	Mode               text                     `json:"mode"`
	PRNumber           jsontext.Value           `json:"prNumber"`
	PRURL              text                     `json:"prUrl"`
	PRRepository       text                     `json:"prRepository"`
	WorktreeSession    jsontext.Value           `json:"worktreeSession"`

	claudeStream
}

type claudeOrigin struct {
	Kind         text `json:"kind"`
	From         text `json:"from"`
	SenderTaskID text `json:"senderTaskId"`
}

// claudeFork names the record that this one was copied from when its session was forked.
type claudeFork struct {
	SessionID text `json:"sessionId"`
}

type claudeMessage struct {
	ID      text                `json:"id"`
	Role    text                `json:"role"`
	Model   text                `json:"model"`
	Content claudeContent       `json:"content"`
	Usage   object[claudeUsage] `json:"usage"`
}

type claudeUsage struct {
	Input         number                      `json:"input_tokens"`
	Output        number                      `json:"output_tokens"`
	CacheRead     number                      `json:"cache_read_input_tokens"`
	CacheWrite    number                      `json:"cache_creation_input_tokens"`
	CacheCreation object[claudeCacheCreation] `json:"cache_creation"`
	OutputDetails object[claudeOutputDetails] `json:"output_tokens_details"`
}

type claudeCacheCreation struct {
	FiveMinutes number `json:"ephemeral_5m_input_tokens"`
	OneHour     number `json:"ephemeral_1h_input_tokens"`
}

type claudeOutputDetails struct {
	Thinking number `json:"thinking_tokens"`
}

type claudeSnapshot struct {
	Timestamp text                              `json:"timestamp"`
	Files     object[map[string]jsontext.Value] `json:"trackedFileBackups"`
}

// claudeContent is the content of a message or of a tool result: a string, or blocks.
type claudeContent struct {
	blocks  []claudeBlock
	present bool
}

func (c *claudeContent) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*c = claudeContent{}
	switch dec.PeekKind() {
	case '"':
		b := claudeBlock{Type: "text"}
		if err := b.Text.UnmarshalJSONFrom(dec); err != nil {
			return err
		}
		c.blocks, c.present = []claudeBlock{b}, true
		return nil
	case '[':
		if _, err := dec.ReadToken(); err != nil {
			return err
		}
		c.present = true
		for dec.PeekKind() != ']' {
			var b claudeBlock
			var err error
			switch dec.PeekKind() {
			case '"':
				b.Type = "text"
				err = b.Text.UnmarshalJSONFrom(dec)
			case '{':
				err = json.UnmarshalDecode(dec, &b)
			default:
				err = dec.SkipValue()
			}
			if err != nil {
				return err
			}
			c.blocks = append(c.blocks, b)
		}
		_, err := dec.ReadToken()
		return err
	case '{': // one block, as of the result of a tool that the server runs
		var b claudeBlock
		c.present = true
		err := json.UnmarshalDecode(dec, &b)
		if b.Type != "" {
			c.blocks = []claudeBlock{b}
		}
		return err
	case 'n':
		return dec.SkipValue()
	default:
		c.present = true
		return dec.SkipValue()
	}
}

// text is the text of all blocks, joined by line ends; false when there is none.
func (c *claudeContent) text() (string, bool) {
	var parts []string
	for i := range c.blocks {
		if b := &c.blocks[i]; b.Type == "text" || b.Type == "advisor_result" {
			parts = append(parts, string(c.blocks[i].Text))
		}
	}
	return strings.Join(parts, "\n"), len(parts) > 0
}

type claudeBlock struct {
	Type      text           `json:"type"`
	Text      text           `json:"text"`
	Thinking  text           `json:"thinking"`
	ID        text           `json:"id"`
	Name      text           `json:"name"`
	Input     jsontext.Value `json:"input"`
	ToolUseID text           `json:"tool_use_id"`
	IsError   kind           `json:"is_error"`
	ErrorCode text           `json:"error_code"` // of what a tool that the server runs returns
	Content   claudeContent  `json:"content"`
}

// isResult: tool_result, and what a server-side tool returns (web_search_tool_result).
// The SDK leaves the type of a result out.
func (b *claudeBlock) isResult() bool {
	return strings.HasSuffix(string(b.Type), "tool_result") || b.Type == "" && b.ToolUseID != ""
}

func (b *claudeBlock) isCall() bool { return strings.HasSuffix(string(b.Type), "tool_use") }

// claudeFold is the work on one record.
type claudeFold struct {
	*fold
	claudeRecord
	in       fingerprint // the thread
	internal bool        // work of a sidechain or a subagent

	from      *held // the record that the events come from, where that is not the one at work
	truncated bool  // the text of the next event was cut
}

// Normalize maps one line of a transcript or of a stream. What is held are the pieces of
// messages that a stream writes before the messages themselves.
func (v claude) Normalize(s *Session, r Record) (Result, error) {
	c := &claudeFold{}
	if r.Origin.End {
		c.fold = s.begin(r, "")
		c.flush(nil)
		return c.done("")
	}
	if err := readRecord(r.Data, &c.claudeRecord); err != nil {
		return Result{}, err
	}
	if elements := objectsOf(r.Data); elements != nil {
		return v.array(s, r, elements)
	}
	c.fold = s.begin(r, c.time())
	c.start()
	return c.done(c.record())
}

// start settles what the record is, whose thread it belongs to, and what it says of its
// session.
func (c *claudeFold) start() {
	c.unwrap()
	if c.AgentID == "" {
		c.AgentID = c.ParentToolUseID
	}
	c.internal = bool(c.IsSidechain) || c.AgentID != ""
	switch {
	case c.AgentID != "":
		c.in = fingerprintOf("agent", string(c.AgentID))
	case c.internal:
		c.in = fingerprintOf("sidechain")
	}
	c.learn()
}

// time is the record's own time in the form of an event; empty when it has none.
func (r *claudeRecord) time() string {
	if ts, ok := parseTime(string(r.Timestamp)); ok {
		return ts
	}
	if ts, ok := parseTime(string(r.AuditTimestamp)); ok {
		return ts
	}
	ts, _ := parseTime(string(r.Snapshot.value.Timestamp))
	return ts
}

// session is the record's own session; empty when it states none.
func (r *claudeRecord) session() string {
	return string(cmp.Or(r.SessionIDSnake, r.SessionID))
}

// copied reports whether the record is history of another session, with which a fork
// begins (semantics.md section 3).
func (c *claudeFold) copied() bool {
	from := c.ForkedFrom.value.SessionID
	return from != "" && string(from) != c.s.id
}

// words is the text that the record itself holds, beside any message.
func (r *claudeRecord) words() text {
	words, _ := r.Content.text()
	return text(words)
}

// learn takes from the record what is true for the session from now on.
func (c *claudeFold) learn() {
	c.s.setRoot(string(c.CWD))
	c.s.setResumeID(c.session())
	if m := c.Message.value.Model; m != claudeSynthetic && (!c.internal || c.s.Model == "") {
		c.s.setModel(string(m))
	}
	c.s.setTextExtension("permissionMode", c.PermissionMode)
	c.s.setTextExtension("gitBranch", c.GitBranch)
	c.s.setTextExtension("version", c.Version)
}

// claudeSynthetic is the model of messages that the client made up itself.
const claudeSynthetic = "<synthetic>"

// put emits an event of this record; id is empty where the vendor gives none.
func (c *claudeFold) put(id text, d draft) bool {
	d.EventID = string(id)
	d.thread = c.in
	d.AgentID = c.AgentID.ptr()
	d.IsInternal = c.internal
	d.from, d.TextTruncated = c.from, c.truncated
	if c.copied() {
		d.Origin = envelopes.OriginCopied
	}
	if c.ParentToolUseID != "" && d.Metadata == nil {
		d.Metadata = c.s.metadataWith(map[string]jsontext.Value{"parentToolUseId": textValue(c.ParentToolUseID)})
	}
	return c.emit(d)
}

// runtime emits an event in which the runtime speaks, not the conversation.
func (c *claudeFold) runtime(id text, t envelopes.EventType, words text) {
	c.put(id, draft{
		AgentEventV1: envelopes.AgentEventV1{EventType: t, Text: words.ptr()},
		as:           envelopes.RoleSystem,
		on:           envelopes.ChannelSystem,
	})
}

// record maps the record by its type (vendor-formats.md section 3.1) and says why there
// is no event where there is none.
func (c *claudeFold) record() SkipReason {
	switch c.Type {
	case "progress":
		return SkipProgress // told whole by the result, or by the file of the subagent
	case "last-prompt":
		return SkipMirror
	case "bridge-session":
		return SkipHeartbeat
	case "queue-operation":
		return c.queueOperation()
	case "file-history-snapshot":
		c.snapshot()
	case "file-history-delta":
		d := draft{on: envelopes.ChannelFilesystem}
		d.EventType, d.Text = envelopes.FileSnapshot, new("snapshot of 1 files")
		d.touch(string(c.TrackingPath), "")
		c.put("", d)
	case "summary":
		d := draft{on: envelopes.ChannelChat}
		d.EventType, d.Text = envelopes.SessionSummary, cmp.Or(c.Summary, c.Text).ptr()
		c.put(c.UUID, d)
	case "ai-title":
		c.stated(envelopes.SessionSummary, c.AITitle)
	case "custom-title":
		c.stated(envelopes.SessionSummary, c.CustomTitle)
	case "agent-name":
		c.stated(envelopes.Meta, c.AgentName)
	case "mode":
		c.stated(envelopes.Meta, c.Mode)
	case "permission-mode":
		c.stated(envelopes.Meta, c.PermissionMode)
	case "pr-link":
		c.stated(envelopes.Meta, c.PRURL, text(c.PRNumber), c.PRRepository)
	case "worktree-state":
		c.stated(envelopes.Meta, "", text(c.WorktreeSession))
	case "attachment":
		return c.attachment()
	case "system":
		return c.system()
	case "stream_event":
		return c.streamEvent()
	case "result":
		if c.Key != "" {
			return c.conversation() // of the journal of a workflow
		}
		c.ended()
	case "control_request", "control_response", "control_cancel_request":
		return SkipControl
	case "keep_alive":
		return SkipHeartbeat
	case "tool_progress":
		return SkipProgress
	case "rate_limit_event":
		if c.RateLimit.value.Status == "allowed" {
			return SkipHeartbeat // written in every run
		}
		c.runtime(c.UUID, envelopes.Log, c.RateLimit.value.Status)
	case "auth_status":
		words, _ := c.Output.text()
		if message := string(scalar(c.Error)); message != "" {
			c.fail(c.UUID, "", message, cmp.Or(words, message))
			break
		}
		c.runtime(c.UUID, envelopes.Log, text(words))
	default:
		return c.conversation()
	}
	return SkipDuplicate
}

// stated emits the value of a record that only states one, unless the session's last
// record of the type stated the same (semantics.md section 9).
func (c *claudeFold) stated(t envelopes.EventType, value text, more ...text) {
	is := statedValue{Type: string(c.Type), Value: fingerprintOf(string(value), fmt.Sprint(more))}
	last := &c.s.Claude.Stated
	if slices.Contains(*last, is) {
		return
	}
	others := last.without(func(v statedValue) bool { return v.Type == is.Type })
	*last = others.push(is, maxStated, &c.s.state.Forgotten)
	c.runtime("", t, value)
}

// snapshot emits a snapshot of files; an update and an empty one are snapshots too.
func (c *claudeFold) snapshot() {
	d := draft{on: envelopes.ChannelFilesystem, identity: string(c.r.Data)}
	d.EventType = envelopes.FileSnapshot
	d.Text = new(fmt.Sprintf("snapshot of %d files", len(c.Snapshot.value.Files.value)))
	id := c.MessageID
	if id != "" {
		id += "#snapshot"
	}
	c.put(id, d)
}

// conversation maps what is said and done: a record with a message, whatever its type is
// called, and a tool result that stands alone. Anything else is kept as meta.
func (c *claudeFold) conversation() SkipReason {
	role := c.Message.value.Role
	if role == "" && c.Message.ok {
		role = c.Type
	}
	switch {
	case role == "assistant":
		return c.assistant()
	case role == "user":
		return c.user()
	case isValue(c.ToolUseResult):
		c.result(&claudeBlock{})
	default:
		c.runtime(c.UUID, envelopes.Meta, c.words())
	}
	return SkipDuplicate
}

// assistant maps the blocks of an assistant's record in their order. Its texts are one
// message, in the place of the first. What the message adds to the bill goes on the
// first event; a record without one is kept as meta.
func (c *claudeFold) assistant() SkipReason {
	c.match()
	m := &c.Message.value
	words, said := m.Content.text()
	said = said && strings.TrimSpace(words) != ""
	if said && !c.internal {
		c.s.Claude.Runs.Last = promptKey(words)
	}
	before := len(c.events)
	if bool(c.IsAPIErrorMessage) || c.isStream() && isValue(c.Error) {
		c.failure(words)
		said = false
	}
	thoughts := 0
	for i := range m.Content.blocks {
		b := &m.Content.blocks[i]
		switch {
		case b.Type == "text" && said:
			said = false
			c.utter(c.UUID, envelopes.AssistantMessage, &words)
		case b.Type == "thinking", b.Type == "redacted_thinking":
			id := c.UUID
			if id != "" {
				id += text("#thinking" + strconv.Itoa(thoughts))
			}
			thoughts++
			c.utter(id, envelopes.Reasoning, b.Thinking.ptr())
		case b.isCall():
			c.call(b)
		case b.isResult():
			c.result(b)
		}
	}
	bill, set := c.consume()
	if len(c.events) == before {
		switch {
		case !c.told:
			c.utter(c.UUID, envelopes.Meta, nil)
		case bill != nil:
			id := c.UUID
			if id != "" {
				id += "#usage"
			}
			c.utter(id, envelopes.Meta, nil)
		}
	}
	if bill != nil {
		c.bill(bill, set)
	}
	return SkipDuplicate
}

// utter emits what the assistant said or thought, or the meta event in its place.
func (c *claudeFold) utter(id text, t envelopes.EventType, words *string) {
	d := draft{on: envelopes.ChannelChat}
	if t == envelopes.Meta {
		d.on = envelopes.ChannelSystem
	}
	d.EventType, d.Text, d.Model = t, words, c.Message.value.Model.ptr()
	c.put(id, d)
}

// consume is what the record adds to the bill: per message of the API and thread, each
// figure above the highest one seen (semantics.md section 3). set writes the vendor's
// own figures.
func (c *claudeFold) consume() (u *envelopes.Usage, set func(*envelopes.AgentEventV1)) {
	v := &c.Message.value.Usage.value
	key := string(cmp.Or(c.Message.value.ID, c.RequestID))
	if !c.Message.value.Usage.ok || key == "" && c.told || c.copied() {
		return nil, nil
	}
	return c.consumed(v.consumption(), v.OutputDetails.value.Thinking.ok, key)
}

// consumed is what the figures of a message add to the bill. They count for the run, too.
func (c *claudeFold) consumed(is consumption, thinking bool, key string) (*envelopes.Usage, func(*envelopes.AgentEventV1)) {
	var before consumption
	slot := fingerprintOf(string(c.in[:]), key)
	if key != "" {
		before, _ = c.s.apiCalls.get(slot)
	}
	now := before.raise(is)
	u := now.usageSince(before, key)
	if u == nil {
		u = new(envelopes.Usage)
	}
	if !c.internal {
		now.Run = c.s.Claude.Runs.call(u, before, now, c.isStream())
	}
	if key != "" && now != before {
		c.s.apiCalls.put(slot, now)
	}
	if u.Total() == 0 {
		return nil, nil
	}
	return u, claudeFigures(u, thinking)
}

// consumption are the figures in the form in which they are remembered.
func (v *claudeUsage) consumption() consumption {
	is := consumption{
		Input:      v.Input.count(),
		CacheRead:  v.CacheRead.count(),
		CacheWrite: v.CacheWrite.count(),
		Output:     v.Output.count(),
	}
	if !v.CacheWrite.ok {
		is.CacheWrite = v.CacheCreation.value.FiveMinutes.count() + v.CacheCreation.value.OneHour.count()
	}
	is.Reasoning = min(v.OutputDetails.value.Thinking.count(), is.Output)
	return is
}

// claudeFigures writes an increment in the vendor's own figures; thinking says whether
// the vendor states that one.
func claudeFigures(u *envelopes.Usage, thinking bool) func(*envelopes.AgentEventV1) {
	return func(e *envelopes.AgentEventV1) {
		e.TokensInput = &u.Input
		e.TokensOutput = new(u.Output + u.Reasoning)
		e.TokensCached = &u.CacheRead
		if thinking {
			e.TokensThinking = &u.Reasoning
		}
	}
}

// failure emits an error that the vendor reports (semantics.md section 5).
func (c *claudeFold) failure(words string) {
	code, message := problemOf(c.Error)
	if code == "" {
		code = string(cmp.Or(scalar(c.APIErrorStatus), c.APIRefusalCategory))
	}
	if message == "" {
		message = words
	}
	if words == "" {
		words = message
	}
	c.fail(c.UUID, code, message, words)
}

// fail emits an error that has a code and a message; words are the text of the event.
func (c *claudeFold) fail(id text, code, message, words string) {
	d := draft{on: envelopes.ChannelSystem}
	d.EventType, d.Text = envelopes.Log, text(words).ptr()
	d.Metadata = c.s.metadataWithError(code, message)
	c.put(id, d)
}
