package gemini_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/normalizers/normalizerstest"
)

// foldGemini normalizes the lines of one file.
func foldGemini(t *testing.T, name string, lines ...string) []normalizerstest.Step {
	t.Helper()
	steps := normalizerstest.Fold(normalizers.Normalize, normalizerstest.Frame(normalizerstest.FileNamed(envelopes.Gemini, name), []byte(strings.Join(lines, "\n"))))
	for _, s := range steps {
		if s.Failed() {
			t.Fatalf("line %d: %v", s.Line, s.Err)
		}
	}
	return steps
}

const geminiHeader = `{"sessionId":"s","projectHash":"p","startTime":"2026-03-01T09:00:00.000Z","lastUpdated":"2026-03-01T09:00:00.000Z","kind":"main"}`

// The content of a file decides its vendor, whatever its name is.
func TestContentDecidesTheVendor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		data string
		want envelopes.Source
	}{
		"header":                 {geminiHeader, envelopes.Gemini},
		"document":               {"{\n \"sessionId\": \"s\",\n \"messages\": []\n}", envelopes.Gemini},
		"message":                {`{"id":"m","timestamp":"2026-03-01T09:00:00Z","type":"gemini","content":""}`, envelopes.Gemini},
		"prompt":                 {`{"id":"m","timestamp":"2026-03-01T09:00:00Z","type":"user","content":[{"text":"x"}]}`, envelopes.Gemini},
		"patch":                  {`{"$set":{"lastUpdated":"2026-03-01T09:00:00Z"}}`, envelopes.Gemini},
		"rewind":                 {`{"$rewindTo":"m"}`, envelopes.Gemini},
		"line of logs.json":      {`{"sessionId":"s","messageId":0,"type":"user","message":"x","timestamp":"2026-03-01T09:00:00Z"}`, envelopes.Gemini},
		"logs.json":              {`[{"sessionId":"s","messageId":0,"type":"user","message":"x","timestamp":"2026-03-01T09:00:00Z"}]`, envelopes.Gemini},
		"saved conversation":     {`[{"role":"user","parts":[{"text":"x"}]}]`, envelopes.Gemini},
		"saved conversation 2":   {`{"history":[{"role":"user","parts":[{"text":"x"}]}],"authType":"x"}`, envelopes.Gemini},
		"stream":                 {`{"type":"init","timestamp":"2026-03-01T09:00:00Z","session_id":"s","model":"gemini-3.5-flash"}`, envelopes.Gemini},
		"output":                 {`{"session_id":"s","response":"x","stats":{"models":{}}}`, envelopes.Gemini},
		"Claude Code":            {`{"type":"user","uuid":"u","sessionId":"s","message":{"role":"user","content":"x"}}`, envelopes.ClaudeCode},
		"Claude Code, a title":   {`{"type":"ai-title","aiTitle":"x","sessionId":"s"}`, envelopes.ClaudeCode},
		"Codex":                  {`{"timestamp":"2026-03-01T09:00:00Z","type":"session_meta","payload":{"id":"x"}}`, envelopes.Codex},
		"Codex, a bare rollout":  {`{"id":"x","timestamp":"2026-03-01T09:00:00Z","instructions":"x"}`, envelopes.Codex},
		"an array of numbers":    {`[1,2]`, ""},
		"an array of messages":   {`[{"type":"user","message":{"role":"user","content":"x"}}]`, ""},
		"a message of nobody":    {`{"role":"user","content":"x"}`, ""},
		"an error of nobody":     {`{"type":"error","message":"x"}`, ""},
		"a project of nobody":    {`{"projectHash":"x"}`, ""},
		"a conversation of none": {`{"messages":[]}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := normalizers.NewFramer(normalizerstest.FileNamed("", "anything.txt"))
			_, _ = f.Write([]byte(c.data)) // never fails by contract
			f.Close()
			if f.Source() != c.want {
				t.Errorf("detected as %q, want %q", f.Source(), c.want)
			}
		})
	}
}

// A record that is rewritten in place is identified by its content, and the same content again is
// a duplicate; a line of a file is identified by its position.
func TestRewrittenRecordIsIdentifiedByItsContent(t *testing.T) {
	t.Parallel()
	message := `{"id":"m1","timestamp":"2026-03-01T09:00:01Z","type":"user","content":"x"}`
	document := `{"sessionId":"s","projectHash":"p","messages":[` + message + `]}`
	prompt := `{"sessionId":"s","messageId":%d,"type":"user","message":"x","timestamp":"2026-03-01T09:00:00Z"}`
	list := "[\n  " + fmt.Sprintf(prompt, 0) + ",\n  " + fmt.Sprintf(prompt, 1) + "\n]"
	for name, c := range map[string]struct {
		data    string
		records []string
		digest  bool
	}{
		"document":           {document, []string{document}, true},
		"saved conversation": {`[{"role":"user","parts":[]}]`, []string{`[{"role":"user","parts":[]}]`}, true},
		"logs.json":          {list, []string{fmt.Sprintf(prompt, 0), fmt.Sprintf(prompt, 1)}, true},
		"lines":              {geminiHeader + "\n" + message, []string{geminiHeader, message}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			records := normalizerstest.Frame(normalizerstest.FileNamed(envelopes.Gemini, "f.json"), []byte(c.data))
			sessions := make(map[string]*core.Session)
			for i, want := range c.records {
				r := records[i].Record
				digest := ""
				if c.digest {
					digest = normalizerstest.Sha256Hex(want)
				}
				if string(r.Data) != want || r.Origin.Digest != digest {
					t.Fatalf("record %d: %s with digest %q, want %s with %q", i+1, r.Data, r.Origin.Digest, want, digest)
				}
				normalizerstest.FoldOne(normalizers.Normalize, sessions, records[i])
			}
			for i := range c.records {
				s := sessions[records[i].Record.Session]
				before := s.Encode()
				again := normalizerstest.FoldOne(normalizers.Normalize, sessions, records[i])
				if again.Result.Skip != core.SkipDuplicate || again.Result.Gap || !bytes.Equal(before, s.Encode()) {
					t.Errorf("record %d again: %s", i+1, normalizerstest.Outcomes(again, false))
				}
			}
		})
	}
}

// A document of more messages than a session remembers is written again with one more, and with a
// changed one near its end: only these are emitted.
func TestDocumentBeyondMemoryYieldsOnlyItsChanges(t *testing.T) {
	t.Parallel()
	message := func(i int, text string) map[string]any {
		return map[string]any{
			"id": fmt.Sprint("m", i), "timestamp": "2026-03-01T09:00:00Z", "type": "gemini", "content": text, "model": "gemini-3.5-flash",
			"tokens": map[string]any{"input": 10, "output": 1, "cached": 0, "thoughts": 2, "tool": 0, "total": 13},
		}
	}
	document := func(n, change int) string {
		var list []any
		for i := range n {
			text := fmt.Sprint("Answer ", i)
			if i == change {
				text += ", again"
			}
			list = append(list, message(i, text))
		}
		b, err := json.Marshal(map[string]any{"sessionId": "s", "projectHash": "p", "startTime": "2026-03-01T09:00:00Z", "messages": list})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	const n = 5000
	steps := foldGemini(t, "f.jsonl", document(n, -1), document(n+1, -1), document(n+1, n-2), document(n+1, n-2))
	ids := func(s normalizerstest.Step) (out []string) {
		for _, e := range s.Result.Events {
			out = append(out, e.Event.EventID)
		}
		return out
	}
	if got := len(ids(steps[0])); got != n {
		t.Errorf("%d events, want %d", got, n)
	}
	if got, want := ids(steps[1]), []string{fmt.Sprint("m", n)}; !slices.Equal(got, want) {
		t.Errorf("one more: %d events %q, want %q", len(got), got[:min(len(got), 5)], want)
	}
	if got, want := ids(steps[2]), []string{fmt.Sprint("m", n-2, "#r1")}; !slices.Equal(got, want) {
		t.Errorf("one changed: %d events %q, want %q", len(got), got[:min(len(got), 5)], want)
	}
	if got := steps[3].Result; len(got.Events) > 0 || got.Skip != core.SkipDuplicate {
		t.Errorf("the same: %d events, skipped as %q", len(got.Events), got.Skip)
	}
	var sum normalizerstest.Figures
	for _, e := range normalizerstest.Events(steps) {
		sum.Add(normalizerstest.FiguresOf(e))
	}
	if want := int64(13 * (n + 1)); sum.Total != want {
		t.Errorf("%d tokens, want %d", sum.Total, want)
	}
}

// Growing figures are counted once: the vendor's own figures add up to its last ones, and usage
// to their total.
func TestGrowingFiguresAreCountedOnce(t *testing.T) {
	t.Parallel()
	message := `{"id":"m","timestamp":"2026-03-01T09:00:00Z","type":"gemini","content":"x","tokens":{"input":%d,"output":1,"cached":%d,"thoughts":0,"tool":0,"total":0}}`
	var sum normalizerstest.Figures
	for _, e := range normalizerstest.Events(foldGemini(t, "f.jsonl", geminiHeader, fmt.Sprintf(message, 100, 0), fmt.Sprintf(message, 100, 80), fmt.Sprintf(message, 130, 90))) {
		sum.Add(normalizerstest.FiguresOf(e))
	}
	if want := (normalizerstest.Figures{Input: 130, Output: 1, Cached: 90, Total: 131, UsageInput: 100, CacheRead: 30, UsageOutput: 1}); sum != want {
		t.Errorf("sums\n%+v, want\n%+v", sum, want)
	}
}

// An answer in deltas that is longer than the state may be is emitted whole: in as few events as
// fit, in order, and the state stays within its bounds.
func TestLongAnswerIsEmittedWhole(t *testing.T) {
	t.Parallel()
	for name, part := range map[string]string{
		"plain text":                  "a word, é \U0001F642 ",
		"text that JSON extends most": strings.Repeat("\x01\"\\", 400),
		"one long delta":              strings.Repeat("long ", 30_000),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			quoted, err := json.Marshal(part)
			if err != nil {
				t.Fatal(err)
			}
			delta := `{"type":"message","timestamp":"2026-03-01T09:00:01Z","role":"assistant","content":` + string(quoted) + `,"delta":true}`
			n := 120_000/len(part) + 2
			lines := []string{`{"type":"init","timestamp":"2026-03-01T09:00:00Z","session_id":"s","model":"gemini-3.5-flash"}`}
			lines = append(lines, slices.Repeat([]string{delta}, n)...)
			sessions := make(map[string]*core.Session)
			var text strings.Builder
			emitted := 0
			for _, r := range normalizerstest.Frame(normalizerstest.FileNamed(envelopes.Gemini, "f.jsonl"), []byte(strings.Join(lines, "\n"))) {
				st := normalizerstest.FoldOne(normalizers.Normalize, sessions, r)
				if st.Failed() {
					t.Fatal(st.Err)
				}
				for _, e := range st.Result.Events {
					if e.Event.EventType == envelopes.AssistantMessage {
						text.WriteString(normalizerstest.Value(e.Event.Text))
						emitted++
					}
				}
				if r.Line%50 > 0 {
					continue
				}
				if size := len(sessions["s"].Encode()); size > 128<<10 {
					t.Fatalf("a state of %d bytes", size)
				}
			}
			if text.String() != strings.Repeat(part, n) {
				t.Errorf("%d bytes are emitted, want %d", text.Len(), n*len(part))
			}
			if most := n*len(quoted)/(24<<10) + 2; emitted > most {
				t.Errorf("in %d events, want at most %d", emitted, most)
			}
		})
	}
}

// The project is the one that the vendor states; its folder is known where a field names one with
// that hash.
func TestProjectIsTheOneStated(t *testing.T) {
	t.Parallel()
	const root = "/Users/zawakin/agent-sample"
	header := func(directories string) string {
		return `{"sessionId":"s","projectHash":"` + normalizerstest.Sha256Hex(root) + `","startTime":"2026-03-01T09:00:00Z","directories":` + directories + `}`
	}
	for directories, want := range map[string]string{`["/elsewhere","` + root + `"]`: root, `["/elsewhere"]`: "", `"` + root + `"`: "", `null`: ""} {
		for _, e := range normalizerstest.Events(foldGemini(t, "f.jsonl", header(directories))) {
			if normalizerstest.Value(e.ProjectRoot) != want || e.ProjectHash != normalizerstest.Sha256Hex(root) {
				t.Errorf("%s: %q %s", directories, normalizerstest.Value(e.ProjectRoot), e.ProjectHash)
			}
		}
	}
	for _, e := range normalizerstest.Events(foldGemini(t, "f.jsonl", `[{"role":"user","parts":[{"text":"x"}]}]`)) {
		if e.ProjectRoot != nil || e.ProjectHash != normalizerstest.Sha256Hex("session:f") {
			t.Errorf("no project: %v %s", e.ProjectRoot, e.ProjectHash)
		}
	}
}

// The state of a session stays within 128 KiB whatever its records make it remember, and may
// still be cut anywhere.
func TestSessionStateIsBounded(t *testing.T) {
	t.Parallel()
	long := func(i, n int) string { return fmt.Sprintf("%06d", i) + strings.Repeat(" \"x", n/3) }
	whole, cut := normalizers.NewSession(envelopes.Gemini, "s"), normalizers.NewSession(envelopes.Gemini, "s")
	for i := range 500 {
		var v any
		switch i % 5 {
		case 0:
			v = map[string]any{"sessionId": long(i, 4000), "projectHash": long(i, 4000), "kind": "subagent", "summary": long(i, 300)}
		case 1:
			v = map[string]any{
				"id": long(i, 240), "type": "gemini", "content": "x", "model": long(i, 250), "tokens": map[string]any{"input": i},
				"toolCalls": []any{map[string]any{"id": long(i, 240), "name": long(i, 250), "args": map[string]any{"file_path": long(i, 4000)}}},
			}
		case 2:
			v = map[string]any{"$set": map[string]any{long(i, 250): i}}
		case 3:
			v = map[string]any{"type": "message", "role": "assistant", "delta": true, "content": long(i, 3000)}
		case 4:
			v = map[string]any{"sessionId": "s", "messageId": i, "type": "user", "message": long(i, 3000)}
		}
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		r := core.Record{Source: envelopes.Gemini, Session: "s", Sequence: uint64(i + 1), Stored: normalizerstest.Modified, Data: data}
		a, err := normalizers.Normalize(whole, r)
		if err != nil {
			t.Fatal(err)
		}
		b, err := normalizers.Normalize(cut, r)
		if err != nil || !reflect.DeepEqual(a, b) {
			t.Fatalf("record %d: cut, it emits other events: %v", i, err)
		}
		encoded := cut.Encode()
		if len(encoded) > 128<<10 || !bytes.Equal(encoded, whole.Encode()) {
			t.Fatalf("record %d: a state of %d bytes", i, len(encoded))
		}
		if cut, err = normalizers.DecodeSession(encoded); err != nil {
			t.Fatal(err)
		}
	}
	if whole.Forgotten() == 0 {
		t.Error("nothing was forgotten: the test asks for too little")
	}
}

// TestOracleOfGemini compares with agtrace, the implementation that the spec comes from.
// ORACLE.md of the goldens lists what is trusted and what is corrected.
func TestOracleOfGemini(t *testing.T) {
	t.Parallel()
	data := normalizerstest.GoldenFile(t, "agtrace", "tests", "samples", "gemini_session.json")
	steps := foldGemini(t, "gemini_session.json", string(data))
	got := make(map[string]map[string]any) // by event_id
	var order []string
	var results []envelopes.AgentEventV1
	for _, e := range normalizerstest.Events(steps) {
		b, err := normalizerstest.Encode(e)
		if err != nil {
			t.Fatal(err)
		}
		got[e.EventID] = normalizerstest.Object(t, b)
		if e.EventType == envelopes.ToolResult {
			results = append(results, e)
			if last := order[len(order)-1]; last != normalizerstest.Value(e.ToolCallID) {
				t.Errorf("%s comes after %s, not after its call", e.EventID, last)
			}
			continue
		}
		order = append(order, e.EventID)
	}
	names := make(map[string]any)
	for l := range bytes.Lines(normalizerstest.GoldenFile(t, "agtrace", "oracle", "v1_spec_commit_d476802", "gemini.events.jsonl")) {
		if e := normalizerstest.Object(t, l); e["event_type"] == "tool_call" {
			names[normalizerstest.Member[string](e, "tool_call_id")] = e["tool_name"]
		}
	}
	var want []string
	for l := range bytes.Lines(normalizerstest.GoldenFile(t, "agtrace", "oracle", "v1_final_3956ade", "gemini.events.jsonl")) {
		w := normalizerstest.Object(t, l)
		id := normalizerstest.Member[string](w, "event_id")
		want = append(want, id)
		e := got[id]
		if e == nil {
			t.Errorf("no %s %q", w["event_type"], id)
			continue
		}
		fields := []string{
			"schema_version", "source", "project_hash", "project_root", "session_id", "event_id", "parent_event_id", "event_type", "role",
			"text", "tool_call_id", "channel", "file_path", "file_op", "model",
		}
		switch w["event_type"] {
		case "tool_call":
			if e["tool_name"] != names[id] {
				t.Errorf("%s: tool_name %v, agtrace has %v", id, e["tool_name"], names[id])
			}
		case "user_message", "assistant_message": // D24
			fields = append(fields, "ts")
		}
		if w["event_type"] != "reasoning" && w["event_type"] != "tool_call" {
			fields = append(fields, "tokens_input", "tokens_output", "tokens_total", "tokens_cached", "tokens_thinking", "tokens_tool")
		}
		for _, f := range fields {
			if a, b := normalizerstest.ComparedBy(f, e[f], w), normalizerstest.ComparedBy(f, w[f], w); !reflect.DeepEqual(a, b) {
				t.Errorf("%s: %s of %s: %v, agtrace has %v", id, f, w["event_type"], a, b)
			}
		}
	}
	if !slices.Equal(order, want) {
		t.Errorf("events in the order\n%q, agtrace has\n%q", order, want)
	}
	// D15: the results.
	codes := []*int64{new(int64(0)), nil, new(int64(0)), new(int64(1)), new(int64(0))}
	if len(results) != len(codes) {
		t.Fatalf("D15: %d results", len(results))
	}
	for i, e := range results {
		status := envelopes.StatusSuccess
		if i == 3 {
			status = envelopes.StatusError
		}
		if !reflect.DeepEqual(e.ToolExitCode, codes[i]) || normalizerstest.Value(e.ToolStatus) != status {
			t.Errorf("D15: result %d: exit code %v, status %q", i+1, e.ToolExitCode, normalizerstest.Value(e.ToolStatus))
		}
	}
	// D20: the message on its first event.
	for _, s := range steps {
		seen := make(map[string]bool)
		for _, e := range s.Result.Events {
			if e.Event.Raw == nil {
				continue
			}
			id := normalizerstest.Member[string](normalizerstest.Object(t, e.Event.Raw), "id")
			if seen[id] || !strings.HasPrefix(e.Event.EventID, id) {
				t.Errorf("D20: %s carries the message %s", e.Event.EventID, id)
			}
			seen[id] = true
		}
		if len(seen) != 9 && !s.Record.Origin.End {
			t.Errorf("D20: %d messages are carried", len(seen))
		}
	}
	var sum normalizerstest.Figures
	for _, e := range normalizerstest.Events(steps) {
		sum.Add(normalizerstest.FiguresOf(e))
	}
	if want := (normalizerstest.Figures{Input: 67_273, Output: 300, Cached: 43_377, Thinking: 377, Total: 67_950, UsageInput: 67_273 - 43_377, CacheRead: 43_377, UsageOutput: 300, UsageReasoning: 377}); sum != want {
		t.Errorf("sums\n%+v, want\n%+v", sum, want)
	}
}
