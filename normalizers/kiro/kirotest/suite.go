// Package kirotest reads and generates logs of Kiro CLI, and conversations of Amazon Q, for the tests.
//
// [Suite] is what the tests of all vendors use.
//
// The invariant: the reader and the generator share no code and no table with the normalizer, so that a mistake in
// one of them shows as a difference.
package kirotest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"tributary/envelopes"
	"tributary/normalizers/normalizerstest"
)

// Suite describes Kiro CLI to the tests of all vendors.
var Suite = normalizerstest.Suite{
	Unknown: []string{
		`{"version":"v1","kind":"of_tomorrow","data":{"message_id":"t1","content":[{"kind":"text","data":"x"}]}}`,
		`{"version":"v1","kind":"Tomorrow","data":null}`,
		`{"id":"t9","timestamp":"$TIME","payload":{"type":"of_tomorrow","content":"x"}}`,
		`42`,
	},
	Source:    envelopes.Kiro,
	Room:      "kiro",
	Folders:   []string{"kiro"},
	Apart:     true,
	Lines:     lines,
	Read:      normalizerstest.Values{}.Read,
	Bad:       normalizerstest.Malformed,
	Ledger:    reading.Ledger,
	Interpret: reading.Interpret,
	Raw:       normalizerstest.RawOf(parts),
}

var reading = normalizerstest.Reading{
	Session: func(record any) string {
		switch {
		case isState(record):
			return text(record, "session_id")
		case isConversation(record):
			return text(record, "conversation_id")
		case isSummary(record):
			return text(record, "id")
		default:
			return ""
		}
	},
	Read: func(r *normalizerstest.Reader, v any) {
		switch {
		case isState(v):
			readState(r, v)
		case isConversation(v):
			for _, e := range parts(v) {
				readEntry(r, e)
			}
		case normalizerstest.Member[map[string]any](v, "payload") != nil:
			readEvent(r, v)
		case isSummary(v):
		default:
			readLine(r, v)
		}
	},
}

func text(v any, names ...string) string { return normalizerstest.Member[string](v, names...) }
func list(v any, names ...string) []any  { return normalizerstest.Member[[]any](v, names...) }

func isState(v any) bool {
	return text(v, "session_id") != "" && normalizerstest.Member[map[string]any](v, "session_state") != nil
}

func isConversation(v any) bool { return text(v, "conversation_id") != "" && list(v, "history") != nil }

// isSummary recognizes what lies beside the events of a session.
func isSummary(v any) bool { return text(v, "id") != "" && list(v, "workspacePaths") != nil }

// parts are the elements of a document.
func parts(v any) []any {
	if isState(v) {
		return list(v, "session_state", "conversation_metadata", "user_turn_metadatas")
	}
	return slices.Concat(list(v, "tangent_state", "main_history"), list(v, "history"))
}

// readState notes what the turns of a state cost, and when the session began.
func readState(r *normalizerstest.Reader, v any) {
	if at := text(v, "created_at"); at != "" {
		r.Note("created", at)
	}
	for _, turn := range parts(v) {
		count := func(name string) int64 { return normalizerstest.Count(turn, name) }
		first := ""
		if ids := list(turn, "message_ids"); len(ids) > 0 {
			first, _ = ids[0].(string)
		}
		r.Use(first+" of "+string(normalizerstest.Member[json.Number](turn, "loop_id", "rand")), normalizerstest.Tokens{
			Input: count("input_token_count"), Output: count("output_token_count"),
			CacheRead: count("cache_read_input_token_count"), CacheWrite: count("cache_write_input_token_count"),
		})
	}
}

// readLine notes what a line states.
func readLine(r *normalizerstest.Reader, v any) {
	id := text(v, "data", "message_id")
	if seconds, err := normalizerstest.Member[json.Number](v, "data", "meta", "timestamp").Int64(); err == nil && seconds > 0 {
		created, err := time.Parse(time.RFC3339, r.Noted("created"))
		r.Note("old", strconv.FormatBool(err == nil && seconds < created.Unix()))
	}
	r.Copied = r.Noted("old") == "true"
	switch text(v, "kind") {
	case "Prompt":
		var texts []string
		image := false
		for _, b := range list(v, "data", "content") {
			if text(b, "kind") == "text" {
				texts = append(texts, text(b, "data"))
			}
			image = image || text(b, "kind") == "image"
		}
		body := strings.Join(texts, "\n")
		if r.Say("human", id, body); image && strings.TrimSpace(body) == "" {
			r.Attach(id)
		}
	case "AssistantMessage":
		for i, b := range list(v, "data", "content") {
			switch text(b, "kind") {
			case "text":
				r.Say("assistant", fmt.Sprint(id, " ", i), text(b, "data"))
			case "toolUse":
				r.Call(text(b, "data", "toolUseId"), text(b, "data", "name"))
			}
		}
	case "ToolResults":
		for _, b := range list(v, "data", "content") {
			if text(b, "kind") != "toolResult" {
				continue
			}
			var code *int64
			for _, part := range list(b, "data", "content") {
				if text(part, "kind") == "json" {
					code = cmp.Or(exitCode(normalizerstest.Member[any](part, "data")), code)
				}
			}
			r.Result(text(b, "data", "toolUseId"), code, "exit_status")
		}
	}
}

// exitCode returns the exit code in the output of a shell; nil for none.
func exitCode(v any) *int64 {
	if m, ok := v.(map[string]any); !ok || m["stdout"] == nil && m["stderr"] == nil {
		return nil
	}
	words := strings.Fields(text(v, "exit_status"))
	if len(words) != 1 && (len(words) != 3 || words[0] != "exit") {
		return nil
	}
	code, err := strconv.ParseInt(words[len(words)-1], 10, 64)
	if err != nil {
		return nil
	}
	return &code
}

// readEvent notes what an event of Kiro IDE states.
func readEvent(r *normalizerstest.Reader, v any) {
	id, call := text(v, "id"), text(v, "payload", "toolCallId")
	content := text(v, "payload", "content")
	var texts []string
	for _, b := range list(v, "payload", "content") {
		if text(b, "type") == "text" {
			texts = append(texts, text(b, "text"))
		}
	}
	content += strings.Join(texts, "\n")
	switch text(v, "payload", "type") {
	case "user":
		if r.Say("human", id, content); strings.TrimSpace(content) == "" && len(list(v, "payload", "images"))+len(list(v, "payload", "documents")) > 0 {
			r.Attach(id)
		}
	case "assistant":
		if kind := text(v, "payload", "operationType"); kind != "Reasoning" && kind != "Summary" {
			r.Say("assistant", id, content)
		}
	case "tool_call":
		r.Call(call, text(v, "payload", "toolName"))
	case "tool_result":
		var code *int64
		tool := r.Tool(call)
		isShell := slices.Contains([]string{"execute_bash", "execute_pwsh", "execute_cmd", "shell"}, tool)
		content = strings.TrimSpace(content)
		last := content[strings.LastIndex(content, "\n")+1:]
		if number, ok := strings.CutPrefix(last, "Exit Code: "); ok && isShell && number != "-1" {
			if n, err := strconv.ParseInt(number, 10, 64); err == nil {
				code = &n
			}
		}
		r.Result(call, code, "Exit Code: ")
	}
}

// readEntry notes an entry of a conversation of Amazon Q.
func readEntry(r *normalizerstest.Reader, v any) {
	user, assistant := normalizerstest.Member[any](v, "user"), normalizerstest.Member[any](v, "assistant")
	if pair, ok := v.([]any); ok && len(pair) > 1 {
		user, assistant = pair[0], pair[1]
	}
	id := cmp.Or(text(assistant, "ToolUse", "message_id"), text(assistant, "Response", "message_id"), text(v, "request_metadata", "message_id"), fmt.Sprint(v))
	for _, kind := range []string{"Prompt", "ToolUseResults", "CancelledToolUses"} {
		for _, result := range list(user, "content", kind, "tool_use_results") {
			var code *int64
			for _, part := range list(result, "content") {
				code = cmp.Or(exitCode(normalizerstest.Member[any](part, "Json")), code)
			}
			r.Result(text(result, "tool_use_id"), code, "exit_status")
		}
		r.Say("human", id+" prompt", text(user, "content", kind, "prompt"))
	}
	for _, kind := range []string{"ToolUse", "Response"} {
		r.Say("assistant", id, text(assistant, kind, "content"))
		for _, use := range list(assistant, kind, "tool_uses") {
			r.Call(text(use, "id"), text(use, "name"))
		}
	}
}
