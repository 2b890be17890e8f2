// Package codex normalizes the rollouts of the Codex CLI in all three generations: bare items,
// items in an envelope {timestamp, type, payload}, and envelopes with an ordinal; and
// the stream of `codex exec --json`. What it rests on: what is said is written twice, as
// response_item and as event_msg, and response_item is canonical.
package codex

import (
	"cmp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// wireRecord is a line of a rollout, in the vendor's names.
type wireRecord struct {
	Timestamp  lenient.Text            `json:"timestamp"`
	Type       lenient.Text            `json:"type"`
	Payload    lenient.Object[payload] `json:"payload"`
	RecordType lenient.Text            `json:"record_type"`
	exec
}

// payload is what an envelope holds, and what a bare line is.
type payload struct {
	Type lenient.Text `json:"type"`
	ID   lenient.Text `json:"id"`

	// What is said.
	Role             lenient.Text    `json:"role"`
	Content          content         `json:"content"`
	Summary          content         `json:"summary"`
	Text             lenient.Text    `json:"text"`
	Message          lenient.Text    `json:"message"`
	Author           lenient.Text    `json:"author"`
	Item             jsontext.Value  `json:"item"`
	ThreadName       lenient.Text    `json:"thread_name"`
	CodexErrorInfo   jsontext.Value  `json:"codex_error_info"`
	Error            jsontext.Value  `json:"error"`
	Reason           lenient.Text    `json:"reason"`
	LastAgentMessage lenient.Present `json:"last_agent_message"`

	// What tools do.
	Name          lenient.Text               `json:"name"`
	Namespace     lenient.Text               `json:"namespace"`
	CallID        lenient.Text               `json:"call_id"`
	CallIDCamel   lenient.Text               `json:"callId"`
	Arguments     jsontext.Value             `json:"arguments"`
	Input         jsontext.Value             `json:"input"`
	Action        jsontext.Value             `json:"action"`
	Output        jsontext.Value             `json:"output"`
	Status        lenient.Text               `json:"status"`
	Result        jsontext.Value             `json:"result"`
	Server        lenient.Text               `json:"server"`
	Tool          lenient.Text               `json:"tool"`
	Tools         jsontext.Value             `json:"tools"`
	Query         lenient.Text               `json:"query"`
	Path          lenient.Text               `json:"path"`
	RevisedPrompt lenient.Text               `json:"revised_prompt"`
	RevisedCamel  lenient.Text               `json:"revisedPrompt"`
	Results       jsontext.Value             `json:"results"`
	Invocation    lenient.Object[invocation] `json:"invocation"`
	Command       jsontext.Value             `json:"command"`
	ExitCode      lenient.Number             `json:"exit_code"`
	Duration      lenient.Object[duration]   `json:"duration"`
	Stdout        lenient.Text               `json:"stdout"`
	Stderr        lenient.Text               `json:"stderr"`
	Aggregated    lenient.Text               `json:"aggregated_output"`
	Success       jsontext.Value             `json:"success"`
	Changes       jsontext.Value             `json:"changes"`
	ContentItems  content                    `json:"content_items"`

	// What is true for the session or the turn.
	CWD            lenient.Text           `json:"cwd"`
	Model          lenient.Text           `json:"model"`
	Effort         lenient.Text           `json:"effort"`
	ApprovalPolicy lenient.Text           `json:"approval_policy"`
	CLIVersion     lenient.Text           `json:"cli_version"`
	Git            lenient.Object[git]    `json:"git"`
	Source         jsontext.Value         `json:"source"`
	ForkedFromID   lenient.Text           `json:"forked_from_id"`
	HistoryBase    lenient.Object[base]   `json:"history_base"`
	TurnID         lenient.Text           `json:"turn_id"`
	ThreadSettings lenient.Object[thread] `json:"thread_settings"`
	Info           jsontext.Value         `json:"info"`
}

type git struct {
	Branch lenient.Text `json:"branch"`
}

// base is the thread whose file has the history before that of a rollout.
type base struct {
	ThreadID lenient.Text `json:"thread_id"`
}

type thread struct {
	Model lenient.Text `json:"model"`
	CWD   lenient.Text `json:"cwd"`
}

type invocation struct {
	Server    lenient.Text   `json:"server"`
	Tool      lenient.Text   `json:"tool"`
	Arguments jsontext.Value `json:"arguments"`
}

type duration struct {
	Secs  lenient.Number `json:"secs"`
	Nanos lenient.Number `json:"nanos"`
}

// content is a list of parts with text: of a message, a summary or an output.
type content struct {
	parts   []part
	present bool
}

type part struct {
	Type lenient.Text `json:"type"`
	Text lenient.Text `json:"text"`
}

func (c *content) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*c = content{}
	switch dec.PeekKind() {
	case '"':
		var p part
		c.present = true
		err := p.Text.UnmarshalJSONFrom(dec)
		c.parts = []part{p}
		return err
	case '{':
		var p lenient.Object[part]
		c.present = true
		err := p.UnmarshalJSONFrom(dec)
		c.parts = []part{p.Value}
		return err
	case '[':
		c.present = true
		_, err := dec.ReadToken()
		for err == nil && dec.PeekKind() != ']' {
			var p lenient.Object[part]
			if dec.PeekKind() == '"' {
				p.OK = true
				err = p.Value.Text.UnmarshalJSONFrom(dec)
			} else {
				err = p.UnmarshalJSONFrom(dec)
			}
			c.parts = append(c.parts, p.Value)
		}
		if err == nil {
			_, err = dec.ReadToken()
		}
		return err
	default:
		return dec.SkipValue()
	}
}

// texts are the texts of the parts; pictures have none, nor the marks around them.
func (c *content) texts() []string {
	var out []string
	for _, p := range c.parts {
		t := strings.TrimSpace(string(p.Text))
		mark := strings.HasPrefix(t, "<image") && strings.HasSuffix(t, ">") && !strings.Contains(t, "\n")
		if p.Text != "" && !mark && t != "</image>" {
			out = append(out, string(p.Text))
		}
	}
	return out
}

// attached reports whether there is more among the parts than text: a picture, a file.
func (c *content) attached() bool {
	return slices.ContainsFunc(c.parts, func(p part) bool {
		return p.Text == "" && p.Type != "" && !strings.HasSuffix(string(p.Type), "text")
	})
}

// state is what a rollout remembers beyond what all vendors do.
type state struct {
	Meta   string                `json:"meta,omitzero"`   // id of the last session_meta
	Copied string                `json:"copied,omitzero"` // the child whose copied history goes on
	Turns  bool                  `json:"turns,omitzero"`  // the child states ids of its turns
	Forked bool                  `json:"forked,omitzero"` // the file has a fork, or the end of a thread
	Agent  string                `json:"agent,omitzero"`  // the subagent that the rollout is of
	Turn   string                `json:"turn,omitzero"`   // id of the turn
	Total  tokens                `json:"total,omitzero"`  // the last running total
	Pair   core.Fingerprint      `json:"pair,omitzero"`   // the last pair of total and increment
	Said   core.Window[seenText] `json:"said,omitzero"`   // what twins that follow may tell again
	Twins  core.Window[twin]     `json:"twins,omitzero"`  // twins that wait for their response_item
	Search *search               `json:"search,omitzero"` // a web search that waits one record
	Exec   bool                  `json:"exec,omitzero"`   // the session is an exec stream
	Runs   int                   `json:"runs,omitzero"`   // its turns
}

// Size implements [core.State].
func (s *state) Size() int {
	n := len(s.Meta) + len(s.Copied) + len(s.Agent) + len(s.Turn)
	for _, t := range s.Twins {
		n += 256 + len(t.Words) + len(t.From.Raw)
	}
	n += 24 * len(s.Said)
	if s.Search != nil {
		n += 512 + len(s.Search.From.Raw) + len(s.Search.Action) + len(s.Search.Call)
	}
	return n
}

// mapper is the work on one record.
type mapper struct {
	*core.Builder
	payload
	kind   lenient.Text // response_item, event_msg, ... ; empty for a bare item
	st     *state
	copied bool // the record is history of another session
}

// normalize maps one line of a rollout.
func normalize(s *core.Session, r core.Record) (core.Result, error) {
	c := &mapper{st: stateOf(s)}
	if r.Origin.End {
		c.Builder = s.Begin(r, "")
		c.releaseSearch()
		c.promote(len(c.st.Twins))
		return c.Finish("")
	}
	if stateOf(s).Exec && core.IsPlainText(r.Data) {
		c.Builder = s.Begin(r, "")
		return c.Finish(c.plain())
	}
	var rec wireRecord
	if err := core.ReadRecord(r.Data, &rec); err != nil {
		return core.Result{}, err
	}
	ts, _ := core.ParseTime(string(rec.Timestamp))
	c.Builder = s.Begin(r, ts)
	switch {
	case rec.Payload.OK:
		c.kind, c.payload = rec.Type, rec.Payload.Value
	case rec.isExec():
		return c.Finish(c.exec(&rec.exec, rec.Type))
	default:
		lenient.ReadObject(r.Data, &c.payload)
	}
	if rec.RecordType != "" && rec.Type == "" {
		return c.Finish(core.SkipHeartbeat)
	}
	// What waits no longer is told as of before this record.
	if c.Type != "web_search_call" {
		c.releaseSearch()
	}
	if c.kind == "session_meta" {
		c.promote(len(c.st.Twins))
	}
	c.learn()
	return c.Finish(c.record())
}

// learn takes from the record what is true for the session from now on.
func (c *mapper) learn() {
	if c.kind == "turn_context" || c.Type == "task_started" || c.Type == "turn_started" {
		c.endCopy()
		c.st.Turn = core.Cut(string(c.TurnID), core.MaxName)
	}
	c.copied = c.st.Copied != ""
	c.Session.SetRoot(string(cmp.Or(c.CWD, c.ThreadSettings.Value.CWD)))
	switch {
	case c.kind == "session_meta", c.kind == "" && c.Type == "" && c.Role == "" && c.ID != "":
		c.sessionMeta()
	case c.kind == "turn_context":
		c.Session.SetModel(string(c.Model))
		c.Session.SetTextExtension("approvalPolicy", c.ApprovalPolicy)
		c.Session.SetTextExtension("effort", c.Effort)
	case c.kind == "response_item":
		c.Session.SetModel(string(c.Model))
	case c.ThreadSettings.OK:
		c.Session.SetModel(string(c.ThreadSettings.Value.Model))
	}
}

// sessionMeta takes note of the start of a session: of this one, of the one that it was
// forked from, or of one that it goes on in (semantics.md section 3).
func (c *mapper) sessionMeta() {
	st := c.st
	if st.Copied != "" {
		return // the parent's own
	}
	c.Session.SetTextExtension("version", c.CLIVersion)
	c.Session.SetTextExtension("gitBranch", c.Git.Value.Branch)
	if c.Session.Extensions["threadId"] == nil {
		c.Session.SetTextExtension("threadId", c.ID)
	}
	var source struct {
		Subagent jsontext.Value `json:"subagent"`
	}
	lenient.ReadObject(c.Source, &source)
	var spawn struct {
		ThreadSpawn lenient.Present `json:"thread_spawn"`
	}
	lenient.ReadObject(source.Subagent, &spawn)
	if lenient.IsValue(source.Subagent) && st.Meta == "" {
		st.Agent = core.Cut(string(c.ID), core.MaxName)
	}
	base := c.HistoryBase.Value.ThreadID
	fork := c.ForkedFromID != "" || bool(spawn.ThreadSpawn) || base != "" && base != c.ID
	st.Forked = st.Forked || fork || base != ""
	switch {
	case fork && isUUIDv7(string(c.ID)):
		st.Copied = string(c.ID)
		st.Turns = statesTurns(string(c.CLIVersion))
	case !fork && string(c.ID) != st.Meta:
		st.Total, st.Pair = tokens{}, core.Fingerprint{}
	}
	st.Meta = core.Cut(string(c.ID), core.MaxName)
}

// endCopy ends the copied history at the child's own first turn: the first one with an
// id that is not older than the child.
func (c *mapper) endCopy() {
	st := c.st
	if st.Copied == "" {
		return
	}
	turn := string(c.TurnID)
	if isUUIDv7(turn) {
		st.Turns = true
		if turn >= st.Copied {
			st.Copied = ""
		}
	} else if !st.Turns {
		st.Copied = "" // this version states none: nothing tells what is copied
	}
}

func isUUIDv7(id string) bool {
	return len(id) == 36 && id[8] == '-' && id[13] == '-' && id[14] == '7' && id[18] == '-' && id[23] == '-'
}

// statesTurns reports whether a version of the CLI gives its turns ids: from 0.118.
func statesTurns(version string) bool {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	return major != "" && (major != "0" || len(minor) > 3 || len(minor) == 3 && minor >= "118")
}

// put emits an event of this record, or of the one that it comes from.
func (c *mapper) put(id lenient.Text, d core.Draft) bool {
	if strings.HasPrefix(string(id), "review_rollout_") {
		id = "" // the same in every review
	}
	d.EventID = string(id)
	if c.st.Agent != "" {
		d.Thread = core.FingerprintOf(c.st.Agent)
		d.AgentID, d.IsInternal = &c.st.Agent, true
		if d.EventType == envelopes.UserMessage && d.Origin == "" {
			d.Origin = envelopes.OriginAgent
		}
	}
	if c.copied && d.From == nil {
		d.Origin = envelopes.OriginCopied
	}
	return c.Emit(d)
}

// runtime emits an event in which the runtime speaks.
func (c *mapper) runtime(t envelopes.EventType, words string) {
	d := core.Draft{InRole: envelopes.RoleSystem, OnChannel: envelopes.ChannelSystem}
	d.EventType, d.Text = t, lenient.Text(words).Ptr()
	c.put("", d)
}

// record maps the record and says why there is no event where there is none.
func (c *mapper) record() core.SkipReason {
	switch c.kind {
	case "event_msg":
		return c.eventMsg()
	case "response_item", "":
		return c.responseItem()
	case "compacted":
		c.promote(len(c.st.Twins))
		c.compacted()
	case "inter_agent_communication_metadata":
		return core.SkipHeartbeat
	case "session_meta", "turn_context", "world_state":
		c.runtime(envelopes.Meta, "")
	default:
		c.promote(len(c.st.Twins))
		c.runtime(envelopes.Meta, "")
	}
	return core.SkipDuplicate
}

// compacted emits the summary that a compacted conversation goes on with; without one,
// the fact. Its replacement_history repeats the conversation and is never told.
func (c *mapper) compacted() {
	if c.Message == "" {
		c.runtime(envelopes.Meta, "")
		return
	}
	d := core.DraftOf(core.SpeechSummary, string(c.Message))
	c.put("", d)
}

// responseItem maps what is canonical.
func (c *mapper) responseItem() core.SkipReason {
	switch c.Type {
	case "message":
		return c.message()
	case "reasoning":
		return c.reasoning()
	case "agent_message":
		c.promote(len(c.st.Twins))
		d := core.DraftOf(core.SpeechAgent, strings.Join(c.Content.texts(), "\n"))
		if c.Author == "/root" && c.st.Agent == "" {
			d = core.DraftOf(core.SpeechHuman, *d.Text)
			d.EventType, d.Model = envelopes.AssistantMessage, lenient.Text(c.Session.Model).Ptr()
		}
		c.put(c.ID, d)
	case "function_call", "custom_tool_call", "local_shell_call", "tool_search_call":
		c.promote(len(c.st.Twins))
		c.call()
	case "function_call_output", "custom_tool_call_output", "tool_search_output":
		c.promote(len(c.st.Twins))
		return c.output()
	case "web_search_call", "image_generation_call":
		c.promote(len(c.st.Twins))
		return c.hosted()
	case "":
		return c.untyped()
	default:
		c.promote(len(c.st.Twins))
		c.runtime(envelopes.Meta, "")
	}
	return core.SkipDuplicate
}

// untyped maps an item without a type by what it holds: the rules of spec section 5.2.2,
// which hold for nothing else that Codex writes today.
func (c *mapper) untyped() core.SkipReason {
	switch {
	case c.Role != "" && c.Content.present:
		return c.message()
	case c.Name != "":
		c.promote(len(c.st.Twins))
		c.call()
	case c.Status != "" && c.CallID != "":
		c.promote(len(c.st.Twins))
		skip := c.output()
		var info info
		lenient.ReadObject(c.Info, &info)
		c.billTokens(info.Last.Value.tokens(), &info.Last.Value)
		return skip
	default:
		c.promote(len(c.st.Twins))
		c.runtime(envelopes.Meta, "")
	}
	return core.SkipDuplicate
}

// message maps a message by its role; what a machine put into the conversation under the
// user's role is injected (vendor-formats.md section 5.4).
func (c *mapper) message() core.SkipReason {
	switch c.Role {
	case "user":
		words, kind := speech(c.Content.texts())
		if kind == core.SpeechInjected {
			if !c.Content.attached() {
				c.put(c.ID, core.DraftOf(core.SpeechInjected, words))
				return core.SkipDuplicate
			}
			words = "" // the human sent no more than a picture
		}
		if words == "" && !c.Content.attached() {
			return core.SkipEmpty
		}
		if slices.Contains(c.claim(speakerUser, textsOf(speakerUser, c.Content.texts())), true) {
			return core.SkipMirror
		}
		d := core.DraftOf(core.SpeechHuman, words)
		d.Text = lenient.Text(words).Ptr()
		c.put(c.ID, d)
	case "assistant":
		texts := c.Content.texts()
		if len(texts) == 0 {
			return core.SkipEmpty
		}
		untold := c.untold(speakerAgent, texts, textsOf(speakerAgent, texts))
		if len(untold) == 0 {
			return core.SkipMirror
		}
		c.put(c.ID, c.utterance(envelopes.AssistantMessage, strings.Join(untold, "\n")))
	default: // developer, system
		c.put(c.ID, core.DraftOf(core.SpeechInjected, strings.Join(c.Content.texts(), "\n")))
	}
	return core.SkipDuplicate
}

// utterance is the event of what the agent said or thought.
func (c *mapper) utterance(t envelopes.EventType, words string) core.Draft {
	d := core.Draft{OnChannel: envelopes.ChannelChat}
	d.EventType, d.Text, d.Model = t, &words, lenient.Text(c.Session.Model).Ptr()
	return d
}

// reasoning maps what the agent thought, where it is readable at all.
func (c *mapper) reasoning() core.SkipReason {
	parts := c.Summary.texts()
	if len(parts) == 0 {
		parts = c.Content.texts()
	}
	if len(parts) == 0 && c.Text != "" {
		parts = []string{string(c.Text)}
	}
	if len(parts) == 0 {
		return core.SkipEmpty
	}
	untold := c.untold(speakerThought, parts, partsOf(speakerThought, parts))
	if len(untold) == 0 {
		return core.SkipMirror
	}
	c.put(c.ID, c.utterance(envelopes.Reasoning, strings.Join(untold, "\n")))
	return core.SkipDuplicate
}

// eventMsg maps what is told beside the conversation.
func (c *mapper) eventMsg() core.SkipReason {
	switch c.Type {
	case "token_count":
		return c.tokenCount()
	case "user_message":
		return c.twin(speakerUser, string(c.Message))
	case "agent_message":
		return c.twin(speakerAgent, string(c.Message))
	case "agent_reasoning", "agent_reasoning_raw_content":
		return c.twin(speakerThought, string(c.Text))
	case "item_completed":
		return c.itemCompleted()
	case "exec_command_end", "patch_apply_end", "mcp_tool_call_end",
		"dynamic_tool_call_response", "image_generation_end", "view_image_tool_call":
		return c.toolEnd()
	case "dynamic_tool_call_request":
		return c.toolBegin()
	case "web_search_end":
		return c.searchEnd()
	case "task_complete", "turn_complete":
		c.promote(len(c.st.Twins))
		d := core.Draft{OnChannel: envelopes.ChannelSystem}
		d.EventType = envelopes.Meta
		if lenient.IsValue(c.Error) {
			d.Metadata = c.Session.MetadataWithError(problem(c.Error))
		}
		c.put("", d)
	case "error", "stream_error":
		d := core.Draft{OnChannel: envelopes.ChannelSystem}
		d.EventType, d.Text = envelopes.Log, c.Message.Ptr()
		d.Metadata = c.Session.MetadataWithError(codexCode(c.CodexErrorInfo), string(c.Message))
		c.put("", d)
	case "warning", "background_event", "deprecation_notice":
		c.runtime(envelopes.Log, string(c.Message))
	case "turn_aborted":
		c.runtime(envelopes.Log, "turn aborted: "+string(cmp.Or(c.Reason, "unknown")))
	case "thread_name_updated":
		c.runtime(envelopes.SessionSummary, string(c.ThreadName))
	case "agent_reasoning_section_break":
		return core.SkipHeartbeat
	default:
		if strings.HasSuffix(string(c.Type), "_delta") || isBegin(c.Type) {
			return core.SkipProgress
		}
		c.runtime(envelopes.Meta, "")
	}
	return core.SkipDuplicate
}

// problem is the code and the message of the error that ended a turn.
func problem(v jsontext.Value) (code, message string) {
	var e struct {
		Info jsontext.Value `json:"codex_error_info"`
	}
	lenient.ReadObject(v, &e)
	code, message = core.VendorError(v)
	return cmp.Or(codexCode(e.Info), code), message
}

// codexCode is the code of an error: a word, or an object of which it is the one name.
func codexCode(info jsontext.Value) string {
	if ms := lenient.ObjectMembers(info); len(ms) == 1 && ms[0].Value.Kind() == '{' {
		return ms[0].Name
	}
	code, _ := core.VendorError(info)
	return code
}

// isBegin tells the start of a tool, of which the call is told anyway.
func isBegin(t lenient.Text) bool {
	switch t {
	case "exec_command_begin", "patch_apply_begin", "mcp_tool_call_begin", "web_search_begin", "image_generation_begin":
		return true
	default:
		return false
	}
}
