// Package droidtest reads and generates logs of Droid for the tests.
//
// [Suite] is what the tests of all vendors use.
//
// The invariant: the reader and the generator share no code and no table with the normalizer, so that a mistake in
// one of them shows as a difference.
package droidtest

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

// Suite describes Droid to the tests of all vendors.
var Suite = normalizerstest.Suite{
	Unknown: []string{
		`{"type":"of_tomorrow","id":"t1","sessionId":"$SESSION","timestamp":"$TIME","x":1}`,
		`{"type":"message","id":"t2","timestamp":"$TIME","message":{"role":"of_tomorrow","content":"x"}}`,
		`42`,
	},
	Source:     envelopes.Droid,
	Room:       "droid",
	Folders:    []string{"droid"},
	Apart:      true,
	StatedOnce: true,
	Lines:      lines,
	Read:       normalizerstest.ReadLines,
	Bad:        normalizerstest.Malformed,
	Ledger:     reading.Ledger,
	Interpret:  reading.Interpret,
}

var (
	text   = normalizerstest.Member[string]
	list   = normalizerstest.Member[[]any]
	member = normalizerstest.Member[any]
)

var reading = normalizerstest.Reading{
	Session: func(v any) string {
		if text(v, "type") == "session_start" {
			return cmp.Or(text(v, "session", "id"), text(v, "id"))
		}
		return cmp.Or(text(v, "sessionId"), text(v, "session_id"))
	},
	Read: read,
}

// read notes the statements of a record.
func read(r *normalizerstest.Reader, v any) {
	switch text(v, "type") {
	case "session_start":
		r.Note("called", text(v, "callingSessionId"))
	case "message":
		m, ok := member(v, "message").(map[string]any)
		if !ok {
			m = map[string]any{"role": text(v, "role"), "content": cmp.Or[any](member(v, "content"), text(v, "text"))}
		}
		message(r, text(v, "id"), m)
	case "tool_call":
		r.Call(cmp.Or(text(v, "toolCallId"), text(v, "id")), cmp.Or(text(v, "toolName"), text(v, "toolId")))
	case "tool_result":
		value(r, v)
	case "session_end", "completion", "result":
		end(r, v)
	case "":
		settings(r, member(v, "tokenUsage"))
	}
}

// message notes a message by its role.
func message(r *normalizerstest.Reader, id string, m any) {
	content := list(m, "content")
	if body := text(m, "content"); body != "" {
		content = []any{map[string]any{"type": "text", "text": body}}
	}
	if text(m, "visibility") != "" {
		return
	}
	var prompts []string
	var image bool
	for i, p := range content {
		switch kind := text(p, "type"); {
		case kind == "tool_result":
			result(r, text(p, "tool_use_id"), "", normalizerstest.Texts(member(p, "content")))
		case kind == "tool_use":
			r.Call(text(p, "id"), text(p, "name"))
		case kind == "image":
			image = true
		case kind == "text" && text(m, "role") == "assistant":
			r.Note("answer", "x"+strings.TrimSpace(text(p, "text")))
			r.Say("assistant", fmt.Sprint(id, " ", i), text(p, "text"))
		case kind == "text":
			if rest := typed(text(p, "text")); strings.TrimSpace(rest) != "" {
				prompts = append(prompts, rest)
			}
		}
	}
	who, all := "human", strings.Join(prompts, "\n")
	if r.Noted("called") != "" || strings.HasPrefix(all, "# Task Tool Invocation") {
		who = "agent"
	}
	switch {
	case text(m, "role") != "user":
	case prompts == nil && image:
		r.Attach(id)
	default:
		r.Say(who, id, all)
	}
}

// typed returns a text without the reminders before it.
func typed(body string) string {
	rest, ok := strings.CutPrefix(strings.TrimSpace(body), "<system-reminder>")
	if !ok {
		return body
	}
	_, rest, ok = strings.Cut(rest, "</system-reminder>")
	if !ok {
		return body
	}
	return typed(strings.TrimSpace(rest))
}

var exitLine = regexp.MustCompile(`^Error: Command failed \(exit code: (-?[0-9]+)\)`)

// result notes a result with the exit code that its first line states.
func result(r *normalizerstest.Reader, call, name, stating string) {
	var code *int64
	if cmp.Or(r.Tool(call), name) == "Execute" {
		code = normalizerstest.CodeIn(exitLine, stating)
	}
	r.Result(call, code, "Error: Command failed")
}

// value notes the result of a call in a run.
func value(r *normalizerstest.Reader, v any) {
	call := cmp.Or(text(v, "toolCallId"), text(v, "id"))
	code, ok := member(v, "value", "exitCode").(json.Number)
	if n, err := code.Int64(); ok && err == nil {
		r.Result(call, &n, "exitCode")
		return
	}
	result(r, call, cmp.Or(text(v, "toolName"), text(v, "toolId")), text(v, "value"))
}

// end notes the text of the end, unless it repeats the last answer, and the tokens of a run, unless settings state them.
func end(r *normalizerstest.Reader, v any) {
	final := cmp.Or(text(v, "finalText"), text(v, "result"))
	if r.Noted("answer") != "x"+strings.TrimSpace(final) {
		r.Say("assistant", "", final) // each run may have the same id
	}
	r.Note("answer", "")
	if text(v, "type") != "completion" || r.Noted("settled") != "" {
		return
	}
	var counts [5]int64
	for i, name := range []string{"input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens"} {
		counts[i], _ = normalizerstest.Member[json.Number](v, "usage", name).Int64()
		r.Note(fields[i], strconv.FormatInt(noted(r, i)+counts[i], 10))
	}
	use(r, counts)
}

// fields are the counts of a session in the order of an array of counts.
var fields = []string{"inputTokens", "cacheReadTokens", "cacheCreationTokens", "outputTokens", "thinkingTokens"}

func noted(r *normalizerstest.Reader, i int) int64 {
	n, _ := strconv.ParseInt(r.Noted(fields[i]), 10, 64)
	return n
}

// settings notes by how much the counts of a session have grown.
func settings(r *normalizerstest.Reader, usage any) {
	if usage == nil {
		return
	}
	var grown [5]int64
	for i, name := range fields {
		n, _ := normalizerstest.Member[json.Number](usage, name).Int64()
		grown[i] = max(0, n-noted(r, i))
		r.Note(name, strconv.FormatInt(n, 10))
	}
	r.Note("settled", "x")
	use(r, grown)
}

func use(r *normalizerstest.Reader, n [5]int64) {
	if n != [5]int64{} {
		r.Use("", normalizerstest.Tokens{Input: n[0], CacheRead: n[1], CacheWrite: n[2], Output: n[3], Reasoning: n[4]})
	}
}
