package normalizers_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/normalizers/normalizerstest"
)

// The framer loses no byte of a corpus file, detects its vendor, and does not depend on how the
// bytes are split into writes.
func TestCorpusIsFramedWithoutLoss(t *testing.T) {
	t.Parallel()
	for _, s := range suites {
		t.Run("source="+string(s.Source), func(t *testing.T) {
			t.Parallel()
			for _, f := range normalizerstest.Corpus(t, s) {
				t.Run(f.Name, func(t *testing.T) {
					t.Parallel()
					whole := normalizerstest.Frame(normalizerstest.FileNamed("", f.Name), f.Data)
					normalizerstest.CheckCover(t, f.Data, whole)
					normalizerstest.CheckChain(t, whole)
					for _, r := range whole {
						if r.Record.Source != s.Source {
							t.Fatalf("line %d: detected as %q", r.Line, r.Record.Source)
						}
					}
					if err := normalizerstest.FramedOtherwise(whole, normalizerstest.FrameSplit(normalizerstest.FileNamed(s.Source, f.Name), f.Data, uint64(len(f.Data)))); err != nil {
						t.Error(err)
					}
				})
			}
		})
	}
}

// The same for generated and damaged files.
func TestGeneratedLogsAreFramedWithoutLoss(t *testing.T) {
	t.Parallel()
	for _, s := range suites {
		t.Run("source="+string(s.Source), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(rt *rapid.T) {
				lines := normalizerstest.Interleaved(rt, s)
				if rapid.Bool().Draw(rt, "damaged") {
					lines = normalizerstest.Damaged(rt, lines)
				}
				data := bytes.Join(lines, []byte("\n"))
				whole := normalizerstest.Frame(normalizerstest.FileNamed(s.Source, "generated.jsonl"), data)
				normalizerstest.CheckCover(t, data, whole)
				normalizerstest.CheckChain(t, whole)
				splits := rapid.Uint64().Draw(rt, "splits")
				if err := normalizerstest.FramedOtherwise(whole, normalizerstest.FrameSplit(normalizerstest.FileNamed(s.Source, "generated.jsonl"), data, splits)); err != nil {
					rt.Fatalf("split with %d: %v\nthe file\n%s", splits, err, data)
				}
			})
		})
	}
}

func TestLinesAreCutIntoRecords(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		data string
		want []string
	}{
		"nothing":                    {"", nil},
		"only white space":           {" \n\t\r\n\n", nil},
		"one line":                   {`{"sessionId":"a"}` + "\n", []string{`1 a {"sessionId":"a"}`, "a end"}},
		"no line end":                {`{"sessionId":"a"}`, []string{`1 a {"sessionId":"a"}`, "a end"}},
		"CRLF and blank lines":       {"{\"sessionId\":\"a\"}\r\n\r\n  \n{\"sessionId\":\"a\"}\r\n", []string{`1 a {"sessionId":"a"}`, `4 a {"sessionId":"a"}`, "a end"}},
		"a byte order mark":          {"\xef\xbb\xbf{\"sessionId\":\"a\"}\n", []string{`1 a {"sessionId":"a"}`, "a end"}},
		"two on one line":            {`{"sessionId":"a"}{"sessionId":"b"}` + "\n", []string{`1 a {"sessionId":"a"}`, `1 b {"sessionId":"b"}`, "a end", "b end"}},
		"over several lines":         {"{\n \"sessionId\": \"a\"\n}\n{\"sessionId\":\"b\"}\n", []string{"1 a {\n \"sessionId\": \"a\"\n}", `4 b {"sessionId":"b"}`, "a end", "b end"}},
		"garbage between":            {"{\"sessionId\":\"a\"}\n%&/\n{\"sessionId\":\"a\"}\n", []string{`1 a {"sessionId":"a"}`, "2 a %&/", `3 a {"sessionId":"a"}`, "a end"}},
		"torn, then a record":        {"{\"sessionId\":\"a\"}\n{\"sessionId\":\"a\",\"x\":\"to\n{\"sessionId\":\"a\"}\n", []string{`1 a {"sessionId":"a"}`, `2 a {"sessionId":"a","x":"to`, `3 a {"sessionId":"a"}`, "a end"}},
		"torn, a record behind it":   {"{\"sessionId\":\"a\"}\n{\"type\":\"us{\"type\":\"user\",\"uuid\":\"u\",\"sessionId\":\"b\"}\n", []string{`1 a {"sessionId":"a"}`, `2 a {"type":"us`, `2 b {"type":"user","uuid":"u","sessionId":"b"}`, "a end", "b end"}},
		"words behind a record":      {"{\"sessionId\":\"a\"} and more\n", []string{`1 a {"sessionId":"a"}`, "1 a and more", "a end"}},
		"torn at the end":            {"{\"sessionId\":\"a\"}\n{\"sessionId\":\"b", []string{`1 a {"sessionId":"a"}`, `2 a {"sessionId":"b`, "a end"}},
		"the session that follows":   {"{\"type\":\"x\"}\n{\"sessionId\":\"a\"}\n", []string{`1 a {"type":"x"}`, `2 a {"sessionId":"a"}`, "a end"}},
		"the last session":           {"{\"sessionId\":\"a\"}\n{\"sessionId\":\"b\"}\n{\"type\":\"x\"}\n", []string{`1 a {"sessionId":"a"}`, `2 b {"sessionId":"b"}`, `3 b {"type":"x"}`, "a end", "b end"}},
		"the stem":                   {"{\"type\":\"x\"}\n", []string{`1 file {"type":"x"}`, "file end"}},
		"a session that is a number": {"{\"sessionId\":7}\n", []string{`1 file {"sessionId":7}`, "file end"}},
		"an empty session":           {"{\"sessionId\":\"\"}\n", []string{`1 file {"sessionId":""}`, "file end"}},
		"values that are no object":  {"{\"sessionId\":\"a\"}\n42\n\"x\"\n[1]\nnull\n", []string{`1 a {"sessionId":"a"}`, "2 a 42", `3 a "x"`, "4 a [1]", "5 a null", "a end"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			records := normalizerstest.Frame(normalizerstest.FileNamed(envelopes.ClaudeCode, "file.jsonl"), []byte(c.data))
			var got []string
			for _, r := range records {
				got = append(got, normalizerstest.Summary(r))
			}
			if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", c.want) {
				t.Errorf("got\n%q, want\n%q", got, c.want)
			}
			normalizerstest.CheckCover(t, []byte(c.data), records)
			normalizerstest.CheckChain(t, records)
			for split := range uint64(20) {
				if err := normalizerstest.FramedOtherwise(records, normalizerstest.FrameSplit(normalizerstest.FileNamed(envelopes.ClaudeCode, "file.jsonl"), []byte(c.data), split)); err != nil {
					t.Fatalf("split with %d: %v", split, err)
				}
			}
		})
	}
}

// A record whose session is known comes at once; any other waits for the next record, for Settle,
// or for Close.
func TestFramerEmitsRecordsOnceTheirSessionIsKnown(t *testing.T) {
	t.Parallel()
	f := normalizers.NewFramer(normalizerstest.FileNamed(envelopes.ClaudeCode, "stem.jsonl"))
	write := func(s string) []string {
		_, _ = f.Write([]byte(s)) // never fails by contract
		var out []string
		for _, r := range normalizerstest.Drain(f) {
			out = append(out, normalizerstest.Summary(r))
		}
		return out
	}
	for i, c := range []struct{ write, want string }{
		{`{"type":"mode"}` + "\n", "[]"},
		{`{"sessionId":"a","times`, "[]"},
		{`tamp":"2026-03-01T09:00:00Z"}` + "\n", `["1 a {\"type\":\"mode\"}" "2 a {\"sessionId\":\"a\",\"timestamp\":\"2026-03-01T09:00:00Z\"}"]`},
		{`{"type":"mode"}` + "\n", `["3 a {\"type\":\"mode\"}"]`},
		{`{"half":`, "[]"},
	} {
		if got := fmt.Sprintf("%q", write(c.write)); got != c.want {
			t.Fatalf("write %d: %s, want %s", i+1, got, c.want)
		}
	}
	f.Settle()
	if got := normalizerstest.Drain(f); len(got) != 0 {
		t.Errorf("settled a line that is not complete: %v", got)
	}
	if got := f.Ends(); len(got) != 1 || got[0].Session != "a" || !got[0].Origin.End {
		t.Errorf("ends: %v", got)
	}
	if got := fmt.Sprintf("%q", write("1}\n")); got != `["4 a {\"half\":1}"]` {
		t.Errorf("after the rest of the line: %s", got)
	}

	f = normalizers.NewFramer(normalizerstest.FileNamed(envelopes.ClaudeCode, "stem.jsonl"))
	_, _ = f.Write([]byte(`{"type":"mode"}` + "\n"))
	if got := normalizerstest.Drain(f); len(got) != 0 {
		t.Fatalf("decided too early: %v", got)
	}
	f.Settle()
	got := normalizerstest.Drain(f)
	if len(got) != 1 || got[0].Record.Session != "stem" || !got[0].Record.Origin.Time.Equal(normalizerstest.Modified) {
		t.Errorf("settled as %+v", got)
	}
}

// The fallback time is the time of the record, else the first that follows, else that of the file
// (README.md, Time).
func TestFramerGivesEveryRecordATime(t *testing.T) {
	t.Parallel()
	data := `{"type":"mode","sessionId":"a"}
{"type":"user","sessionId":"a","timestamp":"2026-03-01T09:00:00Z"}
{"type":"mode","sessionId":"a"}
{"type":"file-history-snapshot","snapshot":{"timestamp":"2026-03-01T08:00:00Z"}}
`
	for i, r := range normalizerstest.Frame(normalizerstest.FileNamed(envelopes.ClaudeCode, "f.jsonl"), []byte(data)) {
		if i == 0 && !r.Record.Origin.Time.Equal(time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)) {
			t.Errorf("record 1: %v, want the first time that follows", r.Record.Origin.Time)
		}
		if i == 3 && !r.Record.Origin.Time.Equal(time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)) {
			t.Errorf("record 4: %v, want its own", r.Record.Origin.Time)
		}
	}
	none := normalizerstest.Frame(normalizerstest.FileNamed(envelopes.ClaudeCode, "f.jsonl"), []byte(`{"type":"mode","sessionId":"a"}`))
	if got := none[0].Record.Origin.Time; !got.Equal(normalizerstest.Modified) {
		t.Errorf("no time in the file: %v, want that of the file", got)
	}
	stdin := normalizerstest.Frame(normalizers.File{Source: envelopes.ClaudeCode, Name: "stdin"}, []byte(`{"type":"mode"}`))
	if got := stdin[0].Record; !got.Origin.Time.Equal(time.Unix(0, 0)) || got.Session != "stdin" {
		t.Errorf("standard input: %v of session %q", got.Origin.Time, got.Session)
	}
}

// A session that the caller gives, as normalize --session does, is that of every record.
func TestGivenSessionWins(t *testing.T) {
	t.Parallel()
	file := normalizerstest.FileNamed(envelopes.ClaudeCode, "f.jsonl")
	file.Session = "given"
	for _, r := range normalizerstest.Frame(file, []byte("{\"sessionId\":\"a\"}\n{\"sessionId\":\"b\"}\n{}\nbad\n")) {
		if r.Record.Session != "given" {
			t.Errorf("line %d: session %q", r.Line, r.Record.Session)
		}
	}
}

// The identity of a file is its path and its first line: it survives growth and distinguishes
// files.
func TestGrowingFileKeepsItsIdentity(t *testing.T) {
	t.Parallel()
	identity := func(path, data string) string {
		return normalizerstest.Frame(normalizers.File{Source: envelopes.ClaudeCode, Name: "f.jsonl", Path: path, Modified: normalizerstest.Modified}, []byte(data))[0].Record.Origin.File
	}
	first := identity("p/f.jsonl", "{\"sessionId\":\"a\"}\n")
	if first == "" || identity("p/f.jsonl", "{\"sessionId\":\"a\"}\n{\"sessionId\":\"b\"}\n") != first {
		t.Error("a file that has grown is another file")
	}
	if identity("q/f.jsonl", "{\"sessionId\":\"a\"}\n") == first || identity("p/f.jsonl", "{\"sessionId\":\"b\"}\n") == first {
		t.Error("another file is the same file")
	}
}

// The records of a file of unknown form have no source.
func TestRecordsOfAnUnknownVendorHaveNoSource(t *testing.T) {
	t.Parallel()
	f := normalizers.NewFramer(normalizerstest.FileNamed("", "f.jsonl"))
	_, _ = f.Write([]byte("{\"a\":1}\nplain words\n"))
	if f.Source() != "" {
		t.Errorf("detected as %q", f.Source())
	}
	f.Close()
	for _, r := range normalizerstest.Drain(f) {
		if r.Record.Source != "" {
			t.Errorf("line %d: of %q", r.Line, r.Record.Source)
		}
	}
}

// Cursor starts its stream as Claude Code does; only the latter states its version, also where
// the list of tools is missing.
func TestVersionDistinguishesClaudeFromCursor(t *testing.T) {
	t.Parallel()
	for more, want := range map[string]envelopes.Source{`,"claude_code_version":"2.1.220"`: envelopes.ClaudeCode, "": envelopes.Cursor} {
		f := normalizers.NewFramer(normalizerstest.FileNamed("", "f.jsonl"))
		_, _ = f.Write([]byte(`{"type":"system","subtype":"init","session_id":"s","model":"m","permissionMode":"default"` + more + "}\n"))
		if f.Source() != want {
			t.Errorf("%q: detected as %q, want %q", more, f.Source(), want)
		}
	}
}

// A line over the limit is dropped while it comes and reported; the lines around it are whole.
func TestLineOverTheLimitIsDropped(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("writes more than MaxRecordBytes")
	}
	f := normalizers.NewFramer(normalizerstest.FileNamed(envelopes.ClaudeCode, "f.jsonl"))
	record := `{"type":"user","uuid":"u","sessionId":"a","timestamp":"2026-03-01T09:00:00Z"}` + "\n"
	part := []byte(strings.Repeat("x", 1<<20))
	var out []normalizers.Framed
	write := func(b []byte) {
		_, _ = f.Write(b) // never fails by contract
		out = append(out, normalizerstest.Drain(f)...)
	}
	write([]byte(record))
	total := int64(len(record))
	write([]byte(`{"type":"user","x":"`))
	total += 20
	for range core.MaxRecordBytes>>20 + 3 {
		write(part)
		total += int64(len(part))
	}
	write([]byte("\"}\n"))
	total += 3
	write([]byte(record))
	f.Close()
	out = append(out, normalizerstest.Drain(f)...)
	if len(out) != 4 {
		t.Fatalf("%d records", len(out))
	}
	if !errors.Is(out[1].Err, core.ErrTooLarge) || out[1].Record.Data != nil || out[1].Line != 2 || out[1].Record.Session != "a" {
		t.Errorf("the long line: %v, %d bytes, line %d, session %q", out[1].Err, len(out[1].Record.Data), out[1].Line, out[1].Record.Session)
	}
	if string(out[2].Record.Data)+"\n" != record || out[2].Line != 3 || out[2].Record.Origin.Position != total {
		t.Errorf("after the long line: line %d at %d, want at %d: %s", out[2].Line, out[2].Record.Origin.Position, total, normalizerstest.Clip(string(out[2].Record.Data)))
	}
	if _, permanent := core.Reason(out[1].Err); !permanent {
		t.Error("no dead letter")
	}
}
