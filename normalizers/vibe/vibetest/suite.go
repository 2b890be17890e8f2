// Package vibetest reads and generates logs of Mistral Vibe for the tests.
//
// [Suite] is what the tests of all vendors use.
//
// The invariant: the reader and the generator share no code and no table with the normalizer, so that a mistake in
// one of them shows as a difference.
package vibetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"tributary/envelopes"
	"tributary/normalizers/normalizerstest"
)

// Suite describes Mistral Vibe to the tests of all vendors.
var Suite = normalizerstest.Suite{
	Unknown: []string{
		`{"role": "of_tomorrow", "content": "x", "injected": false, "message_id": "t1"}`,
		`{"injected": true, "message_id": "t2"}`,
		`42`,
	},
	Source:    envelopes.Vibe,
	Room:      "vibe",
	Folders:   []string{"vibe"},
	Apart:     true,
	Lines:     lines,
	Read:      normalizerstest.Values{}.Read,
	Bad:       normalizerstest.Malformed,
	Ledger:    reading.Ledger,
	Interpret: reading.Interpret,
	Raw:       raw,
	VCS: normalizerstest.LastVCS(func(record any, v *envelopes.VCS) {
		if m := stateOf(record); m != nil {
			*v = envelopes.VCS{
				Branch: normalizerstest.StatedBranch(text(m, "git_branch")), Commit: normalizerstest.StatedCommit(text(m, "git_commit")),
			}
		}
	}),
}

var reading = normalizerstest.Reading{
	Session: func(record any) string { return text(record, "metadata", "session_id") },
	Read: func(r *normalizerstest.Reader, v any) {
		for i, m := range list(v, "messages") {
			readMessage(r, m, fmt.Sprint("message ", i))
		}
		if m := stateOf(v); m != nil {
			use(r, m)
		} else {
			readMessage(r, v, "")
		}
		r.Agent = r.Noted("subagent")
	},
}

func text(v any, names ...string) string { return normalizerstest.Member[string](v, names...) }
func list(v any, name string) []any      { return normalizerstest.Member[[]any](v, name) }

// stateOf returns the state of a session in a record; nil for none.
func stateOf(v any) map[string]any {
	if m := normalizerstest.Member[map[string]any](v, "metadata"); m != nil && list(v, "messages") != nil {
		return m
	}
	if text(v, "role") == "" && text(v, "session_id") != "" {
		return normalizerstest.Member[map[string]any](v)
	}
	return nil
}

// raw is the Raw of the suite: an event of a document carries one of its messages, or a state without what may be secret.
func raw(record []byte) func(raw []byte) (ok, known bool) {
	v := normalizerstest.Parse(record)
	state := stateOf(v)
	if state == nil {
		return normalizerstest.NoRaw
	}
	if messages := list(v, "messages"); messages != nil {
		return normalizerstest.PartOf(append(slices.Clone(messages), v))
	}
	return func(raw []byte) (ok, known bool) {
		if len(raw) == 0 || bytes.Contains(raw, []byte(`"$elided"`)) {
			return true, true
		}
		shown, _ := normalizerstest.Plain(raw).(map[string]any)
		for name, m := range shown {
			if name == "config" || name == "system_prompt" || name == "tools_available" || !reflect.DeepEqual(m, state[name]) {
				return false, true
			}
		}
		return shown["session_id"] != nil, true
	}
}

// use notes what the totals of a state have more than those before it.
func use(r *normalizerstest.Reader, m any) {
	count := func(name string) int64 { return normalizerstest.Count(m, "stats", name) }
	if normalizerstest.Member[map[string]any](m, "stats") == nil {
		return
	}
	now := []int64{count("session_prompt_tokens"), min(count("session_cached_tokens"), count("session_prompt_tokens")), count("session_completion_tokens")}
	before := make([]int64, len(now))
	known := json.Unmarshal([]byte(r.Noted("totals")), &before) == nil
	totals, _ := json.Marshal(now)
	r.Note("totals", string(totals))
	if now[0]-now[1] < before[0]-before[1] || now[1] < before[1] || now[2] < before[2] {
		clear(before)
	}
	if !known && text(m, "parent_session_id") != "" {
		return
	}
	r.Use("", normalizerstest.Tokens{
		Input: now[0] - before[0], CacheRead: now[1] - before[1], Output: now[2] - before[2], CacheInInput: true, ReasoningInOutput: true,
	})
}

// readMessage notes what a message states; place is its id if it has none.
func readMessage(r *normalizerstest.Reader, v any, place string) {
	id, content := text(v, "message_id"), text(v, "content")
	if id == "" {
		id = place
	}
	switch text(v, "role") {
	case "user":
		injected := normalizerstest.Member[bool](v, "injected")
		head, task, _ := strings.Cut(content, "\n\n")
		switch {
		case injected:
		case strings.HasPrefix(head, "Scratchpad directory: ") && strings.HasSuffix(head, " without permission prompts."):
			r.Note("subagent", r.Session)
			r.Say("agent", id, task)
		default:
			if r.Say("human", id, content); strings.TrimSpace(content) == "" && list(v, "images") != nil {
				r.Attach(id)
			}
		}
	case "assistant":
		r.Say("assistant", id, content)
		for _, c := range list(v, "tool_calls") {
			r.Call(text(c, "id"), text(c, "function", "name"))
		}
	case "tool":
		call := text(v, "tool_call_id")
		tool := r.Tool(call)
		if tool == "" {
			tool = text(v, "name")
		}
		var code *int64
		rows := strings.Split(content, "\n")
		name := "returncode: "
		if strings.HasPrefix(content, "<tool_error>") {
			name = "Return code: "
			slices.Reverse(rows)
		}
		for _, row := range rows {
			if digits, ok := strings.CutPrefix(row, name); ok && tool == "bash" && !strings.HasPrefix(content, "<user_cancellation>") {
				if n, err := strconv.ParseInt(digits, 10, 64); err == nil {
					code = &n
				}
			}
		}
		r.Result(call, code, "return code")
	}
}
