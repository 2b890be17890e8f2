package normalizerstest

import (
	"bytes"
	"encoding/json"
)

// Values cuts a file of JSON values, each on one line or several, for an independent reader.
type Values struct {
	// Elements returns the elements of an array that are separate records, nil for any other value. May be nil.
	Elements func(v json.RawMessage) []json.RawMessage
	// Broken returns how much of a line that is not JSON forms one line, and whether that is unreadable. Nil takes
	// the whole line as unreadable.
	Broken func(line []byte) (length int, bad bool)
}

// Read returns the records of data in their order.
func (c Values) Read(data []byte) []Line {
	var out []Line
	rest := bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	lines := lineCounter(data)
	at := func(b []byte) int { return lines(int64(len(data) - len(b))) }
	for {
		rest = bytes.TrimLeft(rest, " \t\r\n")
		if len(rest) == 0 {
			return out
		}
		dec := json.NewDecoder(bytes.NewReader(rest))
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			line, _, _ := bytes.Cut(rest, []byte("\n"))
			length, bad := len(line), true
			if c.Broken != nil {
				length, bad = c.Broken(line)
			}
			out = append(out, Line{Number: at(rest), Data: bytes.TrimSpace(line[:length]), Bad: bad})
			rest = rest[length:]
			continue
		}
		var elements []json.RawMessage
		if c.Elements != nil {
			elements = c.Elements(v)
		}
		if elements == nil {
			out = append(out, Line{Number: at(rest), Data: v})
		}
		from := 0
		for _, e := range elements {
			from += bytes.Index(rest[from:], e)
			out = append(out, Line{Number: at(rest[from:]), Data: e})
			from += len(e)
		}
		rest = rest[dec.InputOffset():]
	}
}

// TornAt returns a function for [Values.Broken]. A writer that died within a line leaves its next record on that
// line; the record begins with prefix and is a whole JSON value that ok accepts.
func TornAt(prefix string, ok func(v any) bool) func(line []byte) (length int, bad bool) {
	return func(line []byte) (int, bool) {
		for i := 1; i < len(line); i++ {
			if bytes.HasPrefix(line[i:], []byte(prefix)) && json.Valid(line[i:]) && (ok == nil || ok(Parse(line[i:]))) {
				return i, true
			}
		}
		return len(line), true
	}
}
