package normalizers

import (
	"bytes"

	"tributary/normalizers/core"
)

// maxEventsPreamble is how many bytes of fields without data may precede the first data of a stream of server-sent
// events.
const maxEventsPreamble = 64 << 10

// serverEvents is the state of a [Framer] for a possible stream of server-sent events (the EventSource standard), as
// the protocol of ACP sends them: fields on lines, of which only data has records. An event ends with a blank line,
// but a record is returned as soon as its JSON is complete, so a stream copied without its blank lines has the same
// records.
type serverEvents struct {
	data  []byte // of the present event, lines joined; nil for none
	lines []eventLine
	scan  documentScan
	end   int64 // offset behind the last data line
}

// eventLine is the position of a line of an event's data.
type eventLine struct {
	from   int   // in the data
	at     int64 // in the file
	number int
}

// place returns the position in the file of byte i of the data.
func (e *serverEvents) place(i int) (at int64, line int) {
	l := e.lines[0]
	for _, next := range e.lines[1:] {
		if next.from > i {
			break
		}
		l = next
	}
	return l.at + int64(i-l.from), l.number
}

// eventField splits a line into a field defined by the standard and its value; a comment has the field ":". It
// returns false for any other line.
func eventField(line []byte) (field string, value []byte, ok bool) {
	name, value, _ := bytes.Cut(line, []byte(":"))
	switch field = string(name); field {
	case "":
		return ":", value, len(line) > 0
	case "data", "event", "id", "retry":
		return field, bytes.TrimPrefix(value, []byte(" ")), true
	default:
		return "", nil, false
	}
}

// lineOf returns a line without its end.
func lineOf(b []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(b, []byte("\n")), []byte("\r"))
}

// decideEvents examines the line that ends at buf[end], one of the first in the file. The file is a stream of
// server-sent events if its first lines are fields and its first data begins with JSON. It reports whether that is
// decided.
func (f *Framer) decideEvents(end int) bool {
	f.form = formJSON
	if end > maxEventsPreamble {
		return true
	}
	start := bytes.LastIndexByte(f.buf[:end-1], '\n') + 1
	line := lineOf(f.buf[start:end])
	if f.offset == 0 && start == 0 {
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	}
	field, value, ok := eventField(line)
	switch {
	case ok && field == "data":
		var scan documentScan
		value = bytes.TrimSpace(value)
		if ok, _ := scan.feed(value); ok && len(value) > 0 && (value[0] == '{' || value[0] == '[') {
			f.form = formEvents
		}
		return true
	case ok, len(bytes.TrimSpace(line)) == 0:
		f.form = formUndecided
		return false
	default:
		return true
	}
}

// takeEventLine processes the line buf[:end] of a stream of server-sent events.
func (f *Framer) takeEventLine(end int) {
	line := lineOf(f.buf[:end])
	whole := len(line)
	if f.offset == 0 {
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	}
	f.identify(line)
	field, value, ok := eventField(line)
	switch {
	case len(bytes.TrimSpace(line)) == 0:
		f.endEvent()
	case !ok: // not a field: a record of its own, maybe unreadable
		f.endEvent()
		f.cut(end, cutBroken)
		return
	case field == "data":
		f.takeEventData(whole-len(value), value, end)
	}
	f.consume(end)
}

// takeEventData processes the value of a data field, which begins at buf[at] in the line buf[:end].
func (f *Framer) takeEventData(at int, value []byte, end int) {
	e := &f.events
	if e.data != nil {
		joined := append([]byte{'\n'}, value...)
		if ok, done := e.scan.feed(joined); ok {
			e.lines = append(e.lines, eventLine{len(e.data) + 1, f.offset + int64(at), f.line})
			e.data, e.end = append(e.data, joined...), f.offset+int64(end)
			if done || len(e.data) > core.MaxRecordBytes {
				f.endEvent()
			}
			return
		}
		f.endEvent() // torn: another record follows
	}
	if len(bytes.TrimSpace(value)) == 0 {
		return
	}
	e.data, e.end = bytes.Clone(value), f.offset+int64(end)
	e.lines = append(e.lines[:0], eventLine{0, f.offset + int64(at), f.line})
	e.scan = documentScan{}
	if ok, done := e.scan.feed(value); !ok || done {
		f.endEvent()
	}
}

// endEvent returns the records of an event.
func (f *Framer) endEvent() {
	e := f.events
	f.events.data = nil
	if len(e.data) > core.MaxRecordBytes {
		at, line := e.place(0)
		f.assign(Framed{Record: core.Record{Origin: core.Origin{Position: at}}, Line: line, Err: core.ErrTooLarge, End: e.end}, core.Shape{})
		return
	}
	for at := spaces(e.data); at < len(e.data); {
		sh, n, err := f.shapes.Read(e.data[at:])
		if err != nil {
			sh, n = core.Shape{}, len(bytes.TrimRight(e.data[at:], " \t\r\n"))
		}
		next := at + n + spaces(e.data[at+n:])
		position, line := e.place(at)
		r := Framed{Record: core.Record{Data: e.data[at : at+n : at+n], Origin: core.Origin{Position: position}}, Line: line, End: e.end}
		if next < len(e.data) {
			r.End, _ = e.place(next)
		}
		f.assign(r, sh)
		at = next
	}
}
