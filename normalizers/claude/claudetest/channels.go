package claudetest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"

	"pgregory.net/rapid"

	"tributary/normalizers/normalizerstest"
)

// Turns generates the transcript of one session as Claude Code writes it: each request has one message, whose blocks
// have a record each, with the figures of the whole message; calls have results; subagents work in between.
func Turns(t *rapid.T, session string) [][]byte {
	w := &turns{t: t, session: session}
	for range rapid.IntRange(1, 4).Draw(t, "turns") {
		w.turn()
	}
	return w.lines
}

type turns struct {
	t       *rapid.T
	session string
	lines   [][]byte
	n       int
	prompt  string // id of the current one
}

// id returns a new id.
func (w *turns) id(kind string) string {
	w.n++
	return fmt.Sprintf("%s_%s_%d", kind, w.session, w.n)
}

func (w *turns) write(kind, agent string, more map[string]any) {
	r := map[string]any{
		"type": kind, "uuid": w.id("u"), "sessionId": w.session, "timestamp": fmt.Sprintf("2026-03-09T09:%02d:%02d.000Z", w.n/60%60, w.n%60),
		"cwd": "/home/ada/src/ledger", "version": "2.1.332", "isSidechain": agent != "",
	}
	if agent != "" {
		r["agentId"] = agent
	}
	maps.Copy(r, more)
	line, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	w.lines = append(w.lines, line)
}

// words are texts of prompts and answers; some repeat, and one is no prompt.
var words = []string{"fix the test", "yes", "Done.", "two\nlines \U0001F642", "and now the ledger", "<task-notification>\n<task-id>b1</task-id>\n</task-notification>"}

func (w *turns) turn() {
	w.prompt = w.id("p")
	text := rapid.SampledFrom(words).Draw(w.t, "prompt")
	w.write("user", "", map[string]any{"promptId": w.prompt, "message": map[string]any{"role": "user", "content": text}})
	for range rapid.IntRange(0, 2).Draw(w.t, "calls") {
		w.message("", true)
	}
	w.message("", false)
}

// message writes a message, with a call and its result or with the last answer alone.
func (w *turns) message(agent string, calls bool) {
	figure := func(name string) int { return rapid.IntRange(0, 900).Draw(w.t, name) }
	written := figure("written")
	usage := map[string]any{
		"input_tokens": figure("input"), "cache_read_input_tokens": figure("read"), "cache_creation_input_tokens": written, "output_tokens": 1 + figure("output"),
		"cache_creation": map[string]any{"ephemeral_5m_input_tokens": written - written/3, "ephemeral_1h_input_tokens": written / 3},
	}
	id, request := w.id("msg"), w.id("req")
	record := func(blocks ...any) {
		more := map[string]any{"requestId": request, "message": map[string]any{
			"id": id, "role": "assistant", "model": "claude-opus-4-5", "content": blocks, "usage": usage,
		}}
		w.write("assistant", agent, more)
	}
	if rapid.Bool().Draw(w.t, "thinks") {
		record(map[string]any{"type": "thinking", "thinking": "Hm.", "signature": "c2ln"})
	}
	if !calls || rapid.Bool().Draw(w.t, "says") {
		var texts []any
		for range rapid.IntRange(1, 3).Draw(w.t, "texts") {
			texts = append(texts, map[string]any{"type": "text", "text": rapid.SampledFrom(words[:5]).Draw(w.t, "answer")})
		}
		if rapid.Bool().Draw(w.t, "one record") { // the API did not stream the message
			record(texts...)
		} else {
			for _, text := range texts {
				record(text)
			}
		}
	}
	if !calls {
		return
	}
	call := w.id("toolu")
	tool := rapid.SampledFrom([]string{"Bash", "Read", "Task"}).Draw(w.t, "tool")
	input := map[string]any{"command": "go test ./...", "description": "Run the tests"}
	switch tool {
	case "Read":
		input = map[string]any{"file_path": "/home/ada/src/ledger/main.go"}
	case "Task":
		input = map[string]any{"description": "Look", "prompt": "look", "subagent_type": "general-purpose"}
	}
	record(map[string]any{"type": "tool_use", "id": call, "name": tool, "input": input})
	if tool == "Task" && agent == "" {
		of := w.id("a")
		w.write("user", of, map[string]any{"promptId": w.prompt, "message": map[string]any{"role": "user", "content": "look"}})
		w.message(of, false)
	}
	result := map[string]any{"type": "tool_result", "tool_use_id": call, "content": "ok"}
	more := map[string]any{"promptId": w.prompt}
	switch rapid.IntRange(0, 3).Draw(w.t, "outcome") {
	case 0:
		result["is_error"], result["content"] = true, "Exit code 3\nno"
		more["toolUseResult"] = "Error: Exit code 3\nno"
	case 1:
		result["is_error"], result["content"] = true, "The user doesn't want to proceed with this tool use."
		more["toolUseResult"] = "User rejected tool use"
	case 2:
		more["toolUseResult"] = map[string]any{"stdout": "ok", "stderr": "", "interrupted": false}
	}
	more["message"] = map[string]any{"role": "user", "content": []any{result}}
	w.write("user", agent, more)
}

// Exported returns what Claude Code exports and what its hooks get while it writes a transcript of [Turns]. Without details
// the export has neither texts nor arguments.
func Exported(lines [][]byte, details bool) (exports, hooks [][]byte) {
	w := &exporter{details: details, requests: map[string]*apiRequest{}}
	for i, line := range lines {
		v := normalizerstest.Parse(line)
		w.read(v)
		if i+1 == len(lines) || normalizerstest.Member[string](normalizerstest.Parse(lines[i+1]), "requestId") != normalizerstest.Member[string](v, "requestId") {
			w.endRequest(v)
		}
		if i+1 == len(lines) || w.isPrompt(normalizerstest.Parse(lines[i+1])) {
			w.stop()
		}
	}
	return w.exports, w.hooks
}

type exporter struct {
	details        bool
	free           bool // requests cost nothing
	exports, hooks [][]byte
	n              int
	session        string
	prompt         string
	last           string // answer of the main conversation
	requests       map[string]*apiRequest
}

// apiRequest is a request whose records are being read.
type apiRequest struct {
	texts []string
	last  string // text of the last record
	calls []any
}

func (w *exporter) isPrompt(v any) bool {
	_, ok := normalizerstest.Member[any](v, "message", "content").(string)
	return ok && normalizerstest.Member[string](v, "agentId") == ""
}

func (w *exporter) read(v any) {
	w.session = normalizerstest.Member[string](v, "sessionId")
	uuid := normalizerstest.Member[string](v, "uuid")
	agent := normalizerstest.Member[string](v, "agentId")
	if text, ok := normalizerstest.Member[any](v, "message", "content").(string); ok {
		if agent != "" {
			return
		}
		w.prompt, w.last = normalizerstest.Member[string](v, "promptId"), ""
		w.hook("UserPromptSubmit", agent, map[string]any{"prompt": text})
		w.export("user_prompt", agent, map[string]any{
			"prompt": w.hidden(text), "prompt_length": strconv.FormatInt(units(text), 10), "message.uuid": uuid,
		})
		return
	}
	before := len(w.request(v).texts)
	for _, b := range normalizerstest.Member[[]any](v, "message", "content") {
		switch normalizerstest.Member[string](b, "type") {
		case "text":
			w.request(v).texts = append(w.request(v).texts, normalizerstest.Member[string](b, "text"))
			w.request(v).last = strings.Join(w.request(v).texts[before:], "\n")
		case "tool_use":
			w.request(v).calls = append(w.request(v).calls, b)
		case "tool_result":
			w.result(v, b)
		}
	}
}

func (w *exporter) request(v any) *apiRequest {
	id := normalizerstest.Member[string](v, "requestId")
	if w.requests[id] == nil {
		w.requests[id] = &apiRequest{}
	}
	return w.requests[id]
}

// endRequest exports a request behind its last record.
func (w *exporter) endRequest(v any) {
	request := normalizerstest.Member[string](v, "requestId")
	if request == "" {
		return
	}
	agent := normalizerstest.Member[string](v, "agentId")
	usage := func(names ...string) int64 {
		return normalizerstest.Count(v, append([]string{"message", "usage"}, names...)...)
	}
	w.export("api_request", agent, map[string]any{
		"model": normalizerstest.Member[string](v, "message", "model"), "request_id": request, "query_source": "sdk", "duration_ms": 130,
		"input_tokens": usage("input_tokens"), "output_tokens": usage("output_tokens"), "cache_read_tokens": usage("cache_read_input_tokens"),
		"cache_creation_tokens":    usage("cache_creation_input_tokens"),
		"cache_creation_1h_tokens": usage("cache_creation", "ephemeral_1h_input_tokens"), "cost_usd": w.cost(usage("output_tokens")),
	})
	is := w.request(v)
	if len(is.texts) > 0 {
		text := strings.Join(is.texts, "\n")
		if agent == "" {
			w.last = is.last
		} else {
			w.hook("SubagentStop", agent, map[string]any{"last_assistant_message": is.last})
		}
		w.export("assistant_response", agent, map[string]any{
			"response": w.hidden(text), "response_length": units(text), "request_id": request, "message.uuid": normalizerstest.Member[string](v, "uuid"),
		})
	}
	for _, b := range is.calls {
		w.hook("PreToolUse", agent, map[string]any{
			"tool_name": normalizerstest.Member[string](b, "name"), "tool_input": normalizerstest.Member[any](b, "input"), "tool_use_id": normalizerstest.Member[string](b, "id"),
		})
	}
}

// cost is what a request costs; nothing if only tokens count.
func (w *exporter) cost(output int64) float64 {
	if w.free {
		return 0
	}
	return CostOf(output)
}

// CostOf is the cost of a request with so many tokens of output in [Exported].
func CostOf(output int64) float64 { return float64(output) / 1e6 }

// result exports a result, and before it the decision about its call.
func (w *exporter) result(v, result any) {
	id := normalizerstest.Member[string](result, "tool_use_id")
	agent := normalizerstest.Member[string](v, "agentId")
	var call any
	for _, r := range w.requests {
		for _, b := range r.calls {
			if normalizerstest.Member[string](b, "id") == id {
				call = b
			}
		}
	}
	name, text := normalizerstest.Member[string](call, "name"), normalizerstest.Member[string](result, "content")
	input, err := json.Marshal(normalizerstest.Member[any](call, "input"))
	if err != nil {
		panic(err)
	}
	common := map[string]any{"tool_name": name, "tool_use_id": id}
	decide := func(decision, source string) {
		w.export("tool_decision", agent, with(common, map[string]any{"decision": decision, "source": source}))
	}
	hook := map[string]any{"tool_name": name, "tool_input": normalizerstest.Member[any](call, "input"), "tool_use_id": id, "duration_ms": 51}
	if strings.HasPrefix(text, "The user doesn't want") {
		w.hook("PermissionRequest", agent, map[string]any{"tool_name": name, "tool_input": normalizerstest.Member[any](call, "input")})
		decide("reject", "user_reject")
		return
	}
	decide("accept", "config")
	outcome := map[string]any{"success": "true", "duration_ms": "51"}
	if normalizerstest.Member[bool](result, "is_error") {
		outcome["success"], outcome["error_type"] = "false", "ShellError"
		w.hook("PostToolUseFailure", agent, with(hook, map[string]any{"error": text}))
	} else {
		w.hook("PostToolUse", agent, with(hook, map[string]any{"tool_response": map[string]any{"stdout": text, "stderr": ""}}))
	}
	if w.details {
		outcome["tool_input"] = string(input)
	}
	w.export("tool_result", agent, with(common, outcome))
}

// stop posts the end of a turn.
func (w *exporter) stop() {
	w.hook("Stop", "", map[string]any{"last_assistant_message": w.last, "stop_hook_active": false})
}

func with(a, b map[string]any) map[string]any {
	out := map[string]any{}
	maps.Copy(out, a)
	maps.Copy(out, b)
	return out
}

func (w *exporter) hidden(text string) string {
	if w.details {
		return text
	}
	return "<REDACTED>"
}

func units(text string) int64 { return int64(len(utf16.Encode([]rune(text)))) }

func (w *exporter) export(event, agent string, attributes map[string]any) {
	attributes["event.name"], attributes["session.id"], attributes["prompt.id"], attributes["event.sequence"] = event, w.session, w.prompt, w.n
	if agent != "" {
		attributes["agent_id"] = agent
	}
	w.n++
	w.exports = append(w.exports, Export("claude_code."+event, fmt.Sprintf("17730480%02d%09d", w.n%60, w.n), attributes))
}

func (w *exporter) hook(event, agent string, more map[string]any) {
	r := with(map[string]any{
		"session_id": w.session, "transcript_path": "/home/ada/.claude/projects/-home-ada-src-ledger/" + w.session + ".jsonl",
		"cwd": "/home/ada/src/ledger", "prompt_id": w.prompt, "permission_mode": "default", "hook_event_name": event,
	}, more)
	if agent != "" {
		r["agent_id"], r["agent_type"] = agent, "general-purpose"
	}
	line, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	w.hooks = append(w.hooks, line)
}

// Export returns an export request with one log record, as Claude Code's exporter writes it.
func Export(body, nanoseconds string, attributes map[string]any) []byte {
	value := func(v any) map[string]any {
		switch v := v.(type) {
		case string:
			return map[string]any{"stringValue": v}
		case float64:
			return map[string]any{"doubleValue": v}
		default:
			return map[string]any{"intValue": v}
		}
	}
	list := []any{}
	for name, v := range attributes {
		list = append(list, map[string]any{"key": name, "value": value(v)})
	}
	line, err := json.Marshal(map[string]any{"resourceLogs": []any{map[string]any{
		"resource": map[string]any{"attributes": []any{map[string]any{"key": "service.name", "value": value("claude-code")}}},
		"scopeLogs": []any{map[string]any{
			"scope":      map[string]any{"name": "com.anthropic.claude_code.events"},
			"logRecords": []any{map[string]any{"timeUnixNano": nanoseconds, "body": value(body), "attributes": list}},
		}},
	}}})
	if err != nil {
		panic(err)
	}
	return line
}

// Interleaved draws an order of arrival in which each channel keeps its own.
func Interleaved(t *rapid.T, channels map[string][][]byte) [][]byte {
	var out [][]byte
	next := maps.Clone(channels)
	for {
		names := slices.Sorted(maps.Keys(next))
		names = slices.DeleteFunc(names, func(name string) bool { return len(next[name]) == 0 })
		if len(names) == 0 {
			return out
		}
		name := rapid.SampledFrom(names).Draw(t, "next")
		n := rapid.IntRange(1, len(next[name])).Draw(t, "records of "+name)
		out = append(out, next[name][:n]...)
		next[name] = next[name][n:]
	}
}

// Streamed returns what the SDK prints while it writes a transcript of [Turns], a run for each turn: messages with the
// figures at their start, and the result of the run. It has neither prompts nor the work of subagents.
func Streamed(lines [][]byte, partials bool) [][]byte {
	var out [][]byte
	write := func(r map[string]any) {
		line, err := json.Marshal(r)
		if err != nil {
			panic(err)
		}
		out = append(out, line)
	}
	var session, last string
	used, run := map[string]int64{}, 0
	end := func() {
		if run > 0 {
			write(map[string]any{"type": "result", "subtype": "success", "session_id": session, "uuid": fmt.Sprintf("result-%d", run), "num_turns": 1, "result": "", "usage": used})
		}
	}
	for _, line := range lines {
		v, _ := normalizerstest.Parse(line).(map[string]any)
		if normalizerstest.Member[string](v, "agentId") != "" {
			continue
		}
		session = normalizerstest.Member[string](v, "sessionId")
		if _, ok := normalizerstest.Member[any](v, "message", "content").(string); ok {
			end()
			used, last = map[string]int64{}, ""
			run++
			write(map[string]any{"type": "system", "subtype": "init", "session_id": session, "uuid": fmt.Sprintf("init-%d", run), "tools": []any{}, "model": "claude-opus-4-5"})
			continue
		}
		r := map[string]any{
			"type": v["type"], "session_id": session, "uuid": v["uuid"], "timestamp": v["timestamp"], "parent_tool_use_id": nil,
			"message": v["message"], "tool_use_result": v["toolUseResult"],
		}
		if request := normalizerstest.Member[string](v, "requestId"); request != "" {
			message, _ := v["message"].(map[string]any)
			usage, _ := message["usage"].(map[string]any)
			start := with(usage, map[string]any{"output_tokens": 1})
			r["request_id"], r["message"] = request, with(message, map[string]any{"usage": start})
			if request != last {
				for name, n := range usage {
					n, _ := n.(json.Number)
					i, _ := n.Int64()
					used[name] += i
				}
				if partials {
					write(map[string]any{"type": "stream_event", "session_id": session, "uuid": "start-" + request, "parent_tool_use_id": nil, "event": map[string]any{
						"type": "message_start", "message": with(message, map[string]any{"content": []any{}, "usage": start}),
					}})
				}
			}
			last = request
		}
		write(r)
	}
	end()
	return out
}
