package copilottest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tributary/normalizers/normalizerstest"
)

// exporter writes what the runtime exports beside a log, as the reader of this package understands the log.
type exporter struct {
	session string
	out     [][]byte
	records map[int]any                // of the log, by line
	args    map[string]json.RawMessage // of calls, by id
	ends    map[string]any             // data of the records that end calls, by id
}

// Exported returns the spans that the runtime would have exported of a session of a file: each prompt, answer, call and
// result, and the tokens of each call to the model. It returns nil for a session that is no log of events.
func Exported(session string, lines []normalizerstest.Line, a normalizerstest.Account) [][]byte {
	x := &exporter{session: session, records: make(map[int]any), args: make(map[string]json.RawMessage), ends: make(map[string]any)}
	l := ledger{}
	spent := make(map[[2]string]normalizerstest.Figures) // by call and model
	for i, line := range lines {
		v := normalizerstest.Parse(line.Data)
		if a.Sessions[i] != session || line.Bad || spanOf(v) != nil {
			continue
		}
		if normalizerstest.Member[string](v, "type") == "" {
			return nil
		}
		x.records[line.Number] = v
		x.read(line.Data, v)
		before := 0
		if l[session] != nil {
			before = len(l[session].spendings)
		}
		l.Add(session, line.Data)
		d := normalizerstest.Member[any](v, "data")
		call := cmp.Or(normalizerstest.Member[string](d, "apiCallId"), normalizerstest.Member[string](d, "usage", "apiCallId"), fmt.Sprint("resp_", line.Number))
		for _, more := range l[session].spendings[before:] {
			sum := spent[[2]string{call, more.model}]
			sum.Add(more.parts)
			spent[[2]string{call, more.model}] = sum
		}
	}
	for _, u := range a.Talk {
		if u.Session == session && u.Text != "" {
			x.say(u)
		}
	}
	for _, c := range a.Calls {
		if c.Session == session && c.ID != "" {
			x.call(c)
		}
	}
	for _, r := range a.Results {
		if r.Session == session && r.ID != "" {
			x.result(r, a.Calls)
		}
	}
	for _, of := range slices.SortedFunc(maps.Keys(spent), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		sum := spent[of]
		x.span("chat", false, normalizerstest.Attributes{
			"gen_ai.response.id": of[0], "gen_ai.response.model": of[1],
			"gen_ai.usage.input_tokens":            sum.UsageInput + sum.CacheRead + sum.CacheWrite,
			"gen_ai.usage.cache_read.input_tokens": sum.CacheRead, "gen_ai.usage.cache_write.input_tokens": sum.CacheWrite,
			"gen_ai.usage.output_tokens": sum.Output, "gen_ai.usage.reasoning.output_tokens": sum.Thinking,
		})
	}
	return x.out
}

// read notes the arguments and the ends of calls.
func (x *exporter) read(data []byte, v any) {
	var is struct {
		Data struct {
			ToolCallID   string
			Arguments    json.RawMessage
			ToolRequests []struct {
				ToolCallID string
				Arguments  json.RawMessage
			}
		}
	}
	if json.Unmarshal(data, &is) != nil {
		return // data of another form
	}
	for _, q := range is.Data.ToolRequests {
		x.args[q.ToolCallID] = q.Arguments
	}
	switch normalizerstest.Member[string](v, "type") {
	case "tool.execution_start":
		if x.args[is.Data.ToolCallID] == nil {
			x.args[is.Data.ToolCallID] = is.Data.Arguments
		}
	case "tool.execution_complete":
		if x.ends[is.Data.ToolCallID] == nil {
			x.ends[is.Data.ToolCallID] = normalizerstest.Member[any](v, "data")
		}
	}
}

// span adds a span, in a trace of its own.
func (x *exporter) span(operation string, failed bool, a normalizerstest.Attributes) {
	id := fmt.Sprintf("%016x", len(x.out)+1)
	a["gen_ai.operation.name"], a["gen_ai.conversation.id"] = operation, x.session
	data := normalizerstest.ExportedSpan("github-copilot", "github.copilot", operation, "t"+id, id, "", time.Unix(1, 0), time.Unix(1, 0), a)
	if failed {
		data = []byte(strings.Replace(string(data), `"status":{}`, `"status":{"code":2,"message":"Tool failed"}`, 1))
	}
	x.out = append(x.out, data)
}

// message returns a list with one message of one part.
func message(role string, part map[string]any) string {
	data, _ := json.Marshal([]any{map[string]any{"role": role, "parts": []any{part}}}) // of JSON
	return string(data)
}

func (x *exporter) say(u normalizerstest.Utterance) {
	if u.Who == "assistant" {
		x.span("chat", false, normalizerstest.Attributes{"gen_ai.output.messages": message("assistant", map[string]any{"type": "text", "content": u.Text})})
	}
	if u.Who != "human" {
		return
	}
	a := normalizerstest.Attributes{
		"github.copilot.initiator": "user",
		"gen_ai.input.messages":    message("user", map[string]any{"type": "text", "content": "<current_datetime>now</current_datetime>\n\n" + u.Text}),
	}
	if interaction := normalizerstest.Member[string](x.records[u.Line], "data", "interactionId"); interaction != "" {
		a["github.copilot.interaction_id"] = interaction
	}
	x.span("chat", false, a)
}

func (x *exporter) call(c normalizerstest.ToolUse) {
	part := map[string]any{"type": "tool_call", "id": c.ID, "name": c.Name}
	if args := x.args[c.ID]; args != nil {
		part["arguments"] = args
	}
	x.span("chat", false, normalizerstest.Attributes{"gen_ai.output.messages": message("assistant", part)})
}

func (x *exporter) result(r normalizerstest.ToolOutcome, calls []normalizerstest.ToolUse) {
	at := slices.IndexFunc(calls, func(c normalizerstest.ToolUse) bool { return c.Session == r.Session && c.ID == r.ID })
	if at < 0 {
		return // no span without its call
	}
	d := x.ends[r.ID]
	body := cmp.Or(normalizerstest.Member[string](d, "result"), normalizerstest.Member[string](d, "result", "content"), normalizerstest.Member[string](d, "result", "detailedContent"),
		normalizerstest.Member[string](d, "error"), normalizerstest.Member[string](d, "error", "message"))
	x.span("chat", false, normalizerstest.Attributes{
		"gen_ai.input.messages": message("tool", map[string]any{"type": "tool_call_response", "id": r.ID, "response": body}),
	})
	a := normalizerstest.Attributes{"gen_ai.tool.call.id": r.ID, "gen_ai.tool.name": calls[at].Name, "gen_ai.tool.call.result": body}
	if args := x.args[r.ID]; args != nil {
		a["gen_ai.tool.call.arguments"] = string(args)
	}
	if r.Code != nil {
		a["process.exit.code"] = *r.Code
	}
	success, stated := normalizerstest.Member[any](d, "success").(bool)
	x.span("execute_tool", stated && !success, a)
}
