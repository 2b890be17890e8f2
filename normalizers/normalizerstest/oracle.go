package normalizerstest

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tributary/normalizers"
	"tributary/normalizers/core"
)

// Single returns a record without a file, as anybody may publish it.
func Single(s Suite, data []byte) []normalizers.Framed {
	return []normalizers.Framed{{Line: 1, Record: core.Record{
		Source: s.Source, Session: "s", Sequence: 1, Stored: Modified, Data: data,
	}}}
}

// ComparedBy returns a field for comparison: the text of a call is JSON, compared by value.
func ComparedBy(field string, v any, of map[string]any) any {
	s, ok := v.(string)
	if field != "text" || of["event_type"] != "tool_call" || !ok {
		return v
	}
	var parsed any
	if json.Unmarshal([]byte(s), &parsed) != nil {
		return s
	}
	return parsed
}

// Object reads a JSON object.
func Object(t *testing.T, b []byte) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// Same compares two values.
func Same(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
