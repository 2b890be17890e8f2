package copilot_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/copilot/copilottest"
	"tributary/normalizers/core"
	"tributary/normalizers/normalizerstest"
)

// In a log of JSON an unreadable record changes nothing, as for every other vendor; the suite
// itself includes plain text too, in which no line is bad.
func TestBadRecordOfALogChangesNothing(t *testing.T) {
	t.Parallel()
	s := copilottest.Suite
	s.Bad = normalizerstest.Malformed
	for _, g := range normalizerstest.Goldens(t, s) {
		if g.Name == "text" {
			continue
		}
		if err := normalizerstest.LawBadRecord(normalizerstest.Folded(s, normalizers.Normalize, normalizerstest.Frame(g.File(s.Source), g.Raw))); err != nil {
			t.Errorf("%s: %v", g.Name, err)
		}
	}
	// Words between two records are no text of Copilot.
	log := `{"type":"user.message","data":{"content":"a"},"id":"a","timestamp":"2026-03-01T09:00:00Z","parentId":null}`
	for _, st := range copilottest.Steps(log + "\nnot json\n" + log) {
		if plain := string(st.Record.Data) == "not json"; plain != st.Failed() {
			t.Errorf("%q: %v", st.Record.Data, st.Err)
		}
	}
}

// The first byte that is not white space decides whether a file is plain text. White space
// belongs to a text, in which it ends a paragraph, and to no log.
func TestFirstByteDecidesTheForm(t *testing.T) {
	t.Parallel()
	for data, want := range map[string][]string{
		"":                        nil,
		" \n\n\t":                 nil,
		"\n \n{\"a\":1}\n\n{}":    {"{\"a\":1}", "{}"},
		"\xef\xbb\xbf{\"a\":1}":   {"{\"a\":1}"},
		"\n \nwords\n\n{\"a\":1}": {"\n", " \n", "words\n", "\n", "{\"a\":1}"},
		"\xef\xbb\xbfwords":       {"\xef\xbb\xbfwords"},
		"[1]\r\n\r\n2":            {"[1]\r\n", "\r\n", "2"},
		"42":                      {"42"},
	} {
		file := normalizerstest.FileNamed(envelopes.Copilot, "stdin")
		whole := normalizerstest.Frame(file, []byte(data))
		var got []string
		for _, r := range whole {
			if !r.Record.Origin.End {
				got = append(got, string(r.Record.Data))
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", data, diff)
		}
		for splits := range uint64(5) {
			if err := normalizerstest.FramedOtherwise(whole, normalizerstest.FrameSplit(file, []byte(data), splits)); err != nil {
				t.Errorf("%q in parts: %v", data, err)
			}
		}
		for _, st := range normalizerstest.Fold(normalizers.Normalize, whole) {
			if st.Failed() {
				t.Errorf("%q: %v", st.Record.Data, st.Err)
			}
		}
	}
}

// A log that states no session belongs to the one that its folder is named after, where all logs
// have one name.
func TestFolderNamesTheSessionOfALog(t *testing.T) {
	t.Parallel()
	const log = `{"type":"user.message","data":{"content":"a"},"id":"a","timestamp":"2026-03-01T09:00:00Z","parentId":null}`
	for _, c := range []struct {
		file normalizers.File
		want string
	}{
		{normalizers.File{Name: "events.jsonl", Folder: copilottest.Session}, copilottest.Session},
		{normalizers.File{Name: "events.jsonl"}, "events"},
		{normalizers.File{Name: copilottest.Session + ".jsonl", Folder: "session-state"}, copilottest.Session},
		{normalizers.File{Name: "events.jsonl", Folder: "f", Session: "given"}, "given"},
	} {
		c.file.Source = envelopes.Copilot
		if got := normalizerstest.Frame(c.file, []byte(log))[0].Record.Session; got != c.want {
			t.Errorf("%+v is of %q, want %q", c.file, got, c.want)
		}
	}
	other := normalizers.File{Source: envelopes.ClaudeCode, Name: "events.jsonl", Folder: "f"}
	if got := normalizerstest.Frame(other, []byte(`{"type":"mode"}`))[0].Record.Session; got != "events" {
		t.Errorf("a file of another vendor is of %q", got)
	}
}

// A paragraph that is too long for the state is emitted in chunks, none of it is lost, and the
// state stays small.
func TestLongParagraphIsEmittedInChunks(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, "%d \"quoted\" é\t%s\n", i, strings.Repeat("x", i%97))
	}
	text.WriteString(strings.Repeat("one long line ", 20_000) + "\n")
	text.WriteString("and its end\n")
	records := normalizerstest.Frame(normalizerstest.FileNamed(envelopes.Copilot, "stdin"), []byte(text.String()))
	normalizerstest.CheckLaws(t, copilottest.Suite, records, true)
	var got strings.Builder
	events := normalizerstest.Events(normalizerstest.Fold(normalizers.Normalize, records))
	if len(events) < 4 {
		t.Errorf("only %d events: the paragraph is too short for the test", len(events))
	}
	for _, e := range events {
		if e.EventType != envelopes.AssistantMessage || e.TextTruncated {
			t.Errorf("%s, truncated %t", e.EventType, e.TextTruncated)
		}
		got.WriteString(normalizerstest.Value(e.Text))
	}
	if got.String() != text.String() {
		t.Errorf("%d bytes emitted of %d", got.Len(), text.Len())
	}
}

// Any printed text keeps the laws, is no dead letter, and is emitted without white space and
// escapes.
func TestAnyTextKeepsTheLaws(t *testing.T) {
	t.Parallel()
	s := copilottest.Suite
	rapid.Check(t, func(rt *rapid.T) {
		var text strings.Builder
		text.WriteString("begin")
		for range rapid.IntRange(0, 30).Draw(rt, "parts") {
			text.WriteString(rapid.SampledFrom([]string{
				"\n", "\n", "\n\n", "\r\n", " ", "words", "\x1b[1mbold\x1b[0m", "{", `{"type":"session.start","data":{"sessionId":"x"}}`, "}", "[1]", "\xff",
				"\n[copilot-session] " + copilottest.Session + "\n", "[copilot-session] x\n", "é", rapid.StringMatching(`[ -~]{0,12}`).Draw(rt, "free"),
			}).Draw(rt, "part"))
		}
		records := normalizerstest.Frame(normalizerstest.FileNamed(s.Source, "stdin"), []byte(text.String()))
		normalizerstest.CheckRapid(rt, s, records, true)
		var got strings.Builder
		for _, st := range normalizerstest.Fold(normalizers.Normalize, records) {
			if st.Failed() {
				rt.Fatalf("%q: %v", st.Record.Data, st.Err)
			}
			for _, e := range st.Result.Events {
				got.WriteString(normalizerstest.Value(e.Event.Text))
			}
		}
		var want strings.Builder
		for l := range strings.Lines(text.String()) {
			if !copilottest.MarkerLine.MatchString(l) {
				want.WriteString(copilottest.Colors.ReplaceAllString(strings.ToValidUTF8(l, "\ufffd"), ""))
			}
		}
		squeeze := func(s string) string { return strings.Join(strings.Fields(s), " ") }
		if squeeze(got.String()) != squeeze(want.String()) || !utf8.ValidString(got.String()) {
			rt.Fatalf("emitted %q\nof %q", got.String(), text.String())
		}
	})
}

// The plain text and the log of one session do not disturb each other.
func TestTextAndLogOfOneSessionAreIndependent(t *testing.T) {
	t.Parallel()
	text := normalizerstest.Frame(normalizerstest.FileNamed(envelopes.Copilot, "stdin"), []byte("[copilot-session] "+copilottest.Session+"\none\n{}\ntwo\n\n{\"a\":1}"))
	g := copilottest.Golden(t, "turn")
	file := g.File(envelopes.Copilot)
	file.Session = copilottest.Session
	log := normalizerstest.Frame(file, g.Raw)
	rapid.Check(t, func(rt *rapid.T) {
		together := normalizerstest.Mixed(rt, [][]normalizers.Framed{text[:len(text)-1], log[:len(log)-1]})
		together = append(together, text[len(text)-1])
		var got []string
		for _, e := range normalizerstest.Events(normalizerstest.Fold(normalizers.Normalize, together)) {
			if e.EventType == envelopes.AssistantMessage {
				got = append(got, normalizerstest.Value(e.Text))
			}
		}
		want := map[string]int{"one\n{}\ntwo\n": 1, "{\"a\":1}": 1, "Running the tests, and reading the file.": 1, "One test fails.": 1}
		for _, text := range got {
			want[text]--
		}
		for text, n := range want {
			if n != 0 {
				rt.Fatalf("%q is emitted %d times too little: %q", text, n, got)
			}
		}
	})
}

// Each entry of a document with more entries than a session remembers is emitted once, however
// often the document is written.
func TestDocumentBeyondMemoryIsEmittedOnce(t *testing.T) {
	t.Parallel()
	document := func(n int) string {
		var entries []string
		for i := range n {
			entries = append(entries, fmt.Sprintf(`{"id":"t%d","type":"copilot","text":"entry %d"}`, i, i))
		}
		return `{"sessionId":"s","startTime":"2025-10-11T11:40:20.882Z","chatMessages":[],"timeline":[` + strings.Join(entries, ",") + `]}`
	}
	emitted := make(map[string]int)
	sessions := make(map[string]*core.Session)
	for _, n := range []int{4000, 6000, 6001, 6001, 6020} {
		records := normalizerstest.Frame(normalizerstest.FileNamed(envelopes.Copilot, "session_s_1.json"), []byte(document(n)))
		if records[0].Record.Origin.Digest == "" || records[0].Record.Session != "s" {
			t.Fatalf("a document of %q, digest %q", records[0].Record.Session, records[0].Record.Origin.Digest)
		}
		for _, e := range normalizerstest.Events([]normalizerstest.Step{normalizerstest.FoldOne(normalizers.Normalize, sessions, records[0])}) {
			emitted[normalizerstest.Value(e.Text)]++
		}
	}
	if len(emitted) != 6020 {
		t.Errorf("%d entries emitted of 6020", len(emitted))
	}
	for text, n := range emitted {
		if n != 1 {
			t.Errorf("%s: emitted %d times", text, n)
		}
	}
}

// A log that is written again after more API calls than a session remembers adds no tokens.
func TestRepeatedLogBeyondMemoryAddsNothing(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	const messages = 1500
	for i := range messages {
		fmt.Fprintf(&log, `{"type":"assistant.message","data":{"messageId":"m%d","apiCallId":"a%d","content":"x","outputTokens":3},"id":"e%d","timestamp":"2026-03-01T09:00:00Z","parentId":null}`+"\n", i, i, i)
	}
	var sum int64
	for _, e := range normalizerstest.Events(copilottest.Steps(log.String() + log.String())) {
		sum += normalizerstest.Value(e.TokensTotal)
	}
	if sum != 3*messages {
		t.Errorf("%d tokens, want %d", sum, 3*messages)
	}
}

// Every record that the SDK declares is known.
func TestRecordsThatTheSDKDeclaresAreKnown(t *testing.T) {
	t.Parallel()
	for i, st := range copilottest.Steps(string(copilottest.Golden(t, "fusion").Raw)) {
		if len(st.Result.Unknown) > 0 {
			t.Errorf("record %d has %v", i+1, st.Result.Unknown)
		}
	}
}
