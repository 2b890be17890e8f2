// Package antigravitytest reads and generates transcripts of Antigravity for the tests.
//
// [Suite] is what the tests of all vendors use.
//
// The invariant: the reader and the generator share no code and no table with the normalizer, so that a mistake in
// one of them shows as a difference.
package antigravitytest

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"tributary/envelopes"
	"tributary/normalizers/normalizerstest"
)

// Suite describes Antigravity to the tests of all vendors.
var Suite = normalizerstest.Suite{
	Unknown: []string{
		`{"step_index":9,"source":"SYSTEM","type":"of_tomorrow","status":"DONE","created_at":"$TIME","content":"x"}`,
		`{"table":"of_tomorrow","row":{"idx":1,"data":{"usage":{"input":5}}}}`,
		`42`,
	},
	Source:     envelopes.Antigravity,
	Room:       "antigravity",
	Folders:    []string{"antigravity"},
	Others:     []string{".db"}, // databases
	Apart:      true,
	StatedOnce: true, // a row that is written again has the same tokens
	Lines:      lines,
	Read:       normalizerstest.ReadLines,
	Bad:        normalizerstest.Malformed,
	Ledger:     reading.Ledger,
	Interpret:  reading.Interpret,
}

var reading = normalizerstest.Reading{
	Session: func(any) string { return "" },
	Read:    read,
}

// exited is how the result of a command states its exit code, before the output.
var exited = regexp.MustCompile(`The command (?:failed with exit code:|exited with code) (-?[0-9]+)`)

// ofTools are the types of results.
var ofTools = strings.Fields("RUN_COMMAND VIEW_FILE LIST_DIRECTORY GREP_SEARCH SEARCH_WEB READ_URL_CONTENT " +
	"INVOKE_SUBAGENT BROWSER_SUBAGENT GENERATE_IMAGE CODE_ACTION GENERIC")

// read notes what a step states.
func read(r *normalizerstest.Reader, v any) {
	n, _ := strconv.Atoi(r.Noted("records"))
	r.Note("records", strconv.Itoa(n+1))
	if call := normalizerstest.Member[any](v, "row", "data"); normalizerstest.Member[string](v, "table") == "gen_metadata" {
		id := normalizerstest.Member[string](call, "usage", "response_id")
		if id == "" {
			id = "call of row " + normalizerstest.Member[json.Number](v, "row", "idx").String()
		}
		figure := func(name string) int64 { return normalizerstest.Count(call, "usage", name) }
		r.Use(id, normalizerstest.Tokens{
			Input: figure("input"), CacheRead: figure("cache_read"), CacheWrite: figure("cache_write"),
			Output: figure("output"), Reasoning: figure("thinking"), ReasoningInOutput: true,
		})
		return
	}
	if again(r, v) {
		return
	}
	content := normalizerstest.Member[string](v, "content")
	hasContent := normalizerstest.Member[any](v, "content") != nil
	switch kind := normalizerstest.Member[string](v, "type"); kind {
	case "USER_INPUT":
		r.Say("human", "", typed(content))
	case "PLANNER_RESPONSE":
		r.Say("assistant", "", content)
		events := 0
		for _, text := range []string{normalizerstest.Member[string](v, "thinking"), content} {
			if strings.TrimSpace(text) != "" {
				events++
			}
		}
		call(r, v, n+1, events, 1)
	case "CHECKPOINT", "EPHEMERAL_MESSAGE", "SYSTEM_MESSAGE", "CONVERSATION_HISTORY", "KNOWLEDGE_ARTIFACTS":
	case "ERROR_MESSAGE":
		if _, text, _ := strings.Cut("\n"+content, "\nError invalid tool call"); text != "" {
			if id := take(r, v); id != "" {
				r.Result(id, nil, "")
			}
		}
	default:
		if normalizerstest.Member[string](v, "source") == "USER_EXPLICIT" {
			return // what a human did beside the agent
		}
		call(r, v, n+1, 0, 0)
		id := ""
		if normalizerstest.Member[string](v, "source") == "MODEL" {
			id = take(r, v)
		}
		if id == "" && !slices.Contains(ofTools, kind) {
			return
		}
		var code *int64
		head, _, _ := strings.Cut(content, "Output:")
		if x, err := normalizerstest.Member[json.Number](v, "exit_code").Int64(); err == nil {
			code = &x
		} else if found := exited.FindStringSubmatch(head); found != nil && kind == "RUN_COMMAND" && hasContent {
			if x, err := strconv.ParseInt(found[1], 10, 64); err == nil {
				code = &x
			}
		}
		r.Result(id, code, "failed with exit code")
	}
}

// cut is the line in place of what is missing in a shortened text.
var cut = regexp.MustCompile("\n<truncated [0-9]+ bytes>")

// again notes a step, and reports whether it was read before: in the other transcript, or in the same one. Of those far
// behind the newest one, a younger one is new.
func again(r *normalizerstest.Reader, v any) bool {
	index, err := normalizerstest.Member[json.Number](v, "step_index").Int64()
	if err != nil {
		return false
	}
	created, _ := time.Parse(time.RFC3339, normalizerstest.Member[string](v, "created_at"))
	step := fmt.Sprint("|", index, normalizerstest.Member[string](v, "type"), normalizerstest.Member[string](v, "status"), created.Unix(), "|")
	steps := r.Noted("steps")
	r.Note("steps", steps+step)
	highest, highestAt := int64(-1), int64(0)
	if _, err := fmt.Sscan(r.Noted("highest"), &highest, &highestAt); err != nil {
		highest = -1 // none yet
	}
	if index > highest && !created.IsZero() {
		r.Note("highest", fmt.Sprint(index, " ", created.Unix()))
	}
	return strings.Contains(steps, step) || index+1000 < highest && created.Unix() <= highestAt
}

// call notes the calls of a record, which have the ids of their events unless they state one. The result of the first
// one is the step so many after this one, and so on.
func call(r *normalizerstest.Reader, v any, record, events, after int) {
	for i, c := range normalizerstest.Member[[]any](v, "tool_calls") {
		id, name := normalizerstest.Member[string](c, "id"), normalizerstest.Member[string](c, "name")
		if id == "" {
			id = fmt.Sprint("@", record)
			if events > 0 {
				id += fmt.Sprint(".", events)
			}
			events++
		}
		r.Call(id, name)
		r.Note(resultAt(v, after+i), id)
		r.Note("file of "+id, normalizerstest.Member[string](c, "args", "AbsolutePath"))
	}
}

// resultAt names the note of the call whose result is a step so many after this one.
func resultAt(v any, after int) string {
	step, _ := normalizerstest.Member[json.Number](v, "step_index").Int64()
	return fmt.Sprint("result at ", step+int64(after))
}

// shown is how a result states the file that it shows.
var shown = regexp.MustCompile("(?m)^File Path: `file://([^`\n]+)`")

// take returns the call that a step is the result of, which gets no other one. A result that shows another file than
// the call asked for is of no call.
func take(r *normalizerstest.Reader, v any) string {
	id := r.Noted(resultAt(v, 0))
	r.Note(resultAt(v, 0), "")
	asked := r.Noted("file of " + id)
	found := shown.FindStringSubmatch(normalizerstest.Member[string](v, "content"))
	if id != "" && found != nil && asked != "" && pathOf(asked) != pathOf(found[1]) {
		return ""
	}
	return id
}

// pathOf returns a path of a file without its form: as JSON, as URL, or of Windows.
func pathOf(path string) string {
	if plain, err := strconv.Unquote(path); err == nil {
		path = plain
	}
	if plain, err := url.PathUnescape(path); err == nil {
		path = plain
	}
	return strings.ToLower(strings.TrimLeft(strings.ReplaceAll(path, `\`, "/"), "/"))
}

// typed returns what a human typed. In the review of a document that is the lines from the first comment on, and the
// request after them.
func typed(content string) string {
	if strings.HasPrefix(content, "Comments on artifact URI:") {
		before, request, ok := strings.Cut(content, "<USER_REQUEST>")
		if at := cut.FindStringIndex(before); at != nil && !ok {
			before = before[:at[0]]
		}
		lines := strings.Split(before, "\n")
		for len(lines) > 0 && lines[0] != "Selection:" && !strings.HasPrefix(lines[0], `Comment: "`) {
			lines = lines[1:]
		}
		if ok {
			request = strings.TrimSpace(typed("<USER_REQUEST>" + request))
		}
		return strings.TrimSpace(strings.TrimSpace(strings.Join(lines, "\n")) + "\n\n" + request)
	}
	if after, ok := strings.CutPrefix(content, "<USER_REQUEST>"); ok {
		if at := strings.LastIndex(after, "</USER_REQUEST>"); at >= 0 {
			return after[:at]
		}
		if at := cut.FindStringIndex(after); at != nil {
			return after[:at[0]]
		}
		return after
	}
	if strings.HasPrefix(content, "<ADDITIONAL_METADATA>") || strings.HasPrefix(content, "<USER_SETTINGS_CHANGE>") {
		return ""
	}
	return content
}
