package normalizers_test

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
)

// TestTruthCodex holds the events of every rollout of the corpus to what only rollouts
// have: thoughts, the order of everything said, patches, latencies, models, copied
// history, and the record that each event comes from.
func TestTruthCodex(t *testing.T) {
	t.Parallel()
	s := suiteOf(t, envelopes.Codex)
	files := corpus(t, s)
	counts := make([]map[string]int, len(files))
	t.Run("files", func(t *testing.T) {
		for i, f := range files {
			counts[i] = make(map[string]int)
			t.Run(f.name, func(t *testing.T) {
				t.Parallel()
				for _, p := range checkCodex(normalizers.Normalize, fileNamed(s.source, f.name), f.data, counts[i]) {
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

// TestTruthCodexGolden holds the golden files to the same.
func TestTruthCodexGolden(t *testing.T) {
	t.Parallel()
	for _, g := range goldens(t, envelopes.Codex) {
		for _, p := range checkCodex(normalizers.Normalize, g.file(envelopes.Codex), g.raw, make(map[string]int)) {
			t.Errorf("%s: %s", g.name, p)
		}
	}
}

// TestTruthCodexCatches shows that each part can fail.
func TestTruthCodexCatches(t *testing.T) {
	t.Parallel()
	nth := func(kind envelopes.EventType, change func(e *normalizers.Emitted)) func() normalizeFunc {
		return each(func(e *normalizers.Emitted) {
			if e.Event.EventType == kind {
				change(e)
			}
		})
	}
	for name, broken := range map[string]func() normalizeFunc{
		"a thought that is not told": nth(envelopes.Reasoning, func(e *normalizers.Emitted) { e.Event.EventType = envelopes.Meta }),
		"a thought cut":              nth(envelopes.Reasoning, func(e *normalizers.Emitted) { e.Event.Text = new((*e.Event.Text)[1:]) }),
		"no latency":                 nth(envelopes.ToolResult, func(e *normalizers.Emitted) { e.Event.ToolLatencyMS = nil }),
		"a latency of its own":       nth(envelopes.ToolResult, func(e *normalizers.Emitted) { e.Event.ToolLatencyMS = new(int64(1)) }),
		"no name of a result":        nth(envelopes.ToolResult, func(e *normalizers.Emitted) { e.Event.ToolName = nil }),
		"no files":                   nth(envelopes.ToolCall, func(e *normalizers.Emitted) { e.Event.Files = nil }),
		"another first file":         nth(envelopes.ToolCall, func(e *normalizers.Emitted) { e.Event.FilePath = new("x") }),
		"no files of an end":         nth(envelopes.ToolResult, func(e *normalizers.Emitted) { e.Event.Files = nil }),
		"no model":                   nth(envelopes.AssistantMessage, func(e *normalizers.Emitted) { e.Event.Model = nil }),
		"another record":             nth(envelopes.AssistantMessage, func(e *normalizers.Emitted) { e.Sequence = 1 }),
		"another time":               each(func(e *normalizers.Emitted) { e.Event.TS = "2026-01-01T00:00:00Z" }),
		"copied history as its own":  each(func(e *normalizers.Emitted) { e.Event.Origin = "" }),
		"everything copied":          each(func(e *normalizers.Emitted) { e.Event.Origin = envelopes.OriginCopied }),
		"a running tool is done":     nth(envelopes.ToolResult, func(e *normalizers.Emitted) { e.Event.ToolStatus = new(envelopes.StatusSuccess) }),
		"a key of its own": each(func(e *normalizers.Emitted) {
			if e.Event.Usage != nil {
				u := *e.Event.Usage
				u.Key = "x"
				e.Event.Usage = &u
			}
		}),
	} {
		t.Run(name, func(t *testing.T) {
			for _, g := range goldens(t, envelopes.Codex) {
				if len(checkCodex(broken(), g.file(envelopes.Codex), g.raw, make(map[string]int))) > 0 {
					return
				}
			}
			t.Error("the broken normalizer passes")
		})
	}
}

// checkCodex returns how the events of a rollout differ from its raw bytes in what
// checkTruth does not look at.
func checkCodex(normalize normalizeFunc, file normalizers.File, data []byte, counts map[string]int) problems {
	var p problems
	lines := readLines(data)
	records := readCodex(lines)
	byLine := make(map[uint64]*codexRaw)
	for i := range records {
		byLine[uint64(records[i].number)] = &records[i]
	}
	if interpretCodex(file.Name, lines).trimmed {
		counts["files of placeholders"]++
		return nil
	}
	var emitted []normalizers.Emitted
	for _, st := range fold(normalize, frame(file, data)) {
		emitted = append(emitted, st.result.Events...)
	}
	checkCodexSaid(&p, records, emitted, counts)
	checkCodexOrigins(&p, byLine, emitted, counts)
	checkCodexTools(&p, records, byLine, emitted, counts)
	return p
}

// checkCodexSaid: what is said and thought is told once, all of it in one order, by the
// record that it stands in.
func checkCodexSaid(p *problems, records []codexRaw, emitted []normalizers.Emitted, counts map[string]int) {
	want := codexSayings(records)
	next := 0
	for _, e := range emitted {
		who := map[envelopes.EventType]string{envelopes.UserMessage: "human", envelopes.AssistantMessage: "assistant", envelopes.Reasoning: "thought"}[e.Event.EventType]
		if who == "" {
			continue
		}
		if next >= len(want) {
			p.Errorf("record %d: %s %q is told, but nothing more is said", e.Sequence, who, clip(value(e.Event.Text)))
			return
		}
		w := want[next]
		next++
		if w.who != who || uint64(records[w.at].number) != e.Sequence || strings.TrimSpace(w.text) != strings.TrimSpace(value(e.Event.Text)) {
			p.Errorf("saying %d: %s of record %d %q, want %s of record %d %q", next, who, e.Sequence, clip(value(e.Event.Text)), w.who, records[w.at].number, clip(w.text))
			return
		}
		counts["said: "+who]++
		if w.twin {
			counts["said: "+who+" by an event_msg alone"]++
		}
		if w.who != "human" && value(e.Event.Model) != records[w.at].model {
			p.Errorf("record %d: %s of model %q, want %q", e.Sequence, who, value(e.Event.Model), records[w.at].model)
		}
	}
	if next != len(want) {
		p.Errorf("record %d: %s %q is not told", records[want[next].at].number, want[next].who, clip(want[next].text))
	}
}

// checkCodexOrigins: each event has the time of its record, and is copied when that is;
// tokens have the key of their turn.
func checkCodexOrigins(p *problems, byLine map[uint64]*codexRaw, emitted []normalizers.Emitted, counts map[string]int) {
	for _, e := range emitted {
		r := byLine[e.Sequence]
		if r == nil {
			p.Errorf("event %q comes from record %d, which is not there", e.Event.EventID, e.Sequence)
			return
		}
		if r.stamped != "" && strings.HasSuffix(r.stamped, "Z") && e.Event.TS != r.stamped {
			p.Errorf("record %d: event %q at %s, want %s", e.Sequence, e.Event.EventID, e.Event.TS, r.stamped)
		}
		if copied := e.Event.Origin == envelopes.OriginCopied; copied != r.copied {
			p.Errorf("record %d: event %q has origin %q, copied history %t", e.Sequence, e.Event.EventID, e.Event.Origin, r.copied)
		}
		if r.copied {
			counts["copied events"]++
		}
		if u := e.Event.Usage; u != nil {
			if want := cmp.Or(r.turn, u.Key); u.Key != want || u.Key == "" {
				p.Errorf("record %d: usage of key %q, want %q", e.Sequence, u.Key, want)
			}
		}
	}
}

// checkCodexTools: the model and files of each call; the name, latency, files and status
// of each result. A second telling of a result has the code or the latency that the
// first lacked.
func checkCodexTools(p *problems, records []codexRaw, byLine map[uint64]*codexRaw, emitted []normalizers.Emitted, counts map[string]int) {
	results := make(map[uint64][]*codexTool)
	calls := make(map[uint64][]*codexTool)
	for _, t := range codexToolsOf(records) {
		if t.call >= 0 {
			calls[uint64(records[t.call].number)] = append(calls[uint64(records[t.call].number)], t)
		}
		if t.result >= 0 {
			results[uint64(records[t.result].number)] = append(results[uint64(records[t.result].number)], t)
		}
	}
	first := make(map[string]envelopes.AgentEventV1)
	for _, e := range emitted {
		ev := e.Event
		switch ev.EventType { //nolint:exhaustive // the others are no tools
		case envelopes.ToolCall:
			i := slices.IndexFunc(calls[e.Sequence], func(t *codexTool) bool { return t.id == value(ev.ToolCallID) })
			if i < 0 {
				p.Errorf("record %d: call %q, which is not there", e.Sequence, value(ev.ToolCallID))
				continue
			}
			t := calls[e.Sequence][i]
			if value(ev.Model) != byLine[e.Sequence].model {
				p.Errorf("record %d: call of model %q, want %q", e.Sequence, value(ev.Model), byLine[e.Sequence].model)
			}
			if len(t.files) > 0 {
				counts["calls with a patch"]++
				counts["files of patches"] += len(t.files)
				several := len(t.files) > 1 || t.files[0].Op != envelopes.OpModify
				if value(ev.FilePath) != t.files[0].Path || value(ev.FileOp) != envelopes.OpModify || several && !slices.Equal(ev.Files, t.files) || !several && ev.Files != nil {
					p.Errorf("record %d: patch of %q %q %v, want %v", e.Sequence, value(ev.FilePath), value(ev.FileOp), ev.Files, t.files)
				}
			} else if ev.Files != nil && records[t.call].kind == "response_item" {
				p.Errorf("record %d: files %v of a call without a patch", e.Sequence, ev.Files)
			}
		case envelopes.ToolResult:
			id := value(ev.ToolCallID)
			if ev.Supersedes != "" {
				was := first[ev.Supersedes]
				if was.ToolExitCode != nil && was.ToolLatencyMS != nil && byLine[e.Sequence].kind == "event_msg" {
					p.Errorf("record %d: result %q again, though it lacked nothing", e.Sequence, id)
				}
				first[ev.EventID] = ev
				counts["results told again"]++
				continue
			}
			first[ev.EventID] = ev
			i := slices.IndexFunc(results[e.Sequence], func(t *codexTool) bool { return t.id == id })
			if i < 0 {
				p.Errorf("record %d: result %q, which is not there", e.Sequence, id)
				continue
			}
			t := results[e.Sequence][i]
			checkCodexResult(p, e, t, counts)
		}
	}
}

func checkCodexResult(p *problems, e normalizers.Emitted, t *codexTool, counts map[string]int) {
	ev := e.Event
	if t.name != value(ev.ToolName) {
		p.Errorf("record %d: result %q of %q, want %q", e.Sequence, t.id, value(ev.ToolName), t.name)
	}
	if !reflect.DeepEqual(ev.ToolLatencyMS, t.latency) {
		p.Errorf("record %d: result %q took %v ms, want %v", e.Sequence, t.id, value(ev.ToolLatencyMS), value(t.latency))
	}
	form := cmp.Or(t.form, "none")
	counts["results: "+form]++
	if t.code != nil {
		counts["results with exit code: "+form]++
	}
	if t.latency != nil {
		counts["results with latency: "+form]++
	}
	switch status := value(ev.ToolStatus); {
	case t.code != nil && *t.code != 0 || t.failed:
		if status != envelopes.StatusError {
			p.Errorf("record %d: result %q has failed, status %q", e.Sequence, t.id, status)
		}
	case t.running && t.code == nil:
		if status != envelopes.StatusInProgress {
			p.Errorf("record %d: result %q goes on, status %q", e.Sequence, t.id, status)
		}
	case status == envelopes.StatusInProgress:
		p.Errorf("record %d: result %q is done, status %q", e.Sequence, t.id, status)
	}
	counts["status "+string(value(ev.ToolStatus))]++
	if len(t.changed) > 1 || len(t.changed) == 1 && t.changed[0].Op != envelopes.OpModify {
		got := slices.Clone(ev.Files)
		slices.SortFunc(got, func(a, b envelopes.File) int { return strings.Compare(a.Path, b.Path) })
		if len(t.changed) <= 8 && !slices.Equal(got, t.changed) {
			p.Errorf("record %d: result %q changed %v, want %v", e.Sequence, t.id, ev.Files, t.changed)
		}
		counts["results with files of an end"]++
	}
}

// TestTruthCodexGenerated holds generated rollouts to the same: interleavings of twins,
// tools and turns that no file of the corpus has.
func TestTruthCodexGenerated(t *testing.T) {
	t.Parallel()
	s := suiteOf(t, envelopes.Codex)
	rapid.Check(t, func(rt *rapid.T) {
		data := bytes.Join(s.lines(rt, "s1"), []byte("\n"))
		file := fileNamed(s.source, "s1.jsonl")
		found := append(checkTruth(s, normalizers.Normalize, file, data, newReport()), checkCodex(normalizers.Normalize, file, data, make(map[string]int))...)
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

// TestCodexHeld: what waits for its response_item is told once, of its own record and
// time, however much of it there is; and the session stays small.
func TestCodexHeld(t *testing.T) {
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
		want []string // who, line, and how the text begins
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
		{"a part that no event told", []map[string]any{thought(big(big("A"))), reasoning(big(big("A")), "B")}, []string{"thought 3 A", "thought 4 B"}},
		{
			"a message of two parts, one of them told",
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
			s := suiteOf(t, envelopes.Codex)
			file := fileNamed(s.source, "s1.jsonl")
			data := codexFile(t, c.file...)
			records := frame(file, data)
			checkLaws(t, s, records, true)
			var got []string
			for _, st := range fold(normalizers.Normalize, records) {
				for _, e := range st.result.Events {
					switch e.Event.EventType { //nolint:exhaustive // only what is said
					case envelopes.AssistantMessage:
						got = append(got, fmt.Sprintf("assistant %d %s", e.Sequence, value(e.Event.Text)))
					case envelopes.Reasoning:
						got = append(got, fmt.Sprintf("thought %d %s", e.Sequence, value(e.Event.Text)))
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
					t.Errorf("text %d: %s, want %s", i+1, clip(got[i]), c.want[i])
				}
			}
		})
	}
}

// TestCodexItemEnds: an item that says how a tool ended adds to the result that follows,
// and is call and result at once where it has no call.
func TestCodexItemEnds(t *testing.T) {
	t.Parallel()
	call := func(id string) map[string]any {
		return map[string]any{"type": "function_call", "call_id": id, "name": "exec_command", "arguments": `{"cmd":"ls"}`}
	}
	output := func(id, words string) map[string]any {
		return map[string]any{"type": "function_call_output", "call_id": id, "output": words}
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
	said := func(failed bool) map[string]any {
		return map[string]any{"result": map[string]any{"content": []any{map[string]any{"type": "text", "text": "found"}}, "isError": failed}}
	}
	for _, c := range []struct {
		name string
		file []map[string]any
		want []string
	}{
		{"before the result", []map[string]any{call("c1"), command("c1", 2), output("c1", "a.go")}, []string{"tool_call c1 exec_command", "tool_result c1 exec_command error 2 1500 a.go"}},
		{
			"behind a result that says it",
			[]map[string]any{call("c1"), output("c1", "Exit code: 0\nWall time: 1 seconds\nOutput:\na.go"), command("c1", 0)},
			[]string{"tool_call c1 exec_command", "tool_result c1 exec_command success 0 1000 Exit code: 0\nWall time: 1 seconds\nOutput:\na.go"},
		},
		{"a command alone", []map[string]any{command("exec-1", 0)}, []string{"tool_call exec-1 exec_command", "tool_result exec-1 exec_command success 0 1500 a.go\n"}},
		{"an answer", mcp(said(false)), []string{"tool_call exec-1 mcp__docs__find", "tool_result exec-1 mcp__docs__find success - 1500 found"}},
		{"an answer that is an error", mcp(said(true)), []string{"tool_call exec-1 mcp__docs__find", "tool_result exec-1 mcp__docs__find error - 1500 found"}},
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
			s := suiteOf(t, envelopes.Codex)
			file := fileNamed(s.source, "s1.jsonl")
			data := codexFile(t, c.file...)
			checkLaws(t, s, frame(file, data), true)
			for _, p := range checkTruth(s, normalizers.Normalize, file, data, newReport()) {
				t.Error(p)
			}
			var got []string
			for _, e := range events(fold(normalizers.Normalize, frame(file, data))) {
				number := func(n *int64) string {
					if n == nil {
						return "-"
					}
					return strconv.FormatInt(*n, 10)
				}
				words := []string{string(e.EventType), value(e.ToolCallID), value(e.ToolName)}
				switch e.EventType {
				case envelopes.ToolCall:
				case envelopes.ToolResult:
					words = append(words, string(value(e.ToolStatus)), number(e.ToolExitCode), number(e.ToolLatencyMS), value(e.Text))
				default:
					continue
				}
				if e.FilePath != nil {
					words = append(words, *e.FilePath)
				}
				got = append(got, strings.Join(words, " "))
			}
			same(t, "tools", got, c.want)
		})
	}
}

// TestCodexNumbers: no figure makes a dead letter of a record, and what cannot be one is
// none.
func TestCodexNumbers(t *testing.T) {
	t.Parallel()
	s := suiteOf(t, envelopes.Codex)
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
			records := single(s, data)
			checkLaws(t, s, records, false)
			if st := fold(normalizers.Normalize, records)[0]; st.err != nil {
				t.Errorf("%v: %s", st.err, clip(payload))
			}
		}
	}
}

// TestCodexTornLine: a writer that died within a line leaves its next record on the same
// line: the torn one is a dead letter, the other is read.
func TestCodexTornLine(t *testing.T) {
	t.Parallel()
	data := codexFile(t,
		map[string]any{"type": "message", "role": "assistant", "content": []any{map[string]any{"type": "output_text", "text": "torn"}}},
		map[string]any{"type": "message", "role": "assistant", "content": []any{map[string]any{"type": "output_text", "text": "whole"}}},
		map[string]any{"type": "message", "role": "assistant", "content": []any{map[string]any{"type": "output_text", "text": "the last"}}},
	)
	lines := bytes.Split(data, []byte("\n"))
	for cut := 1; cut < len(lines[2])-1; cut++ {
		glued := bytes.Join([][]byte{lines[0], lines[1], append(bytes.Clone(lines[2][:cut]), lines[3]...), lines[4]}, []byte("\n"))
		var told []string
		dead := 0
		for _, st := range fold(normalizers.Normalize, frame(fileNamed(envelopes.Codex, "s1.jsonl"), glued)) {
			if st.failed() {
				dead++
			}
			for _, e := range st.result.Events {
				if e.Event.EventType == envelopes.AssistantMessage {
					told = append(told, value(e.Event.Text))
				}
			}
		}
		if dead != 1 || !slices.Equal(told, []string{"whole", "the last"}) {
			t.Fatalf("cut at %d: %d dead letters, told %q", cut, dead, told)
		}
	}
}

// TestCodexHeldTrace: an event that was held keeps the sequence and the trace context of
// its own record, also when the session is decoded after every record.
func TestCodexHeldTrace(t *testing.T) {
	t.Parallel()
	held := 0
	for _, g := range goldens(t, envelopes.Codex) {
		sessions := make(map[string]*normalizers.Session)
		for i, r := range frame(g.file(envelopes.Codex), g.raw) {
			r.Record.Sequence = uint64(1000 + i)
			r.Record.Origin.Traceparent, r.Record.Origin.Tracestate = fmt.Sprint("parent ", 1000+i), fmt.Sprint("state ", 1000+i)
			st := foldOne(normalizers.Normalize, sessions, r)
			for _, e := range st.result.Events {
				if e.Traceparent != fmt.Sprint("parent ", e.Sequence) || e.Tracestate != fmt.Sprint("state ", e.Sequence) {
					t.Errorf("%s: line %d: event %q of record %d has trace %q %q", g.name, r.Line, e.Event.EventID, e.Sequence, e.Traceparent, e.Tracestate)
				}
				if e.Sequence != r.Record.Sequence {
					held++
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
	if held < 20 {
		t.Errorf("only %d events were held", held)
	}
}
