package claude

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
	"tributary/normalizers/otlp"
)

// exported maps a record that Claude Code exports by OpenTelemetry. What the log states, too, is one event with that of
// the log: channels.go joins the two.
type exported struct {
	emitter
	r    *otlp.Record
	name string // of the event, without the prefix of the agent
	skip core.SkipReason
}

// redacted stands for a text that a setting keeps out of telemetry.
const redacted = "<REDACTED>"

// normalizeExported maps a record of telemetry to events.
func normalizeExported(s *core.Session, r core.Record, record otlp.Record) (core.Result, error) {
	x := exported{r: &record, name: strings.TrimPrefix(eventName(&record), "claude_code.")}
	x.emitter = newEmitter(s.Begin(r, x.time()), x.text("agent_id"))
	x.Via = envelopes.ViaTelemetry
	x.model = x.text("model")
	s.SetResumeID(s.ID())
	s.SetTextExtension("version", lenient.Text(cmp.Or(x.r.Resource.Text("service.version"), x.r.Version)))
	x.st.Unknown++ // it is no record of the log
	switch x.r.Kind {
	case otlp.Span:
		x.span()
	case otlp.Metric:
		x.metric()
	default:
		x.log()
	}
	return x.Finish(cmp.Or(x.skip, core.SkipDuplicate))
}

// newEmitter returns the emitter of a record that is not of the log: of the main conversation, or of a subagent.
func newEmitter(b *core.Builder, agent lenient.Text) emitter {
	e := emitter{Builder: b, st: stateOf(b.Session), agentID: agent, internal: agent != ""}
	if agent != "" {
		e.thread = core.FingerprintOf("agent", string(agent))
	}
	return e
}

// eventName returns the name of a log record, which is its body, an attribute or a member of its own; or that of a span
// or metric.
func eventName(r *otlp.Record) string {
	return cmp.Or(r.Attributes.Text("event.name"), r.Name, lenient.Unquote(r.Body))
}

// time returns the time of the record, in the precision of the event.
func (x *exported) time() string {
	if ts, ok := core.ParseTime(x.r.Attributes.Text("event.timestamp")); ok {
		return ts
	}
	if x.r.Time.IsZero() {
		return ""
	}
	ts, _ := core.ParseTime(x.r.Time.Format("2006-01-02T15:04:05.000Z"))
	return ts
}

// text returns an attribute of the record; empty for none.
func (x *exported) text(name string) lenient.Text { return lenient.Text(x.r.Attributes.Text(name)) }

// content returns a text that may be kept out of telemetry; false if it is.
func (x *exported) content(name string) (string, bool) {
	v := x.r.Attributes.Text(name)
	return v, v != "" && v != redacted
}

// count returns a count; nil for anything else.
func (x *exported) count(name string) *int64 { return core.CountOf(x.r.Attributes.Number(name)) }

// id returns the id of the event of a record that has none: it is the same if the record is sent again.
func (x *exported) id() lenient.Text {
	if x.r.SpanID != "" && x.r.Kind == otlp.Span {
		return lenient.Text(x.r.SpanID)
	}
	return lenient.Text(fmt.Sprintf("%s.%s", x.name, core.FingerprintOf(string(x.Record.Data))))
}

// log calls the function of an event.
func (x *exported) log() {
	switch x.name {
	case "user_prompt":
		x.userPrompt()
	case "assistant_response":
		x.response()
	case "api_request":
		x.request()
	case "tool_decision":
		x.decision()
	case "tool_result":
		x.result()
	case "api_error", "api_refusal", "api_retries_exhausted", "internal_error":
		x.failure()
	case "hook_execution_start":
		x.skip = core.SkipProgress // hook_execution_complete states the whole
	case "api_request_body", "api_response_body":
		x.skip = core.SkipMirror
	default:
		if !knownExports[x.name] {
			x.Unknown(core.UnknownRecord, "claude_code", lenient.Text(x.name))
			x.put(x.id(), core.UnknownDraft())
			return
		}
		x.putFacts(x.id(), core.SystemDraft(envelopes.Meta, lenient.Text(x.name)), nil)
	}
}

// account is who used the agent, as the vendor states it.
type account struct {
	ID             *string `json:"id,omitzero"`
	Email          *string `json:"email,omitzero"`
	UUID           *string `json:"uuid,omitzero"`
	OrganizationID *string `json:"organizationId,omitzero"`
	Terminal       *string `json:"terminal,omitzero"`
}

// putFacts emits an event whose metadata has facts, and the account.
func (x *exported) putFacts(id lenient.Text, d core.Draft, facts map[string]any) bool {
	who := account{
		ID: x.name256("user.id"), Email: x.name256("user.email"), UUID: x.name256("user.account_uuid"),
		OrganizationID: x.name256("organization.id"), Terminal: x.name256("terminal.type"),
	}
	all := maps.Clone(facts)
	if all == nil {
		all = make(map[string]any, 1)
	}
	if who != (account{}) {
		all["account"] = who
	}
	d.Metadata = x.Session.MetadataWithFacts(all)
	return x.put(id, d)
}

// name256 returns a bounded text of the record; nil for none.
func (x *exported) name256(name string) *string {
	return core.NameOf(lenient.Text(x.r.Attribute(name)))
}

// userPrompt emits a prompt, under the id of its record in the log.
func (x *exported) userPrompt() {
	text, known := x.content("prompt")
	uuid, prompt := x.text("message.uuid"), x.text("prompt.id")
	id := uuid
	switch {
	case id == "" && x.st.Logged:
		x.skip = core.SkipMirror
		return
	case id == "" && prompt != "":
		id = prompt + promptSuffix
	case id == "":
		id = x.id()
	}
	if x.Session.HasEvent(string(id)) || uuid != "" && x.st.wasQueued(uuid) || prompt != "" && x.st.promptOf(prompt) >= 0 {
		return
	}
	d := mediaPrompt()
	is := statement{
		Key: keyOf(prompt), ID: core.BoundID(string(id)), Own: uuid != "", Length: x.r.Attributes.Number("prompt_length").Count(),
	}
	if known {
		kind, text := speechOf(text)
		d, is.Text = core.DraftOf(kind, text), core.PromptKey(text)
	}
	if i := slices.IndexFunc(x.st.Prompts, func(o statement) bool {
		return o.Key == core.Fingerprint{} && !o.Own && o.isText(is.Text, is.Length)
	}); i >= 0 { // a hook that names no prompt has stated it
		o := x.st.Prompts[i]
		o.Key = is.Key
		x.st.Prompts = x.st.Prompts.With(i, o)
		return
	}
	if x.speak(id, d) {
		x.st.Prompts = x.st.Prompts.Push(is, maxStatements, nil)
	}
}

// keyOf returns the key of an id; zero for none.
func keyOf(id lenient.Text) core.Fingerprint {
	if id == "" {
		return core.Fingerprint{}
	}
	return core.FingerprintOf(string(id))
}

// response emits an answer, unless the log has stated something of its request: then it states the answer, too.
func (x *exported) response() {
	text, known := x.content("response")
	request := x.text("request_id")
	switch {
	case x.text("tool_use_id") != "": // a tool shows a text of its call
		x.skip = core.SkipMirror
		return
	case request == "":
		x.unjoined()
		return
	}
	id := core.PartID(request, "response")
	if _, _, logged := x.loggedCall(string(request)); logged || x.Session.HasEvent(string(id)) {
		return
	}
	is := statement{
		Key: keyOf(request), Of: answerOf(x.text("prompt.id"), x.thread), ID: core.BoundID(string(id)),
		Length: x.r.Attributes.Number("response_length").Count(),
	}
	var said *string
	if known {
		is.Text, said = core.PromptKey(text), &text
	}
	if i := slices.IndexFunc(x.st.Answers, func(o statement) bool {
		return o.Key == core.Fingerprint{} && o.Of == is.Of && (known && o.Text == is.Text || !known && o.Length == is.Length)
	}); i >= 0 { // a hook has stated it
		o := x.st.Answers[i]
		o.Key = is.Key
		x.st.Answers = x.st.Answers.With(i, o)
		return
	}
	d := core.ChatDraft(envelopes.AssistantMessage, said, x.model.Ptr())
	d.Supersedes = takeStatement(&x.st.Answers, func(o statement) bool {
		return o.Key == core.Fingerprint{} && o.Of == is.Of && known && o.ends(text)
	})
	if x.put(id, d) {
		x.st.Answers = x.st.Answers.Push(is, maxStatements, nil)
		x.Session.IDs.Put(answerKey(request), answerOpen)
	}
}

// unjoined emits a record that states no id by which it could be joined with the log, as a fact and no more.
func (x *exported) unjoined() {
	x.putFacts(x.id(), core.SystemDraft(envelopes.Meta, lenient.Text(x.name)), nil)
}

// requestFact is what only telemetry states of an API request.
type requestFact struct {
	ID                 *string  `json:"id,omitzero"`
	DurationMS         *int64   `json:"durationMs,omitzero"`
	TimeToFirstTokenMS *int64   `json:"timeToFirstTokenMs,omitzero"`
	Source             *string  `json:"source,omitzero"`
	Speed              *string  `json:"speed,omitzero"`
	Effort             *string  `json:"effort,omitzero"`
	Attempt            *int64   `json:"attempt,omitzero"`
	StatusCode         *int64   `json:"statusCode,omitzero"`
	CostUSD            *float64 `json:"costUsd,omitzero"`
}

func (x *exported) requestFact() map[string]any {
	f := requestFact{
		ID: x.name256("request_id"), DurationMS: x.count("duration_ms"), TimeToFirstTokenMS: x.count("ttft_ms"),
		Source: x.name256("query_source"), Speed: x.name256("speed"), Effort: x.name256("effort"),
		Attempt: x.count("attempt"), StatusCode: x.count("status_code"),
	}
	if cost := x.r.Attributes.Number("cost_usd"); cost.OK {
		f.CostUSD = &cost.Value
	}
	return map[string]any{"request": f}
}

// request emits an API request with the tokens and the cost that the log has not stated of it.
func (x *exported) request() {
	if source := x.text("query_source"); !x.internal && (x.Session.Model == "" || source == "sdk" || strings.HasPrefix(string(source), "repl_main_thread")) {
		x.Session.SetModel(string(x.model)) // requests for titles and the like use others
	}
	request := x.text("request_id")
	d := core.SystemDraft(envelopes.Meta, "")
	d.Model = x.model.Ptr()
	if request == "" { // the log may state the same tokens, so they are facts alone
		x.putFacts(x.id(), d, x.requestFact())
		return
	}
	used := x.raise(x.findRequest(string(request)), "", x.consumption())
	id := core.PartID(request, "request")
	if x.Session.HasEvent(string(id)) {
		if used == nil {
			return
		}
		id = x.usageID(request)
	}
	if x.putFacts(id, d, x.requestFact()) && used != nil {
		x.AddUsage(used, vendorFigures(used, false))
	}
}

// consumption returns the counts of an API request.
func (x *exported) consumption() core.Consumption {
	count := func(name string) int64 { return x.r.Attributes.Number(name).Count() }
	figures := core.Consumption{
		Input: count("input_tokens"), CacheRead: count("cache_read_tokens"), CacheWrite: count("cache_creation_tokens"),
		Output: count("output_tokens"), Cost: core.CostOf(x.r.Attributes.Number("cost_usd")),
	}
	figures.CacheWrite1h = min(count("cache_creation_1h_tokens"), figures.CacheWrite)
	return figures
}

// failure emits an error that Claude Code reports.
func (x *exported) failure() {
	code := cmp.Or(x.text("status_code"), x.text("error_code"), x.text("error_name"), lenient.Text(x.name))
	message := cmp.Or(x.text("error"), x.text("error_name"), lenient.Text(x.name))
	d := core.SystemDraft(envelopes.Log, message)
	facts := x.requestFact()
	facts["error"] = core.ProblemOf(string(code), string(message))
	x.putFacts(x.id(), d, facts)
}

// decisionFact is who allowed or denied a call.
type decisionFact struct {
	Decision *string `json:"decision,omitzero"`
	Source   *string `json:"source,omitzero"`
	Mode     *string `json:"permissionMode,omitzero"`
}

// decision emits that a call was allowed or denied. A denied call has its result.
func (x *exported) decision() {
	id, name := x.text("tool_use_id"), x.text("tool_name")
	decision, source := x.text("decision"), x.text("source")
	if id != "" {
		x.call(id, name, nil)
	}
	d := core.SystemDraft(envelopes.Log, decision)
	if source != "" {
		d.Text = new(string(decision) + " by " + string(source))
	}
	d.ToolName, d.ToolCallID = x.toolName(id, name), id.Ptr()
	event := x.id()
	if id != "" {
		event = core.PartID(id, "decision")
	}
	x.putFacts(event, d, map[string]any{"decision": decisionFact{core.NameOf(decision), core.NameOf(source), x.name256("permission_mode")}})
	if result := id + resultSuffix; id != "" && decision == "reject" && !x.Session.HasEvent(string(result)) {
		x.putResult(id, name, nil, true, nil)
	}
}

// toolName returns the name of the tool of a call as the session knows it, because telemetry may hide it.
func (x *exported) toolName(id, name lenient.Text) *string {
	if call, ok := x.Session.RecallCall(string(id)); ok && call.Tool != "" {
		return &call.Tool
	}
	return name.Ptr()
}

// call emits a call, unless it was emitted with its arguments.
func (x *exported) call(id, name lenient.Text, input jsontext.Value) {
	e := &x.emitter
	e.tellCall(id, name, input)
}

// tellCall emits a call that telemetry or a hook states, unless it was emitted with its arguments; input may be nil.
func (e *emitter) tellCall(id, name lenient.Text, input jsontext.Value) {
	known := e.Session.HasEvent(string(id))
	if known && (input == nil || !e.st.isThin(string(id))) {
		return
	}
	model := e.model
	e.model = ""
	e.toolCall(&block{Type: "tool_use", ID: id, Name: name, Input: input})
	e.model = model
	e.st.setThin(string(id), input == nil)
}

// result emits the result of a call. Telemetry has its outcome and duration, but no output.
func (x *exported) result() {
	id, name := x.text("tool_use_id"), x.text("tool_name")
	if id == "" {
		x.unjoined()
		return
	}
	var input jsontext.Value
	if v := jsontext.Value(x.text("tool_input")); v.Kind() == '{' && v.IsValid() {
		input = v
	}
	x.call(id, name, input)
	failed := x.text("success") == "false"
	text := cmp.Or(x.text("error"), x.text("error_type")).Ptr()
	x.putResult(id, name, text, failed, x.count("duration_ms"))
}

// putResult emits the result of a call, or, if the log or a hook has stated it, what only telemetry states.
func (x *exported) putResult(id, name lenient.Text, text *string, failed bool, latency *int64) {
	e := &x.emitter
	call, ok := x.Session.RecallCall(string(id))
	if !ok {
		call = core.Call{Tool: string(name)}
	}
	if x.Session.HasEvent(string(id + resultSuffix)) {
		e.putLatency(id, call, latency)
		return
	}
	status := envelopes.StatusSuccess
	if failed {
		status = envelopes.StatusError
	}
	x.Session.SetOutcome(string(id), core.Outcome{Failed: failed, Latency: latency})
	d := core.ResultDraft(id, call, text, status)
	d.ToolLatencyMS = latency
	if x.put(id+resultSuffix, d) {
		x.st.setThin(string(id+resultSuffix), true)
	}
}

// putLatency emits how long a call took, which its result in the log does not state.
func (e *emitter) putLatency(id lenient.Text, call core.Call, latency *int64) {
	event := core.PartID(id, "latency")
	if latency == nil || e.Session.HasEvent(string(event)) {
		return
	}
	d := core.SystemDraft(envelopes.Log, "")
	d.ToolName, d.ToolCallID, d.ToolLatencyMS = lenient.Text(call.Tool).Ptr(), id.Ptr(), latency
	e.put(event, d)
}

// span emits what spans state and no log record does: outputs of tools, and requests if only spans are exported.
func (x *exported) span() {
	x.skip = core.SkipMirror
	switch x.name {
	case "llm_request":
		if x.text("request_id") != "" && !x.r.Failed && x.text("success") != "false" {
			x.request()
		}
	case "tool":
		x.toolOutput()
	case "interaction", "tool.execution", "tool.blocked_on_user", "hook", "subagent.spawn", "bash.subprocess", "mcp.rpc":
	default:
		x.Unknown(core.UnknownRecord, "claude_code", "span", lenient.Text(x.name))
		x.put(x.id(), core.UnknownDraft())
	}
}

// toolOutput emits the output of a tool, if a setting lets spans have it and its result is known without it.
func (x *exported) toolOutput() {
	id := x.text("tool_use_id")
	result := id + resultSuffix
	if id == "" || !x.st.isThin(string(result)) {
		return
	}
	for i := range x.r.Events {
		v := x.r.Events[i].Attributes.Text("output")
		if x.r.Events[i].Name != "tool.output" || v == "" {
			continue
		}
		call, _ := x.Session.RecallCall(string(id))
		status := envelopes.StatusSuccess
		if call.Outcome.Failed {
			status = envelopes.StatusError
		}
		d := core.ResultDraft(id, call, &v, status)
		d.ToolLatencyMS = call.Outcome.Latency
		x.put(result, d)
		x.st.setThin(string(result), false)
		return
	}
}

// metric emits a data point of what no other record states.
func (x *exported) metric() {
	switch x.name {
	case "lines_of_code.count", "commit.count", "pull_request.count":
		fact := struct {
			Name  string   `json:"name"`
			Value *float64 `json:"value,omitzero"`
			Type  *string  `json:"type,omitzero"`
		}{Name: x.name, Type: x.name256("type")}
		if x.r.Value.OK {
			fact.Value = &x.r.Value.Value
		}
		x.putFacts(x.id(), core.SystemDraft(envelopes.Meta, lenient.Text(x.name)), map[string]any{"metric": fact})
	case "token.usage", "cost.usage", "code_edit_tool.decision", "session.count", "active_time.total":
		x.skip = core.SkipMirror // api_request, tool_decision and the times of events state it
	default:
		x.Unknown(core.UnknownRecord, "claude_code", "metric", lenient.Text(x.name))
		x.put(x.id(), core.UnknownDraft())
	}
}
