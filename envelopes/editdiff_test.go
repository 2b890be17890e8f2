package envelopes

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCursorEditDiff(t *testing.T) {
	t.Parallel()
	const header = "--- a/cart.go\n+++ b/cart.go\n"
	for name, c := range map[string]struct{ body, want string }{
		"a patch":                  {`{"args":{"path":"/src/shop/cart.go","applyPatch":{"patchContent":"--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n-a\n+b\n@@ -9 +9 @@\n c"}}}`, header + "@@ -1,3 +1,3 @@\n-a\n+b\n@@ -9 +9 @@\n c"},
		"a replacement":            {`{"args":{"path":"cart.go","strReplace":{"oldText":"a\nb\n","newText":"c"}}}`, header + "@@ -1,2 +1,1 @@\n-a\n-b\n+c"},
		"a deletion":               {`{"args":{"path":"cart.go","strReplace":{"oldText":"a","newText":""}}}`, header + "@@ -1,1 +1,0 @@\n-a"},
		"several":                  {`{"args":{"path":"cart.go","multiStrReplace":{"edits":[{"oldText":"a","newText":"b"},{"oldText":"c","newText":"d"}]}}}`, header + "@@ -1,1 +1,1 @@\n-a\n+b\n@@ -1,1 +1,1 @@\n-c\n+d"},
		"the result":               {`{"args":{"streamContent":"x"},"result":{"success":{"path":"/src/shop/cart.go","diffString":"--- /dev/null\n+++ b//src/shop/cart.go\n@@ -1,0 +1 @@\n+x"}}}`, header + "@@ -1,0 +1 @@\n+x"},
		"arguments before result":  {`{"args":{"path":"cart.go","strReplace":{"oldText":"a","newText":"b"}},"result":{"success":{"diffString":"@@ -7 +7 @@\n-a\n+b"}}}`, header + "@@ -1,1 +1,1 @@\n-a\n+b"},
		"nothing":                  {`{"args":{"path":"cart.go"},"result":{"error":{}}}`, ""},
		"another shape":            {`{"args":[1]}`, ""},
		"no JSON":                  {`{`, ""},
		"a diff that has no hunks": {`{"args":{"path":"cart.go","applyPatch":{"patchContent":"--- a\n+++ b"}}}`, ""},
	} {
		if diff := cmp.Diff(c.want, cursorEditDiff([]byte(c.body), "/src/shop")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestPathBelow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ file, root, want string }{
		{"/src/shop/cart.go", "/src/shop", "cart.go"},
		{"/src/shop/a/cart.go", "/src/shop/", "a/cart.go"},
		{"/src/other/cart.go", "/src/shop", "../other/cart.go"},
		{"/elsewhere/cart.go", "/src/shop", "/elsewhere/cart.go"},
		{"/b/c", "/a", "/b/c"}, // as long
		{"/src/shop", "/src/shop", "/src/shop"},
		{"/src/cart.go", "/", "src/cart.go"},
		{"cart.go", "/src/shop", "cart.go"},
		{"/src/shop/cart.go", "", "/src/shop/cart.go"},
	} {
		if got := pathBelow(c.file, c.root); got != c.want {
			t.Errorf("%s from %s is %s, want %s", c.file, c.root, got, c.want)
		}
	}
}

// editSeedRows are the rows about the diffs of edits.
var editSeedRows = map[string]func(*testing.T){"000-8": seedCursorEditDiffs}

// seedCursorEditDiffs: the diffs of the calls 3 to 5 of the seed's tools, by both of their
// records.
func seedCursorEditDiffs(t *testing.T) {
	t.Helper()
	t.Parallel()
	read := func(name string) []byte { return goldenFile(t, "metadata", "origin", "cursor", name) }
	var want struct {
		Diffs []string `json:"edit_diffs"`
	}
	if err := json.Unmarshal(read("all-tools.expected.json"), &want); err != nil {
		t.Fatal(err)
	}
	got := make(map[string][]string)
	for l := range strings.Lines(string(read("all-tools.jsonl"))) {
		var record struct {
			Subtype  string `json:"subtype"`
			ToolCall struct {
				Edit json.RawMessage `json:"editToolCall"`
			} `json:"tool_call"`
		}
		if err := json.Unmarshal([]byte(l), &record); err != nil {
			t.Fatal(err)
		}
		if record.ToolCall.Edit != nil {
			got[record.Subtype] = append(got[record.Subtype], cursorEditDiff([]byte(record.ToolCall.Edit), "/path/to"))
		}
	}
	for _, subtype := range []string{"started", "completed"} {
		if diff := cmp.Diff(want.Diffs, got[subtype]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", subtype, diff)
		}
	}
}
