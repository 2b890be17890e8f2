package normalizers_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tributary/envelopes"
	"tributary/normalizers/acp/acptest"
	"tributary/normalizers/normalizerstest"
)

// The records of a stream of server-sent events are its data and nothing else; a file of another
// form is cut into lines.
func TestServerSentEventsAreFramedByTheirData(t *testing.T) {
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
		"two in one event of lines":   {"data: " + a[:9] + "\nid: 1\ndata:" + a[9:] + " " + b + "\n\n", []string{"1 a " + a[:9] + "\n" + a[9:], "3 b " + b, "a end", "b end"}},
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
			records := normalizerstest.Frame(normalizerstest.FileNamed(envelopes.ACP, "file.jsonl"), []byte(c.data))
			var got []string
			for _, r := range records {
				got = append(got, normalizerstest.Summary(r))
			}
			if c.want != nil && fmt.Sprintf("%q", got) != fmt.Sprintf("%q", c.want) {
				t.Errorf("got\n%q, want\n%q", got, c.want)
			}
			normalizerstest.CheckChain(t, records)
			normalizerstest.CheckEventPositions(t, []byte(c.data), records)
			for split := range uint64(20) {
				if err := normalizerstest.FramedOtherwise(records, normalizerstest.FrameSplit(normalizerstest.FileNamed(envelopes.ACP, "file.jsonl"), []byte(c.data), split)); err != nil {
					t.Fatalf("split with %d: %v", split, err)
				}
			}
		})
	}
	// Only a stream of a vendor that may write one, or of an unknown one, is looked into.
	for source, want := range map[envelopes.Source]string{"": a, envelopes.ACP: a, envelopes.ClaudeCode: "data: " + a} {
		if first := normalizerstest.Frame(normalizerstest.FileNamed(source, "f.jsonl"), []byte("data: "+a+"\n"))[0]; string(first.Record.Data) != want {
			t.Errorf("%q: %s", source, first.Record.Data)
		}
	}
}

// The same records as lines and as events are framed alike, however the bytes are split into
// writes and whatever stands between them; damaged ones do not depend on the split.
func TestServerSentEventsHaveTheRecordsOfTheirLines(t *testing.T) {
	t.Parallel()
	s := acptest.Suite
	rapid.Check(t, func(rt *rapid.T) {
		lines := s.Lines(rt, "s1")
		end := rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(rt, "line end")
		var stream []byte
		for _, l := range lines {
			for _, before := range rapid.SliceOfN(rapid.SampledFrom([]string{": ping", "id: 7", "event: message", "retry: 10", ""}), 0, 3).Draw(rt, "before") {
				stream = append(append(stream, before...), end...)
			}
			stream = append(append(append(stream, rapid.SampledFrom([]string{"data:", "data: "}).Draw(rt, "data")...), l...), end...)
			stream = append(stream, rapid.SampledFrom([]string{end, end, end + end}).Draw(rt, "after")...)
		}
		file := normalizerstest.FileNamed(s.Source, "generated.jsonl")
		whole := normalizerstest.Frame(file, stream)
		plain := normalizerstest.Frame(file, bytes.Join(lines, []byte("\n")))
		if len(whole) != len(plain) {
			rt.Fatalf("%d records, as lines %d\n%s", len(whole), len(plain), stream)
		}
		for i := range whole {
			if a, b := whole[i].Record, plain[i].Record; !bytes.Equal(a.Data, b.Data) || a.Session != b.Session || a.Origin.End != b.Origin.End {
				rt.Fatalf("record %d: %q of %q, as a line %q of %q", i+1, a.Data, a.Session, b.Data, b.Session)
			}
		}
		normalizerstest.CheckEventPositions(t, stream, whole)
		if rapid.Bool().Draw(rt, "damaged") {
			stream = bytes.Join(normalizerstest.Damaged(rt, bytes.SplitAfter(stream, []byte("\n"))), nil)
			whole = normalizerstest.Frame(file, stream)
			normalizerstest.CheckChain(t, whole)
		}
		splits := rapid.Uint64().Draw(rt, "splits")
		if err := normalizerstest.FramedOtherwise(whole, normalizerstest.FrameSplit(file, stream, splits)); err != nil {
			rt.Fatalf("split with %d: %v\nthe file\n%s", splits, err, stream)
		}
	})
}
