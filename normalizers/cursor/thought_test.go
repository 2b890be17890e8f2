package cursor_test

import (
	"strings"
	"testing"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/normalizerstest"
)

// TestThoughtContinuesBehindALineOfText writes a line of plain text, or a record of an unknown
// type, between two deltas of a thought: the thought is one event of the record that ends it, and
// the line's event stands before it.
func TestThoughtContinuesBehindALineOfText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, between string
		want          envelopes.EventType
	}{
		{"a line of plain text", "S: a warning of the program", envelopes.SystemMessage},
		{"a record of an unknown type", `{"type":"of_tomorrow","session_id":"s"}`, envelopes.Meta},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			file := strings.Join([]string{
				`{"type":"system","subtype":"init","session_id":"s","model":"m","cwd":"/w"}`,
				`{"type":"thinking","subtype":"delta","text":"first ","session_id":"s","timestamp_ms":1767323045000}`,
				c.between,
				`{"type":"thinking","subtype":"delta","text":"second","session_id":"s","timestamp_ms":1767323046000}`,
				`{"type":"thinking","subtype":"completed","session_id":"s","timestamp_ms":1767323047000}`,
			}, "\n")
			records := normalizerstest.Frame(normalizerstest.FileNamed(envelopes.Cursor, "s.ndjson"), []byte(file))
			events := normalizerstest.Events(normalizerstest.Fold(normalizers.Normalize, records))
			if len(events) != 3 {
				t.Fatalf("%d events, want 3", len(events))
			}
			if got := events[1].EventType; got != c.want {
				t.Errorf("the second event is %s, want %s", got, c.want)
			}
			thought := events[2]
			if thought.EventType != envelopes.Reasoning || normalizerstest.Value(thought.Text) != "first second" {
				t.Errorf("the third event is %s %q", thought.EventType, normalizerstest.Value(thought.Text))
			}
			if thought.TS != "2026-01-02T03:04:07.000Z" {
				t.Errorf("the thought has the time %s, want that of the record that ends it", thought.TS)
			}
		})
	}
}
