package codex_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"tributary/envelopes"
)

// unknown are records of types that no version wrote so far, and lines that no one can read.
var unknown = map[string][]byte{
	"a record":            envelope(ownTime, "of_tomorrow", members{"x": 1}),
	"an item":             item("of_tomorrow", members{"x": 1}),
	"a notice":            notice(ownTime, "of_tomorrow", members{"x": 1}),
	"an item of a notice": notice(ownTime, "item_completed", members{"item": members{"type": "OfTomorrow", "id": "x"}}),
	"a number":            []byte("42"),
	"a torn line":         []byte(`{"timestamp":"2026-03-01T10:00:0`),
	"a line of text":      []byte("stack overflow"),
}

// TestUnknownRecordEndsNoWait puts each of them between the two records of a text, of a tool
// and of a search: one meta event comes in addition, or a dead letter, and nothing else
// changes.
func TestUnknownRecordEndsNoWait(t *testing.T) {
	t.Parallel()
	meta := envelope(ownTime, "session_meta", members{"id": childID})
	search := members{"type": "search", "query": "go"}
	for name, lines := range map[string][2][]byte{
		"prompt":    {notice(ownTime, "user_message", members{"message": "fix it"}), said("user", "fix it")},
		"answer":    {notice(ownTime, "agent_message", members{"message": "done"}), said("assistant", "done")},
		"reasoning": {notice(ownTime, "agent_reasoning", members{"text": "hm"}), item("reasoning", members{"summary": []any{members{"type": "summary_text", "text": "hm"}}})},
		"repeated":  {said("assistant", "done"), notice(ownTime, "agent_message", members{"message": "done"})},
		"search":    {notice(ownTime, "web_search_end", members{"call_id": "ws_1", "query": "go", "action": search}), item("web_search_call", members{"status": "completed", "action": search})},
		"call":      {item("function_call", members{"name": "shell", "call_id": "call_1", "arguments": "{}"}), item("function_call_output", members{"call_id": "call_1", "output": "ok"})},
		"tokens":    {tokenCount(ownTime, usageOf(90, 10), usageOf(90, 10)), tokenCount(ownTime, usageOf(90, 10), usageOf(90, 10))},
	} {
		for kind, line := range unknown {
			t.Run(fmt.Sprintf("%s/%s", name, kind), func(t *testing.T) {
				t.Parallel()
				want := contents(eventsOf(t, meta, lines[0], lines[1]))
				got := contents(eventsOf(t, meta, lines[0], line, lines[1]))
				additional := 0
				got = slices.DeleteFunc(got, func(e string) bool {
					meta := e == contents([]envelopes.AgentEventV1{{EventType: envelopes.Meta}})[0]
					if meta {
						additional++
					}
					return meta
				})
				want = slices.DeleteFunc(want, func(e string) bool {
					meta := e == contents([]envelopes.AgentEventV1{{EventType: envelopes.Meta}})[0]
					if meta {
						additional--
					}
					return meta
				})
				if !slices.Equal(got, want) {
					t.Errorf("events\n%q\nwant\n%q", got, want)
				}
				if isRecord := json.Valid(line); isRecord != (additional == 1) || !isRecord && additional != 0 {
					t.Errorf("%d additional events", additional)
				}
			})
		}
	}
}

// contents returns what events hold but for ids and order numbers.
func contents(events []envelopes.AgentEventV1) []string {
	var out []string
	for _, e := range events {
		line, err := json.Marshal([]any{e.EventType, e.Text, e.ToolCallID, e.ToolName, e.ToolStatus, e.TokensTotal, e.Origin})
		if err != nil {
			panic(err) // of a test
		}
		out = append(out, string(line))
	}
	return out
}
