package copilot_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/copilot/copilottest"
	"tributary/normalizers/core"
	"tributary/normalizers/normalizerstest"
)

// A session that comes by its log and by telemetry counts once, whatever comes first.
func TestTelemetryBesideTheLog(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		log := slices.DeleteFunc(copilottest.Suite.Lines(t, "s"), func(l []byte) bool { return !isOfLog(l) })
		// An event has no more reasoning than output: reasoning that the log states behind its output waits for another
		// event, while the telemetry states both at once. Sums of tokens are the same, their division is not.
		for i := range log {
			log[i] = reasoning.ReplaceAll(log[i], []byte(`"reasoningTokens":0`))
		}
		normalizerstest.CheckChannels(t, copilottest.Suite, "s", log, exported)
	})
}

// Each log of the corpus and the spans that its reader makes of it are one session in any order.
func TestCorpusTelemetryBesideTheLogs(t *testing.T) {
	t.Parallel()
	normalizerstest.CheckCorpusChannels(t, copilottest.Suite, copilottest.Exported)
}

// A log and spans in recorded shapes are one session in any order, with its decisions, its errors, and what a subagent
// did.
func TestRecordedShapesInAnyOrder(t *testing.T) {
	t.Parallel()
	var log, spans [][]byte
	for _, g := range normalizerstest.Goldens(t, copilottest.Suite) {
		if g.Name != "telemetry_beside" {
			continue
		}
		for line := range bytes.Lines(g.Raw) {
			if line = bytes.TrimSpace(line); isOfLog(line) {
				log = append(log, line)
			} else {
				spans = append(spans, line)
			}
		}
	}
	if len(log) < 20 || len(spans) < 14 {
		t.Fatalf("%d records and %d spans", len(log), len(spans))
	}
	const session = "5e0a7c42-8d13-4f6b-b2c9-1a7d3e9f1a01"
	want := notes(t, log)
	rapid.Check(t, func(t *rapid.T) {
		normalizerstest.CheckChannels(t, copilottest.Suite, session, log, func([]envelopes.AgentEventV1) [][]byte { return spans })
		records := slices.Clone(log)
		for _, span := range rapid.Permutation(spans).Draw(t, "spans") {
			records = slices.Insert(records, rapid.IntRange(0, len(records)).Draw(t, "place"), span)
		}
		if diff := cmp.Diff(want, notes(t, records)); diff != "" {
			t.Errorf("decisions, errors and events of subagents (-log +both):\n%s", diff)
		}
	})
}

// notes returns the decisions, the errors and the events of subagents of a session, sorted, but for those that others
// replace.
func notes(t interface{ Fatal(args ...any) }, records [][]byte) (out []string) {
	const session = "5e0a7c42-8d13-4f6b-b2c9-1a7d3e9f1a01"
	s := normalizers.NewSession(envelopes.Copilot, session)
	var events []envelopes.AgentEventV1
	replaced := make(map[string]bool)
	normalize := func(r core.Record) {
		r.Source, r.Session = envelopes.Copilot, session
		result, err := normalizers.Normalize(s, r)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range result.Events {
			events = append(events, e.Event)
			replaced[e.Event.Supersedes] = true
		}
	}
	for _, r := range records {
		normalize(core.Record{Data: bytes.Clone(r)})
	}
	normalize(core.Record{Origin: core.Origin{End: true}})
	for _, e := range events {
		var facts map[string]any
		data, _ := json.Marshal(e.Metadata)
		_ = json.Unmarshal(data, &facts) // never fails
		decision := normalizerstest.Member[string](facts, "permission", "decision")
		switch {
		case replaced[e.EventID]:
		case decision != "":
			out = append(out, decision+" "+normalizerstest.Member[string](facts, "permission", "toolCallId"))
		case e.EventType == envelopes.Log && e.Text != nil:
			out = append(out, *e.Text)
		case e.AgentID != nil && e.EventType != envelopes.Meta:
			out = append(out, fmt.Sprint(e.EventType, " ", normalizerstest.Value(e.ToolCallID), " of ", *e.AgentID))
		}
	}
	slices.Sort(out)
	return out
}

var reasoning = regexp.MustCompile(`"reasoningTokens":\d+`)

// isOfLog reports whether a line is of events.jsonl: documents of older versions count their entries instead.
func isOfLog(line []byte) bool {
	v := normalizerstest.Parse(line)
	return normalizerstest.Member[string](v, "type") != "" && normalizerstest.ExportedAttributes(v) == nil
}

// exporter writes spans.
type exporter struct {
	out [][]byte
	n   int
}

func (x *exporter) id() string { x.n++; return fmt.Sprintf("%016x", x.n) }

// span writes a span in a trace of its own, as if each were a turn.
func (x *exporter) span(name, operation string, failed bool, a normalizerstest.Attributes) {
	id := x.id()
	a["gen_ai.operation.name"], a["gen_ai.conversation.id"] = operation, "s"
	data := normalizerstest.ExportedSpan("github-copilot", "github.copilot", name, "t"+id, id, "", time.Unix(1, 0), time.Unix(1, 0), a)
	if failed {
		data = []byte(strings.Replace(string(data), `"status":{}`, `"status":{"code":2,"message":"Tool failed"}`, 1))
	}
	x.out = append(x.out, data)
}

func encode(v any) string {
	data, _ := json.Marshal(v) // never fails
	return string(data)
}

// messages returns one message.
func messages(role string, part map[string]any) string {
	return encode([]any{map[string]any{"role": role, "parts": []any{part}}})
}

// exported returns what the runtime would have exported of the session with these events.
func exported(alone []envelopes.AgentEventV1) [][]byte {
	value := normalizerstest.Value[string]
	x := &exporter{}
	revised, calls := make(map[string]bool), make(map[string]envelopes.AgentEventV1)
	for _, e := range alone {
		revised[e.Supersedes], revised[e.EventID] = true, revised[e.EventID] || e.Supersedes != ""
		if e.EventType == envelopes.ToolCall {
			calls[value(e.ToolCallID)] = e
		}
	}
	spent := make(map[string]normalizerstest.Figures)
	models := make(map[string]string)
	for i, e := range alone {
		if u := e.Usage; u != nil {
			key := u.Key
			record := normalizerstest.Parse(e.Raw)
			switch isMessage := normalizerstest.Member[string](record, "type") == "assistant.message"; {
			case key == "", isMessage && normalizerstest.Member[string](record, "data", "apiCallId") == "":
				key = fmt.Sprintf("resp_%d", i) // the log states no id of the call
			case len(key) > 128:
				key = "other" + key
			}
			sum := spent[key]
			sum.Add(normalizerstest.FiguresOf(e))
			spent[key], models[key] = sum, value(e.Model)
		}
		text := value(e.Text)
		switch {
		case e.Origin != "" || revised[e.EventID]:
		case e.EventType == envelopes.UserMessage && strings.TrimSpace(text) != "":
			a := normalizerstest.Attributes{
				"gen_ai.input.messages":    messages("user", map[string]any{"type": "text", "content": "<current_datetime>now</current_datetime>\n\n" + text}),
				"github.copilot.initiator": "user",
			}
			record := normalizerstest.Parse(e.Raw)
			if interaction := normalizerstest.Member[string](record, "data", "interactionId"); interaction != "" {
				a["github.copilot.interaction_id"] = interaction
			}
			x.span("chat m", "chat", false, a)
		case e.EventType == envelopes.AssistantMessage, e.EventType == envelopes.Reasoning:
			kind := map[envelopes.EventType]string{envelopes.AssistantMessage: "text", envelopes.Reasoning: "reasoning"}[e.EventType]
			x.span("chat m", "chat", false, normalizerstest.Attributes{"gen_ai.output.messages": messages("assistant", map[string]any{"type": kind, "content": text})})
		case e.EventType == envelopes.ToolCall && e.ToolCallID != nil:
			x.span("chat m", "chat", false, normalizerstest.Attributes{"gen_ai.output.messages": messages("assistant", map[string]any{
				"type": "tool_call", "id": *e.ToolCallID, "name": value(e.ToolName), "arguments": arguments(text),
			})})
		case e.EventType == envelopes.ToolResult && e.ToolCallID != nil:
			call, ok := calls[*e.ToolCallID]
			if !ok || revised[call.EventID] {
				continue
			}
			a := normalizerstest.Attributes{
				"gen_ai.tool.call.id": *e.ToolCallID, "gen_ai.tool.name": value(call.ToolName), "gen_ai.tool.call.result": text,
				"gen_ai.tool.call.arguments": encode(arguments(value(call.Text))),
			}
			if e.ToolExitCode != nil {
				a["process.exit.code"] = *e.ToolExitCode
			}
			x.span("chat m", "chat", false, normalizerstest.Attributes{
				"gen_ai.input.messages": messages("tool", map[string]any{"type": "tool_call_response", "id": *e.ToolCallID, "response": text}),
			})
			x.span("execute_tool", "execute_tool", *e.ToolStatus == envelopes.StatusError && e.ToolExitCode == nil, a)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(spent)) {
		sum := spent[key]
		x.span("chat m", "chat", false, normalizerstest.Attributes{
			"gen_ai.response.id": key, "gen_ai.response.model": models[key], "gen_ai.usage.input_tokens": sum.UsageInput + sum.CacheRead + sum.CacheWrite,
			"gen_ai.usage.cache_read.input_tokens": sum.CacheRead, "gen_ai.usage.cache_write.input_tokens": sum.CacheWrite,
			"gen_ai.usage.output_tokens": sum.UsageOutput + sum.UsageReasoning, "gen_ai.usage.reasoning.output_tokens": sum.UsageReasoning,
		})
	}
	return x.out
}

// arguments returns the arguments of a call in the form of a message.
func arguments(text string) any {
	if json.Valid([]byte(text)) && strings.HasPrefix(text, "{") {
		return json.RawMessage(text)
	}
	return text
}
