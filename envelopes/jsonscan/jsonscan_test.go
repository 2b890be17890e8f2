package jsonscan

import (
	"bytes"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// seeds are values of all kinds, and what is nearly one.
var seeds = []string{
	`{"a":1,"b":[true,false,null,-0.5e+3],"c":{"d":"\u00e9\ud83d\ude00é","e":""}}`,
	`{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `{"longer than eight":1,"longer than eight!":2}`,
	`"\ud800"`, `"\udc00\ud800"`, `"\ud800\u0041"`, `"\uD83D\uDE00"`, "\"\xff\"", "\"\xe2\x80\xa8\xef\xbf\xbd\"", "\"a\x1fb\"", `"\x"`, `"\u12"`,
	` { "a" : [ 1 , 2 ] } `, "\t1\n", `01`, `-`, `1.`, `1e`, `1e+`, `-0`, `0.10`, `1e400`, `tru`, `nulll`, `[1,]`, `{"a":1,}`, `{"a"}`, `{1:2}`, `[`, `{`, `"`, `"\`, `"\u`,
	`1 2`, ``, ` `, `{}`, `[]`, `[[],{}]`, "\ufeff1", `"` + strings.Repeat("text ", 9) + `\n"`, `{"` + strings.Repeat("n", 30) + `":"` + strings.Repeat("é", 9) + `"}`,
	strings.Repeat("[", 9) + strings.Repeat("]", 9), `"\\\""`, `["\\",{"\"":"\\\\"}]`,
}

// depthOf is the number of levels of a value that is JSON.
func depthOf(v []byte) int {
	deepest := 0
	for d := jsontext.NewDecoder(bytes.NewReader(v)); ; deepest = max(deepest, d.StackDepth()) {
		if _, err := d.ReadToken(); err != nil {
			return deepest
		}
	}
}

// FuzzCheck compares Check with the library: what it calls strict is strict, and compact where
// the library changes nothing. What it does not call strict is none, or of a rare kind.
func FuzzCheck(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		const maxDepth = 8
		got := Check(data, maxDepth)
		v := jsontext.Value(bytes.Clone(data))
		strict := v.Compact(jsontext.AllowDuplicateNames(false), jsontext.AllowInvalidUTF8(false)) == nil && depthOf(data) <= maxDepth
		rare := bytes.IndexByte(data, '\\') >= 0 || bytes.Count(data, []byte{':'}) >= maxNames
		if got.Strict != strict && (got.Strict || !rare) {
			t.Fatalf("strict: %v for %q, the library says %v", got.Strict, data, strict)
		}
		if got.Strict && got.Compact != bytes.Equal(v, data) {
			t.Fatalf("compact: %v for %q", got.Compact, data)
		}
		if compact := AppendCompact(nil, data); got.Strict && !bytes.Equal(compact, v) {
			t.Fatalf("%q is compacted to %q", data, compact)
		}
	})
}

// FuzzScanner reads everything: what is JSON yields the texts and the values that the library
// yields, and what is none ends.
func FuzzScanner(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var got bytes.Buffer
		c := NewScanner(data)
		walk(&got, &c)
		v := jsontext.Value(bytes.Clone(data))
		if v.Compact(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) != nil {
			return
		}
		var want bytes.Buffer
		d := jsontext.NewDecoder(bytes.NewReader(v), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
		for {
			token, err := d.ReadToken()
			if err != nil {
				break
			}
			if kind := token.Kind(); kind == '"' {
				quoted, _ := jsontext.AppendQuote(nil, token.String())
				want.Write(quoted)
			} else if kind != '}' && kind != ']' {
				want.WriteString(token.String())
			}
			want.WriteByte(' ')
		}
		if got.String() != want.String() {
			t.Fatalf("%q\n got %s\nwant %s", data, got.String(), want.String())
		}
	})
}

// walk writes the tokens of the next value.
func walk(out *bytes.Buffer, c *Scanner) {
	quoted := func(s string) {
		b, _ := jsontext.AppendQuote(nil, s)
		out.Write(append(b, ' '))
	}
	switch kind := c.Kind(); kind {
	case 0:
	case '{':
		out.WriteString("{ ")
		c.Enter()
		for name, ok := c.Name(); ok; name, ok = c.Name() {
			quoted(string(name))
			walk(out, c)
		}
		c.Leave()
		out.WriteByte(' ')
	case '[':
		out.WriteString("[ ")
		c.Enter()
		for c.Kind() != 0 {
			walk(out, c)
		}
		c.Leave()
		out.WriteByte(' ')
	case '"':
		quoted(c.text())
	default:
		out.Write(append(c.Value(), ' '))
	}
}

// FuzzAppendString compares AppendString with the library, and reads what it writes.
func FuzzAppendString(f *testing.F) {
	for _, s := range append(seeds, "\x00\b\f\n\r\t\x7f<>&\u2028\u2029\ufffd", strings.Repeat("1234567\n", 3)+"é", "12345678é\"é\xff") {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, ok := AppendString([]byte("before"), s)
		want, err := jsontext.AppendQuote([]byte("before"), s)
		if ok != (err == nil) || ok && !bytes.Equal(got, want) {
			t.Fatalf("%q: %q %v, want %q %v", s, got, ok, want, err)
		}
		n := Plain([]byte(s))
		if quoted, _ := AppendString(nil, s[:n]); string(quoted) != `"`+s[:n]+`"` {
			t.Fatalf("%q is not plain", s[:n])
		}
		if n < len(s) && s[n] >= ' ' && s[n] < 0x80 && s[n] != '"' && s[n] != '\\' {
			t.Fatalf("%q is plain up to %d", s, n)
		}
		if ok && Unquote(got[len("before"):]) != s {
			t.Fatalf("%q is read as %q", got, Unquote(got[len("before"):]))
		}
	})
}

// record is a value like a record of an agent: a few names, and a long text with line ends.
var record = []byte(`{"parentUuid":"6f0f2c1e","isSidechain":false,"userType":"external","cwd":"/home/dev/app","sessionId":"s","version":"2.1.37","type":"user","message":{"role":"user","content":[{"tool_use_id":"toolu_1","type":"tool_result","content":"` +
	strings.Repeat(`ok  \ttributary/envelopes\t0.038s <cached>\n`, 50) + `","is_error":false}]},"uuid":"7","timestamp":"2026-03-01T09:00:00.000Z"}`)

// BenchmarkCheck compares each fast path with the library.
//
//	go test ./envelopes/jsonscan -run '^$' -bench . -count 6
func BenchmarkCheck(b *testing.B) {
	text := Unquote([]byte(`"` + strings.Repeat(`ok  \ttributary/envelopes\t0.038s <cached>\n`, 50) + `"`))
	quoted, _ := AppendString(nil, text)
	for name, run := range map[string]func(){
		"op=check/by=jsonscan":   func() { Check(record, 128) },
		"op=check/by=jsontext":   func() { jsontext.Value(record).IsValid() },
		"op=skip/by=jsonscan":    func() { c := NewScanner(record); c.Value() },
		"op=quote/by=jsonscan":   func() { quoted, _ = AppendString(quoted[:0], text) },
		"op=quote/by=jsontext":   func() { quoted, _ = jsontext.AppendQuote(quoted[:0], text) },
		"op=unquote/by=jsonscan": func() { Unquote(quoted) },
		"op=unquote/by=jsontext": func() { _, _ = jsontext.AppendUnquote(nil, quoted) },
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(record)))
			b.ReportAllocs()
			for b.Loop() {
				run()
			}
		})
	}
}
