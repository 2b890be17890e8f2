package cursor_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"tributary/envelopes"
	"tributary/normalizers/normalizerstest"
)

func TestResultHasTheStreamsAndTheDiffOfItsRecord(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		call string
		want *envelopes.ToolOutput
	}{
		"stdout alone":         {`{"shellToolCall":{"result":{"success":{"stdout":"out","stderr":""}}}}`, nil},
		"both":                 {`{"shellToolCall":{"result":{"failure":{"stdout":"out","stderr":"err"}}}}`, &envelopes.ToolOutput{Stdout: new("out"), Stderr: new("err")}},
		"stderr alone":         {`{"shellToolCall":{"result":{"failure":{"stderr":"err"}}}}`, &envelopes.ToolOutput{Stdout: new(""), Stderr: new("err")}},
		"an edit":              {`{"editToolCall":{"result":{"success":{"diffString":"@@"}}}}`, &envelopes.ToolOutput{Diff: new("@@")}},
		"an edit that failed":  {`{"editToolCall":{"result":{"error":{"diffString":"@@"}}}}`, nil},
		"a diff that was read": {`{"readToolCall":{"result":{"success":{"diffString":"@@"}}}}`, nil},
	} {
		e := normalizerstest.SeedEvents(t, envelopes.Cursor, "s.jsonl", normalizerstest.SeedLines(
			`{"type":"tool_call","subtype":"completed","session_id":"s","call_id":"c","tool_call":`+test.call+`}`))[0]
		if diff := cmp.Diff(test.want, e.ToolOutput); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestResultHasTheArgumentsOfACallWithoutAnEvent(t *testing.T) {
	t.Parallel()
	const (
		started   = `{"type":"tool_call","subtype":"started","session_id":"s","call_id":"c","tool_call":{"shellToolCall":{"args":{"command":"pwd"}}}}`
		completed = `{"type":"tool_call","subtype":"completed","session_id":"s","call_id":"c","tool_call":{"shellToolCall":{"args":{ "command":"pwd"},"result":{"success":{"stdout":"/"}}}}}`
	)
	alone := normalizerstest.SeedEvents(t, envelopes.Cursor, "s.jsonl", normalizerstest.SeedLines(completed))
	if got := string(alone[0].ToolInput); got != `{"command":"pwd"}` {
		t.Errorf("without a call: %s", got)
	}
	both := normalizerstest.SeedEvents(t, envelopes.Cursor, "s.jsonl", normalizerstest.SeedLines(started, completed))
	if both[1].ToolInput != nil {
		t.Errorf("with a call: %s", both[1].ToolInput)
	}
}
