// Package claude normalizes the transcripts of Claude Code: the lines of
// ~/.claude/projects/<project>/<session>.jsonl and of the files of its subagents.
// What it rests on: one API message is written as several records, each with one block
// and with the usage of the whole message so far.
package claude

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// wireRecord is a line of a transcript, in the vendor's names.
type wireRecord struct {
	Type               lenient.Text               `json:"type"`
	Subtype            lenient.Text               `json:"subtype"`
	UUID               lenient.Text               `json:"uuid"`
	SessionID          lenient.Text               `json:"sessionId"`
	SessionIDSnake     lenient.Text               `json:"session_id"`
	Timestamp          lenient.Text               `json:"timestamp"`
	CWD                lenient.Text               `json:"cwd"`
	Version            lenient.Text               `json:"version"`
	GitBranch          lenient.Text               `json:"gitBranch"`
	PermissionMode     lenient.Text               `json:"permissionMode"`
	IsSidechain        lenient.Flag               `json:"isSidechain"`
	AgentID            lenient.Text               `json:"agentId"`
	RequestID          lenient.Text               `json:"requestId"`
	IsMeta             lenient.Flag               `json:"isMeta"`
	IsCompactSummary   lenient.Flag               `json:"isCompactSummary"`
	IsAPIErrorMessage  lenient.Flag               `json:"isApiErrorMessage"`
	Origin             lenient.Object[origin]     `json:"origin"`
	ForkedFrom         lenient.Object[fork]       `json:"forkedFrom"`
	PromptSource       lenient.Text               `json:"promptSource"`
	Message            lenient.Object[message]    `json:"message"`
	ToolUseResult      jsontext.Value             `json:"toolUseResult"`
	SourceToolUseID    lenient.Text               `json:"sourceToolUseID"`
	Attachment         lenient.Object[attachment] `json:"attachment"`
	MessageID          lenient.Text               `json:"messageId"`
	Snapshot           lenient.Object[snapshot]   `json:"snapshot"`
	TrackingPath       lenient.Text               `json:"trackingPath"`
	Summary            lenient.Text               `json:"summary"`
	Text               lenient.Text               `json:"text"`
	Content            content                    `json:"content"`
	Operation          lenient.Text               `json:"operation"`
	Error              jsontext.Value             `json:"error"`
	APIErrorStatus     jsontext.Value             `json:"apiErrorStatus"`
	APIRefusalCategory lenient.Text               `json:"apiRefusalCategory"`
	AITitle            lenient.Text               `json:"aiTitle"`
	CustomTitle        lenient.Text               `json:"customTitle"`
	AgentName          lenient.Text               `json:"agentName"`
	Mode               lenient.Text               `json:"mode"`
	PRNumber           jsontext.Value             `json:"prNumber"`
	PRURL              lenient.Text               `json:"prUrl"`
	PRRepository       lenient.Text               `json:"prRepository"`
	WorktreeSession    jsontext.Value             `json:"worktreeSession"`

	stream
}

type origin struct {
	Kind         lenient.Text `json:"kind"`
	From         lenient.Text `json:"from"`
	SenderTaskID lenient.Text `json:"senderTaskId"`
}

// fork names the record that this one was copied from when its session was forked.
type fork struct {
	SessionID lenient.Text `json:"sessionId"`
}

type message struct {
	ID      lenient.Text          `json:"id"`
	Role    lenient.Text          `json:"role"`
	Model   lenient.Text          `json:"model"`
	Content content               `json:"content"`
	Usage   lenient.Object[usage] `json:"usage"`
}

type usage struct {
	Input         lenient.Number                `json:"input_tokens"`
	Output        lenient.Number                `json:"output_tokens"`
	CacheRead     lenient.Number                `json:"cache_read_input_tokens"`
	CacheWrite    lenient.Number                `json:"cache_creation_input_tokens"`
	CacheCreation lenient.Object[cacheCreation] `json:"cache_creation"`
	OutputDetails lenient.Object[outputDetails] `json:"output_tokens_details"`
}

type cacheCreation struct {
	FiveMinutes lenient.Number `json:"ephemeral_5m_input_tokens"`
	OneHour     lenient.Number `json:"ephemeral_1h_input_tokens"`
}

type outputDetails struct {
	Thinking lenient.Number `json:"thinking_tokens"`
}

type snapshot struct {
	Timestamp lenient.Text                              `json:"timestamp"`
	Files     lenient.Object[map[string]jsontext.Value] `json:"trackedFileBackups"`
}

// content is the content of a message or of a tool result: a string, or blocks.
type content struct {
	blocks  []block
	present bool
}

func (c *content) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*c = content{}
	switch dec.PeekKind() {
	case '"':
		b := block{Type: "text"}
		if err := b.Text.UnmarshalJSONFrom(dec); err != nil {
			return err
		}
		c.blocks, c.present = []block{b}, true
		return nil
	case '[':
		if _, err := dec.ReadToken(); err != nil {
			return err
		}
		c.present = true
		for dec.PeekKind() != ']' {
			var b block
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
		var b block
		c.present = true
		err := json.UnmarshalDecode(dec, &b)
		if b.Type != "" {
			c.blocks = []block{b}
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
func (c *content) text() (string, bool) {
	var parts []string
	for i := range c.blocks {
		if b := &c.blocks[i]; b.Type == "text" || b.Type == "advisor_result" {
			parts = append(parts, string(c.blocks[i].Text))
		}
	}
	return strings.Join(parts, "\n"), len(parts) > 0
}

type block struct {
	Type      lenient.Text   `json:"type"`
	Text      lenient.Text   `json:"text"`
	Thinking  lenient.Text   `json:"thinking"`
	ID        lenient.Text   `json:"id"`
	Name      lenient.Text   `json:"name"`
	Input     jsontext.Value `json:"input"`
	ToolUseID lenient.Text   `json:"tool_use_id"`
	IsError   lenient.Kind   `json:"is_error"`
	ErrorCode lenient.Text   `json:"error_code"` // of what a tool that the server runs returns
	Content   content        `json:"content"`
}

// isResult: tool_result, and what a server-side tool returns (web_search_tool_result).
// The SDK leaves the type of a result out.
func (b *block) isResult() bool {
	return strings.HasSuffix(string(b.Type), "tool_result") || b.Type == "" && b.ToolUseID != ""
}

func (b *block) isCall() bool { return strings.HasSuffix(string(b.Type), "tool_use") }

// mapper is the work on one record.
type mapper struct {
	*core.Builder
	st *state
	wireRecord
	in       core.Fingerprint // the thread
	internal bool             // work of a sidechain or a subagent

	from      *core.Pending // the record that the events come from, where that is not the one at work
	truncated bool          // the text of the next event was cut
}

// normalize maps one line of a transcript or of a stream. What is held are the pieces of
// messages that a stream writes before the messages themselves.
func normalize(s *core.Session, r core.Record) (core.Result, error) {
	c := &mapper{st: stateOf(s)}
	if r.Origin.End {
		c.Builder = s.Begin(r, "")
		c.flush(nil)
		return c.Finish("")
	}
	if err := core.ReadRecord(r.Data, &c.wireRecord); err != nil {
		return core.Result{}, err
	}
	if elements := objectsOf(r.Data); elements != nil {
		return normalizeArray(s, r, elements)
	}
	c.Builder = s.Begin(r, c.time())
	c.start()
	return c.Finish(c.record())
}

// start settles what the record is, whose thread it belongs to, and what it says of its
// session.
func (c *mapper) start() {
	c.unwrap()
	if c.AgentID == "" {
		c.AgentID = c.ParentToolUseID
	}
	c.internal = bool(c.IsSidechain) || c.AgentID != ""
	switch {
	case c.AgentID != "":
		c.in = core.FingerprintOf("agent", string(c.AgentID))
	case c.internal:
		c.in = core.FingerprintOf("sidechain")
	}
	c.learn()
}

// time is the record's own time in the form of an event; empty when it has none.
func (r *wireRecord) time() string {
	if ts, ok := core.ParseTime(string(r.Timestamp)); ok {
		return ts
	}
	if ts, ok := core.ParseTime(string(r.AuditTimestamp)); ok {
		return ts
	}
	ts, _ := core.ParseTime(string(r.Snapshot.Value.Timestamp))
	return ts
}

// session is the record's own session; empty when it states none.
func (r *wireRecord) session() string {
	return string(cmp.Or(r.SessionIDSnake, r.SessionID))
}

// copied reports whether the record is history of another session, with which a fork
// begins (semantics.md section 3).
func (c *mapper) copied() bool {
	from := c.ForkedFrom.Value.SessionID
	return from != "" && string(from) != c.Session.ID()
}

// words is the text that the record itself holds, beside any message.
func (r *wireRecord) words() lenient.Text {
	words, _ := r.Content.text()
	return lenient.Text(words)
}

// learn takes from the record what is true for the session from now on.
func (c *mapper) learn() {
	c.Session.SetRoot(string(c.CWD))
	c.Session.SetResumeID(c.session())
	if m := c.Message.Value.Model; m != synthetic && (!c.internal || c.Session.Model == "") {
		c.Session.SetModel(string(m))
	}
	c.Session.SetTextExtension("permissionMode", c.PermissionMode)
	c.Session.SetTextExtension("gitBranch", c.GitBranch)
	c.Session.SetTextExtension("version", c.Version)
}

// synthetic is the model of messages that the client made up itself.
const synthetic = "<synthetic>"

// put emits an event of this record; id is empty where the vendor gives none.
func (c *mapper) put(id lenient.Text, d core.Draft) bool {
	d.EventID = string(id)
	d.Thread = c.in
	d.AgentID = c.AgentID.Ptr()
	d.IsInternal = c.internal
	d.From, d.TextTruncated = c.from, c.truncated
	if c.copied() {
		d.Origin = envelopes.OriginCopied
	}
	if c.ParentToolUseID != "" && d.Metadata == nil {
		d.Metadata = c.Session.MetadataWith(map[string]jsontext.Value{"parentToolUseId": textValue(c.ParentToolUseID)})
	}
	return c.Emit(d)
}

// runtime emits an event in which the runtime speaks, not the conversation.
func (c *mapper) runtime(id lenient.Text, t envelopes.EventType, words lenient.Text) {
	c.put(id, core.Draft{
		AgentEventV1: envelopes.AgentEventV1{EventType: t, Text: words.Ptr()},
		InRole:       envelopes.RoleSystem,
		OnChannel:    envelopes.ChannelSystem,
	})
}

// record maps the record by its type (vendor-formats.md section 3.1) and says why there
// is no event where there is none.
func (c *mapper) record() core.SkipReason {
	switch c.Type {
	case "progress":
		return core.SkipProgress // told whole by the result, or by the file of the subagent
	case "last-prompt":
		return core.SkipMirror
	case "bridge-session":
		return core.SkipHeartbeat
	case "queue-operation":
		return c.queueOperation()
	case "file-history-snapshot":
		c.snapshot()
	case "file-history-delta":
		d := core.Draft{OnChannel: envelopes.ChannelFilesystem}
		d.EventType, d.Text = envelopes.FileSnapshot, new("snapshot of 1 files")
		d.Touch(string(c.TrackingPath), "")
		c.put("", d)
	case "summary":
		d := core.Draft{OnChannel: envelopes.ChannelChat}
		d.EventType, d.Text = envelopes.SessionSummary, cmp.Or(c.Summary, c.Text).Ptr()
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
		c.stated(envelopes.Meta, c.PRURL, lenient.Text(c.PRNumber), c.PRRepository)
	case "worktree-state":
		c.stated(envelopes.Meta, "", lenient.Text(c.WorktreeSession))
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
		return core.SkipControl
	case "keep_alive":
		return core.SkipHeartbeat
	case "tool_progress":
		return core.SkipProgress
	case "rate_limit_event":
		if c.RateLimit.Value.Status == "allowed" {
			return core.SkipHeartbeat // written in every run
		}
		c.runtime(c.UUID, envelopes.Log, c.RateLimit.Value.Status)
	case "auth_status":
		words, _ := c.Output.text()
		if message := string(lenient.Scalar(c.Error)); message != "" {
			c.fail(c.UUID, "", message, cmp.Or(words, message))
			break
		}
		c.runtime(c.UUID, envelopes.Log, lenient.Text(words))
	default:
		return c.conversation()
	}
	return core.SkipDuplicate
}

// stated emits the value of a record that only states one, unless the session's last
// record of the type stated the same (semantics.md section 9).
func (c *mapper) stated(t envelopes.EventType, value lenient.Text, more ...lenient.Text) {
	is := core.StatedValue{Type: string(c.Type), Value: core.FingerprintOf(string(value), fmt.Sprint(more))}
	last := &c.st.Stated
	if slices.Contains(*last, is) {
		return
	}
	others := last.Without(func(v core.StatedValue) bool { return v.Type == is.Type })
	*last = others.Push(is, core.MaxStated, &c.Session.Lost)
	c.runtime("", t, value)
}

// snapshot emits a snapshot of files; an update and an empty one are snapshots too.
func (c *mapper) snapshot() {
	d := core.Draft{OnChannel: envelopes.ChannelFilesystem, Identity: string(c.Record.Data)}
	d.EventType = envelopes.FileSnapshot
	d.Text = new(fmt.Sprintf("snapshot of %d files", len(c.Snapshot.Value.Files.Value)))
	id := c.MessageID
	if id != "" {
		id += "#snapshot"
	}
	c.put(id, d)
}

// conversation maps what is said and done: a record with a message, whatever its type is
// called, and a tool result that stands alone. Anything else is kept as meta.
func (c *mapper) conversation() core.SkipReason {
	role := c.Message.Value.Role
	if role == "" && c.Message.OK {
		role = c.Type
	}
	switch {
	case role == "assistant":
		return c.assistant()
	case role == "user":
		return c.user()
	case lenient.IsValue(c.ToolUseResult):
		c.result(&block{})
	default:
		c.runtime(c.UUID, envelopes.Meta, c.words())
	}
	return core.SkipDuplicate
}

// assistant maps the blocks of an assistant's record in their order. Its texts are one
// message, in the place of the first. What the message adds to the bill goes on the
// first event; a record without one is kept as meta.
func (c *mapper) assistant() core.SkipReason {
	c.match()
	m := &c.Message.Value
	words, said := m.Content.text()
	said = said && strings.TrimSpace(words) != ""
	if said && !c.internal {
		c.st.Runs.Last = core.PromptKey(words)
	}
	before := len(c.Events)
	if bool(c.IsAPIErrorMessage) || c.isStream() && lenient.IsValue(c.Error) {
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
				id += lenient.Text("#thinking" + strconv.Itoa(thoughts))
			}
			thoughts++
			c.utter(id, envelopes.Reasoning, b.Thinking.Ptr())
		case b.isCall():
			c.call(b)
		case b.isResult():
			c.result(b)
		}
	}
	bill, set := c.consume()
	if len(c.Events) == before {
		switch {
		case !c.Duplicate:
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
		c.AddUsage(bill, set)
	}
	return core.SkipDuplicate
}

// utter emits what the assistant said or thought, or the meta event in its place.
func (c *mapper) utter(id lenient.Text, t envelopes.EventType, words *string) {
	d := core.Draft{OnChannel: envelopes.ChannelChat}
	if t == envelopes.Meta {
		d.OnChannel = envelopes.ChannelSystem
	}
	d.EventType, d.Text, d.Model = t, words, c.Message.Value.Model.Ptr()
	c.put(id, d)
}

// consume is what the record adds to the bill: per message of the API and thread, each
// figure above the highest one seen (semantics.md section 3). set writes the vendor's
// own figures.
func (c *mapper) consume() (u *envelopes.Usage, set func(*envelopes.AgentEventV1)) {
	v := &c.Message.Value.Usage.Value
	key := string(cmp.Or(c.Message.Value.ID, c.RequestID))
	if !c.Message.Value.Usage.OK || key == "" && c.Duplicate || c.copied() {
		return nil, nil
	}
	return c.consumed(v.consumption(), v.OutputDetails.Value.Thinking.OK, key)
}

// consumed is what the figures of a message add to the bill. They count for the run, too.
func (c *mapper) consumed(is core.Consumption, thinking bool, key string) (*envelopes.Usage, func(*envelopes.AgentEventV1)) {
	var before core.Consumption
	slot := core.FingerprintOf(string(c.in[:]), key)
	if key != "" {
		before, _ = c.Session.APICalls.Get(slot)
	}
	now := before.Raise(is)
	u := now.UsageSince(before, key)
	if u == nil {
		u = new(envelopes.Usage)
	}
	if !c.internal {
		now.Run = c.st.Runs.call(u, before, now, c.isStream())
	}
	if key != "" && now != before {
		c.Session.APICalls.Put(slot, now)
	}
	if u.Total() == 0 {
		return nil, nil
	}
	return u, figures(u, thinking)
}

// consumption are the figures in the form in which they are remembered.
func (v *usage) consumption() core.Consumption {
	is := core.Consumption{
		Input:      v.Input.Count(),
		CacheRead:  v.CacheRead.Count(),
		CacheWrite: v.CacheWrite.Count(),
		Output:     v.Output.Count(),
	}
	if !v.CacheWrite.OK {
		is.CacheWrite = v.CacheCreation.Value.FiveMinutes.Count() + v.CacheCreation.Value.OneHour.Count()
	}
	is.Reasoning = min(v.OutputDetails.Value.Thinking.Count(), is.Output)
	return is
}

// figures writes an increment in the vendor's own figures; thinking says whether
// the vendor states that one.
func figures(u *envelopes.Usage, thinking bool) func(*envelopes.AgentEventV1) {
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
func (c *mapper) failure(words string) {
	code, message := core.VendorError(c.Error)
	if code == "" {
		code = string(cmp.Or(lenient.Scalar(c.APIErrorStatus), c.APIRefusalCategory))
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
func (c *mapper) fail(id lenient.Text, code, message, words string) {
	d := core.Draft{OnChannel: envelopes.ChannelSystem}
	d.EventType, d.Text = envelopes.Log, lenient.Text(words).Ptr()
	d.Metadata = c.Session.MetadataWithError(code, message)
	c.put(id, d)
}
