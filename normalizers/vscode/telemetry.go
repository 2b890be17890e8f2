package vscode

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/chat"
	"tributary/normalizers/core"
	"tributary/normalizers/genai"
	"tributary/normalizers/lenient"
	"tributary/normalizers/otlp"
)

// What VS Code's agent exports by OpenTelemetry states prompts, answers, calls, results and tokens of the chat a second
// time, before it or after it (README.md, Telemetry). Both are one session, and each counts once.

// service is the name under which VS Code's agent exports.
const service = "copilot-chat"

// Attributes with the session. A subagent states itself as a chat of its own, with its parent; a title has the latter
// alone. gen_ai.conversation.id is not read: until spring 2026 it is that of a request.
const (
	parentChat   = "copilot_chat.parent_chat_session_id"
	ownChat      = "copilot_chat.chat_session_id"
	conversation = "copilot_chat.session_id"
)

// span is an exported record.
type span struct {
	*mapper
	of *genai.Record
}

// readExported writes what a span states. Log records and data points repeat spans.
func readExported(m *mapper, r otlp.Record) {
	s := span{m, &genai.Record{Record: r}}
	m.Channel = chat.Telemetry
	m.At(genai.EventTime(r.Time))
	if r.Kind != otlp.Span || s.isOfAnother() {
		m.Skip = core.SkipMirror
		return
	}
	if m.IsExportedAgain() {
		return
	}
	if s.of.Text(parentChat) != "" {
		m.Agent = lenient.Text(s.of.Text(ownChat))
	}
	m.Model = s.of.Model()
	switch operation := cmp.Or(s.of.Operation(), r.Name); operation {
	case "chat":
		s.chat()
	case "execute_tool":
		s.tool()
	case "invoke_agent":
		s.invoked()
	case "execute_hook", "embeddings":
		m.Meta()
	default:
		m.UnknownRecord("span", lenient.Text(operation))
	}
}

// others are the agents that VS Code runs beside its own, and what asks the model for one of them. They keep logs of
// their own.
var others = map[string]bool{"claude": true, "Claude Copilot Proxy": true, "copilotcli": true}

// isOfAnother reports whether a span is of another agent. Runs of their tools name no type.
func (s *span) isOfAnother() bool {
	return others[s.of.Text("gen_ai.agent.name")] || s.of.Operation() == "execute_tool" && s.of.Text("gen_ai.tool.type") == ""
}

// chat writes a call to the model: its answer and its tokens.
func (s *span) chat() {
	if s.isTurn() {
		if s.Agent == "" {
			s.Session.SetModel(string(s.Model))
		}
		s.answer()
	}
	if code, message, failed := s.of.Problem(); failed {
		s.problem(code, message)
	}
	s.Use(lenient.Text(s.of.Span()), s.of.Tokens())
}

// isTurn reports whether a call to the model continues the conversation, whose name is that of a place and an intent.
// Others make titles or summaries.
func (s *span) isTurn() bool {
	name := s.of.Text("gen_ai.agent.name")
	return (name == "" || strings.Contains(name, "/")) && (s.Agent != "" || s.of.Text(parentChat) == "")
}

// answer writes what the model answered. The chat has the same texts in its rounds.
func (s *span) answer() {
	if text := s.of.Text("copilot_chat.reasoning_content"); text != "[encrypted]" && strings.TrimSpace(text) != "" {
		s.StatedAs(envelopes.Reasoning, string(s.Agent)+text)
		s.Think(lenient.Text(text))
	}
	for _, message := range s.of.Output() {
		for i := range message.Parts {
			switch p := &message.Parts[i]; {
			case p.Type == "text" && strings.TrimSpace(string(p.Content)) != "":
				s.StatedAs(envelopes.AssistantMessage, string(s.Agent)+withNames(string(p.Content)))
				s.Answer(p.Content)
			case p.Type == "tool_call":
				s.call(p.ID, p.Name, p.Arguments)
			}
		}
	}
}

// call writes a call that nothing has stated.
func (s *span) call(id, name lenient.Text, arguments jsontext.Value) {
	if id != "" && !s.IsStated(id) {
		s.Call(chat.Call{ID: id, Name: name, Arguments: arguments})
	}
}

// tool writes the run of a tool: its call and its result, as far as nothing has stated them. One without the id of its
// call was not called by the model.
func (s *span) tool() {
	id := lenient.Text(s.of.Text("gen_ai.tool.call.id"))
	if id == "" {
		s.Meta()
		return
	}
	is, ended := s.of.Tool(), s.TS
	s.At(genai.EventTime(s.of.Start))
	s.call(id, is.Name, is.Arguments)
	if s.TS = ended; s.IsStated(core.PartID(id, "result")) {
		return
	}
	r := chat.Result{ID: id, Name: is.Name, Latency: s.of.Duration(), Succeeded: true}
	if is.Result != "" {
		r.Text = &is.Result
	}
	if code, message, failed := s.of.Problem(); failed {
		r.Failed, r.Code, r.Message = true, lenient.Text(code), lenient.Text(message)
	}
	s.Result(r)
}

// invoked writes the run of the agent: its prompt, and the error that ended it. Its answer and its tokens are those of
// its calls. The prompt of a subagent is an argument of the call that started it.
func (s *span) invoked() {
	if s.Skip = core.SkipMirror; s.Agent == "" {
		ended := s.TS
		s.At(genai.EventTime(s.of.Start))
		s.prompts()
		s.TS = ended
	}
	if code, message, failed := s.of.Problem(); failed {
		s.problem(code, message)
	}
}

// prompts writes the prompt of a run, which has no text where contents are left out.
func (s *span) prompts() {
	var text lenient.Text
	for _, message := range s.of.Input() {
		for _, p := range message.Parts {
			text += p.Content
		}
	}
	if strings.TrimSpace(string(text)) == "" {
		s.Attach()
		return
	}
	s.Say(core.SpeechHuman, text)
}

// problem writes an error that nothing joins with the one that the chat shows: as a fact, so that it does not count twice.
func (s *span) problem(code, message string) {
	d := core.SystemDraft(envelopes.Meta, "")
	d.Metadata = s.Session.MetadataWithError(code, message)
	s.Put(d)
}

// addressed matches the participant and the command at the beginning of a prompt.
var addressed = map[string]*regexp.Regexp{"agent": regexp.MustCompile(`^\s*@\S+`), "subcommand": regexp.MustCompile(`^\s*/\S+`)}

// sent returns a prompt as the telemetry states it: without the participant and the command that it names.
func sent(text lenient.Text, parts []promptPart) string {
	sent := string(text)
	for _, kind := range []string{"agent", "subcommand"} {
		if slices.ContainsFunc(parts, func(p promptPart) bool { return string(p.Kind) == kind }) {
			sent = addressed[kind].ReplaceAllString(sent, "")
		}
	}
	return sent
}
