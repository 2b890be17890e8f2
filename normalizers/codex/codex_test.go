package codex_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/codex/codextest"
	"tributary/normalizers/core"
	"tributary/normalizers/normalizerstest"
)

// TestCorpusRolloutsMatchTheirBytes compares the events of every rollout of the corpus with what
// only rollouts have: thoughts, the order of all messages, patches, latencies, models, copied
// history, and the record that each event comes from.
func TestCorpusRolloutsMatchTheirBytes(t *testing.T) {
	t.Parallel()
	s := codextest.Suite
	files := normalizerstest.Corpus(t, s)
	counts := make([]map[string]int, len(files))
	t.Run("files", func(t *testing.T) {
		for i, f := range files {
			counts[i] = make(map[string]int)
			t.Run(f.Name, func(t *testing.T) {
				t.Parallel()
				for _, p := range checkCodex(normalizers.Normalize, normalizerstest.FileNamed(s.Source, f.Name), f.Data, counts[i]) {
					t.Error(p)
				}
			})
		}
	})
	all := make(map[string]int)
	for _, c := range counts {
		for k, n := range c {
			all[k] += n
		}
	}
	for _, k := range slices.Sorted(maps.Keys(all)) {
		t.Logf("%6d %s", all[k], k)
	}
}

// TestGoldenRolloutsMatchTheirBytes does the same for the golden files.
func TestGoldenRolloutsMatchTheirBytes(t *testing.T) {
	t.Parallel()
	for _, g := range normalizerstest.Goldens(t, codextest.Suite) {
		rollout := bytes.Join(codextest.Rollout(bytes.Split(g.Raw, []byte("\n"))), []byte("\n"))
		for _, p := range checkCodex(normalizers.Normalize, g.File(envelopes.Codex), rollout, make(map[string]int)) {
			t.Errorf("%s: %s", g.Name, p)
		}
	}
}

// TestRolloutTruthCatches shows that each part of this comparison can fail.
func TestRolloutTruthCatches(t *testing.T) {
	t.Parallel()
	nth := func(kind envelopes.EventType, change func(e *core.Emitted)) func() normalizerstest.NormalizeFunc {
		return normalizerstest.Each(func(e *core.Emitted) {
			if e.Event.EventType == kind {
				change(e)
			}
		})
	}
	for name, broken := range map[string]func() normalizerstest.NormalizeFunc{
		"a thought that is missing": nth(envelopes.Reasoning, func(e *core.Emitted) { e.Event.EventType = envelopes.Meta }),
		"a thought cut":             nth(envelopes.Reasoning, func(e *core.Emitted) { e.Event.Text = new((*e.Event.Text)[1:]) }),
		"no latency":                nth(envelopes.ToolResult, func(e *core.Emitted) { e.Event.ToolLatencyMS = nil }),
		"a latency of its own":      nth(envelopes.ToolResult, func(e *core.Emitted) { e.Event.ToolLatencyMS = new(int64(1)) }),
		"no name of a result":       nth(envelopes.ToolResult, func(e *core.Emitted) { e.Event.ToolName = nil }),
		"no files":                  nth(envelopes.ToolCall, func(e *core.Emitted) { e.Event.Files = nil }),
		"another first file":        nth(envelopes.ToolCall, func(e *core.Emitted) { e.Event.FilePath = new("x") }),
		"no files of an end":        nth(envelopes.ToolResult, func(e *core.Emitted) { e.Event.Files = nil }),
		"no model":                  nth(envelopes.AssistantMessage, func(e *core.Emitted) { e.Event.Model = nil }),
		"another record":            nth(envelopes.AssistantMessage, func(e *core.Emitted) { e.Sequence = 1 }),
		"another time":              normalizerstest.Each(func(e *core.Emitted) { e.Event.TS = "2026-01-01T00:00:00Z" }),
		"copied history as its own": normalizerstest.Each(func(e *core.Emitted) { e.Event.Origin = "" }),
		"everything copied":         normalizerstest.Each(func(e *core.Emitted) { e.Event.Origin = envelopes.OriginCopied }),
		"a repeated result of its own code": normalizerstest.Each(func(e *core.Emitted) {
			if e.Event.Supersedes != "" && e.Event.ToolExitCode != nil {
				e.Event.ToolExitCode = new(*e.Event.ToolExitCode + 1)
			}
		}),
		"a cut text as a whole":  nth(envelopes.ToolResult, func(e *core.Emitted) { e.Event.TextTruncated = false }),
		"a running tool is done": nth(envelopes.ToolResult, func(e *core.Emitted) { e.Event.ToolStatus = new(envelopes.StatusSuccess) }),
		"a key of its own": normalizerstest.Each(func(e *core.Emitted) {
			if e.Event.Usage != nil {
				u := *e.Event.Usage
				u.Key = "x"
				e.Event.Usage = &u
			}
		}),
	} {
		t.Run(name, func(t *testing.T) {
			for _, g := range normalizerstest.Goldens(t, codextest.Suite) {
				if len(checkCodex(broken(), g.File(envelopes.Codex), g.Raw, make(map[string]int))) > 0 {
					return
				}
			}
			t.Error("the broken normalizer passes")
		})
	}
}

// checkCodex returns how the events of a rollout differ from its raw bytes in what
// checkTruth does not look at.
func checkCodex(normalize normalizerstest.NormalizeFunc, file normalizers.File, data []byte, counts map[string]int) normalizerstest.Problems {
	var p normalizerstest.Problems
	lines := normalizerstest.ReadLines(data)
	records := codextest.Read(lines)
	byLine := make(map[uint64]*codextest.Raw)
	for i := range records {
		byLine[uint64(records[i].Number)] = &records[i]
	}
	if codextest.Interpret(file.Name, lines).Trimmed {
		counts["files of placeholders"]++
		return nil
	}
	var emitted []core.Emitted
	for _, st := range normalizerstest.Fold(normalize, normalizerstest.Frame(file, data)) {
		emitted = append(emitted, st.Result.Events...)
	}
	checkCodexTexts(&p, records, emitted, counts)
	checkCodexOrigins(&p, byLine, emitted, counts)
	checkCodexTools(&p, records, byLine, emitted, counts)
	return p
}

// checkCodexSaid: each message and thought is emitted once, all of it in one order, by the
// record that it stands in.
func checkCodexTexts(p *normalizerstest.Problems, records []codextest.Raw, emitted []core.Emitted, counts map[string]int) {
	want := codextest.Sayings(records)
	next := 0
	for _, e := range emitted {
		who := map[envelopes.EventType]string{envelopes.UserMessage: "human", envelopes.AssistantMessage: "assistant", envelopes.Reasoning: "thought"}[e.Event.EventType]
		if who == "" {
			continue
		}
		if next >= len(want) {
			p.Errorf("record %d: %s %q is emitted, but nothing more is said", e.Sequence, who, normalizerstest.Clip(normalizerstest.Value(e.Event.Text)))
			return
		}
		w := want[next]
		next++
		if w.Who != who || uint64(records[w.At].Number) != e.Sequence || strings.TrimSpace(w.Text) != strings.TrimSpace(normalizerstest.Value(e.Event.Text)) {
			p.Errorf("saying %d: %s of record %d %q, want %s of record %d %q", next, who, e.Sequence, normalizerstest.Clip(normalizerstest.Value(e.Event.Text)), w.Who, records[w.At].Number, normalizerstest.Clip(w.Text))
			return
		}
		counts["texts: "+who]++
		if w.Duplicate {
			counts["texts: "+who+" by an event_msg alone"]++
		}
		if w.Who != "human" && normalizerstest.Value(e.Event.Model) != records[w.At].Model {
			p.Errorf("record %d: %s of model %q, want %q", e.Sequence, who, normalizerstest.Value(e.Event.Model), records[w.At].Model)
		}
	}
	if next != len(want) {
		p.Errorf("record %d: %s %q is not emitted", records[want[next].At].Number, want[next].Who, normalizerstest.Clip(want[next].Text))
	}
}

// checkCodexOrigins: each event has the time of its record, and is copied when that is;
// tokens have the key of their turn and its model.
func checkCodexOrigins(p *normalizerstest.Problems, byLine map[uint64]*codextest.Raw, emitted []core.Emitted, counts map[string]int) {
	for _, e := range emitted {
		r := byLine[e.Sequence]
		if r == nil {
			p.Errorf("event %q comes from record %d, which is not there", e.Event.EventID, e.Sequence)
			return
		}
		if r.Stamped != "" && strings.HasSuffix(r.Stamped, "Z") && e.Event.TS != r.Stamped {
			p.Errorf("record %d: event %q at %s, want %s", e.Sequence, e.Event.EventID, e.Event.TS, r.Stamped)
		}
		if copied := e.Event.Origin == envelopes.OriginCopied; copied != r.Copied {
			p.Errorf("record %d: event %q has origin %q, copied history %t", e.Sequence, e.Event.EventID, e.Event.Origin, r.Copied)
		}
		if r.Copied {
			counts["copied events"]++
		}
		if u := e.Event.Usage; u != nil {
			if want := cmp.Or(r.Turn, u.Key); u.Key != want || u.Key == "" {
				p.Errorf("record %d: usage of key %q, want %q", e.Sequence, u.Key, want)
			}
			if e.Event.EventType == envelopes.Meta && normalizerstest.Value(e.Event.Model) != r.Model {
				p.Errorf("record %d: usage of model %q, want %q", e.Sequence, normalizerstest.Value(e.Event.Model), r.Model)
			}
		}
	}
}

// checkCodexTools checks the model and files of each call, and the name, latency, files and status of each result. A
// repeated result has the exit code or the latency that the first one lacked.
func checkCodexTools(p *normalizerstest.Problems, records []codextest.Raw, byLine map[uint64]*codextest.Raw, emitted []core.Emitted, counts map[string]int) {
	results := make(map[uint64][]*codextest.Tool)
	calls := make(map[uint64][]*codextest.Tool)
	for _, t := range codextest.ToolsOf(records) {
		if t.Call >= 0 {
			calls[uint64(records[t.Call].Number)] = append(calls[uint64(records[t.Call].Number)], t)
		}
		if t.Result >= 0 {
			results[uint64(records[t.Result].Number)] = append(results[uint64(records[t.Result].Number)], t)
		}
	}
	first := make(map[string]envelopes.AgentEventV1)
	repeats := repeatedResults(records)
	for _, e := range emitted {
		ev := e.Event
		switch ev.EventType { //nolint:exhaustive // the others are no tools
		case envelopes.ToolCall:
			i := slices.IndexFunc(calls[e.Sequence], func(t *codextest.Tool) bool { return t.ID == normalizerstest.Value(ev.ToolCallID) })
			if i < 0 {
				p.Errorf("record %d: call %q, which is not there", e.Sequence, normalizerstest.Value(ev.ToolCallID))
				continue
			}
			t := calls[e.Sequence][i]
			if normalizerstest.Value(ev.Model) != byLine[e.Sequence].Model {
				p.Errorf("record %d: call of model %q, want %q", e.Sequence, normalizerstest.Value(ev.Model), byLine[e.Sequence].Model)
			}
			if len(t.Files) > 0 {
				counts["calls with a patch"]++
				counts["files of patches"] += len(t.Files)
				several := len(t.Files) > 1 || t.Files[0].Op != envelopes.OpModify
				if normalizerstest.Value(ev.FilePath) != t.Files[0].Path || normalizerstest.Value(ev.FileOp) != envelopes.OpModify || several && !slices.Equal(ev.Files, t.Files) || !several && ev.Files != nil {
					p.Errorf("record %d: patch of %q %q %v, want %v", e.Sequence, normalizerstest.Value(ev.FilePath), normalizerstest.Value(ev.FileOp), ev.Files, t.Files)
				}
			} else if ev.Files != nil && records[t.Call].Kind == "response_item" {
				p.Errorf("record %d: files %v of a call without a patch", e.Sequence, ev.Files)
			}
		case envelopes.ToolResult:
			id := normalizerstest.Value(ev.ToolCallID)
			if ev.Supersedes != "" {
				was := first[ev.Supersedes]
				if was.ToolExitCode != nil && was.ToolLatencyMS != nil && byLine[e.Sequence].Kind == "event_msg" {
					p.Errorf("record %d: result %q again, though it lacked nothing", e.Sequence, id)
				}
				first[ev.EventID] = ev
				counts["repeated results"]++
				if again, ok := repeats[e.Sequence]; ok {
					again.check(p, e)
					delete(repeats, e.Sequence)
				}
				continue
			}
			first[ev.EventID] = ev
			i := slices.IndexFunc(results[e.Sequence], func(t *codextest.Tool) bool { return t.ID == id })
			if i < 0 {
				p.Errorf("record %d: result %q, which is not there", e.Sequence, id)
				continue
			}
			t := results[e.Sequence][i]
			checkCodexResult(p, e, t, counts)
		}
	}
	for line, again := range repeats {
		p.Errorf("record %d: result %q is not repeated, though its end states more", line, again.tool.ID)
	}
}

func checkCodexResult(p *normalizerstest.Problems, e core.Emitted, t *codextest.Tool, counts map[string]int) {
	ev := e.Event
	if t.Name != normalizerstest.Value(ev.ToolName) {
		p.Errorf("record %d: result %q of %q, want %q", e.Sequence, t.ID, normalizerstest.Value(ev.ToolName), t.Name)
	}
	if !reflect.DeepEqual(ev.ToolLatencyMS, t.Latency) {
		p.Errorf("record %d: result %q took %v ms, want %v", e.Sequence, t.ID, normalizerstest.Value(ev.ToolLatencyMS), normalizerstest.Value(t.Latency))
	}
	form := cmp.Or(t.Form, "none")
	counts["results: "+form]++
	if t.Code != nil {
		counts["results with exit code: "+form]++
	}
	if t.Latency != nil {
		counts["results with latency: "+form]++
	}
	switch status := normalizerstest.Value(ev.ToolStatus); {
	case t.Code != nil && *t.Code != 0 || t.Failed:
		if status != envelopes.StatusError {
			p.Errorf("record %d: result %q has failed, status %q", e.Sequence, t.ID, status)
		}
	case t.Running && t.Code == nil:
		if status != envelopes.StatusInProgress {
			p.Errorf("record %d: result %q goes on, status %q", e.Sequence, t.ID, status)
		}
	case status == envelopes.StatusInProgress:
		p.Errorf("record %d: result %q is done, status %q", e.Sequence, t.ID, status)
	}
	counts["status "+string(normalizerstest.Value(ev.ToolStatus))]++
	if len(t.Changed) > 1 || len(t.Changed) == 1 && t.Changed[0].Op != envelopes.OpModify {
		got := slices.Clone(ev.Files)
		slices.SortFunc(got, func(a, b envelopes.File) int { return strings.Compare(a.Path, b.Path) })
		if len(t.Changed) <= 8 && !slices.Equal(got, t.Changed) {
			p.Errorf("record %d: result %q changed %v, want %v", e.Sequence, t.ID, ev.Files, t.Changed)
		}
		counts["results with files of an end"]++
	}
}

// TestGeneratedRolloutsMatchTheirBytes does the same for generated rollouts: interleavings of
// duplicates, tools and turns that no file of the corpus has.
func TestGeneratedRolloutsMatchTheirBytes(t *testing.T) {
	t.Parallel()
	s := codextest.Suite
	rapid.Check(t, func(rt *rapid.T) {
		data := bytes.Join(codextest.Rollout(s.Lines(rt, "s1")), []byte("\n"))
		file := normalizerstest.FileNamed(s.Source, "s1.jsonl")
		found := append(normalizerstest.CheckTruth(s, normalizers.Normalize, file, data, normalizerstest.NewReport()), checkCodex(normalizers.Normalize, file, data, make(map[string]int))...)
		if len(found) > 0 {
			rt.Fatalf("%s\nof the file\n%s", strings.Join(found, "\n"), data)
		}
	})
}

// codexFile writes a rollout: a prompt, then event_msgs and response_items.
func codexFile(t *testing.T, payloads ...map[string]any) []byte {
	t.Helper()
	lines := [][]byte{
		[]byte(`{"timestamp":"2026-03-01T09:00:00Z","type":"session_meta","payload":{"id":"s1","cwd":"/home/dev/app"}}`),
		[]byte(`{"timestamp":"2026-03-01T09:00:01Z","type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"go"}]}}`),
	}
	for i, p := range payloads {
		kind := "event_msg"
		if slices.Contains([]any{"message", "reasoning", "function_call", "function_call_output"}, p["type"]) {
			kind = "response_item"
		}
		b, err := json.Marshal(map[string]any{"timestamp": fmt.Sprintf("2026-03-01T09:00:02.%06dZ", i), "type": kind, "payload": p})
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, b)
	}
	return bytes.Join(lines, []byte("\n"))
}

// An event that waits for its response_item is emitted once, as that of its own record and time,
// however many wait; and the session stays small.
func TestPendingEventIsEmittedOnce(t *testing.T) {
	t.Parallel()
	answer := func(text string) map[string]any { return map[string]any{"type": "agent_message", "message": text} }
	thought := func(text string) map[string]any {
		return map[string]any{"type": "agent_reasoning", "text": text}
	}
	message := func(text string) map[string]any {
		return map[string]any{"type": "message", "role": "assistant", "content": []any{map[string]any{"type": "output_text", "text": text}}}
	}
	reasoning := func(parts ...string) map[string]any {
		var summary []any
		for _, p := range parts {
			summary = append(summary, map[string]any{"type": "summary_text", "text": p})
		}
		return map[string]any{"type": "reasoning", "summary": summary}
	}
	var many, cited []map[string]any
	for i := range 150 {
		many = append(many, thought(fmt.Sprint("thought ", i)))
		cited = append(cited, map[string]any{"type": "agent_message", "message": fmt.Sprint("answer ", i), "memory_citation": strings.Repeat("c", 3500)})
	}
	big := func(c string) string { return c + strings.Repeat(" and more", 1500) }
	ctrl := strings.Repeat("\x01", 15<<10)
	parts := make([]string, 20_000)
	for i := range parts {
		parts[i] = fmt.Sprint("part ", i)
	}
	for _, c := range []struct {
		name string
		file []map[string]any
		want []string // speaker, line, and beginning of the text
	}{
		{"many thoughts and no item", many, nil},
		{"many answers with much beside them", cited, nil},
		{"many thoughts, then the item of the last", append(slices.Clone(many), reasoning("thought 149")), nil},
		{"a long answer before its item", []map[string]any{answer(big("A")), message(big("A"))}, []string{"assistant 4 A"}},
		{"a longer one", []map[string]any{answer(big(big("A"))), message(big(big("A")))}, []string{"assistant 3 A"}},
		{"a longer one, and something between", []map[string]any{answer(big(big("A"))), {"type": "token_count", "info": nil}, message(big(big("A")))}, []string{"assistant 3 A"}},
		{"a longer one behind its item", []map[string]any{message(big(big("A"))), answer(big(big("A")))}, []string{"assistant 3 A"}},
		{"a short and a longer one", []map[string]any{answer("A"), thought(big(big("B"))), reasoning(big(big("B"))), message("A")}, []string{"assistant 3 A", "thought 4 B"}},
		{
			"three long parts",
			[]map[string]any{thought(big("A")), thought(big("B")), thought(big("C")), reasoning(big("A"), big("B"), big("C"))},
			[]string{"thought 3 A", "thought 4 B", "thought 6 C"},
		},
		{"a part that no event has", []map[string]any{thought(big(big("A"))), reasoning(big(big("A")), "B")}, []string{"thought 3 A", "thought 4 B"}},
		{
			"a message of two parts, one of them emitted",
			[]map[string]any{answer(big(big("A"))), {"type": "message", "role": "assistant", "content": []any{
				map[string]any{"type": "output_text", "text": big(big("A"))}, map[string]any{"type": "output_text", "text": "B"},
			}}},
			[]string{"assistant 3 A", "assistant 4 B"},
		},
		{"two of the same", []map[string]any{answer(big(big("A"))), answer(big(big("A"))), message(big(big("A"))), message(big(big("A")))}, []string{"assistant 3 A", "assistant 4 A"}},
		{"control characters", []map[string]any{answer(ctrl), message(ctrl)}, []string{"assistant 4 \x01"}},
		{"more parts than are remembered", []map[string]any{reasoning(parts...), message("A"), thought("part 3")}, []string{"thought 3 part 0", "assistant 4 A"}},
		{"a thought in front of an answer", []map[string]any{answer("A"), thought("B"), reasoning("B"), message("A")}, []string{"thought 5 B", "assistant 6 A"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := codextest.Suite
			file := normalizerstest.FileNamed(s.Source, "s1.jsonl")
			data := codexFile(t, c.file...)
			records := normalizerstest.Frame(file, data)
			normalizerstest.CheckLaws(t, s, records, true)
			var got []string
			for _, st := range normalizerstest.Fold(normalizers.Normalize, records) {
				for _, e := range st.Result.Events {
					switch e.Event.EventType { //nolint:exhaustive // only messages and thoughts
					case envelopes.AssistantMessage:
						got = append(got, fmt.Sprintf("assistant %d %s", e.Sequence, normalizerstest.Value(e.Event.Text)))
					case envelopes.Reasoning:
						got = append(got, fmt.Sprintf("thought %d %s", e.Sequence, normalizerstest.Value(e.Event.Text)))
					}
				}
			}
			if c.want == nil {
				for i, p := range c.file {
					who, text := "thought", p["text"]
					if p["type"] == "agent_message" {
						who, text = "assistant", p["message"]
					}
					if p["type"] == "reasoning" {
						c.want[len(c.want)-1] = fmt.Sprintf("thought %d thought 149", i+3)
						continue
					}
					c.want = append(c.want, fmt.Sprintf("%s %d %s", who, i+3, text))
				}
			}
			if len(got) != len(c.want) {
				t.Errorf("%d texts, want %d", len(got), len(c.want))
			}
			for i := range min(len(got), len(c.want)) {
				if !strings.HasPrefix(got[i], c.want[i]) {
					t.Errorf("text %d: %s, want %s", i+1, normalizerstest.Clip(got[i]), c.want[i])
				}
			}
		})
	}
}

// An item that states how a tool ended adds to the result that follows, and is call and result at
// once where it has no call.
func TestItemCompletesTheResultThatFollows(t *testing.T) {
	t.Parallel()
	call := func(id string) map[string]any {
		return map[string]any{"type": "function_call", "call_id": id, "name": "exec_command", "arguments": `{"cmd":"ls"}`}
	}
	output := func(id, text string) map[string]any {
		return map[string]any{"type": "function_call_output", "call_id": id, "output": text}
	}
	item := func(of, id string, more map[string]any) map[string]any {
		i := map[string]any{"type": of, "id": id, "status": "completed", "duration": map[string]any{"secs": 1, "nanos": 500_000_000}}
		maps.Copy(i, more)
		return map[string]any{"type": "item_completed", "item": i}
	}
	command := func(id string, code int) map[string]any {
		return item("CommandExecution", id, map[string]any{"command": []any{"sh", "-c", "ls"}, "aggregated_output": "a.go\n", "exit_code": code})
	}
	mcp := func(more map[string]any) []map[string]any {
		more["server"], more["tool"], more["arguments"] = "docs", "find", map[string]any{"q": "x"}
		return []map[string]any{item("McpToolCall", "exec-1", more)}
	}
	answer := func(failed bool) map[string]any {
		return map[string]any{"result": map[string]any{"content": []any{map[string]any{"type": "text", "text": "found"}}, "isError": failed}}
	}
	for _, c := range []struct {
		name string
		file []map[string]any
		want []string
	}{
		{"before the result", []map[string]any{call("c1"), command("c1", 2), output("c1", "a.go")}, []string{"tool_call c1 exec_command", "tool_result c1 exec_command error 2 1500 a.go"}},
		{
			"behind a result that states it",
			[]map[string]any{call("c1"), output("c1", "Exit code: 0\nWall time: 1 seconds\nOutput:\na.go"), command("c1", 0)},
			[]string{"tool_call c1 exec_command", "tool_result c1 exec_command success 0 1000 Exit code: 0\nWall time: 1 seconds\nOutput:\na.go"},
		},
		{"a command alone", []map[string]any{command("exec-1", 0)}, []string{"tool_call exec-1 exec_command", "tool_result exec-1 exec_command success 0 1500 a.go\n"}},
		{"an answer", mcp(answer(false)), []string{"tool_call exec-1 mcp__docs__find", "tool_result exec-1 mcp__docs__find success - 1500 found"}},
		{"an answer that is an error", mcp(answer(true)), []string{"tool_call exec-1 mcp__docs__find", "tool_result exec-1 mcp__docs__find error - 1500 found"}},
		{
			"no answer", mcp(map[string]any{"status": "failed", "error": map[string]any{"message": "refused"}}),
			[]string{"tool_call exec-1 mcp__docs__find", "tool_result exec-1 mcp__docs__find error - 1500 refused"},
		},
		{
			"a patch",
			[]map[string]any{item("FileChange", "exec-1", map[string]any{"changes": map[string]any{"a.go": map[string]any{"type": "add"}}, "stdout": "Done."})},
			[]string{"tool_call exec-1 apply_patch a.go", "tool_result exec-1 apply_patch success - 1500 Done. a.go"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := codextest.Suite
			file := normalizerstest.FileNamed(s.Source, "s1.jsonl")
			data := codexFile(t, c.file...)
			normalizerstest.CheckLaws(t, s, normalizerstest.Frame(file, data), true)
			for _, p := range normalizerstest.CheckTruth(s, normalizers.Normalize, file, data, normalizerstest.NewReport()) {
				t.Error(p)
			}
			var got []string
			for _, e := range normalizerstest.Events(normalizerstest.Fold(normalizers.Normalize, normalizerstest.Frame(file, data))) {
				number := func(n *int64) string {
					if n == nil {
						return "-"
					}
					return strconv.FormatInt(*n, 10)
				}
				fields := []string{string(e.EventType), normalizerstest.Value(e.ToolCallID), normalizerstest.Value(e.ToolName)}
				switch e.EventType {
				case envelopes.ToolCall:
				case envelopes.ToolResult:
					fields = append(fields, string(normalizerstest.Value(e.ToolStatus)), number(e.ToolExitCode), number(e.ToolLatencyMS), normalizerstest.Value(e.Text))
				default:
					continue
				}
				if e.FilePath != nil {
					fields = append(fields, *e.FilePath)
				}
				got = append(got, strings.Join(fields, " "))
			}
			normalizerstest.Same(t, "tools", got, c.want)
		})
	}
}

// No figure makes a dead letter of a record, and an impossible figure is absent.
func TestNoNumberMakesADeadLetter(t *testing.T) {
	t.Parallel()
	s := codextest.Suite
	for _, n := range []string{"0", "-1", "1.5", "-0.5", "1e3", "1e15", "9007199254740991", "9007199254740992", "9223372036854775807", "1e400", "-1e400", `"7"`, "null", "{}", "[]", strings.Repeat("9", 100_000)} {
		for _, payload := range []string{
			`{"type":"token_count","info":{"total_token_usage":{"input_tokens":N,"cached_input_tokens":N,"cache_write_input_tokens":N,"output_tokens":N,"reasoning_output_tokens":N},"last_token_usage":{"input_tokens":N,"output_tokens":N}}}`,
			`{"type":"exec_command_end","call_id":"c","exit_code":N,"duration":{"secs":N,"nanos":N}}`,
			`{"type":"function_call_output","call_id":"c","output":"{\"output\":\"x\",\"metadata\":{\"exit_code\":M,\"duration_seconds\":M}}"}`,
			`{"type":"function_call_output","call_id":"c","output":"Exit code: M\nWall time: M seconds\nOutput:\n"}`,
			`{"type":"function_call_output","call_id":"c","output":"Chunk ID: 1\nWall time: M seconds\nProcess exited with code M\nOutput:\n"}`,
		} {
			payload = strings.ReplaceAll(strings.ReplaceAll(payload, "N", n), "M", strings.ReplaceAll(n, `"`, ""))
			data := []byte(`{"timestamp":"2026-03-01T09:00:00Z","type":"response_item","payload":` + payload + `}`)
			if !strings.Contains(payload, "output\":\"") {
				data = bytes.Replace(data, []byte("response_item"), []byte("event_msg"), 1)
			}
			records := normalizerstest.Single(s, data)
			normalizerstest.CheckLaws(t, s, records, false)
			if st := normalizerstest.Fold(normalizers.Normalize, records)[0]; st.Err != nil {
				t.Errorf("%v: %s", st.Err, normalizerstest.Clip(payload))
			}
		}
	}
}

// A writer that died within a line leaves its next record on the same line: the torn one is a
// dead letter, the other is read.
func TestRecordBehindATornLineIsRead(t *testing.T) {
	t.Parallel()
	data := codexFile(t,
		map[string]any{"type": "message", "role": "assistant", "content": []any{map[string]any{"type": "output_text", "text": "torn"}}},
		map[string]any{"type": "message", "role": "assistant", "content": []any{map[string]any{"type": "output_text", "text": "whole"}}},
		map[string]any{"type": "message", "role": "assistant", "content": []any{map[string]any{"type": "output_text", "text": "the last"}}},
	)
	lines := bytes.Split(data, []byte("\n"))
	for cut := 1; cut < len(lines[2])-1; cut++ {
		glued := bytes.Join([][]byte{lines[0], lines[1], append(bytes.Clone(lines[2][:cut]), lines[3]...), lines[4]}, []byte("\n"))
		var answers []string
		dead := 0
		for _, st := range normalizerstest.Fold(normalizers.Normalize, normalizerstest.Frame(normalizerstest.FileNamed(envelopes.Codex, "s1.jsonl"), glued)) {
			if st.Failed() {
				dead++
			}
			for _, e := range st.Result.Events {
				if e.Event.EventType == envelopes.AssistantMessage {
					answers = append(answers, normalizerstest.Value(e.Event.Text))
				}
			}
		}
		if dead != 1 || !slices.Equal(answers, []string{"whole", "the last"}) {
			t.Fatalf("cut at %d: %d dead letters, emitted %q", cut, dead, answers)
		}
	}
}

// A pending event keeps the sequence and the trace context of its own record, also when the
// session is decoded after every record.
func TestPendingEventKeepsItsTraceContext(t *testing.T) {
	t.Parallel()
	pending := 0
	for _, g := range normalizerstest.Goldens(t, codextest.Suite) {
		sessions := make(map[string]*core.Session)
		for i, r := range normalizerstest.Frame(g.File(envelopes.Codex), g.Raw) {
			r.Record.Sequence = uint64(1000 + i)
			r.Record.Origin.Traceparent, r.Record.Origin.Tracestate = fmt.Sprint("parent ", 1000+i), fmt.Sprint("state ", 1000+i)
			st := normalizerstest.FoldOne(normalizers.Normalize, sessions, r)
			for _, e := range st.Result.Events {
				if e.Traceparent != fmt.Sprint("parent ", e.Sequence) || e.Tracestate != fmt.Sprint("state ", e.Sequence) {
					t.Errorf("%s: line %d: event %q of record %d has trace %q %q", g.Name, r.Line, e.Event.EventID, e.Sequence, e.Traceparent, e.Tracestate)
				}
				if e.Sequence != r.Record.Sequence {
					pending++
				}
			}
			if s := sessions[r.Record.Session]; s != nil {
				decoded, err := normalizers.DecodeSession(s.Encode())
				if err != nil {
					t.Fatal(err)
				}
				sessions[r.Record.Session] = decoded
			}
		}
	}
	if pending < 20 {
		t.Errorf("only %d events were pending", pending)
	}
}
