// Package hermestest reads and generates logs of Hermes for the tests.
//
// [Suite] is what the tests of all vendors use.
//
// The invariant: the reader and the generator share no code and no table with the normalizer, so that a mistake in
// one of them shows as a difference.
package hermestest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"tributary/envelopes"
	"tributary/normalizers/normalizerstest"
)

// Suite describes Hermes to the tests of all vendors.
var Suite = normalizerstest.Suite{
	Unknown: []string{
		`{"role":"of_tomorrow","content":"x","tool_calls":"","tool_call_id":"","tool_name":"","finish_reason":"","timestamp":"$TIME"}`,
		`{"table":"messages","row":{"id":900,"session_id":"$SESSION","role":"of_tomorrow","content":"x","timestamp":1772355600.5,"finish_reason":null}}`,
		`42`,
	},
	Source:    envelopes.Hermes,
	Room:      "hermes",
	Folders:   []string{"hermes"},
	Others:    []string{".db"}, // databases
	Apart:     true,
	Lines:     lines,
	Read:      readFile,
	Bad:       normalizerstest.Malformed,
	Ledger:    reading.Ledger,
	Interpret: reading.Interpret,
	Raw:       raw,
}

var reading = normalizerstest.Reading{
	Session: func(record any) string {
		switch {
		case isSaved(record):
			return text(record, "session_id")
		case text(record, "table") == "sessions":
			return text(record, "row", "id")
		default:
			return text(record, "row", "session_id")
		}
	},
	Read: func(r *normalizerstest.Reader, v any) {
		n, _ := strconv.Atoi(r.Noted("records"))
		r.Note("records", strconv.Itoa(n+1))
		if form := formOf(v); form != "" {
			if r.Noted("form") == "" {
				r.Note("form", form)
			}
			if r.Noted("form") != form {
				return
			}
		}
		if row := normalizerstest.Member[map[string]any](v, "row"); row != nil {
			readRow(r, text(v, "table"), row, fmt.Sprint("@", n+1))
			return
		}
		if !isSaved(v) {
			readMessage(r, v, "", fmt.Sprint("@", n+1))
			return
		}
		for i, m := range list(v, "messages") {
			readMessage(r, m, fmt.Sprint("place ", i), fmt.Sprint("element@", i+1))
		}
	},
}

func text(v any, names ...string) string { return normalizerstest.Member[string](v, names...) }
func list(v any, names ...string) []any  { return normalizerstest.Member[[]any](v, names...) }

// readFile cuts a file into records: a saved session may be one on many lines.
func readFile(data []byte) []normalizerstest.Line {
	if whole := bytes.TrimSpace(data); json.Valid(whole) {
		return []normalizerstest.Line{{Number: 1, Data: whole}}
	}
	return normalizerstest.ReadLines(data)
}

// isSaved reports whether a record is a saved session.
func isSaved(v any) bool { return text(v, "session_start") != "" && list(v, "messages") != nil }

// raw is the Raw of the suite: an event of a saved session carries it or one of its messages.
func raw(record []byte) func(raw []byte) (ok, known bool) {
	v := normalizerstest.Parse(record)
	if !isSaved(v) {
		return normalizerstest.NoRaw
	}
	return normalizerstest.PartOf(append(slices.Clone(list(v, "messages")), normalizerstest.Plain(record)))
}

// machine are signs of a text that was not typed.
var (
	machineKinds = []string{"hidden", "async_delegation_complete", "auto_continue", "internal_notification", "model_switch"}
	machineTexts = []string{"[ASYNC DELEGATION ", "[Continuing toward your standing goal]", "[CONTEXT COMPACTION"}
)

// readMessage notes what a message states: key is its identity, empty for a line, and base the id of its first event.
func readMessage(r *normalizerstest.Reader, m any, key, base string) {
	body, parts, image := contentOf(normalizerstest.Member[any](m, "content"))
	switch text(m, "role") {
	case "user":
		switch compressed := fmt.Sprint(normalizerstest.Member[any](m, "_compressed_summary")); {
		case image && strings.TrimSpace(body) == "":
			r.Attach(key)
		case compressed == "1" || compressed == "true" || slices.Contains(machineKinds, text(m, "display_kind")):
		case slices.ContainsFunc(machineTexts, func(s string) bool { return strings.HasPrefix(body, s) }):
		case r.Agent != "" && (typed(body) == body || !strings.HasPrefix(typed(body), "/")):
			r.Say("agent", key, typed(body))
		default:
			r.Say("human", key, typed(body))
		}
	case "assistant":
		events := 0
		if isRow := strings.HasPrefix(key, "row "); !isRow && thinks(m) {
			events++
		}
		if isRow := strings.HasPrefix(key, "row "); !isRow && strings.TrimSpace(body) != "" {
			events++
		}
		r.Say("assistant", key, body)
		calls := list(m, "tool_calls")
		if calls == nil {
			_ = json.Unmarshal([]byte(text(m, "tool_calls")), &calls) // none if it is not JSON
		}
		for _, c := range calls {
			name := cmp.Or(text(c, "function", "name"), text(c, "name"))
			id := cmp.Or(text(c, "id"), text(c, "call_id"))
			if id == "" {
				if id = base; events > 0 {
					id += fmt.Sprint(".", events)
				}
				events++
				if !strings.Contains(r.Noted("open"), id+" ") {
					r.Note("open", r.Noted("open")+id+" "+name+"\n")
				}
			}
			r.Call(id, name)
		}
	case "tool":
		id, name := text(m, "tool_call_id"), cmp.Or(text(m, "tool_name"), text(m, "name"))
		if id == "" {
			id = oldest(r, name)
		}
		if name = cmp.Or(r.Tool(id), name); !parts || name != "terminal" {
			r.Result(id, nil, "")
			return
		}
		r.Result(id, exitOf(body), "exit_code")
	}
}

// thinks reports whether a message has a thought.
func thinks(m any) bool {
	details, _, _ := contentOf(normalizerstest.Member[any](m, "reasoning_details"))
	return strings.TrimSpace(text(m, "reasoning")+text(m, "reasoning_content")+details) != ""
}

// oldest takes the oldest call without an id that a result of a tool belongs to, else the oldest of all.
func oldest(r *normalizerstest.Reader, tool string) string {
	open := strings.SplitAfter(r.Noted("open"), "\n")
	for _, anyTool := range []bool{false, true} {
		for i, line := range open {
			id, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			if ok && (anyTool || name == tool) {
				r.Note("open", strings.Join(append(open[:i:i], open[i+1:]...), ""))
				return id
			}
		}
	}
	return ""
}

// contentOf returns the texts of a content, whether it has any, and whether it has an image.
func contentOf(v any) (body string, parts, image bool) {
	if s, ok := v.(string); ok {
		rest, marked := strings.CutPrefix(strings.Replace(s, "\x01json:", "\x00json:", 1), "\x00json:")
		var inner []any
		if !marked || json.Unmarshal([]byte(rest), &inner) != nil {
			return s, true, false
		}
		v = inner
	}
	var texts []string
	all, _ := v.([]any)
	for _, p := range all {
		if t := text(p, "text"); t != "" {
			texts = append(texts, t)
		} else if strings.Contains(text(p, "type"), "image") {
			image = true
		}
	}
	return strings.Join(texts, "\n"), texts != nil, image
}

// typed returns what a human typed, of a text in which a skill may precede it.
func typed(body string) string {
	name, ok := strings.CutPrefix(body, `[IMPORTANT: The user has invoked the "`)
	if !ok {
		return body
	}
	parts := strings.Split(body, "The user has provided the following instruction alongside the skill invocation: ")
	if len(parts) > 1 {
		return parts[len(parts)-1]
	}
	return "/" + strings.SplitN(name, `"`, 2)[0]
}

// exitOf returns the exit code that a terminal states; nil for a command that did not run or did not end.
func exitOf(body string) *int64 {
	var o struct {
		Code    *json.Number `json:"exit_code"`
		Status  string       `json:"status"`
		Output  string       `json:"output"`
		Process string       `json:"session_id"`
	}
	if json.Unmarshal([]byte(body), &o) != nil || o.Code == nil {
		return nil
	}
	code, err := o.Code.Int64()
	if err != nil || code < 0 && o.Status != "" || o.Process != "" && strings.HasPrefix(o.Output, "Background process started") {
		return nil
	}
	return &code
}
