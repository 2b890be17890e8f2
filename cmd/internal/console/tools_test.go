package console

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"tributary/cmd/internal/console/calls"
	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/streams"
)

// someCalls is a session with calls of every outcome, an error of the vendor, and records of types that nobody knows.
func someCalls() []core.Record {
	in := map[string]any{"cwd": "/src/shop", "version": "2.0.0"}
	call := func(n int, name string, input map[string]any, output string, failed bool) []core.Record {
		id := "t" + string(rune('a'+n))
		return []core.Record{
			claude("calls", "assistant", 2*n, answer(n, toolUse(id, name, input)), in),
			claude("calls", "user", 2*n+1, result(id, output, failed), in),
		}
	}
	var list []core.Record
	list = append(list, call(1, "Bash", map[string]any{"command": "go test ./<b>\n# second line"}, "FAIL", true)...)
	list = append(list, call(2, "Bash", map[string]any{"command": "go test ./<b>"}, "ok", false)...)
	list = append(list, call(3, "Bash", map[string]any{"command": "go build"}, "ok", false)...)
	list = append(list, call(4, "Edit", map[string]any{"file_path": "/src/shop/till.go", "old_string": "a", "new_string": "b"}, "done", false)...)
	list = append(list, call(5, "Edit", map[string]any{"file_path": "till.go", "old_string": "b", "new_string": "c"}, "done", false)...)
	list = append(list, call(6, "Write", map[string]any{"file_path": "/src/shop/tax.go", "content": "c"}, "no", true)...)
	list = append(list, claude("calls", "assistant", 20, map[string]any{
		"id": "msg_e", "role": "assistant", "model": "<synthetic>", "content": []map[string]any{{"type": "text", "text": "API Error: overloaded"}},
	}, in, map[string]any{"isApiErrorMessage": true, "error": "overloaded_error"}))
	for n := range 3 {
		list = append(list, claude("calls", "telepathy", 30+n, nil, in))
	}
	return list
}

// labels are the heads of columns in narrow windows.
var labels = regexp.MustCompile(` data-label="[^"]*"`)

func TestToolsShowWhatCallsDid(t *testing.T) {
	t.Parallel()
	c, _, _ := normalized(t, someCalls()...)
	page := labels.ReplaceAllString(get(t, c, "/tools?tz=UTC").Body.String(), "")
	commands, page, _ := cutAt(page, `id="commands"`, `id="files"`)
	files, page, _ := cutAt(page, "", `id="errors"`)
	errors, drift, _ := cutAt(page, "", `id="drift"`)
	requireIn(t, "commands", commands, "go test ./&lt;b&gt;</a></th><td class=\"num bad\">1</td><td class=\"num\">2</td>", eventPath(envelopes.ClaudeCode, "calls", "tb#result"))
	requireIn(t, "files", files, "till.go <span class=\"muted\">/src/shop</span></th><td class=\"num\">2</td>")
	requireIn(t, "errors", errors, "overloaded_error</th><td>claude_code</td><td class=\"num\">1</td>", "/sessions/claude_code/calls/events/u20")
	requireIn(t, "drift", drift, "telepathy</th><td>2.0.0</td><td class=\"num\">3</td>")
	if strings.Contains(commands, "go build") || strings.Contains(files, "tax.go") || strings.Contains(commands, "<b>") {
		t.Errorf("the page has a command without a failure, or a file that was not edited: %s %s", commands, files)
	}
	requireStatus(t, get(t, c, "/tools?tz=UTC&until=2026-03-09T09:00:01Z"), http.StatusOK, "No call of a tool is selected", "No command failed.", "No file was edited.", "No vendor", "Every record has a type")
	requireStatus(t, get(t, c, "/tools?tz=UTC&project=other"), http.StatusOK, "No call of a tool is selected", "No command failed.", "Every record has a type")
	requireStatus(t, get(t, c, "/tools?tz=UTC&project=shop"), http.StatusOK, `data-row="Bash"`, "go test")
}

// cutAt returns the part of a page from one text to another, and the rest.
func cutAt(page, from, to string) (part, rest string, ok bool) {
	_, page, _ = strings.Cut(page, from)
	return strings.Cut(page, to)
}

func requireIn(t *testing.T, name, page string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(page, text) {
			t.Errorf("%s: no %q in %s", name, text, page)
		}
	}
}

// TestCallsSayHowFarTheyAreRead has no time for more than the last part of the stream.
func TestCallsSayHowFarTheyAreRead(t *testing.T) {
	t.Parallel()
	_, js, _ := normalized(t, pipelinetest.Workload(5, 10, 1000)...)
	read := func(q calls.Query) *calls.Result {
		t.Helper()
		r, err := q.Run(t.Context(), js, streams.DefaultTopology().Generation)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	some, all := read(calls.Query{Time: 1, Most: 10}), read(calls.Query{Most: 10})
	if some.Complete || some.Events == 0 || some.Events >= all.Events || !some.Oldest.After(all.Oldest) || !some.Newest.Equal(all.Newest) {
		t.Errorf("of %d events from %v on %d were read from %v on", all.Events, all.Oldest, some.Events, some.Oldest)
	}
	if since := read(calls.Query{Most: 10, Stored: some.Oldest}); !all.Complete || !since.Complete || since.Events < some.Events || since.Oldest.Before(some.Oldest) {
		t.Errorf("%d events since %v, the oldest of %v", since.Events, some.Oldest, since.Oldest)
	}
}
