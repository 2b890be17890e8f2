package normalizers

import (
	"bytes"
	"cmp"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
)

// copilot normalizes what Copilot CLI writes: the log of a session (events.jsonl), the
// one document that older versions kept instead, and the plain text of `copilot -p`.
//
// What it rests on: in a log every record is an envelope {type, data, id, timestamp,
// parentId}, whose id is the id of its event. A resumed session may begin with all of it
// again. A call is told twice, by the message that requests it and by its execution.
// Tokens are told up to three times: by the message, by a record of its own, and by the
// running total of session.shutdown (copilot_tokens.go).
type copilot struct{}

// maxSystemPrompts is how many system prompts a session knows again: one of each agent.
const maxSystemPrompts = 16

// copilotState is what a session of Copilot CLI remembers beyond what all vendors do.
type copilotState struct {
	Text     fingerprint         `json:"text,omitzero"`    // the file whose lines are plain text
	Open     copilotOpen         `json:"open,omitzero"`    // what is being joined
	Prompts  window[fingerprint] `json:"prompts,omitzero"` // system prompts that were told
	Started  window[fingerprint] `json:"started,omitzero"` // calls told by their execution, not yet by a message
	Thought  copilotThought      `json:"thought,omitzero"` // the last reasoning
	Document geminiDocument      `json:"doc,omitzero"`     // how the one document began
	Billed   consumption         `json:"billed,omitzero"`  // the sum over all events
	Last     int64               `json:"last,omitzero"`    // output of the last message that carried its own
	Recorded bool                `json:"rec,omitzero"`     // API calls have records of their own
}

func (s *copilotState) size() int {
	return 256 + 12*(len(s.Prompts)+len(s.Started)) + len(s.Open.Words) + len(s.Open.From.Raw) + len(s.Open.Agent) + len(s.Open.Model) + len(s.Open.ID)
}

// copilotThought is a reasoning that a second record may tell again.
type copilotThought struct {
	Words  fingerprint `json:"w,omitzero"`
	Spoken bool        `json:"m,omitzero"` // by a message, not by a record of its own
}

// copilotRecord is an envelope, or the one document of a session, in the vendor's names.
type copilotRecord struct {
	Type      text           `json:"type"`
	Data      jsontext.Value `json:"data"`
	ID        text           `json:"id"`
	Timestamp text           `json:"timestamp"`
	AgentID   text           `json:"agentId"`

	SessionID    text           `json:"sessionId"`
	StartTime    text           `json:"startTime"`
	Timeline     jsontext.Value `json:"timeline"`
	ChatMessages jsontext.Value `json:"chatMessages"`
}

// copilotData are the members of data that some type has.
type copilotData struct {
	SessionID     text                   `json:"sessionId"`
	SelectedModel text                   `json:"selectedModel"`
	NewModel      text                   `json:"newModel"`
	ChosenModel   text                   `json:"chosenModel"`
	Model         text                   `json:"model"`
	Context       object[copilotContext] `json:"context"`
	CWD           text                   `json:"cwd"`

	Content      text                 `json:"content"`
	MessageID    text                 `json:"messageId"`
	APICallID    text                 `json:"apiCallId"`
	Reasoning    text                 `json:"reasoningText"`
	Requests     list[copilotRequest] `json:"toolRequests"`
	OutputTokens number               `json:"outputTokens"`
	ChunkIndex   number               `json:"chunkIndex"`
	ChunkCount   number               `json:"chunkCount"`
	Source       text                 `json:"source"`
	Attachments  list[present]        `json:"attachments"`
	Autopilot    flag                 `json:"isAutopilotContinuation"`

	ParentToolCallID text                     `json:"parentToolCallId"`
	ToolCallID       text                     `json:"toolCallId"`
	ToolName         text                     `json:"toolName"`
	Arguments        jsontext.Value           `json:"arguments"`
	Success          jsontext.Value           `json:"success"`
	Result           jsontext.Value           `json:"result"`
	Error            jsontext.Value           `json:"error"`
	Telemetry        object[copilotTelemetry] `json:"toolTelemetry"`
	Shell            object[copilotBlock]     `json:"shellExecution"`

	Message      text `json:"message"`
	ErrorType    text `json:"errorType"`
	ErrorCode    text `json:"errorCode"`
	ErrorMessage text `json:"errorMessage"`
	Reason       text `json:"reason"`
	Summary      text `json:"summary"`
	Compacted    text `json:"summaryContent"`
	Title        text `json:"title"`
	ShutdownType text `json:"shutdownType"`
	ErrorReason  text `json:"errorReason"`

	Usage   object[copilotFigures]                    `json:"usage"`
	Metrics object[map[string]object[copilotMetrics]] `json:"modelMetrics"`
}

type copilotContext struct {
	CWD text `json:"cwd"`
}

// copilotFold is the work on one record.
type copilotFold struct {
	*fold
	copilotRecord

	data   copilotData
	agent  string // the subagent that the record is of
	inside bool   // the record is of a subagent that it does not name

	number  int  // of the element of a document at work, from 1
	unnamed int  // events of that element without an id so far
	own     bool // an element that is done has an event
}

// Normalize maps one record. A message in chunks and a paragraph of plain text are held
// until they end, at the latest with the input.
func (copilot) Normalize(s *Session, r Record) (Result, error) {
	c := &copilotFold{}
	if r.Origin.End {
		c.fold = s.begin(r, "")
		c.flush()
		return c.done("")
	}
	if !c.isText(s, r) {
		err := readRecord(r.Data, &c.copilotRecord)
		if err == nil {
			return c.structured(s, r)
		}
		if !bytes.HasSuffix(r.Data, []byte("\n")) {
			return Result{}, err
		}
	}
	c.fold = s.begin(r, "")
	return c.done(c.line())
}

// structured maps a record that is JSON.
func (c *copilotFold) structured(s *Session, r Record) (Result, error) {
	readObject(c.Data, &c.data)
	c.fold = s.begin(r, c.time())
	c.agent = string(cmp.Or(c.AgentID, c.data.ParentToolCallID))
	if c.agent == "" && strings.HasPrefix(string(c.Type), "subagent.") {
		c.agent = string(c.data.ToolCallID)
	}
	skip := c.record()
	if c.own {
		c.first, skip = -1, ""
	}
	return c.done(skip)
}

// time is the record's own time in the form of an event; empty when it has none.
func (r *copilotRecord) time() string {
	for _, v := range []text{r.Timestamp, r.StartTime} {
		if ts, ok := parseTime(string(v)); ok {
			return ts
		}
	}
	return ""
}

// put emits an event of this record under the vendor's id, empty where there is none.
func (c *copilotFold) put(id text, d draft) bool {
	d.EventID = string(id)
	switch {
	case c.agent != "":
		d.thread = fingerprintOf("agent", c.agent)
		d.AgentID, d.IsInternal = new(c.agent), true
	case c.inside:
		d.thread = fingerprintOf("sidechain")
		d.IsInternal = true
	}
	return c.emit(d)
}

// runtime emits an event in which the runtime speaks, not the conversation.
func (c *copilotFold) runtime(t envelopes.EventType, words text) {
	d := draft{as: envelopes.RoleSystem, on: envelopes.ChannelSystem, identity: string(c.Data)}
	d.EventType, d.Text = t, words.ptr()
	c.put(c.ID, d)
}

// fail emits an error that the vendor reports.
func (c *copilotFold) fail(code, message text) {
	d := draft{as: envelopes.RoleSystem, on: envelopes.ChannelSystem}
	d.EventType, d.Text = envelopes.Log, message.ptr()
	d.Metadata = c.s.metadataWithError(string(code), string(message))
	c.put(c.ID, d)
}

// record maps the record by its type, and says why there is no event where there is none.
// What is not named here is kept whole.
func (c *copilotFold) record() SkipReason {
	if c.s.Copilot.Open.Message != (fingerprint{}) && !c.continues() {
		c.flush()
	}
	d := &c.data
	switch c.Type {
	case "":
		if c.Timeline.Kind() == '[' || c.ChatMessages.Kind() == '[' {
			return c.document()
		}
		c.runtime(envelopes.Meta, "")
	case "result": // the last line of --output-format json
		c.s.setResumeID(string(c.SessionID))
		c.runtime(envelopes.SessionSummary, "")
	case "session.start":
		c.s.setResumeID(string(d.SessionID))
		c.s.setRoot(string(d.Context.value.CWD))
		c.uses(d.SelectedModel)
		c.runtime(envelopes.SystemMessage, "")
	case "session.resume":
		c.runtime(envelopes.Meta, "")
		c.s.setRoot(string(d.Context.value.CWD))
		c.uses(d.SelectedModel)
	case "session.context_changed":
		c.runtime(envelopes.Meta, "")
		c.s.setRoot(string(d.CWD))
	case "session.model_change": // a change is true for what follows
		c.runtime(envelopes.Meta, "")
		c.uses(d.NewModel)
	case "session.tools_updated": // of what goes to standard output: it has no start
		c.runtime(envelopes.Meta, "")
		c.uses(d.Model)
	case "session.auto_mode_resolved":
		c.runtime(envelopes.Meta, "")
		c.uses(d.ChosenModel)
	case "session.info", "session.warning":
		c.runtime(envelopes.Meta, d.Message)
	case "session.handoff":
		c.runtime(envelopes.Meta, d.Summary)
	case "session.title_changed":
		c.runtime(envelopes.SessionSummary, d.Title)
	case "session.error":
		c.fail(cmp.Or(d.ErrorType, d.ErrorCode), d.Message)
	case "model.call_failure":
		c.fail(cmp.Or(d.ErrorType, d.ErrorCode), d.ErrorMessage)
	case "subagent.failed":
		_, message := c.problem()
		c.fail("", text(message))
	case "abort":
		c.runtime(envelopes.Log, d.Reason)
	case "session.compaction_complete":
		return c.compacted()
	case "session.task_complete":
		c.summary(d.Summary)
	case "session.usage_record":
		c.usage(&d.Usage.value)
	case "assistant.usage":
		var figures copilotFigures
		readObject(c.Data, &figures)
		c.usage(&figures)
	case "session.shutdown":
		c.shutdown()
	case "user.message":
		return c.prompt()
	case "system.message":
		return c.systemPrompt()
	case "system.notification", "skill.invoked":
		c.inject(d.Content)
	case "assistant.message":
		return c.message()
	case "assistant.reasoning":
		return c.thought()
	case "tool.execution_start":
		return c.started()
	case "tool.execution_complete":
		c.completed()
	case "assistant.message_start", "assistant.message_delta", "assistant.reasoning_delta", "assistant.streaming_delta",
		"assistant.tool_call_delta", "assistant.server_tool_progress", "tool.execution_partial_result",
		"tool.execution_progress", "hook.progress":
		return SkipProgress
	default:
		c.runtime(envelopes.Meta, "")
	}
	return SkipDuplicate
}

// uses notes the model of the main conversation; "auto" only says that one will be chosen.
func (c *copilotFold) uses(model text) {
	if c.agent == "" && !c.inside && isCopilotModel(model) {
		c.s.setModel(string(model))
	}
}

func isCopilotModel(model text) bool { return model != "" && !strings.EqualFold(string(model), "auto") }

// speaker is the model of an event: the one that the record names, else that of the main
// conversation.
func (c *copilotFold) speaker() *string {
	switch {
	case isCopilotModel(c.data.Model):
		return c.data.Model.ptr()
	case c.agent == "" && !c.inside:
		return text(c.s.Model).ptr()
	default:
		return nil
	}
}

// problem is the code and the message of the record's error, a text or an object.
func (c *copilotFold) problem() (code, message string) {
	code, message = problemOf(c.data.Error)
	if message == "" {
		code, message = "", code
	}
	return code, message
}

// compacted maps the end of a compaction: the summary that the conversation goes on with,
// or why there is none.
func (c *copilotFold) compacted() SkipReason {
	if code, message := c.problem(); message != "" && strings.TrimSpace(string(c.data.Compacted)) == "" {
		c.fail(text(code), text(message))
	} else {
		c.summary(c.data.Compacted)
	}
	return SkipDuplicate
}

// summary emits what the agent says of the session; a record without words is kept.
func (c *copilotFold) summary(words text) {
	if strings.TrimSpace(string(words)) == "" {
		c.runtime(envelopes.Meta, "")
		return
	}
	d := draft{on: envelopes.ChannelChat, identity: string(c.Data)}
	d.EventType, d.Text = envelopes.SessionSummary, words.ptr()
	c.put(c.ID, d)
}
