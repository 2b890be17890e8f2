package codextest

import (
	"fmt"

	"pgregory.net/rapid"
)

// execStream writes the stream of codex exec --json.
func (s *codexScript) execStream() [][]byte {
	if s.Chance(90) {
		s.Emit(map[string]any{"type": "thread.started", "thread_id": s.Session})
	}
	for range rapid.IntRange(1, 3).Draw(s.T, "turns") {
		s.Emit(map[string]any{"type": "turn.started"})
		for i := range rapid.IntRange(0, 6).Draw(s.T, "items") {
			item := map[string]any{"id": fmt.Sprintf("item_%d", i)}
			switch s.OneOf("agent_message", "reasoning", "command_execution", "file_change", "mcp_tool_call", "web_search", "todo_list", "error", "of_tomorrow") {
			case "agent_message":
				item["type"], item["text"] = "agent_message", s.phrase()
			case "reasoning":
				item["type"], item["text"] = "reasoning", s.phrase()
			case "command_execution":
				item["type"], item["command"], item["aggregated_output"], item["exit_code"], item["status"] = "command_execution", "ls", "x", rapid.IntRange(0, 2).Draw(s.T, "code"), "completed"
			case "file_change":
				item["type"], item["changes"], item["status"] = "file_change", []any{map[string]any{"path": "/a.go", "kind": "add"}}, "completed"
			case "mcp_tool_call":
				item["type"], item["server"], item["tool"], item["arguments"], item["status"] = "mcp_tool_call", "docs", "find", map[string]any{}, "completed"
				item["result"] = map[string]any{"content": s.texts("text", "found")}
			case "web_search":
				item["type"], item["query"] = "web_search", "go"
			case "todo_list":
				item["type"], item["items"] = "todo_list", []any{}
			case "error":
				item["type"], item["message"] = "error", "gone"
			case "of_tomorrow":
				item["type"] = "of_tomorrow"
			}
			if s.Chance(50) {
				s.Emit(map[string]any{"type": "item.started", "item": item})
			}
			if s.Chance(20) {
				s.Emit(map[string]any{"type": "item.updated", "item": item})
			}
			if s.Chance(10) {
				s.Emit(map[string]any{"type": "item.plan.delta", "item_id": item["id"], "delta": "1. "})
			}
			s.Emit(map[string]any{"type": "item.completed", "item": item})
		}
		s.total[0] += rapid.IntRange(0, 900).Draw(s.T, "in")
		s.total[1] = rapid.IntRange(s.total[1], s.total[0]).Draw(s.T, "cached")
		s.total[3] += rapid.IntRange(0, 90).Draw(s.T, "out")
		if s.Chance(10) {
			s.Emit(map[string]any{"type": "turn.failed", "error": map[string]any{"message": "no"}})
			continue
		}
		s.Emit(map[string]any{"type": "turn.completed", "usage": map[string]any{"input_tokens": s.total[0], "cached_input_tokens": s.total[1], "output_tokens": s.total[3]}})
	}
	return s.Lines
}
