// Package groktest reads and generates logs of Grok Build for the tests.
//
// [Suite] is what the tests of all vendors use.
//
// The invariant: the reader and the generator share no code and no table with the normalizer, so that a mistake in
// one of them shows as a difference.
package groktest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"tributary/envelopes"
	"tributary/normalizers/normalizerstest"
)

// Suite describes Grok Build to the tests of all vendors.
var Suite = normalizerstest.Suite{
	Unknown: []string{
		`{"type":"of_tomorrow","content":"x"}`,
		`{"timestamp":1773072000,"method":"_x.ai/session/update","params":{"sessionId":"$SESSION","update":{"sessionUpdate":"of_tomorrow"}}}`,
		`42`,
	},
	Source:    envelopes.Grok,
	Room:      "grok",
	Folders:   []string{"grok"},
	Apart:     true,
	Lines:     lines,
	Read:      normalizerstest.Values{}.Read,
	Bad:       normalizerstest.Malformed,
	Ledger:    reading.Ledger,
	Interpret: reading.Interpret,
	VCS:       normalizerstest.LastVCS(checkout),
}

var reading = normalizerstest.Reading{
	Session: func(v any) string {
		return cmp.Or(text(v, "info", "id"), text(v, "params", "sessionId"), text(v, "sessionId"))
	},
	Read: func(r *normalizerstest.Reader, v any) {
		switch {
		case text(v, "info", "id") != "":
		case text(v, "params", "update", "sessionUpdate") != "":
			readUpdate(r, normalizerstest.Member[any](v, "params"))
		case text(v, "update", "sessionUpdate") != "":
			readUpdate(r, v)
		default:
			readLine(r, v)
		}
	},
}

func text(v any, names ...string) string { return normalizerstest.Member[string](v, names...) }
func list(v any, names ...string) []any  { return normalizerstest.Member[[]any](v, names...) }

// checkout sets what a summary of a session states of its working tree.
func checkout(record any, v *envelopes.VCS) {
	if text(record, "info", "id") == "" {
		return
	}
	*v = envelopes.VCS{Branch: normalizerstest.StatedBranch(text(record, "head_branch")), Commit: normalizerstest.StatedCommit(text(record, "head_commit"))}
	if remotes := list(record, "git_remotes"); len(remotes) > 0 {
		remote, _ := remotes[0].(string)
		v.Repository = normalizerstest.StatedRepository(remote)
	}
}

// readUpdate notes the tokens of a prompt.
func readUpdate(r *normalizerstest.Reader, v any) {
	if event := text(v, "_meta", "eventId"); strings.Contains(event, "-") && !strings.HasPrefix(event, text(v, "sessionId")+"-") {
		r.Copied = true
	}
	u := normalizerstest.Member[map[string]any](v, "update", "usage")
	if u == nil || text(v, "update", "sessionUpdate") != "turn_completed" {
		return
	}
	count := func(name string) int64 { return normalizerstest.Count(u, name) }
	ticks, _ := normalizerstest.Member[json.Number](u, "costUsdTicks").Float64()
	t := normalizerstest.Tokens{Input: count("inputTokens"), Output: count("outputTokens"), CacheInInput: true, ReasoningInOutput: true, Cost: normalizerstest.CostOf(ticks / 1e10)}
	t.CacheRead = min(count("cachedReadTokens"), t.Input)
	t.CacheWrite = min(count("cacheCreationTokens"), t.Input-t.CacheRead)
	t.Reasoning = min(count("reasoningTokens"), t.Output)
	r.Use(text(v, "update", "prompt_id"), t)
}

// contentOf returns the texts of a content, whether it has any, and whether it has an image.
func contentOf(v any) (body string, parts, image bool) {
	if s, ok := v.(string); ok {
		return s, true, false
	}
	var texts []string
	all, _ := v.([]any)
	for _, p := range all {
		if text(p, "type") == "image" {
			image = true
			continue
		}
		texts = append(texts, text(p, "text"))
	}
	return strings.Join(texts, "\n"), texts != nil, image
}

// readLine notes what a line of a chat history states. Its key is its content, and the key of the line before it.
func readLine(r *normalizerstest.Reader, v any) {
	body, parts, image := contentOf(normalizerstest.Member[any](v, "content"))
	keyOf := func(after string, content ...any) string {
		key := after + "\n" + fmt.Sprintf("%q", content)
		r.Note("line", key)
		return key
	}
	switch cmp.Or(text(v, "type"), text(v, "role")) {
	case "system":
		keyOf("", "system", body)
	case "user":
		reason, after := text(v, "synthetic_reason"), r.Noted("line")
		index := normalizerstest.Member[any](v, "prompt_index")
		if reason == "" && index != nil {
			after = ""
		}
		key := keyOf(after, "user", reason, index, body)
		switch {
		case image && strings.TrimSpace(body) == "":
			r.Attach(key)
		case reason == "" || reason == "interjection":
			r.Say("human", key, typed(body))
		}
	case "reasoning":
		if !parts {
			body, _, _ = contentOf(normalizerstest.Member[any](v, "summary"))
		}
		keyOf(r.Noted("line"), "reasoning", body)
	case "assistant":
		content := []any{"assistant", body}
		for _, c := range list(v, "tool_calls") {
			content = append(content, text(c, "id"))
		}
		r.Say("assistant", keyOf(r.Noted("line"), content...), body)
		for _, c := range list(v, "tool_calls") {
			r.Call(text(c, "id"), cmp.Or(text(c, "name"), text(c, "function", "name")))
		}
	case "tool_result", "tool":
		id := text(v, "tool_call_id")
		r.Result(id, exitOf(r.Tool(id), body), "exit")
	case "backend_tool_call":
		id := text(v, "kind", "id")
		r.Call(id, cmp.Or(text(v, "kind", "name"), text(v, "kind", "tool_type")))
		r.Result(id, nil, "")
	}
}

// first is the first line of the result of a shell.
var first = regexp.MustCompile(`^(exit|Exit code): (-?[0-9]{1,10})($| .*)`)

// exitOf returns the exit code that the result of a tool states.
func exitOf(tool, body string) *int64 {
	line, _, _ := strings.Cut(body, "\n")
	found := first.FindStringSubmatch(strings.TrimSuffix(line, "\r"))
	if found == nil || tool != "bash" && tool != "run_terminal_cmd" || found[1] == "exit" && found[3] != "" && !strings.HasPrefix(found[3], " [") {
		return nil
	}
	code, err := strconv.ParseInt(found[2], 10, 64)
	if err != nil {
		return nil
	}
	return &code
}

// typed returns what a human typed, without what Grok put around it.
func typed(body string) string {
	if _, rest, ok := strings.Cut(body, "<user_query>"); ok {
		if at := strings.LastIndex(rest, "</user_query>"); at >= 0 {
			return rest[:at]
		}
	}
	for cut := true; cut; {
		cut = false
		for _, name := range []string{"user_info", "git_status", "system-reminder", "agent_skills", "mcp_servers", "project_layout"} {
			if rest, ok := strings.CutPrefix(strings.TrimSpace(body), "<"+name+">"); ok {
				if _, after, closed := strings.Cut(rest, "</"+name+">"); closed {
					body, cut = after, true
				}
			}
		}
	}
	return body
}
