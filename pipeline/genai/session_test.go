package genai_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/genai"
	"tributary/pipeline/load"
)

// draft makes events of one session, a second after each other.
type draft struct {
	source envelopes.Source
	events []envelopes.AgentEventV1
}

// add adds an event of a type, changed by the functions.
func (d *draft) add(t envelopes.EventType, text string, change ...func(*envelopes.AgentEventV1)) {
	n := len(d.events) + 1
	e := envelopes.AgentEventV1{
		Source: d.source, SessionID: "s", EventID: fmt.Sprintf("e%d", n), EventType: t, Text: &text, Sequence: uint64(n),
		TS: fmt.Sprintf("2026-03-09T09:00:%02dZ", n),
	}
	for _, c := range change {
		c(&e)
	}
	d.events = append(d.events, e)
}

func model(name string) func(*envelopes.AgentEventV1) {
	return func(e *envelopes.AgentEventV1) { e.Model = &name }
}

func usage(key string, input, output int64) func(*envelopes.AgentEventV1) {
	return func(e *envelopes.AgentEventV1) {
		e.Usage = &envelopes.Usage{Input: input, CacheRead: 10 * input, Output: output, Reasoning: 1, Key: key}
	}
}

func tool(name, id string, status envelopes.ToolStatus) func(*envelopes.AgentEventV1) {
	return func(e *envelopes.AgentEventV1) { e.ToolName, e.ToolCallID, e.ToolStatus = &name, &id, &status }
}

func agent(id string) func(*envelopes.AgentEventV1) {
	return func(e *envelopes.AgentEventV1) { e.AgentID, e.IsInternal, e.Origin = &id, true, envelopes.OriginAgent }
}

func supersedes(id string) func(*envelopes.AgentEventV1) {
	return func(e *envelopes.AgentEventV1) { e.Supersedes = id }
}

// lines returns spans as a tree: name, seconds from the first event to start and end, tokens, error.
func (d *draft) lines(content bool) []string {
	s := genai.New(content)
	for i := range d.events {
		s.Add(&d.events[i])
	}
	base := time.Date(2026, 3, 9, 9, 0, 0, 0, time.UTC)
	var lines []string
	for _, span := range s.Spans() {
		line := fmt.Sprintf("%s%s %v-%v", strings.Repeat("  ", span.Depth()), span.Name, span.Start.Sub(base).Seconds(), span.End.Sub(base).Seconds())
		for _, a := range span.Attributes {
			switch a.Key {
			case "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "error.type", "gen_ai.agent.id",
				"gen_ai.output.messages", "gen_ai.input.messages", "gen_ai.tool.call.arguments", "gen_ai.tool.call.result":
				line += " " + a.Value.String()
			}
		}
		lines = append(lines, line)
	}
	return lines
}

func TestSpansFollowTheEvents(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		source  envelopes.Source
		content bool
		events  func(d *draft)
		want    []string
	}{
		"a turn with a tool that fails": {envelopes.ClaudeCode, false, func(d *draft) {
			d.add(envelopes.UserMessage, "go")
			d.add(envelopes.Reasoning, "hm", model("opus"), usage("m1", 1, 2))
			d.add(envelopes.ToolCall, "{}", model("opus"), usage("m1", 0, 3), tool("Bash", "t1", envelopes.StatusInProgress))
			d.add(envelopes.ToolResult, "FAIL", tool("Bash", "t1", envelopes.StatusError))
			d.add(envelopes.AssistantMessage, "done", model("opus"), usage("m2", 4, 5))
			d.add(envelopes.UserMessage, "again")
		}, []string{
			"invoke_agent claude_code 1-5", "  chat opus 1-3 11 7", "  execute_tool Bash 3-4 tool_error", "  chat opus 4-5 44 6",
			"invoke_agent claude_code 6-6",
		}},
		"results in progress and results that are replaced are one span": {envelopes.ClaudeCode, true, func(d *draft) {
			d.add(envelopes.UserMessage, "go")
			d.add(envelopes.ToolCall, "{}", tool("Bash", "t1", envelopes.StatusInProgress))
			d.add(envelopes.ToolResult, "1%", tool("Bash", "t1", envelopes.StatusInProgress))
			d.add(envelopes.ToolResult, "no", tool("Bash", "t1", envelopes.StatusError))
			d.add(envelopes.ToolResult, "yes", tool("Bash", "t1", envelopes.StatusSuccess), supersedes("e4"))
			d.add(envelopes.ToolResult, "99%", tool("Bash", "t1", envelopes.StatusInProgress))
		}, []string{
			`invoke_agent claude_code 1-6 [{"role":"user","parts":[{"type":"text","content":"go"}]}]`,
			`  chat 1-2 [{"role":"assistant","parts":[{"type":"tool_call","id":"t1","name":"Bash","arguments":"{}"}],"finish_reason":"tool_call"}]`,
			"  execute_tool Bash 2-5 {} yes",
		}},
		"an answer that is replaced counts once": {envelopes.Cursor, true, func(d *draft) {
			d.add(envelopes.UserMessage, "go")
			d.add(envelopes.AssistantMessage, "par")
			d.add(envelopes.AssistantMessage, "partial", supersedes("e2"))
			d.add(envelopes.UserMessage, "went", supersedes("e1"))
		}, []string{
			`invoke_agent cursor 1-3 [{"role":"user","parts":[{"type":"text","content":"went"}]}]`,
			`  chat 1-3 [{"role":"assistant","parts":[{"type":"text","content":"partial"}],"finish_reason":"stop"}]`,
		}},
		"tokens behind the answer belong to it": {envelopes.Codex, false, func(d *draft) {
			d.add(envelopes.UserMessage, "go")
			d.add(envelopes.ToolCall, "{}", model("gpt"), tool("exec", "t1", envelopes.StatusInProgress))
			d.add(envelopes.Meta, "", usage("turn", 1, 1))
			d.add(envelopes.ToolResult, "ok", tool("exec", "t1", envelopes.StatusSuccess))
			d.add(envelopes.AssistantMessage, "done", model("gpt"))
			d.add(envelopes.Meta, "", usage("turn", 2, 2))
		}, []string{"invoke_agent codex 1-5", "  chat gpt 1-2 11 2", "  execute_tool exec 2-4", "  chat gpt 4-5 22 3"}},
		"a subagent is below the tool that has its prompt": {envelopes.ClaudeCode, false, func(d *draft) {
			d.add(envelopes.UserMessage, "go")
			d.add(envelopes.ToolCall, `{"prompt":"look around"}`, tool("Task", "t1", envelopes.StatusInProgress))
			d.add(envelopes.ToolCall, `{"prompt":"look elsewhere"}`, tool("Task", "t2", envelopes.StatusInProgress))
			d.add(envelopes.UserMessage, "look elsewhere", agent("b"))
			d.add(envelopes.AssistantMessage, "nothing", agent("b"), usage("m1", 1, 1))
			d.add(envelopes.UserMessage, "something else", agent("c"))
			d.add(envelopes.ToolResult, "done", tool("Task", "t2", envelopes.StatusSuccess))
		}, []string{
			"invoke_agent claude_code 1-7", "  chat 1-3", "  execute_tool Task 2-2", "  execute_tool Task 3-7",
			"    invoke_agent 4-5 b", "      chat 4-5 11 2", "  invoke_agent 6-6 c",
		}},
		"a session of a subagent, copies, a result without a call": {envelopes.Codex, false, func(d *draft) {
			d.add(envelopes.UserMessage, "before", func(e *envelopes.AgentEventV1) { e.Origin = envelopes.OriginCopied })
			d.add(envelopes.ToolResult, "ok", agent("x"), tool("exec", "t", envelopes.StatusSuccess), func(e *envelopes.AgentEventV1) {
				latency := int64(500)
				e.ToolLatencyMS = &latency
			})
		}, []string{"invoke_agent 2-2 x", "  execute_tool exec 1.5-2"}},
		"an error that the vendor reports is that of the turn unless the model answers": {envelopes.ClaudeCode, false, func(d *draft) {
			failed := func(e *envelopes.AgentEventV1) {
				e.Metadata = &envelopes.Metadata{Extensions: map[string]jsontext.Value{"error": jsontext.Value(`{"code":"overloaded","message":"m"}`)}}
			}
			d.add(envelopes.UserMessage, "go")
			d.add(envelopes.Log, "Overloaded", failed)
			d.add(envelopes.AssistantMessage, "here")
			d.add(envelopes.UserMessage, "more")
			d.add(envelopes.Log, "Overloaded", failed)
		}, []string{"invoke_agent claude_code 1-3", "  chat 1-3", "invoke_agent claude_code 4-5 overloaded"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := &draft{source: c.source}
			c.events(d)
			if diff := cmp.Diff(c.want, d.lines(c.content)); diff != "" {
				t.Errorf("spans (-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever the logs, each token and each tool call is in one span, ids are unique and those of the
// same events the same, and a span has the trace of its parent and a possible time.
func TestSpansOfRealLogsReconcileWithTheirEvents(t *testing.T) {
	t.Parallel()
	records, err := load.Mix(5000, 0)
	if corpus := os.Getenv("TRIBUTARY_CORPUS"); corpus != "" {
		records, err = load.Folder(corpus)
	}
	if err != nil {
		t.Fatal(err)
	}
	type key struct{ source, id string }
	states, views, again := map[key]*core.Session{}, map[key]*genai.Session{}, map[key]*genai.Session{}
	tokens, calls := map[key]int64{}, map[key]map[string]bool{}
	for _, r := range records {
		k := key{string(r.Source), r.Session}
		if states[k] == nil {
			states[k], views[k], again[k] = normalizers.NewSession(r.Source, r.Session), genai.New(false), genai.New(true)
			calls[k] = map[string]bool{}
		}
		result, err := normalizers.Normalize(states[k], r)
		if err != nil {
			continue // a dead letter has no events
		}
		for _, emitted := range result.Events {
			e := emitted.Event
			views[k].Add(&e)
			again[k].Add(&e)
			if e.Usage != nil {
				tokens[k] += e.Usage.Total()
			}
			if id := e.ToolCallID; id != nil && e.Origin != envelopes.OriginCopied && (e.EventType == envelopes.ToolCall || e.EventType == envelopes.ToolResult) {
				calls[k][*id] = true
			}
		}
	}
	total := 0
	ids := map[trace.SpanID]bool{}
	for k, view := range views {
		spans := view.Spans()
		for i, s := range again[k].Spans() {
			if s.SpanID != spans[i].SpanID || s.TraceID != spans[i].TraceID {
				t.Fatalf("%v: span %d has other ids with content", k, i)
			}
		}
		var sum int64
		found := map[string]bool{}
		for _, s := range spans {
			if s.Usage != nil {
				sum += s.Usage.Total()
			}
			for _, a := range s.Attributes {
				if a.Key == "gen_ai.tool.call.id" && (found[a.Value.AsString()] || !calls[k][a.Value.AsString()]) {
					t.Errorf("%v: the call %s has two spans, or no event", k, a.Value.AsString())
				} else if a.Key == "gen_ai.tool.call.id" {
					found[a.Value.AsString()] = true
				}
			}
			if ids[s.SpanID] || s.End.Before(s.Start) || !s.TraceID.IsValid() {
				t.Errorf("%v: span %s: twice, without a trace, or it ends before it starts", k, s.Name)
			}
			ids[s.SpanID] = true
			if s.Parent != nil && s.Parent.TraceID != s.TraceID {
				t.Errorf("%v: span %s is not in the trace of its parent", k, s.Name)
			}
		}
		total += len(spans)
		if sum != tokens[k] || len(found) != len(calls[k]) {
			t.Errorf("%v: %d tokens in spans, %d in events; %d calls in spans, %d in events", k, sum, tokens[k], len(found), len(calls[k]))
		}
	}
	if total < 1000 || len(views) < 10 {
		t.Errorf("%d spans of %d sessions", total, len(views))
	}
}
