// Package genai reads what programs export by OpenTelemetry's conventions for generative AI: calls to models, runs of
// tools and of agents, with their messages and tokens.
//
// Start with [Record]. A vendor decides which events a record has, and what is stated elsewhere, too.
//
// The invariant: a record has what it states, under the names of all versions of the conventions; nothing is added.
package genai

import (
	"cmp"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/chat"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
	"tributary/normalizers/otlp"
)

// Record is a span or a log record by the conventions.
type Record struct{ otlp.Record }

// Value returns an attribute of the record, or of an event within the span, where some programs put the contents.
func (r *Record) Value(name string) jsontext.Value {
	v := r.Attributes.Value(name)
	for i := 0; v == nil && i < len(r.Events); i++ {
		v = r.Events[i].Attributes.Value(name)
	}
	return v
}

// Text returns the text of a [Record.Value]; empty for none.
func (r *Record) Text(name string) string { return string(lenient.Scalar(r.Value(name))) }

// number returns the first of the attributes that the record has.
func (r *Record) number(names ...string) lenient.Number {
	for _, name := range names {
		if n := r.Attributes.Number(name); n.OK {
			return n
		}
	}
	return lenient.Number{}
}

// Operation returns what the span is of, such as chat or execute_tool; empty if it does not state it.
func (r *Record) Operation() string { return r.Text("gen_ai.operation.name") }

// Model returns the model that answered, else the one that was asked; empty for none.
func (r *Record) Model() lenient.Text {
	return lenient.Text(cmp.Or(r.Text("gen_ai.response.model"), r.Text("gen_ai.request.model")))
}

// CallID returns the id of the call to the model: of its response, else of its span; empty for none.
func (r *Record) CallID() string { return cmp.Or(r.Text("gen_ai.response.id"), r.Span()) }

// Span returns the id of the span, unique with that of its trace; empty for none.
func (r *Record) Span() string { return r.in(r.SpanID) }

// Parent returns [Record.Span] of the span around it; empty for none.
func (r *Record) Parent() string { return r.in(r.ParentID) }

func (r *Record) in(span string) string {
	if span == "" {
		return ""
	}
	return r.TraceID + ":" + span
}

// Tokens returns what a call to a model, or all calls of an agent, used.
func (r *Record) Tokens() chat.Tokens {
	return chat.Tokens{
		Input:     r.number("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
		CacheRead: r.number("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens"),
		CacheWrite: r.number("gen_ai.usage.cache_creation.input_tokens", "gen_ai.usage.cache_write.input_tokens",
			"gen_ai.usage.cache_creation_input_tokens"),
		Output:    r.number("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
		Reasoning: r.number("gen_ai.usage.reasoning.output_tokens", "gen_ai.usage.reasoning_tokens"),

		CacheInInput: true, ReasoningInOutput: true,
	}
}

// Instructions returns the instructions of the model.
func (r *Record) Instructions() []Part {
	return lenient.ReadElements[Part](structured(r.Value("gen_ai.system_instructions")))
}

// Input returns the messages to the model.
func (r *Record) Input() []Message { return messages(r.Value("gen_ai.input.messages")) }

// Output returns the messages of the model, each with its role.
func (r *Record) Output() []Message {
	out := messages(r.Value("gen_ai.output.messages"))
	for i := range out {
		out[i].Role = "assistant"
	}
	return out
}

// Tool is the run of a tool.
type Tool struct {
	ID, Name  lenient.Text
	Arguments jsontext.Value // nil for none, as where contents are left out
	Result    string         // empty for none
	Exit      *int64         // exit code of the process
}

// Tool returns the tool that the span ran. Without an id of its call it has that of the span.
func (r *Record) Tool() Tool {
	return Tool{
		ID:        lenient.Text(cmp.Or(r.Text("gen_ai.tool.call.id"), r.Span())),
		Name:      lenient.Text(r.Text("gen_ai.tool.name")),
		Arguments: r.Value("gen_ai.tool.call.arguments"),
		Result:    lenient.TextOrJSON(r.Value("gen_ai.tool.call.result")),
		Exit:      r.number("process.exit.code").Integer(),
	}
}

// Problem returns the error that ended the span; false for none.
func (r *Record) Problem() (code, message string, failed bool) {
	code = r.Text("error.type")
	return code, r.Message, r.Failed || code != ""
}

// Duration returns how long the span took, in milliseconds.
func (r *Record) Duration() lenient.Number {
	if r.Start.IsZero() || r.Time.Before(r.Start) {
		return lenient.Number{}
	}
	return lenient.Number{Value: float64(r.Time.Sub(r.Start).Milliseconds()), OK: true}
}

// EventTime returns a time in the form of events; false for none.
func EventTime(t time.Time) (string, bool) {
	if t.IsZero() {
		return "", false
	}
	return core.ParseTime(t.Format("2006-01-02T15:04:05.000Z"))
}
