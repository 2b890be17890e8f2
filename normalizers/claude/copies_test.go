package claude_test

import (
	"fmt"
	"slices"
	"testing"

	"tributary/envelopes"
	"tributary/normalizers/normalizerstest"
)

// answer returns a record of a transcript with one text of an API call, which has read 400
// tokens from the cache. more are further members, each with a comma behind it.
func answer(uuid, call, request string, output int, more string) string {
	return fmt.Sprintf(`{%s"type":"assistant","sessionId":"s","uuid":%q,"requestId":%q,"timestamp":"2026-03-01T10:00:00.000Z","message":{"id":%q,"role":"assistant","model":"claude-test-1","content":[{"type":"text","text":"said %s"}],"usage":{"input_tokens":2,"cache_read_input_tokens":400,"output_tokens":%d}}}`,
		more, uuid, request, call, call, output)
}

// tokensOf returns the cache reads and the output of all events of a file.
func tokensOf(t *testing.T, lines ...string) (read, output int64) {
	t.Helper()
	for _, e := range normalizerstest.SeedEvents(t, envelopes.ClaudeCode, "s.jsonl", normalizerstest.SeedLines(lines...)) {
		if e.Usage != nil {
			read, output = read+e.Usage.CacheRead, output+e.Usage.Output
		}
	}
	return read, output
}

// A side question copies the history of its session into a sidechain.
func TestCopiesOfAMessageInOtherThreadsAddNoTokens(t *testing.T) {
	t.Parallel()
	const (
		sidechain = `"isSidechain":true,`
		subagent  = `"isSidechain":true,"agentId":"a1",`
		forked    = `"forkedFrom":{"sessionId":"parent","messageUuid":"u0"},`
	)
	for _, c := range []struct {
		name   string
		lines  []string
		read   int64
		output int64
	}{
		{"with a uuid of its own", []string{answer("u1", "m1", "r1", 9, ""), answer("u2", "m1", "r1", 9, sidechain)}, 400, 9},
		{"with the same uuid", []string{answer("u1", "m1", "r1", 9, ""), answer("u1", "m1", "r1", 9, sidechain)}, 400, 9},
		{"of a subagent, with the same uuid", []string{answer("u1", "m1", "r1", 9, ""), answer("u1", "m1", "r1", 9, subagent)}, 400, 9},
		{"before the original", []string{answer("u2", "m1", "r1", 9, subagent), answer("u1", "m1", "r1", 9, "")}, 400, 9},
		{"in two sidechains", []string{answer("u1", "m1", "r1", 9, ""), answer("u2", "m1", "r1", 9, sidechain), answer("u3", "m1", "r1", 9, subagent)}, 400, 9},
		{"with figures that have grown", []string{answer("u1", "m1", "r1", 2, ""), answer("u2", "m1", "r1", 9, sidechain), answer("u3", "m1", "r1", 9, "")}, 400, 9},
		{"without a request", []string{answer("u1", "m1", "r1", 9, ""), answer("u2", "m1", "", 9, sidechain)}, 400, 9},
		{"with a request that the original lacks", []string{answer("u1", "m1", "", 9, ""), answer("u2", "m1", "r1", 9, sidechain), answer("u3", "m1", "r1", 9, "")}, 400, 9},
		{"before the answer to the side question", []string{answer("u1", "m1", "r1", 9, ""), answer("u2", "m1", "r1", 9, sidechain), answer("u3", "m2", "r2", 5, sidechain)}, 800, 14},
		{"of history that a fork has copied", []string{answer("u1", "m1", "r1", 9, forked), answer("u2", "m1", "r1", 9, sidechain), answer("u3", "m2", "r2", 5, "")}, 400, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if read, output := tokensOf(t, c.lines...); read != c.read || output != c.output {
				t.Errorf("%d cache reads and %d output tokens, want %d and %d", read, output, c.read, c.output)
			}
		})
	}
}

// A duplicate event has no tokens of its own, so no event stands for them either.
func TestACopyWithTheSameUUIDEmitsNothing(t *testing.T) {
	t.Parallel()
	lines := normalizerstest.SeedLines(answer("u1", "m1", "r1", 9, ""), answer("u1", "m1", "r1", 9, `"isSidechain":true,`))
	if events := normalizerstest.SeedEvents(t, envelopes.ClaudeCode, "s.jsonl", lines); len(events) != 1 {
		t.Errorf("%d events, want 1: the last one is %q", len(events), events[len(events)-1].EventID)
	}
}

func TestMessagesOfDifferentRequestsAreDifferentCalls(t *testing.T) {
	t.Parallel()
	lines := []string{
		answer("u1", "m1", "r1", 9, ""), answer("u2", "m1", "r2", 5, ""), answer("u3", "m1", "r2", 6, ""),
		answer("u4", "m1", "r1", 9, `"isSidechain":true,`), answer("u5", "m1", "", 9, ""), answer("u6", "m1", "r2", 6, `"isSidechain":true,`),
	}
	if read, output := tokensOf(t, lines...); read != 800 || output != 15 {
		t.Errorf("%d cache reads and %d output tokens, want 800 and 15", read, output)
	}
	var keys []string
	for _, e := range normalizerstest.SeedEvents(t, envelopes.ClaudeCode, "s.jsonl", normalizerstest.SeedLines(lines...)) {
		if e.Usage != nil {
			keys = append(keys, e.Usage.Key)
		}
	}
	if want := []string{"r1", "r2", "r2"}; !slices.Equal(keys, want) {
		t.Errorf("keys %q, want %q", keys, want)
	}
}

// The result of a run covers the calls of the main conversation. What a copy in a sidechain
// states of such a call is a part of it; what a subagent uses is not.
func TestResultOfARunAndCopiesInSidechains(t *testing.T) {
	t.Parallel()
	const (
		start  = `{"type":"system","subtype":"init","session_id":"s","uuid":"start","model":"m","tools":[]}`
		call   = `{"type":"assistant","session_id":"s","uuid":"%s","parent_tool_use_id":%s,"message":{"id":"%s","role":"assistant","content":[{"type":"text","text":"said"}],"usage":{"output_tokens":%d}}}`
		result = `{"type":"result","subtype":"success","session_id":"s","uuid":"end","num_turns":1,"result":"","usage":{"output_tokens":9}}`
	)
	main, copied := fmt.Sprintf(call, "u1", "null", "m1", 2), fmt.Sprintf(call, "u2", `"task"`, "m1", 9)
	subagent := fmt.Sprintf(call, "u3", `"task"`, "m2", 50)
	for i, lines := range [][]string{
		{start, main, result, copied, subagent},
		{start, main, copied, subagent, result},
		{start, main, subagent, result, copied, main},
	} {
		if _, output := tokensOf(t, lines...); output != 59 {
			t.Errorf("order %d: %d output tokens, want 59", i, output)
		}
	}
}
