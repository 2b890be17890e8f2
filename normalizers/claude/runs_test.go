package claude_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/normalizers/normalizerstest"
)

// The stream of a run and the transcript of its session state the same calls. However their lines
// are interleaved, a token is counted once, also of messages that came whole, which only modelUsage counts.
func TestStreamAndTranscriptCountEachTokenOnce(t *testing.T) {
	t.Parallel()
	usage := func(input, read, output int) string {
		return fmt.Sprintf(`{"input_tokens":%d,"cache_read_input_tokens":%d,"output_tokens":%d}`, input, read, output)
	}
	answer := func(session, id string, n int, usage string) string {
		return fmt.Sprintf(`{"type":"assistant",%q:"s","uuid":"u-%s-%d","timestamp":"2026-03-01T10:00:00.000Z","message":{"id":%q,"role":"assistant","model":"claude-test-1","content":[{"type":"text","text":"%s %d"}],"usage":%s}}`,
			session, id, n, id, id, n, usage)
	}
	rapid.Check(t, func(t *rapid.T) {
		var stream, transcript []string
		var used envelopes.Usage // by all calls
		var all [3]int           // of all runs so far
		for run := range rapid.IntRange(1, 3).Draw(t, "runs") {
			streamed := rapid.Bool().Draw(t, "streamed")
			if streamed {
				stream = append(stream, fmt.Sprintf(`{"type":"system","subtype":"init","session_id":"s","uuid":"init-%d","model":"claude-test-1"}`, run))
			}
			var in, hit, out int // of the run, as its usage has them
			for call := range rapid.IntRange(1, 3).Draw(t, "calls") {
				id := fmt.Sprintf("msg-%d-%d", run, call)
				i, r, o := rapid.IntRange(0, 9).Draw(t, "input"), rapid.IntRange(0, 900).Draw(t, "read"), rapid.IntRange(3, 99).Draw(t, "output")
				whole := streamed && rapid.Bool().Draw(t, "whole")
				for n := range rapid.IntRange(1, 2).Draw(t, "records") {
					switch {
					case whole:
						stream = append(stream, answer("session_id", id, n, usage(i, r, o)+`,"stop_reason":"end_turn"`))
					case streamed:
						stream = append(stream, answer("session_id", id, n, usage(i, r, rapid.IntRange(0, 3).Draw(t, "so far"))))
					}
					transcript = append(transcript, answer("sessionId", id, n, usage(i, r, o)))
				}
				all = [3]int{all[0] + i, all[1] + r, all[2] + o}
				if !whole {
					in, hit, out = in+i, hit+r, out+o
				}
			}
			stream = append(stream, fmt.Sprintf(`{"type":"result","subtype":"success","session_id":"s","uuid":"result-%d","num_turns":1,"result":"","usage":%s,"modelUsage":{"claude-test-1":{"inputTokens":%d,"cacheReadInputTokens":%d,"outputTokens":%d}}}`,
				run, usage(in, hit, out), all[0], all[1], all[2]))
		}
		used.Input, used.CacheRead, used.Output = int64(all[0]), int64(all[1]), int64(all[2])
		s := normalizers.NewSession(envelopes.ClaudeCode, "s")
		var sum envelopes.Usage
		for len(stream)+len(transcript) > 0 {
			from := &stream
			if len(stream) == 0 || len(transcript) > 0 && rapid.Bool().Draw(t, "transcript next") {
				from = &transcript
			}
			line := (*from)[0]
			*from = (*from)[1:]
			result, err := normalizers.Normalize(s, core.Record{Source: envelopes.ClaudeCode, Session: "s", Data: []byte(line)})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range result.Events {
				if u := e.Event.Usage; u != nil {
					sum.Input, sum.CacheRead, sum.Output = sum.Input+u.Input, sum.CacheRead+u.CacheRead, sum.Output+u.Output
				}
			}
		}
		if sum != used {
			t.Errorf("emitted %+v, used %+v", sum, used)
		}
	})
}

// A message that the stream began before the result of its run and completes after it adds
// nothing to the figures of the result.
func TestMessageCompletedAfterItsResultAddsNothing(t *testing.T) {
	t.Parallel()
	const (
		part    = `{"type":"stream_event","session_id":"s","uuid":"p%d","parent_tool_use_id":null,"event":%s}`
		usage   = `"usage":{"input_tokens":2,"output_tokens":3}`
		result  = `{"type":"result","subtype":"success","session_id":"s","uuid":"end","num_turns":1,"result":"done",` + usage + `}`
		message = `{"type":"assistant","session_id":"s","uuid":"said","parent_tool_use_id":null,"message":{"id":"m1","role":"assistant","content":[{"type":"text","text":"done"}],` + usage + `}}`
	)
	chunks := []string{
		fmt.Sprintf(part, 1, `{"type":"message_start","message":{"id":"m1","role":"assistant","content":[]}}`),
		fmt.Sprintf(part, 2, `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"do"}}`),
	}
	for n := 1; n <= len(chunks); n++ {
		var total int64
		for _, e := range normalizerstest.SeedEvents(t, envelopes.ClaudeCode, "s.jsonl", normalizerstest.SeedLines(append(chunks[:n:n], result, message)...)) {
			total += normalizerstest.Value(e.TokensTotal)
		}
		if total != 5 {
			t.Errorf("%d parts: %d tokens, want 5", n, total)
		}
	}
}

// A repeated result adds nothing, also when another record has stated its figures since.
func TestRepeatedResultAddsNothing(t *testing.T) {
	t.Parallel()
	const (
		start   = `{"type":"system","subtype":"init","session_id":"s","uuid":"start","model":"m","tools":[]}`
		result  = `{"type":"result","subtype":"success","session_id":"s","uuid":"end","num_turns":1,"result":"done","usage":{"input_tokens":2,"output_tokens":1}}`
		message = `{"type":"assistant","session_id":"s","uuid":"said","parent_tool_use_id":null,"message":{"id":"m1","role":"assistant","content":[{"type":"text","text":"done"}]}}`
	)
	var total int64
	for _, e := range normalizerstest.SeedEvents(t, envelopes.ClaudeCode, "s.jsonl", normalizerstest.SeedLines(start, result, message, result)) {
		total += normalizerstest.Value(e.TokensTotal)
	}
	if total != 3 {
		t.Errorf("%d tokens, want 3", total)
	}
}
