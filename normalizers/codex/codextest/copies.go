package codextest

import (
	"fmt"
	"strconv"
	"time"

	"tributary/normalizers/normalizerstest"
)

// codexCopy follows the copied history of another session at the beginning of a fork or a subagent (README.md, Forks
// and subagents).
type codexCopy struct {
	child string // the fork
	now   bool   // the copy continues
	fork  bool   // its own session_meta says that it is a fork, not only a subagent
	meta  string // the last session_meta of a session of this file
	only  bool   // no session_meta of another session precedes that of the fork
	until int64  // ordinal after the copy; 0 if unknown
	ids   bool   // turns state ids
	dates bool   // turns state their beginning
	open  bool   // the copy ends with the next tokens
}

// follow reports whether a record is copied.
func (c *codexCopy) follow(r Raw) bool {
	ordinal, hasOrdinal := wholeNumber(normalizerstest.Member[any](r.value, "ordinal"))
	named := c.now && c.until > 0 && hasOrdinal
	if named && ordinal >= c.until {
		*c = codexCopy{meta: c.meta}
	}
	switch {
	case named:
	case r.Kind == "turn_context", r.of == "task_started", r.of == "turn_started":
		c.turn(r)
	case r.Kind == "token_usage_record" && c.now && normalizerstest.Member[string](r.item, "thread_id") == c.child:
		c.now, c.child = false, ""
	}
	spends := r.Kind == "token_usage_record" && usageRecordOf(r.item).readable() || r.Kind == "event_msg" && r.of == "token_count" && readCount(normalizerstest.Member[any](r.item, "info")) != nil
	if spends && c.open {
		c.now, c.child, c.open = false, "", false
	}
	if r.Kind == "session_meta" {
		return c.session(r)
	}
	return c.now
}

// session notes a session_meta: of a fork, of its parent, or of another session. It reports whether the record is
// copied.
func (c *codexCopy) session(r Raw) bool {
	id := normalizerstest.Member[string](r.item, "id")
	switch {
	case c.now:
		return true
	case c.child != "" && id != "" && id != c.meta:
		c.now = true
		return true
	}
	of := func(path ...string) any { return normalizerstest.Member[any](r.item, path...) }
	until, _ := wholeNumber(of("subagent_history_start_ordinal"))
	base, _ := of("history_base", "thread_id").(string)
	if until == 0 {
		until, _ = wholeNumber(of("history_base", "end_ordinal_exclusive"))
	}
	fork := isCodexFork(r) || base == "" && until > 0
	*c = codexCopy{meta: id, only: c.meta == "" || c.meta == id}
	if fork || normalizerstest.Member[string](r.item, "parent_thread_id") != "" || normalizerstest.Member[string](r.item, "thread_source") == "subagent" {
		c.child, c.until, c.fork = id, until, fork
		c.now = fork && (codexV7.MatchString(id) && !c.only || until > 0)
		minor := 0
		_, _ = fmt.Sscanf(normalizerstest.Member[string](r.item, "cli_version"), "0.%d", &minor) // 0 if it is no version
		c.ids = minor >= 118
	}
	return false
}

// turn notes the beginning of a turn: of the fork, or of its parent.
func (c *codexCopy) turn(r Raw) {
	if c.child == "" || c.only && !c.now {
		c.child = "" // no parent was named, so nothing of it follows
		return
	}
	id := normalizerstest.Member[string](r.item, "turn_id")
	began, dated := wholeNumber(normalizerstest.Member[any](r.item, "started_at"))
	written, err := time.Parse(time.RFC3339, r.Stamped)
	c.open = c.open && c.now
	switch {
	case codexV7.MatchString(id) && codexV7.MatchString(c.child):
		c.ids, c.open = true, false
		c.now = id[:13] < c.child[:13]
	case dated && err == nil && (c.now || c.fork):
		c.dates, c.open = true, false
		c.now = began != written.Unix() && began/1000 != written.Unix() // seconds or milliseconds
	case !c.now, !c.dates && id != "" && r.Kind != "turn_context", !c.dates && id == "" && !c.ids:
		c.now = false
	default:
		c.open = c.open || !c.dates && id != ""
		return
	}
	if !c.now {
		c.child = ""
	}
}

// wholeNumber returns a JSON number or a string of digits.
func wholeNumber(v any) (int64, bool) {
	n, err := strconv.ParseInt(fmt.Sprint(v), 10, 64)
	return n, err == nil
}

// isCodexFork reports whether copied history may follow a session_meta.
func isCodexFork(r Raw) bool {
	base := normalizerstest.Member[string](r.item, "history_base", "thread_id")
	return r.Kind == "session_meta" && (normalizerstest.Member[string](r.item, "forked_from_id") != "" || normalizerstest.Member[any](r.item, "source", "subagent", "thread_spawn") != nil ||
		base != "" && base != normalizerstest.Member[string](r.item, "id"))
}
