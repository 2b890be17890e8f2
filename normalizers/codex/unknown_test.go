package codex_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/codex/codextest"
	"tributary/normalizers/normalizerstest"
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

// TestUnknownRecordChangesNothingElse puts one into generated rollouts: but for its own event,
// the events are the same.
func TestUnknownRecordChangesNothingElse(t *testing.T) {
	t.Parallel()
	s := codextest.Suite
	rapid.Check(t, func(rt *rapid.T) {
		lines := s.Lines(rt, "s1")
		if len(lines) == 0 {
			return
		}
		at := rapid.IntRange(1, len(lines)).Draw(rt, "position")
		perturb(rt, lines, at)
	})
}

// TestUnknownRecordChangesNothingElseOfTheCorpus puts one into the rollouts of the corpus.
func TestUnknownRecordChangesNothingElseOfTheCorpus(t *testing.T) {
	t.Parallel()
	for _, f := range normalizerstest.Corpus(t, codextest.Suite) {
		lines := bytes.Split(bytes.TrimSpace(f.Data), []byte("\n"))
		for i := 1; i <= 4 && len(lines) > 4; i++ {
			perturb(t, lines, i*len(lines)/5+1)
		}
	}
}

// perturb compares the events of a rollout with those of the same with one more record, of an
// unknown type, and with one more line that no one can read.
func perturb(t rapid.TB, lines [][]byte, at int) {
	t.Helper()
	want := ownContents(lines)
	for kind, line := range map[string][]byte{
		"a record": envelope(ownTime, "of_tomorrow", members{"mark": "f3a1"}),
		"an item":  envelope(ownTime, "response_item", members{"type": "of_tomorrow", "mark": "f3a1"}),
		"a notice": envelope(ownTime, "event_msg", members{"type": "of_tomorrow", "mark": "f3a1"}),
		"garbage":  unknown["a torn line"],
	} {
		got := ownContents(slices.Insert(slices.Clone(lines), at, line))
		if i := firstDifference(got, want); i >= 0 {
			t.Errorf("%s behind line %d: event %d of %d differs, of %d\n%.200s", kind, at, i, len(got), len(want), lines[0])
		}
	}
}

func firstDifference(a, b []string) int {
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			return i
		}
	}
	return -1
}

// ownContents returns the contents of the events of a rollout, without that of the record that
// perturb adds.
func ownContents(lines [][]byte) []string {
	data := append(bytes.Join(lines, []byte("\n")), '\n')
	var out []string
	for _, st := range normalizerstest.Fold(normalizers.Normalize, normalizerstest.Frame(normalizerstest.FileNamed(envelopes.Codex, "s1.jsonl"), data)) {
		for _, e := range st.Result.Events {
			if !bytes.Contains(e.Event.Raw, []byte(`"mark":"f3a1"`)) {
				out = append(out, contents([]envelopes.AgentEventV1{e.Event})...)
			}
		}
	}
	return out
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
