package normalizers

import (
	"cmp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
)

// codex normalizes the rollouts of the Codex CLI in all three generations: bare items,
// items in an envelope {timestamp, type, payload}, and envelopes with an ordinal; and
// the stream of `codex exec --json`. What it rests on: what is said is written twice, as
// response_item and as event_msg, and response_item is canonical.
type codex struct{}

// codexRecord is a line of a rollout, in the vendor's names.
type codexRecord struct {
	Timestamp  text                 `json:"timestamp"`
	Type       text                 `json:"type"`
	Payload    object[codexPayload] `json:"payload"`
	RecordType text                 `json:"record_type"`
	codexExec
}

// codexPayload is what an envelope holds, and what a bare line is.
type codexPayload struct {
	Type text `json:"type"`
	ID   text `json:"id"`

	// What is said.
	Role             text           `json:"role"`
	Content          codexContent   `json:"content"`
	Summary          codexContent   `json:"summary"`
	Text             text           `json:"text"`
	Message          text           `json:"message"`
	Author           text           `json:"author"`
	Item             jsontext.Value `json:"item"`
	ThreadName       text           `json:"thread_name"`
	CodexErrorInfo   jsontext.Value `json:"codex_error_info"`
	Error            jsontext.Value `json:"error"`
	Reason           text           `json:"reason"`
	LastAgentMessage present        `json:"last_agent_message"`

	// What tools do.
	Name          text                    `json:"name"`
	Namespace     text                    `json:"namespace"`
	CallID        text                    `json:"call_id"`
	CallIDCamel   text                    `json:"callId"`
	Arguments     jsontext.Value          `json:"arguments"`
	Input         jsontext.Value          `json:"input"`
	Action        jsontext.Value          `json:"action"`
	Output        jsontext.Value          `json:"output"`
	Status        text                    `json:"status"`
	Result        jsontext.Value          `json:"result"`
	Server        text                    `json:"server"`
	Tool          text                    `json:"tool"`
	Tools         jsontext.Value          `json:"tools"`
	Query         text                    `json:"query"`
	Path          text                    `json:"path"`
	RevisedPrompt text                    `json:"revised_prompt"`
	RevisedCamel  text                    `json:"revisedPrompt"`
	Results       jsontext.Value          `json:"results"`
	Invocation    object[codexInvocation] `json:"invocation"`
	Command       jsontext.Value          `json:"command"`
	ExitCode      number                  `json:"exit_code"`
	Duration      object[codexDuration]   `json:"duration"`
	Stdout        text                    `json:"stdout"`
	Stderr        text                    `json:"stderr"`
	Aggregated    text                    `json:"aggregated_output"`
	Success       jsontext.Value          `json:"success"`
	Changes       jsontext.Value          `json:"changes"`
	ContentItems  codexContent            `json:"content_items"`

	// What is true for the session or the turn.
	CWD            text                `json:"cwd"`
	Model          text                `json:"model"`
	Effort         text                `json:"effort"`
	ApprovalPolicy text                `json:"approval_policy"`
	CLIVersion     text                `json:"cli_version"`
	Git            object[codexGit]    `json:"git"`
	Source         jsontext.Value      `json:"source"`
	ForkedFromID   text                `json:"forked_from_id"`
	HistoryBase    object[codexBase]   `json:"history_base"`
	TurnID         text                `json:"turn_id"`
	ThreadSettings object[codexThread] `json:"thread_settings"`
	Info           jsontext.Value      `json:"info"`
}

type codexGit struct {
	Branch text `json:"branch"`
}

// codexBase is the thread whose file has the history before that of a rollout.
type codexBase struct {
	ThreadID text `json:"thread_id"`
}

type codexThread struct {
	Model text `json:"model"`
	CWD   text `json:"cwd"`
}

type codexInvocation struct {
	Server    text           `json:"server"`
	Tool      text           `json:"tool"`
	Arguments jsontext.Value `json:"arguments"`
}

type codexDuration struct {
	Secs  number `json:"secs"`
	Nanos number `json:"nanos"`
}

// codexContent is a list of parts with text: of a message, a summary or an output.
type codexContent struct {
	parts   []codexPart
	present bool
}

type codexPart struct {
	Type text `json:"type"`
	Text text `json:"text"`
}

func (c *codexContent) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*c = codexContent{}
	switch dec.PeekKind() {
	case '"':
		var p codexPart
		c.present = true
		err := p.Text.UnmarshalJSONFrom(dec)
		c.parts = []codexPart{p}
		return err
	case '{':
		var p object[codexPart]
		c.present = true
		err := p.UnmarshalJSONFrom(dec)
		c.parts = []codexPart{p.value}
		return err
	case '[':
		c.present = true
		_, err := dec.ReadToken()
		for err == nil && dec.PeekKind() != ']' {
			var p object[codexPart]
			if dec.PeekKind() == '"' {
				p.ok = true
				err = p.value.Text.UnmarshalJSONFrom(dec)
			} else {
				err = p.UnmarshalJSONFrom(dec)
			}
			c.parts = append(c.parts, p.value)
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
func (c *codexContent) texts() []string {
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
func (c *codexContent) attached() bool {
	return slices.ContainsFunc(c.parts, func(p codexPart) bool {
		return p.Text == "" && p.Type != "" && !strings.HasSuffix(string(p.Type), "text")
	})
}

// codexState is what a rollout remembers beyond what all vendors do.
type codexState struct {
	Meta   string            `json:"meta,omitzero"`   // id of the last session_meta
	Copied string            `json:"copied,omitzero"` // the child whose copied history goes on
	Turns  bool              `json:"turns,omitzero"`  // the child states ids of its turns
	Forked bool              `json:"forked,omitzero"` // the file has a fork, or the end of a thread
	Agent  string            `json:"agent,omitzero"`  // the subagent that the rollout is of
	Turn   string            `json:"turn,omitzero"`   // id of the turn
	Total  codexTokens       `json:"total,omitzero"`  // the last running total
	Pair   fingerprint       `json:"pair,omitzero"`   // the last pair of total and increment
	Said   window[codexText] `json:"said,omitzero"`   // what twins that follow may tell again
	Twins  window[codexTwin] `json:"twins,omitzero"`  // twins that wait for their response_item
	Search *codexSearch      `json:"search,omitzero"` // a web search that waits one record
	Exec   bool              `json:"exec,omitzero"`   // the session is an exec stream
	Runs   int               `json:"runs,omitzero"`   // its turns
}

func (s *codexState) size() int {
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

// codexFold is the work on one record.
type codexFold struct {
	*fold
	codexPayload
	kind   text // response_item, event_msg, ... ; empty for a bare item
	st     *codexState
	copied bool // the record is history of another session
}

// Normalize maps one line of a rollout.
func (codex) Normalize(s *Session, r Record) (Result, error) {
	c := &codexFold{st: &s.Codex}
	if r.Origin.End {
		c.fold = s.begin(r, "")
		c.releaseSearch()
		c.promote(len(c.st.Twins))
		return c.done("")
	}
	if s.Codex.Exec && isPlain(r.Data) {
		c.fold = s.begin(r, "")
		return c.done(c.plain())
	}
	var rec codexRecord
	if err := readRecord(r.Data, &rec); err != nil {
		return Result{}, err
	}
	ts, _ := parseTime(string(rec.Timestamp))
	c.fold = s.begin(r, ts)
	switch {
	case rec.Payload.ok:
		c.kind, c.codexPayload = rec.Type, rec.Payload.value
	case rec.isExec():
		return c.done(c.exec(&rec.codexExec, rec.Type))
	default:
		readObject(r.Data, &c.codexPayload)
	}
	if rec.RecordType != "" && rec.Type == "" {
		return c.done(SkipHeartbeat)
	}
	// What waits no longer is told as of before this record.
	if c.Type != "web_search_call" {
		c.releaseSearch()
	}
	if c.kind == "session_meta" {
		c.promote(len(c.st.Twins))
	}
	c.learn()
	return c.done(c.record())
}

// learn takes from the record what is true for the session from now on.
func (c *codexFold) learn() {
	if c.kind == "turn_context" || c.Type == "task_started" || c.Type == "turn_started" {
		c.endCopy()
		c.st.Turn = cut(string(c.TurnID), maxName)
	}
	c.copied = c.st.Copied != ""
	c.s.setRoot(string(cmp.Or(c.CWD, c.ThreadSettings.value.CWD)))
	switch {
	case c.kind == "session_meta", c.kind == "" && c.Type == "" && c.Role == "" && c.ID != "":
		c.sessionMeta()
	case c.kind == "turn_context":
		c.s.setModel(string(c.Model))
		c.s.setTextExtension("approvalPolicy", c.ApprovalPolicy)
		c.s.setTextExtension("effort", c.Effort)
	case c.kind == "response_item":
		c.s.setModel(string(c.Model))
	case c.ThreadSettings.ok:
		c.s.setModel(string(c.ThreadSettings.value.Model))
	}
}

// sessionMeta takes note of the start of a session: of this one, of the one that it was
// forked from, or of one that it goes on in (semantics.md section 3).
func (c *codexFold) sessionMeta() {
	st := c.st
	if st.Copied != "" {
		return // the parent's own
	}
	c.s.setTextExtension("version", c.CLIVersion)
	c.s.setTextExtension("gitBranch", c.Git.value.Branch)
	if c.s.Extensions["threadId"] == nil {
		c.s.setTextExtension("threadId", c.ID)
	}
	var source struct {
		Subagent jsontext.Value `json:"subagent"`
	}
	readObject(c.Source, &source)
	var spawn struct {
		ThreadSpawn present `json:"thread_spawn"`
	}
	readObject(source.Subagent, &spawn)
	if isValue(source.Subagent) && st.Meta == "" {
		st.Agent = cut(string(c.ID), maxName)
	}
	base := c.HistoryBase.value.ThreadID
	fork := c.ForkedFromID != "" || bool(spawn.ThreadSpawn) || base != "" && base != c.ID
	st.Forked = st.Forked || fork || base != ""
	switch {
	case fork && isUUIDv7(string(c.ID)):
		st.Copied = string(c.ID)
		st.Turns = statesTurns(string(c.CLIVersion))
	case !fork && string(c.ID) != st.Meta:
		st.Total, st.Pair = codexTokens{}, fingerprint{}
	}
	st.Meta = cut(string(c.ID), maxName)
}

// endCopy ends the copied history at the child's own first turn: the first one with an
// id that is not older than the child.
func (c *codexFold) endCopy() {
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
func (c *codexFold) put(id text, d draft) bool {
	if strings.HasPrefix(string(id), "review_rollout_") {
		id = "" // the same in every review
	}
	d.EventID = string(id)
	if c.st.Agent != "" {
		d.thread = fingerprintOf(c.st.Agent)
		d.AgentID, d.IsInternal = &c.st.Agent, true
		if d.EventType == envelopes.UserMessage && d.Origin == "" {
			d.Origin = envelopes.OriginAgent
		}
	}
	if c.copied && d.from == nil {
		d.Origin = envelopes.OriginCopied
	}
	return c.emit(d)
}

// runtime emits an event in which the runtime speaks.
func (c *codexFold) runtime(t envelopes.EventType, words string) {
	d := draft{as: envelopes.RoleSystem, on: envelopes.ChannelSystem}
	d.EventType, d.Text = t, text(words).ptr()
	c.put("", d)
}

// record maps the record and says why there is no event where there is none.
func (c *codexFold) record() SkipReason {
	switch c.kind {
	case "event_msg":
		return c.eventMsg()
	case "response_item", "":
		return c.responseItem()
	case "compacted":
		c.promote(len(c.st.Twins))
		c.compacted()
	case "inter_agent_communication_metadata":
		return SkipHeartbeat
	case "session_meta", "turn_context", "world_state":
		c.runtime(envelopes.Meta, "")
	default:
		c.promote(len(c.st.Twins))
		c.runtime(envelopes.Meta, "")
	}
	return SkipDuplicate
}

// compacted emits the summary that a compacted conversation goes on with; without one,
// the fact. Its replacement_history repeats the conversation and is never told.
func (c *codexFold) compacted() {
	if c.Message == "" {
		c.runtime(envelopes.Meta, "")
		return
	}
	d := draftOf(speechSummary, string(c.Message))
	c.put("", d)
}

// responseItem maps what is canonical.
func (c *codexFold) responseItem() SkipReason {
	switch c.Type {
	case "message":
		return c.message()
	case "reasoning":
		return c.reasoning()
	case "agent_message":
		c.promote(len(c.st.Twins))
		d := draftOf(speechAgent, strings.Join(c.Content.texts(), "\n"))
		if c.Author == "/root" && c.st.Agent == "" {
			d = draftOf(speechHuman, *d.Text)
			d.EventType, d.Model = envelopes.AssistantMessage, text(c.s.Model).ptr()
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
	return SkipDuplicate
}

// untyped maps an item without a type by what it holds: the rules of spec section 5.2.2,
// which hold for nothing else that Codex writes today.
func (c *codexFold) untyped() SkipReason {
	switch {
	case c.Role != "" && c.Content.present:
		return c.message()
	case c.Name != "":
		c.promote(len(c.st.Twins))
		c.call()
	case c.Status != "" && c.CallID != "":
		c.promote(len(c.st.Twins))
		skip := c.output()
		var info codexInfo
		readObject(c.Info, &info)
		c.billTokens(info.Last.value.tokens(), &info.Last.value)
		return skip
	default:
		c.promote(len(c.st.Twins))
		c.runtime(envelopes.Meta, "")
	}
	return SkipDuplicate
}

// message maps a message by its role; what a machine put into the conversation under the
// user's role is injected (vendor-formats.md section 5.4).
func (c *codexFold) message() SkipReason {
	switch c.Role {
	case "user":
		words, kind := codexSpeech(c.Content.texts())
		if kind == speechInjected {
			if !c.Content.attached() {
				c.put(c.ID, draftOf(speechInjected, words))
				return SkipDuplicate
			}
			words = "" // the human sent no more than a picture
		}
		if words == "" && !c.Content.attached() {
			return SkipEmpty
		}
		if slices.Contains(c.claim(speakerUser, textsOf(speakerUser, c.Content.texts())), true) {
			return SkipMirror
		}
		d := draftOf(speechHuman, words)
		d.Text = text(words).ptr()
		c.put(c.ID, d)
	case "assistant":
		texts := c.Content.texts()
		if len(texts) == 0 {
			return SkipEmpty
		}
		untold := c.untold(speakerAgent, texts, textsOf(speakerAgent, texts))
		if len(untold) == 0 {
			return SkipMirror
		}
		c.put(c.ID, c.utterance(envelopes.AssistantMessage, strings.Join(untold, "\n")))
	default: // developer, system
		c.put(c.ID, draftOf(speechInjected, strings.Join(c.Content.texts(), "\n")))
	}
	return SkipDuplicate
}

// utterance is the event of what the agent said or thought.
func (c *codexFold) utterance(t envelopes.EventType, words string) draft {
	d := draft{on: envelopes.ChannelChat}
	d.EventType, d.Text, d.Model = t, &words, text(c.s.Model).ptr()
	return d
}

// reasoning maps what the agent thought, where it is readable at all.
func (c *codexFold) reasoning() SkipReason {
	parts := c.Summary.texts()
	if len(parts) == 0 {
		parts = c.Content.texts()
	}
	if len(parts) == 0 && c.Text != "" {
		parts = []string{string(c.Text)}
	}
	if len(parts) == 0 {
		return SkipEmpty
	}
	untold := c.untold(speakerThought, parts, partsOf(speakerThought, parts))
	if len(untold) == 0 {
		return SkipMirror
	}
	c.put(c.ID, c.utterance(envelopes.Reasoning, strings.Join(untold, "\n")))
	return SkipDuplicate
}

// eventMsg maps what is told beside the conversation.
func (c *codexFold) eventMsg() SkipReason {
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
		d := draft{on: envelopes.ChannelSystem}
		d.EventType = envelopes.Meta
		if isValue(c.Error) {
			d.Metadata = c.s.metadataWithError(codexProblem(c.Error))
		}
		c.put("", d)
	case "error", "stream_error":
		d := draft{on: envelopes.ChannelSystem}
		d.EventType, d.Text = envelopes.Log, c.Message.ptr()
		d.Metadata = c.s.metadataWithError(codexCode(c.CodexErrorInfo), string(c.Message))
		c.put("", d)
	case "warning", "background_event", "deprecation_notice":
		c.runtime(envelopes.Log, string(c.Message))
	case "turn_aborted":
		c.runtime(envelopes.Log, "turn aborted: "+string(cmp.Or(c.Reason, "unknown")))
	case "thread_name_updated":
		c.runtime(envelopes.SessionSummary, string(c.ThreadName))
	case "agent_reasoning_section_break":
		return SkipHeartbeat
	default:
		if strings.HasSuffix(string(c.Type), "_delta") || isBegin(c.Type) {
			return SkipProgress
		}
		c.runtime(envelopes.Meta, "")
	}
	return SkipDuplicate
}

// codexProblem is the code and the message of the error that ended a turn.
func codexProblem(v jsontext.Value) (code, message string) {
	var e struct {
		Info jsontext.Value `json:"codex_error_info"`
	}
	readObject(v, &e)
	code, message = problemOf(v)
	return cmp.Or(codexCode(e.Info), code), message
}

// codexCode is the code of an error: a word, or an object of which it is the one name.
func codexCode(info jsontext.Value) string {
	if ms := objectMembers(info); len(ms) == 1 && ms[0].value.Kind() == '{' {
		return ms[0].name
	}
	code, _ := problemOf(info)
	return code
}

// isBegin tells the start of a tool, of which the call is told anyway.
func isBegin(t text) bool {
	switch t {
	case "exec_command_begin", "patch_apply_begin", "mcp_tool_call_begin", "web_search_begin", "image_generation_begin":
		return true
	default:
		return false
	}
}
