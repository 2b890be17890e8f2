package normalizers_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
)

// found reads a log, and returns what its records have that is not known: version, kind, name and
// count, in the order in which it was found.
func found(t *testing.T, source envelopes.Source, log string) []string {
	t.Helper()
	sessions := map[string]*core.Session{}
	out := []string{}
	framer := normalizers.NewFramer(normalizers.File{Source: source, Name: "log.jsonl", Path: "log.jsonl"})
	_, _ = framer.Write([]byte(log)) // never fails
	framer.Close()
	n := uint64(0)
	for framed, ok := framer.Next(); ok; framed, ok = framer.Next() {
		r := framed.Record
		n++
		r.Sequence = n
		if framed.Err != nil {
			t.Fatalf("line %d: %v", framed.Line, framed.Err)
		}
		s := sessions[r.Session]
		if s == nil {
			s = normalizers.NewSession(r.Source, r.Session)
			sessions[r.Session] = s
		}
		result, err := normalizers.Normalize(s, r)
		if err != nil {
			t.Fatalf("line %d: %v", framed.Line, err)
		}
		for _, u := range result.Unknown {
			out = append(out, fmt.Sprintf("%s %s %s %d", normalizers.VersionOf(s), u.Kind, u.Name, u.Count))
		}
	}
	return out
}

// Each vendor reports what it does not know of a log, and nothing of the same log without it.
func TestWhatIsNotKnownIsReported(t *testing.T) {
	t.Parallel()
	lines := func(l ...string) string { return strings.Join(l, "\n") + "\n" }
	const (
		claudeRecord  = `{"sessionId":"s","uuid":"u%d","version":"2.0.1","timestamp":"2026-03-09T09:00:00Z",%s}`
		codexRecord   = `{"timestamp":"2026-03-09T09:00:00Z",%s}`
		copilotRecord = `{"id":"e%d","timestamp":"2026-03-09T09:00:00Z","parentId":"e0",%s}`
		geminiHeader  = `{"sessionId":"s","projectHash":"00","startTime":"2026-03-09T09:00:00Z","kind":"main"}`
		cursorInit    = `{"type":"system","subtype":"init","session_id":"s","model":"m","cwd":"/w","apiKeySource":"env","permissionMode":"default"}`
	)
	for _, c := range []struct {
		name       string
		source     envelopes.Source
		known, new string // the same log without and with what is not known
		want       []string
	}{
		{
			"a transcript", envelopes.ClaudeCode,
			lines(
				fmt.Sprintf(claudeRecord, 1, `"type":"assistant","message":{"id":"m1","role":"assistant","content":[{"type":"text","text":"a"},{"type":"thinking","thinking":"b"},{"type":"tool_use","id":"t1","name":"X","input":{}}],"usage":{"input_tokens":1,"output_tokens":2,"service_tier":"standard","cache_creation":{"ephemeral_5m_input_tokens":1},"output_tokens_details":{"thinking_tokens":1}}}`),
				fmt.Sprintf(claudeRecord, 2, `"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"a"},{"type":"image"}]}]},"toolUseResult":{"stdout":"a"}`),
				fmt.Sprintf(claudeRecord, 3, `"type":"attachment","attachment":{"type":"hook_success"}`),
				fmt.Sprintf(claudeRecord, 4, `"type":"system","subtype":"compact_boundary","content":"c"`),
			),
			lines(
				fmt.Sprintf(claudeRecord, 1, `"type":"assistant","message":{"id":"m1","role":"assistant","content":[{"type":"hologram"},{"type":"hologram"},{"type":"text","text":"a"}],"usage":{"input_tokens":1,"output_tokens":2,"qubits":3,"cache_creation":{"ephemeral_1d_input_tokens":1},"output_tokens_details":{"dream_tokens":1}}}`),
				fmt.Sprintf(claudeRecord, 2, `"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"scent"}]}]},"toolUseResult":7`),
				fmt.Sprintf(claudeRecord, 3, `"type":"attachment","attachment":{"type":"moon"}`),
				fmt.Sprintf(claudeRecord, 4, `"type":"system","subtype":"eclipse"`),
				fmt.Sprintf(claudeRecord, 5, `"type":"dream-journal"`),
				fmt.Sprintf(claudeRecord, 6, `"type":"stream_event","event":{"type":"content_block_warp"}`),
			),
			[]string{
				"2.0.1 block_type hologram 2", "2.0.1 usage_field qubits 1", "2.0.1 usage_field ephemeral_1d_input_tokens 1", "2.0.1 usage_field dream_tokens 1",
				"2.0.1 tool_output scent 1", "2.0.1 tool_output toolUseResult/number 1",
				"2.0.1 record_type attachment/moon 1", "2.0.1 record_type system/eclipse 1", "2.0.1 record_type dream-journal 1",
				"2.0.1 record_type stream_event/content_block_warp 1",
			},
		},
		{
			"a run of the SDK", envelopes.ClaudeCode,
			lines(
				`{"type":"system","subtype":"init","session_id":"s","uuid":"u0","tools":[],"model":"m","claude_code_version":"9.9.9"}`,
				`{"type":"result","subtype":"success","session_id":"s","uuid":"u1","num_turns":1,"result":"a","usage":{"input_tokens":1,"output_tokens":2}}`,
			),
			lines(
				`{"type":"system","subtype":"init","session_id":"s","uuid":"u0","tools":[],"model":"m","claude_code_version":"9.9.9"}`,
				`{"type":"result","subtype":"success","session_id":"s","uuid":"u1","num_turns":1,"result":"a","usage":{"input_tokens":1,"qubits":2}}`,
			),
			[]string{"9.9.9 usage_field qubits 1"},
		},
		{
			"a rollout", envelopes.Codex,
			lines(
				fmt.Sprintf(codexRecord, `"type":"session_meta","payload":{"id":"s","cwd":"/w","cli_version":"0.77.0"}`),
				fmt.Sprintf(codexRecord, `"type":"response_item","payload":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a"}]}`),
				fmt.Sprintf(codexRecord, `"type":"response_item","payload":{"type":"function_call","name":"shell","arguments":"{}","call_id":"c1"}`),
				fmt.Sprintf(codexRecord, `"type":"response_item","payload":{"type":"function_call_output","call_id":"c1","output":[{"type":"input_text","text":"a"}]}`),
				fmt.Sprintf(codexRecord, `"type":"event_msg","payload":{"type":"token_count","info":{"total_token_usage":{"input_tokens":1,"output_tokens":1,"total_tokens":2},"model_context_window":9}}`),
			),
			lines(
				fmt.Sprintf(codexRecord, `"type":"session_meta","payload":{"id":"s","cwd":"/w","cli_version":"0.77.0"}`),
				fmt.Sprintf(codexRecord, `"type":"response_item","payload":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a"},{"type":"hologram"}]}`),
				fmt.Sprintf(codexRecord, `"type":"response_item","payload":{"type":"function_call","name":"shell","arguments":"{}","call_id":"c1"}`),
				fmt.Sprintf(codexRecord, `"type":"response_item","payload":{"type":"function_call_output","call_id":"c1","output":[{"type":"scent"}]}`),
				fmt.Sprintf(codexRecord, `"type":"response_item","payload":{"type":"function_call_output","call_id":"c2","output":7}`),
				fmt.Sprintf(codexRecord, `"type":"event_msg","payload":{"type":"token_count","info":{"total_token_usage":{"input_tokens":1,"output_tokens":1,"qubit_tokens":2},"horizon":9}}`),
				fmt.Sprintf(codexRecord, `"type":"event_msg","payload":{"type":"eclipse"}`),
				fmt.Sprintf(codexRecord, `"type":"event_msg","payload":{"type":"item_completed","item":{"type":"Dream"}}`),
				fmt.Sprintf(codexRecord, `"type":"response_item","payload":{"type":"dream"}`),
				fmt.Sprintf(codexRecord, `"type":"dream_state","payload":{}`),
			),
			[]string{
				"0.77.0 block_type hologram 1", "0.77.0 tool_output scent 1", "0.77.0 tool_output number 1",
				"0.77.0 usage_field qubit_tokens 1", "0.77.0 usage_field horizon 1",
				"0.77.0 record_type event_msg/eclipse 1", "0.77.0 record_type item_completed/Dream 1",
				"0.77.0 record_type response_item/dream 1", "0.77.0 record_type dream_state 1",
			},
		},
		{
			"a stream of exec", envelopes.Codex,
			lines(
				`{"type":"thread.started","thread_id":"s"}`,
				`{"type":"item.completed","item":{"id":"item_0","type":"todo_list"}}`,
				`{"type":"turn.completed","usage":{"input_tokens":1,"cached_input_tokens":0,"output_tokens":1}}`,
			),
			lines(
				`{"type":"thread.started","thread_id":"s"}`,
				`{"type":"thread.dreamt"}`,
				`{"type":"item.completed","item":{"id":"item_0","type":"dream"}}`,
				`{"type":"turn.completed","usage":{"input_tokens":1,"output_tokens":1,"qubit_tokens":1}}`,
			),
			[]string{" record_type thread.dreamt 1", " record_type item/dream 1", " usage_field qubit_tokens 1"},
		},
		{
			"a session file", envelopes.Gemini,
			lines(
				geminiHeader,
				`{"id":"m1","timestamp":"2026-03-09T09:00:00Z","type":"gemini","content":[{"text":"a","thoughtSignature":"x"},{"inlineData":{}}],"tokens":{"input":1,"output":1,"total":2},"toolCalls":[{"id":"c1","name":"edit","status":"success","result":[{"functionResponse":{"id":"c1","response":{"output":"a"}}}],"resultDisplay":{"fileDiff":"d","fileName":"f"}}]}`,
				`{"$set":{"directories":["/w"]}}`,
			),
			lines(
				geminiHeader,
				`{"id":"m1","timestamp":"2026-03-09T09:00:00Z","type":"gemini","content":[{"text":"a"},{"hologram":{}}],"tokens":{"input":1,"output":1,"qubits":2},"toolCalls":[{"id":"c1","name":"edit","status":"dreaming","result":[{"functionResponse":{"id":"c1","response":[1]}}],"resultDisplay":{"scent":"d"}},{"id":"c2","name":"edit","resultDisplay":true}]}`,
				`{"$set":{"moon":1}}`,
				`{"id":"m2","timestamp":"2026-03-09T09:00:00Z","type":"eclipse","content":"a"}`,
				`{"dream":1}`,
			),
			[]string{
				" block_type hologram 1", " usage_field qubits 1", " tool_output status/dreaming 1", " tool_output response/array 1",
				" tool_output resultDisplay/scent 1", " tool_output resultDisplay/boolean 1",
				" record_type $set/moon 1", " record_type eclipse 1", " record_type none 1",
			},
		},
		{
			"the figures of a run", envelopes.Gemini,
			lines(`{"type":"init","session_id":"s","timestamp":"2026-03-09T09:00:00Z","model":"m"}`, `{"type":"result","status":"success","stats":{"total_tokens":2,"input_tokens":1,"output_tokens":1,"duration_ms":1,"models":{"m":{"tokens":{"prompt":1,"total":2}}}}}`),
			lines(`{"type":"init","session_id":"s","timestamp":"2026-03-09T09:00:00Z","model":"m"}`, `{"type":"result","status":"success","stats":{"total_tokens":2,"input_tokens":1,"qubits":1,"models":{"m":{"tokens":{"dreams":1}}}}}`),
			[]string{" usage_field qubits 1", " usage_field dreams 1"},
		},
		{
			"a stream and lines of a transcript", envelopes.Cursor,
			lines(
				cursorInit,
				`{"role":"assistant","message":{"content":[{"type":"text","text":"a"},{"type":"tool_use","id":"t","name":"x","input":{}},{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"a"}]}]}}`,
				`{"type":"tool_call","subtype":"completed","call_id":"c1","session_id":"s","tool_call":{"shellToolCall":{"args":{},"result":{"success":{"stdout":"a"}}}}}`,
				`{"type":"result","subtype":"success","session_id":"s","usage":{"inputTokens":1,"outputTokens":2}}`,
			),
			lines(
				cursorInit,
				`{"type":"system","subtype":"eclipse","session_id":"s"}`,
				`{"role":"assistant","message":{"content":[{"type":"hologram"},{"type":"tool_result","tool_use_id":"t","content":[{"type":"scent"}]}]}}`,
				`{"type":"tool_call","subtype":"completed","call_id":"c1","session_id":"s","tool_call":{"shellToolCall":{"args":{},"result":{"scent":{"x":1}}}}}`,
				`{"type":"tool_call","subtype":"dreamt","call_id":"c2","session_id":"s","tool_call":{"shellToolCall":{}}}`,
				`{"type":"dream","session_id":"s"}`,
				`{"type":"result","subtype":"success","session_id":"s","usage":{"inputTokens":1,"qubits":2}}`,
			),
			[]string{
				" record_type system/eclipse 1", " block_type hologram 1", " tool_output scent 1", " tool_output object 1",
				" record_type tool_call/dreamt 1", " record_type dream 1", " usage_field qubits 1",
			},
		},
		{
			"a log", envelopes.Copilot,
			lines(
				fmt.Sprintf(copilotRecord, 0, `"type":"session.start","data":{"sessionId":"s","copilotVersion":"1.0.77"}`),
				fmt.Sprintf(copilotRecord, 1, `"type":"user.message","data":{"content":"a","attachments":[{"type":"file"}]}`),
				fmt.Sprintf(copilotRecord, 2, `"type":"tool.execution_complete","data":{"toolCallId":"c1","success":true,"result":{"content":"a","contents":[{"type":"terminal","exitCode":0}]}}`),
				fmt.Sprintf(copilotRecord, 3, `"type":"assistant.usage","data":{"model":"m","inputTokens":1,"outputTokens":1,"cost":1,"initiator":"user"}`),
				fmt.Sprintf(copilotRecord, 4, `"type":"assistant.turn_end","data":{}`),
				fmt.Sprintf(copilotRecord, 5, `"type":"session.shutdown","data":{"modelMetrics":{"m":{"requests":{},"usage":{"inputTokens":1,"outputTokens":1}}}}`),
			),
			lines(
				fmt.Sprintf(copilotRecord, 0, `"type":"session.start","data":{"sessionId":"s","copilotVersion":"1.0.77"}`),
				fmt.Sprintf(copilotRecord, 1, `"type":"user.message","data":{"content":"a","attachments":[{"type":"hologram"}]}`),
				fmt.Sprintf(copilotRecord, 2, `"type":"tool.execution_complete","data":{"toolCallId":"c1","success":true,"result":{"content":"a","contents":[{"type":"scent"}]}}`),
				fmt.Sprintf(copilotRecord, 3, `"type":"tool.execution_complete","data":{"toolCallId":"c2","success":true,"result":7}`),
				fmt.Sprintf(copilotRecord, 4, `"type":"assistant.usage","data":{"model":"m","inputTokens":1,"outputTokens":1,"qubits":1}`),
				fmt.Sprintf(copilotRecord, 5, `"type":"session.eclipse","data":{}`),
				fmt.Sprintf(copilotRecord, 6, `"type":"session.shutdown","data":{"modelMetrics":{"m":{"dreams":1,"usage":{"inputTokens":1,"dreamTokens":1}}}}`),
			),
			[]string{
				"1.0.77 block_type hologram 1", "1.0.77 tool_output scent 1", "1.0.77 tool_output number 1", "1.0.77 usage_field qubits 1",
				"1.0.77 record_type session.eclipse 1", "1.0.77 usage_field dreamTokens 1", "1.0.77 usage_field dreams 1",
			},
		},
		{
			"a document of older versions", envelopes.Copilot,
			`{"sessionId":"s","startTime":"2026-03-09T09:00:00Z","timeline":[{"type":"info","id":"1","text":"a"}]}`,
			`{"sessionId":"s","startTime":"2026-03-09T09:00:00Z","timeline":[{"type":"dream","id":"1","text":"a"}]}`,
			[]string{" record_type timeline/dream 1"},
		},
		{
			"a stream of a run", envelopes.ACP,
			lines(
				`{"type":"run.created","run":{"run_id":"r","agent_name":"a","session_id":"s","status":"created"}}`,
				`{"type":"message.completed","message":{"role":"agent","parts":[{"content":"a","content_type":"text/plain"}]}}`,
				`{"type":"generic","generic":{}}`,
			),
			lines(
				`{"type":"run.created","run":{"run_id":"r","agent_name":"a","session_id":"s","status":"created"}}`,
				`{"type":"message.completed","message":{"role":"agent","parts":[{"content":"a","content_type":"text/plain","hologram":1}]}}`,
				`{"type":"message.dreamt"}`,
			),
			[]string{" block_type part/hologram 1", " record_type message.dreamt 1"},
		},
		{
			"events of a server", envelopes.OpenCode,
			lines(
				`{"type":"session.updated","properties":{"info":{"id":"ses_1","version":"1.2.3","directory":"/w","time":{"created":1773046800000}}}}`,
				`{"type":"message.part.updated","properties":{"part":{"id":"p1","messageID":"m1","sessionID":"ses_1","type":"tool","tool":"bash","state":{"status":"completed","input":{},"output":"a"}}}}`,
				`{"type":"message.part.updated","properties":{"part":{"id":"p2","messageID":"m1","sessionID":"ses_1","type":"step-finish","tokens":{"input":1,"output":1,"reasoning":0,"cache":{"read":0,"write":0}}}}}`,
				`{"type":"session.status","properties":{"sessionID":"ses_1","status":{"type":"busy"}}}`,
			),
			lines(
				`{"type":"session.updated","properties":{"info":{"id":"ses_1","version":"1.2.3","directory":"/w","time":{"created":1773046800000}}}}`,
				`{"type":"message.part.updated","properties":{"part":{"id":"p1","messageID":"m1","sessionID":"ses_1","type":"tool","tool":"bash","state":{"status":"dreaming","input":{},"output":[1]}}}}`,
				`{"type":"message.part.updated","properties":{"part":{"id":"p2","messageID":"m1","sessionID":"ses_1","type":"step-finish","tokens":{"input":1,"output":1,"reasoning":0,"qubits":1,"cache":{"read":0,"dreams":0}}}}}`,
				`{"type":"message.part.updated","properties":{"part":{"id":"p3","messageID":"m1","sessionID":"ses_1","type":"hologram"}}}`,
				`{"type":"session.status","properties":{"sessionID":"ses_1","status":{"type":"dreaming"}}}`,
				`{"type":"session.eclipse","properties":{"sessionID":"ses_1"}}`,
			),
			[]string{
				"1.2.3 tool_output status/dreaming 1", "1.2.3 tool_output array 1", "1.2.3 usage_field qubits 1", "1.2.3 usage_field dreams 1",
				"1.2.3 block_type hologram 1", "1.2.3 record_type session.status/dreaming 1", "1.2.3 record_type session.eclipse 1",
			},
		},
	} {
		t.Run(string(c.source)+"/"+c.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff([]string{}, found(t, c.source, c.known)); diff != "" {
				t.Errorf("of the known log: %s", diff)
			}
			if diff := cmp.Diff(c.want, found(t, c.source, c.new)); diff != "" {
				t.Errorf("of the new log: %s", diff)
			}
		})
	}
}

// The samples of a vendor have nothing that it does not know.
func TestSamplesAreKnown(t *testing.T) {
	t.Parallel()
	for _, v := range normalizers.Vendors() {
		files := 0
		err := fs.WalkDir(v.Samples(), ".", func(name string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			files++
			data, err := fs.ReadFile(v.Samples(), name)
			if u := found(t, v.Source, string(data)); len(u) > 0 {
				t.Errorf("%s has %q", name, u)
			}
			return err
		})
		if err != nil || files == 0 {
			t.Errorf("%s has %d samples: %v", v.Source, files, err)
		}
	}
}

// The page of a vendor names the version that its row has, and the version has the form of one.
func TestPagesNameTheVersionThatWasChecked(t *testing.T) {
	t.Parallel()
	line := regexp.MustCompile(`Last checked with version (\S*[0-9a-z])`)
	for _, s := range suites {
		v := normalizers.VendorOf(s.Source)
		page, err := os.ReadFile(filepath.Join(filepath.Dir(s.TestData()), "README.md"))
		if err != nil {
			t.Fatal(err)
		}
		stated := line.FindAllStringSubmatch(strings.Join(strings.Fields(string(page)), " "), -1)
		if len(stated) != 1 || stated[0][1] != v.Checked {
			t.Errorf("the page of %s states %q, its row %q", v.Name, stated, v.Checked)
		}
		if !v.IsNewer(v.Checked+".1") || v.IsNewer(v.Checked) || v.IsNewer("0.0.1") {
			t.Errorf("%s: %q is no version to compare others with", v.Name, v.Checked)
		}
	}
}

// A log can state any number of types, of any length and form: each record reports a few names,
// and only those that are identifiers.
func TestNamesOfUnknownTypesAreBounded(t *testing.T) {
	t.Parallel()
	var blocks []string
	for i := range 100_000 {
		blocks = append(blocks, fmt.Sprintf(`{"type":"block%d"}`, i))
	}
	s := normalizers.NewSession(envelopes.ClaudeCode, "s")
	r := core.Record{Source: envelopes.ClaudeCode, Session: "s", Sequence: 1, Data: []byte(
		`{"type":"assistant","sessionId":"s","uuid":"u","message":{"role":"assistant","content":[` + strings.Join(blocks, ",") + `],"usage":{"a":1}}}`)}
	result, err := normalizers.Normalize(s, r)
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, u := range result.Unknown {
		total += u.Count
	}
	if len(result.Unknown) > 20 || total != 100_001 {
		t.Errorf("%d names count %d", len(result.Unknown), total)
	}
	for name, want := range map[string]string{
		"session.eclipse": "session.eclipse", "": "none", strings.Repeat("x", 64): strings.Repeat("x", 64),
		strings.Repeat("x", 65): "other", "the password is x": "other", "tür": "other", "a\\u0000b": "other", "a\\nb": "other",
	} {
		log := `{"type":"x","sessionId":"s","uuid":"u1","version":"1.2.3"}` + "\n" + `{"sessionId":"s","uuid":"u2","type":"` + name + `"}` + "\n"
		if got := found(t, envelopes.ClaudeCode, log); !slices.Equal(got, []string{"1.2.3 record_type x 1", "1.2.3 record_type " + want + " 1"}) {
			t.Errorf("%q is reported as %q", name, got)
		}
	}
}

// The labels of counts are bounded over all logs: what is beyond the bounds counts as other.
func TestLabelsOfDriftAreBounded(t *testing.T) {
	t.Parallel()
	var labels normalizers.DriftLabels
	seen := map[normalizers.Drift]int{}
	kinds := []core.UnknownKind{core.UnknownRecord, core.UnknownBlock, core.UnknownOutput, core.UnknownUsage}
	const n = 100_000
	for i := range n {
		seen[labels.Of(envelopes.Codex, fmt.Sprintf("1.%d.0", i%1000), kinds[i%len(kinds)], fmt.Sprintf("type%d", i))]++
	}
	total := 0
	names, versions := map[string]bool{}, map[string]bool{}
	for d, count := range seen {
		total += count
		names[d.Name], versions[d.Version] = true, true
	}
	if len(seen) > 256+len(kinds) || len(names) > 4*32+1 || len(versions) > 32+1 || total != n {
		t.Errorf("%d labels, %d names, %d versions, count %d", len(seen), len(names), len(versions), total)
	}
	if got := labels.Of(envelopes.Codex, "1.0.0", kinds[0], "type0"); got.Name != "type0" || got.Version != "1.0.0" {
		t.Errorf("the first label became %v", got)
	}
	if got := labels.Of(envelopes.Gemini, "1.0.0", kinds[0], "new"); got.Name != "new" {
		t.Errorf("the labels of one source take the room of another: %v", got)
	}
	for _, v := range []string{"", "latest", "1", "1.2.3.4.5", "1.2 and a secret", "1.2.3-" + strings.Repeat("a", 64)} {
		if got := labels.Of(envelopes.Cursor, v, kinds[0], "x"); got.Version != normalizers.UnknownVersion {
			t.Errorf("version %q became %q", v, got.Version)
		}
	}
}

// Versions compare number by number, dates too, and suffixes do not count.
func TestVersionsCompareByTheirNumbers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"2.1.235", "2.1.24", 1},
		{"0.159", "0.159.0", 0},
		{"0.160.0-alpha.3", "0.159.0", 1},
		{"0.159.0-alpha.3", "0.159.0", 0},
		{"2026.01.28-d35ed9c", "2026.1.28", 0},
		{"2026.02.01-d35ed9c", "2026.01.28", 1},
		{"1.99999999999999999999", "1.100000000000000000000", -1},
		{"latest", "1.0", 0},
		{"", "1.0", 0},
	} {
		if got, back := core.CompareVersions(c.a, c.b), core.CompareVersions(c.b, c.a); got != c.want || back != -c.want {
			t.Errorf("%q and %q compare as %d and %d, want %d", c.a, c.b, got, back, c.want)
		}
	}
}

// What is reported does not depend on where a session is cut.
func TestWhatIsReportedSurvivesACut(t *testing.T) {
	t.Parallel()
	start := `{"type":"session.start","data":{"sessionId":"s","copilotVersion":"1.0.102"},"id":"e0","timestamp":"2026-03-09T09:00:00Z","parentId":null}`
	s := normalizers.NewSession(envelopes.Copilot, "s")
	if _, err := normalizers.Normalize(s, core.Record{Source: envelopes.Copilot, Session: "s", Sequence: 1, Data: []byte(start)}); err != nil {
		t.Fatal(err)
	}
	again, err := normalizers.DecodeSession(s.Encode())
	if err != nil {
		t.Fatal(err)
	}
	if got := normalizers.VersionOf(again); got != "1.0.102" {
		t.Errorf("the decoded session states version %q", got)
	}
	if v := normalizers.VendorOf(envelopes.Copilot); !v.IsNewer(normalizers.VersionOf(again)) {
		t.Errorf("1.0.102 is not newer than %s", v.Checked)
	}
}

// A member that no rule reads is reported by its path, wherever it is, and nothing of the same log without it.
// The arguments of tools may have any member.
func TestFieldsThatNoRuleReadsAreReported(t *testing.T) {
	t.Parallel()
	const (
		known = `{"type":"assistant","sessionId":"s","uuid":"u","version":"2.0.1","timestamp":"2026-03-09T09:00:00Z","message":{"id":"m","role":"assistant",` +
			`"content":[{"type":"tool_use","id":"t","name":"X","input":{"file_path":"a"}}],"usage":{"input_tokens":1,"output_tokens":2}}}`
		added = `{"type":"assistant","sessionId":"s","uuid":"u","version":"2.0.1","timestamp":"2026-03-09T09:00:00Z","moon":1,"message":{"id":"m","role":"assistant","tide":{"height":1},` +
			`"content":[{"type":"tool_use","id":"t","name":"X","input":{"file_path":"a","sand":1},"wave":1},{"type":"text","text":"a","wave":1}],"usage":{"input_tokens":1,"output_tokens":2,"qubits":3}}}`
	)
	for log, want := range map[string][]core.Unknown{
		known: nil,
		added: {
			{Kind: core.UnknownUsage, Name: "qubits", Count: 1},
			{Kind: core.UnknownField, Name: "message.content[].wave", Count: 2},
			{Kind: core.UnknownField, Name: "message.tide", Count: 1},
			{Kind: core.UnknownField, Name: "moon", Count: 1},
		},
	} {
		s := normalizers.NewSession(envelopes.ClaudeCode, "s")
		result, err := normalizers.NormalizeWatched(s, core.Record{Source: envelopes.ClaudeCode, Session: "s", Sequence: 1, Data: []byte(log)})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, result.Unknown); diff != "" {
			t.Errorf("of %s: %s", log, diff)
		}
	}
}
