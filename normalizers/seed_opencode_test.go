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
	"002-7":  func(t *testing.T) { checkToolCases(t, "write-") },
	"002-8":  func(t *testing.T) { checkToolCases(t, "edit-") },
	"002-9":  func(t *testing.T) { checkToolCases(t, "edit-deletion", "edit-replace-all") },
	"002-10": func(t *testing.T) { checkToolCases(t, "read-") },
	"002-11": func(t *testing.T) { checkToolCases(t, "bash-") },
	"002-12": seedExitCodes,
	"002-13": func(t *testing.T) { checkToolCases(t, "todowrite-") },
	"002-14": seedPriorityWords,
	"002-15": seedPriorityPlaces,
	"002-16": seedTodoIDs,
	// A list is no object, even a list of one: the stream adapter of the seed's project,
	// which takes its first element, does so after the seed and against this row.
	"002-17": func(t *testing.T) {
		checkToolCases(t, "string-result", "null-result", "list-result", "system-error-string")
	},
	"002-18": func(t *testing.T) { checkToolCases(t, "unknown-tool") },
	"002-19": func(t *testing.T) { checkToolCases(t, "case-insensitive") },
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

// checkToolCases checks the cases whose names begin with one of some prefixes.
func checkToolCases(t *testing.T, prefixes ...string) {
	t.Helper()
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
	t.Run("own", func(t *testing.T) { check(t, toolCases(t, ownFile(t, "tool_metadata.json"))) })
	t.Run("seed", func(t *testing.T) {
		check(t, toolCases(t, goldenFile(t, "tool_metadata", "origin", "tool-results", "synthetic-golden.json")))
	})
}

// seedExitCodes: a failure is a text, whose beginning may state the exit code.
func seedExitCodes(t *testing.T) {
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
		{"Exit code 3", new(int64(3))}, {"Error: Exit code 130\n^C", new(int64(130))}, {"Error: Exit code 7x", nil},
		{"Error: it said Exit code 4", nil}, {"Error: EPERM: not permitted", nil}, {"User rejected tool use", nil},
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
		{"Critical fix", 4, 5, "high"}, {"answer ASAP", 4, 5, "high"}, {"mend it immediately", 4, 5, "high"}, {"quite important", 4, 5, "high"},
		{"unimportant", 4, 5, "high"}, {"a low priority", 4, 5, "high"}, {"see it later", 0, 5, "low"}, {"Eventually", 0, 5, "low"},
		{"nice to have", 0, 5, "low"}, {"plain", 0, 1, "medium"},
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
	cases := toolCases(t, goldenFile(t, "tool_metadata", "origin", "tool-results", "real-golden.json"))
	if len(cases) != 55 {
		t.Errorf("%d cases", len(cases))
	}
	for i, c := range cases {
		t.Run(fmt.Sprintf("%d-%s", i, c.Tool), c.check)
	}
}

func seedCurrentProfile(t *testing.T) {
	for _, c := range toolCases(t, ownFile(t, "tool_metadata.json")) {
		t.Run(c.Name, func(t *testing.T) {
			e := toolResult(t, toolRecords(t, c, false), normalizers.ProfileCurrent)
			sameMetadata(t, c.Current, e.ToolMetadata)
		})
	}
}

// seedSpellings: transcripts and streams spell the key in two ways.
func seedSpellings(t *testing.T) {
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

// TestStringResultDenied: old logs have texts of tools that did not fail, and say so.
func TestStringResultDenied(t *testing.T) {
	t.Parallel()
	c := toolCase{Tool: "Bash", Result: json.RawMessage(`"Hello, Ada!"`), IsError: json.RawMessage("false")}
	if e := toolResult(t, toolRecords(t, c, true), ""); value(e.ToolStatus) != envelopes.StatusSuccess || e.ToolMetadata != nil {
		t.Errorf("status %s, tool_metadata %s", value(e.ToolStatus), e.ToolMetadata)
	}
}

// TestUnifiedDiff holds the diff of an edit to what Python made of the same texts:
// testdata/unified_diff.json was written by difflib.unified_diff of Python 3, the lines cut
// by str.splitlines.
func TestUnifiedDiff(t *testing.T) {
	t.Parallel()
	var cases []struct{ Name, Before, After, Diff string }
	if err := json.Unmarshal(ownFile(t, "unified_diff.json"), &cases); err != nil || len(cases) == 0 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	for _, c := range cases {
		// The whole file is replaced; before an empty one there is nothing to replace.
		before, after := c.Before, c.After
		if before == "" {
			continue
		}
		v := edit(t, before, before, after, false)
		if diff := cmp.Diff(strings.ReplaceAll(c.Diff, "/f\n", "/a.txt\n"), member[string](v, "diff")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.Name, diff)
		}
		if member[string](v, "filediff", "after") != after {
			t.Errorf("%s: after is %q", c.Name, member[string](v, "filediff", "after"))
		}
	}
}

// editRecords are an edit of a file, with a patch that says so little that it is known
// again.
func editRecords(tb testing.TB, file, before, after string, all bool) [2][]byte {
	tb.Helper()
	result, err := json.Marshal(map[string]any{
		"filePath": "/home/dev/a.txt", "originalFile": file, "oldString": before, "newString": after, "replaceAll": all,
		"structuredPatch": []any{map[string]any{"oldStart": 1, "oldLines": 1, "newStart": 1, "newLines": 1, "lines": []string{"-patch", "+patched"}}},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return toolRecords(tb, toolCase{Tool: "Edit", Result: result}, true)
}

// edit is the tool_metadata of an edit of a file.
func edit(t *testing.T, file, before, after string, all bool) any {
	t.Helper()
	e := toolResult(t, editRecords(t, file, before, after, all), "")
	if b, err := encode(e); err != nil || len(b) > normalizers.MaxEventBytes {
		t.Fatalf("an event of %d bytes, %v", len(b), err)
	}
	var v any
	if err := json.Unmarshal(e.ToolMetadata, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// TestEditTooLarge: what cannot be compared in bounded time and memory has the vendor's own
// patch, and never a larger event.
func TestEditTooLarge(t *testing.T) {
	t.Parallel()
	const patch = "--- a/a.txt\n+++ b/a.txt\n@@ -1,1 +1,1 @@\n-patch\n+patched\n"
	var repetitive strings.Builder // each line a hundred times, and every second one changed
	for i := range 10_000 {
		fmt.Fprintf(&repetitive, "%d\n", i%100)
	}
	for name, c := range map[string]struct{ file, before, after string }{
		"out of proportion":  {strings.Repeat("x", 40_000), "x", strings.Repeat("y", 40_000)},
		"too many lines":     {strings.Repeat("x\n", 200_000), "x", "y"},
		"too many bytes":     {strings.Repeat("x", 9<<20) + "\n", "x\n", "y\n"},
		"too much work":      {repetitive.String(), "5\n", "five\n"},
		"too long to go out": {strings.Repeat("some line\n", 60_000), "some line\n", "another\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := edit(t, c.file, c.before, c.after, true)
			got := member[string](v, "diff")
			if name == "too long to go out" {
				if !strings.HasPrefix(got, "--- a/a.txt\n+++ b/a.txt\n@@ -1,60000 +1,60000 @@\n") {
					t.Errorf("diff %q", clip(got))
				}
				return
			}
			if got != patch {
				t.Errorf("diff %q", clip(got))
			}
		})
	}
}

// TestDescriptionIsBounded: a session keeps a piece of a long command, and only until its
// result is told.
func TestDescriptionIsBounded(t *testing.T) {
	t.Parallel()
	command := strings.Repeat("é", 3000) // two bytes each
	input, err := json.Marshal(map[string]string{"command": command})
	if err != nil {
		t.Fatal(err)
	}
	records := toolRecords(t, toolCase{Tool: "Bash", Input: input, Result: json.RawMessage(`{"stdout":"ok"}`)}, true)
	s := normalizers.NewSession(envelopes.ClaudeCode, toolSession)
	var sizes []int
	var last envelopes.AgentEventV1
	for i, data := range records {
		sizes = append(sizes, len(s.Encode()))
		r, err := normalizers.Normalize(s, normalizers.Record{Source: envelopes.ClaudeCode, Session: toolSession, Sequence: uint64(i + 1), Stored: modified, Data: data})
		if err != nil {
			t.Fatal(err)
		}
		if s, err = normalizers.DecodeSession(s.Encode()); err != nil {
			t.Fatal(err)
		}
		last = r.Events[0].Event
	}
	sameMetadata(t, map[string]any{"output": "ok", "exit": 0.0, "description": command[:1024]}, last.ToolMetadata)
	if sizes[1] < 1024 || sizes[1] > 2048 {
		t.Errorf("with an open call the state has %d bytes", sizes[1])
	}
	if after := s.Encode(); len(after) > 1024 || bytes.Contains(after, []byte("éé")) {
		t.Errorf("after its result the state has %d bytes", len(after))
	}
}

// TestProfileIsNoState: sessions in two profiles are equal, and one that is decoded is in
// none.
func TestProfileIsNoState(t *testing.T) {
	t.Parallel()
	for _, c := range toolCases(t, ownFile(t, "tool_metadata.json")) {
		records := toolRecords(t, c, true)
		normalize := func(s *normalizers.Session, i int) envelopes.AgentEventV1 {
			r, err := normalizers.Normalize(s, normalizers.Record{Source: envelopes.ClaudeCode, Session: toolSession, Sequence: uint64(i + 1), Stored: modified, Data: records[i]})
			if err != nil {
				t.Fatal(err)
			}
			return r.Events[0].Event
		}
		seed, current := normalizers.NewSession(envelopes.ClaudeCode, toolSession), normalizers.NewSession(envelopes.ClaudeCode, toolSession)
		current.UseProfile(normalizers.ProfileCurrent)
		normalize(seed, 0)
		normalize(current, 0)
		decoded, err := normalizers.DecodeSession(current.Encode())
		if err != nil {
			t.Fatal(err)
		}
		normalize(seed, 1)
		normalize(current, 1)
		if !bytes.Equal(seed.Encode(), current.Encode()) {
			t.Errorf("%s: two states:\n%q\n%q", c.Name, seed.Encode(), current.Encode())
		}
		sameMetadata(t, c.Expected, normalize(decoded, 1).ToolMetadata)
	}
}

// anyToolValue generates JSON that looks more or less like the input or the result of a
// tool.
func anyToolValue(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		kinds := 8
		if depth == 0 {
			kinds = 5
		}
		switch rapid.IntRange(0, kinds).Draw(t, "kind") {
		case 0:
			return rapid.SampledFrom([]string{"", "a", "a\nb\n", "\r", "-x", "+x", "text", "later", "/", "a/", "é\u2028x"}).Draw(t, "text")
		case 1:
			return rapid.String().Draw(t, "string")
		case 2:
			return rapid.SampledFrom([]any{nil, true, false}).Draw(t, "literal")
		case 3:
			return rapid.Int64().Draw(t, "integer")
		case 4:
			return rapid.Float64Range(-1e300, 1e300).Draw(t, "number")
		case 5:
			return rapid.SliceOfN(anyToolValue(max(0, depth-1)), 0, 4).Draw(t, "list")
		default:
			names := []string{
				"filePath", "content", "originalFile", "oldString", "newString", "replaceAll", "structuredPatch", "oldStart", "oldLines", "lines",
				"type", "file", "numLines", "totalLines", "stdout", "stderr", "interrupted", "isImage", "newTodos", "status", "command", "description",
			}
			return rapid.MapOfN(rapid.SampledFrom(names), anyToolValue(max(0, depth-1)), 0, 12).Draw(t, "object")
		}
	})
}

// TestAnyToolResult: whatever a tool is given and returns, its tool_metadata is an object
// or absent, the same each time, and never an error.
func TestAnyToolResult(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) json.RawMessage {
			b, err := json.Marshal(anyToolValue(4).Draw(t, name))
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		c := toolCase{
			Tool:  rapid.SampledFrom([]string{"Write", "Edit", "Read", "Bash", "TodoWrite", "edit", "Glob"}).Draw(t, "tool"),
			Input: draw("input"), Result: draw("result"),
		}
		profile := rapid.SampledFrom([]normalizers.Profile{"", normalizers.ProfileOpenCode, normalizers.ProfileCurrent}).Draw(t, "profile")
		records := toolRecords(t, c, rapid.Bool().Draw(t, "camel"))
		e := toolResult(t, records, profile)
		if again := toolResult(t, records, profile); !bytes.Equal(e.ToolMetadata, again.ToolMetadata) {
			t.Fatalf("%s, then %s", e.ToolMetadata, again.ToolMetadata)
		}
		if e.ToolMetadata == nil {
			return
		}
		var object map[string]any
		if err := json.Unmarshal(e.ToolMetadata, &object); err != nil || c.Tool == "Glob" || c.Result[0] != '{' {
			t.Fatalf("%s of %s: %s, %v", c.Tool, c.Result, e.ToolMetadata, err)
		}
	})
}

// BenchmarkEdit is the price of the result of an edit by the length of its file: of one
// line, and of every tenth.
//
//	go test ./normalizers -run '^$' -bench BenchmarkEdit -benchmem -count 6
func BenchmarkEdit(b *testing.B) {
	for _, lines := range []int{100, 10_000} {
		var file strings.Builder
		for i := range lines {
			fmt.Fprintf(&file, "\tline %d of the file\n", i)
		}
		for _, all := range []bool{false, true} {
			old := fmt.Sprintf("line %d of", lines/2)
			if all {
				old = "5 of"
			}
			records := editRecords(b, file.String(), old, "another of", all)
			b.Run(fmt.Sprintf("lines=%d/all=%t", lines, all), func(b *testing.B) {
				b.SetBytes(int64(len(records[1])))
				b.ReportAllocs()
				for b.Loop() {
					toolResult(b, records, "")
				}
			})
		}
	}
}
