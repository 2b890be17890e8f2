package copilot_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/copilot/copilottest"
	"tributary/normalizers/normalizerstest"
)

type members = map[string]any

// record returns a record of a log.
func record(n int, of string, data members) []byte {
	line, err := json.Marshal(members{"type": of, "data": data, "id": fmt.Sprintf("e%d", n), "timestamp": "2026-03-01T10:00:00.000Z", "parentId": nil})
	if err != nil {
		panic(err) // of a test
	}
	return line
}

// eventsOf returns the events of a log, and holds them to the independent reader of logs.
func eventsOf(t *testing.T, lines ...[]byte) []envelopes.AgentEventV1 {
	t.Helper()
	lines = append([][]byte{record(0, "session.start", members{"sessionId": "s1", "selectedModel": "gpt-5"})}, lines...)
	data := append(bytes.Join(lines, []byte("\n")), '\n')
	file := normalizerstest.FileNamed(envelopes.Copilot, "events.jsonl")
	var out []envelopes.AgentEventV1
	for _, st := range normalizerstest.Fold(normalizers.Normalize, normalizerstest.Frame(file, data)) {
		for _, e := range st.Result.Events {
			out = append(out, e.Event)
		}
	}
	for _, p := range normalizerstest.CheckTruth(copilottest.Suite, normalizers.Normalize, file, data, normalizerstest.NewReport()) {
		t.Errorf("%s\nof the file\n%s", p, data)
	}
	normalizerstest.CheckLaws(t, copilottest.Suite, normalizerstest.Frame(file, data), true)
	return out
}

// used returns an entry of modelMetrics.
func used(input, output, cached, reasoning int) members {
	return members{"usage": members{"inputTokens": input, "outputTokens": output, "cacheReadTokens": cached, "cacheWriteTokens": 0, "reasoningTokens": reasoning}}
}

// bills returns what the events carry: model, input, output, reasoning, and usage.
func bills(events []envelopes.AgentEventV1) []string {
	var out []string
	for _, e := range events {
		if e.Usage == nil {
			continue
		}
		out = append(out, fmt.Sprintf("%s %s: input %d, output %d, thinking %d", e.EventType,
			normalizerstest.Value(e.Model), normalizerstest.Value(e.TokensInput), normalizerstest.Value(e.TokensOutput), normalizerstest.Value(e.TokensThinking)))
	}
	return out
}

func TestShutdownBillsEachModel(t *testing.T) {
	t.Parallel()
	metrics := members{"gpt-5": used(1_000, 300, 200, 64), "claude-haiku-4.5": used(500, 50, 0, 0)}
	for name, c := range map[string]struct {
		lines [][]byte
		want  []string
	}{
		"nothing before": {
			[][]byte{record(1, "session.shutdown", members{"modelMetrics": metrics})},
			[]string{
				"session_summary claude-haiku-4.5: input 500, output 50, thinking 0",
				"meta gpt-5: input 1000, output 300, thinking 64",
			},
		},
		"messages before": {
			[][]byte{
				record(1, "assistant.message", members{"messageId": "m1", "content": "a", "outputTokens": 300}),
				record(2, "session.shutdown", members{"modelMetrics": metrics}),
			},
			[]string{
				"assistant_message gpt-5: input 0, output 300, thinking 0",
				"session_summary claude-haiku-4.5: input 500, output 50, thinking 0",
				"meta gpt-5: input 1000, output 0, thinking 64",
			},
		},
		"a message of another name": {
			[][]byte{
				record(1, "assistant.message", members{"messageId": "m1", "content": "a", "outputTokens": 50, "model": "haiku"}),
				record(2, "session.shutdown", members{"modelMetrics": members{"claude-haiku-4.5": used(500, 50, 0, 0)}}),
			},
			[]string{
				"assistant_message haiku: input 0, output 50, thinking 0",
				"session_summary claude-haiku-4.5: input 500, output 0, thinking 0",
			},
		},
		"again, with more": {
			[][]byte{
				record(1, "session.shutdown", members{"modelMetrics": metrics}),
				record(2, "session.shutdown", members{"modelMetrics": members{"gpt-5": used(1_500, 400, 200, 64), "claude-haiku-4.5": used(500, 50, 0, 0)}}),
			},
			[]string{
				"session_summary claude-haiku-4.5: input 500, output 50, thinking 0",
				"meta gpt-5: input 1000, output 300, thinking 64",
				"session_summary gpt-5: input 500, output 100, thinking 0",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := bills(eventsOf(t, c.lines...)); !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// run returns a run of a session: what begins it, a message of so many output tokens, and its
// end with the totals of the models.
func run(n int, begin string, output int, metrics members) [][]byte {
	return [][]byte{
		record(10*n, begin, members{"sessionId": "s1", "selectedModel": "gpt-5"}),
		record(10*n+1, "assistant.message", members{"messageId": fmt.Sprint("m", n), "content": fmt.Sprint("answer ", n), "outputTokens": output}),
		record(10*n+2, "session.shutdown", members{"modelMetrics": metrics}),
	}
}

func TestShutdownStatesTheSessionOrTheRun(t *testing.T) {
	t.Parallel()
	message := func(output int) string {
		return fmt.Sprintf("assistant_message gpt-5: input 0, output %d, thinking 0", output)
	}
	first := run(1, "session.resume", 300, members{"gpt-5": used(1_000, 300, 200, 0)})
	billed := []string{message(300), "session_summary gpt-5: input 1000, output 0, thinking 0"}
	for name, c := range map[string]struct {
		lines [][]byte
		want  []string
	}{
		"the session": {
			run(2, "session.resume", 200, members{"gpt-5": used(1_800, 500, 300, 0)}),
			[]string{message(200), "session_summary gpt-5: input 800, output 0, thinking 0"},
		},
		"the run": {
			run(2, "session.resume", 200, members{"gpt-5": used(900, 200, 300, 0)}),
			[]string{message(200), "session_summary gpt-5: input 900, output 0, thinking 0"},
		},
		"the run, of another model": {
			run(2, "session.resume", 200, members{"claude-haiku-4.5": used(900, 150, 300, 0), "gpt-5": used(700, 50, 0, 0)}),
			[]string{
				message(200),
				"session_summary claude-haiku-4.5: input 900, output 0, thinking 0",
				"meta gpt-5: input 700, output 0, thinking 0",
			},
		},
		"a run with more output than its messages": {
			run(2, "session.resume", 200, members{"gpt-5": used(900, 260, 300, 0)}),
			[]string{message(200), "session_summary gpt-5: input 900, output 60, thinking 0"},
		},
		"a run that ended without a word, and the next": {
			append(run(2, "session.resume", 200, nil)[:2], run(3, "session.resume", 100, members{"gpt-5": used(400, 100, 0, 0)})...),
			[]string{message(200), message(100), "session_summary gpt-5: input 400, output 0, thinking 0"},
		},
		"the run twice": {
			append(run(2, "session.resume", 200, members{"gpt-5": used(900, 200, 300, 0)}),
				record(30, "session.shutdown", members{"modelMetrics": members{"gpt-5": used(950, 200, 300, 0)}})),
			[]string{message(200), "session_summary gpt-5: input 900, output 0, thinking 0", "session_summary gpt-5: input 50, output 0, thinking 0"},
		},
		"all of it read again": {
			slices.Concat(run(2, "session.resume", 200, members{"gpt-5": used(900, 200, 300, 0)}), first,
				run(2, "session.resume", 200, members{"gpt-5": used(900, 200, 300, 0)}), run(3, "session.resume", 100, members{"gpt-5": used(400, 100, 0, 0)})),
			[]string{
				message(200), "session_summary gpt-5: input 900, output 0, thinking 0",
				message(100), "session_summary gpt-5: input 400, output 0, thinking 0",
			},
		},
		"the run, of calls with records": {
			[][]byte{
				record(20, "session.resume", members{"selectedModel": "gpt-5"}),
				record(21, "assistant.message", members{"messageId": "m2", "apiCallId": "c2", "content": "answer 2", "outputTokens": 200}),
				record(22, "session.usage_record", members{"usage": members{"model": "gpt-5", "apiCallId": "c2", "inputTokens": 900, "outputTokens": 200}}),
				record(23, "assistant.message", members{"messageId": "m3", "apiCallId": "c3", "content": "answer 3", "outputTokens": 100}),
				record(24, "session.shutdown", members{"modelMetrics": members{"gpt-5": used(1_300, 300, 0, 0)}}),
			},
			[]string{
				message(200),
				"meta gpt-5: input 900, output 0, thinking 0",
				"session_summary gpt-5: input 400, output 100, thinking 0",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, want := bills(eventsOf(t, slices.Concat(first, c.lines)...)), slices.Concat(billed, c.want); !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}

func TestReasoningCountsWhereMessagesCarriedTheOutput(t *testing.T) {
	t.Parallel()
	message := record(1, "assistant.message", members{"messageId": "m1", "content": "a", "outputTokens": 2_000})
	figures := members{"inputTokens": 10, "outputTokens": 2_000, "reasoningTokens": 1_024}
	for name, last := range map[string][]byte{
		"a shutdown":             record(2, "session.shutdown", members{"modelMetrics": members{"gpt-5": members{"usage": figures}}}),
		"a shutdown of it alone": record(2, "session.shutdown", members{"modelMetrics": members{"gpt-5": used(0, 2_000, 0, 1_024)}}),
		"a record of usage":      record(2, "session.usage_record", members{"usage": members{"model": "gpt-5", "apiCallId": "c1", "inputTokens": 10, "outputTokens": 2_000, "reasoningTokens": 1_024}}),
	} {
		var output, thinking int64
		for _, e := range eventsOf(t, message, last) {
			output, thinking = output+normalizerstest.Value(e.TokensOutput), thinking+normalizerstest.Value(e.TokensThinking)
		}
		if output != 2_000 || thinking != 1_024 {
			t.Errorf("%s: output %d, thinking %d", name, output, thinking)
		}
	}
}

func TestSkillContextWithoutASourceIsInjected(t *testing.T) {
	t.Parallel()
	events := eventsOf(t,
		record(1, "user.message", members{"content": "<skill-context name=\"review\">\nLook twice.\n</skill-context>"}),
		record(2, "user.message", members{"content": "What is <skill-context>?"}))
	for i, want := range []envelopes.Origin{envelopes.OriginInjected, ""} {
		if got := events[i+1].Origin; got != want {
			t.Errorf("%q has origin %q, want %q", *events[i+1].Text, got, want)
		}
	}
}
