package oteltest

import (
	"encoding/json"
	"fmt"
	"time"

	"pgregory.net/rapid"

	"tributary/normalizers/normalizerstest"
)

// script writes the spans and log records of one session.
type script struct {
	normalizerstest.Script

	n       int
	trace   string
	history []any // of a program whose spans have the whole conversation; nil for others
	whole   bool
}

// lines generates the lines of one session.
func lines(t *rapid.T, session string) [][]byte {
	s := &script{Script: normalizerstest.NewScript(t, session), trace: "t0"}
	s.whole = s.Chance(50)
	moves := []func(){s.turn, s.chat, s.chat, s.chat, s.tool, s.agent, s.other}
	for range rapid.IntRange(1, 20).Draw(t, "records") {
		rapid.SampledFrom(moves).Draw(t, "move")()
	}
	return s.Lines
}

func (s *script) word() string {
	return s.OneOf("fix the ledger", "yes", "done", "two\nlines \U0001F642")
}

func (s *script) id(kind string) string { s.n++; return fmt.Sprintf("%s-%s%d", s.Session, kind, s.n) }

func (s *script) turn() {
	s.trace = s.id("t")
	s.history = append(s.history, said("user", s.word()))
}

func said(role, content string) any {
	return map[string]any{"role": role, "parts": []any{map[string]any{"type": "text", "content": content}}}
}

func encode(v any) string {
	data, _ := json.Marshal(v) // never fails
	return string(data)
}

func (s *script) span(operation string, a normalizerstest.Attributes) {
	a["gen_ai.operation.name"], a["gen_ai.conversation.id"] = operation, s.Session
	start := s.Now
	s.Stamp()
	s.Lines = append(s.Lines, normalizerstest.ExportedSpan("ledger-agent", "ledger", operation, s.trace, s.id("s"), "", start, s.Now, a))
}

func (s *script) count() int64 {
	return int64(rapid.SampledFrom([]int{0, 3, 57, 1480}).Draw(s.T, "tokens"))
}

func (s *script) chat() {
	input := s.history
	if !s.whole {
		s.history = nil
	}
	answer := said("assistant", s.word())
	a := normalizerstest.Attributes{"gen_ai.response.model": "m-1", "gen_ai.response.id": s.id("r")}
	if input != nil {
		a["gen_ai.input.messages"] = encode(input)
	}
	a["gen_ai.output.messages"] = encode([]any{answer})
	cached, reasoning := s.count(), s.count()
	a["gen_ai.usage.input_tokens"], a["gen_ai.usage.cache_read.input_tokens"] = cached+s.count(), cached
	a["gen_ai.usage.output_tokens"], a["gen_ai.usage.reasoning.output_tokens"] = reasoning+s.count(), reasoning
	s.span("chat", a)
	if s.whole {
		s.history = append(s.history, answer)
	}
	if s.Chance(30) { // the agent, and the span again
		s.span("invoke_agent", normalizerstest.Attributes{"gen_ai.output.messages": encode([]any{answer}), "gen_ai.usage.input_tokens": int64(9)})
		s.Lines = append(s.Lines, s.Lines[len(s.Lines)-2])
	}
}

func (s *script) tool() {
	a := normalizerstest.Attributes{"gen_ai.tool.name": "read_file", "gen_ai.tool.call.arguments": `{"path":"a.go"}`}
	if s.Chance(80) {
		a["gen_ai.tool.call.id"] = s.id("call")
	}
	if s.Chance(70) {
		a["gen_ai.tool.call.result"] = s.word()
	}
	if s.Chance(20) {
		a["error.type"] = "timeout"
	}
	s.span("execute_tool", a)
	if id, ok := a["gen_ai.tool.call.id"]; ok && s.Chance(50) {
		s.history = append(s.history, map[string]any{"role": "tool", "parts": []any{map[string]any{"type": "tool_call_response", "id": id, "response": s.word()}}})
	}
}

func (s *script) agent() {
	s.span("invoke_agent", normalizerstest.Attributes{"gen_ai.agent.name": "ledger", "gen_ai.usage.output_tokens": s.count()})
}

func (s *script) other() {
	switch s.OneOf("create_agent", "event", "of_tomorrow") {
	case "create_agent":
		s.span("create_agent", normalizerstest.Attributes{})
	case "event":
		s.Lines = append(s.Lines, normalizerstest.ExportedLog("ledger-agent", "ledger", s.Now.Add(time.Second), normalizerstest.Attributes{
			"event.name": "gen_ai.evaluation.result", "gen_ai.operation.name": "chat", "session.id": s.Session,
		}))
	default:
		s.span("of_tomorrow", normalizerstest.Attributes{})
	}
}
