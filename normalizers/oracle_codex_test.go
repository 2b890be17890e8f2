package normalizers_test

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/normalizerstest"
)

// TestOracleOfCodex compares with agtrace's output for a real rollout: every trusted field of
// every event that it has, in its order, except for the token counts that add nothing, and the
// corrections that ORACLE.md of the goldens lists.
func TestOracleOfCodex(t *testing.T) {
	t.Parallel()
	data := normalizerstest.GoldenFile(t, "agtrace", "tests", "samples", "codex_session.jsonl")
	byLine := make(map[int]map[string]any)
	var order []int
	var sums normalizerstest.Figures
	increments := map[int][5]int64{
		11: {3505, 3072, 101, 64, 3606}, 18: {3711, 3072, 40, 0, 3751}, 24: {3815, 3584, 26, 0, 3841}, 33: {3708, 3072, 37, 0, 3745},
		40: {3845, 3072, 128, 64, 3973}, 47: {4017, 3072, 38, 0, 4055}, 55: {4139, 3968, 38, 0, 4177},
	}
	for _, st := range normalizerstest.Fold(normalizers.Normalize, normalizerstest.Frame(normalizerstest.FileNamed(envelopes.Codex, "codex_session.jsonl"), data)) {
		if len(st.Result.Events) > 1 {
			t.Errorf("line %d: %d events", st.Line, len(st.Result.Events))
		}
		for _, e := range st.Result.Events {
			b, err := normalizerstest.Encode(e.Event)
			if err != nil {
				t.Fatal(err)
			}
			byLine[st.Line] = normalizerstest.Object(t, b)
			order = append(order, st.Line)
			f := normalizerstest.FiguresOf(e.Event)
			sums.Add(f)
			if got := [5]int64{f.Input, f.Cached, f.Output, f.Thinking, f.Total}; got != increments[st.Line] {
				t.Errorf("line %d: tokens %v, want %v", st.Line, got, increments[st.Line])
			}
			if e.Sequence != uint64(st.Line) {
				t.Errorf("line %d: an event of line %d", st.Line, e.Sequence)
			}
		}
	}
	if want := (normalizerstest.Figures{Input: 26_740, Output: 408, Cached: 22_912, Thinking: 128, Total: 27_148, UsageInput: 3_828, CacheRead: 22_912, UsageOutput: 280, UsageReasoning: 128}); sums != want {
		t.Errorf("sums\n%+v, want\n%+v", sums, want)
	}
	names := codexNames(t)
	silent := []int{7, 14, 21, 29, 36, 43, 50} // token counts that add nothing
	masked := map[int]map[string]any{
		2:  {"event_type": "meta", "role": "system", "origin": "injected", "channel": nil}, // D23
		19: {"text": "Success. Updated the following files:\nA myapp/hoge.py\n", "channel": "editor"},
	}
	var want []int
	for l := range bytes.Lines(normalizerstest.GoldenFile(t, "agtrace", "oracle", "v1_final_3956ade", "codex.events.jsonl")) {
		w := normalizerstest.Object(t, l)
		line := lineOf(t, w["event_id"])
		if slices.Contains(silent, line) {
			if byLine[line] != nil {
				t.Errorf("line %d adds nothing, but has an event", line)
			}
			continue
		}
		want = append(want, line)
		got := byLine[line]
		if got == nil {
			t.Errorf("line %d: no %s", line, w["event_type"])
			continue
		}
		kind, _ := w["event_type"].(string)
		fields := []string{"schema_version", "source", "project_hash", "project_root", "session_id", "ts", "event_type", "role", "text", "tool_call_id", "raw"}
		if kind != "meta" {
			fields = append(fields, "channel")
		}
		if kind == "tool_call" {
			fields = append(fields, "file_path", "file_op")
		}
		for _, f := range fields {
			expected := w[f]
			if m, ok := masked[line][f]; ok {
				if expected = m; m == nil {
					continue
				}
			}
			if a, b := normalizerstest.ComparedBy(f, got[f], w), normalizerstest.ComparedBy(f, expected, w); fmt.Sprint(a) != fmt.Sprint(b) {
				t.Errorf("line %d: %s of %s: %v, want %v", line, f, kind, a, b)
			}
		}
		if line == 2 && got["origin"] != "injected" {
			t.Errorf("line 2: origin %v", got["origin"])
		}
		var parent any
		if p := w["parent_event_id"]; p != nil {
			parent = fmt.Sprint("@", lineOf(t, p))
		}
		if got["parent_event_id"] != parent && line > 2 {
			t.Errorf("line %d: parent %v, want %v", line, got["parent_event_id"], parent)
		}
		id := fmt.Sprint("@", line) // D22
		call, _ := w["tool_call_id"].(string)
		switch kind {
		case "tool_call":
			id = call
		case "tool_result":
			id = call + "#result"
		}
		if got["event_id"] != id {
			t.Errorf("line %d: id %v, want %s", line, got["event_id"], id)
		}
		if call != "" && got["tool_name"] != names[call] { // D9, D21
			t.Errorf("line %d: name %v, want %s", line, got["tool_name"], names[call])
		}
		if model := got["model"]; slices.Contains([]string{"assistant_message", "reasoning", "tool_call"}, kind) && model != "gpt-5.1-codex-max" { // D12
			t.Errorf("line %d: model %v", line, model)
		}
	}
	if !slices.Equal(order, want) {
		t.Errorf("lines with events\n%v, want\n%v", order, want)
	}
	for line, w := range map[int][3]any{ // D10, D11, D17
		12: {0.0, "success", 100.0}, 19: {0.0, "success", 1000.0}, 34: {1.0, "error", 100.0}, 41: {1.0, "error", 100.0}, 48: {0.0, "success", 100.0},
	} {
		if got := [3]any{byLine[line]["tool_exit_code"], byLine[line]["tool_status"], byLine[line]["tool_latency_ms"]}; got != w {
			t.Errorf("line %d: %v, want %v", line, got, w)
		}
	}
	if c := byLine[17]; c["file_language"] != "python" || fmt.Sprint(c["files"]) != "[map[op:create path:myapp/hoge.py]]" {
		t.Errorf("line 17: language %v, files %v", c["file_language"], c["files"])
	}
}

// lineOf is the line at the end of an id of agtrace.
func lineOf(t *testing.T, id any) int {
	t.Helper()
	_, after, _ := strings.Cut(fmt.Sprint(id), "#")
	n, err := strconv.Atoi(after)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// codexNames are the names of the tools by their calls: trusted in the commit of the spec.
func codexNames(t *testing.T) map[string]any {
	t.Helper()
	names := make(map[string]any)
	for l := range bytes.Lines(normalizerstest.GoldenFile(t, "agtrace", "oracle", "v1_spec_commit_d476802", "codex.events.jsonl")) {
		if e := normalizerstest.Object(t, l); e["event_type"] == "tool_call" {
			names[normalizerstest.Member[string](e, "tool_call_id")] = e["tool_name"]
		}
	}
	return names
}

// TestOracleOfCodexExec compares with the streams of codex exec --json that the seed of the standardized
// metadata comes from. The plain line of exec-json-edge.jsonl is left out.
func TestOracleOfCodexExec(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]string{
		"exec-json-conversation.jsonl": {
			`meta metadata {"sessionId":null,"model":null,"threadId":"019abc89-3427-7430-8b7a-cfb71f76b76d"}`,
			`reasoning "**Providing concise answers only**"`, `assistant_message "4"`, "meta tokens 7698 3072 7 7705",
		},
		"exec-json-edge.jsonl": {
			`meta metadata {"sessionId":null,"model":null,"threadId":"test-session"}`, "assistant_message null", `meta raw {"type": "unknown.event", "data": "something"}`,
		},
		"no-thread-started.jsonl": {`assistant_message "hi" no metadata`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var data [][]byte
			for l := range bytes.Lines(normalizerstest.GoldenFile(t, "metadata", "origin", "codex", name)) {
				if !bytes.HasPrefix(l, []byte("This is plain text")) {
					data = append(data, l)
				}
			}
			steps := normalizerstest.Fold(normalizers.Normalize, normalizerstest.Frame(normalizerstest.FileNamed(envelopes.Codex, name), bytes.Join(data, nil)))
			list := normalizerstest.Events(steps)
			if len(list) != len(want) {
				t.Fatalf("%d events, want %d", len(list), len(want))
			}
			for i, w := range want {
				e := list[i]
				kind, rest, _ := strings.Cut(w, " ")
				if string(e.EventType) != kind {
					t.Errorf("event %d: %s, want %s", i+1, e.EventType, kind)
				}
				switch what, rest, _ := strings.Cut(rest, " "); what {
				case "metadata":
					if b, err := normalizerstest.Encode(e); err != nil || !maps.Equal(normalizerstest.Member[map[string]any](normalizerstest.Object(t, b), "metadata"), normalizerstest.Object(t, []byte(rest))) {
						t.Errorf("event %d: %s, want metadata %s", i+1, b, rest)
					}
				case "tokens":
					if got := fmt.Sprint(*e.TokensInput, " ", *e.TokensCached, " ", *e.TokensOutput, " ", *e.TokensTotal); got != rest {
						t.Errorf("event %d: tokens %s, want %s", i+1, got, rest)
					}
				case "raw":
					if !reflect.DeepEqual(normalizerstest.Plain(e.Raw), normalizerstest.Plain([]byte(rest))) {
						t.Errorf("event %d: raw %s", i+1, e.Raw)
					}
				case "null":
					if e.Text != nil {
						t.Errorf("event %d: text %q", i+1, *e.Text)
					}
				default:
					if e.Text == nil || !strings.HasPrefix(w, kind+" "+strconv.Quote(*e.Text)) {
						t.Errorf("event %d: text %q, want %s", i+1, normalizerstest.Value(e.Text), w)
					}
				}
				if none := strings.HasSuffix(w, "no metadata"); none != (e.Metadata == nil) {
					t.Errorf("event %d: metadata %v", i+1, e.Metadata)
				}
			}
			for _, st := range steps {
				if st.Failed() {
					t.Errorf("line %d: %v", st.Line, st.Err)
				}
			}
		})
	}
}
