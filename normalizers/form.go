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
	formJSON
	formEvents // server-sent events: a record is the data of one
	formText   // plain text: every line is a record, with its line end
)

// detectForm reports whether the file can be cut. Whether a file is plain text is decided by
// its first byte that is no white space, whether it is a stream of server-sent events by its
// first lines.
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
	case strings.HasPrefix(mark, string(first)) && len(f.buf) <= MaxRecordBytes: // nothing, or a part of it
	default:
		f.form = formText
	}
	return f.form != formUnknown
}

// cutText takes buf[:end] as a line of plain text. The session that it may name is its own.
func (f *Framer) cutText(end int) {
	line := bytes.Clone(f.buf[:end])
	f.identify(line)
	session := f.vendor.Framing.PrintedText.Session(bytes.TrimPrefix(line, []byte("\xef\xbb\xbf")))
	origin := Origin{Time: f.file.time()} // no other will follow
	f.add(Framed{Record: Record{Data: line, Origin: origin}}, 0, end, core.TextShape(session))
	f.consume(end)
}
