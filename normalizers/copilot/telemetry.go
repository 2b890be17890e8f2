package copilot

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/genai"
	"tributary/normalizers/lenient"
	"tributary/normalizers/otlp"
)

// What Copilot's runtime exports by OpenTelemetry states prompts, answers, calls, results, decisions and tokens of the
// session's log a second time, before it or after it (README.md, Telemetry). Both are one session, and each counts
// once. A span is exported when it ends, so those within it come first.

// span is an exported record.
type span struct {
	*mapper
	of *genai.Record
}

// export returns what a record exports; false for any other record.
func (m *mapper) export(r core.Record) (*genai.Record, bool) {
	if !m.IsExport() {
		return nil, false
	}
	is, ok := otlp.Read(r.Data)
	return &genai.Record{Record: is}, ok
}

// exportedRecord maps a span. Data points repeat spans.
func exportedRecord(m *mapper, r *genai.Record) {
	s := span{m, r}
	m.sent, m.Via, m.Data = true, envelopes.ViaTelemetry, jsontext.Value(m.Record.Data)
	switch {
	case r.Kind == otlp.Metric:
		m.skip = core.SkipMirror
		return
	case r.Kind == otlp.Span && s.isKnown():
		m.skip = core.SkipDuplicate
		return
	}
	s.at(r.Time)
	m.Session.SetResumeID(r.Attribute("gen_ai.conversation.id"))
	if v := r.Resource.Text("service.version"); core.IsVersion(v) {
		m.st.Version = v
	}
	switch operation := cmp.Or(r.Operation(), r.Name); {
	case r.Kind != otlp.Span:
		s.unknown("telemetry", r.Name)
	case operation == "chat":
		s.chat()
	case operation == "execute_tool":
		s.tool()
	case operation == "permission":
		s.permission()
	case operation == "invoke_agent":
		s.invoked()
	case knownSpans[operation]:
		meta(m)
	default:
		s.unknown("span", operation)
	}
}

// knownSpans are only meta.
var knownSpans = map[string]bool{
	"invoke_workflow": true, "execute_hook": true, "external_tool": true, "elicitation": true, "mcp.server.lifecycle": true,
	"github.copilot.mcp.server.lifecycle": true, "create_agent": true, "embeddings": true,
}

func (s *span) unknown(kind, name string) {
	s.Unknown(core.UnknownRecord, lenient.Text(kind), lenient.Text(name))
	s.put("", core.UnknownDraft())
}

// isKnown reports whether the session has had the span, and remembers it.
func (s *span) isKnown() bool {
	key := core.FingerprintOf("span", s.of.Span())
	_, ok := s.Session.IDs.Get(key)
	if s.of.Span() == "" || ok {
		return ok
	}
	s.Session.IDs.Put(key, core.Fingerprint{})
	return false
}

// at sets the time of the next events.
func (s *span) at(t time.Time) {
	if ts, ok := genai.EventTime(t); ok {
		s.TS = ts
	}
}

// chat maps a call to the model: what is new in its conversation, the answer, and the tokens.
func (s *span) chat() {
	s.sidechain = s.of.Text("github.copilot.initiator") == "sub-agent"
	s.data.Model = s.of.Model()
	s.setModel(s.data.Model)
	s.at(s.of.Start)
	s.instructions()
	interaction := s.of.Text("github.copilot.interaction_id")
	s.prompts(interaction)
	if s.of.Text("github.copilot.initiator") == "user" && s.of.Value("gen_ai.input.messages") == nil {
		s.prompt(interaction, "", 1) // contents are left out
	}
	s.results()
	s.at(s.of.Time)
	n := len(s.Events)
	event := s.answer()
	if _, _, failed := s.of.Problem(); failed && s.First < 0 {
		meta(s.mapper) // the agent's span has the message
	}
	t := s.of.Tokens()
	f := figures{Input: t.Input, Output: t.Output, CacheRead: t.CacheRead, CacheWrite: t.CacheWrite, Reasoning: t.Reasoning}
	call := s.of.CallID()
	if more := s.exported(call, f.consumption()); more != (core.Consumption{}) {
		if len(s.Events) == n {
			meta(s.mapper)
		}
		event = max(event, n)
		s.Events[event].Event.Model = s.data.Model.Ptr()
		s.charge(event, more, call, &f)
	}
	if s.First < 0 {
		s.skip = core.SkipMirror
	}
}

// instructions emits the instructions of the model once. Each call repeats them.
func (s *span) instructions() {
	for _, p := range s.of.Instructions() {
		text := core.FingerprintOf(s.agent, string(p.Content))
		if isBlank(p.Content) || slices.Contains(s.st.Prompts, text) {
			continue
		}
		s.st.Prompts = s.st.Prompts.Push(text, maxSystemPrompts, nil)
		s.ID = ""
		s.inject(p.Content)
	}
}

// around matches what the runtime puts around a prompt.
var around = regexp.MustCompile(`^\s*<current_datetime>[^<]*</current_datetime>\s*|(?s:\s*<(?:system_reminder|reminder)>.*</(?:system_reminder|reminder)>\s*$)`)

// prompts emits the prompts among the messages to the model, which the agent's span repeats. The log has them under the
// id of the interaction.
func (s *span) prompts(interaction string) {
	same := make(map[string]int)
	for _, message := range s.of.Input() {
		for i := range message.Parts {
			p := &message.Parts[i]
			text := lenient.Text(around.ReplaceAllString(string(p.Content), ""))
			if message.Role != "user" || p.Type != "text" || isBlank(text) || isInjected(text) {
				continue
			}
			same[string(text)]++
			s.prompt(interaction, string(text), same[string(text)])
		}
	}
}

// prompt emits the n-th prompt of a text in an interaction; without a text the n-th of all.
func (s *span) prompt(interaction, text string, n int) {
	key := core.FingerprintOf("prompt of", s.of.TraceID, interaction, text, strconv.Itoa(n))
	if _, ok := s.Session.IDs.Get(key); ok {
		return
	}
	s.Session.IDs.Put(key, core.Fingerprint{})
	stated := core.StatementsNamed(s.Session, envelopes.UserMessage, interaction)
	switch {
	case interaction != "":
	case text != "":
		stated = core.StatementsOf(s.Session, envelopes.UserMessage, text)
	default:
		stated = core.RedactedPrompts(s.Session)
	}
	d := core.ChatDraft(envelopes.UserMessage, lenient.Text(text).Ptr(), nil)
	if s.sidechain {
		d.Origin = envelopes.OriginAgent
	}
	s.putStated(stated, d)
}

// putStated emits what the log has not stated.
func (s *span) putStated(stated core.Statements, d core.Draft) bool {
	id := stated.InTelemetry()
	return id != "" && s.put(lenient.Text(id), d)
}

// results emits the results among the messages to the model, as far as nothing has stated them. The tool's own span
// states how it ended.
func (s *span) results() {
	for _, message := range s.of.Input() {
		for i := range message.Parts {
			p := &message.Parts[i]
			id := p.ID
			if p.Type != "tool_call_response" || id == "" || s.Session.HasEvent(string(core.PartID(id, "result"))) {
				continue
			}
			s.emitResult(id, "", result{text: lenient.Text(cmp.Or(lenient.TextOrJSON(p.Response), lenient.TextOrJSON(p.Result)))})
			s.Session.IDs.Put(sentResultKey(id), inMessage)
		}
	}
}

// Where the telemetry alone has stated a result: in a message to the model, which does not state how the tool ended, or
// in the span of the tool.
var inMessage, inSpan = core.Fingerprint{1}, core.Fingerprint{2}

// sentResultKey is the key of a result in the memory of ids: its value is zero once the log has stated it.
func sentResultKey(id lenient.Text) core.Fingerprint {
	return core.FingerprintOf("sent result", string(id))
}

// answer emits what the model answered: reasoning, text and calls. It returns the index of the event with the text; -1
// for none.
func (s *span) answer() (event int) {
	event = -1
	for _, message := range s.of.Output() {
		for i := range message.Parts {
			switch p := &message.Parts[i]; {
			case p.Type == "tool_call":
				s.call(p.ID, p.Name, p.Arguments)
			case isBlank(p.Content):
			case p.Type == "reasoning":
				s.putMessage(envelopes.Reasoning, p.Content)
			case p.Type == "text" && s.putMessage(envelopes.AssistantMessage, p.Content):
				event = len(s.Events) - 1
			}
		}
	}
	return event
}

func (s *span) putMessage(of envelopes.EventType, text lenient.Text) bool {
	return s.putStated(core.StatementsOf(s.Session, of, string(text)), core.ChatDraft(of, text.Ptr(), s.model()))
}

// call emits a call that nothing has stated.
func (s *span) call(id, name lenient.Text, arguments jsontext.Value) {
	if !s.Session.HasEvent(string(id)) {
		s.emitCall(id, name, arguments)
		s.Session.IDs.Put(sentCallKey(id), core.Fingerprint{1})
	}
}

// unquoted returns arguments as a message has them: a text that is the JSON of a text as that.
func unquoted(arguments jsontext.Value) jsontext.Value {
	if arguments.Kind() != '"' {
		return arguments
	}
	if inner := jsontext.Value(lenient.Unquote(arguments)); inner.Kind() == '"' && lenient.ReadValue(inner) == nil {
		return inner
	}
	return arguments
}

// failedTool is the message of a failed tool where contents are left out.
const failedTool = "Tool failed"

// tool maps the run of a tool: its call and its result, as far as nothing has stated them, and its duration.
func (s *span) tool() {
	is := s.of.Tool()
	s.at(s.of.Start)
	s.call(is.ID, is.Name, unquoted(is.Arguments))
	s.st.Permissions.ran(&s.emitter, s.of.Span(), is.ID)
	s.at(s.of.Time)
	r := result{text: lenient.Text(is.Result), stated: true, succeeded: true, exit: is.Exit, latency: s.of.Duration()}
	if code, message, failed := s.of.Problem(); failed {
		if message == failedTool {
			message = ""
		}
		r.succeeded, r.failed = false, true
		r.code, r.message = cmp.Or(s.of.Text("github.copilot.error_code"), code), message
		r.text = cmp.Or(r.text, lenient.Text(message))
	}
	id := core.PartID(is.ID, "result")
	if where, _ := s.Session.IDs.Get(sentResultKey(is.ID)); where == inMessage || !s.Session.HasEvent(string(id)) {
		s.emitResult(is.ID, is.Name, r)
		s.Session.IDs.Put(sentResultKey(is.ID), inSpan)
		return
	}
	if call, _ := s.Session.RecallCall(string(is.ID)); call.Outcome.Emitted && r.latency.OK {
		d := core.SystemDraft(envelopes.Log, "")
		d.ToolName, d.ToolCallID, d.ToolLatencyMS = is.Name.Ptr(), is.ID.Ptr(), new(r.latency.Count())
		s.put(core.PartID(is.ID, "latency"), d)
	}
	if s.First < 0 {
		s.skip = core.SkipMirror
	}
}

// invoked maps the run of an agent: the prompts, where no call to the model has stated them, and the error that ended it.
// Its answer and its tokens are those of its calls.
func (s *span) invoked() {
	const event = "github.copilot.user.message"
	s.at(s.of.Start)
	interaction := s.of.Text(event + ".interaction_id")
	s.prompts(interaction)
	n := 0
	for i := range s.of.Events {
		is := &s.of.Events[i]
		source := is.Attributes.Text(event + ".source")
		if is.Name != event || source != "" && source != "user" || s.of.Value("gen_ai.input.messages") != nil {
			continue
		}
		n++
		s.prompt(is.Attributes.Text(event+".interaction_id"), "", n)
	}
	s.at(s.of.Time)
	if code, message, failed := s.of.Problem(); failed {
		d := s.Session.ErrorDraft(code, cmp.Or(s.of.Text("github.copilot.message"), strings.TrimPrefix(message, "Session error: ")))
		if !s.putStated(core.StatementsNamed(s.Session, envelopes.Log, code), d) && s.First < 0 {
			s.skip = core.SkipMirror
			return
		}
	}
	if s.First < 0 {
		meta(s.mapper)
	}
}
