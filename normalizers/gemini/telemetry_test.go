package gemini_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tributary/envelopes"
	"tributary/normalizers/gemini/geminitest"
	"tributary/normalizers/normalizerstest"
)

// A session that comes by its log and by telemetry counts once, whatever comes first.
func TestTelemetryBesideTheLog(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		log := slices.DeleteFunc(geminitest.Suite.Lines(t, "s"), func(l []byte) bool { return !isOfSessionFile(l) })
		normalizerstest.CheckChannels(t, geminitest.Suite, "s", log, exported)
	})
}

// isOfSessionFile reports whether a line is of a session's file, where messages have ids. Documents and the output of
// runs count their messages instead.
func isOfSessionFile(line []byte) bool {
	v := normalizerstest.Parse(line)
	id, hash := normalizerstest.Member[string](v, "id"), normalizerstest.Member[string](v, "projectHash")
	return normalizerstest.Member[any](v, "messages") == nil && normalizerstest.ExportedAttributes(v) == nil && (id != "" || hash != "")
}

// exported returns what Gemini CLI would have exported of the session with these events.
func exported(alone []envelopes.AgentEventV1) (out [][]byte) {
	value := normalizerstest.Value[string]
	add := func(e envelopes.AgentEventV1, name string, a normalizerstest.Attributes) {
		a["event.name"], a["event.timestamp"], a["session.id"], a["model"], a["role"] = name, e.TS, "s", "gemini-2.5-flash", "main"
		out = append(out, normalizerstest.ExportedLog("gemini-cli", "gemini-cli", time.Time{}, a))
	}
	answer := func(part any) string {
		data, _ := json.Marshal([]any{map[string]any{"candidates": []any{map[string]any{"content": map[string]any{"parts": []any{part}}}}}})
		return string(data)
	}
	revised, results := make(map[string]bool), make(map[string]bool)
	for _, e := range alone {
		revised[e.Supersedes], revised[e.EventID] = true, revised[e.EventID] || e.Supersedes != ""
		results[value(e.ToolCallID)] = results[value(e.ToolCallID)] || e.EventType == envelopes.ToolResult
	}
	unfinished := make(map[string]bool) // by name and arguments, which alone show the call of an end
	for _, e := range alone {
		if e.EventType == envelopes.ToolCall && !results[value(e.ToolCallID)] {
			unfinished[value(e.ToolName)+value(e.Text)] = true
		}
	}
	for _, e := range alone {
		a := normalizerstest.Attributes{}
		if u := e.Usage; u != nil {
			a = normalizerstest.Attributes{
				"input_token_count": u.Input + u.CacheRead - normalizerstest.Value(e.TokensTool), "cached_content_token_count": u.CacheRead,
				"output_token_count": u.Output, "thoughts_token_count": u.Reasoning, "tool_token_count": normalizerstest.Value(e.TokensTool),
			}
		}
		isCall := e.EventType == envelopes.ToolCall && e.ToolCallID != nil && json.Valid([]byte(value(e.Text))) && !strings.Contains(*e.ToolCallID, "#")
		switch {
		case e.Origin != "" || revised[e.EventID]:
		case e.EventType == envelopes.UserMessage && !e.IsInternal:
			add(e, "gemini_cli.user_prompt", normalizerstest.Attributes{"prompt": value(e.Text)})
		case e.EventType == envelopes.AssistantMessage:
			a["response_text"] = answer(map[string]any{"text": value(e.Text)})
		case isCall:
			args := json.RawMessage(value(e.Text))
			a["response_text"] = answer(map[string]any{"functionCall": map[string]any{"id": *e.ToolCallID, "name": value(e.ToolName), "args": args}})
			if !unfinished[value(e.ToolName)+value(e.Text)] {
				add(e, "gemini_cli.tool_call", normalizerstest.Attributes{
					"function_name": value(e.ToolName), "function_args": string(args), "success": "true", "decision": "accept", "duration_ms": int64(12),
				})
			}
		}
		if len(a) > 0 {
			add(e, "gemini_cli.api_response", a)
		}
	}
	return out
}
