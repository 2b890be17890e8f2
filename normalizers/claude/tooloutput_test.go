package claude_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/normalizerstest"
)

// resultOf returns the event of a result with a text and a structured result.
func resultOf(t *testing.T, text, structured string) envelopes.AgentEventV1 {
	t.Helper()
	quoted, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	record := fmt.Sprintf(`{"type":"user","uuid":"u","sessionId":"s","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":%s}]},"toolUseResult":%s}`, quoted, structured)
	return normalizerstest.SeedEvents(t, envelopes.ClaudeCode, "s.jsonl", normalizerstest.SeedLines(record))[0]
}

func TestResultHasTheStreamsThatItsTextDoesNotShow(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		text, structured string
		want             *envelopes.ToolOutput
	}{
		"stdout alone":           {"out", `{"stdout":"out","stderr":""}`, nil},
		"nothing":                {"", `{"stdout":"","stderr":""}`, nil},
		"both":                   {"out\nerr", `{"stdout":"out","stderr":"err"}`, &envelopes.ToolOutput{Stdout: new("out"), Stderr: new("err")}},
		"stderr alone":           {"err", `{"stderr":"err"}`, &envelopes.ToolOutput{Stderr: new("err")}},
		"another text":           {"runs in the background", `{"stdout":"","stderr":""}`, &envelopes.ToolOutput{Stdout: new(""), Stderr: new("")}},
		"a trimmed text":         {"out", `{"stdout":"out\n","stderr":""}`, &envelopes.ToolOutput{Stdout: new("out\n"), Stderr: new("")}},
		"streams of another":     {"mine", `{"stdout":"yours","stderr":""}`, nil},
		"an image":               {"[image]", `{"stdout":"QUJD","stderr":"","isImage":true}`, nil},
		"a result of no command": {"ok", `{"filePath":"/a"}`, nil},
	} {
		if diff := cmp.Diff(test.want, resultOf(t, test.text, test.structured).ToolOutput); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// An event that is too large loses raw first, then the streams, which its text contains.
func TestLargeResultLosesItsStreamsBeforeItsText(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		bytes    int
		raw, out bool
	}{{1 << 10, true, true}, {150 << 10, false, true}, {300 << 10, false, false}} {
		stream := strings.Repeat("a word. ", test.bytes/8) + "."
		e := resultOf(t, stream, `{"stdout":"","stderr":"`+stream+`"}`)
		b, err := normalizerstest.Encode(e)
		if err != nil || len(b) > core.MaxEventBytes {
			t.Errorf("an event of %d bytes, %v", len(b), err)
		}
		if (e.Raw != nil) != test.raw || (e.ToolOutput != nil) != test.out || normalizerstest.Value(e.Text) != stream {
			t.Errorf("a stream of %d bytes: raw %t, tool_output %t, text of %d bytes", test.bytes, e.Raw != nil, e.ToolOutput != nil, len(normalizerstest.Value(e.Text)))
		}
	}
}
