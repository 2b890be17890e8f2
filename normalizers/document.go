package normalizers

import (
	"bytes"

	"tributary/normalizers/core"

	"tributary/envelopes/jsonscan"
)

// growDocument extends a value across several lines, up to end.
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

// abandonDocument cuts the first of several lines on its own, because together they are not one value. The lines
// behind it are cut as usual: each readable one is a record.
func (f *Framer) abandonDocument() {
	f.document = nil
	first := bytes.IndexByte(f.buf, '\n') + 1
	if first == 0 {
		first = len(f.buf)
	}
	f.cut(first, cutBroken)
}

// documentScan follows a JSON value across lines, just closely enough to find its end, and to notice soon if it is
// not one.
type documentScan struct {
	fed     int    // bytes of the framer's buffer fed so far
	open    []byte // open brackets
	quoted  bool
	escaped bool
	ended   bool // a value or a name has ended: a comma, a colon or an end must follow
	word    bool // within a literal or a number
}

// feed takes the next bytes. ok is false if they cannot continue the value; done is true if the value ends in them.
func (d *documentScan) feed(b []byte) (ok, done bool) {
	for i := 0; i < len(b); i++ {
		if d.quoted {
			if !d.escaped {
				i += jsonscan.Plain(b[i:])
			}
			if i == len(b) {
				break
			}
			ok = d.inString(b[i])
		} else {
			ok, done = d.between(b[i])
		}
		if !ok || done {
			return ok, done
		}
	}
	return true, false
}

// inString takes the next byte of a string.
func (d *documentScan) inString(c byte) (ok bool) {
	switch {
	case d.escaped:
		d.escaped = false
	case c == '\\':
		d.escaped = true
	case c == '"':
		d.quoted, d.ended = false, true
	case c < ' ':
		return false
	}
	return true
}

// between takes the next byte outside strings.
func (d *documentScan) between(c byte) (ok, done bool) {
	inWord := d.word
	d.word = false
	switch c {
	case ' ', '\t', '\r', '\n':
		return true, false
	case '"':
		d.quoted = true
		return !d.ended, false
	case '{', '[':
		d.open = append(d.open, c)
		return !d.ended && len(d.open) <= core.MaxDepth, false
	case '}', ']':
		return d.close(c)
	case ',', ':':
		ok = d.ended
		d.ended = false
		return ok, false
	default:
		ok = (!d.ended || inWord) && len(d.open) > 0
		d.word, d.ended = true, true
		return ok, false
	}
}

// close takes the end of an object or array; the value ends with the outermost one.
func (d *documentScan) close(c byte) (ok, done bool) {
	last := len(d.open) - 1
	if last < 0 || d.open[last] != c-2 { // an opening bracket's code is 2 below that of its end
		return false, false
	}
	d.open = d.open[:last]
	d.ended = true
	return true, last == 0
}
