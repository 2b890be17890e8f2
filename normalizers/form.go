package normalizers

import (
	"bytes"
	"strings"

	"tributary/normalizers/core"
)

// form is what a file is made of.
type form int

const (
	formUnknown   form = iota // nothing but white space has come
	formUndecided             // JSON, or server-sent events
	formTextOrLog             // plain text, or JSON that begins with lines that cannot be read
	formJSON
	formEvents // server-sent events: a record is the data of one
	formText   // plain text: every line is a record, with its line end
)

// maxTextOrLogLines is how many lines of a file that does not begin with a brace are looked at
// for one that decides whether the file is plain text. They take at most [maxWaiting] bytes.
const maxTextOrLogLines = 32

// detectForm reports whether the file can be cut. A file whose first byte that is no white
// space is a brace is no plain text; of any other its first lines decide, and they decide whether
// a file is a stream of server-sent events.
func (f *Framer) detectForm() bool {
	if f.form != formUnknown {
		return true
	}
	const mark = "\xef\xbb\xbf"
	first := bytes.TrimLeft(bytes.TrimPrefix(f.buf, []byte(mark)), " \t\r\n")
	switch {
	case f.vendor == nil || f.vendor.Framing.ServerEvents:
		f.form = formUndecided
	case f.vendor.Framing.PrintedText == nil, len(first) > 0 && first[0] == '{':
		f.form = formJSON
	case strings.HasPrefix(mark, string(first)) && len(f.buf) <= core.MaxRecordBytes: // nothing, or a part of it
	default:
		f.form = formTextOrLog
	}
	return f.form != formUnknown
}

// decideText looks at the line that ends at buf[end], one of the first of a file that may be
// plain text: a line that states a session shows that it is, a record of the vendor's log that it
// is JSON. After [maxTextOrLogLines] lines without either it is plain text.
func (f *Framer) decideText(end int) {
	line := f.buf[bytes.LastIndexByte(f.buf[:end-1], '\n')+1 : end]
	f.scanned = 0
	switch {
	case f.vendor.Framing.PrintedText.Session(bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))) != "":
		f.form = formText
	case beginsRecord(f.shapes, f.vendor, line):
		f.form = formJSON
	case bytes.Count(f.buf[:end], []byte("\n")) >= maxTextOrLogLines:
		f.form = formText
	default:
		f.scanned = end
	}
}

// IsLog reports whether the file is known to be JSON or server-sent events, and not plain text.
func (f *Framer) IsLog() bool { return f.form == formJSON || f.form == formEvents }

// settleForm takes a file of which nothing has shown that it is JSON as plain text, and cuts its
// lines.
func (f *Framer) settleForm() {
	if f.form != formJSON {
		f.form = formText
	}
	f.scanned = 0
	f.cutLines()
}

// beginsRecord reports whether a line begins with a record of a vendor's log.
func beginsRecord(shapes *core.ShapeReader, v *core.Vendor, line []byte) bool {
	if line[0] != '{' {
		return false
	}
	sh, _, err := shapes.Read(line)
	return err == nil && v.Recognize(&sh) != ""
}

// cutText takes buf[:end] as a line of plain text. The session that it may name is its own.
func (f *Framer) cutText(end int) {
	line := f.own(0, end)
	f.identify(line)
	session := f.vendor.Framing.PrintedText.Session(bytes.TrimPrefix(line, []byte("\xef\xbb\xbf")))
	origin := core.Origin{Time: f.file.time()} // no other will follow
	if f.offset == 0 && line[end-1] != '\n' {
		origin.Digest = core.HexHash(string(line)) // a line without its end is the whole file
	}
	f.add(Framed{Record: core.Record{Data: line, Origin: origin}}, 0, end, core.TextShape(session))
	f.consume(end)
}
