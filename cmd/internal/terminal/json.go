package terminal

import (
	"io"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// WriteJSON prints a value as JSON on one line, with the members of maps in order; options change the form. Bytes
// that are not UTF-8, as in headers and names of objects, become U+FFFD. On a terminal unsafe runes are escaped.
func WriteJSON(w io.Writer, v any, options ...json.Options) error {
	options = append([]json.Options{json.Deterministic(true), jsontext.AllowInvalidUTF8(true)}, options...)
	text, err := json.Marshal(v, options...)
	if err == nil {
		_, err = JSONWriter(w).Write(append(text, '\n'))
	}
	return err
}

// JSONWriter returns a writer for finished lines of JSON, which it changes only for a terminal.
func JSONWriter(w io.Writer) io.Writer {
	if IsTerminal(w) {
		return safeWriter{w, printableJSON}
	}
	return w
}
