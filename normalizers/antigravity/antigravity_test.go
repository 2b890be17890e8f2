package antigravity_test

import (
	"testing"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/normalizerstest"
)

// A transcript belongs to the conversation in whose folder it lies.
func TestPathShowsTheConversation(t *testing.T) {
	t.Parallel()
	const log = `{"step_index":0,"source":"USER_EXPLICIT","type":"USER_INPUT","status":"DONE","created_at":"2026-03-09T16:20:10Z","content":"x"}`
	for path, want := range map[[2]string]string{
		{"/h/.gemini/antigravity-cli/brain/c1/.system_generated/logs", "transcript.jsonl"}:             "c1",
		{"/h/.gemini/antigravity/brain/c2/.system_generated/logs", "transcript_full.jsonl"}:            "c2",
		{"/h/.gemini/antigravity/brain/c2/.system_generated/logs/chunks/transcript", "00000000.jsonl"}: "c2",
		{"/tmp/logs", "saved.jsonl"}: "saved",
	} {
		file := normalizers.File{Source: envelopes.Antigravity, Folder: path[0], Name: path[1]}
		if got := normalizerstest.Frame(file, []byte(log))[0].Record.Session; got != want {
			t.Errorf("%v is of %q, want %q", path, got, want)
		}
	}
}
