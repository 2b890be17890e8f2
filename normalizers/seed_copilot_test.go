package normalizers_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tributary/envelopes"
	"tributary/normalizers"
)

// copilotRows are the rows of the seed about session metadata that are about Copilot.
// 000-15, and what of 000-16 and 000-17 is about a running session, is in pipeline/ship.
var copilotRows = map[string]func(*testing.T){
	"000-16": parts(map[string]func(*testing.T){"marker": copilotMarkers, "origin": copilotMarkersOfOrigin}),
	"000-17": copilotHeld,
	"000-18": parts(map[string]func(*testing.T){"paragraphs": copilotParagraphs, "origin": copilotParagraphsOfOrigin}),
	"000-19": parts(map[string]func(*testing.T){"log": copilotLog, "origin": copilotLogsOfOrigin}),
	"000-21": copilotModelChange,
}

// parts is a row in several parts: on data of our own, and on that of the seed's project.
func parts(tests map[string]func(*testing.T)) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		for _, name := range slices.Sorted(maps.Keys(tests)) {
			t.Run(name, tests[name])
		}
	}
}

const copilotSession = "550e8400-e29b-41d4-a716-446655440000"

// copilotSteps folds a text as a file of Copilot.
func copilotSteps(text string) []step {
	return fold(normalizers.Normalize, frame(fileNamed(envelopes.Copilot, "stdin"), []byte(text)))
}

// copilotIDs are the standard members of an event's metadata; empty strings for null.
func copilotIDs(t *testing.T, e envelopes.AgentEventV1) (session, model string) {
	t.Helper()
	if e.Metadata == nil {
		return "", ""
	}
	return value(e.Metadata.SessionID), value(e.Metadata.Model)
}

// copilotMarked is the session that a line of plain text names, by its event.
func copilotMarked(t *testing.T, line string) string {
	t.Helper()
	// Something stands before it, so that the file is one of plain text even if it is empty.
	for _, e := range events(copilotSteps("text\n\n" + line)) {
		if e.EventType == envelopes.SystemMessage {
			if value(e.Text) != "" {
				t.Errorf("%q: the line is content: %q", line, value(e.Text))
			}
			session, _ := copilotIDs(t, e)
			return session
		}
	}
	return ""
}

func copilotMarkers(t *testing.T) {
	t.Helper()
	for line, want := range map[string]string{
		"[copilot-session] " + copilotSession + "\n":                  copilotSession,
		"[copilot-session] " + copilotSession:                         copilotSession,
		"[copilot-session] " + copilotSession + " \t\r\n":             copilotSession,
		"[copilot-session] " + strings.ToUpper(copilotSession) + "\n": strings.ToUpper(copilotSession),
		"[copilot-session] " + copilotSession + " and more\n":         "",
		"[copilot-session] not-an-id\n":                               "",
		" [copilot-session] " + copilotSession + "\n":                 "",
		"[copilot-session]\n":                                         "",
		"copilot-session " + copilotSession + "\n":                    "",
	} {
		if got := copilotMarked(t, line); got != want {
			t.Errorf("%q names %q, want %q", line, got, want)
		}
	}
}

func copilotMarkersOfOrigin(t *testing.T) {
	t.Helper()
	var cases []struct {
		Line    string  `json:"line"`
		Session *string `json:"session_id"`
	}
	if err := json.Unmarshal(goldenFile(t, "metadata", "origin", "copilot", "session-lines.json"), &cases); err != nil || len(cases) == 0 {
		t.Fatalf("%v, %d cases", err, len(cases))
	}
	for _, c := range cases {
		if got := copilotMarked(t, c.Line); got != value(c.Session) {
			t.Errorf("%q names %q, want %q", c.Line, got, value(c.Session))
		}
	}
}

// copilotHeld: of the two ways that the row allows, ours is that what comes before the
// session is known waits for it. A framer gives nothing out before, and then all of it
// with its session; without the line the end decides.
func copilotHeld(t *testing.T) {
	t.Helper()
	f := normalizers.NewFramer(fileNamed(envelopes.Copilot, "stdin"))
	write := func(text string) []string {
		_, _ = f.Write([]byte(text)) // never fails by contract
		var got []string
		for _, r := range drain(f) {
			got = append(got, r.Record.Session+" "+string(r.Record.Data))
		}
		return got
	}
	if got := write("one\n\ntwo\n"); got != nil {
		t.Errorf("before the session is known: %q", got)
	}
	want := []string{copilotSession + " one\n", copilotSession + " \n", copilotSession + " two\n", copilotSession + " [copilot-session] " + copilotSession + "\n"}
	if diff := cmp.Diff(want, write("[copilot-session] "+copilotSession+"\n")); diff != "" {
		t.Errorf("once it is known (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{copilotSession + " three\n"}, write("three\n")); diff != "" {
		t.Errorf("after it (-want +got):\n%s", diff)
	}
	for _, st := range copilotSteps("never named\n") {
		if st.record.Session != "stdin" {
			t.Errorf("a text that names no session is of %q", st.record.Session)
		}
	}
}

// checkParagraphs holds the events of a plain text to its paragraphs.
func checkParagraphs(t *testing.T, text, session string, want []string) {
	t.Helper()
	var got []string
	known := false
	for _, e := range events(copilotSteps(text)) {
		if e.SessionID != session {
			t.Errorf("%q is of session %q, want %q", value(e.Text), e.SessionID, session)
		}
		switch {
		case e.EventType == envelopes.SystemMessage:
			known = true
		case e.EventType != envelopes.AssistantMessage:
			t.Errorf("%q is a %s", value(e.Text), e.EventType)
		default:
			got = append(got, value(e.Text))
		}
		if id, _ := copilotIDs(t, e); known != (id == session) {
			t.Errorf("%q: metadata has the session %q, known %t", value(e.Text), id, known)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("paragraphs (-want +got):\n%s", diff)
	}
}

func copilotParagraphs(t *testing.T) {
	t.Helper()
	text := "\n \nfirst\r\n\x1b[1msecond\x1b[0m\x1b[K\n\t\n\n" +
		"[copilot-session] " + copilotSession + "\nthird \x1b]0;title\x07line\n{\n[copilot-session] " + copilotSession + "\n\x1b[2m\x1b[0m\nlast"
	checkParagraphs(t, text, copilotSession, []string{"first\r\nsecond\n", "third line\n{\n", "last"})
}

func copilotParagraphsOfOrigin(t *testing.T) {
	t.Helper()
	text := goldenFile(t, "metadata", "origin", "copilot", "plain-with-session.txt")
	var want struct {
		Paragraphs []string `json:"paragraphs"`
		Session    string   `json:"session_id"`
	}
	if err := json.Unmarshal(goldenFile(t, "metadata", "origin", "copilot", "plain-with-session.expected.json"), &want); err != nil || len(want.Paragraphs) == 0 {
		t.Fatal(err)
	}
	checkParagraphs(t, string(text), want.Session, want.Paragraphs)
}

// copilotGolden is the raw part of one of our own cases.
func copilotGolden(t *testing.T, name string) golden {
	t.Helper()
	all := goldens(t, envelopes.Copilot)
	i := slices.IndexFunc(all, func(g golden) bool { return g.name == name })
	if i < 0 {
		t.Fatalf("no case %s", name)
	}
	return all[i]
}

func copilotLog(t *testing.T) {
	t.Helper()
	g := copilotGolden(t, "turn")
	for _, p := range checkTruth(suiteOf(t, envelopes.Copilot), normalizers.Normalize, g.file(envelopes.Copilot), g.raw, newReport()) {
		t.Error(p)
	}
	results := make(map[string]envelopes.AgentEventV1)
	for _, e := range events(fold(normalizers.Normalize, frame(g.file(envelopes.Copilot), g.raw))) {
		if e.SessionID != "7c1f0a52-3b64-4d7e-9a18-5e2c0b9d4f61" {
			t.Errorf("%s is of session %s", e.EventID, e.SessionID)
		}
		if e.EventType == envelopes.ToolResult {
			results[value(e.ToolCallID)] = e
		}
	}
	for id, want := range map[string]struct {
		status envelopes.ToolStatus
		code   *int64
		fault  string
	}{
		"call_1": {envelopes.StatusError, new(int64(1)), ""},
		"call_2": {envelopes.StatusError, nil, "failure"},
		"call_3": {envelopes.StatusSuccess, new(int64(0)), ""},
	} {
		e := results[id]
		if value(e.ToolStatus) != want.status || (e.ToolExitCode == nil) != (want.code == nil) || value(e.ToolExitCode) != value(want.code) {
			t.Errorf("%s: %s, exit code %d", id, value(e.ToolStatus), value(e.ToolExitCode))
		}
		var fault struct {
			Code string `json:"code"`
		}
		if e.Metadata != nil && e.Metadata.Extensions["error"] != nil {
			if err := json.Unmarshal(e.Metadata.Extensions["error"], &fault); err != nil {
				t.Fatal(err)
			}
		}
		if fault.Code != want.fault {
			t.Errorf("%s: error code %q, want %q", id, fault.Code, want.fault)
		}
	}
}

// copilotLogsOfOrigin: the table of goldens/README.md.
func copilotLogsOfOrigin(t *testing.T) {
	t.Helper()
	s := suiteOf(t, envelopes.Copilot)
	for name, want := range map[string]struct {
		repeats int      // records that are the same again
		results []string // status, exit code and error of each
		failure string   // code of a log event
	}{
		"irrlicht-1-4_session-resume":            {repeats: 20},
		"irrlicht-2-2_auto-executed-tool-call":   {results: []string{"success 0 "}},
		"irrlicht-2-4_self-correction-iteration": {results: []string{"error 1 ", "success 0 "}}, // conflict 7: the row calls the first a success
		"irrlicht-2-12_context-compaction":       {},
		"irrlicht-2-14_turn-aborted-by-error":    {failure: "query"},
		"lantern-049410b4":                       {results: []string{"error null failure", "error null failure"}},
		"lantern-f27af309":                       {results: []string{"success null "}},
	} {
		t.Run(name, func(t *testing.T) {
			data := goldenFile(t, "metadata", "origin", "copilot", "events-jsonl", name+".jsonl")
			file := fileNamed(envelopes.Copilot, name+".jsonl")
			for _, p := range checkTruth(s, normalizers.Normalize, file, data, newReport()) {
				t.Error(p)
			}
			records := frame(file, data)
			checkLaws(t, s, records, true)
			steps := fold(normalizers.Normalize, records)
			seen := make(map[string]bool)
			repeats := 0
			session := ""
			for _, st := range steps {
				if st.record.Origin.End {
					continue
				}
				v := parse(st.record.Data)
				if member[string](v, "type") == "session.start" {
					session = member[string](v, "data", "sessionId")
				}
				if seen[string(st.record.Data)] {
					if repeats++; st.result.Skip != normalizers.SkipDuplicate {
						t.Errorf("line %d, the same again, is skipped as %q", st.line, st.result.Skip)
					}
				}
				seen[string(st.record.Data)] = true
			}
			if repeats != want.repeats {
				t.Errorf("%d records come again, want %d", repeats, want.repeats)
			}
			calls := make(map[string]int)
			var results []string
			failure := ""
			for _, e := range events(steps) {
				if e.SessionID != session {
					t.Errorf("%s is of session %q, want %q", e.EventID, e.SessionID, session)
				}
				fault := ""
				if e.Metadata != nil {
					fault = member[string](parse(e.Metadata.Extensions["error"]), "code")
				}
				switch e.EventType {
				case envelopes.ToolCall:
					calls[value(e.ToolCallID)]++
				case envelopes.ToolResult:
					code := "null"
					if e.ToolExitCode != nil {
						b, err := json.Marshal(*e.ToolExitCode)
						if err != nil {
							t.Fatal(err)
						}
						code = string(b)
					}
					results = append(results, string(value(e.ToolStatus))+" "+code+" "+fault)
					if calls[value(e.ToolCallID)] != 1 {
						t.Errorf("result of %s, which was called %d times", value(e.ToolCallID), calls[value(e.ToolCallID)])
					}
				case envelopes.Log:
					failure = fault
				default:
				}
			}
			if diff := cmp.Diff(want.results, results); diff != "" {
				t.Errorf("results (-want +got):\n%s", diff)
			}
			if failure != want.failure {
				t.Errorf("failure %q, want %q", failure, want.failure)
			}
		})
	}
}

// copilotModelChange: an event has the model of its time, and "auto" is none.
func copilotModelChange(t *testing.T) {
	t.Helper()
	line := func(id, kind, data string) string {
		return `{"type":"` + kind + `","data":` + data + `,"id":"` + id + `","timestamp":"2026-03-01T09:00:00Z","parentId":null}` + "\n"
	}
	text := line("start", "session.start", `{"sessionId":"s","selectedModel":"auto"}`) +
		line("a", "user.message", `{"content":"x"}`) +
		line("auto", "session.model_change", `{"newModel":"auto"}`) +
		line("resolved", "session.auto_mode_resolved", `{"chosenModel":"gpt-5-mini"}`) +
		line("b", "user.message", `{"content":"x"}`) +
		line("sub", "assistant.message", `{"content":"x","model":"gpt-4.1","parentToolCallId":"call"}`) +
		line("c", "user.message", `{"content":"x"}`) +
		line("back", "session.model_change", `{"newModel":"claude-haiku-4.5","previousModel":"auto"}`) +
		line("d", "assistant.message", `{"content":"x"}`) +
		line("auto2", "session.model_change", `{"newModel":"auto"}`) +
		line("e", "assistant.message", `{"content":"x","model":"gpt-5.2"}`) +
		line("f", "user.message", `{"content":"x"}`)
	want := map[string]string{
		"start": "", "a": "", "auto": "", "resolved": "", "b": "gpt-5-mini", "sub": "gpt-5-mini", "c": "gpt-5-mini",
		"back": "gpt-5-mini", "d": "claude-haiku-4.5", "auto2": "claude-haiku-4.5", "e": "gpt-5.2", "f": "gpt-5.2",
	}
	got := make(map[string]string)
	for _, e := range events(copilotSteps(text)) {
		_, got[e.EventID] = copilotIDs(t, e)
		if e.EventID == "sub" && value(e.Model) != "gpt-4.1" || e.EventID == "d" && value(e.Model) != "claude-haiku-4.5" {
			t.Errorf("%s is by %q", e.EventID, value(e.Model))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("models (-want +got):\n%s", diff)
	}
}
