package codex

import (
	"cmp"
	"encoding/binary"
	"strconv"
	"strings"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
	"tributary/normalizers/otlp"
)

// What Codex exports by OpenTelemetry states prompts, calls, results and tokens of the rollout a second time, before
// it or after it (README.md, Telemetry). Both are one session, and each counts once.

// telemetry maps a log record by its event. Spans and data points repeat log records.
func telemetry(m *mapper, r *otlp.Record) {
	m.exported, m.Via = true, envelopes.ViaTelemetry
	if r.Kind != otlp.Log {
		m.skip = core.SkipMirror
		return
	}
	a := r.Attributes
	if m.Session.Model == "" {
		m.Session.SetModel(a.Text("model"))
	}
	if m.Session.TextExtension("version") == "" {
		m.Session.SetTextExtension("version", lenient.Text(a.Text("app.version")))
	}
	if m.Session.Extensions["threadId"] == nil {
		m.Session.SetTextExtension("threadId", lenient.Text(m.Session.ID()))
	}
	name := cmp.Or(a.Text("event.name"), r.Name)
	if handle := telemetryHandlers[name]; handle != nil {
		handle(m, a)
		return
	}
	m.Unknown(core.UnknownRecord, "telemetry", lenient.Text(name))
	m.put("", core.UnknownDraft())
}

// telemetryHandlers map the log records by their event.
var telemetryHandlers = map[string]func(*mapper, otlp.Attributes){
	"codex.conversation_starts": telemetryStart,
	"codex.user_prompt":         telemetryPrompt,
	"codex.agent_response":      telemetryAnswer,
	"codex.tool_decision":       telemetryDecision,
	"codex.tool_result":         telemetryResult,
	"codex.sse_event":           telemetryEvent,
	"codex.api_request":         telemetryRequest,
	"codex.websocket_connect":   telemetryRequest,
	"codex.websocket_request":   telemetryRequest,
	"codex.websocket_event":     func(m *mapper, _ otlp.Attributes) { progress(m) },
	"codex.turn_ttft":           telemetryFirstToken,

	// Known, but only meta.
	"codex.startup_phase":                   telemetryMeta,
	"codex.sandbox_outcome":                 telemetryMeta,
	"codex.auth_recovery":                   telemetryMeta,
	"codex.plugin_install_elicitation_sent": telemetryMeta,
	"codex.plugin_install_suggestion":       telemetryMeta,
}

func telemetryMeta(m *mapper, _ otlp.Attributes) { meta(m) }

// telemetryStart emits the settings with which a session starts.
func telemetryStart(m *mapper, a otlp.Attributes) {
	name := func(attribute string) *string { return core.NameOf(lenient.Text(a.Text(attribute))) }
	m.putFact("threadSettings", settingsFact{name("model"), name("reasoning_effort"), name("approval_policy"), name("sandbox_policy")})
}

// redacted is the text of a prompt that no setting exports.
const redacted = "[REDACTED]"

// telemetryPrompt emits a prompt, unless the rollout has stated it. A prompt without its text is the next one that the
// rollout has.
func telemetryPrompt(m *mapper, a otlp.Attributes) {
	text, speech := typedText([]string{a.Text("prompt")}, unjoined)
	if speech == core.SpeechInjected {
		m.put("", core.DraftOf(speech, text))
		return
	}
	stated := core.StatementsOf(m.Session, envelopes.UserMessage, text)
	if text == redacted {
		text, stated = "", core.RedactedPrompts(m.Session)
	}
	id := stated.InTelemetry()
	if id == "" {
		m.skip = core.SkipMirror
		return
	}
	d := core.DraftOf(speech, text)
	d.Text = lenient.Text(text).Ptr()
	m.put(lenient.Text(id), d)
}

// telemetryAnswer emits a final answer under the id of its message. Of one that is cut off only the rollout has the
// text.
func telemetryAnswer(m *mapper, a otlp.Attributes) {
	id, cut := lenient.Text(a.Text("item.id")), a.Flag("response_truncated")
	switch {
	case m.Session.HasEvent(string(id)):
		m.skip = core.SkipMirror
	case cut != nil && *cut:
		meta(m)
	default:
		m.put(id, agentDraft(envelopes.AssistantMessage, a.Text("response"), a.Text("model")))
	}
}

// telemetryDecision emits who allowed or refused a call, which the rollout does not state.
func telemetryDecision(m *mapper, a otlp.Attributes) {
	call, decision := lenient.Text(a.Text("call_id")), lenient.Text(a.Text("decision"))
	d := m.Session.PermissionDraft(call, lenient.Text(a.Text("tool_name")), decision)
	if source := a.Text("source"); source != "" {
		d.Text = new(string(decision) + " by " + strings.ToLower(source))
	}
	m.put(core.PartID(call, string(decision)), d)
}

// telemetryResult emits a call and its result, as far as the rollout has not stated them. What the rollout states later
// is its own event, which replaces that of the telemetry if it states anything else.
func telemetryResult(m *mapper, a otlp.Attributes) {
	id := lenient.Text(a.Text("call_id"))
	r := result{text: a.Text("output"), stated: true, failed: a.Text("success") == "false"}
	if n := a.Number("duration_ms"); n.OK && n.Value >= 0 {
		r.latency = new(n.Count())
	}
	name := lenient.Text(a.Text("tool_name"))
	switch {
	case m.st.Exec: // the exec stream has other ids
		m.skip = core.SkipMirror
		return
	case id == "": // a call that could not be made
		m.put("", m.Session.ErrorDraft(string(name), r.text))
		return
	}
	noteSentCall(m, id, r.latency)
	if !m.Session.HasEvent(string(id)) {
		call := toolCall{id: id, name: name, args: lenient.AppendQuote(nil, a.Text("arguments"))}
		d, _ := call.draft(lenient.Text(a.Text("model")).Ptr())
		m.put(id, d)
	}
	if m.Session.HasEvent(string(core.PartID(id, "result"))) {
		if m.First < 0 {
			meta(m) // its duration
		}
		return
	}
	m.emitResult(id, m.callOf(id, name), r)
}

// sentCall returns whether the telemetry has stated a call, and the latency that it stated.
func (e *emitter) sentCall(id lenient.Text) (latency *int64, ok bool) {
	v, ok := e.Session.IDs.Get(sentKey(id))
	if n := binary.BigEndian.Uint32(v[:]); n > 0 {
		latency = new(int64(n - 1))
	}
	return latency, ok
}

// noteSentCall notes that the telemetry has stated a call, and its latency for the result in the rollout.
func noteSentCall(m *mapper, id lenient.Text, latency *int64) {
	var v core.Fingerprint
	if latency != nil {
		binary.BigEndian.PutUint32(v[:], uint32(min(*latency, 1<<31))+1)
	}
	m.Session.IDs.Put(sentKey(id), v)
}

func sentKey(id lenient.Text) core.Fingerprint { return core.FingerprintOf("sent call", string(id)) }

// telemetryEvent emits the tokens of a response, or the error of its stream.
func telemetryEvent(m *mapper, a otlp.Attributes) {
	u := usage{
		Input: a.Number("input_token_count"), Output: a.Number("output_token_count"),
		Cached: a.Number("cached_token_count"), CacheWrite: a.Number("cache_write_token_count"),
		Reasoning: a.Number("reasoning_token_count"),
	}
	switch {
	case a.Text("error.message") != "":
		m.put("", m.Session.ErrorDraft(a.Text("event.kind"), a.Text("error.message")))
	case a.Text("event.kind") != "response.completed" || !u.Input.OK:
		progress(m)
	case !u.readable():
		meta(m)
	default:
		use := u.tokens()
		d := core.SystemDraft(envelopes.Meta, "")
		d.Model = lenient.Text(a.Text("model")).Ptr()
		m.put("", d)
		m.bill(m.st.exported(use), &u, "@"+strconv.FormatUint(m.Session.Records, 10), use[inputTokens])
	}
}

// telemetryRequest emits a request: an error if it failed, else what it took.
func telemetryRequest(m *mapper, a otlp.Attributes) {
	if message := a.Text("error.message"); message != "" {
		m.put("", m.Session.ErrorDraft(a.Text("http.response.status_code"), message))
		return
	}
	meta(m)
}

// telemetryFirstToken emits the time to the first token of a turn.
func telemetryFirstToken(m *mapper, a otlp.Attributes) {
	m.putFact("turn", turnFact{TimeToFirstTokenMS: core.CountOf(a.Number("duration_ms"))})
}
