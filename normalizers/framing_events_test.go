package normalizers_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tributary/envelopes"
	"tributary/normalizers"
)

// TestFramingEvents: the records of a stream of server-sent events are its data, and
// nothing else of it; a file that is none is cut into lines as ever.
func TestFramingEvents(t *testing.T) {
	t.Parallel()
	const a, b = `{"run_id":"a","output":[]}`, `{"run_id":"b","output":[]}`
	for name, c := range map[string]struct {
		data string
		want []string
	}{
		"the usual form":              {"data: " + a + "\n\ndata: " + b + "\n\n", []string{"1 a " + a, "3 b " + b, "a end", "b end"}},
		"no space, CRLF":              {"data:" + a + "\r\n\r\ndata:" + b + "\r\n\r\n", []string{"1 a " + a, "3 b " + b, "a end", "b end"}},
		"a byte order mark":           {"\xef\xbb\xbfdata: " + a + "\n\n", []string{"1 a " + a, "a end"}},
		"fields and comments":         {": hello\nretry: 5\n\nevent: x\nid: 1\ndata: " + a + "\n: ping\n\nid\nevent:y\n\ndata: " + b + "\n\n", []string{"6 a " + a, "12 b " + b, "a end", "b end"}},
		"no blank lines":              {"data: " + a + "\ndata: " + b + "\n", []string{"1 a " + a, "2 b " + b, "a end", "b end"}},
		"no end":                      {"data: " + a + "\n\ndata: " + b, []string{"1 a " + a, "3 b " + b, "a end", "b end"}},
		"over several lines":          {"data: {\ndata:  \"run_id\":\"a\",\ndata: \"output\":[]\ndata: }\n\ndata: " + b, []string{"1 a {\n \"run_id\":\"a\",\n\"output\":[]\n}", "6 b " + b, "a end", "b end"}},
		"over several lines, no end":  {"data: {\ndata: \"run_id\":\"a\",\"output\":[]}", []string{"1 a {\n\"run_id\":\"a\",\"output\":[]}", "a end"}},
		"two in one event":            {"data: " + a + b + "\n\n", []string{"1 a " + a, "1 b " + b, "a end", "b end"}},
		"white space around":          {"\n\ndata:   " + a + "  \n\n", []string{"3 a " + a, "a end"}},
		"empty data":                  {"data: " + a + "\n\ndata:\n\ndata\n\n", []string{"1 a " + a, "a end"}},
		"data that is no JSON":        {"data: " + a + "\n\ndata: [DONE]\n\ndata: so long\n\ndata: " + b + "\n\n", []string{"1 a " + a, "3 a [DONE]", "5 a so long", "7 b " + b, "a end", "b end"}},
		"data that is a text":         {"data: " + a + "\n\ndata: \"x\"\n\ndata: 42\n\n", []string{"1 a " + a, `3 a "x"`, "5 a 42", "a end"}},
		"torn, then a record":         {"data: " + a + "\n\ndata: {\"type\":\"mes\ndata: " + b + "\n\n", []string{"1 a " + a, `3 a {"type":"mes`, "4 b " + b, "a end", "b end"}},
		"torn at a blank line":        {"data: " + a + "\n\ndata: {\"type\":\n\ndata: " + b + "\n\n", []string{"1 a " + a, `3 a {"type":`, "5 b " + b, "a end", "b end"}},
		"a line of no field":          {"data: " + a + "\nconnection lost\n" + b + "\n", []string{"1 a " + a, "2 a connection lost", "3 b " + b, "a end", "b end"}},
		"lines":                       {a + "\ndata: " + b + "\n", []string{"1 a " + a, "2 a data: " + b, "a end"}},
		"data that begins no JSON":    {"data: words\ndata: " + a + "\n", []string{"1 file data: words", "2 file data: " + a, "file end"}},
		"fields in front of lines":    {"event: x\n" + a + "\n", []string{"1 a event: x", "2 a " + a, "a end"}},
		"fields alone":                {": x\nid: 1\n\n", []string{"1 file : x", "2 file id: 1", "file end"}},
		"a long preamble is no event": {strings.Repeat(": x\n", 20_000)[:65<<10] + "\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			records := frame(fileNamed(envelopes.ACP, "file.jsonl"), []byte(c.data))
			var got []string
			for _, r := range records {
				got = append(got, summary(r))
			}
			if c.want != nil && fmt.Sprintf("%q", got) != fmt.Sprintf("%q", c.want) {
				t.Errorf("got\n%q, want\n%q", got, c.want)
			}
			checkChain(t, records)
			checkEventPositions(t, []byte(c.data), records)
			for split := range uint64(20) {
				if err := framedOtherwise(records, frameSplit(fileNamed(envelopes.ACP, "file.jsonl"), []byte(c.data), split)); err != nil {
					t.Fatalf("split with %d: %v", split, err)
				}
			}
		})
	}
	// Only a stream of a vendor that may write one, or of an unknown one, is looked into.
	for source, want := range map[envelopes.Source]int{"": 1, envelopes.ACP: 1, envelopes.ClaudeCode: 0} {
		for _, r := range frame(fileNamed(source, "f.jsonl"), []byte("data: "+a+"\n")) {
			if got := int(r.Record.Data[0]); !r.Record.Origin.End && (got == '{') != (want == 1) {
				t.Errorf("%q: %s", source, r.Record.Data)
			}
			break
		}
	}
}

// checkEventPositions: each record begins where it says, on the line that it says, and
// is done up to a place behind it, in front of the next one.
func checkEventPositions(t *testing.T, data []byte, records []normalizers.Framed) {
	t.Helper()
	last := int64(0)
	for i, r := range records {
		if r.Record.Origin.End {
			continue
		}
		at := r.Record.Origin.Position
		first, _, _ := bytes.Cut(r.Record.Data, []byte("\n"))
		if at < last || !bytes.HasPrefix(data[at:], first) {
			t.Errorf("record %d is not at byte %d: %q", i+1, at, first)
		}
		if want := 1 + bytes.Count(data[:at], []byte("\n")); r.Line != want {
			t.Errorf("record %d: line %d, want %d", i+1, r.Line, want)
		}
		if last = r.End; last < at+int64(len(r.Record.Data)) || last > int64(len(data)) {
			t.Errorf("record %d at %d of %d bytes ends at %d", i+1, at, len(r.Record.Data), last)
		}
	}
}

// TestFramingEventsGenerated: the same records as lines and as events, in whatever pieces
// they come, whatever stands between them; damaged ones are cut the same way in any pieces.
func TestFramingEventsGenerated(t *testing.T) {
	t.Parallel()
	s := suiteOf(t, envelopes.ACP)
	rapid.Check(t, func(rt *rapid.T) {
		lines := s.lines(rt, "s1")
		end := rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(rt, "line end")
		var stream []byte
		for _, l := range lines {
			for _, before := range rapid.SliceOfN(rapid.SampledFrom([]string{": ping", "id: 7", "event: message", "retry: 10", ""}), 0, 3).Draw(rt, "before") {
				stream = append(append(stream, before...), end...)
			}
			stream = append(append(append(stream, rapid.SampledFrom([]string{"data:", "data: "}).Draw(rt, "data")...), l...), end...)
			stream = append(stream, rapid.SampledFrom([]string{end, end, end + end}).Draw(rt, "after")...)
		}
		file := fileNamed(s.source, "generated.jsonl")
		whole := frame(file, stream)
		plain := frame(file, bytes.Join(lines, []byte("\n")))
		if len(whole) != len(plain) {
			rt.Fatalf("%d records, as lines %d\n%s", len(whole), len(plain), stream)
		}
		for i := range whole {
			if a, b := whole[i].Record, plain[i].Record; !bytes.Equal(a.Data, b.Data) || a.Session != b.Session || a.Origin.End != b.Origin.End {
				rt.Fatalf("record %d: %q of %q, as a line %q of %q", i+1, a.Data, a.Session, b.Data, b.Session)
			}
		}
		checkEventPositions(t, stream, whole)
		if rapid.Bool().Draw(rt, "damaged") {
			stream = bytes.Join(damaged(rt, bytes.SplitAfter(stream, []byte("\n"))), nil)
			whole = frame(file, stream)
			checkChain(t, whole)
		}
		splits := rapid.Uint64().Draw(rt, "splits")
		if err := framedOtherwise(whole, frameSplit(file, stream, splits)); err != nil {
			rt.Fatalf("split with %d: %v\nthe file\n%s", splits, err, stream)
		}
	})
}
