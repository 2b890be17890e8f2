package kiro_test

import (
	"testing"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/normalizerstest"
)

// The events of Kiro IDE belong to the session after which their folder is named.
func TestFolderShowsTheSession(t *testing.T) {
	t.Parallel()
	const log = `{"id":"u-1","timestamp":"2026-09-04T08:00:00.000Z","payload":{"type":"user","content":"x"}}`
	file := normalizers.File{Source: envelopes.Kiro, Folder: "/h/.kiro/sessions/9f3c1d0b7a4e2856/sess_1", Name: "messages.jsonl"}
	if got := normalizerstest.Frame(file, []byte(log))[0].Record.Session; got != "sess_1" {
		t.Errorf("it is of %q", got)
	}
	file.Source = ""
	if got := normalizerstest.Frame(file, []byte(log))[0].Record; got.Session != "sess_1" || got.Source != envelopes.Kiro {
		t.Errorf("without an agent it is of %q of %q", got.Session, got.Source)
	}
}
