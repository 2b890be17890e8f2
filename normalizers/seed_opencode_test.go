package normalizers_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"tributary/envelopes"
	"tributary/normalizers"
)

// seedOpenCode are the rows of seed claude-sdk-messages about tool_metadata. Each is shown
// on our own cases, testdata/tool_metadata.json, and on those of the seed's own project
// where TRIBUTARY_GOLDENS names them.
var seedOpenCode = map[string]func(*testing.T){
	"002-7":  checkToolCases("write-"),
	"002-8":  checkToolCases("edit-"),
	"002-9":  checkToolCases("edit-deletion", "edit-replace-all"),
	"002-10": checkToolCases("read-"),
	"002-11": checkToolCases("bash-"),
	"002-12": seedExitCodes,
	"002-13": checkToolCases("todowrite-"),
	"002-14": seedPriorityWords,
	"002-15": seedPriorityPlaces,
	"002-16": seedTodoIDs,
	// A list is no object, even a list of one: the stream adapter of the seed's project,
	// which takes its first element, does so after the seed and against this row.
	"002-17": checkToolCases("string-result", "null-result", "list-result", "system-error-string"),
	"002-18": checkToolCases("unknown-tool"),
	"002-19": checkToolCases("case-insensitive"),
	"002-20": seedRealResults,
	"002-25": seedCurrentProfile,
	"002-26": seedSpellings,
	"002-28": seedImage,
}

// toolCase is a call of a tool with its structured result, and the tool_metadata that it
// shall have: null for none.
type toolCase struct {
	Name     string          `json:"name"`
	Tool     string          `json:"tool_name"`
	Input    json.RawMessage `json:"tool_input"`
	Result   json.RawMessage `json:"tool_use_result"`
	IsError  json.RawMessage `json:"is_error"`
	Expected any             `json:"expected"`
	Proposed any             `json:"proposed"` // of the seed's project: without its bug
	Current  any             `json:"current"`  // our own: in the other profile
}

// toolCases reads a file of cases.
func toolCases(t *testing.T, data []byte) []toolCase {
	t.Helper()
	var cases []toolCase
	if err := json.Unmarshal(data, &cases); err != nil || len(cases) == 0 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	return cases
}

// ownFile reads a file of our own cases.
func ownFile(tb testing.TB, name string) []byte {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// toolSession is what the records of a case are of.
const toolSession = "5b5f2f0e"

// toolRecords are the call and the result of a case, as a stream spells the result or, with
// camel, as a transcript does.
func toolRecords(tb rapid.TB, c toolCase, camel bool) [2][]byte {
	tb.Helper()
	or := func(v json.RawMessage) json.RawMessage {
		if v == nil {
			return json.RawMessage("null")
		}
		return v
	}
	session, result := "session_id", "tool_use_result"
	if camel {
		session, result = "sessionId", "toolUseResult"
	}
	block := map[string]any{"type": "tool_result", "tool_use_id": "toolu_1", "content": "told to the model"}
	if c.IsError != nil {
		block["is_error"] = c.IsError
	}
	var out [2][]byte
	for i, r := range []map[string]any{
		{"type": "assistant", "uuid": "a1", session: toolSession, "message": map[string]any{"role": "assistant", "content": []any{
			map[string]any{"type": "tool_use", "id": "toolu_1", "name": c.Tool, "input": or(c.Input)},
		}}},
		{"type": "user", "uuid": "u1", session: toolSession, "message": map[string]any{"role": "user", "content": []any{block}}, result: or(c.Result)},
	} {
		b, err := json.Marshal(r)
		if err != nil {
			tb.Fatal(err)
		}
		out[i] = b
	}
	return out
}

// toolResult normalizes the records of a case in a session of their own. It is the event
// of the result.
func toolResult(tb rapid.TB, records [2][]byte, profile normalizers.Profile) envelopes.AgentEventV1 {
	tb.Helper()
	s := normalizers.NewSession(envelopes.ClaudeCode, toolSession)
	s.UseProfile(profile)
	var last envelopes.AgentEventV1
	for i, data := range records {
		r, err := normalizers.Normalize(s, normalizers.Record{Source: envelopes.ClaudeCode, Session: toolSession, Sequence: uint64(i + 1), Stored: modified, Data: data})
		if err != nil || len(r.Events) != 1 {
			tb.Fatalf("record %d: %d events, %v", i, len(r.Events), err)
		}
		last = r.Events[0].Event
	}
	if last.EventType != envelopes.ToolResult {
		tb.Fatalf("the result is a %s", last.EventType)
	}
	return last
}

var uuidV5 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// sameMetadata compares tool_metadata with the expected value; the ids of to-do items must
// be UUIDs, each another one.
func sameMetadata(t *testing.T, want any, got []byte) {
	t.Helper()
	var v any
	if got != nil {
		if err := json.Unmarshal(got, &v); err != nil {
			t.Fatalf("tool_metadata is no JSON: %v", err)
		}
	}
	seen := make(map[string]bool)
	for _, todo := range member[[]any](v, "todos") {
		m, _ := todo.(map[string]any)
		id, ok := m["id"].(string)
		if !ok {
			continue
		}
		if !uuidV5.MatchString(id) || seen[id] {
			t.Errorf("id %q is no UUID of its own", id)
		}
		seen[id] = true
		m["id"] = "<generated-uuid>"
	}
	if diff := cmp.Diff(want, v); diff != "" {
		t.Errorf("tool_metadata (-want +got):\n%s", diff)
	}
}

// wantStatus is the tool_status of a result, read from the case.
func (c toolCase) wantStatus(t *testing.T) envelopes.ToolStatus {
	t.Helper()
	var result any
	if c.Result != nil {
		if err := json.Unmarshal(c.Result, &result); err != nil {
			t.Fatal(err)
		}
	}
	_, text := result.(string)
	switch {
	case text, member[bool](result, "interrupted"):
		return envelopes.StatusError
	case member[string](result, "backgroundTaskId") != "", member[string](result, "status") == "running":
		return envelopes.StatusInProgress
	default:
		return envelopes.StatusSuccess
	}
}

// check holds the event of a case to what is expected of it.
func (c toolCase) check(t *testing.T) {
	e := toolResult(t, toolRecords(t, c, false), normalizers.ProfileOpenCode)
	want := c.Expected
	if c.Proposed != nil {
		want = c.Proposed
	}
	sameMetadata(t, want, e.ToolMetadata)
	if status := c.wantStatus(t); value(e.ToolStatus) != status {
		t.Errorf("status %s, want %s", value(e.ToolStatus), status)
	}
	if value(e.ToolName) != c.Tool || value(e.Text) != "told to the model" {
		t.Errorf("tool %q, text %q", value(e.ToolName), value(e.Text))
	}
}

// checkToolCases is a test of the cases whose names begin with one of some prefixes.
func checkToolCases(prefixes ...string) func(*testing.T) {
	check := func(t *testing.T, cases []toolCase) {
		t.Helper()
		found := 0
		for _, c := range cases {
			if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(c.Name, p) }) {
				found++
				t.Run(c.Name, c.check)
			}
		}
		if found == 0 {
			t.Errorf("no case %v", prefixes)
		}
	}
	return func(t *testing.T) {
		t.Helper()
		t.Run("own", func(t *testing.T) { check(t, toolCases(t, ownFile(t, "tool_metadata.json"))) })
		t.Run("seed", func(t *testing.T) {
			check(t, toolCases(t, goldenFile(t, "tool_metadata", "origin", "tool-results", "synthetic-golden.json")))
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
			e := toolResult(t, toolRecords(t, toolCase{Tool: "Bash", Result: result}, false), "")
			if diff := cmp.Diff(c.Code, e.ToolExitCode); diff != "" {
				t.Errorf("%q (-want +got):\n%s", c.Text, diff)
			}
			if value(e.ToolStatus) != envelopes.StatusError || e.ToolMetadata != nil {
				t.Errorf("%q: status %s, tool_metadata %s", c.Text, value(e.ToolStatus), e.ToolMetadata)
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
		if err := json.Unmarshal(goldenFile(t, "tool_metadata", "origin", "bash-error-strings.json"), &cases); err != nil || len(cases) == 0 {
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
	e := toolResult(t, toolRecords(t, toolCase{Tool: "TodoWrite", Result: result}, false), "")
	var v any
	if err := json.Unmarshal(e.ToolMetadata, &v); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, todo := range member[[]any](v, "todos") {
		out = append(out, member[string](todo, "priority"))
	}
	return out
}

// plainItems is a list of items that say nothing of their priority.
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
		if err := json.Unmarshal(goldenFile(t, "tool_metadata", "origin", "todo-priority-keywords.json"), &file); err != nil || len(file.Cases) == 0 {
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
	check(t, map[string][]string{ // seed-features.md section 3.2
		"1": {"medium"}, "2": {"high", "low"}, "3": {"high", "medium", "low"}, "4": {"high", "medium", "medium", "low"},
		"5": {"high", "high", "medium", "low", "low"},
	})
	t.Run("seed", func(t *testing.T) {
		var places map[string][]string
		if err := json.Unmarshal(goldenFile(t, "tool_metadata", "origin", "todo-priority-by-position.json"), &places); err != nil || len(places) != 20 {
			t.Fatalf("%d lengths, %v", len(places), err)
		}
		check(t, places)
	})
}

// seedTodoIDs: ids depend on what the records say and on nothing else.
func seedTodoIDs(t *testing.T) {
	t.Helper()
	records := toolRecords(t, toolCase{Tool: "TodoWrite", Result: json.RawMessage(`{"newTodos":[{"content":"a"},{"content":"a"}]}`)}, true)
	ids := func(records [2][]byte) []string {
		var v any
		if err := json.Unmarshal(toolResult(t, records, "").ToolMetadata, &v); err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, todo := range member[[]any](v, "todos") {
			ids = append(ids, member[string](todo, "id"))
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
	cases := toolCases(t, goldenFile(t, "tool_metadata", "origin", "tool-results", "real-golden.json"))
	if len(cases) != 55 {
		t.Errorf("%d cases", len(cases))
	}
	for i, c := range cases {
		t.Run(fmt.Sprintf("%d-%s", i, c.Tool), c.check)
	}
}

func seedCurrentProfile(t *testing.T) {
	t.Helper()
	for _, c := range toolCases(t, ownFile(t, "tool_metadata.json")) {
		t.Run(c.Name, func(t *testing.T) {
			e := toolResult(t, toolRecords(t, c, false), normalizers.ProfileCurrent)
			sameMetadata(t, c.Current, e.ToolMetadata)
		})
	}
}

// seedSpellings: transcripts and streams spell the key in two ways.
func seedSpellings(t *testing.T) {
	t.Helper()
	for _, c := range toolCases(t, ownFile(t, "tool_metadata.json")) {
		stream := toolResult(t, toolRecords(t, c, false), "")
		transcript := toolResult(t, toolRecords(t, c, true), "")
		if !bytes.Equal(stream.ToolMetadata, transcript.ToolMetadata) || (c.Expected == nil) != (stream.ToolMetadata == nil) {
			t.Errorf("%s: %s against %s", c.Name, stream.ToolMetadata, transcript.ToolMetadata)
		}
		if value(stream.ToolStatus) != value(transcript.ToolStatus) {
			t.Errorf("%s: %s against %s", c.Name, value(stream.ToolStatus), value(transcript.ToolStatus))
		}
	}
}

// seedImage: what a command printed is an image, and no text anywhere.
func seedImage(t *testing.T) {
	t.Helper()
	const image = "iVBORw0KGgoAAAANSUhEUg=="
	for _, content := range []string{`[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + image + `"}}]`, `"` + image + `"`, `null`} {
		c := toolCase{Tool: "Bash", Input: json.RawMessage(`{"command":"plot"}`), Result: json.RawMessage(`{"stdout":"` + image + `","stderr":"","interrupted":false,"isImage":true}`)}
		records := toolRecords(t, c, true)
		records[1] = bytes.ReplaceAll(records[1], []byte(`"told to the model"`), []byte(content))
		e := toolResult(t, records, "")
		if value(e.ToolStatus) != envelopes.StatusSuccess || e.Text != nil || e.ToolExitCode != nil {
			t.Errorf("%s: status %s, text %q, exit code %v", content, value(e.ToolStatus), value(e.Text), e.ToolExitCode)
		}
		sameMetadata(t, map[string]any{"output": "", "exit": 0.0, "description": "plot"}, e.ToolMetadata)
	}
}
