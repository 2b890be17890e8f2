package normalizers_test

import (
	"bytes"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/normalizerstest"
)

// oracleLog is a log of which TRIBUTARY_GOLDENS has agtrace's own output. What is trusted
// and what is masked stands in ORACLE.md beside it.
type oracleLog struct {
	source envelopes.Source
	input  string // below agtrace/tests
	output string // below agtrace/oracle/v1_final_3956ade
	// record names the record of an event of the output.
	record func(raw map[string]any) string
	// trusted are the fields to compare on an event of the output; events that differ by
	// intention have none.
	trusted func(e map[string]any) []string
	// increments are input, output, cached, cache write and total of each line with tokens.
	increments map[int][5]int64
	sums       normalizerstest.Figures
}

var oracleLogs = []oracleLog{{
	source: envelopes.ClaudeCode,
	input:  "samples/claude_session.jsonl",
	output: "claude.events.jsonl",
	record: func(raw map[string]any) string { return normalizerstest.Member[string](raw, "uuid") },
	trusted: func(e map[string]any) []string {
		fields := []string{
			"schema_version", "source", "project_hash", "project_root", "session_id", "parent_event_id", "ts", "event_type", "role",
			"text", "tool_call_id", "tool_exit_code", "model", "raw",
		}
		kind := e["event_type"]
		if kind != "reasoning" { // D8
			fields = append(fields, "event_id")
		}
		if kind != "tool_result" { // D4, D21, D25
			fields = append(fields, "channel", "tool_name", "file_path", "file_op")
		}
		if kind != "tool_call" { // D27
			fields = append(fields, "tool_status")
		}
		return fields
	},
	increments: map[int][5]int64{
		3: {10, 8, 12135, 3893, 16046}, 5: {0, 428, 0, 0, 428}, 7: {14, 1, 16028, 458, 16501}, 8: {0, 125, 0, 0, 125},
		11: {13, 1, 16486, 169, 16669}, 12: {0, 111, 0, 0, 111}, 15: {10, 4, 16028, 333, 16375}, 16: {0, 119, 0, 0, 119},
		18: {14, 1, 16361, 154, 16530}, 21: {13, 1, 16515, 151, 16680}, 22: {0, 45, 0, 0, 45},
	},
	sums: normalizerstest.Figures{
		Input: 74, Output: 844, Cached: 93_553, Total: 99_629,
		UsageInput: 74, CacheRead: 93_553, CacheWrite: 5_158, UsageOutput: 844,
	},
}}

// TestOracle compares with agtrace, the implementation that the spec comes from: the trusted
// fields of every event that it has, in its order, and the tokens of every line.
func TestOracle(t *testing.T) {
	t.Parallel()
	for _, o := range oracleLogs {
		t.Run("source="+string(o.source), func(t *testing.T) {
			t.Parallel()
			data := normalizerstest.GoldenFile(t, "agtrace", "tests", o.input)
			steps := normalizerstest.Fold(normalizers.Normalize, normalizerstest.Frame(normalizerstest.FileNamed(o.source, path.Base(o.input)), data))
			got := make(map[string][]map[string]any) // by record
			var order []string
			for _, s := range steps {
				for _, e := range s.Result.Events {
					b, err := normalizerstest.Encode(e.Event)
					if err != nil {
						t.Fatal(err)
					}
					v := normalizerstest.Object(t, b)
					id := o.record(normalizerstest.Object(t, s.Record.Data))
					got[id] = append(got[id], v)
					order = append(order, fmt.Sprint(id, v["event_type"]))
				}
			}
			at := 0
			for l := range bytes.Lines(normalizerstest.GoldenFile(t, "agtrace", "oracle", "v1_final_3956ade", o.output)) {
				want := normalizerstest.Object(t, l)
				id := o.record(normalizerstest.Member[map[string]any](want, "raw"))
				i := slices.IndexFunc(got[id], func(e map[string]any) bool { return e["event_type"] == want["event_type"] })
				if i < 0 {
					t.Errorf("record %s: no %s", id, want["event_type"])
					continue
				}
				for _, f := range o.trusted(want) {
					if a, b := normalizerstest.ComparedBy(f, got[id][i][f], want), normalizerstest.ComparedBy(f, want[f], want); !reflect.DeepEqual(a, b) {
						t.Errorf("record %s: %s of %s: %v, agtrace has %v", id, f, want["event_type"], a, b)
					}
				}
				next := slices.Index(order[at:], fmt.Sprint(id, want["event_type"]))
				if next < 0 {
					t.Errorf("record %s: %s out of order", id, want["event_type"])
					continue
				}
				at += next + 1
			}
			var sums normalizerstest.Figures
			for _, s := range steps {
				var line normalizerstest.Figures
				for _, e := range s.Result.Events {
					line.Add(normalizerstest.FiguresOf(e.Event))
				}
				sums.Add(line)
				if got := [5]int64{line.Input, line.Output, line.Cached, line.CacheWrite, line.Total}; got != o.increments[s.Line] {
					t.Errorf("line %d: tokens %v, want %v", s.Line, got, o.increments[s.Line])
				}
			}
			if sums != o.sums {
				t.Errorf("sums\n%+v, want\n%+v", sums, o.sums)
			}
		})
	}
}

// TestOracleCorrections checks what TestOracle does not compare, because agtrace is wrong there;
// the names D1 to D27 are those of ORACLE.md of the goldens.
func TestOracleCorrections(t *testing.T) {
	t.Parallel()
	const session = "7f2abd2d-7cfc-4447-9ddd-3ca8d14e02e9"
	data := normalizerstest.GoldenFile(t, "agtrace", "tests", "samples", "claude_session.jsonl")
	byLine := make(map[int][]envelopes.AgentEventV1)
	var previous string
	for _, s := range normalizerstest.Fold(normalizers.Normalize, normalizerstest.Frame(normalizerstest.FileNamed(envelopes.ClaudeCode, "claude_session.jsonl"), data)) {
		for _, e := range s.Result.Events {
			byLine[s.Line] = append(byLine[s.Line], e.Event)
		}
	}
	only := func(line int) envelopes.AgentEventV1 {
		if len(byLine[line]) != 1 {
			t.Fatalf("line %d: %d events", line, len(byLine[line]))
		}
		return byLine[line][0]
	}
	// D1: the snapshots.
	for _, line := range []int{1, 9, 13, 23} {
		e := only(line)
		raw := normalizerstest.Object(t, e.Raw)
		if e.EventType != envelopes.FileSnapshot || e.EventID != normalizerstest.Member[string](raw, "messageId")+"#snapshot" || e.TS != normalizerstest.Member[string](raw, "snapshot", "timestamp") {
			t.Errorf("D1: line %d: %s %q at %s", line, e.EventType, e.EventID, e.TS)
		}
		if line == 9 && e.TS >= previous {
			t.Errorf("D1: line 9 is not earlier than line 8")
		}
		if line == 1 && (e.ProjectRoot != nil || e.ProjectHash != normalizerstest.Sha256Hex("session:"+session)) {
			t.Errorf("D1: line 1: project %v %s", e.ProjectRoot, e.ProjectHash)
		}
		previous = only(8).TS
	}
	// D3: what comes after an isMeta record.
	meta, exit, output := only(24), only(25), only(26)
	if meta.EventType != envelopes.Meta || meta.Origin != envelopes.OriginInjected {
		t.Errorf("D3: line 24: %s %q", meta.EventType, meta.Origin)
	}
	if exit.EventType != envelopes.UserMessage || normalizerstest.Value(exit.Text) != "/exit" || normalizerstest.Value(exit.Channel) != envelopes.ChannelCLI {
		t.Errorf("D3: line 25: %s %q %q", exit.EventType, normalizerstest.Value(exit.Text), normalizerstest.Value(exit.Channel))
	}
	if output.EventType != envelopes.Log || normalizerstest.Value(output.Role) != envelopes.RoleCLI || normalizerstest.Value(output.Channel) != envelopes.ChannelTerminal || normalizerstest.Value(output.ParentEventID) != exit.EventID {
		t.Errorf("D3: line 26: %s %q %q of %q", output.EventType, normalizerstest.Value(output.Role), normalizerstest.Value(output.Channel), normalizerstest.Value(output.ParentEventID))
	}
	// D4, D6, D21, D25, D27: results and calls.
	var channels []string
	calls := make(map[string]string)
	for _, line := range slices.Sorted(maps.Keys(byLine)) {
		for _, e := range byLine[line] {
			switch e.EventType {
			case envelopes.ToolCall:
				calls[normalizerstest.Value(e.ToolCallID)] = normalizerstest.Value(e.ToolName)
				if normalizerstest.Value(e.ToolStatus) != envelopes.StatusInProgress {
					t.Errorf("D27: line %d: status %q", line, normalizerstest.Value(e.ToolStatus))
				}
			case envelopes.ToolResult:
				channels = append(channels, string(normalizerstest.Value(e.Channel)))
				if normalizerstest.Value(e.ToolName) == "" || normalizerstest.Value(e.ToolName) != calls[normalizerstest.Value(e.ToolCallID)] {
					t.Errorf("D21: line %d: name %q, its call %q", line, normalizerstest.Value(e.ToolName), calls[normalizerstest.Value(e.ToolCallID)])
				}
				if e.ToolExitCode != nil {
					t.Errorf("D6: line %d: exit code %d", line, *e.ToolExitCode)
				}
				if want := normalizerstest.Member[string](normalizerstest.Object(t, e.Raw), "toolUseResult", "filePath"); line == 10 && (want == "" || normalizerstest.Value(e.FilePath) != want) {
					t.Errorf("D25: line 10: path %q, want %q", normalizerstest.Value(e.FilePath), want)
				}
			case envelopes.Reasoning:
				if want := normalizerstest.Member[string](normalizerstest.Object(t, e.Raw), "uuid") + "#thinking0"; e.EventID != want {
					t.Errorf("D8: line %d: id %q, want %q", line, e.EventID, want)
				}
			case envelopes.UserMessage, envelopes.AssistantMessage, envelopes.SystemMessage, envelopes.FileSnapshot,
				envelopes.SessionSummary, envelopes.Meta, envelopes.Log:
			}
		}
	}
	if got := strings.Join(channels, " "); got != "terminal editor terminal terminal" {
		t.Errorf("D4: channels %s", got)
	}
}

// TestOracleCounts compares the number of events of each type for each conforming input.
func TestOracleCounts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		source          envelopes.Source
		input           string
		records, events int
		want            string
		first           string // origin of the first user_message
	}{
		{envelopes.ClaudeCode, "samples/claude_session.jsonl", 26, 26, "assistant_message 3 file_snapshot 4 log 1 meta 1 reasoning 6 tool_call 4 tool_result 4 user_message 3", ""},
		{envelopes.ClaudeCode, "samples/claude_agent.jsonl", 2, 2, "assistant_message 1 user_message 1", "agent"},
		{envelopes.ClaudeCode, "fixtures/claude/simple_session.jsonl", 4, 5, "assistant_message 1 reasoning 1 tool_call 1 tool_result 1 user_message 1", ""},
		{envelopes.ClaudeCode, "fixtures/claude-code/sample-uuid-session.jsonl", 8, 8, "assistant_message 2 file_snapshot 1 reasoning 1 session_summary 1 tool_call 1 tool_result 1 user_message 1", ""},
		{envelopes.ClaudeCode, "fixtures/claude-code/sample-agent-session.jsonl", 5, 5, "assistant_message 2 tool_call 1 tool_result 1 user_message 1", "agent"},
		{envelopes.ClaudeCode, "fixtures/claude-code/edge-cases-session.jsonl", 7, 7, "assistant_message 2 file_snapshot 1 meta 1 tool_call 1 tool_result 1 user_message 1", ""},
		{envelopes.ClaudeCode, "fixtures/claude-code/multi-snapshot-session.jsonl", 7, 7, "assistant_message 2 file_snapshot 3 user_message 2", ""},
		{envelopes.ClaudeCode, "fixtures/claude-code/agent-multi-tool-session.jsonl", 9, 9, "assistant_message 2 tool_call 3 tool_result 3 user_message 1", "agent"},
		{envelopes.Codex, "samples/codex_session.jsonl", 55, 38, "assistant_message 2 meta 18 reasoning 6 tool_call 5 tool_result 5 user_message 2", ""},
		{envelopes.Codex, "fixtures/codex/simple_session.jsonl", 5, 5, "assistant_message 1 reasoning 1 tool_call 1 tool_result 1 user_message 1", ""},
		{envelopes.Codex, "fixtures/codex/2025/11/20/rollout-2025-11-20-basic.jsonl", 13, 12, "assistant_message 1 meta 6 reasoning 2 tool_call 1 tool_result 1 user_message 1", ""},
		{envelopes.Codex, "fixtures/codex/2025/11/20/rollout-2025-11-20-edge-cases.jsonl", 10, 9, "assistant_message 1 meta 3 reasoning 2 tool_call 1 tool_result 1 user_message 1", ""},
		{envelopes.Gemini, "samples/gemini_session.json", 1, 28, "assistant_message 7 reasoning 9 tool_call 5 tool_result 5 user_message 2", ""},
		{envelopes.Gemini, "fixtures/gemini/simple_session.json", 1, 6, "assistant_message 1 reasoning 1 system_message 1 tool_call 1 tool_result 1 user_message 1", ""},
	} {
		t.Run(c.input, func(t *testing.T) {
			t.Parallel()
			data := normalizerstest.GoldenFile(t, "agtrace", "tests", c.input)
			for _, source := range []envelopes.Source{c.source, ""} {
				records := normalizerstest.Frame(normalizerstest.FileNamed(source, c.input), data)
				steps := normalizerstest.Fold(normalizers.Normalize, records)
				counts, total, framed := make(map[string]int), 0, 0
				for _, s := range steps {
					if s.Failed() {
						t.Errorf("line %d: %v", s.Line, s.Err)
					}
					if !s.Record.Origin.End {
						framed++
					}
					for _, e := range s.Result.Events {
						counts[string(e.Event.EventType)]++
						total++
						ev := e.Event
						if ev.EventType == envelopes.UserMessage && (string(ev.Origin) != c.first || ev.IsInternal != (c.first == "agent") || (c.first == "agent") != (ev.AgentID != nil)) {
							t.Errorf("line %d: user_message of origin %q internal %t agent %v", s.Line, ev.Origin, ev.IsInternal, ev.AgentID)
						}
						if ev.EventType == envelopes.SessionSummary && (normalizerstest.Value(ev.Text) == "" || normalizerstest.Value(ev.Role) != envelopes.RoleAssistant) {
							t.Errorf("D2: line %d: session_summary %q of %q", s.Line, normalizerstest.Value(ev.Text), normalizerstest.Value(ev.Role))
						}
					}
				}
				var got []string
				for _, k := range slices.Sorted(maps.Keys(counts)) {
					got = append(got, fmt.Sprint(k, " ", counts[k]))
				}
				if framed != c.records || total != c.events || strings.Join(got, " ") != c.want {
					t.Errorf("source %q: %d records, %d events: %s\nwant %d, %d: %s", source, framed, total, strings.Join(got, " "), c.records, c.events, c.want)
				}
				if err := normalizerstest.LawNothingLost(normalizerstest.Folded(normalizerstest.Suite{}, normalizers.Normalize, records)); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
