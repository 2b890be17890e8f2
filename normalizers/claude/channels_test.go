package claude_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/claude/claudetest"
	"tributary/normalizers/core"
	"tributary/normalizers/normalizerstest"
)

// heard is what the events of a session state, without those that others replace.
type heard struct {
	Prompts, Answers []string // sorted
	Calls, Results   []string // ids, sorted
	Tokens           map[string]int64
	Requests         map[string]int64 // tokens by usage.key
	Cost             int64
}

// hear normalizes the records of a session in their order. The session is encoded and decoded behind some of them.
func hear(t rapid.TB, records [][]byte, cut func() bool) heard {
	s := normalizers.NewSession(envelopes.ClaudeCode, "s")
	var events []envelopes.AgentEventV1
	for _, record := range records {
		result, err := normalizers.Normalize(s, core.Record{Source: envelopes.ClaudeCode, Session: "s", Data: bytes.Clone(record)})
		if err != nil {
			t.Fatal(err)
		}
		if len(result.Unknown) > 0 {
			t.Fatalf("unknown: %v in %s", result.Unknown, record)
		}
		for _, e := range result.Events {
			events = append(events, e.Event)
		}
		if cut() {
			if s, err = normalizers.DecodeSession(s.Encode()); err != nil {
				t.Fatal(err)
			}
		}
	}
	return heardOf(t, events)
}

func heardOf(t rapid.TB, events []envelopes.AgentEventV1) heard {
	is := heard{Tokens: map[string]int64{}, Requests: map[string]int64{}}
	replaced, known := map[string]bool{}, map[string]bool{}
	for i := range events {
		e := &events[i]
		if known[e.EventID] {
			t.Errorf("two events %q", e.EventID)
		}
		known[e.EventID] = true
		if e.Supersedes != "" {
			if !known[e.Supersedes] || replaced[e.Supersedes] {
				t.Errorf("%q replaces %q, which is not there or was replaced", e.EventID, e.Supersedes)
			}
			replaced[e.Supersedes] = true
		}
		if u := e.Usage; u != nil {
			is.Tokens["input"] += u.Input
			is.Tokens["cache read"] += u.CacheRead
			is.Tokens["cache write"] += u.CacheWrite
			is.Tokens["cache write for an hour"] += u.CacheWrite1h
			is.Tokens["output"] += u.Output + u.Reasoning
			if u.Total() > 0 {
				is.Requests[u.Key] += u.Total()
			}
			is.Cost += normalizerstest.CostOf(u.CostUSD)
		}
	}
	for i := range events {
		e := &events[i]
		if replaced[e.EventID] {
			continue
		}
		switch e.EventType {
		case envelopes.UserMessage:
			is.Prompts = append(is.Prompts, fmt.Sprintf("%s %q", e.Origin, normalizerstest.Value(e.Text)))
		case envelopes.AssistantMessage:
			is.Answers = append(is.Answers, fmt.Sprintf("%s %q", normalizerstest.Value(e.AgentID), normalizerstest.Value(e.Text)))
		case envelopes.ToolCall:
			is.Calls = append(is.Calls, normalizerstest.Value(e.ToolCallID)+" "+normalizerstest.Value(e.ToolName))
		case envelopes.ToolResult:
			is.Results = append(is.Results, normalizerstest.Value(e.ToolCallID)+" "+normalizerstest.Value(e.ToolName)+" "+string(normalizerstest.Value(e.ToolStatus)))
		default:
		}
	}
	for _, list := range [][]string{is.Prompts, is.Answers, is.Calls, is.Results} {
		slices.Sort(list)
	}
	return is
}

// A session whose log, telemetry and hooks arrive in any order states each prompt, answer, call and result once, as its
// log alone does, and the same tokens of each request. Cost is stated by telemetry, once for each request.
func TestChannelsStateEachThingOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		log := claudetest.Turns(t, "s")
		exports, hooks := claudetest.Exported(log, rapid.Bool().Draw(t, "details"))
		if rapid.Bool().Draw(t, "retries") { // an exporter sends a batch again behind later ones
			exports = rapid.Permutation(exports).Draw(t, "exports")
		}
		old := rapid.Bool().Draw(t, "old version")
		if old { // without the ids that join prompts and requests
			log, exports, hooks = without(log, "promptId"), without(exports, "request_id", "message.uuid"), without(hooks, "prompt_id")
		}
		channels := map[string][][]byte{"log": log}
		which := rapid.SampledFrom([]string{"exports", "hooks", "exports and hooks", "exports and stream", "exports, hooks and stream"}).Draw(t, "channels")
		if strings.Contains(which, "exports") {
			channels["exports"] = exports
		}
		if strings.Contains(which, "hooks") {
			channels["hooks"] = hooks
		}
		if strings.Contains(which, "stream") {
			channels["stream"] = claudetest.Streamed(log, rapid.Bool().Draw(t, "partial messages"))
		}
		want := hear(t, log, func() bool { return false })
		want.Cost = 0
		if channels["exports"] != nil && !old {
			want.Cost = costOf(log)
		}
		got := hear(t, claudetest.Interleaved(t, channels), func() bool { return rapid.IntRange(0, 9).Draw(t, "cut") == 0 })
		if channels["stream"] != nil { // the result of a run states tokens of its requests together
			want.Requests, got.Requests = nil, nil
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("log alone (-) and with %s (+):\n%s", which, diff)
		}
	})
}

// An answer of several blocks, of which a hook states the last one, is one answer with that of telemetry. A text that a
// tool shows belongs to its call.
func TestTelemetryStatesTheWholeAnswerOfAHook(t *testing.T) {
	t.Parallel()
	hook := func(text string) []byte {
		return fmt.Appendf(nil, `{"session_id":"s","hook_event_name":"Stop","prompt_id":"p","last_assistant_message":%q}`, text)
	}
	response := func(request, text, call string) []byte {
		return claudetest.Export("claude_code.assistant_response", "1773048000000000000", map[string]any{
			"session.id": "s", "prompt.id": "p", "request_id": request, "response": text, "response_length": len(text), "tool_use_id": call,
		})
	}
	for _, c := range []struct {
		name    string
		records [][]byte
		answers []string
	}{
		{"the last of two blocks", [][]byte{hook("Two.\nLines."), response("r1", "One.\nTwo.\nLines.\n", ""), hook("Two.\nLines.")}, []string{`"One.\nTwo.\nLines.\n"`}},
		{"the only block", [][]byte{hook("One."), response("r1", "One.", "")}, []string{`"One."`}},
		{"the end of a word", [][]byte{hook("One."), response("r1", "Someone. One.", "")}, []string{`"One."`, `"Someone. One."`}},
		{"of two requests", [][]byte{hook("Two."), response("r1", "One.", ""), response("r2", "It is\nTwo.", "")}, []string{`"It is\nTwo."`, `"One."`}},
		{"of a tool", [][]byte{response("r1", "Shown.", "toolu_1"), response("r1", "One.", "")}, []string{`"One."`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := hear(t, c.records, func() bool { return true })
			for i := range got.Answers {
				got.Answers[i] = strings.TrimSpace(got.Answers[i])
			}
			if diff := cmp.Diff(c.answers, got.Answers); diff != "" {
				t.Errorf("want (-), got (+):\n%s", diff)
			}
		})
	}
}

// without returns records whose members, or attributes, of some names have other names.
func without(records [][]byte, names ...string) [][]byte {
	out := slices.Clone(records)
	for i := range out {
		for _, name := range names {
			out[i] = bytes.ReplaceAll(out[i], []byte(`"`+name+`"`), []byte(`"of_`+name+`"`))
		}
	}
	return out
}

// costOf returns what the requests of a transcript cost.
func costOf(log [][]byte) int64 {
	output := map[string]int64{}
	for _, line := range log {
		v := normalizerstest.Parse(line)
		if request := normalizerstest.Member[string](v, "requestId"); request != "" {
			n, _ := normalizerstest.Member[json.Number](v, "message", "usage", "output_tokens").Int64()
			output[request] = n
		}
	}
	var sum int64
	for _, n := range output {
		sum += normalizerstest.CostOf(claudetest.CostOf(n))
	}
	return sum
}

// The same of the logs of the corpus, whose exports are made by the reader of the suite.
func TestCorpusTelemetryBesideTheTranscripts(t *testing.T) {
	t.Parallel()
	normalizerstest.CheckCorpusChannels(t, claudetest.Suite, claudetest.ExportedLog)
}
