// Package oteltest reads and generates what programs export by OpenTelemetry's conventions for generative AI, for the
// tests.
//
// [Suite] is what the tests of all vendors use.
//
// The invariant: the reader and the generator share no code and no table with the normalizer, so that a mistake in
// one of them shows as a difference.
package oteltest

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"tributary/envelopes"
	"tributary/normalizers/normalizerstest"
)

// Suite describes the source to the tests of all vendors.
var Suite = normalizerstest.Suite{
	Unknown: []string{
		`{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"x","attributes":[{"key":"gen_ai.operation.name","value":{"stringValue":"of_tomorrow"}},{"key":"gen_ai.conversation.id","value":{"stringValue":"$SESSION"}}]}]}]}]}`,
		`{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"eventName":"gen_ai.of_tomorrow","attributes":[{"key":"gen_ai.operation.name","value":{"stringValue":"chat"}},{"key":"session.id","value":{"stringValue":"$SESSION"}}]}]}]}]}`,
	},
	Source:    envelopes.OTel,
	Room:      "otel",
	Lines:     lines,
	Read:      normalizerstest.ReadLines,
	Bad:       normalizerstest.Malformed,
	Ledger:    reading.Ledger,
	Interpret: reading.Interpret,
}

var (
	text   = normalizerstest.Member[string]
	list   = normalizerstest.Member[[]any]
	member = normalizerstest.Member[any]
)

var reading = normalizerstest.Reading{
	Session: func(record any) string {
		a := normalizerstest.ExportedAttributes(record)
		return cmp.Or(text(a, "gen_ai.conversation.id"), text(a, "session.id"))
	},
	Read: read,
}

// exported is a span or a log record.
type exported struct {
	*normalizerstest.Reader

	a                 map[string]any
	trace, span, name string
	whole, answers    bool
	seen              map[string]int // texts of the record
}

// read notes what a record states.
func read(r *normalizerstest.Reader, v any) {
	x := &exported{Reader: r, a: normalizerstest.ExportedAttributes(v), seen: make(map[string]int)}
	if x.a == nil {
		return
	}
	isSpan := list(v, "resourceSpans") != nil
	path := []string{"resourceLogs", "scopeLogs", "logRecords"}
	if isSpan {
		path = []string{"resourceSpans", "scopeSpans", "spans"}
	}
	record := only(v, path...)
	x.trace, x.span, x.name = text(record, "traceId"), text(record, "spanId"), text(record, "eventName")
	operation := text(x.a, "gen_ai.operation.name")
	if !isSpan {
		operation = map[string]string{"gen_ai.client.inference.operation.details": "chat"}[x.name]
		x.old(member(record, "body"))
	}
	switch operation {
	case "chat", "embeddings":
		x.conversation()
		x.use()
	case "invoke_agent":
		x.conversation()
	case "execute_tool":
		id := cmp.Or(text(x.a, "gen_ai.tool.call.id"), x.trace+":"+x.span)
		r.Call(id, text(x.a, "gen_ai.tool.name"))
		var code *int64
		if x.a["process.exit.code"] != nil {
			code = new(normalizerstest.ExportedNumber(x.a, "process.exit.code"))
		}
		r.Result(id, code, "process.exit.code")
	}
}

// only returns the only element of the innermost of nested lists.
func only(v any, path ...string) any {
	for _, name := range path {
		v = list(v, name)[0]
	}
	return v
}

// plain reads a value in the standard's form.
func plain(v any) any {
	for of, value := range normalizerstest.Member[map[string]any](v) {
		switch of {
		case "kvlistValue":
			out := make(map[string]any)
			for _, m := range list(value, "values") {
				out[text(m, "key")] = plain(member(m, "value"))
			}
			return out
		case "arrayValue":
			var out []any
			for _, e := range list(value, "values") {
				out = append(out, plain(e))
			}
			return out
		default:
			return value
		}
	}
	return nil
}

// old reads an event of before version 1.37.
func (x *exported) old(body any) {
	v := plain(body)
	role := strings.TrimSuffix(strings.TrimPrefix(x.name, "gen_ai."), ".message")
	if role == "gen_ai.choice" || x.name == "gen_ai.choice" {
		v, role = member(v, "message"), "assistant"
	}
	if content := text(v, "content"); content != "" && role != "tool" {
		x.say(role, "text", content)
	} else if role == "tool" {
		x.Result(text(v, "id"), nil, "")
	}
	for _, c := range list(v, "tool_calls") {
		x.Call(text(c, "id"), text(c, "function", "name"))
	}
}

func (x *exported) messages(name string) []any {
	out, _ := normalizerstest.Parse([]byte(text(x.a, name))).([]any)
	return out
}

// conversation reads the messages of a span.
func (x *exported) conversation() {
	input := x.messages("gen_ai.input.messages")
	for _, m := range input {
		x.whole = x.whole || text(m, "role") == "assistant"
	}
	for _, m := range input {
		x.message(text(m, "role"), m)
	}
	x.answers = true
	for _, m := range x.messages("gen_ai.output.messages") {
		x.message("assistant", m)
	}
}

func (x *exported) message(role string, m any) {
	for _, p := range list(m, "parts") {
		switch text(p, "type") {
		case "text", "reasoning":
			x.say(role, text(p, "type"), text(p, "content"))
		case "tool_call":
			x.Call(text(p, "id"), text(p, "name"))
		case "tool_call_response":
			x.Result(text(p, "id"), nil, "")
		}
	}
}

// say notes a text under its number among the equal ones of the session.
func (x *exported) say(role, kind, content string) {
	key := fmt.Sprintf("%s %s %q", role, kind, content)
	x.seen[key]++
	n := strconv.Itoa(x.seen[key])
	if !x.whole {
		n = x.number(key, n)
	}
	if high, _ := strconv.Atoi(x.Noted("high " + key)); high < atoi(n) {
		x.Note("high "+key, n)
	}
	who := map[string]string{"user": "human", "assistant": "assistant"}[role]
	if who != "" && kind == "text" {
		x.Say(who, key+n, content)
	}
}

func atoi(s string) int { n, _ := strconv.Atoi(s); return n }

// number returns the number of a text in a record that has only what is new in its turn.
func (x *exported) number(key, k string) string {
	turn := "turn " + x.trace + key + k
	call := "call " + cmp.Or(text(x.a, "gen_ai.response.id"), x.trace+":"+x.span) + key + k
	agent := text(x.a, "gen_ai.operation.name") == "invoke_agent"
	next := strconv.Itoa(atoi(x.Noted("high "+key)) + 1)
	switch noted, waits := strings.CutPrefix(x.Noted(turn), "agent "); {
	case !x.answers || agent:
		if noted != "" {
			return noted
		}
		x.Note(turn, map[bool]string{true: "agent "}[x.answers]+next)
		return next
	case x.Noted(call) != "":
		return x.Noted(call)
	case waits:
		next = noted
	}
	x.Note(turn, next)
	x.Note(call, next)
	return next
}

// use notes the tokens of a call to a model.
func (x *exported) use() {
	n := func(name string) int64 { return normalizerstest.ExportedNumber(x.a, "gen_ai.usage."+name) }
	x.Use(cmp.Or(text(x.a, "gen_ai.response.id"), x.trace+":"+x.span), normalizerstest.Tokens{
		Input: n("input_tokens"), CacheRead: n("cache_read.input_tokens"), CacheWrite: n("cache_creation.input_tokens"), CacheInInput: true,
		Output: n("output_tokens"), Reasoning: n("reasoning.output_tokens"), ReasoningInOutput: true,
	})
}
