package codextest

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"tributary/normalizers/normalizerstest"
)

// codexUsage has the figures of a usage as Codex states them.
type codexUsage struct{ input, cached, written, output, reasoning int64 }

func codexUsageOf(v any) codexUsage {
	n := func(names ...string) int64 {
		for _, name := range names {
			f, err := normalizerstest.Member[json.Number](v, name).Float64()
			switch {
			case err != nil:
				continue
			case f < 0 || f > 1<<50:
				return 0 // no count of anything
			}
			return int64(math.Round(f))
		}
		return 0
	}
	return codexUsage{
		n("input_tokens"), n("cached_input_tokens", "cache_read_input_tokens"), n("cache_write_input_tokens"), n("output_tokens"), n("reasoning_output_tokens"),
	}
}

// codexCounts reports whether a usage has input and output, and no count below zero.
func codexCounts(v any) bool {
	for _, name := range []string{"input_tokens", "output_tokens", "cached_input_tokens", "cache_read_input_tokens", "cache_write_input_tokens", "reasoning_output_tokens"} {
		n, stated := normalizerstest.Member[any](v, name).(json.Number)
		f, err := n.Float64()
		if stated && (err != nil || f < 0 || f > 1<<50) || !stated && strings.Count(name, "_") == 1 {
			return false
		}
	}
	return true
}

// counted is what a token_count or a token_usage_record states.
type counted struct{ total, last any }

// readCount reads the info of a token_count, nil if its total is no count.
func readCount(info any) *counted {
	c := &counted{total: normalizerstest.Member[any](info, "total_token_usage"), last: normalizerstest.Member[any](info, "last_token_usage")}
	if !codexCounts(c.last) {
		c.last = nil
	}
	if c.total != nil && !codexCounts(c.total) || c.total == nil && c.last == nil {
		return nil
	}
	return c
}

func usageRecordOf(payload any) *counted {
	c := &counted{total: normalizerstest.Member[any](payload, "thread_token_usage"), last: normalizerstest.Member[any](payload, "usage")}
	if !codexCounts(c.last) {
		c.last = nil
	}
	if !codexCounts(c.total) {
		c.total = nil
	}
	return c
}

func (c *counted) readable() bool { return c.total != nil || c.last != nil }

// figures returns the figures of an event with this usage.
func (u codexUsage) figures() normalizerstest.Figures {
	u.cached = min(u.cached, u.input)
	u.written = min(u.written, u.input-u.cached)
	u.reasoning = min(u.reasoning, u.output)
	return normalizerstest.Figures{
		Input: u.input, Output: u.output, Cached: u.cached, Thinking: u.reasoning, Total: u.input + u.output,
		UsageInput: u.input - u.cached - u.written, CacheRead: u.cached, CacheWrite: u.written,
		UsageOutput: u.output - u.reasoning, UsageReasoning: u.reasoning,
	}
}

// above returns what u has above before, field by field.
func (u codexUsage) above(before codexUsage) codexUsage {
	return codexUsage{
		max(0, u.input-before.input), max(0, u.cached-before.cached), max(0, u.written-before.written),
		max(0, u.output-before.output), max(0, u.reasoning-before.reasoning),
	}
}

// ledger follows the running total of each session (README.md).
type ledger map[string]*codexAccount

type codexAccount struct {
	sum    normalizerstest.Figures
	total  codexUsage
	pairs  map[string]bool // totals and increments, by their session
	of     string          // that session
	before *codexUsage     // the running total before the current review
	forked bool
	meta   string
	copy   codexCopy

	stated [2][4]int64 // by the rollout, and by the telemetry: uncached input, cached input, answers, reasoning
	billed [4]int64    // of each the higher one

	responses map[string]bool
	recorded  codexUsage // by the token_usage_records of the turn
	counted   codexUsage // by its token_counts
}

// Add implements [normalizerstest.Ledger].
func (l ledger) Add(session string, record []byte) {
	a := l[session]
	if a == nil {
		a = &codexAccount{pairs: make(map[string]bool), responses: make(map[string]bool)}
		l[session] = a
	}
	r := codexRawOf(normalizerstest.Line{Data: record})
	copied := a.copy.follow(r)
	if r.Kind == "turn_context" || r.of == "task_started" || r.of == "turn_started" {
		a.recorded, a.counted = codexUsage{}, codexUsage{}
		a.forked = a.forked || copied
	}
	switch {
	case r.Kind == exported:
		if use, ok := exportedUsage(r); ok {
			a.bill(use, 1)
		}
	case r.Kind == "token_usage_record":
		a.record(r.item, copied)
	case r.Kind == "" && r.of == "turn.completed":
		a.grow(codexUsageOf(normalizerstest.Member[any](r.value, "usage")))
	case r.Kind == "session_meta" && copied:
		a.forked = true
	case r.Kind == "session_meta":
		a.begin(r)
	case r.Kind == "event_msg" && r.of == "entered_review_mode" && a.before == nil:
		a.before = new(a.total)
	case r.Kind == "event_msg" && r.of == "exited_review_mode" && a.before != nil:
		if a.total.input+a.total.output < a.before.input+a.before.output {
			a.total = *a.before
		}
		a.before = nil
	case r.Kind == "event_msg" && r.of == "token_count":
		a.count(normalizerstest.Member[any](r.item, "info"), copied)
	case r.Kind == "response_item" && r.isOldOutput():
		a.bill(codexUsageOf(normalizerstest.Member[any](r.item, "info", "last_token_usage")), 0)
	}
}

// bill adds tokens that a channel states: the rollout, 0, or the telemetry, 1. Of each part the session bills the
// higher sum of both.
func (a *codexAccount) bill(use codexUsage, channel int) {
	cached, reasoning := min(use.cached, use.input), min(use.reasoning, use.output)
	parts := [4]int64{use.input - cached, cached, use.output - reasoning, reasoning}
	var left [4]int64
	for i, n := range parts {
		a.stated[channel][i] += n
		now := max(a.stated[0][i], a.stated[1][i])
		left[i], a.billed[i] = now-a.billed[i], now
	}
	if left != parts {
		use = codexUsage{left[0] + left[1], left[1], min(use.written, left[0]), left[2] + left[3], left[3]}
	}
	a.sum.Add(use.figures())
}

// isOldOutput reports whether an item is an output of the oldest rollouts, which state no type.
func (r Raw) isOldOutput() bool {
	return r.of == "" && normalizerstest.Member[string](r.item, "status") != "" &&
		normalizerstest.Member[string](r.item, "role") == "" && normalizerstest.Member[string](r.item, "name") == ""
}

// begin follows a session_meta of the session itself. Another id starts another running total, unless the session
// continues its parent's.
func (a *codexAccount) begin(r Raw) {
	id := normalizerstest.Member[string](r.item, "id")
	start, _ := wholeNumber(normalizerstest.Member[any](r.item, "subagent_history_start_ordinal"))
	based := normalizerstest.Member[string](r.item, "history_base", "thread_id") != ""
	fork := isCodexFork(r) || start > 0 && !based
	a.forked = a.forked || fork || based
	if !fork && id != a.meta {
		a.total, a.of = codexUsage{}, id
	}
	a.meta = id
}

// grow adds what a running total has above the previous one. A lower total starts anew.
func (a *codexAccount) grow(total codexUsage) {
	if total.input+total.output < a.total.input+a.total.output {
		a.total = codexUsage{}
	}
	a.bill(total.above(a.total), 0)
	a.total = total
}

// spend adds what a record states beyond the other kind of records of the turn.
func (a *codexAccount) spend(use codexUsage, mine, other *codexUsage) {
	fresh := use.above(other.above(*mine))
	mine.add(use)
	a.bill(fresh, 0)
}

func (u *codexUsage) add(v codexUsage) {
	*u = codexUsage{u.input + v.input, u.cached + v.cached, u.written + v.written, u.output + v.output, u.reasoning + v.reasoning}
}

// record follows a token_usage_record.
func (a *codexAccount) record(payload any, copied bool) {
	c := usageRecordOf(payload)
	thread := normalizerstest.Member[string](payload, "thread_id")
	if !c.readable() || copied || thread != "" && a.meta != "" && thread != a.meta {
		return
	}
	name := "response " + normalizerstest.Member[string](payload, "response_id")
	if name == "response " {
		name = fmt.Sprint("thread ", thread, c.last != nil, codexUsageOf(c.total), codexUsageOf(c.last))
	}
	known := a.responses[name]
	a.responses[name] = !strings.HasPrefix(name, "thread") || c.total != nil
	switch {
	case known:
	case c.last != nil:
		a.spend(codexUsageOf(c.last), &a.recorded, &a.counted)
	default:
		a.grow(codexUsageOf(c.total))
	}
}

func (a *codexAccount) count(info any, copied bool) {
	c := readCount(info)
	if c == nil {
		return
	}
	hasTotal, hasLast := c.total != nil, c.last != nil
	total, last := codexUsageOf(c.total), codexUsageOf(c.last)
	pair := fmt.Sprint(a.of, hasTotal, total, hasLast, last)
	repeated := a.pairs[pair]
	a.pairs[pair] = true
	before := a.total
	if hasTotal {
		a.total = total
	}
	switch {
	case repeated, copied:
	case a.forked && hasTotal && hasLast && before == (codexUsage{}): // of the parent
		a.spend(last, &a.counted, &a.recorded)
	case hasTotal && (total.input+total.output >= before.input+before.output || !hasLast):
		if total.input+total.output < before.input+before.output {
			before = codexUsage{}
		}
		a.spend(total.above(before), &a.counted, &a.recorded)
	default:
		a.spend(last, &a.counted, &a.recorded)
	}
}

// Sums implements [normalizerstest.Ledger].
func (l ledger) Sums(session string) normalizerstest.Figures {
	if a := l[session]; a != nil {
		return a.sum
	}
	return normalizerstest.Figures{}
}
