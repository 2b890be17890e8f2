// Package copilot normalizes what Copilot CLI writes: the log of a session (events.jsonl), the
// one document that older versions kept instead, and the plain text of `copilot -p`.
//
// What it rests on: in a log every record is an envelope {type, data, id, timestamp,
// parentId}, whose id is the id of its event. A resumed session may begin with all of it
// again. A call is told twice, by the message that requests it and by its execution.
// Tokens are told up to three times: by the message, by a record of its own, and by the
// running total of session.shutdown (copilot_tokens.go).
package copilot

import (
	"bytes"
	"cmp"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// maxSystemPrompts is how many system prompts a session knows again: one of each agent.
const maxSystemPrompts = 16

// state is what a session of Copilot CLI remembers beyond what all vendors do.
type state struct {
	Text     core.Fingerprint              `json:"text,omitzero"`    // the file whose lines are plain text
	Open     openMessage                   `json:"open,omitzero"`    // what is being joined
	Prompts  core.Window[core.Fingerprint] `json:"prompts,omitzero"` // system prompts that were told
	Started  core.Window[core.Fingerprint] `json:"started,omitzero"` // calls told by their execution, not yet by a message
	Thought  thought                       `json:"thought,omitzero"` // the last reasoning
	Document core.DocumentHead             `json:"doc,omitzero"`     // how the one document began
	Billed   core.Consumption              `json:"billed,omitzero"`  // the sum over all events
	Last     int64                         `json:"last,omitzero"`    // output of the last message that carried its own
	Recorded bool                          `json:"rec,omitzero"`     // API calls have records of their own
}

// Size implements [core.State].
func (s *state) Size() int {
	return 256 + 12*(len(s.Prompts)+len(s.Started)) + len(s.Open.Words) + len(s.Open.From.Raw) + len(s.Open.Agent) + len(s.Open.Model) + len(s.Open.ID)
}

// thought is a reasoning that a second record may tell again.
type thought struct {
	Words  core.Fingerprint `json:"w,omitzero"`
	Spoken bool             `json:"m,omitzero"` // by a message, not by a record of its own
}

// wireRecord is an envelope, or the one document of a session, in the vendor's names.
type wireRecord struct {
	Type      lenient.Text   `json:"type"`
	Data      jsontext.Value `json:"data"`
	ID        lenient.Text   `json:"id"`
	Timestamp lenient.Text   `json:"timestamp"`
	AgentID   lenient.Text   `json:"agentId"`

	SessionID    lenient.Text   `json:"sessionId"`
	StartTime    lenient.Text   `json:"startTime"`
	Timeline     jsontext.Value `json:"timeline"`
	ChatMessages jsontext.Value `json:"chatMessages"`
}

// data are the members of data that some type has.
type data struct {
	SessionID     lenient.Text            `json:"sessionId"`
	SelectedModel lenient.Text            `json:"selectedModel"`
	NewModel      lenient.Text            `json:"newModel"`
	ChosenModel   lenient.Text            `json:"chosenModel"`
	Model         lenient.Text            `json:"model"`
	Context       lenient.Object[context] `json:"context"`
	CWD           lenient.Text            `json:"cwd"`

	Content      lenient.Text                  `json:"content"`
	MessageID    lenient.Text                  `json:"messageId"`
	APICallID    lenient.Text                  `json:"apiCallId"`
	Reasoning    lenient.Text                  `json:"reasoningText"`
	Requests     lenient.List[request]         `json:"toolRequests"`
	OutputTokens lenient.Number                `json:"outputTokens"`
	ChunkIndex   lenient.Number                `json:"chunkIndex"`
	ChunkCount   lenient.Number                `json:"chunkCount"`
	Source       lenient.Text                  `json:"source"`
	Attachments  lenient.List[lenient.Present] `json:"attachments"`
	Autopilot    lenient.Flag                  `json:"isAutopilotContinuation"`

	ParentToolCallID lenient.Text              `json:"parentToolCallId"`
	ToolCallID       lenient.Text              `json:"toolCallId"`
	ToolName         lenient.Text              `json:"toolName"`
	Arguments        jsontext.Value            `json:"arguments"`
	Success          jsontext.Value            `json:"success"`
	Result           jsontext.Value            `json:"result"`
	Error            jsontext.Value            `json:"error"`
	Telemetry        lenient.Object[telemetry] `json:"toolTelemetry"`
	Shell            lenient.Object[block]     `json:"shellExecution"`

	Message      lenient.Text `json:"message"`
	ErrorType    lenient.Text `json:"errorType"`
	ErrorCode    lenient.Text `json:"errorCode"`
	ErrorMessage lenient.Text `json:"errorMessage"`
	Reason       lenient.Text `json:"reason"`
	Summary      lenient.Text `json:"summary"`
	Compacted    lenient.Text `json:"summaryContent"`
	Title        lenient.Text `json:"title"`
	ShutdownType lenient.Text `json:"shutdownType"`
	ErrorReason  lenient.Text `json:"errorReason"`

	Usage   lenient.Object[figures]                            `json:"usage"`
	Metrics lenient.Object[map[string]lenient.Object[metrics]] `json:"modelMetrics"`
}

type context struct {
	CWD lenient.Text `json:"cwd"`
}

// mapper is the work on one record.
type mapper struct {
	*core.Builder
	st *state
	wireRecord

	data   data
	agent  string // the subagent that the record is of
	inside bool   // the record is of a subagent that it does not name

	number  int  // of the element of a document at work, from 1
	unnamed int  // events of that element without an id so far
	own     bool // an element that is done has an event
}

// normalize maps one record. A message in chunks and a paragraph of plain text are held
// until they end, at the latest with the input.
func normalize(s *core.Session, r core.Record) (core.Result, error) {
	c := &mapper{st: stateOf(s)}
	if r.Origin.End {
		c.Builder = s.Begin(r, "")
		c.flush()
		return c.Finish("")
	}
	if !c.isText(s, r) {
		err := core.ReadRecord(r.Data, &c.wireRecord)
		if err == nil {
			return c.structured(s, r)
		}
		if !bytes.HasSuffix(r.Data, []byte("\n")) {
			return core.Result{}, err
		}
	}
	c.Builder = s.Begin(r, "")
	return c.Finish(c.line())
}

// structured maps a record that is JSON.
func (c *mapper) structured(s *core.Session, r core.Record) (core.Result, error) {
	lenient.ReadObject(c.Data, &c.data)
	c.Builder = s.Begin(r, c.time())
	c.agent = string(cmp.Or(c.AgentID, c.data.ParentToolCallID))
	if c.agent == "" && strings.HasPrefix(string(c.Type), "subagent.") {
		c.agent = string(c.data.ToolCallID)
	}
	skip := c.record()
	if c.own {
		c.First, skip = -1, ""
	}
	return c.Finish(skip)
}

// time is the record's own time in the form of an event; empty when it has none.
func (r *wireRecord) time() string {
	for _, v := range []lenient.Text{r.Timestamp, r.StartTime} {
		if ts, ok := core.ParseTime(string(v)); ok {
			return ts
		}
	}
	return ""
}

// put emits an event of this record under the vendor's id, empty where there is none.
func (c *mapper) put(id lenient.Text, d core.Draft) bool {
	d.EventID = string(id)
	switch {
	case c.agent != "":
		d.Thread = core.FingerprintOf("agent", c.agent)
		d.AgentID, d.IsInternal = new(c.agent), true
	case c.inside:
		d.Thread = core.FingerprintOf("sidechain")
		d.IsInternal = true
	}
	return c.Emit(d)
}

// runtime emits an event in which the runtime speaks, not the conversation.
func (c *mapper) runtime(t envelopes.EventType, words lenient.Text) {
	d := core.Draft{InRole: envelopes.RoleSystem, OnChannel: envelopes.ChannelSystem, Identity: string(c.Data)}
	d.EventType, d.Text = t, words.Ptr()
	c.put(c.ID, d)
}

// fail emits an error that the vendor reports.
func (c *mapper) fail(code, message lenient.Text) {
	d := core.Draft{InRole: envelopes.RoleSystem, OnChannel: envelopes.ChannelSystem}
	d.EventType, d.Text = envelopes.Log, message.Ptr()
	d.Metadata = c.Session.MetadataWithError(string(code), string(message))
	c.put(c.ID, d)
}

// record maps the record by its type, and says why there is no event where there is none.
// What is not named here is kept whole.
func (c *mapper) record() core.SkipReason {
	if c.st.Open.Message != (core.Fingerprint{}) && !c.continues() {
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
		c.Session.SetResumeID(string(c.SessionID))
		c.runtime(envelopes.SessionSummary, "")
	case "session.start":
		c.Session.SetResumeID(string(d.SessionID))
		c.Session.SetRoot(string(d.Context.Value.CWD))
		c.uses(d.SelectedModel)
		c.runtime(envelopes.SystemMessage, "")
	case "session.resume":
		c.runtime(envelopes.Meta, "")
		c.Session.SetRoot(string(d.Context.Value.CWD))
		c.uses(d.SelectedModel)
	case "session.context_changed":
		c.runtime(envelopes.Meta, "")
		c.Session.SetRoot(string(d.CWD))
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
		c.fail("", lenient.Text(message))
	case "abort":
		c.runtime(envelopes.Log, d.Reason)
	case "session.compaction_complete":
		return c.compacted()
	case "session.task_complete":
		c.summary(d.Summary)
	case "session.usage_record":
		c.usage(&d.Usage.Value)
	case "assistant.usage":
		var figures figures
		lenient.ReadObject(c.Data, &figures)
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
		return core.SkipProgress
	default:
		c.runtime(envelopes.Meta, "")
	}
	return core.SkipDuplicate
}

// uses notes the model of the main conversation; "auto" only says that one will be chosen.
func (c *mapper) uses(model lenient.Text) {
	if c.agent == "" && !c.inside && isModel(model) {
		c.Session.SetModel(string(model))
	}
}

func isModel(model lenient.Text) bool {
	return model != "" && !strings.EqualFold(string(model), "auto")
}

// speaker is the model of an event: the one that the record names, else that of the main
// conversation.
func (c *mapper) speaker() *string {
	switch {
	case isModel(c.data.Model):
		return c.data.Model.Ptr()
	case c.agent == "" && !c.inside:
		return lenient.Text(c.Session.Model).Ptr()
	default:
		return nil
	}
}

// problem is the code and the message of the record's error, a text or an object.
func (c *mapper) problem() (code, message string) {
	code, message = core.VendorError(c.data.Error)
	if message == "" {
		code, message = "", code
	}
	return code, message
}

// compacted maps the end of a compaction: the summary that the conversation goes on with,
// or why there is none.
func (c *mapper) compacted() core.SkipReason {
	if code, message := c.problem(); message != "" && strings.TrimSpace(string(c.data.Compacted)) == "" {
		c.fail(lenient.Text(code), lenient.Text(message))
	} else {
		c.summary(c.data.Compacted)
	}
	return core.SkipDuplicate
}

// summary emits what the agent says of the session; a record without words is kept.
func (c *mapper) summary(words lenient.Text) {
	if strings.TrimSpace(string(words)) == "" {
		c.runtime(envelopes.Meta, "")
		return
	}
	d := core.Draft{OnChannel: envelopes.ChannelChat, Identity: string(c.Data)}
	d.EventType, d.Text = envelopes.SessionSummary, words.Ptr()
	c.put(c.ID, d)
}
