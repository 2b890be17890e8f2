package printer

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"tributary/envelopes"
)

// The messages of all sessions are printed nevertheless.
func TestLinesRememberABoundedNumberOfSessions(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	lines := NewLines(&out, AsACP, Members{})
	const count = maxProjected + 5
	say := func(session int, text string) {
		t.Helper()
		e := envelopes.AgentEventV1{
			Source: envelopes.Codex, SessionID: strconv.Itoa(session), EventID: text, TS: "2026-03-09T09:00:00Z",
			EventType: envelopes.AssistantMessage, Text: &text, Sequence: 1,
		}
		if err := lines.Event(&e); err != nil {
			t.Fatal(err)
		}
	}
	for i := range count {
		say(i, fmt.Sprintf("of %d.", i))
		say(0, "again.") // a session in use is not forgotten
		if len(lines.sessions) > maxProjected || len(lines.order) != len(lines.sessions) {
			t.Fatalf("%d sessions, %d in order", len(lines.sessions), len(lines.order))
		}
	}
	if err := lines.End(); err != nil {
		t.Fatal(err)
	}
	if len(lines.sessions) > 0 {
		t.Errorf("%d sessions are open", len(lines.sessions))
	}
	if got := strings.Count(out.String(), "\n"); got != count {
		t.Errorf("%d messages of %d sessions", got, count)
	}
	for i := range count {
		if got := strings.Count(out.String(), fmt.Sprintf(`"of %d."`, i)); got != 1 {
			t.Errorf("session %d is printed %d times", i, got)
		}
	}
	if got := strings.Count(out.String(), `"again."`); got != count {
		t.Errorf("the session in use is printed %d times", got)
	}
}
