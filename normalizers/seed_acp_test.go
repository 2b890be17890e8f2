package normalizers_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/acp/acptest"
	"tributary/normalizers/core"
	"tributary/normalizers/normalizerstest"
)

// acpSeedRows are the rows of the seed acp-message-metadata about events.
var acpSeedRows = map[string]func(*testing.T){
	"004-10 server-sent events and lines yield the same events":        seedACPEvents,
	"004-11 a run stream emits every message once":                     seedACPStream,
	"004-12 agents are assistants with an agent_id":                    seedACPRoles,
	"004-13 call and result share an id":                               seedACPPairs,
	"004-14 the input of a run is the parent of its events":            seedACPInput,
	"004-15 failed, cancelled and awaiting runs are reported":          seedACPEnds,
	"004-16 a completed run yields the events of its output":           seedACPSync,
	"004-21 an invalid part is a dead letter and the stream continues": seedACPInvalid,
}

// acpSteps normalizes a file of ACP.
func acpSteps(data []byte) []normalizerstest.Step {
	return normalizerstest.Fold(normalizers.Normalize, normalizerstest.Frame(normalizerstest.FileNamed(envelopes.ACP, "acp.jsonl"), data))
}

// wantTypes checks how many events of each type there are, and that no record failed.
func wantTypes(t *testing.T, steps []normalizerstest.Step, want map[envelopes.EventType]int) []envelopes.AgentEventV1 {
	t.Helper()
	got := make(map[envelopes.EventType]int)
	for _, s := range steps {
		if s.Failed() {
			t.Errorf("line %d: %v", s.Line, s.Err)
		}
	}
	all := normalizerstest.Events(steps)
	for _, e := range all {
		got[e.EventType]++
	}
	if !maps.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
	return all
}

// only is the one event of a type.
func only(t *testing.T, list []envelopes.AgentEventV1, kind envelopes.EventType) envelopes.AgentEventV1 {
	t.Helper()
	i := slices.IndexFunc(list, func(e envelopes.AgentEventV1) bool { return e.EventType == kind })
	if i < 0 {
		t.Fatalf("no %s", kind)
	}
	return list[i]
}

// acpRun writes the events of a run around the given lines.
func acpRun(lines ...string) []byte {
	const run = `"run_id":"r1","agent_name":"owl","session_id":"s1","created_at":"2026-03-01T09:00:00Z"`
	all := append([]string{
		`{"type":"run.created","run":{` + run + `,"status":"created","output":[]}}`,
		`{"type":"run.in-progress","run":{` + run + `,"status":"in-progress","output":[]}}`,
	}, lines...)
	return []byte(strings.Join(all, "\n"))
}

// asEvents writes records as server-sent events.
func asEvents(data []byte) []byte {
	var out []byte
	for l := range bytes.Lines(data) {
		out = append(append(append(out, "data: "...), bytes.TrimSpace(l)...), "\n\n"...)
	}
	return out
}

// seedACPEvents: a stream of server-sent events has the records, and so the events, of
// the same stream as lines.
func seedACPEvents(t *testing.T) {
	t.Helper()
	same := func(t *testing.T, lines, stream []byte) {
		t.Helper()
		a, b := normalizerstest.Events(acpSteps(lines)), normalizerstest.Events(acpSteps(stream))
		if len(a) == 0 || len(a) != len(b) {
			t.Fatalf("%d events as lines, %d as server-sent events", len(a), len(b))
		}
		for i := range a {
			x, errX := normalizerstest.Encode(a[i])
			y, errY := normalizerstest.Encode(b[i])
			if err := errors.Join(errX, errY); err != nil || !bytes.Equal(x, y) {
				t.Errorf("event %d: %v\n%s\nagainst\n%s", i+1, err, y, x)
			}
		}
	}
	t.Run("own", func(t *testing.T) {
		for _, g := range normalizerstest.Goldens(t, acptest.Suite) {
			if g.Name != "events" && g.Name != "sync" && g.Name != "invalid" { // not one record on each line
				same(t, g.Raw, asEvents(g.Raw))
			}
		}
	})
	t.Run("golden", func(t *testing.T) {
		same(t, normalizerstest.GoldenFile(t, "acp", "origin", "runs", "run-stream.events.jsonl"), normalizerstest.GoldenFile(t, "acp", "origin", "runs", "run-stream.sse"))
	})
}

// seedACPStream: a stream, its output and its messages are emitted once.
func seedACPStream(t *testing.T) {
	t.Helper()
	t.Run("golden", func(t *testing.T) {
		all := wantTypes(t, acpSteps(normalizerstest.GoldenFile(t, "acp", "origin", "runs", "run-stream.events.jsonl")), map[envelopes.EventType]int{
			envelopes.Meta: 4, envelopes.Reasoning: 1, envelopes.ToolCall: 1, envelopes.ToolResult: 1,
			envelopes.AssistantMessage: 1, envelopes.FileSnapshot: 1,
		})
		texts := only(t, all, envelopes.AssistantMessage)
		var metadata []struct {
			Kind       string
			StartIndex *int `json:"start_index"`
			EndIndex   *int `json:"end_index"`
		}
		if err := json.Unmarshal(texts.MessageMetadata, &metadata); err != nil {
			t.Fatal(err)
		}
		cites := 0
		for _, m := range metadata {
			if m.Kind == "citation" {
				cites++
				if got := string([]rune(normalizerstest.Value(texts.Text))[*m.StartIndex:*m.EndIndex]); got != "72°F" {
					t.Errorf("the citation is of %q", got)
				}
			}
		}
		if cites != 1 || len(metadata) != 3 {
			t.Errorf("message_metadata: %s", texts.MessageMetadata)
		}
		if file := only(t, all, envelopes.FileSnapshot); normalizerstest.Value(file.FilePath) != "report.json" || normalizerstest.Value(file.Text) != `{"ok":true}` {
			t.Errorf("artifact: %q of %q", normalizerstest.Value(file.Text), normalizerstest.Value(file.FilePath))
		}
		for _, e := range all {
			if m := e.Metadata; m == nil || normalizerstest.Value(m.SessionID) != "0b6f6a4e-9c1d-4a0e-8a35-222222222222" || string(m.Extensions["agentName"]) != `"researcher"` {
				t.Errorf("%s: metadata %v", e.EventID, m)
			}
		}
	})
	const message = `{"role":"agent/owl","parts":[{"content":"Hu"},{"content":"hu."},{"name":"a.txt","content":"hu"}],"created_at":"2026-03-01T09:00:01Z"}`
	parts := []string{
		`{"type":"message.created","message":{"role":"agent/owl","parts":[]}}`,
		`{"type":"message.part","part":{"content":"Hu"}}`, `{"type":"message.part","part":{"content":"hu."}}`,
		`{"type":"message.part","part":{"name":"a.txt","content":"hu"}}`,
	}
	completed := `{"type":"message.completed","message":` + message + `}`
	output := `{"type":"run.completed","run":{"run_id":"r1","agent_name":"owl","session_id":"s1","status":"completed","output":[` + message + `]}}`
	want := func(metas int) map[envelopes.EventType]int {
		return map[envelopes.EventType]int{envelopes.Meta: metas, envelopes.AssistantMessage: 1, envelopes.FileSnapshot: 1}
	}
	for name, c := range map[string]struct {
		lines []string
		metas int
	}{
		"all three":            {append(slices.Clone(parts), completed, output), 3},
		"parts":                {parts, 2},
		"parts and completed":  {append(slices.Clone(parts), completed), 2},
		"parts and output":     {append(slices.Clone(parts), output), 3},
		"some parts, output":   {append(slices.Clone(parts[:2]), output), 3},
		"completed":            {[]string{completed}, 2},
		"completed and output": {[]string{completed, output}, 3},
		"output":               {[]string{output}, 3},
		"announced":            {append([]string{`{"type":"message.created","message":` + message + `}`}, append(slices.Clone(parts[1:]), completed, output)...), 3},
		"announced alone":      {[]string{`{"type":"message.created","message":` + message + `}`}, 2},
		"completed twice":      {[]string{completed, output, output}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			all := wantTypes(t, acpSteps(acpRun(c.lines...)), want(c.metas))
			if texts := only(t, all, envelopes.AssistantMessage); normalizerstest.Value(texts.Text) != "Huhu." || texts.EventID != "r1:0:0" || normalizerstest.Value(texts.AgentID) != "owl" {
				t.Errorf("%s: %q of %q", texts.EventID, normalizerstest.Value(texts.Text), normalizerstest.Value(texts.AgentID))
			}
			if file := only(t, all, envelopes.FileSnapshot); file.EventID != "r1:0:2" {
				t.Errorf("artifact: %s", file.EventID)
			}
		})
	}
	t.Run("a long message in chunks", func(t *testing.T) {
		var lines []string
		content := strings.Repeat("long ", 2000)
		for range 10 {
			lines = append(lines, `{"type":"message.part","part":{"content":"`+content+`"}}`)
		}
		lines = append(lines, `{"type":"message.completed","message":{"role":"agent/owl","parts":[`+strings.TrimSuffix(strings.Repeat(`{"content":"`+content+`"},`, 10), ",")+`]}}`)
		var texts strings.Builder
		chunks := 0
		for _, e := range normalizerstest.Events(acpSteps(acpRun(lines...))) {
			if e.EventType == envelopes.AssistantMessage {
				chunks++
				texts.WriteString(normalizerstest.Value(e.Text))
			}
		}
		if texts.String() != strings.Repeat(content, 10) || chunks < 2 {
			t.Errorf("%d bytes in %d parts, want %d", texts.Len(), chunks, 10*len(content))
		}
	})
}

// seedACPRoles: the speaker of a message.
func seedACPRoles(t *testing.T) {
	t.Helper()
	for role, want := range map[string]struct {
		kind  envelopes.EventType
		role  envelopes.Role
		agent string
	}{
		"agent/researcher": {envelopes.AssistantMessage, envelopes.RoleAssistant, "researcher"},
		"agent":            {envelopes.AssistantMessage, envelopes.RoleAssistant, "owl"}, // the one that runs
		"user":             {envelopes.UserMessage, envelopes.RoleUser, ""},
	} {
		all := normalizerstest.Events(acpSteps(acpRun(`{"type":"message.completed","message":{"role":"` + role + `","parts":[{"content":"x"}]}}`)))
		if e := only(t, all, want.kind); normalizerstest.Value(e.Role) != want.role || normalizerstest.Value(e.AgentID) != want.agent {
			t.Errorf("%s: role %q, agent %q", role, normalizerstest.Value(e.Role), normalizerstest.Value(e.AgentID))
		}
	}
}

// seedACPPairs: a call and its result have one id, made of run, message and part.
func seedACPPairs(t *testing.T) {
	t.Helper()
	t.Run("own", func(t *testing.T) {
		all := wantTypes(t, acpSteps(acpRun(
			`{"type":"message.completed","message":{"role":"agent","parts":[]}}`,
			`{"type":"message.completed","message":{"role":"agent","parts":[{"metadata":{"kind":"trajectory","tool_name":"a","tool_input":{}}},`+
				`{"content":"x","metadata":{"kind":"trajectory","tool_name":"b","tool_input":{"n":1.50},"tool_output":{"error":"gone"}}}]}}`,
		)), map[envelopes.EventType]int{envelopes.Meta: 2, envelopes.ToolCall: 2, envelopes.ToolResult: 1, envelopes.AssistantMessage: 1})
		result := only(t, all, envelopes.ToolResult)
		if normalizerstest.Value(result.ToolCallID) != "r1:1:1" || normalizerstest.Value(result.ToolName) != "b" || normalizerstest.Value(result.ToolStatus) != envelopes.StatusError || result.ToolExitCode != nil {
			t.Errorf("result of %q %q: %q", normalizerstest.Value(result.ToolCallID), normalizerstest.Value(result.ToolName), normalizerstest.Value(result.ToolStatus))
		}
		call := all[slices.IndexFunc(all, func(e envelopes.AgentEventV1) bool { return normalizerstest.Value(e.ToolName) == "b" })]
		if call.EventType != envelopes.ToolCall || normalizerstest.Value(call.ToolCallID) != "r1:1:1" || normalizerstest.Value(call.Text) != `{"n":1.50}` {
			t.Errorf("call %q: %q", normalizerstest.Value(call.ToolCallID), normalizerstest.Value(call.Text))
		}
	})
	t.Run("golden", func(t *testing.T) {
		all := wantTypes(t, acpSteps(normalizerstest.GoldenFile(t, "acp", "origin", "messages", "seed-trajectory.json")), map[envelopes.EventType]int{
			envelopes.AssistantMessage: 1, envelopes.ToolCall: 1, envelopes.ToolResult: 1,
		})
		if a, b := only(t, all, envelopes.ToolCall), only(t, all, envelopes.ToolResult); a.ToolCallID == nil || normalizerstest.Value(a.ToolCallID) != normalizerstest.Value(b.ToolCallID) {
			t.Errorf("call %v, result %v", a.ToolCallID, b.ToolCallID)
		}
		wantTypes(t, acpSteps(normalizerstest.GoldenFile(t, "acp", "origin", "messages", "trajectory-agent.json")), map[envelopes.EventType]int{
			envelopes.Reasoning: 1, envelopes.ToolCall: 1, envelopes.AssistantMessage: 1,
		})
	})
}

// seedACPInput: what a human asks is not in the stream; the request of the run has it.
func seedACPInput(t *testing.T) {
	t.Helper()
	request := []byte(`{"agent_name":"owl","session_id":"s1","input":[{"role":"user","parts":[{"content":"Who "},{"content":"goes there?"}]}]}` + "\n")
	all := wantTypes(t, acpSteps(append(request, acpRun(`{"type":"message.part","part":{"content":"Hu"}}`)...)), map[envelopes.EventType]int{
		envelopes.UserMessage: 1, envelopes.Meta: 2, envelopes.AssistantMessage: 1,
	})
	asked := all[0]
	if asked.EventType != envelopes.UserMessage || normalizerstest.Value(asked.Text) != "Who goes there?" || asked.Origin != "" || asked.ParentEventID != nil {
		t.Errorf("first event: %s %q", asked.EventType, normalizerstest.Value(asked.Text))
	}
	for _, e := range all[1:] {
		if normalizerstest.Value(e.ParentEventID) != asked.EventID || e.SessionID != asked.SessionID {
			t.Errorf("%s: parent %q, want %q", e.EventID, normalizerstest.Value(e.ParentEventID), asked.EventID)
		}
	}
}

// seedACPEnds: how runs end, and what they wait for.
func seedACPEnds(t *testing.T) {
	t.Helper()
	t.Run("own", func(t *testing.T) {
		all := wantTypes(t, acpSteps(acpRun(
			`{"type":"run.awaiting","run":{"run_id":"r1","agent_name":"owl","session_id":"s1","status":"awaiting","await_request":{"type":"message","message":{"role":"agent","parts":[{"content":"Why?"}]}}}}`,
			`{"run_id":"r1","await_resume":{"type":"message","message":{"role":"user","parts":[{"content":"Because."}]}}}`,
			`{"type":"run.failed","run":{"run_id":"r1","agent_name":"owl","session_id":"s1","status":"failed","error":{"code":"invalid_input","message":"no"}}}`,
		)), map[envelopes.EventType]int{envelopes.Meta: 3, envelopes.AssistantMessage: 1, envelopes.UserMessage: 1, envelopes.Log: 1})
		if asked := only(t, all, envelopes.AssistantMessage); normalizerstest.Value(asked.Text) != "Why?" || normalizerstest.Value(asked.AgentID) != "owl" {
			t.Errorf("asked %q by %q", normalizerstest.Value(asked.Text), normalizerstest.Value(asked.AgentID))
		}
	})
	for name, want := range map[string]struct {
		metas      int
		code, text string
	}{
		"run-await-resume-fail.events.jsonl": {4, `"invalid_input"`, "Wrong question buddy!"},
		"run-cancel.events.jsonl":            {3, "", ""},
		"error-event.jsonl":                  {0, `"server_error"`, "whoops"},
	} {
		t.Run(name, func(t *testing.T) {
			types := map[envelopes.EventType]int{envelopes.Meta: want.metas, envelopes.Log: 1}
			if want.code == "" {
				delete(types, envelopes.Log)
			}
			maps.DeleteFunc(types, func(_ envelopes.EventType, n int) bool { return n == 0 })
			all := wantTypes(t, acpSteps(normalizerstest.GoldenFile(t, "acp", "origin", "runs", name)), types)
			if want.code == "" {
				return
			}
			e := only(t, all, envelopes.Log)
			if normalizerstest.Value(e.Text) != want.text || !strings.Contains(string(e.Metadata.Extensions["error"]), `"code":`+want.code) {
				t.Errorf("%q, %s", normalizerstest.Value(e.Text), e.Metadata.Extensions["error"])
			}
		})
	}
}

// seedACPSync: a run on its own, however it is printed, has what its stream would have.
func seedACPSync(t *testing.T) {
	t.Helper()
	run := `{"run_id":"r1","agent_name":"owl","session_id":"s1","status":"completed","output":[` +
		`{"role":"agent/owl","parts":[{"metadata":{"kind":"trajectory","message":"Hm"}},{"content":"Hu"}]},{"role":"agent/mouse","parts":[{"content":"Eek"}]}]}`
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, []byte(run), "", "  "); err != nil {
		t.Fatal(err)
	}
	for _, data := range [][]byte{[]byte(run), pretty.Bytes(), []byte("[" + run + "]")} {
		all := wantTypes(t, acpSteps(data), map[envelopes.EventType]int{envelopes.Reasoning: 1, envelopes.AssistantMessage: 2, envelopes.Meta: 1})
		if all[0].EventID != "r1:0:0" || all[0].Raw == nil || all[1].EventID != "r1:0:1" || all[2].EventID != "r1:1:0" || all[0].SessionID != "s1" {
			t.Errorf("ids %s, %s, %s of %s", all[0].EventID, all[1].EventID, all[2].EventID, all[0].SessionID)
		}
	}
}

// seedACPInvalid: an invalid part is a dead letter with its reason; the stream goes on.
func seedACPInvalid(t *testing.T) {
	t.Helper()
	around := func(part string) []normalizerstest.Step {
		return acpSteps(acpRun(`{"type":"message.part","part":{"content":"a"}}`, `{"type":"message.part","part":`+part+`}`, `{"type":"message.part","part":{"content":"b"}}`))
	}
	verdict := func(t *testing.T, part string, valid bool) {
		t.Helper()
		steps := around(part)
		bad := steps[3]
		if reason, permanent := core.Reason(bad.Err); valid != (bad.Err == nil) || !valid && (reason != "malformed" || !permanent || !errors.Is(bad.Err, envelopes.ErrInvalidACP)) {
			t.Errorf("%s: %v, want valid: %t", part, bad.Err, valid)
		}
		for _, s := range steps {
			if s.Result.Gap {
				t.Errorf("%s: a gap at line %d", part, s.Line)
			}
		}
		var content string
		for _, e := range normalizerstest.Events(steps) {
			if e.EventType == envelopes.AssistantMessage {
				content = normalizerstest.Value(e.Text)
			}
		}
		if !strings.HasPrefix(content, "a") || !strings.HasSuffix(content, "b") || !valid && content != "ab" {
			t.Errorf("%s: the message is %q", part, content)
		}
	}
	t.Run("own", func(t *testing.T) {
		verdict(t, `{"content":"x","content_url":"https://example.com/"}`, false)
		verdict(t, `{"metadata":{"kind":"trajectory","tool_name":"x","tool_output":"s3cr3t"}}`, false)
		verdict(t, `{"content":"x"}`, true)
		if err := around(`{"content_encoding":"s3cr3t"}`)[3].Err; err == nil || strings.Contains(err.Error(), "s3cr3t") || !strings.Contains(err.Error(), "content_encoding") {
			t.Errorf("error: %v", err)
		}
	})
	t.Run("golden", func(t *testing.T) {
		var cases []struct {
			Part  json.RawMessage
			Valid bool
		}
		if err := json.Unmarshal(normalizerstest.GoldenFile(t, "acp", "origin", "validation", "message-part.json"), &cases); err != nil {
			t.Fatal(err)
		}
		for _, c := range cases {
			var part bytes.Buffer
			if err := json.Compact(&part, c.Part); err != nil {
				t.Fatal(err)
			}
			verdict(t, part.String(), c.Valid)
		}
		if len(cases) != 18 {
			t.Errorf("%d cases, want 18", len(cases))
		}
	})
}

// Generated streams, whole and cut off, are compared with their raw bytes: a message that the
// stream, the output of its run and a history repeat is emitted once.
func TestGeneratedACPStreamsMatchTheirBytes(t *testing.T) {
	t.Parallel()
	s := acptest.Suite
	rapid.Check(t, func(rt *rapid.T) {
		data := bytes.Join(s.Lines(rt, "s1"), []byte("\n"))
		if p := normalizerstest.CheckTruth(s, normalizers.Normalize, normalizerstest.FileNamed(s.Source, "generated.jsonl"), data, normalizerstest.NewReport()); len(p) > 0 {
			rt.Fatalf("%s\nof the file\n%s", strings.Join(p, "\n"), normalizerstest.Clip(string(data)))
		}
	})
}
