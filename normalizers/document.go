package normalizers

import "bytes"

// growDocument goes on with a value over several lines, up to end.
func (f *Framer) growDocument(end int) {
	ok, done := f.document.feed(f.buf[f.document.fed:end])
	f.document.fed = end
	switch {
	case !ok:
		f.abandonDocument()
	case !done:
	case f.cut(end, cutDocument):
		f.document = nil
	default: // balanced, but no JSON
		f.abandonDocument()
	}
}

// abandonDocument cuts the first of several lines on its own, because they are not one value.
// The lines behind it are cut like any others: each that can be read is a record.
func (f *Framer) abandonDocument() {
	f.document = nil
	first := bytes.IndexByte(f.buf, '\n') + 1
	if first == 0 {
		first = len(f.buf)
	}
	f.cut(first, cutBroken)
}

// documentScan follows a JSON value over several lines, just closely enough to find its
// end, and to see soon when it is none.
type documentScan struct {
	fed     int    // bytes of the framer's buffer that it has been fed
	open    []byte // the brackets that are not closed
	quoted  bool
	escaped bool
	ended   bool // a value or a name has ended: a comma, a colon or an end must follow
	word    bool // within a literal or a number
}

// feed takes the next bytes. ok is false when they cannot go on with the value, done is
// true when it has ended in them.
func (d *documentScan) feed(b []byte) (ok, done bool) {
	for _, c := range b {
		if d.quoted {
			switch {
			case d.escaped:
				d.escaped = false
			case c == '\\':
				d.escaped = true
			case c == '"':
				d.quoted, d.ended = false, true
			case c < ' ':
				return false, false
			}
			continue
		}
		word := false
		switch c {
		case ' ', '\t', '\r', '\n':
		case '"':
			if d.ended {
				return false, false
			}
			d.quoted = true
		case '{', '[':
			d.open = append(d.open, c)
			if d.ended || len(d.open) > MaxDepth {
				return false, false
			}
		case '}', ']':
			last := len(d.open) - 1
			if last < 0 || d.open[last] != c-2 { // the code of a bracket is 2 below that of its end
				return false, false
			}
			d.open = d.open[:last]
			d.ended = true
			if last == 0 {
				return true, true
			}
		case ',', ':':
			if !d.ended {
				return false, false
			}
			d.ended = false
		default:
			if d.ended && !d.word || len(d.open) == 0 {
				return false, false
			}
			word, d.ended = true, true
		}
		d.word = word
	}
	return true, false
}
