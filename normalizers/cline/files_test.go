package cline_test

import (
	"io/fs"
	"path"
	"slices"
	"testing"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/cline"
	"tributary/normalizers/core"
	"tributary/normalizers/normalizerstest"
)

// The two files of the task in the samples state the same conversation: in either order, and read again, each text, call
// and token counts once. One file alone has all texts and calls.
func TestFilesOfATaskAreOneConversation(t *testing.T) {
	t.Parallel()
	const shown, sent = "ui_messages.json", "api_conversation_history.json"
	want := []string{
		"assistant_message I will look at Transfer.", "assistant_message No. `Transfer` accepts zero: TestZero fails.",
		"tool_call execute_command", "tool_call search_files", "user_message Does the ledger reject a transfer of zero?",
	}
	for _, c := range []struct {
		files  []string
		tokens int64
	}{
		{[]string{shown}, 13_547},
		{[]string{sent}, 557}, // without the cache
		{[]string{shown, sent}, 13_547},
		{[]string{sent, shown}, 13_547},
		{[]string{sent, shown, sent, shown}, 13_547},
	} {
		var got []string
		var tokens int64
		results := make(map[string]bool)
		for _, e := range eventsOf(t, c.files) {
			switch e.EventType {
			case envelopes.UserMessage, envelopes.AssistantMessage:
				got = append(got, string(e.EventType)+" "+*e.Text)
			case envelopes.ToolCall:
				got = append(got, "tool_call "+*e.ToolName)
			case envelopes.ToolResult:
				results[*e.ToolName] = true
			default:
			}
			if e.TokensTotal != nil {
				tokens += *e.TokensTotal
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) || tokens != c.tokens || !results["execute_command"] {
			t.Errorf("%s: %d tokens, results of %v\n%q, want %d\n%q", c.files, tokens, results, got, c.tokens, want)
		}
	}
}

// eventsOf returns the events of files of the task, read one after the other.
func eventsOf(t *testing.T, files []string) []envelopes.AgentEventV1 {
	t.Helper()
	var steps []normalizerstest.Step
	sessions := make(map[string]*core.Session)
	for _, file := range files {
		err := fs.WalkDir(cline.Vendor.Samples(), ".", func(name string, _ fs.DirEntry, err error) error {
			if err != nil || path.Base(name) != file {
				return err
			}
			data, err := fs.ReadFile(cline.Vendor.Samples(), name)
			in := normalizers.File{Source: envelopes.Cline, Name: file, Path: name, Folder: path.Dir(name)}
			for _, r := range normalizerstest.Frame(in, data) {
				steps = append(steps, normalizerstest.FoldOne(normalizers.Normalize, sessions, r))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(sessions) != 1 {
		t.Errorf("%s: %d sessions", files, len(sessions))
	}
	return normalizerstest.Events(steps)
}
