package codextest

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"tributary/envelopes"
	"tributary/normalizers/normalizerstest"
)

// Exported returns what Codex would have exported of the session with these events.
func Exported(session string, alone []envelopes.AgentEventV1) (out [][]byte) {
	value := normalizerstest.Value[string]
	add := func(e envelopes.AgentEventV1, name string, a normalizerstest.Attributes) {
		a["event.name"], a["event.timestamp"], a["conversation.id"], a["model"] = name, e.TS, session, cmp.Or(value(e.Model), "gpt-5.2-codex")
		out = append(out, normalizerstest.ExportedLog("codex_exec", "codex_otel.log_only", time.Time{}, a))
	}
	calls, revised, superseded := make(map[string]envelopes.AgentEventV1), make(map[string]bool), make(map[string]bool)
	for _, e := range alone {
		revised[e.Supersedes], revised[e.EventID] = true, revised[e.EventID] || e.Supersedes != ""
		superseded[e.Supersedes] = true
	}
	for _, e := range alone {
		if u := e.Usage; u != nil {
			add(e, "codex.sse_event", normalizerstest.Attributes{
				"event.kind": "response.completed", "cache_write_token_count": strconv.FormatInt(u.CacheWrite, 10), "cached_token_count": strconv.FormatInt(u.CacheRead, 10),
				"input_token_count":  strconv.FormatInt(u.Input+u.CacheRead+u.CacheWrite, 10),
				"output_token_count": strconv.FormatInt(u.Output+u.Reasoning, 10), "reasoning_token_count": u.Reasoning,
			})
		}
		switch {
		case e.EventType == envelopes.UserMessage && e.Origin == "" && !superseded[e.EventID]: // a prompt is exported once
			add(e, "codex.user_prompt", normalizerstest.Attributes{"prompt": value(e.Text)})
		case e.EventType == envelopes.AssistantMessage && strings.HasPrefix(e.EventID, "message_") && !revised[e.EventID]:
			add(e, "codex.agent_response", normalizerstest.Attributes{"item.id": e.EventID, "response": value(e.Text), "response_truncated": false})
		case e.EventType == envelopes.ToolCall && e.ToolCallID != nil:
			calls[*e.ToolCallID] = e
		case e.EventType == envelopes.ToolResult && e.Supersedes == "" && e.ToolCallID != nil:
			call, known := calls[*e.ToolCallID]
			if name := value(e.ToolName); !known || name == "web_search" || name == "image_generation" {
				continue // the rollout lacks the call, or the vendor ran it
			}
			success := normalizerstest.Value(e.ToolStatus) != envelopes.StatusError
			add(e, "codex.tool_result", normalizerstest.Attributes{
				"call_id": *e.ToolCallID, "tool_name": value(e.ToolName), "arguments": value(call.Text), "output": value(e.Text),
				"success": strconv.FormatBool(success), "duration_ms": "12",
			})
			add(e, "codex.tool_decision", normalizerstest.Attributes{"call_id": *e.ToolCallID, "decision": "approved", "source": "User"})
		}
	}
	return out
}
