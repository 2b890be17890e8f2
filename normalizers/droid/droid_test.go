package droid_test

import (
	"testing"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/normalizerstest"
)

// Settings belong to the session that their file is named after, as one document.
func TestSettingsAreOfTheSessionBesideThem(t *testing.T) {
	t.Parallel()
	const settings = "{\n  \"assistantActiveTimeMs\": 9,\n  \"tokenUsage\": {\"inputTokens\": 5}\n}\n"
	for name, want := range map[string]string{"s1.settings.json": "s1", "other.json": "other"} {
		framed := normalizerstest.Frame(normalizers.File{Name: name, Folder: "/h/.factory/sessions/-w"}, []byte(settings))
		events := normalizerstest.Events(normalizerstest.Fold(normalizers.Normalize, framed))
		if len(events) != 1 || events[0].Source != envelopes.Droid || events[0].SessionID != want || normalizerstest.Value(events[0].TokensTotal) != 5 {
			t.Errorf("%s: %+v", name, events)
		}
		if framed[0].Record.Origin.Digest == "" {
			t.Errorf("%s is no document", name)
		}
	}
}
