package normalizers_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/normalizers/normalizerstest"
)

// Input that is not JSON is a dead letter with a reason; JSON never is, whatever it holds.
func TestOnlyInvalidJSONIsADeadLetter(t *testing.T) {
	t.Parallel()
	user := func(content string) string {
		return `{"type":"user","uuid":"u1","sessionId":"s","timestamp":"2026-03-01T09:00:00Z","message":{"role":"user","content":` + content + `}}`
	}
	assistant := func(usage string) string {
		return `{"type":"assistant","uuid":"u1","sessionId":"s","timestamp":"2026-03-01T09:00:00Z","message":{"id":"m","role":"assistant","model":"x","content":[{"type":"text","text":"hi"}],"usage":` + usage + `}}`
	}
	nested := func(levels int) string {
		return strings.Repeat(`[`, levels) + strings.Repeat(`]`, levels)
	}
	digits := strings.Repeat("9", 1_000_000)
	blocks := func(n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(`{"type":"thinking","thinking":"x"},`, n), ",") + "]"
	}
	for _, c := range []struct {
		name, data string
		reason     string              // of the dead letter; empty when it can be read
		kind       envelopes.EventType // of its first event
	}{
		{"nothing", "", "malformed", ""},
		{"white space", " \n\t", "malformed", ""},
		{"NUL", "\x00", "malformed", ""},
		{"NULs around a record", "\x00\x00" + user(`"x"`), "malformed", ""},
		{"NUL in a string", user("\"a\x00b\""), "malformed", ""},
		{"a control character in a string", user("\"a\nb\""), "malformed", ""},
		{"garbage", "%PDF-1.7\xff\xfe", "malformed", ""},
		{"words", "command not found", "malformed", ""},
		{"torn in a string", `{"type":"user","uuid":"u`, "malformed", ""},
		{"torn in an object", `{"type":"user"`, "malformed", ""},
		{"torn in an escape", `{"type":"user\u00`, "malformed", ""},
		{"a trailing comma", `{"type":"user",}`, "malformed", ""},
		{"a comment", `{"type":"user"} // x`, "malformed", ""},
		{"two values", `{"type":"user"}{"type":"user"}`, "malformed", ""},
		{"single quotes", `{'type':'user'}`, "malformed", ""},
		{"NaN", `{"n":NaN}`, "malformed", ""},
		{"a number with a leading zero", `{"n":01}`, "malformed", ""},
		{"an array torn", `[1,2`, "malformed", ""},
		{"a bad escape", `{"type":"\x41"}`, "malformed", ""},
		{"too deep", `{"type":"user","x":` + nested(core.MaxDepth) + `}`, "too_deep", ""},
		{"10,000 levels", nested(10_000), "too_deep", ""},
		{"10,000 levels of objects", strings.Repeat(`{"a":`, 10_000) + "1" + strings.Repeat("}", 10_000), "too_deep", ""},
		{"as deep as may be", `{"type":"of-tomorrow","x":` + nested(core.MaxDepth-1) + `}`, "", envelopes.Meta},
		{"too many events", strings.Replace(user("X"), "X", blocks(core.MaxEvents+1), 1), "", envelopes.UserMessage},
		{"too many thoughts", strings.Replace(assistant(`{}`), `[{"type":"text","text":"hi"}]`, blocks(core.MaxEvents+1), 1), "too_many_events", ""},
		{"as many thoughts as may be", strings.Replace(assistant(`{}`), `[{"type":"text","text":"hi"}]`, blocks(core.MaxEvents), 1), "", envelopes.Reasoning},
		{"an empty object", "{}", "", envelopes.Meta},
		{"an empty array", "[]", "", envelopes.Meta},
		{"null", "null", "", envelopes.Meta},
		{"an empty string", `""`, "", envelopes.Meta},
		{"a number", "-0.5e-3", "", envelopes.Meta},
		{"white space around", " \t" + user(`"x"`) + "\r\n", "", envelopes.UserMessage},
		{"names in another case", `{"Type":"user","TYPE":"assistant","uuid":"u1"}`, "", envelopes.Meta},
		{"a name twice", `{"type":"mode","type":"user","uuid":"u1","message":{"role":"user","content":"x"}}`, "", envelopes.UserMessage},
		{"a thousand names twice", `{` + strings.Repeat(`"type":"mode",`, 1000) + `"type":"user","uuid":"u1","message":{"role":"user","content":"x"}}`, "", envelopes.UserMessage},
		{"not UTF-8", user("\"a\xffb\xc3\""), "", envelopes.UserMessage},
		{"names that are not UTF-8", `{"type":"of-tomorrow","` + "\xff\xfe" + `":1}`, "", envelopes.Meta},
		{"ids that are not UTF-8", `{"type":"user","uuid":"` + "\xff" + `","cwd":"/a` + "\xff" + `","message":{"role":"user","content":"x"}}`, "", envelopes.UserMessage},
		{"a lone surrogate", user(`"\ud83d and \ude42"`), "", envelopes.UserMessage},
		{"a NUL that is escaped", user(`"a\u0000b"`), "", envelopes.UserMessage},
		{"an id with a line end", `{"type":"user","uuid":"a\nb\u0000\u2028","message":{"role":"user","content":"x"}}`, "", envelopes.UserMessage},
		{"an id of 10 kB", `{"type":"user","uuid":"` + strings.Repeat("x", 10_000) + `","message":{"role":"user","content":"x"}}`, "", envelopes.UserMessage},
		{"an empty id", `{"type":"user","uuid":"","message":{"role":"user","content":"x"}}`, "", envelopes.UserMessage},
		{"a number beyond all", assistant(`{"input_tokens":1e400,"output_tokens":5}`), "", envelopes.AssistantMessage},
		{"a number of a million digits", assistant(`{"input_tokens":` + digits + `,"output_tokens":5}`), "", envelopes.AssistantMessage},
		{"a number below zero", assistant(`{"input_tokens":-5,"output_tokens":5}`), "", envelopes.AssistantMessage},
		{"a number with a fraction", assistant(`{"input_tokens":1.5,"output_tokens":5}`), "", envelopes.AssistantMessage},
		{"the largest number", assistant(`{"input_tokens":9223372036854775807,"output_tokens":9223372036854775807,"cache_read_input_tokens":18446744073709551616}`), "", envelopes.AssistantMessage},
		{"a number beyond what is exact", assistant(`{"input_tokens":100000000000000000,"output_tokens":9007199254740991}`), "", envelopes.AssistantMessage},
		{"more thoughts than output", assistant(`{"input_tokens":1,"output_tokens":5,"output_tokens_details":{"thinking_tokens":9}}`), "", envelopes.AssistantMessage},
		{"a time that is none", `{"type":"user","uuid":"u1","timestamp":"9999-99-99","message":{"role":"user","content":"x"}}`, "", envelopes.UserMessage},
		{"the year 12000", `{"type":"user","uuid":"u1","timestamp":"12000-01-01T00:00:00Z","message":{"role":"user","content":"x"}}`, "", envelopes.UserMessage},
		{"a leap second", `{"type":"user","uuid":"u1","timestamp":"2016-12-31T23:59:60Z","message":{"role":"user","content":"x"}}`, "", envelopes.UserMessage},
		{"__proto__", `{"type":"user","uuid":"u1","__proto__":{"x":1},"message":{"role":"user","content":"x"}}`, "", envelopes.UserMessage},
		{"a prompt of 2 MB", user(`"` + strings.Repeat("é\\n", 500_000) + `"`), "", envelopes.UserMessage},
		{"an unknown record of 2 MB", `{"type":"of-tomorrow","x":"` + strings.Repeat("x", 2<<20) + `"}`, "", envelopes.Meta},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := suites[0]
			records := normalizerstest.Single(s, []byte(c.data))
			st := normalizerstest.Fold(normalizers.Normalize, records)[0]
			if c.reason != "" {
				reason, permanent := core.Reason(st.Err)
				if reason != c.reason || !permanent {
					t.Fatalf("reason %q (%v), want %q", reason, st.Err, c.reason)
				}
				return
			}
			if st.Err != nil {
				t.Fatal(st.Err)
			}
			if len(st.Result.Events) == 0 || st.Result.Events[0].Event.EventType != c.kind {
				t.Errorf("%s, want a %s", normalizerstest.Clip(normalizerstest.Outcomes(st, false)), c.kind)
			}
			if len(st.Result.Events) < 1000 { // the laws fold many times
				normalizerstest.CheckLaws(t, s, records, false)
			}
		})
	}
}

// An event over the limit is truncated by the rules of README.md, Size: it is never lost and
// never cut within a character.
func TestOversizedEventIsTruncated(t *testing.T) {
	t.Parallel()
	s := suites[0]
	long := strings.Repeat("aé\U0001F642", 200_000)
	data, err := json.Marshal(map[string]any{"type": "user", "uuid": "u1", "sessionId": "s", "message": map[string]any{"role": "user", "content": long}})
	if err != nil {
		t.Fatal(err)
	}
	st := normalizerstest.Fold(normalizers.Normalize, normalizerstest.Single(s, data))[0]
	if st.Err != nil || len(st.Result.Events) != 1 {
		t.Fatal(normalizerstest.Clip(normalizerstest.Outcomes(st, false)))
	}
	e := st.Result.Events[0].Event
	text := normalizerstest.Value(e.Text)
	if !e.TextTruncated || !strings.HasPrefix(long, text) || !utf8.ValidString(text) || len(text) < core.MaxEventBytes/2 {
		t.Errorf("truncated %t to %d bytes, valid %t, a prefix %t", e.TextTruncated, len(text), utf8.ValidString(text), strings.HasPrefix(long, text))
	}
	if string(e.Raw) != "" && string(e.Raw) != "null" {
		t.Errorf("raw of %d bytes", len(e.Raw))
	}
	// One that fits is whole.
	whole := strings.Repeat("a word, ", 25_000)
	st = normalizerstest.Fold(normalizers.Normalize, normalizerstest.Single(s, []byte(`{"type":"user","uuid":"u1","message":{"role":"user","content":"`+whole+`"}}`)))[0]
	if e := st.Result.Events[0].Event; normalizerstest.Value(e.Text) != whole || e.TextTruncated || len(e.Raw) < len(whole) {
		t.Errorf("text of %d bytes, raw of %d", len(normalizerstest.Value(e.Text)), len(e.Raw))
	}
}

// However long a string of a record is, and however much JSON escaping extends it, the events
// fit, the state fits, and there is an event.
func TestLongStringFitsAnywhere(t *testing.T) {
	t.Parallel()
	long := encoded(t,
		strings.Repeat("long é ", 80_000), strings.Repeat("\x01\"", 70_000), strings.Repeat("QUFB", 150_000), strings.Repeat("+\n", 140_000),
	)
	for _, s := range suites {
		t.Run("source="+string(s.Source), func(t *testing.T) {
			t.Parallel()
			places := placesOf(t, s)
			for i, p := range places {
				if !*limitsLarge && i%5 != 0 { // five and the four strings share no factor
					continue
				}
				session := normalizers.NewSession(s.Source, "s")
				before, after := p.in.around(t, p.path)
				r := normalizerstest.Single(s, slices.Concat(before, long[i%len(long)], after))[0].Record
				result, err := normalizers.Normalize(session, r)
				if err != nil && !s.Refuses(err) || err == nil && len(result.Events) == 0 && result.Skip == "" {
					t.Errorf("%s: %v, %d events", p.name, err, len(result.Events))
				}
				for _, e := range result.Events {
					b, err := normalizerstest.Encode(e.Event)
					if err = errors.Join(err, e.Event.Validate()); err != nil || len(b) > core.MaxEventBytes {
						t.Errorf("%s: %s of %d bytes, at most %d: %v", p.name, e.Event.EventType, len(b), core.MaxEventBytes, err)
					}
				}
				if n := len(session.Encode()); n > 128<<10 {
					t.Errorf("%s: a state of %d bytes", p.name, n)
				}
			}
			t.Logf("%d places", len(places))
		})
	}
}

// encoded returns the JSON of values.
func encoded[T any](t *testing.T, values ...T) [][]byte {
	t.Helper()
	var out [][]byte
	for _, v := range values {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b)
	}
	return out
}

// place is where a value stands in a record.
type place struct {
	name string
	in   document
	path []any
}

// placesOf are the places of values in the golden records of a vendor, one of each name.
func placesOf(t *testing.T, s normalizerstest.Suite) []place {
	t.Helper()
	var places []place
	seen := make(map[string]bool)
	for _, g := range normalizerstest.Goldens(t, s) {
		for _, l := range s.Read(g.Raw) {
			if l.Bad || len(l.Data) > 8<<10 {
				continue
			}
			in := readDocument(l.Data)
			kind := normalizerstest.Member[string](in.root, "type")
			for _, path := range in.paths() {
				name := kind
				for _, p := range path {
					if n, ok := p.(string); ok {
						name = fmt.Sprintf("%s.%s", name, n)
					}
				}
				if head, field, ok := strings.Cut(name, ".input."); ok && !strings.HasSuffix(field, "path") && field != "command" {
					name = head + ".input.*"
				}
				if len(path) > 0 && !seen[name] {
					seen[name] = true
					places = append(places, place{name, in, path})
				}
			}
		}
	}
	return places
}

// A value of an unexpected type anywhere in a record makes no dead letter and breaks no law:
// unknown is not malformed.
func TestRecordsWithWrongTypesKeepTheLaws(t *testing.T) {
	t.Parallel()
	for _, s := range suites {
		t.Run("source="+string(s.Source), func(t *testing.T) {
			t.Parallel()
			var lines [][]byte
			for _, g := range normalizerstest.Goldens(t, s) {
				for _, l := range s.Read(g.Raw) {
					if !l.Bad && len(l.Data) < 8<<10 && json.Valid(l.Data) { // text is a record only in its own file
						lines = append(lines, l.Data)
					}
				}
			}
			rapid.Check(t, func(rt *rapid.T) {
				var records []normalizers.Framed
				for i := range rapid.IntRange(1, 6).Draw(rt, "records") {
					l := rapid.SampledFrom(lines).Draw(rt, "line")
					if rapid.IntRange(0, 3).Draw(rt, "changed") > 0 {
						l = retyped(rt, l)
					}
					r := normalizerstest.Single(s, l)[0]
					r.Line, r.Record.Sequence = i+1, uint64(i+1)
					records = append(records, r)
				}
				for _, st := range normalizerstest.Fold(normalizers.Normalize, records) {
					if st.Err != nil && !s.Refuses(st.Err) {
						rt.Fatalf("%v: %s", st.Err, normalizerstest.Clip(string(st.Record.Data)))
					}
				}
				normalizerstest.CheckRapid(rt, s, records, false)
			})
		})
	}
}

// The same without chance: values of the golden records are replaced by values of every type. A place gets four of the
// twelve types where it first occurs, the others at its next two; with -limits.large every place gets all.
func TestValueOfEveryTypeIsRead(t *testing.T) {
	t.Parallel()
	values := encoded(t, otherTypes...)
	for _, s := range suites {
		t.Run("source="+string(s.Source), func(t *testing.T) {
			t.Parallel()
			occurred := make(map[string]int)
			for _, g := range normalizerstest.Goldens(t, s) {
				t.Run(g.Name, func(t *testing.T) {
					for _, l := range s.Read(g.Raw) {
						if l.Bad || len(l.Data) > 8<<10 || testing.Short() && l.Number%5 != 0 {
							continue
						}
						in := readDocument(l.Data)
						for _, path := range in.paths() {
							place := in.place(path)
							occurred[place]++
							if occurred[place] > 3 && !*limitsLarge {
								continue
							}
							before, after := in.around(t, path)
							for i, v := range values {
								if *limitsLarge || i%3 == occurred[place]%3 {
									requireRead(t, s, slices.Concat(before, v, after))
								}
							}
						}
					}
				})
			}
		})
	}
}

// requireRead fails the test unless a record is refused by the model of its protocol, or yields valid events or a skip.
func requireRead(t *testing.T, s normalizerstest.Suite, data []byte) {
	t.Helper()
	st := normalizerstest.Fold(normalizers.Normalize, normalizerstest.Single(s, data))[0]
	if s.Refuses(st.Err) {
		return
	}
	if st.Err != nil {
		t.Fatalf("%v: %s", st.Err, normalizerstest.Clip(string(data)))
	}
	for _, e := range st.Result.Events {
		if err := e.Event.Validate(); err != nil {
			t.Fatalf("%v: %s", err, normalizerstest.Clip(string(data)))
		}
	}
	if len(st.Result.Events) == 0 && st.Result.Skip == "" {
		t.Fatalf("nothing: %s", normalizerstest.Clip(string(data)))
	}
}

// otherTypes are values of every type of JSON.
var otherTypes = []any{
	nil, true, "text", "", json.Number("7"), json.Number("-1.5"), json.Number("1e400"),
	[]any{},
	[]any{[]any{json.Number("1")}, "x", nil},
	map[string]any{},
	map[string]any{"type": "text", "text": map[string]any{}},
	[]any{map[string]any{"type": "tool_result", "tool_use_id": json.Number("5")}},
}

// retyped replaces one value of a record by one of another type.
func retyped(t *rapid.T, data []byte) []byte {
	in := readDocument(data)
	path := rapid.SampledFrom(in.paths()).Draw(t, "path")
	return in.replaced(path, rapid.SampledFrom(otherTypes).Draw(t, "value"))
}

// document is a JSON value, in which the value at a path can be replaced.
type document struct{ root any }

func readDocument(data []byte) document { return document{normalizerstest.Plain(data)} }

// paths are the places of all values below a JSON value, its own first, in the order of names.
func (d document) paths() [][]any {
	out := [][]any{nil}
	var walk func(v any, at []any)
	walk = func(v any, at []any) {
		switch v := v.(type) {
		case map[string]any:
			for _, k := range slices.Sorted(maps.Keys(v)) {
				p := append(slices.Clone(at), k)
				out = append(out, p)
				walk(v[k], p)
			}
		case []any:
			for i, m := range v {
				p := append(slices.Clone(at), i)
				out = append(out, p)
				walk(m, p)
			}
		}
	}
	walk(d.root, nil)
	return out
}

// place names the kind of place at a path: the members on the way, and what each object on it states as its type or
// name.
func (d document) place(path []any) string {
	var b strings.Builder
	v := d.root
	for i := 0; ; i++ {
		m, _ := v.(map[string]any)
		for _, kind := range []string{"type", "subtype", "role", "kind", "name"} {
			if s, ok := m[kind].(string); ok {
				fmt.Fprintf(&b, " %s=%s", kind, s)
			}
		}
		if i == len(path) {
			return b.String()
		}
		switch k := path[i].(type) {
		case string:
			b.WriteString("." + k)
			v = m[k]
		case int:
			b.WriteString("[]")
			v = v.([]any)[k]
		}
	}
}

// replaced is the JSON of the document with the value at a path replaced. The document itself does not change.
func (d document) replaced(path []any, by any) []byte {
	root, restore := by, func() {}
	if n := len(path); n > 0 {
		root = d.root
		in := d.root
		for _, k := range path[:n-1] {
			switch k := k.(type) {
			case string:
				in = in.(map[string]any)[k]
			case int:
				in = in.([]any)[k]
			}
		}
		switch k := path[n-1].(type) {
		case string:
			m := in.(map[string]any)
			was := m[k]
			m[k], restore = by, func() { m[k] = was }
		case int:
			l := in.([]any)
			was := l[k]
			l[k], restore = by, func() { l[k] = was }
		}
	}
	b, err := json.Marshal(root)
	restore()
	if err != nil {
		panic(err) // it came from JSON
	}
	return b
}

// around returns the bytes of the document before and after the value at a path.
func (d document) around(t *testing.T, path []any) (before, after []byte) {
	t.Helper()
	const place = `"the value at the path"`
	before, after, ok := bytes.Cut(d.replaced(path, json.RawMessage(place)), []byte(place))
	if !ok {
		t.Fatalf("no value at %v", path)
	}
	return before, after
}

// No error contains a part of the record: no value, no name, no number, wherever the record
// breaks.
func TestErrorRepeatsNothingOfItsRecord(t *testing.T) {
	t.Parallel()
	for _, s := range suites {
		t.Run("source="+string(s.Source), func(t *testing.T) {
			t.Parallel()
			const secret = "sk-PLANTED"
			record := []byte(`{"type":"user","` + secret + `":"` + secret + `","uuid":"` + secret + `","sessionId":"s","cwd":"/` + secret + `","timestamp":"` + secret +
				`","message":{"role":"` + secret + `","content":[{"type":"` + secret + `","text":"` + secret + `"},{"` + secret + `":[424242424242,"` + secret + `"]}]}}`)
			check := func(data []byte) {
				st := normalizerstest.Fold(normalizers.Normalize, normalizerstest.Single(s, data))[0]
				if st.Err == nil {
					return
				}
				for err := st.Err; err != nil; err = errors.Unwrap(err) {
					if m := err.Error(); strings.Contains(m, "PLANTED") || strings.Contains(m, "sk-") || strings.Contains(m, "4242") {
						t.Fatalf("%q repeats a part of %q", m, data)
					}
				}
			}
			for i := range record {
				check(record[:i])
				for _, b := range []byte{0, '"', '}', 'x', 0xff} {
					broken := bytes.Clone(record)
					broken[i] = b
					check(broken)
				}
			}
			check([]byte(secret))
			check([]byte(`"` + secret))
			check(append(bytes.Clone(record), record...))
			check([]byte(strings.Repeat(`{"`+secret+`":`, core.MaxDepth+1)))
		})
	}
}

// The key of a session is any text. A damaged state is an error and never a panic.
func TestDamagedStateIsAnError(t *testing.T) {
	t.Parallel()
	s := suites[0]
	g := normalizerstest.Goldens(t, s)[0]
	for _, id := range []string{"", "a b", "a.b.*.>", "\x00\n\u2028", "\xff\xfe", strings.Repeat("x", 10_000), "\U0001F642", `"}`} {
		records := normalizerstest.Frame(normalizers.File{Source: s.Source, Name: "f", Modified: normalizerstest.Modified, Session: "x"}, g.Raw)
		for i := range records {
			records[i].Record.Session = id
		}
		if err := normalizerstest.LawCut(normalizerstest.Folded(s, normalizers.Normalize, records)); err != nil {
			t.Errorf("session %q: %v", normalizerstest.Clip(id), err)
		}
	}
	state := normalizers.NewSession(s.Source, "s")
	for _, r := range normalizerstest.Frame(normalizers.File{Source: s.Source, Name: "f", Modified: normalizerstest.Modified, Session: "s"}, g.Raw) {
		if _, err := normalizers.Normalize(state, r.Record); err != nil {
			t.Fatal(err)
		}
	}
	encoded := state.Encode()
	for i := range encoded {
		if _, err := normalizers.DecodeSession(encoded[:i]); err == nil {
			t.Errorf("a state of %d bytes can be decoded from %d", len(encoded), i)
		}
		for _, b := range []byte{0, 0xff, encoded[i] + 1} {
			damaged := bytes.Clone(encoded)
			damaged[i] = b
			if s, err := normalizers.DecodeSession(damaged); err == nil {
				_ = s.Encode() // whatever it is now, it is a state
			}
		}
	}
	if _, err := normalizers.DecodeSession(append(bytes.Clone(encoded), 0)); err == nil {
		t.Error("a state with a byte too many can be decoded")
	}
}

// A record of another session is a mistake of the caller, not a dead letter.
func TestRecordOfAnotherSessionIsNoDeadLetter(t *testing.T) {
	t.Parallel()
	s := normalizers.NewSession(envelopes.ClaudeCode, "a")
	for _, r := range []core.Record{
		{Source: envelopes.ClaudeCode, Session: "b", Data: []byte(`{}`)},
		{Source: envelopes.Gemini, Session: "a", Data: []byte(`{}`)},
	} {
		before := s.Encode()
		if _, err := normalizers.Normalize(s, r); err == nil || normalizerstest.IsPermanent(err) {
			t.Errorf("%s %q: %v", r.Source, r.Session, err)
		}
		if !bytes.Equal(before, s.Encode()) {
			t.Error("the state has changed")
		}
	}
	none := normalizers.NewSession("of-tomorrow", "a")
	_, err := normalizers.Normalize(none, core.Record{Source: "of-tomorrow", Session: "a", Data: []byte(`{}`)})
	if reason, permanent := core.Reason(err); reason != "unknown_source" || !permanent {
		t.Errorf("unknown source: %q, %v", reason, err)
	}
}
