package gemini_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/gemini/geminitest"
	"tributary/normalizers/normalizerstest"
)

// listNames are the members of a structured display that are lists, by the page.
var listNames = []string{"files", "matches", "skipped", "include", "excludes", "todos"}

// displayed collects the lists that the displays of the results of a log have, by the ids of their calls.
func displayed(v any, into map[string][]map[string]any) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			displayed(e, into)
		}
	case map[string]any:
		if id, ok := v["id"].(string); ok && v["resultDisplay"] != nil {
			lists := make(map[string]any)
			for _, name := range listNames {
				if list, ok := normalizerstest.Member[any](v, "resultDisplay", name).([]any); ok {
					lists[name] = list
				}
			}
			into[id] = append(into[id], lists)
		}
		for _, e := range v {
			displayed(e, into)
		}
	}
}

// checkLists holds the tool_metadata of the results of a log to what its bytes say.
func checkLists(t *testing.T, name string, data []byte) (found int) {
	t.Helper()
	lists := make(map[string][]map[string]any)
	for _, l := range normalizerstest.ReadLines(data) {
		displayed(normalizerstest.Parse(l.Data), lists)
	}
	displayed(normalizerstest.Parse(data), lists)
	for _, e := range normalizerstest.Events(normalizerstest.Fold(normalizers.Normalize, normalizerstest.Frame(normalizerstest.FileNamed("gemini", name), data))) {
		if e.EventType != envelopes.ToolResult || e.ToolCallID == nil {
			continue
		}
		got := make(map[string]any)
		if len(e.ToolMetadata) > 0 {
			got, _ = normalizerstest.Parse(e.ToolMetadata).(map[string]any)
			found++
		}
		ok := len(got) == 0 && len(lists[*e.ToolCallID]) == 0
		for _, want := range lists[*e.ToolCallID] {
			ok = ok || reflect.DeepEqual(got, want)
		}
		if !ok {
			want, _ := json.Marshal(lists[*e.ToolCallID])
			t.Errorf("%s: result of %s: tool_metadata is %s, want one of %s", name, *e.ToolCallID, normalizerstest.Clip(string(e.ToolMetadata)), normalizerstest.Clip(string(want)))
		}
	}
	return found
}

// The lists of structured results are those that the bytes of the log state.
func TestListsOfResultsAreThoseOfTheLog(t *testing.T) {
	t.Parallel()
	found := 0
	for _, g := range normalizerstest.Goldens(t, geminitest.Suite) {
		found += checkLists(t, g.Name+".jsonl", g.Raw)
	}
	if found == 0 {
		t.Error("no case has a structured result")
	}
}

// The same for the logs of the corpus.
func TestCorpusListsOfResultsAreThoseOfTheLog(t *testing.T) {
	t.Parallel()
	for _, f := range normalizerstest.Corpus(t, geminitest.Suite) {
		checkLists(t, f.Name, f.Data)
	}
}
