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
	"tributary/normalizers/copilot/copilottest"
	"tributary/normalizers/core"
	"tributary/normalizers/normalizerstest"
)

// copilotRows are the rows of the seed about session metadata that are about Copilot.
// 000-15, and what of 000-16 and 000-17 is about a running session, is in pipeline/ship.
var copilotRows = map[string]func(*testing.T){
	"000-16 the marker line states the session and is no text":            parts(map[string]func(*testing.T){"marker": copilotMarkers, "origin": copilotMarkersOfOrigin}),
	"000-17 text waits until the session is known":                        copilotPending,
	"000-18 a paragraph becomes one assistant message without escapes":    parts(map[string]func(*testing.T){"paragraphs": copilotParagraphs, "origin": copilotParagraphsOfOrigin}),
	"000-19 a session log yields paired calls with exit codes and errors": parts(map[string]func(*testing.T){"log": copilotLog, "origin": copilotLogsOfOrigin}),
	"000-21 a new model applies to later events only":                     copilotModelChange,
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

// copilotIDs are the standard members of an event's metadata; empty strings for null.
func copilotIDs(t *testing.T, e envelopes.AgentEventV1) (session, model string) {
	t.Helper()
	if e.Metadata == nil {
		return "", ""
	}
	return normalizerstest.Value(e.Metadata.SessionID), normalizerstest.Value(e.Metadata.Model)
}

// copilotMarked is the session that a line of plain text names, by its event.
func copilotMarked(t *testing.T, line string) string {
	t.Helper()
	// Something stands before it, so that the file is one of plain text even if it is empty.
	for _, e := range normalizerstest.Events(copilottest.Steps("text\n\n" + line)) {
		if e.EventType == envelopes.SystemMessage {
			if normalizerstest.Value(e.Text) != "" {
				t.Errorf("%q: the line is content: %q", line, normalizerstest.Value(e.Text))
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
		"[copilot-session] " + copilottest.Session + "\n":                  copilottest.Session,
		"[copilot-session] " + copilottest.Session:                         copilottest.Session,
		"[copilot-session] " + copilottest.Session + " \t\r\n":             copilottest.Session,
		"[copilot-session] " + strings.ToUpper(copilottest.Session) + "\n": strings.ToUpper(copilottest.Session),
		"[copilot-session] " + copilottest.Session + " and more\n":         "",
		"[copilot-session] not-an-id\n":                                    "",
		" [copilot-session] " + copilottest.Session + "\n":                 "",
		"[copilot-session]\n":                                              "",
		"copilot-session " + copilottest.Session + "\n":                    "",
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
	if err := json.Unmarshal(normalizerstest.GoldenFile(t, "metadata", "origin", "copilot", "session-lines.json"), &cases); err != nil || len(cases) == 0 {
		t.Fatalf("%v, %d cases", err, len(cases))
	}
	for _, c := range cases {
		if got := copilotMarked(t, c.Line); got != normalizerstest.Value(c.Session) {
			t.Errorf("%q names %q, want %q", c.Line, got, normalizerstest.Value(c.Session))
		}
	}
}

// copilotPending: of the two ways that the row allows, ours is that what comes before the
// session is known waits for it. A framer gives nothing out before, and then all of it
// with its session; without the line the end decides.
func copilotPending(t *testing.T) {
	t.Helper()
	f := normalizers.NewFramer(normalizerstest.FileNamed(envelopes.Copilot, "stdin"))
	write := func(text string) []string {
		_, _ = f.Write([]byte(text)) // never fails by contract
		var got []string
		for _, r := range normalizerstest.Drain(f) {
			got = append(got, r.Record.Session+" "+string(r.Record.Data))
		}
		return got
	}
	if got := write("one\n\ntwo\n"); got != nil {
		t.Errorf("before the session is known: %q", got)
	}
	want := []string{copilottest.Session + " one\n", copilottest.Session + " \n", copilottest.Session + " two\n", copilottest.Session + " [copilot-session] " + copilottest.Session + "\n"}
	if diff := cmp.Diff(want, write("[copilot-session] "+copilottest.Session+"\n")); diff != "" {
		t.Errorf("once it is known (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{copilottest.Session + " three\n"}, write("three\n")); diff != "" {
		t.Errorf("after it (-want +got):\n%s", diff)
	}
	for _, st := range copilottest.Steps("never named\n") {
		if st.Record.Session != "stdin" {
			t.Errorf("a text that names no session is of %q", st.Record.Session)
		}
	}
}

// checkParagraphs compares the events of a plain text with its paragraphs.
func checkParagraphs(t *testing.T, text, session string, want []string) {
	t.Helper()
	var got []string
	known := false
	for _, e := range normalizerstest.Events(copilottest.Steps(text)) {
		if e.SessionID != session {
			t.Errorf("%q is of session %q, want %q", normalizerstest.Value(e.Text), e.SessionID, session)
		}
		switch {
		case e.EventType == envelopes.SystemMessage:
			known = true
		case e.EventType != envelopes.AssistantMessage:
			t.Errorf("%q is a %s", normalizerstest.Value(e.Text), e.EventType)
		default:
			got = append(got, normalizerstest.Value(e.Text))
		}
		if id, _ := copilotIDs(t, e); known != (id == session) {
			t.Errorf("%q: metadata has the session %q, known %t", normalizerstest.Value(e.Text), id, known)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("paragraphs (-want +got):\n%s", diff)
	}
}

func copilotParagraphs(t *testing.T) {
	t.Helper()
	text := "\n \nfirst\r\n\x1b[1msecond\x1b[0m\x1b[K\n\t\n\n" +
		"[copilot-session] " + copilottest.Session + "\nthird \x1b]0;title\x07line\n{\n[copilot-session] " + copilottest.Session + "\n\x1b[2m\x1b[0m\nlast"
	checkParagraphs(t, text, copilottest.Session, []string{"first\r\nsecond\n", "third line\n{\n", "last"})
}

func copilotParagraphsOfOrigin(t *testing.T) {
	t.Helper()
	text := normalizerstest.GoldenFile(t, "metadata", "origin", "copilot", "plain-with-session.txt")
	var want struct {
		Paragraphs []string `json:"paragraphs"`
		Session    string   `json:"session_id"`
	}
	if err := json.Unmarshal(normalizerstest.GoldenFile(t, "metadata", "origin", "copilot", "plain-with-session.expected.json"), &want); err != nil || len(want.Paragraphs) == 0 {
		t.Fatal(err)
	}
	checkParagraphs(t, string(text), want.Session, want.Paragraphs)
}

func copilotLog(t *testing.T) {
	t.Helper()
	g := copilottest.Golden(t, "turn")
	for _, p := range normalizerstest.CheckTruth(copilottest.Suite, normalizers.Normalize, g.File(envelopes.Copilot), g.Raw, normalizerstest.NewReport()) {
		t.Error(p)
	}
	results := make(map[string]envelopes.AgentEventV1)
	for _, e := range normalizerstest.Events(normalizerstest.Fold(normalizers.Normalize, normalizerstest.Frame(g.File(envelopes.Copilot), g.Raw))) {
		if e.SessionID != "7c1f0a52-3b64-4d7e-9a18-5e2c0b9d4f61" {
			t.Errorf("%s is of session %s", e.EventID, e.SessionID)
		}
		if e.EventType == envelopes.ToolResult {
			results[normalizerstest.Value(e.ToolCallID)] = e
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
		if normalizerstest.Value(e.ToolStatus) != want.status || (e.ToolExitCode == nil) != (want.code == nil) || normalizerstest.Value(e.ToolExitCode) != normalizerstest.Value(want.code) {
			t.Errorf("%s: %s, exit code %d", id, normalizerstest.Value(e.ToolStatus), normalizerstest.Value(e.ToolExitCode))
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
	s := copilottest.Suite
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
			data := normalizerstest.GoldenFile(t, "metadata", "origin", "copilot", "events-jsonl", name+".jsonl")
			file := normalizerstest.FileNamed(envelopes.Copilot, name+".jsonl")
			for _, p := range normalizerstest.CheckTruth(s, normalizers.Normalize, file, data, normalizerstest.NewReport()) {
				t.Error(p)
			}
			records := normalizerstest.Frame(file, data)
			normalizerstest.CheckLaws(t, s, records, true)
			steps := normalizerstest.Fold(normalizers.Normalize, records)
			seen := make(map[string]bool)
			repeats := 0
			session := ""
			for _, st := range steps {
				if st.Record.Origin.End {
					continue
				}
				v := normalizerstest.Parse(st.Record.Data)
				if normalizerstest.Member[string](v, "type") == "session.start" {
					session = normalizerstest.Member[string](v, "data", "sessionId")
				}
				if seen[string(st.Record.Data)] {
					if repeats++; st.Result.Skip != core.SkipDuplicate {
						t.Errorf("line %d, the same again, is skipped as %q", st.Line, st.Result.Skip)
					}
				}
				seen[string(st.Record.Data)] = true
			}
			if repeats != want.repeats {
				t.Errorf("%d records come again, want %d", repeats, want.repeats)
			}
			calls := make(map[string]int)
			var results []string
			failure := ""
			for _, e := range normalizerstest.Events(steps) {
				if e.SessionID != session {
					t.Errorf("%s is of session %q, want %q", e.EventID, e.SessionID, session)
				}
				fault := ""
				if e.Metadata != nil {
					fault = normalizerstest.Member[string](normalizerstest.Parse(e.Metadata.Extensions["error"]), "code")
				}
				switch e.EventType {
				case envelopes.ToolCall:
					calls[normalizerstest.Value(e.ToolCallID)]++
				case envelopes.ToolResult:
					code := "null"
					if e.ToolExitCode != nil {
						b, err := json.Marshal(*e.ToolExitCode)
						if err != nil {
							t.Fatal(err)
						}
						code = string(b)
					}
					results = append(results, string(normalizerstest.Value(e.ToolStatus))+" "+code+" "+fault)
					if calls[normalizerstest.Value(e.ToolCallID)] != 1 {
						t.Errorf("result of %s, which was called %d times", normalizerstest.Value(e.ToolCallID), calls[normalizerstest.Value(e.ToolCallID)])
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
	for _, e := range normalizerstest.Events(copilottest.Steps(text)) {
		_, got[e.EventID] = copilotIDs(t, e)
		if e.EventID == "sub" && normalizerstest.Value(e.Model) != "gpt-4.1" || e.EventID == "d" && normalizerstest.Value(e.Model) != "claude-haiku-4.5" {
			t.Errorf("%s is by %q", e.EventID, normalizerstest.Value(e.Model))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("models (-want +got):\n%s", diff)
	}
}
