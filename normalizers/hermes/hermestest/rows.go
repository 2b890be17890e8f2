package hermestest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"tributary/normalizers/normalizerstest"
)

// formOf returns where a record of a known type comes from: log or rows. The form of the first record of a session
// counts.
func formOf(v any) string {
	isKnown := func(m any) bool {
		return slices.Contains([]string{"user", "assistant", "tool", "system", "session_meta"}, text(m, "role"))
	}
	row := normalizerstest.Member[any](v, "row")
	switch {
	case text(v, "table") == "sessions" && text(row, "source") != "", text(v, "table") == "messages" && isKnown(row):
		return "rows"
	case row == nil && (isSaved(v) || isKnown(v)):
		return "log"
	default:
		return ""
	}
}

func number(v any, name string) int64 { return normalizerstest.Count(v, name) }

func fraction(v any, name string) (float64, bool) {
	n, err := normalizerstest.Member[json.Number](v, name).Float64()
	return n, err == nil
}

// readRow notes what a row of a known type states.
func readRow(r *normalizerstest.Reader, table string, row map[string]any, base string) {
	switch table {
	case "sessions":
		if row["source"] == "subagent" || normalizerstest.Member[any](row, "model_config", "_delegate_from") != nil {
			r.Note("child", "yes")
		}
		if r.Noted("child") != "" {
			r.Agent = r.Session
		}
		if started, _ := fraction(row, "started_at"); text(row, "parent_session_id") != "" {
			r.Note("started", fmt.Sprint(started))
		}
		t := normalizerstest.Tokens{
			Input: number(row, "input_tokens"), Output: number(row, "output_tokens"), CacheRead: number(row, "cache_read_tokens"),
			CacheWrite: number(row, "cache_write_tokens"), Reasoning: number(row, "reasoning_tokens"), ReasoningInOutput: true,
		}
		dollars, ok := fraction(row, "actual_cost_usd")
		if !ok {
			dollars, _ = fraction(row, "estimated_cost_usd")
		}
		if text(row, "cost_status") != "included" {
			t.Cost = normalizerstest.CostOf(dollars)
		}
		r.Use("session", t)
	case "messages":
		if formOf(map[string]any{"table": table, "row": row}) == "" || fmt.Sprint(row["active"]) == "0" && fmt.Sprint(row["compacted"]) != "1" {
			return
		}
		if r.Noted("child") != "" {
			r.Agent = r.Session
		}
		begun, err := strconv.ParseFloat(r.Noted("started"), 64)
		at, ok := fraction(row, "timestamp")
		r.Copied = err == nil && ok && at < begun
		key := fmt.Sprint("row ", row["role"], row["content"], row["timestamp"], row["tool_call_id"], row["tool_calls"], row["tool_name"])
		readMessage(r, row, key, base)
	}
}
