package copilot_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/copilot/copilottest"
	"tributary/normalizers/normalizerstest"
)

const (
	prompt  = `{"type":"user.message","data":{"content":"fix it"},"id":"u1","timestamp":"2026-03-01T09:00:00Z","parentId":null}`
	answer  = `{"type":"assistant.message","data":{"messageId":"m1","content":"Done."},"id":"a1","timestamp":"2026-03-01T09:00:01Z","parentId":"u1"}`
	foreign = `{"type":"user.message","data":"not of the log"}`
)

// outcomes frames and folds a file of Copilot as a whole and in parts, and returns what each
// record becomes: its events' types and texts, or that it is a dead letter.
func outcomes(t *testing.T, name, data string) []string {
	t.Helper()
	file := normalizerstest.FileNamed(envelopes.Copilot, name)
	whole := normalizerstest.Frame(file, []byte(data))
	for splits := range uint64(8) {
		if err := normalizerstest.FramedOtherwise(whole, normalizerstest.FrameSplit(file, []byte(data), splits)); err != nil {
			t.Errorf("in parts: %v", err)
		}
	}
	normalizerstest.CheckCover(t, []byte(data), whole)
	var out []string
	for _, st := range normalizerstest.Fold(normalizers.Normalize, whole) {
		if st.Failed() {
			out = append(out, fmt.Sprintf("dead letter %q", st.Record.Data))
		}
		for _, e := range st.Result.Events {
			out = append(out, strings.TrimSpace(fmt.Sprintf("%s %q", e.Event.EventType, normalizerstest.Value(e.Event.Text))))
		}
	}
	return out
}

// A line in front of the records of a log that cannot be read is a dead letter, and costs no
// other record.
func TestFirstLineThatCannotBeReadCostsNoRecordOfALog(t *testing.T) {
	t.Parallel()
	records := []string{`user_message "fix it"`, `assistant_message "Done."`}
	many := strings.Repeat("npm warn\n", 31)
	for head, want := range map[string][]string{
		"":                         nil,
		`":"x"},"id":"e0"}` + "\n": {`dead letter "\":\"x\"},\"id\":\"e0\"}"`},
		"words\n\nof two lines\n":  {`dead letter "words"`, `dead letter "of two lines"`},
		"[1,2,\n":                  {`dead letter "[1,2,"`},
		"\xef\xbb\xbfwords\r\n":    {`dead letter "words"`},
		" \n\x00\xff\n":            {`dead letter "\x00\xff"`},
		"42\n":                     {`meta ""`},
		many:                       strings.Split(strings.Repeat(`dead letter "npm warn";`, 30)+`dead letter "npm warn"`, ";"),
		"words" + strings.Repeat(" words", 1<<18) + "\n": {fmt.Sprintf("dead letter %q", "words"+strings.Repeat(" words", 1<<18))},
	} {
		for _, end := range []string{"\n", ""} { // the last record may have no line end
			for _, name := range []string{"events.jsonl", "stdin"} {
				got := outcomes(t, name, head+prompt+"\n"+answer+end)
				if diff := cmp.Diff(append(slices.Clip(want), records...), got); diff != "" {
					t.Errorf("%.40q of %s (-want +got):\n%.2000s", head, name, diff)
				}
			}
		}
	}
}

// What copilot -p prints is plain text to its end, whatever JSON is in it.
func TestPrintedTextThatHoldsJSONStaysText(t *testing.T) {
	t.Parallel()
	marker := "[copilot-session] " + copilottest.Session + "\n"
	for name, text := range map[string]string{
		"JSON that is no record of the log":     "The file:\n" + foreign + "\n{\"a\":1}\n",
		"a record behind the line of a session": marker + "The log:\n" + prompt + "\n",
		"a record that is indented":             "The log:\n  └ " + prompt + "\n    " + prompt + "\n",
		"a record behind many lines":            strings.Repeat("words\n", 32) + prompt + "\n",
		"a record behind eight MiB":             strings.Repeat("w", 8<<20) + "\n" + prompt + "\n",
		"a line without its end":                "words",
		"an array without its end":              "[1]",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, outcome := range outcomes(t, "stdin", text) {
				if !strings.HasPrefix(outcome, "assistant_message ") && outcome != `system_message ""` {
					t.Errorf("%.200s", outcome)
				}
			}
			steps := copilottest.Steps(text)
			if n := len(steps) - 1; n != strings.Count(strings.TrimSuffix(text, "\n"), "\n")+1 {
				t.Errorf("%d records, want one for each line", n)
			}
		})
	}
}

// A file that stays idle before a record of a log has come is plain text from then on.
func TestIdleFileWithoutARecordIsPlainText(t *testing.T) {
	t.Parallel()
	f := normalizers.NewFramer(normalizers.File{Source: envelopes.Copilot, Name: "stdin", Session: copilottest.Session})
	_, _ = f.Write([]byte("words\nmore "))
	if got := normalizerstest.Drain(f); len(got) != 0 {
		t.Fatalf("%d records before it is decided", len(got))
	}
	f.Settle()
	_, _ = f.Write([]byte("words\n" + prompt + "\n"))
	var got []string
	for _, r := range normalizerstest.Drain(f) {
		got = append(got, string(r.Record.Data))
	}
	if diff := cmp.Diff([]string{"words\n", "more words\n", prompt + "\n"}, got); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

// A record of an unknown type between two chunks leaves the message open; one of a known type
// ends it.
func TestUnknownRecordEndsNoMessageInChunks(t *testing.T) {
	t.Parallel()
	chunk := func(n, index int, text string) []byte {
		return record(n, "assistant.message", members{"messageId": "m1", "content": text, "chunkIndex": index, "chunkCount": 2, "toolRequests": []any{}})
	}
	for between, want := range map[string][]string{
		"hologram.of_tomorrow": {"Hello world"},
		"session.of_tomorrow":  {"Hello world"},
		"":                     {"Hello world"},
		"assistant.turn_end":   {"Hello ", "world"},
		"session.idle":         {"Hello ", "world"},
	} {
		var got []string
		for _, e := range eventsOf(t, chunk(1, 0, "Hello "), record(2, between, members{"x": 1}), chunk(3, 1, "world")) {
			if e.EventType == envelopes.AssistantMessage {
				got = append(got, normalizerstest.Value(e.Text))
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", between, diff)
		}
	}
}
