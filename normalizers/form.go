package normalizers

import (
	"bytes"
	"strings"

	"tributary/normalizers/core"
	"tributary/normalizers/otlp"
)

// form is what a file consists of.
type form int

const (
	formUnknown   form = iota // only white space so far
	formUndecided             // JSON, or server-sent events
	formTextOrLog             // plain text, or JSON after unreadable lines
	formJSON
	formEvents // server-sent events: a record is the data of an event
	formText   // plain text: every line, with its line end, is a record
)

// maxTextOrLogLines is how many lines of a file that does not begin with a brace are examined to decide whether it is
// plain text. They take at most [maxWaiting] bytes.
const maxTextOrLogLines = 32

// detectForm reports whether the file can be cut. A file that begins with a brace, after white space, is not plain
// text. For any other its first lines decide, also whether it is a stream of server-sent events.
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
	case strings.HasPrefix(mark, string(first)) && len(f.buf) <= core.MaxRecordBytes: // nothing, or a part of the mark
	default:
		f.form = formTextOrLog
	}
	return f.form != formUnknown
}

// decideText examines the line that ends at buf[end], one of the first in a possible plain text. A line that states a
// session shows plain text, a record of the vendor's log shows JSON. After [maxTextOrLogLines] lines without either
// it is plain text.
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

// settleForm treats a file that showed no sign of JSON as plain text, and cuts its lines.
func (f *Framer) settleForm() {
	if f.form != formJSON {
		f.form = formText
	}
	f.scanned = 0
	f.cutLines()
}

// beginsRecord reports whether a line begins with a record of a vendor's log, or with one that was exported.
func beginsRecord(shapes *core.ShapeReader, v *core.Vendor, line []byte) bool {
	if line[0] != '{' {
		return false
	}
	sh, _, err := shapes.Read(line)
	return err == nil && (v.Recognize(&sh) != "" || otlp.Is(&sh))
}

// cutText cuts buf[:end], a line of plain text. A session that it states is its own.
func (f *Framer) cutText(end int) {
	line := f.own(0, end)
	f.identify(line)
	session := f.vendor.Framing.PrintedText.Session(bytes.TrimPrefix(line, []byte("\xef\xbb\xbf")))
	origin := core.Origin{Time: f.file.time()} // no other time will follow
	if f.offset == 0 && line[end-1] != '\n' {
		origin.Digest = core.HexHash(string(line)) // a line without an end is the whole file
	}
	f.add(Framed{Record: core.Record{Data: line, Origin: origin}}, 0, end, core.TextShape(session))
	f.consume(end)
}
