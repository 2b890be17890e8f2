package claude

import (
	"strconv"

	"tributary/normalizers/lenient"
)

// objectWriter writes a JSON object member by member. Shapes contain whole files, which the library would read twice;
// BenchmarkEdit compares both.
type objectWriter struct{ b []byte }

// newObject returns a writer for an object whose texts have about size bytes.
func newObject(size int) *objectWriter {
	return &objectWriter{append(make([]byte, 0, size+size/8+128), '{')}
}

// end returns the object.
func (w *objectWriter) end() []byte { return append(w.b, '}') }

func (w *objectWriter) name(name string) {
	if w.b[len(w.b)-1] != '{' {
		w.b = append(w.b, ',')
	}
	w.b = append(lenient.AppendQuote(w.b, name), ':')
}

func (w *objectWriter) text(name, s string) {
	w.name(name)
	w.b = lenient.AppendQuote(w.b, s)
}

// edit writes a file before and after an edit, quoting the common parts once.
func (w *objectWriter) edit(e fileEdit) {
	w.name("before")
	begin, tail := len(w.b), len(e.before)-e.tail
	w.b = lenient.AppendQuote(w.b, e.before[:e.head])
	headEnd := len(w.b) - 1
	w.b = appendToQuoted(w.b, e.before[e.head:tail])
	tailBegin := len(w.b) - 1
	w.b = appendToQuoted(w.b, e.before[tail:])
	end := len(w.b)
	w.name("after")
	w.b = append(append(w.b, w.b[begin:headEnd]...), '"')
	w.b = appendToQuoted(w.b, e.after[e.head:len(e.after)-e.tail])
	w.b = append(w.b[:len(w.b)-1], w.b[tailBegin:end]...)
}

// appendToQuoted appends a text to the JSON string at the end of b.
func appendToQuoted(b []byte, s string) []byte {
	last := len(b) - 2 // the byte before the quote, where the one of s will be
	was := b[last]
	b = lenient.AppendQuote(b[:last], s)
	b[last] = was
	return b
}

func (w *objectWriter) textOrNull(name string, s *string) {
	if s == nil {
		w.literal(name, "null")
		return
	}
	w.text(name, *s)
}

func (w *objectWriter) number(name string, n int64) {
	w.name(name)
	w.b = strconv.AppendInt(w.b, n, 10)
}

func (w *objectWriter) numberOrNull(name string, n *int64) {
	if n == nil {
		w.literal(name, "null")
		return
	}
	w.number(name, *n)
}

// literal writes a member with an unescaped value.
func (w *objectWriter) literal(name, value string) {
	w.name(name)
	w.b = append(w.b, value...)
}
