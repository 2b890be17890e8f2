package claudetest

import (
	"encoding/json"
	"strconv"
	"strings"

	"tributary/normalizers/normalizerstest"
)

// factNames are the members of metadata with the facts of a record.
var factNames = []string{"hook", "turn", "editedFile", "diagnostics", "tasks", "commandPermissions", "permission", "hasUnknownModelCost"}

// mostListed is how many entries of a list an event has.
const mostListed = 64

// facts returns the facts of a record, by the table of the page.
func facts(v any) map[string]any {
	str := func(names ...string) string { return normalizerstest.Member[string](v, names...) }
	switch str("type") + " " + str("subtype") {
	case "system turn_duration":
		return map[string]any{"turn": stated("durationMs", count(v, "durationMs"), "messageCount", count(v, "messageCount"))}
	case "system permission_denied":
		return map[string]any{"permission": stated("toolCallId", text(v, "tool_use_id"), "decision", "denied")}
	case "system stop_hook_summary":
		hook := stated("preventedContinuation", truth(v, "preventedContinuation"), "stopReason", text(v, "stopReason"))
		if errs, ok := normalizerstest.Member[any](v, "hookErrors").([]any); ok {
			hook["success"] = len(errs) == 0
			var all []string
			for _, e := range errs {
				all = append(all, scalar(e))
			}
			if joined := strings.Join(all, "\n"); joined != "" {
				hook["error"] = joined
			}
		}
		return map[string]any{"hook": hook}
	}
	if str("type") == "cost-state" {
		return stated("hasUnknownModelCost", normalizerstest.Member[any](v, "hasUnknownModelCost"))
	}
	if str("type") != "attachment" {
		return nil
	}
	a := normalizerstest.Member[any](v, "attachment")
	switch str("attachment", "type") {
	case "edited_text_file":
		return map[string]any{"editedFile": stated("path", text(a, "filename"))}
	case "task_reminder":
		items := []any{}
		for _, t := range first(normalizerstest.Member[[]any](a, "content")) {
			items = append(items, stated("id", text(t, "id"), "subject", text(t, "subject"), "status", text(t, "status")))
		}
		out := stated("count", count(a, "itemCount"))
		out["items"] = items
		return map[string]any{"tasks": out}
	case "command_permissions":
		tools := []any{}
		for _, t := range first(normalizerstest.Member[[]any](a, "allowedTools")) {
			name, _ := t.(string)
			tools = append(tools, name)
		}
		return map[string]any{"commandPermissions": map[string]any{"allowedTools": tools}}
	case "diagnostics":
		return map[string]any{"diagnostics": diagnostics(a)}
	}
	return nil
}

// diagnostics returns the diagnostics of an attachment. Their lines count from 1, in the record from 0.
func diagnostics(a any) map[string]any {
	findings, n := []any{}, 0
	for _, f := range normalizerstest.Member[[]any](a, "files") {
		list := normalizerstest.Member[[]any](f, "diagnostics")
		n += len(list)
		for _, d := range list {
			if len(findings) == mostListed {
				break
			}
			one := stated("path", text(f, "uri"), "severity", text(d, "severity"), "message", text(d, "message"), "source", text(d, "source"))
			if code := scalar(normalizerstest.Member[any](d, "code")); code != "" {
				one["code"] = code
			}
			for name, end := range map[string]string{"startLine": "start", "endLine": "end"} {
				if line, err := normalizerstest.Member[json.Number](d, "range", end, "line").Int64(); err == nil {
					one[name] = json.Number(strconv.FormatInt(line+1, 10))
				}
			}
			findings = append(findings, one)
		}
	}
	out := stated("isNew", truth(a, "isNew"))
	out["count"], out["findings"] = json.Number(strconv.Itoa(n)), findings
	return out
}

// stated returns an object of the members that are not nil, from pairs of names and values.
func stated(pairs ...any) map[string]any {
	out := make(map[string]any)
	for i := 0; i < len(pairs); i += 2 {
		if name, ok := pairs[i].(string); ok && pairs[i+1] != nil {
			out[name] = pairs[i+1]
		}
	}
	return out
}

func first(list []any) []any { return list[:min(len(list), mostListed)] }

func text(v any, name string) any {
	if s := normalizerstest.Member[string](v, name); s != "" {
		return s
	}
	return nil
}

func truth(v any, name string) any {
	if b, ok := normalizerstest.Member[any](v, name).(bool); ok {
		return b
	}
	return nil
}

// count returns a number of 0 or more without its fraction.
func count(v any, name string) any {
	n, ok := normalizerstest.Member[any](v, name).(json.Number)
	if !ok || n[0] == '-' {
		return nil
	}
	whole, _, _ := strings.Cut(string(n), ".")
	return json.Number(whole)
}

func scalar(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		return string(v)
	default:
		return ""
	}
}
