package terminal

import (
	"io"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// WriteJSON prints a value as JSON on one line, with the members of maps in order; options change the form. Bytes that
// are not UTF-8, which headers and names of objects can have, become U+FFFD. On a terminal unsafe runes are escaped.
func WriteJSON(w io.Writer, v any, options ...json.Options) error {
	options = append([]json.Options{json.Deterministic(true), jsontext.AllowInvalidUTF8(true)}, options...)
	text, err := json.Marshal(v, options...)
	if err == nil {
		_, err = JSONWriter(w).Write(append(text, '\n'))
	}
	return err
}

// JSONWriter is w for lines of JSON that are made already, which are unchanged except on a terminal.
func JSONWriter(w io.Writer) io.Writer {
	if IsTerminal(w) {
		return safeWriter{w, printableJSON}
	}
	return w
}
