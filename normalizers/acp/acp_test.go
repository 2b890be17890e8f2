package acp_test

import (
	"fmt"
	"strings"
	"testing"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/normalizers/normalizerstest"
)

// The state of a session fits and no text is lost: in messages that are never completed, in many
// runs, in histories of many messages.
func TestStateIsBoundedAndNoTextIsLost(t *testing.T) {
	t.Parallel()
	const most = 128 << 10
	s := normalizers.NewSession(envelopes.ACP, "s")
	var texts strings.Builder
	normalize := func(data string) {
		t.Helper()
		result, err := normalizers.Normalize(s, core.Record{Source: envelopes.ACP, Session: "s", Stored: normalizerstest.Modified, Data: []byte(data)})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range result.Events {
			if e.Event.EventType == envelopes.AssistantMessage {
				texts.WriteString(normalizerstest.Value(e.Event.Text))
			}
		}
		if n := len(s.Encode()); n > most {
			t.Fatalf("a state of %d bytes", n)
		}
	}
	var want strings.Builder
	for run := range 12 {
		normalize(fmt.Sprintf(`{"type":"run.created","run":{"run_id":"%s%d","agent_name":"%s","session_id":"s","status":"created"}}`,
			strings.Repeat("r", 300), run, strings.Repeat("a", 1000)))
		normalize(`{"type":"message.created","message":{"role":"agent/` + strings.Repeat("a", 1000) + `","parts":[]}}`)
		for part := range 120 {
			text := fmt.Sprintf("%d of %d: %s", part, run, strings.Repeat("<\u0001\">", 100))
			quoted := strings.NewReplacer("\u0001", `\u0001`, `"`, `\"`).Replace(text)
			normalize(`{"type":"message.part","part":{"content":"` + quoted + `","x":"` + strings.Repeat("x", 10*part) + `"}}`)
			want.WriteString(text)
		}
	}
	normalize(`{"type":"error","error":{"code":"x"}}`)
	if texts.String() != want.String() {
		t.Errorf("%d bytes emitted, %d said", texts.Len(), want.Len())
	}
	for i := range 600 {
		normalize(fmt.Sprintf(`{"role":"user","parts":[{"content":"message %d"}],"created_at":"2026-03-01T09:00:00Z"}`, i))
	}
}

// A message that comes again is recognized however its text is divided into parts.
func TestRepeatedMessageIsRecognizedInAnyParts(t *testing.T) {
	t.Parallel()
	for _, parts := range []string{`{"content":"yes"}`, `{"content":""},{"content":"yes"}`, `{"content":"y","x-more":1},{"content":"","x-more":2},{"content":"es"}`} {
		emitted := 0
		for _, e := range normalizerstest.SeedEvents(t, envelopes.ACP, "s.jsonl", normalizerstest.SeedLines(
			`{"run_id":"r","agent_name":"a","session_id":"s","status":"completed","output":[{"role":"agent","parts":[`+parts+`]}]}`,
			`{"role":"agent","parts":[{"content":"yes"}]}`,
		)) {
			if e.EventType == envelopes.AssistantMessage {
				emitted++
			}
		}
		if emitted != 1 {
			t.Errorf("%s: emitted %d times, want 1", parts, emitted)
		}
	}
}

// Of two messages of the same text, one with a time and one without, a history repeats the
// emitted one and adds the other.
func TestMessagesWithAndWithoutATimeAreTwo(t *testing.T) {
	t.Parallel()
	const timed, untimed = `{"role":"agent","created_at":"2026-03-01T09:00:00Z","parts":[{"content":"yes"}]}`, `{"role":"agent","parts":[{"content":"yes"}]}`
	emitted := 0
	for _, e := range normalizerstest.SeedEvents(t, envelopes.ACP, "s.jsonl", normalizerstest.SeedLines("["+timed+"]", "["+timed+","+untimed+"]")) {
		if e.EventType == envelopes.AssistantMessage {
			emitted++
		}
	}
	if emitted != 2 {
		t.Errorf("emitted %d times, want 2", emitted)
	}
}
