package ship

import (
	"bytes"

	"tributary/normalizers"
)

// marker writes an input to a framer and adds, once, the line that names the session:
// between two lines, as soon as the session is known, and only to plain text. A log of JSON names its session itself.
type marker struct {
	to      *normalizers.Framer
	lineOf  func(session string) string // of the vendor
	line    string                      // still to be added; empty for none
	named   bool                        // the session is known
	unnamed bool                        // the session will not become known
	within  bool                        // the last byte written is no line end
	sniffed bool                        // text is decided
	text    bool                        // the input is plain text
}

// name sets the session; empty for none.
func (m *marker) name(session string) {
	if session == "" {
		return
	}
	m.named, m.line = true, m.lineOf(session)
	if !m.within {
		m.mark()
	}
}

// write writes the next bytes of the input.
func (m *marker) write(data []byte) {
	m.sniff(data)
	if end := bytes.IndexByte(data, '\n') + 1; m.line != "" && end > 0 {
		m.pass(data[:end])
		m.mark()
		data = data[end:]
	}
	m.pass(data)
}

// sniff decides by the first character of the input whether it is plain text.
func (m *marker) sniff(data []byte) {
	first := bytes.TrimLeft(data, "\xef\xbb\xbf \t\r\n")
	if m.sniffed || len(first) == 0 {
		return
	}
	m.sniffed, m.text = true, first[0] != '{'
	if !m.within {
		m.mark()
	}
}

// end adds the line behind a last line without an end.
func (m *marker) end() {
	if m.line != "" && m.within && m.text {
		m.pass([]byte("\n"))
	}
	m.mark()
}

// pass writes bytes of the input to the framer.
func (m *marker) pass(data []byte) {
	if len(data) > 0 {
		m.within = data[len(data)-1] != '\n'
		_, _ = m.to.Write(data) // never fails
	}
}

// mark adds the line, if one is to be added.
func (m *marker) mark() {
	if m.line != "" && m.text {
		_, _ = m.to.Write([]byte(m.line)) // never fails
		m.line = ""
	}
}
