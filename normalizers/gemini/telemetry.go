package gemini

import (
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
	"tributary/normalizers/otlp"
)

// What Gemini CLI exports by OpenTelemetry states prompts, answers, calls, results and tokens of the session's file a
// second time, before it or after it (README.md, Telemetry). Both are one session, and each counts once.

// sessionOfExport returns the session of an exported record. The prompts of a subagent are numbered below its own
// session, <session>#<n>, and those of a human below the one that is stated.
func sessionOfExport(stated string, attribute func(name string) string) string {
	of, number, ok := strings.Cut(attribute("prompt_id"), "#")
	if _, err := strconv.Atoi(number); ok && err == nil && strings.Count(of, "-") == 4 {
		return of
	}
	return stated
}

// telemetry maps a log record by its event. Spans and data points repeat log records.
func telemetry(m *mapper, r *otlp.Record) {
	m.exported, m.Via = true, envelopes.ViaTelemetry
	if r.Kind != otlp.Log {
		m.skip = core.SkipMirror
		return
	}
	a := r.Attributes
	m.Session.SetResumeID(m.Session.ID())
	if stated := r.Attribute("session.id"); stated != "" && stated != m.Session.ID() && m.st.Agent == "" {
		m.st.Agent = core.Cut(m.Session.ID(), core.MaxName)
	}
	name := strings.TrimPrefix(a.Text("event.name"), "gemini_cli.")
	switch name {
	case "user_prompt":
		telemetryPrompt(m, a)
	case "api_request":
		m.skip = core.SkipProgress
	case "gen_ai.client.inference.operation.details":
		m.skip = core.SkipMirror
	case "api_response":
		telemetryResponse(m, a)
	case "api_error":
		m.put("", m.Session.ErrorDraft(a.APIError()))
	case "tool_call":
		telemetryCall(m, a)
	default:
		if !otlp.IsNotice(name) && !knownEvents[name] {
			m.Unknown(core.UnknownRecord, "telemetry", lenient.Text(name))
			m.put("", core.UnknownDraft())
			return
		}
		m.putSystem("", envelopes.Meta, "")
	}
}

// telemetryPrompt emits a prompt, unless the log has stated it. A prompt without its text is the next one of the log.
func telemetryPrompt(m *mapper, a otlp.Attributes) {
	kind, text := speechOf(a.Text("prompt"))
	if kind != core.SpeechHuman && kind != core.SpeechCommand {
		m.put("", core.DraftOf(kind, text))
		return
	}
	d := core.DraftOf(kind, text)
	d.Text = lenient.Text(text).Ptr()
	stated := core.StatementsOf(m.Session, d.EventType, text)
	if a.Value("prompt") == nil {
		stated = core.RedactedPrompts(m.Session)
	}
	m.putStated(stated, d)
}

// putStated emits a message under an id of its own, unless the log has stated it.
func (e *emitter) putStated(stated core.Statements, d core.Draft) {
	id := stated.InTelemetry()
	if id == "" {
		e.repeated = true
		return
	}
	e.put(lenient.Text(id), d)
}

// exportedChunk is a chunk of an answer, in the form of the API.
type exportedChunk struct {
	Candidates lenient.List[struct {
		Content struct {
			Parts parts `json:"parts"`
		} `json:"content"`
	}] `json:"candidates"`
}

// telemetryResponse emits the text and the calls of an answer, as far as the log has not stated them, and the tokens.
// Answers of helpers are none of the conversation.
func telemetryResponse(m *mapper, a otlp.Attributes) {
	model := lenient.Text(a.Text("model"))
	role := a.Text("role")
	inLog := role == "" || role == "main" || role == "subagent" && m.st.Agent != ""
	if inLog {
		telemetryAnswer(m, a, model)
	}
	if m.First < 0 {
		d := core.SystemDraft(envelopes.Meta, "")
		d.Model = model.Ptr()
		m.put("", d)
	}
	c := a.Counts()
	t := &tokens{Input: c.Input, Output: c.Output, Cached: c.Cached, Thoughts: c.Thoughts, Tool: c.Tool}
	cached := min(t.Cached.Count(), t.Input.Count())
	i := &increment{
		input: t.Input.Count(), cached: cached, tool: t.Tool.Count(), stated: t,
		usage: &envelopes.Usage{
			Input: t.Input.Count() - cached + t.Tool.Count(), CacheRead: cached, Output: t.Output.Count(), Reasoning: t.Thoughts.Count(),
			Key: "@" + strconv.FormatUint(m.Session.Records, 10), Prompt: t.Input.Count() + t.Tool.Count(),
		},
	}
	switch {
	case i.usage.Total() == 0, role == "subagent" && !inLog: // the session of the subagent bills them
		return
	case inLog && !i.leave(m.st.Balance.Exported):
		return
	}
	m.AddUsage(i.usage, i.set)
}

// telemetryAnswer emits the text and the calls of an answer.
func telemetryAnswer(m *mapper, a otlp.Attributes, model lenient.Text) {
	var stated strings.Builder
	var calls []*functionCall
	for _, c := range lenient.ReadElements[exportedChunk](jsontext.Value(a.Text("response_text"))) {
		if len(c.Candidates) == 0 {
			continue
		}
		content := &c.Candidates[0].Content.Parts
		stated.WriteString(content.text())
		for i := range content.parts {
			if f := &content.parts[i].FunctionCall; f.OK && f.Value.ID != "" {
				calls = append(calls, &f.Value)
			}
		}
	}
	if text := stated.String(); strings.TrimSpace(text) != "" {
		m.putStated(core.StatementsOf(m.Session, envelopes.AssistantMessage, text), core.ChatDraft(envelopes.AssistantMessage, &text, model.Ptr()))
	}
	for _, f := range calls {
		m.st.Asked.Add(core.CallKey(f.Name, compactArguments(f.Args)), string(f.ID))
		if !m.Session.HasEvent(string(f.ID)) {
			m.emitCall(f.ID, f.Name, f.Args, "", model)
		}
	}
}

// compactArguments returns the arguments of a call as JSON; nil for none.
func compactArguments(args jsontext.Value) *string {
	if !lenient.IsValue(args) {
		return nil
	}
	return new(lenient.CompactText(args))
}

// telemetryCall emits the end of a call: the decision, which the log does not state, and a result without its text,
// unless the log has one. The record has no id, so it belongs to the oldest call of an exported answer with its name
// and arguments.
func telemetryCall(m *mapper, a otlp.Attributes) {
	end := a.End()
	id := lenient.Text(m.st.Asked.Take(core.CallKey(end.Name, compactArguments(end.Arguments))))
	m.put(core.PartID(id, "decision"), m.Session.PermissionDraft(id, end.Name, end.Decision))
	if id == "" || m.Session.HasEvent(string(resultID(id))) {
		return
	}
	r := result{name: end.Name, status: "error", display: end.Message, latency: core.CountOf(end.Latency)}
	if end.Succeeded {
		r.status = "success"
	}
	m.emitResult(resultID(id), id, r)
	m.noteResult(id, inTelemetry, r.latency)
}

// Where the result of a call was stated.
const (
	inTelemetry = 1
	inBoth      = 2
)

func sentKey(call lenient.Text) core.Fingerprint {
	return core.FingerprintOf("sent result", string(call))
}

// noteResult notes where the result of a call was stated, and the latency that the telemetry has stated.
func (e *emitter) noteResult(call lenient.Text, where byte, latency *int64) {
	v := core.Fingerprint{where}
	if latency != nil {
		binary.BigEndian.PutUint32(v[1:], uint32(min(*latency, 1<<31))+1)
	}
	e.Session.IDs.Put(sentKey(call), v)
}

// sentResult returns the latency of a call that the telemetry has stated, and whether it alone has stated a result.
func (e *emitter) sentResult(call lenient.Text) (latency *int64, only bool) {
	v, _ := e.Session.IDs.Get(sentKey(call))
	if n := binary.BigEndian.Uint32(v[1:]); n > 0 {
		latency = new(int64(n - 1))
	}
	return latency, v[0] == inTelemetry
}

// knownEvents are only meta, as those of [otlp.IsNotice].
var knownEvents = map[string]bool{
	"startup_stats": true, "model_routing": true, "conseca.verdict": true, "rewind": true, "chat.invalid_chunk": true,
	"network_retry_attempt": true, "tool_output_masking": true, "llm_loop_check": true, "edit_strategy": true,
	"edit_correction": true, "agent.start": true, "agent.finish": true, "agent.recovery_attempt": true,
	"plan.execution": true, "plan.approval_mode_switch": true, "plan.approval_mode_duration": true,
	"approval_mode_switch": true, "approval_mode_duration": true, "plan_execution": true,
	"keychain.availability": true, "token_storage.initialization": true, "onboarding.start": true,
	"onboarding.success": true, "malformed_json_response": true, "web_fetch_fallback_attempt": true,
}
