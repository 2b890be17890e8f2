package normalizers

import "bytes"

// growDocument goes on with a value over several lines, up to end.
func (f *Framer) growDocument(end int) {
	ok, done := f.document.feed(f.buf[f.document.fed:end])
	f.document.fed = end
	switch {
	case !ok:
		f.abandonDocument()
	case done:
		f.document = nil
		f.cut(end, false)
	}
}

// abandonDocument gives up that a value goes on over several lines: the first of them
// is cut on its own.
func (f *Framer) abandonDocument() {
	f.document = nil
	first := bytes.IndexByte(f.buf, '\n') + 1
	if first == 0 {
		first = len(f.buf)
	}
	f.cut(first, false)
}

// documentScan follows a JSON value over several lines, just closely enough to find its
// end, and to see soon when it is none.
type documentScan struct {
	fed     int // bytes of the framer's buffer that it has been fed
	level   int
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
			d.level++
			if d.ended || d.level > MaxDepth {
				return false, false
			}
		case '}', ']':
			d.level--
			d.ended = true
			if d.level == 0 {
				return true, true
			}
		case ',', ':':
			if !d.ended {
				return false, false
			}
			d.ended = false
		default:
			if d.ended && !d.word || d.level == 0 {
				return false, false
			}
			word, d.ended = true, true
		}
		d.word = word
	}
	return true, false
}
