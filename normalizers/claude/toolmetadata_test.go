package claude_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/claude/claudetest"
	"tributary/normalizers/core"
	"tributary/normalizers/normalizerstest"
)

// Old logs have results that are texts of tools that did not fail, and state so.
func TestTextResultMayHaveSucceeded(t *testing.T) {
	t.Parallel()
	c := claudetest.ToolCase{Tool: "Bash", Result: json.RawMessage(`"Hello, Ada!"`), IsError: json.RawMessage("false")}
	if e := claudetest.ToolResult(t, claudetest.ToolRecords(t, c, true), ""); normalizerstest.Value(e.ToolStatus) != envelopes.StatusSuccess || e.ToolMetadata != nil {
		t.Errorf("status %s, tool_metadata %s", normalizerstest.Value(e.ToolStatus), e.ToolMetadata)
	}
}

// The diff of an edit is the one that Python makes of the same texts: difflib.unified_diff of
// Python 3 wrote testdata/unified_diff.json, with the lines cut by str.splitlines.
func TestDiffIsThatOfPython(t *testing.T) {
	t.Parallel()
	var cases []struct{ Name, Before, After, Diff string }
	if err := json.Unmarshal(claudetest.OwnFile(t, "unified_diff.json"), &cases); err != nil || len(cases) == 0 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	for _, c := range cases {
		// The whole file is replaced; before an empty one there is nothing to replace.
		before, after := c.Before, c.After
		if before == "" {
			continue
		}
		v := edit(t, before, before, after, false)
		if diff := cmp.Diff(strings.ReplaceAll(c.Diff, "/f\n", "/a.txt\n"), normalizerstest.Member[string](v, "diff")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.Name, diff)
		}
		if normalizerstest.Member[string](v, "filediff", "after") != after {
			t.Errorf("%s: after is %q", c.Name, normalizerstest.Member[string](v, "filediff", "after"))
		}
	}
}

// An edit of a part of a file has the diff and the texts of one that replaces the whole file.
func TestEditOfAPartIsThatOfTheWhole(t *testing.T) {
	t.Parallel()
	text := rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "é", `"`, "\n", "\n", "\r\n", "\r", "\t", "\u2028", "a\nb\n", "\n\n"}), 0, 40),
		func(parts []string) string { return strings.Join(parts, "") })
	rapid.Check(t, func(rt *rapid.T) {
		part := text
		if rapid.Bool().Draw(rt, "feeds") {
			part = rapid.Map(text, strings.NewReplacer("\r", "", "\u2028", "").Replace)
		}
		head, old, changed, tail := part.Draw(rt, "head"), part.Draw(rt, "old"), part.Draw(rt, "new"), part.Draw(rt, "tail")
		if old == "" {
			return
		}
		file := head + old + tail
		after := strings.Replace(file, old, changed, 1)
		if diff := cmp.Diff(edit(t, file, file, after, false), edit(t, file, old, changed, false)); diff != "" {
			rt.Errorf("(-whole +part):\n%s", diff)
		}
	})
}

// TestCorpusToolMetadataMatchesItsBytes reads the results of real logs a second time, with
// nothing but encoding/json: tool_metadata has their values, and the diff of an edit turns the
// file before it into the file after it.
func TestCorpusToolMetadataMatchesItsBytes(t *testing.T) {
	t.Parallel()
	s := claudetest.Suite
	emitted := make(map[string]int)
	for _, f := range normalizerstest.Corpus(t, s) {
		calls := make(map[string]any) // tool_use blocks
		for _, st := range normalizerstest.Fold(normalizers.Normalize, normalizerstest.Frame(normalizerstest.FileNamed(s.Source, f.Name), f.Data)) {
			var record any
			if st.Failed() || json.Unmarshal(st.Record.Data, &record) != nil {
				continue
			}
			results := 0
			for _, b := range normalizerstest.Member[[]any](record, "message", "content") {
				switch normalizerstest.Member[string](b, "type") {
				case "tool_use":
					calls[st.Record.Session+normalizerstest.Member[string](b, "id")] = b
				case "tool_result":
					results++
				}
			}
			result := normalizerstest.Member[map[string]any](record, "toolUseResult")
			for _, e := range st.Result.Events {
				call := calls[e.Event.SessionID+normalizerstest.Value(e.Event.ToolCallID)]
				if e.Event.EventType != envelopes.ToolResult || results != 1 || call == nil || e.Event.ToolCallID == nil || e.Event.Supersedes != "" {
					continue
				}
				name := strings.ToLower(normalizerstest.Member[string](call, "name"))
				var got any
				if e.Event.ToolMetadata != nil {
					if err := json.Unmarshal(e.Event.ToolMetadata, &got); err != nil {
						t.Fatal(err)
					}
				}
				if err := sameResult(name, call, result, got); err != nil {
					t.Errorf("%s: line %d: %s: %v", f.Name, st.Line, name, err)
				}
				if got != nil {
					emitted[name]++
				}
			}
		}
	}
	for _, name := range []string{"write", "edit", "read", "bash", "todowrite"} {
		if emitted[name] == 0 && !testing.Short() {
			t.Errorf("no result of %s", name)
		}
	}
	t.Log(emitted)
}

// sameResult compares tool_metadata with the result of a call; nil when the values agree.
func sameResult(name string, call any, result map[string]any, got any) error {
	want := make(map[string]any)
	switch name {
	case "write":
		want["filePath"], want["content"] = result["filePath"], result["content"]
	case "read":
		file := normalizerstest.Member[map[string]any](result, "file")
		for _, k := range []string{"filePath", "content", "numLines", "startLine", "totalLines"} {
			want[k] = file[k]
		}
		if file == nil {
			result = nil
		}
	case "bash":
		stdout, stderr := normalizerstest.Member[string](result, "stdout"), normalizerstest.Member[string](result, "stderr")
		want["output"], want["exit"] = stdout+stderr, 0.0
		if stdout != "" && stderr != "" {
			want["output"] = stdout + "\n" + stderr
		}
		if normalizerstest.Member[bool](result, "interrupted") {
			want["exit"] = nil
		}
		description, ok := normalizerstest.Member[map[string]any](call, "input")["description"]
		if !ok {
			description = normalizerstest.Member[string](call, "input", "command")
			if len(description.(string)) > 1024 {
				return nil // a session keeps its beginning
			}
		}
		want["description"] = description
	case "todowrite":
		for i, todo := range normalizerstest.Member[[]any](result, "newTodos") {
			var other any
			if list := normalizerstest.Member[[]any](got, "todos"); i < len(list) {
				other = list[i]
			}
			if normalizerstest.Member[any](todo, "content") != normalizerstest.Member[any](other, "content") || normalizerstest.Member[any](todo, "status") != normalizerstest.Member[any](other, "status") {
				return fmt.Errorf("item %d: %v is emitted as %v", i, todo, other)
			}
		}
		if len(normalizerstest.Member[[]any](result, "newTodos")) == len(normalizerstest.Member[[]any](got, "todos")) {
			return nil
		}
		return fmt.Errorf("%d items are emitted as %d", len(normalizerstest.Member[[]any](result, "newTodos")), len(normalizerstest.Member[[]any](got, "todos")))
	case "edit":
		return sameEdit(result, got)
	default:
		result = nil
	}
	if result == nil {
		want = nil
	}
	if diff := cmp.Diff(want, normalizerstest.Member[map[string]any](map[string]any{"": got}, "")); diff != "" {
		return fmt.Errorf("(-want +got):\n%s", diff)
	}
	return nil
}

// sameEdit is [sameResult] for an edit.
func sameEdit(result map[string]any, got any) error {
	if result == nil || got == nil {
		if result != nil || got != nil {
			return fmt.Errorf("a result %t, tool_metadata %t", result != nil, got != nil)
		}
		return nil
	}
	file, known := result["originalFile"].(string)
	n := 1
	if normalizerstest.Member[bool](result, "replaceAll") {
		n = -1
	}
	added, removed := 0, 0
	for _, hunk := range normalizerstest.Member[[]any](result, "structuredPatch") {
		for _, l := range normalizerstest.Member[[]any](hunk, "lines") {
			switch line, _ := l.(string); {
			case strings.HasPrefix(line, "+"):
				added++
			case strings.HasPrefix(line, "-"):
				removed++
			}
		}
	}
	after := strings.Replace(file, normalizerstest.Member[string](result, "oldString"), normalizerstest.Member[string](result, "newString"), n)
	want := map[string]any{
		"file": result["filePath"], "before": file, "after": after, "additions": float64(added), "deletions": float64(removed),
	}
	if diff := cmp.Diff(want, normalizerstest.Member[map[string]any](got, "filediff")); diff != "" {
		return fmt.Errorf("filediff (-want +got):\n%s", diff)
	}
	diff := normalizerstest.Member[string](got, "diff")
	if !known {
		if added+removed > 0 && strings.Count(diff, "\n+") != added+1 {
			return fmt.Errorf("%d lines are added by %q", added, normalizerstest.Clip(diff))
		}
		return nil
	}
	patched, err := applyDiff(file, diff)
	if err == nil && strings.TrimSuffix(patched, "\n") != strings.TrimSuffix(after, "\n") {
		err = fmt.Errorf("makes another file")
	}
	if err != nil {
		return fmt.Errorf("diff %q: %w", normalizerstest.Clip(diff), err)
	}
	return nil
}

// applyDiff applies a unified diff as patch(1) does, for texts whose lines end in \n alone.
func applyDiff(file, diff string) (string, error) {
	lines := strings.SplitAfter(strings.TrimSuffix(file, "\n")+"\n", "\n")
	var out strings.Builder
	at := 0
	for i, l := range strings.SplitAfter(diff, "\n") {
		switch {
		case i < 2 || l == "":
		case strings.HasPrefix(l, "@@ "):
			var from int
			if _, err := fmt.Sscanf(l, "@@ -%d", &from); err != nil {
				return "", err
			}
			for at < from-1 {
				out.WriteString(lines[at])
				at++
			}
		case l[0] == '+':
			out.WriteString(l[1:])
		default:
			if at >= len(lines) || lines[at] != l[1:] {
				return "", fmt.Errorf("line %d of the file is not %q", at+1, l)
			}
			if l[0] == ' ' {
				out.WriteString(l[1:])
			}
			at++
		}
	}
	for _, l := range lines[at:] {
		out.WriteString(l)
	}
	return out.String(), nil
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
	return claudetest.ToolRecords(tb, claudetest.ToolCase{Tool: "Edit", Result: result}, true)
}

// edit is the tool_metadata of an edit of a file.
func edit(t *testing.T, file, before, after string, all bool) any {
	t.Helper()
	e := claudetest.ToolResult(t, editRecords(t, file, before, after, all), "")
	if b, err := normalizerstest.Encode(e); err != nil || len(b) > core.MaxEventBytes {
		t.Fatalf("an event of %d bytes, %v", len(b), err)
	}
	var v any
	if err := json.Unmarshal(e.ToolMetadata, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// An edit that cannot be compared in bounded time and memory has the vendor's own patch, and
// never a larger event.
func TestEditTooLargeHasTheVendorsPatch(t *testing.T) {
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
			got := normalizerstest.Member[string](v, "diff")
			if name == "too long to go out" {
				if !strings.HasPrefix(got, "--- a/a.txt\n+++ b/a.txt\n@@ -1,60000 +1,60000 @@\n") {
					t.Errorf("diff %q", normalizerstest.Clip(got))
				}
				return
			}
			if got != patch {
				t.Errorf("diff %q", normalizerstest.Clip(got))
			}
		})
	}
}

// A list of any length, with texts of any length, is an event that fits.
func TestTodosAreBounded(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "x", strings.Repeat("y", 500)} {
		item, err := json.Marshal(map[string]string{"content": text, "status": text})
		if err != nil {
			t.Fatal(err)
		}
		result := `{"newTodos":[` + strings.Repeat(string(item)+",", 5000) + string(item) + `]}`
		for _, profile := range []core.Profile{core.ProfileOpenCode, core.ProfileCurrent} {
			e := claudetest.ToolResult(t, claudetest.ToolRecords(t, claudetest.ToolCase{Tool: "TodoWrite", Result: json.RawMessage(result)}, true), profile)
			b, err := normalizerstest.Encode(e)
			if err != nil || len(b) > core.MaxEventBytes {
				t.Errorf("items of %d bytes: an event of %d bytes, %v", len(text), len(b), err)
			}
			var v any
			if err := json.Unmarshal(e.ToolMetadata, &v); err != nil || len(normalizerstest.Member[[]any](v, "todos")) != 1000 {
				t.Errorf("items of %d bytes: %d items, %v", len(text), len(normalizerstest.Member[[]any](v, "todos")), err)
			}
		}
	}
}

// A session keeps the beginning of a long command, and only until its result is emitted.
func TestDescriptionIsBounded(t *testing.T) {
	t.Parallel()
	command := strings.Repeat("é", 3000) // two bytes each
	input, err := json.Marshal(map[string]string{"command": command})
	if err != nil {
		t.Fatal(err)
	}
	records := claudetest.ToolRecords(t, claudetest.ToolCase{Tool: "Bash", Input: input, Result: json.RawMessage(`{"stdout":"ok"}`)}, true)
	s := normalizers.NewSession(envelopes.ClaudeCode, claudetest.ToolSession)
	var sizes []int
	var last envelopes.AgentEventV1
	for i, data := range records {
		sizes = append(sizes, len(s.Encode()))
		r, err := normalizers.Normalize(s, core.Record{Source: envelopes.ClaudeCode, Session: claudetest.ToolSession, Sequence: uint64(i + 1), Stored: normalizerstest.Modified, Data: data})
		if err != nil {
			t.Fatal(err)
		}
		if s, err = normalizers.DecodeSession(s.Encode()); err != nil {
			t.Fatal(err)
		}
		last = r.Events[0].Event
	}
	claudetest.SameMetadata(t, map[string]any{"output": "ok", "exit": 0.0, "description": command[:1024]}, last.ToolMetadata)
	if sizes[1] < 1024 || sizes[1] > 2048 {
		t.Errorf("with an open call the state has %d bytes", sizes[1])
	}
	if after := s.Encode(); len(after) > 1024 || bytes.Contains(after, []byte("éé")) {
		t.Errorf("after its result the state has %d bytes", len(after))
	}
}

// Commands without a result leave room for the rest of the state, and the last of them keep their
// descriptions.
func TestOpenCallsAreBounded(t *testing.T) {
	t.Parallel()
	s := normalizers.NewSession(envelopes.ClaudeCode, claudetest.ToolSession)
	normalize := func(i int, data []byte) envelopes.AgentEventV1 {
		r, err := normalizers.Normalize(s, core.Record{Source: envelopes.ClaudeCode, Session: claudetest.ToolSession, Sequence: uint64(i + 1), Stored: normalizerstest.Modified, Data: data})
		if err != nil || len(r.Events) != 1 {
			t.Fatalf("%d events, %v", len(r.Events), err)
		}
		return r.Events[0].Event
	}
	var results [][]byte
	for i := range 90 {
		input := json.RawMessage(`{"command":"` + strings.Repeat("x", 1000) + `"}`)
		records := claudetest.ToolRecords(t, claudetest.ToolCase{Tool: "Bash", Input: input, Result: json.RawMessage(`{"stdout":"ok"}`)}, true)
		for j := range records {
			records[j] = []byte(strings.NewReplacer("toolu_1", fmt.Sprint("toolu_", i), `"a1"`, fmt.Sprintf(`"a%d"`, i), `"u1"`, fmt.Sprintf(`"u%d"`, i)).Replace(string(records[j])))
		}
		normalize(i, records[0])
		results = append(results, records[1])
	}
	if n := len(s.Encode()); n > 24<<10 {
		t.Errorf("90 open calls take %d bytes", n)
	}
	for i, data := range results {
		description := strings.Repeat("x", 1000)
		if i < 82 {
			description = ""
		}
		claudetest.SameMetadata(t, map[string]any{"output": "ok", "exit": 0.0, "description": description}, normalize(90+i, data).ToolMetadata)
	}
}

// Sessions in two profiles have equal states, and a decoded session has no profile.
func TestProfileIsNoState(t *testing.T) {
	t.Parallel()
	for _, c := range claudetest.ToolCases(t, claudetest.OwnFile(t, "tool_metadata.json")) {
		records := claudetest.ToolRecords(t, c, true)
		normalize := func(s *core.Session, i int) envelopes.AgentEventV1 {
			r, err := normalizers.Normalize(s, core.Record{Source: envelopes.ClaudeCode, Session: claudetest.ToolSession, Sequence: uint64(i + 1), Stored: normalizerstest.Modified, Data: records[i]})
			if err != nil {
				t.Fatal(err)
			}
			return r.Events[0].Event
		}
		seed, current := normalizers.NewSession(envelopes.ClaudeCode, claudetest.ToolSession), normalizers.NewSession(envelopes.ClaudeCode, claudetest.ToolSession)
		current.UseProfile(core.ProfileCurrent)
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
		claudetest.SameMetadata(t, c.Expected, normalize(decoded, 1).ToolMetadata)
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

// Whatever a tool gets and returns, its tool_metadata is an object or absent, the same each time,
// and never an error.
func TestAnyToolResultYieldsAnObjectOrNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) json.RawMessage {
			b, err := json.Marshal(anyToolValue(4).Draw(t, name))
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		c := claudetest.ToolCase{
			Tool:  rapid.SampledFrom([]string{"Write", "Edit", "Read", "Bash", "TodoWrite", "edit", "Glob"}).Draw(t, "tool"),
			Input: draw("input"), Result: draw("result"),
		}
		profile := rapid.SampledFrom([]core.Profile{"", core.ProfileOpenCode, core.ProfileCurrent}).Draw(t, "profile")
		records := claudetest.ToolRecords(t, c, rapid.Bool().Draw(t, "camel"))
		e := claudetest.ToolResult(t, records, profile)
		if again := claudetest.ToolResult(t, records, profile); !bytes.Equal(e.ToolMetadata, again.ToolMetadata) {
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
					claudetest.ToolResult(b, records, "")
				}
			})
		}
	}
}
