package qwen

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/chat"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
	"tributary/normalizers/otlp"
)

// What Qwen Code exports by OpenTelemetry states prompts, answers, calls, results and tokens of the chat a second time,
// before it or after it (README.md, Telemetry). Both are one session, and each counts once.

// telemetry is an event of the vendor's telemetry, in the log or exported.
type telemetry struct {
	otlp.Counts

	Name       lenient.Text   `json:"event.name"`
	Model      lenient.Text   `json:"model"`
	PromptID   lenient.Text   `json:"prompt_id"`
	Subagent   lenient.Text   `json:"subagent_name"`
	SubagentID lenient.Text   `json:"subagent_id"`
	CallID     lenient.Text   `json:"call_id"`
	Duration   lenient.Number `json:"duration_ms"`
	ErrorType  lenient.Text   `json:"error_type"`
	Error      jsontext.Value `json:"error"`
	Message    lenient.Text   `json:"error_message"`
	Auth       lenient.Text   `json:"auth_type"`
	Answer     lenient.Text   `json:"response_text"`
}

// agent returns the subagent or helper that an event belongs to; empty for the main conversation. The id of a prompt
// of a subagent has three parts: session, agent and round.
func (t *telemetry) agent() lenient.Text {
	if parts := strings.Split(string(t.PromptID), "#"); len(parts) == 3 {
		return cmp.Or(t.SubagentID, lenient.Text(parts[1]), t.Subagent)
	}
	return cmp.Or(t.SubagentID, t.Subagent)
}

// readTelemetry writes an event of the telemetry: the tokens of an API call, the latency of a tool, or an error.
func readTelemetry(w *chat.Writer, r *record, t *telemetry) {
	if w.Agent == "" {
		w.Agent = t.agent()
	}
	switch t.Name {
	case "qwen-code.api_response":
		d := core.SystemDraft(envelopes.Meta, "")
		d.Identity, d.Model = string(w.Raw), t.Model.Ptr()
		w.Put(d)
		bill(w, r, t.Counts, t.Auth)
		if strings.TrimSpace(string(t.Answer)) != "" {
			w.Session.IDs.Put(core.FingerprintOf("answer", string(r.UUID)), exportedAnswer(w, string(t.Answer)))
		}
	case "qwen-code.api_error":
		readError(w, t, t.ErrorType, lenient.Text(lenient.TextOrJSON(t.Error))+t.Message)
	case "qwen-code.tool_call":
		if t.Duration.OK && t.Duration.Value >= 0 {
			w.Session.SetOutcome(string(t.CallID), core.Outcome{Latency: new(t.Duration.Count())})
		}
		if t.CallID != "" {
			w.EndHasID(t.CallID)
		}
		w.Meta()
	case "":
		w.Meta()
	default:
		w.UnknownRecord(r.Subtype, t.Name)
	}
}

// sent returns a prompt as the telemetry states it: the text that is sent, which may not be the one that is shown.
func sent(m *message, shown lenient.Text) string {
	if text := string(typed(m)); strings.TrimSpace(text) != "" {
		return text
	}
	return string(typed(messageOf(string(shown))))
}

// messageOf returns a message with one text.
func messageOf(text string) *message {
	return &message{Parts: lenient.List[part]{{Text: lenient.NullText{Value: text, OK: true}}}}
}

// answerOf returns the key of what is exported as the answer of a message: the answer of its API call, which the record
// before it has. Of an answer that was finished after the connection broke, that is only the rest.
func answerOf(w *chat.Writer, r *record) core.Fingerprint {
	if key, ok := w.Session.IDs.Get(core.FingerprintOf("answer", string(r.ParentUUID))); ok {
		return key
	}
	return exportedAnswer(w, strings.Join(r.Message.Value.texts(), ""))
}

// readExported writes what a log record exports. Spans and data points repeat log records.
func readExported(w *chat.Writer, r *otlp.Record) {
	w.Channel = chat.Telemetry
	ts := r.EventTime()
	w.At(ts, ts != "")
	a := r.Attributes
	name := lenient.Text(strings.TrimPrefix(a.Text("event.name"), service+"."))
	switch {
	case r.Kind != otlp.Log:
		w.Skip = core.SkipMirror
		return
	case !otlp.IsNotice(string(name)) && !events[name]:
		w.UnknownRecord("telemetry", name)
		return
	case w.IsExportedAgain():
		return
	}
	w.Session.SetResumeID(w.Session.ID())
	w.Session.SetTextExtension("version", lenient.Text(r.Resource.Text("service.version")))
	t := &telemetry{
		Name: name, Model: lenient.Text(a.Text("model")),
		PromptID: lenient.Text(a.Text("prompt_id")), Subagent: lenient.Text(a.Text("subagent_name")),
		CallID: lenient.Text(a.Text("call_id")), Duration: a.Number("duration_ms"), Auth: lenient.Text(a.Text("auth_type")),
	}
	w.Agent, w.Model = t.agent(), t.Model
	switch t.Name {
	case "user_prompt":
		readExportedPrompt(w, a)
	case "api_request":
		w.Skip = core.SkipProgress
	case "api_response":
		readExportedResponse(w, r, t)
	case "api_error":
		code, message := a.APIError()
		readError(w, t, lenient.Text(code), lenient.Text(message))
	case "tool_call":
		readEnd(w, t, a.End(), lenient.Text(a.Text("error_type")))
	default:
		w.Meta()
	}
}

// readExportedPrompt writes a prompt, which is without its text unless a setting exports it.
func readExportedPrompt(w *chat.Writer, a otlp.Attributes) {
	prompt := a.Text("prompt")
	text := typed(messageOf(prompt))
	switch {
	case a.Value("prompt") == nil:
		w.Attach()
	case strings.TrimSpace(string(text)) == "":
		w.StatedAs(envelopes.UserMessage, prompt)
		w.Say(core.SpeechInjected, lenient.Text(prompt))
	default:
		w.Say(core.SpeechHuman, text)
	}
}

// helpers begin the ids of prompts that are none of the conversation.
var helpers = []string{"side-query", "compress-", "prompt_suggestion", "forked_query", "speculation"}

// readExportedResponse writes the answer and the tokens of an API call. The answers of helpers are none of the
// conversation; those of subagents have the subagent in the id of their prompt.
func readExportedResponse(w *chat.Writer, r *otlp.Record, t *telemetry) {
	isHelper := slices.ContainsFunc(helpers, func(h string) bool { return strings.HasPrefix(string(t.PromptID), h) }) ||
		t.Subagent != "" && strings.Count(string(t.PromptID), "#") != 2
	text := r.Attributes.Text("response_text")
	if w.Agent == "" && !isHelper {
		w.Session.SetModel(string(t.Model))
	}
	if !isHelper && strings.TrimSpace(text) != "" && !strings.Contains(text, "<state_snapshot>") {
		w.StatedWith(exportedAnswer(w, text))
		w.Answer(lenient.Text(text))
	}
	if w.First < 0 {
		d := core.SystemDraft(envelopes.Meta, "")
		d.Model = t.Model.Ptr()
		w.Put(d)
	}
	w.Use(lenient.Text("@otlp:"+core.FingerprintOf(string(w.Record.Data)).String()), tokensOf(r.Attributes.Counts(), t.Auth))
}

// The telemetry cuts longer answers, and adds cutAnswer.
const (
	cutAnswer = "...[truncated]"
	maxAnswer = 4096 - len(cutAnswer) // units of UTF-16
)

// exportedAnswer returns the key of an answer, as far as the log and the telemetry both state it.
func exportedAnswer(w *chat.Writer, text string) core.Fingerprint {
	text = strings.TrimSuffix(text, cutAnswer)
	if len(text) > maxAnswer {
		units := utf16.Encode([]rune(text))
		text = string(utf16.Decode(units[:min(len(units), maxAnswer)]))
		text = strings.TrimRight(text, "\uFFFD") // half a character
	}
	return core.StatementsOf(w.Session, envelopes.AssistantMessage, text).Key()
}

// readError writes an error of the API, which both the log and the telemetry state.
func readError(w *chat.Writer, t *telemetry, code, message lenient.Text) {
	w.StatedAs(envelopes.Log, fmt.Sprint(t.PromptID, t.Duration.Count(), message))
	w.Error(code, message)
}

// readEnd writes the end of a call.
func readEnd(w *chat.Writer, t *telemetry, end otlp.End, code lenient.Text) {
	out := chat.Result{Name: end.Name, Succeeded: end.Succeeded, Failed: !end.Succeeded, Latency: end.Latency}
	if !end.Succeeded {
		out.Code = code
	}
	if end.Message != "" {
		out.Text = &end.Message
		if w.IsShell(t.CallID, end.Name) {
			out.Exit = core.ExitCode(exitLine, end.Message)
		}
	}
	w.End(chat.Call{ID: t.CallID, Name: end.Name, Arguments: end.Arguments}, out, end.Decision)
}

// events are the events beside those of [otlp.IsNotice]. Only the first five state something of the conversation.
var events = map[lenient.Text]bool{
	"user_prompt": true, "api_request": true, "api_response": true, "api_error": true, "tool_call": true,

	"api_cancel": true, "api_retry": true, "approval_mode": true, "arena_agent_completed": true, "arena_session_ended": true,
	"arena_session_started": true, "auth": true, "chat.protocol_tag_sanitized": true, "goal_state": true,
	"kitty_sequence_overflow": true, "memory.dream": true, "memory.extract": true, "memory.recall": true,
	"memory.recall.delivery": true, "prompt_suggestion": true, "repeated_tool_failure_guard": true,
	"ripgrep_runtime_recovery": true, "session.end": true, "session.start": true, "skill_launch": true, "speculation": true,
	"subagent_execution": true, "user_feedback": true, "user_retry": true, "workflow_keyword": true, "workflow_run": true,
	"workflow_size_warning": true,
}
