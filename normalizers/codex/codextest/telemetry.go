package codextest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"pgregory.net/rapid"

	"tributary/normalizers/normalizerstest"
)

// exported is the Kind of what Codex exports by OpenTelemetry.
const exported = "exported"

// attributesOf returns the attributes of a log record that is exported; nil for any other record.
func attributesOf(v any) map[string]any {
	resources, _ := normalizerstest.Member[any](v, "resourceLogs").([]any)
	for _, r := range resources {
		scopes, _ := normalizerstest.Member[any](r, "scopeLogs").([]any)
		for _, s := range scopes {
			logs, _ := normalizerstest.Member[any](s, "logRecords").([]any)
			for _, l := range logs {
				out := make(map[string]any)
				list, _ := normalizerstest.Member[any](l, "attributes").([]any)
				for _, a := range list {
					for of, value := range normalizerstest.Member[map[string]any](a, "value") {
						if of == "intValue" {
							value = json.Number(cmp.Or(normalizerstest.Member[string](map[string]any{of: value}, of), string(normalizerstest.Member[json.Number](map[string]any{of: value}, of))))
						}
						out[normalizerstest.Member[string](a, "key")] = value
					}
				}
				return out
			}
		}
	}
	return nil
}

// Rollout returns the lines of a rollout without what Codex exports by OpenTelemetry.
func Rollout(lines [][]byte) [][]byte {
	return slices.DeleteFunc(slices.Clone(lines), func(l []byte) bool { return bytes.Contains(l, []byte(`"resourceLogs"`)) })
}

// exportedUsage returns the tokens of a response that the telemetry states.
func exportedUsage(r Raw) (use codexUsage, ok bool) {
	ok = r.of == "codex.sse_event" && normalizerstest.Member[string](r.item, "event.kind") == "response.completed" && normalizerstest.Member[string](r.item, "error.message") == ""
	number := func(name string) int64 {
		n := normalizerstest.Member[json.Number](r.item, name)
		if text := normalizerstest.Member[string](r.item, name); text != "" {
			n = json.Number(text)
		}
		v, _ := n.Int64()
		return v
	}
	use = codexUsage{input: number("input_token_count"), cached: number("cached_token_count"), written: number("cache_write_token_count"), output: number("output_token_count"), reasoning: number("reasoning_token_count")}
	return use, ok && min(use.input, use.cached, use.written, use.output, use.reasoning) >= 0
}

// addExported adds the prompts that the telemetry states more often than the rollout, and the answers that only it has.
func addExported(talk []normalizerstest.Utterance, session string, records []Raw) []normalizerstest.Utterance {
	left := make(map[string]int) // statements of the rollout, by text
	bare := func(text string) string { return strings.Join(strings.Fields(text), "") }
	for _, u := range talk {
		if u.Who == "human" || u.Who == "agent" {
			left[bare(u.Text)]++
			left["[REDACTED]"]++
		}
	}
	add := func(r Raw, who, text string) {
		at := slices.IndexFunc(talk, func(u normalizerstest.Utterance) bool { return u.Line > r.Number })
		if at < 0 {
			at = len(talk)
		}
		talk = slices.Insert(talk, at, normalizerstest.Utterance{Session: session, Who: who, Text: strings.TrimSpace(text), Line: r.Number})
	}
	for _, r := range records {
		switch str := func(name string) string { return normalizerstest.Member[string](r.item, name) }; {
		case r.Kind != exported:
		case r.of == "codex.user_prompt":
			text, human := codexTyped([]string{str("prompt")}, true, "")
			if left[bare(text)]--; left[bare(text)] < 0 && human {
				add(r, "human", strings.Replace(text, "[REDACTED]", "", 1))
			}
		case r.of == "codex.agent_response" && !normalizerstest.Member[bool](r.item, "response_truncated"):
			if !slices.ContainsFunc(records, func(o Raw) bool {
				return o.Kind == "response_item" && normalizerstest.Member[string](o.item, "id") == str("item.id")
			}) {
				add(r, "assistant", str("response"))
			}
		}
	}
	return talk
}

// withExported adds the calls and results that the telemetry states, in the order of at.
func withExported(tools []*Tool, records []Raw, at func(*Tool) int) []*Tool {
	known := len(tools)
	for i, r := range records {
		if id := normalizerstest.Member[string](r.item, "call_id"); r.Kind == exported && r.of == "codex.tool_result" && id != "" {
			tools = append(tools, &Tool{ID: id, Name: normalizerstest.Member[string](r.item, "tool_name"), Call: i, Result: i})
		}
	}
	if len(tools) > known {
		slices.SortStableFunc(tools, func(a, b *Tool) int { return cmp.Compare(at(a), at(b)) })
	}
	return tools
}

// export writes what Codex exports by OpenTelemetry.
func (s *codexScript) export() {
	a := normalizerstest.Attributes{"conversation.id": s.Session, "event.timestamp": s.stamp(), "model": "gpt-5.2-codex"}
	count := func(name string) {
		a[name] = strconv.Itoa(rapid.SampledFrom([]int{0, 7, 120, 3000}).Draw(s.T, name))
	}
	name := s.OneOf("user_prompt", "sse_event", "tool_result", "tool_decision", "api_request", "agent_response", "of_tomorrow")
	a["event.name"] = "codex." + name
	switch name {
	case "user_prompt":
		a["prompt"] = s.OneOf(s.phrase(), "[REDACTED]")
	case "sse_event":
		a["event.kind"] = s.OneOf("response.completed", "response.completed", "response.created")
		for _, of := range []string{"input", "output", "cached", "reasoning", "cache_write"} {
			count(of + "_token_count")
		}
	case "tool_result":
		a["call_id"], a["tool_name"], a["success"], a["arguments"] = s.take(), "exec_command", s.OneOf("true", "false"), `{"cmd":"ls"}`
		count("duration_ms")
	case "tool_decision":
		a["call_id"], a["tool_name"], a["decision"], a["source"] = s.take(), "exec_command", s.OneOf("approved", "denied"), "User"
	case "api_request":
		a["error.message"] = s.OneOf("", "rate limit")
	case "agent_response":
		a["item.id"], a["response"], a["response_truncated"] = s.id("message"), s.phrase(), s.Chance(20)
	}
	s.Lines = append(s.Lines, normalizerstest.ExportedLog("codex_exec", "codex_otel.log_only", time.Time{}, a))
}
