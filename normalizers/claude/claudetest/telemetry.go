package claudetest

import (
	"encoding/json"
	"slices"
	"strconv"

	"tributary/normalizers/normalizerstest"
)

// exported is a log record of telemetry: its event and its attributes.
type exported map[string]any

// exportOf returns what a record exports; nil if it exports no log record.
func exportOf(v any) exported { return exportAt(v, "resourceLogs", "scopeLogs", "logRecords") }

// exportAt returns the attributes of the record at a path of lists with one element; nil for none.
func exportAt(v any, path ...string) exported {
	list := []any{v}
	for _, name := range path {
		if list = normalizerstest.Member[[]any](list[0], name); len(list) != 1 {
			return nil
		}
	}
	x := exported{}
	for _, a := range normalizerstest.Member[[]any](list[0], "attributes") {
		value, _ := normalizerstest.Member[any](a, "value").(map[string]any)
		for _, v := range value {
			x[normalizerstest.Member[string](a, "key")] = v
		}
	}
	return x
}

func (x exported) text(name string) string {
	s, _ := x[name].(string)
	return s
}

// number returns a number, which may be written as text.
func (x exported) number(name string) int64 {
	n, ok := x[name].(json.Number)
	if s, is := x[name].(string); is && !ok {
		n = json.Number(s)
	}
	i, _ := n.Int64()
	return i
}

// sessionOfChannel returns the session that telemetry states; empty for any other record.
func sessionOfChannel(v any) string {
	if x := exportOf(v); x != nil {
		return x.text("session.id")
	}
	return exportAt(v, "resourceSpans", "scopeSpans", "spans").text("session.id")
}

// agentOf returns the subagent that telemetry or a hook states.
func agentOf(v any) string {
	if x := exportOf(v); x != nil {
		return x.text("agent_id")
	}
	if normalizerstest.Member[string](v, "hook_event_name") != "" {
		return normalizerstest.Member[string](v, "agent_id")
	}
	return ""
}

// billed returns a request that telemetry states in the form in which a transcript states it; nil for any other record.
func billed(session string, v any) any {
	x := exportOf(v)
	if x == nil {
		x = exportAt(v, "resourceSpans", "scopeSpans", "spans")
	}
	if x.text("event.name") != "api_request" && x.text("span.type") != "llm_request" || x.text("request_id") == "" {
		return nil
	}
	cost, _ := x["cost_usd"].(json.Number)
	return map[string]any{
		"type": "assistant", "sessionId": session, "agentId": x.text("agent_id"), "requestId": x.text("request_id"), "costUSD": cost,
		"message": map[string]any{"usage": map[string]any{
			"input_tokens": count64(x.number("input_tokens")), "output_tokens": count64(x.number("output_tokens")),
			"cache_read_input_tokens": count64(x.number("cache_read_tokens")), "cache_creation_input_tokens": count64(x.number("cache_creation_tokens")),
			"cache_creation": map[string]any{"ephemeral_1h_input_tokens": count64(x.number("cache_creation_1h_tokens"))},
		}},
	}
}

func count64(n int64) json.Number { return json.Number(strconv.FormatInt(n, 10)) }

// channel reads a record of telemetry or of a hook; it returns false for any other record. What the log or the other
// channel has stated under the same id counts once.
func (r *claudeReader) channel(number int, v any) bool {
	if x := exportOf(v); x != nil {
		r.export(number, x)
		return true
	}
	if normalizerstest.Member[any](v, "resourceSpans") != nil || normalizerstest.Member[any](v, "resourceMetrics") != nil {
		return true
	}
	event := normalizerstest.Member[string](v, "hook_event_name")
	if event == "" {
		return false
	}
	r.hook(number, event, v)
	return true
}

// once reports whether something is stated for the first time.
func (r *claudeReader) once(what, id string) bool {
	key := what + "\x00" + id
	if r.stated == nil {
		r.stated = make(map[string]bool)
	}
	first := !r.stated[key]
	r.stated[key] = true
	return first
}

func (r *claudeReader) export(number int, x exported) {
	id, name := x.text("tool_use_id"), x.text("tool_name")
	switch x.text("event.name") {
	case "user_prompt":
		uuid, text := x.text("message.uuid"), visible(x.text("prompt"))
		if !r.once("prompt", uuid) {
			return
		}
		if prompt, human := claudePrompt(text); human || text == "" {
			r.utter(number, "human", uuid, prompt)
		}
	case "assistant_response":
		request := x.text("request_id")
		if id != "" || r.requests[request] || !r.once("answer", request) { // with id, it is a text of a call
			return
		}
		text := visible(x.text("response"))
		r.utter(number, "assistant", request, text)
		r.heard = append(r.heard, heardAnswer{request, text, len(r.out.Talk) - 1})
	case "tool_decision":
		r.call(number, id, name)
		if x.text("decision") == "reject" {
			r.outcome(number, id, "")
		}
	case "tool_result":
		r.call(number, id, name)
		r.outcome(number, id, "")
	}
}

func visible(text string) string {
	if text == "<REDACTED>" {
		return ""
	}
	return text
}

// heardAnswer is an answer of telemetry or a hook that the log has not stated yet, with its place in the talk.
type heardAnswer struct {
	request, text string
	at            int
}

// replace removes the answer of another channel that the log now states.
func (r *claudeReader) replace(request, text string) {
	i := slices.IndexFunc(r.heard, func(a heardAnswer) bool { return a.request != "" && a.request == request })
	if i < 0 {
		i = slices.IndexFunc(r.heard, func(a heardAnswer) bool { return a.request == "" && a.text == text })
	}
	if i < 0 {
		return
	}
	at := r.heard[i].at
	r.heard = slices.Delete(r.heard, i, i+1)
	r.unsay(at)
}

// retract removes the first answer that a record takes back and that is still there.
func (r *claudeReader) retract(v any) {
	for _, member := range []string{"supersedesUuids", "supersedes", "retractedMessageUuids", "retracted_message_uuids"} {
		for _, name := range normalizerstest.Member[[]any](v, member) {
			uuid, _ := name.(string)
			at := slices.IndexFunc(r.out.Talk, func(u normalizerstest.Utterance) bool {
				return u.Session == r.session && u.Who == "assistant" && u.Line == r.answers[uuid]
			})
			if at >= 0 {
				r.unsay(at)
				return
			}
		}
	}
}

// unsay removes what was said.
func (r *claudeReader) unsay(at int) {
	r.out.Talk = slices.Delete(r.out.Talk, at, at+1)
	for j := range r.heard {
		if r.heard[j].at > at {
			r.heard[j].at--
		}
	}
}

func (r *claudeReader) call(number int, id, name string) {
	if key := "call\x00" + id; !r.seen[key] {
		r.seen[key] = true
		r.out.Calls = append(r.out.Calls, normalizerstest.ToolUse{Session: r.session, ID: id, Name: name, Line: number})
	}
}

// outcome notes the result of a call, with the exit code in the header of a failure.
func (r *claudeReader) outcome(number int, id, failure string) {
	key := "result\x00" + id
	if r.seen[key] {
		return
	}
	r.seen[key] = true
	o := normalizerstest.ToolOutcome{Session: r.session, ID: id, Line: number}
	if m := claudeExitCode.FindStringSubmatch(failure); m != nil {
		n, _ := json.Number(m[2]).Int64()
		o.Form, o.Code = m[1]+"Exit code", &n
	}
	r.out.Results = append(r.out.Results, o)
}

func (r *claudeReader) hook(number int, event string, v any) {
	id, name := normalizerstest.Member[string](v, "tool_use_id"), normalizerstest.Member[string](v, "tool_name")
	switch event {
	case "UserPromptSubmit":
		text, human := claudePrompt(normalizerstest.Member[string](v, "prompt"))
		if human && !r.logged && r.once("prompt of", normalizerstest.Member[string](v, "prompt_id")) {
			r.utter(number, "human", "", text)
		}
	case "PreToolUse":
		r.call(number, id, name)
	case "PostToolUse", "PostToolUseFailure":
		r.call(number, id, name)
		r.outcome(number, id, normalizerstest.Member[string](v, "error"))
	case "Stop", "SubagentStop":
		text := normalizerstest.Member[string](v, "last_assistant_message")
		if !r.logged && text != "" && r.once("answer of", normalizerstest.Member[string](v, "prompt_id")+"\x00"+text) {
			r.utter(number, "assistant", "", text)
			r.heard = append(r.heard, heardAnswer{"", text, len(r.out.Talk) - 1})
		}
	}
}
