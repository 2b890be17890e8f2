package normalizers_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tributary/envelopes"
	"tributary/normalizers/claude/claudetest"
	"tributary/normalizers/core"
	"tributary/normalizers/normalizerstest"
)

// seedOpenCode are the rows of seed claude-sdk-messages about tool_metadata. Each is shown
// on our own cases, testdata/tool_metadata.json, and on those of the seed's own project
// where TRIBUTARY_GOLDENS names them.
var seedOpenCode = map[string]func(*testing.T){
	"002-7 the result of Write is converted":                   checkToolCases("write-"),
	"002-8 the result of Edit is converted":                    checkToolCases("edit-"),
	"002-9 deletion and replaceAll are applied in full":        checkToolCases("edit-deletion", "edit-replace-all"),
	"002-10 the result of Read is converted":                   checkToolCases("read-"),
	"002-11 the result of Bash is converted":                   checkToolCases("bash-"),
	"002-12 the text of a failure states the exit code":        seedExitCodes,
	"002-13 the result of TodoWrite is converted":              checkToolCases("todowrite-"),
	"002-14 words decide the priority of a todo":               seedPriorityWords,
	"002-15 the position decides the priority of a plain todo": seedPriorityPlaces,
	"002-16 the same record yields the same ids":               seedTodoIDs,
	// A list is no object, even a list of one: the stream adapter of the seed's project,
	// which takes its first element, does so after the seed and against this row.
	"002-17 a result that is no object has no tool_metadata":       checkToolCases("string-result", "null-result", "list-result", "system-error-string"),
	"002-18 an unknown tool has no tool_metadata":                  checkToolCases("unknown-tool"),
	"002-19 the name of a tool matches in any case":                checkToolCases("case-insensitive"),
	"002-20 results of real sessions are converted":                seedRealResults,
	"002-25 the profile current changes the shapes":                seedCurrentProfile,
	"002-26 both spellings of the tool result are converted alike": seedSpellings,
	"002-28 an image is no text":                                   seedImage,
}

// wantStatus is the tool_status of a result, read from the case.
func wantStatus(t *testing.T, c claudetest.ToolCase) envelopes.ToolStatus {
	t.Helper()
	var result any
	if c.Result != nil {
		if err := json.Unmarshal(c.Result, &result); err != nil {
			t.Fatal(err)
		}
	}
	_, text := result.(string)
	switch {
	case text, normalizerstest.Member[bool](result, "interrupted"):
		return envelopes.StatusError
	case normalizerstest.Member[string](result, "backgroundTaskId") != "", normalizerstest.Member[string](result, "status") == "running":
		return envelopes.StatusInProgress
	default:
		return envelopes.StatusSuccess
	}
}

// checkToolCase compares the event of a case with the expected one.
func checkToolCase(t *testing.T, c claudetest.ToolCase) {
	t.Helper()
	e := claudetest.ToolResult(t, claudetest.ToolRecords(t, c, false), core.ProfileOpenCode)
	want := c.Expected
	if c.Proposed != nil {
		want = c.Proposed
	}
	claudetest.SameMetadata(t, want, e.ToolMetadata)
	if status := wantStatus(t, c); normalizerstest.Value(e.ToolStatus) != status {
		t.Errorf("status %s, want %s", normalizerstest.Value(e.ToolStatus), status)
	}
	if normalizerstest.Value(e.ToolName) != c.Tool || normalizerstest.Value(e.Text) != "told to the model" {
		t.Errorf("tool %q, text %q", normalizerstest.Value(e.ToolName), normalizerstest.Value(e.Text))
	}
}

// checkToolCases is a test of the cases whose names begin with one of some prefixes.
func checkToolCases(prefixes ...string) func(*testing.T) {
	check := func(t *testing.T, cases []claudetest.ToolCase) {
		t.Helper()
		found := 0
		for _, c := range cases {
			if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(c.Name, p) }) {
				found++
				t.Run(c.Name, func(t *testing.T) { checkToolCase(t, c) })
			}
		}
		if found == 0 {
			t.Errorf("no case %v", prefixes)
		}
	}
	return func(t *testing.T) {
		t.Helper()
		t.Run("own", func(t *testing.T) { check(t, claudetest.ToolCases(t, claudetest.OwnFile(t, "tool_metadata.json"))) })
		t.Run("seed", func(t *testing.T) {
			check(t, claudetest.ToolCases(t, normalizerstest.GoldenFile(t, "tool_metadata", "origin", "tool-results", "synthetic-golden.json")))
		})
	}
}

// seedExitCodes: a failure is a text, whose beginning may state the exit code.
func seedExitCodes(t *testing.T) {
	t.Helper()
	type stated struct {
		Text string `json:"s"`
		Code *int64 `json:"exit_code"`
	}
	check := func(t *testing.T, cases []stated) {
		t.Helper()
		for _, c := range cases {
			result, err := json.Marshal(c.Text)
			if err != nil {
				t.Fatal(err)
			}
			e := claudetest.ToolResult(t, claudetest.ToolRecords(t, claudetest.ToolCase{Tool: "Bash", Result: result}, false), "")
			if diff := cmp.Diff(c.Code, e.ToolExitCode); diff != "" {
				t.Errorf("%q (-want +got):\n%s", c.Text, diff)
			}
			if normalizerstest.Value(e.ToolStatus) != envelopes.StatusError || e.ToolMetadata != nil {
				t.Errorf("%q: status %s, tool_metadata %s", c.Text, normalizerstest.Value(e.ToolStatus), e.ToolMetadata)
			}
		}
	}
	check(t, []stated{
		{"Exit code 3", new(int64(3))},
		{"Error: Exit code 130\n^C", new(int64(130))},
		{"Error: Exit code 7x", nil},
		{"Error: it said Exit code 4", nil},
		{"Error: EPERM: not permitted", nil},
		{"User rejected tool use", nil},
	})
	t.Run("seed", func(t *testing.T) {
		var cases []stated
		if err := json.Unmarshal(normalizerstest.GoldenFile(t, "tool_metadata", "origin", "bash-error-strings.json"), &cases); err != nil || len(cases) == 0 {
			t.Fatalf("%d cases, %v", len(cases), err)
		}
		check(t, cases)
	})
}

// priorities writes a list of to-do items and reads their priorities.
func priorities(t *testing.T, contents []string) []string {
	t.Helper()
	items := make([]map[string]string, len(contents))
	for i, c := range contents {
		items[i] = map[string]string{"content": c, "status": "pending"}
	}
	result, err := json.Marshal(map[string]any{"newTodos": items})
	if err != nil {
		t.Fatal(err)
	}
	e := claudetest.ToolResult(t, claudetest.ToolRecords(t, claudetest.ToolCase{Tool: "TodoWrite", Result: result}, false), "")
	var v any
	if err := json.Unmarshal(e.ToolMetadata, &v); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, todo := range normalizerstest.Member[[]any](v, "todos") {
		out = append(out, normalizerstest.Member[string](todo, "priority"))
	}
	return out
}

// plainItems is a list of items without a word of priority.
func plainItems(n int) []string { return slices.Repeat([]string{"plain"}, n) }

func seedPriorityWords(t *testing.T) {
	t.Helper()
	type stated struct {
		Content      string
		Index, Total int
		Priority     string
	}
	check := func(t *testing.T, cases []stated) {
		t.Helper()
		for _, c := range cases {
			list := plainItems(c.Total)
			list[c.Index] = c.Content
			if got := priorities(t, list); len(got) != c.Total || got[c.Index] != c.Priority {
				t.Errorf("%+v: %v", c, got)
			}
		}
	}
	check(t, []stated{
		{"Critical fix", 4, 5, "high"},
		{"answer ASAP", 4, 5, "high"},
		{"mend it immediately", 4, 5, "high"},
		{"quite important", 4, 5, "high"},
		{"unimportant", 4, 5, "high"},
		{"a low priority", 4, 5, "high"},
		{"see it later", 0, 5, "low"},
		{"Eventually", 0, 5, "low"},
		{"nice to have", 0, 5, "low"},
		{"plain", 0, 1, "medium"},
	})
	t.Run("seed", func(t *testing.T) {
		var file struct{ Cases []stated }
		if err := json.Unmarshal(normalizerstest.GoldenFile(t, "tool_metadata", "origin", "todo-priority-keywords.json"), &file); err != nil || len(file.Cases) == 0 {
			t.Fatalf("%d cases, %v", len(file.Cases), err)
		}
		check(t, file.Cases)
	})
}

func seedPriorityPlaces(t *testing.T) {
	t.Helper()
	check := func(t *testing.T, places map[string][]string) {
		t.Helper()
		for total, want := range places {
			n, err := strconv.Atoi(total)
			if err != nil || n != len(want) {
				t.Fatalf("%q: %v", total, err)
			}
			if diff := cmp.Diff(want, priorities(t, plainItems(n))); diff != "" {
				t.Errorf("%d items (-want +got):\n%s", n, diff)
			}
		}
	}
	check(t, map[string][]string{
		"1": {"medium"}, "2": {"high", "low"}, "3": {"high", "medium", "low"}, "4": {"high", "medium", "medium", "low"},
		"5": {"high", "high", "medium", "low", "low"},
	})
	t.Run("seed", func(t *testing.T) {
		var places map[string][]string
		if err := json.Unmarshal(normalizerstest.GoldenFile(t, "tool_metadata", "origin", "todo-priority-by-position.json"), &places); err != nil || len(places) != 20 {
			t.Fatalf("%d lengths, %v", len(places), err)
		}
		check(t, places)
	})
}

// seedTodoIDs: ids depend on the records and on nothing else.
func seedTodoIDs(t *testing.T) {
	t.Helper()
	records := claudetest.ToolRecords(t, claudetest.ToolCase{Tool: "TodoWrite", Result: json.RawMessage(`{"newTodos":[{"content":"a"},{"content":"a"}]}`)}, true)
	ids := func(records [2][]byte) []string {
		var v any
		if err := json.Unmarshal(claudetest.ToolResult(t, records, "").ToolMetadata, &v); err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, todo := range normalizerstest.Member[[]any](v, "todos") {
			ids = append(ids, normalizerstest.Member[string](todo, "id"))
		}
		return ids
	}
	first := ids(records)
	if diff := cmp.Diff(first, ids(records)); diff != "" {
		t.Errorf("the same records again: %s", diff)
	}
	other := records
	for i := range other {
		other[i] = bytes.ReplaceAll(other[i], []byte("toolu_1"), []byte("toolu_2"))
	}
	all := slices.Concat(first, ids(other))
	slices.Sort(all)
	if len(all) != 4 || len(slices.Compact(all)) != 4 {
		t.Errorf("two items of two calls have the ids %v", all)
	}
}

// seedRealResults are results of real sessions. Their texts do not matter here.
func seedRealResults(t *testing.T) {
	t.Helper()
	cases := claudetest.ToolCases(t, normalizerstest.GoldenFile(t, "tool_metadata", "origin", "tool-results", "real-golden.json"))
	if len(cases) != 55 {
		t.Errorf("%d cases", len(cases))
	}
	for i, c := range cases {
		t.Run(fmt.Sprintf("%d-%s", i, c.Tool), func(t *testing.T) { checkToolCase(t, c) })
	}
}

func seedCurrentProfile(t *testing.T) {
	t.Helper()
	for _, c := range claudetest.ToolCases(t, claudetest.OwnFile(t, "tool_metadata.json")) {
		t.Run(c.Name, func(t *testing.T) {
			e := claudetest.ToolResult(t, claudetest.ToolRecords(t, c, false), core.ProfileCurrent)
			claudetest.SameMetadata(t, c.Current, e.ToolMetadata)
		})
	}
}

// seedSpellings: transcripts and streams spell the key in two ways.
func seedSpellings(t *testing.T) {
	t.Helper()
	for _, c := range claudetest.ToolCases(t, claudetest.OwnFile(t, "tool_metadata.json")) {
		stream := claudetest.ToolResult(t, claudetest.ToolRecords(t, c, false), "")
		transcript := claudetest.ToolResult(t, claudetest.ToolRecords(t, c, true), "")
		if !bytes.Equal(stream.ToolMetadata, transcript.ToolMetadata) || (c.Expected == nil) != (stream.ToolMetadata == nil) {
			t.Errorf("%s: %s against %s", c.Name, stream.ToolMetadata, transcript.ToolMetadata)
		}
		if normalizerstest.Value(stream.ToolStatus) != normalizerstest.Value(transcript.ToolStatus) {
			t.Errorf("%s: %s against %s", c.Name, normalizerstest.Value(stream.ToolStatus), normalizerstest.Value(transcript.ToolStatus))
		}
	}
}

// seedImage: what a command printed is an image, and no text anywhere.
func seedImage(t *testing.T) {
	t.Helper()
	const image = "iVBORw0KGgoAAAANSUhEUg=="
	for _, content := range []string{`[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + image + `"}}]`, `"` + image + `"`, `null`} {
		c := claudetest.ToolCase{Tool: "Bash", Input: json.RawMessage(`{"command":"plot"}`), Result: json.RawMessage(`{"stdout":"` + image + `","stderr":"","interrupted":false,"isImage":true}`)}
		records := claudetest.ToolRecords(t, c, true)
		records[1] = bytes.ReplaceAll(records[1], []byte(`"told to the model"`), []byte(content))
		e := claudetest.ToolResult(t, records, "")
		if normalizerstest.Value(e.ToolStatus) != envelopes.StatusSuccess || e.Text != nil || e.ToolExitCode != nil {
			t.Errorf("%s: status %s, text %q, exit code %v", content, normalizerstest.Value(e.ToolStatus), normalizerstest.Value(e.Text), e.ToolExitCode)
		}
		claudetest.SameMetadata(t, map[string]any{"output": "", "exit": 0.0, "description": "plot"}, e.ToolMetadata)
	}
}
