package qwen_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tributary/envelopes"
	"tributary/normalizers/normalizerstest"
	"tributary/normalizers/qwen/qwentest"
)

// A session that comes by its log and by telemetry counts once, whatever comes first: with ids of calls, as newer
// versions export them, and without.
func TestTelemetryBesideTheLog(t *testing.T) {
	t.Parallel()
	for _, ids := range []bool{true, false} {
		t.Run(fmt.Sprintf("ids of calls=%t", ids), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				log := slices.DeleteFunc(qwentest.Suite.Lines(t, "s"), func(l []byte) bool { return !isOfChat(normalizerstest.Parse(l), ids) })
				log = withOneResult(log)
				normalizerstest.CheckChannels(t, qwentest.Suite, "s", log, func(alone []envelopes.AgentEventV1) [][]byte {
					return exported(alone, sent(log), ids)
				})
			})
		})
	}
}

// Each chat of the corpus and the telemetry that its reader makes of it are one session in any order.
func TestCorpusTelemetryBesideTheChats(t *testing.T) {
	t.Parallel()
	for _, ids := range []bool{true, false} {
		t.Run(fmt.Sprintf("ids of calls=%t", ids), func(t *testing.T) {
			t.Parallel()
			normalizerstest.CheckCorpusChannels(t, qwentest.Suite, func(session string, lines []normalizerstest.Line, a normalizerstest.Account) [][]byte {
				return qwentest.Exported(session, lines, a, ids)
			})
		})
	}
}

// isOfChat reports whether a record is of the chat, of a provider that counts thoughts as output, and of a version that
// states ids of calls in events or does not: one session has one of each.
func isOfChat(v any, ids bool) bool {
	event := normalizerstest.Member[any](v, "systemPayload", "uiEvent")
	if normalizerstest.ExportedAttributes(v) != nil || !ids && normalizerstest.Member[any](event, "call_id") != nil {
		return false
	}
	apart := func(of any, names ...string) bool {
		var n [4]int64
		for i, name := range names {
			n[i], _ = normalizerstest.Member[json.Number](of, name).Int64()
		}
		auth := normalizerstest.Member[string](of, "auth_type")
		return n[3] > 0 && n[3] == n[0]+n[1]+n[2] || n[3] == 0 && auth == "gemini"
	}
	return !apart(event, "input_token_count", "output_token_count", "thoughts_token_count", "total_token_count") &&
		!apart(normalizerstest.Member[any](v, "usageMetadata"), "promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount", "totalTokenCount")
}

// withOneResult returns a log without other results of a call than the first: Qwen Code writes one, and exports one end.
func withOneResult(log [][]byte) [][]byte {
	first := make(map[string]string)
	return slices.DeleteFunc(log, func(l []byte) bool {
		call := normalizerstest.Member[string](normalizerstest.Parse(l), "toolCallResult", "callId")
		if call != "" && first[call] == "" {
			first[call] = string(l)
		}
		return call != "" && first[call] != string(l)
	})
}

// sent returns the prompts of a log as they are sent, by the id of their record: what is shown may be another text. Of a
// message of the model it returns the answer of its API call, if the record before it has that.
func sent(log [][]byte) map[string]string {
	out := make(map[string]string)
	calls := make(map[string]string)
	for _, l := range log {
		v := normalizerstest.Parse(l)
		id := normalizerstest.Member[string](v, "uuid")
		calls[id] = normalizerstest.Member[string](v, "systemPayload", "uiEvent", "response_text")
		if normalizerstest.Member[string](v, "type") == "assistant" {
			out[id] = calls[normalizerstest.Member[string](v, "parentUuid")]
			continue
		}
		var parts []string
		for _, p := range normalizerstest.Member[[]any](v, "message", "parts") {
			if text := normalizerstest.Member[string](p, "text"); !strings.HasPrefix(text, "<system-reminder>") && !strings.HasPrefix(text, "<qwen:") {
				parts = append(parts, text) // what machines add is not exported
			}
		}
		out[id] = strings.Join(parts, "\n")
	}
	return out
}

// exported returns what Qwen Code would have exported of the session with these events.
func exported(alone []envelopes.AgentEventV1, sent map[string]string, ids bool) (out [][]byte) {
	value := normalizerstest.Value[string]
	add := func(e envelopes.AgentEventV1, name string, a normalizerstest.Attributes) {
		a["event.name"], a["event.timestamp"], a["session.id"], a["model"] = "qwen-code."+name, e.TS, "s", "coder"
		a["response_id"] = fmt.Sprint("r", len(out))
		a["prompt_id"] = "s########0"
		if e.IsInternal {
			a["prompt_id"] = "s#" + value(e.AgentID) + "#0"
		}
		out = append(out, normalizerstest.ExportedLog("qwen-code", "qwen-code", time.Time{}, a))
	}
	revised, results := make(map[string]bool), make(map[string]bool)
	answers := make(map[string]string) // by the id of their message
	for _, e := range alone {
		revised[e.Supersedes], revised[e.EventID] = true, revised[e.EventID] || e.Supersedes != ""
		results[value(e.ToolCallID)] = results[value(e.ToolCallID)] || e.EventType == envelopes.ToolResult
		if e.EventType == envelopes.AssistantMessage && e.Origin == "" {
			id, _, _ := strings.Cut(e.EventID, "#")
			answers[id] += value(e.Text)
		}
	}
	unfinished := make(map[string]bool) // by name and arguments, which alone show the call of an end without its id
	for _, e := range alone {
		if e.EventType == envelopes.ToolCall && (!results[value(e.ToolCallID)] || e.Origin != "") {
			unfinished[value(e.ToolName)+value(e.Text)] = !ids
		}
	}
	for _, e := range alone {
		message, _, _ := strings.Cut(e.EventID, "#")
		response := normalizerstest.Attributes{}
		if u := e.Usage; u != nil {
			response = normalizerstest.Attributes{
				"input_token_count": u.Input + u.CacheRead, "cached_content_token_count": u.CacheRead, "auth_type": "openai",
				"output_token_count": normalizerstest.Value(e.TokensOutput), "thoughts_token_count": u.Reasoning,
			}
		}
		switch {
		case e.Origin != "" || revised[e.EventID]:
		case e.EventType == envelopes.UserMessage && e.Text != nil:
			prompt := sent[e.EventID]
			if strings.TrimSpace(prompt) == "" || normalizerstest.Value(e.Channel) == envelopes.ChannelCLI {
				prompt = *e.Text
			}
			add(e, "user_prompt", normalizerstest.Attributes{"prompt": prompt})
		case e.EventType == envelopes.AssistantMessage:
			if text := answers[message]; text != "" {
				if response["response_text"] = text; strings.TrimSpace(sent[message]) != "" {
					response["response_text"] = sent[message]
				}
				answers[message] = ""
			}
		case e.EventType == envelopes.ToolCall && results[value(e.ToolCallID)] && !unfinished[value(e.ToolName)+value(e.Text)]:
			end := normalizerstest.Attributes{
				"function_name": value(e.ToolName), "function_args": strings.Replace(value(e.Text), ":", ": ", 1), "success": true, "decision": "accept", "duration_ms": int64(12),
			}
			if ids {
				end["call_id"] = value(e.ToolCallID)
			}
			add(e, "tool_call", end)
		}
		if len(response) > 0 {
			add(e, "api_response", response)
		}
	}
	return out
}
